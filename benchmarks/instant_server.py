"""A server that answers Messages requests at once, as cheaply as Python can: it must never be what is measured.

HTTP/1.1 with keep-alive and chunks, written by hand; every answer is made before the first request. The path says
which one: `/whole/10/v1/messages` is a stream of 10 events in one write, `/drip/200/10/v1/messages` one of 200 events
with 10 ms between them. Streams do not drip in step: each begins at its own part of the interval.
`/large/10/v1/messages` is a text of ten million characters in events of 64,000. `/turns/4/v1/messages` asks for a call
of the tool `look` in each turn but the fourth.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

MODEL = "claude-haiku-5-5"
FIXED_EVENTS = 5
PIECE = "about four words more, "
LIMITS = "".join(
    f"anthropic-ratelimit-{kind}-limit: 90000000\r\nanthropic-ratelimit-{kind}-remaining: 90000000\r\n"
    f"anthropic-ratelimit-{kind}-reset: 2100-01-01T00:00:00Z\r\n"
    for kind in ("requests", "input-tokens", "output-tokens", "tokens")
)
"""The real API sends them too; these hold nobody back."""
HEAD = (
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_instant\r\n"
    f"{LIMITS}transfer-encoding: chunked\r\n\r\n"
).encode()
LAST_CHUNK = b"0\r\n\r\n"
LARGE_PIECE = 64_000
GOLDEN = 0.618033988749895
"""Multiples of it spread evenly over the unit interval."""
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@functools.cache
def events(count: int, piece: str = PIECE) -> tuple[bytes, ...]:
    """Return the chunks of an answer with so many events."""
    return _message({"type": "text", "text": ""}, {"type": "text_delta", "text": piece}, count, "end_turn")


@functools.cache
def asks(turn: int) -> bytes:
    """Return a turn that asks for a call, as one piece."""
    block = {"type": "tool_use", "id": f"call{turn}", "name": "look", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps({"word": f"word {turn}"})}
    return HEAD + b"".join(_message(block, delta, FIXED_EVENTS + 1, "tool_use")) + LAST_CHUNK


def _message(block: dict[str, Any], delta: dict[str, Any], count: int, reason: str) -> tuple[bytes, ...]:
    """Return the chunks of a reply of one block."""
    usage = {"input_tokens": 25, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_instant", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    said: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *[{"type": "content_block_delta", "index": 0, "delta": delta}] * (count - FIXED_EVENTS),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return tuple(_chunk(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()) for one in said)


@functools.cache
def whole(count: int) -> bytes:
    """Return an answer as one piece."""
    return HEAD + b"".join(events(count)) + LAST_CHUNK


@functools.cache
def large(millions: int) -> bytes:
    """Return an answer of so many million characters."""
    piece = (PIECE * (LARGE_PIECE // len(PIECE) + 1))[:LARGE_PIECE]
    return HEAD + b"".join(events(FIXED_EVENTS + millions * 1_000_000 // LARGE_PIECE + 1, piece)) + LAST_CHUNK


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Connection(asyncio.Protocol):
    """One connection; requests on it come one after another."""

    answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        """Answer when a request is complete."""
        self._seen += data
        head = self._seen.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(self._seen, 0, head + 2)
        if len(self._seen) < head + 4 + (int(length[1]) if length else 0):
            return
        kind, *numbers = self._seen.split(b" ", 2)[1].decode().split("/")[1:-2]
        turn = 1 + self._seen.count(b'"tool_result"') if kind == "turns" else 0
        self._seen = b""
        if kind == "turns":
            self._transport.write(asks(turn) if turn < int(numbers[0]) else whole(FIXED_EVENTS + 1))
        elif kind == "whole":
            self._transport.write(whole(int(numbers[0])))
        elif kind == "large":
            self._transport.write(large(int(numbers[0])))
        else:
            self._begin_drip(events(int(numbers[0])), int(numbers[1]) / 1000)

    def _begin_drip(self, chunks: tuple[bytes, ...], interval_s: float) -> None:
        Connection.answered += 1
        loop = asyncio.get_running_loop()
        self._transport.write(HEAD)
        first = loop.time() + Connection.answered * GOLDEN % 1 * interval_s

        def drip(number: int) -> None:
            if self._transport.is_closing():
                return
            last = number == len(chunks) - 1
            self._transport.write(chunks[number] + LAST_CHUNK if last else chunks[number])
            if not last:
                loop.call_at(first + (number + 1) * interval_s, drip, number + 1)

        loop.call_at(first, drip, 0)


async def serve() -> None:
    """Serve on any free port of the loopback address, and print it, until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextlib.contextmanager
def instant_server() -> Generator[str]:
    """Run the server in a process of its own. Yields its address."""
    command = [sys.executable, "-m", "benchmarks.instant_server"]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"
        assert child.stdin is not None
        child.stdin.close()


if __name__ == "__main__":
    asyncio.run(serve())
