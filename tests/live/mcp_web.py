"""A server of tools at an address that answers byte for byte as a test says, and records what reaches it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
ECHO = {"name": "echo", "description": "Say it again.", "inputSchema": SCHEMA}
ABOUT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "web", "version": "1"},
}


class Asked(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Web  # pyright: ignore[reportIncompatibleVariableOverride]
    message: dict[str, Any]

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""

    def reply(self, body: bytes | str = b"", status: int = 200, kind: str = "application/json", **headers: str) -> None:
        """Send a response. `length` announces another length than the body has."""
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", headers.pop("length", str(len(data))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def result(self, **result: Any) -> None:
        """Send a result."""
        self.reply(json.dumps({"jsonrpc": "2.0", "id": self.message.get("id"), "result": result}))

    def text(self, text: str) -> None:
        """Send the result of a call."""
        self.result(content=[{"type": "text", "text": text}], isError=False)

    def events(self, *parts: str) -> None:
        """Send events until the connection is closed here."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for part in parts:
            self.wfile.write(part.encode())
            self.wfile.flush()
        self.close_connection = True

    def wait(self) -> None:
        """Answer nothing until the server ends."""
        self.server.ends.wait()
        self.close_connection = True

    def handle_one_request(self) -> None:
        """Answer; a client may be gone."""
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_POST(self) -> None:  # noqa: D102
        self.message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.answer(self.message["method"])

    def do_GET(self) -> None:  # noqa: D102
        self.message = {}
        self.answer("GET")

    def do_DELETE(self) -> None:  # noqa: D102
        self.message = {}
        self.answer("DELETE")

    def answer(self, method: str) -> None:
        """Answer as the test says, or as a good server."""
        with self.server.lock:
            self.server.seen.append((method, dict(self.headers)))
        said = self.server.says.get(method)
        if said is not None:
            said(self)
        elif method == "initialize":
            self.reply(json.dumps({"jsonrpc": "2.0", "id": self.message["id"], "result": ABOUT}), mcp_session_id="s1")
        elif method == "tools/list":
            self.result(tools=[ECHO])
        elif method == "tools/call":
            self.text(self.message["params"]["arguments"].get("text", ""))
        elif method == "GET":
            self.reply(status=405)
        elif "id" in self.message:
            self.reply(
                json.dumps({"jsonrpc": "2.0", "id": self.message["id"], "error": {"code": -32601, "message": "?"}})
            )
        else:
            self.reply(status=202 if self.message else 200)


class Web(ThreadingHTTPServer):
    """A server. `with Web({"tools/call": lambda asked: asked.reply(status=500)}) as web: ...`.

    Attributes:
        says: What answers a method, `GET` or `DELETE`.
        seen: Methods that arrived, with their headers.
        ends: Set at the end.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, says: dict[str, Callable[[Asked], None]] | None = None, port: int = 0) -> None:
        self.says, self.lock, self.ends = says or {}, threading.Lock(), threading.Event()
        self._open: list[socket.socket] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        super().__init__(("127.0.0.1", port), Asked)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def count(self, method: str) -> int:
        """Return how often a method arrived."""
        with self.lock:
            return [name for name, _ in self.seen].count(method)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Keep the connection, to close it at the end."""
        self._open.append(request)
        super().process_request(request, client_address)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End, with all connections."""
        if self.ends.is_set():
            return
        self.ends.set()
        self.shutdown()
        self.server_close()
        for connection in self._open:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
