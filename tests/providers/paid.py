"""A server on a thread of its own that keeps a book of what it was asked, whoever asks and however they die."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager

from tests.providers.wire import BEGIN, CLOSE, OPEN, REASON, STOP, delta

HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n"
PATIENCE_S = 60.0


class Paid:
    """What the server has seen.

    Attributes:
        book: Per prompt, what became of each request: `begun`, `whole`, or `cut` where whoever asked went away.
        sent: How many pieces of text were sent.
        pieces: How many pieces an answer has.
        pause_s: Seconds between two pieces.
        piece: What each of them is.
    """

    def __init__(self):
        self.book: dict[str, list[str]] = {}
        self.sent = 0
        self.pieces, self.pause_s, self.piece, self.url = 40, 0.05, "word ", ""

    def states(self):
        """Return the state of every request."""
        return [state for states in self.book.values() for state in states]

    def until(self, condition):
        """Wait until the book says something."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"it did not come to it: {self.book}"
            time.sleep(0.005)
        return time.monotonic()

    async def _handle(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            if "count_tokens" in head.partition("\r\n")[0]:
                writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n")
                writer.write(b'{"input_tokens": 10}')
                await writer.drain()
                return
            states = self.book.setdefault(str(body["messages"][0]["content"]), [])
            states.append("begun")
            number = len(states) - 1
            answer = asyncio.create_task(self._answer(writer))
            away = asyncio.create_task(reader.read())
            await asyncio.wait({answer, away}, return_when=asyncio.FIRST_COMPLETED)
            states[number] = "whole" if answer.done() and not answer.exception() else "cut"
            for task in (answer, away):
                task.cancel()
            await asyncio.wait({answer, away})
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer):
        writer.write(HEAD + BEGIN + OPEN)
        for _ in range(self.pieces):
            writer.write(delta(self.piece))
            await writer.drain()
            self.sent += 1
            await asyncio.sleep(self.pause_s)
        writer.write(CLOSE + REASON + STOP)
        await writer.drain()


@contextmanager
def paid():
    """Start the server, and stop it."""
    server = Paid()
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve():
        loops.append(asyncio.get_running_loop())
        listening = await asyncio.start_server(server._handle, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        ready.set()
        await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()
