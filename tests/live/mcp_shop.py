"""A server of tools for the tests: a program of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, ToolAnnotations

server = MCPServer("shop")
KEY = "a-key-of-no-known-shape-4711"
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
"""A picture of one pixel."""


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def price(item: str, number: int = 1) -> str:
    """Return the price of an item."""
    return f"{item}: {number * 3} EUR"


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool(name="who.is")
def who() -> dict[str, int | str]:
    """Return the process and what it was given."""
    return {"pid": os.getpid(), "token": os.environ.get("SHOP_TOKEN", ""), "other": os.environ.get("SHOP_OTHER", "")}


@server.tool(structured_output=False)
def picture() -> ImageContent:
    """Return a picture."""
    return ImageContent(type="image", data=DOT, mime_type="image/png")


@server.tool(structured_output=False)
def scraps() -> list[ImageContent | AudioContent | EmbeddedResource]:
    """Return a picture that is none, a sound, and the picture as a file."""
    return [
        ImageContent(type="image", data="AAAA", mime_type="image/png"),
        AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
        EmbeddedResource(
            type="resource", resource=BlobResourceContents(uri="file:///a/dot.png", blob=DOT, mime_type="image/png")
        ),
    ]


async def serve() -> None:
    """Serve at an address, which is printed, to those who have the key."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = server.streamable_http_app()

        async def asked(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or dict(scope["headers"]).get(b"authorization") == b"Bearer " + KEY.encode():
                await app(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})

        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        await uvicorn.Server(uvicorn.Config(asked, log_level="error")).serve([listener])


if __name__ == "__main__":
    print("the shop opens", file=sys.stderr)
    if "broken" in sys.argv:
        sys.exit("no goods: sk-" + "ant-api03-" + "b" * 20)
    if "http" in sys.argv:
        asyncio.run(serve())
    else:
        server.run("stdio")
