"""A tiny HTTP server that sends what a test says, byte for byte, and counts what reaches it."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


def event(kind, **fields):
    """One event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def delta(text):
    """A piece of text."""
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


USAGE = {"input_tokens": 10, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4, "output_tokens": 1}
BEGIN = event(
    "message_start",
    message={
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-5-5-20261001",
        "content": [],
        "stop_reason": None,
        "usage": USAGE,
    },
)
OPEN = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
CLOSE = event("content_block_stop", index=0)
REASON = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5})
STOP = event("message_stop")
TEXT = delta("hello ") + delta("world")
WHOLE = BEGIN + OPEN + TEXT + CLOSE + REASON + STOP
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-5-5-20261001",
    "content": [{"type": "text", "text": "hello "}, {"type": "text", "text": "world"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 5},
}


def reply(body=b"", status=200, kind="text/event-stream", length=None, **headers):
    """A response. `length` announces another length than the body has."""
    lines = [
        f"HTTP/1.1 {status} X",
        "connection: close",
        *(f"{key.replace('_', '-')}: {value}" for key, value in headers.items()),
    ]
    if kind:
        lines.append(f"content-type: {kind}")
    if length is not None:
        lines.append(f"content-length: {length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def problem(status, kind="x_error", message="the API's words", code=None, **headers):
    """An error as the API writes it."""
    details = {"details": {"error_code": code}} if code else {}
    body = {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": "req_1"}
    return reply(json.dumps(body).encode(), status, "application/json", request_id="req_1", **headers)


@dataclass
class Server:
    """What the server has seen.

    Attributes:
        answer: What it sends: bytes, or `async f(writer, number)`.
        bodies: The requests.
        heads: Their headers.
        paths: What they asked for.
        gone: Requests whose client went away before the end.
        open: Requests being answered.
        peak: The most at once.
    """

    answer: Any
    url: str = ""
    bodies: list = field(default_factory=list)
    heads: list = field(default_factory=list)
    paths: list = field(default_factory=list)
    gone: int = 0
    open: int = 0
    peak: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, reader, writer):
        """Take one connection."""
        asyncio.current_task().set_name("server")
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            headers = dict(line.split(": ", 1) for line in head.lower().split("\r\n")[1:] if line)
            self.heads.append(headers)
            self.paths.append(head.split(" ", 2)[1])
            self.bodies.append(json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"null"))
            number = len(self.bodies)
            self.asked.set()
            if isinstance(self.answer, bytes):
                writer.write(self.answer)
                await writer.drain()
            else:
                work = asyncio.create_task(self.answer(writer, number), name="server")
                away = asyncio.create_task(reader.read(), name="server")
                await asyncio.wait({work, away}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    self.gone += 1
                    self.left.set()
                for task in (work, away):
                    task.cancel()
                await asyncio.wait({work, away})
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    @property
    def calls(self):
        """How many requests came."""
        return len(self.bodies)


async def until(condition):
    """Let the loop turn until something holds. The test's own limit ends it if that never comes."""
    while not condition():  # noqa: ASYNC110 - nothing tells of these conditions: connections, tasks, arriving text
        await asyncio.sleep(0)


def tasks_left():
    """The tasks that are neither the test's nor the server's."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task() and task.get_name() != "server"}


@asynccontextmanager
async def serving(answer):
    """Serve on a free port."""
    server = Server(answer)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()
        await until(lambda: not server.open)  # a client that has gone away is noticed a moment later
