"""A server of tools for the tests: a program of its own."""

from __future__ import annotations

import os
import sys

from mcp.server import MCPServer
from mcp.types import ImageContent, ToolAnnotations

server = MCPServer("shop")


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
    return ImageContent(type="image", data="AAAA", mime_type="image/png")


if __name__ == "__main__":
    print("the shop opens", file=sys.stderr)
    if "broken" in sys.argv:
        sys.exit("no goods: sk-" + "ant-api03-" + "b" * 20)
    server.run("stdio")
