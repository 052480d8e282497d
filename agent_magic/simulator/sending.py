"""Sending a reply over a connection, on its schedule, down to the faults of the transport."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from agent_magic.simulator.reply import Ending, Reply
from agent_magic.simulator.wire import Frame

FLUSH_S = 0.03
FLUSH_PER_STREAM_S = 0.000_2
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Watch:
    """What is told while a reply is sent.

    Attributes:
        began: Called when the response begins.
        sent: Called with the output tokens that are out so far.
        done: Called when all that should be sent was sent.
        in_flight: Says how many requests are being answered; many are written less often each.
    """

    began: Callable[[], None]
    sent: Callable[[int], None]
    done: Callable[[], None]
    in_flight: Callable[[], int]


async def send(request: web.Request, reply: Reply, headers: Mapping[str, str], watch: Watch) -> web.StreamResponse:
    """Send a reply.

    The times of the frames count from now. Frames that are due together leave in one write, and a stream is written
    at most every 30 ms, less often when many are open: 1000 streams are 5000 writes a second, not 50,000.

    Raises:
        asyncio.CancelledError: The client went away, or the fault of the reply closed the connection.
    """
    start_s = time.monotonic()
    response = web.StreamResponse(status=reply.status, headers={**headers, **dict(reply.headers)})
    response.headers["content-type"] = reply.content_type
    response.content_length = reply.length
    if reply.ending is Ending.HANG:
        await _forever()
    await _sleep_until(start_s + reply.frames[0].at_s)
    if reply.ending is Ending.RESET:
        watch.done()
        await _reset(request)
    await response.prepare(request)
    watch.began()
    rest = await _write_frames(response, reply.frames, start_s, watch)
    if reply.ending is Ending.CLEAN:
        watch.done()
        await response.write_eof(rest)
        return response
    await response.write(rest)
    if reply.ending is Ending.CUT:
        watch.done()
        _cut(request, chunked=reply.length is None)
    await _forever()
    return response


async def _write_frames(response: web.StreamResponse, frames: tuple[Frame, ...], start_s: float, watch: Watch) -> bytes:
    """Write all frames but those that are due at the end, and return these, to leave together with the ending."""
    place = 0
    while True:
        due, first = time.monotonic() - start_s, place
        while place < len(frames) and frames[place].at_s <= due:
            place += 1
        data = b"".join([frame.data for frame in frames[first:place]])
        if place > first:
            watch.sent(frames[place - 1].tokens)
        if place == len(frames):
            return data
        if data:
            await response.write(data)
        gap_s = max(FLUSH_S, watch.in_flight() * FLUSH_PER_STREAM_S)
        await _sleep_until(max(start_s + frames[place].at_s, time.monotonic() + gap_s))


async def _sleep_until(at_s: float) -> None:
    if (wait_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(wait_s)


async def _forever() -> None:
    """Wait until the connection is lost: that cancels the handler."""
    await asyncio.get_running_loop().create_future()


def _cut(request: web.Request, *, chunked: bool) -> None:
    """Close the connection in the middle of the body, in a chunk that is announced longer than it is."""
    if request.transport is None:
        return
    if chunked:
        request.transport.write(b"400\r\nevent: content_block_delta\nda")
    request.transport.close()


async def _reset(request: web.Request) -> None:
    """Reset the connection, so that the client sees no orderly end."""
    if request.transport is not None:
        plug = request.transport.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        request.transport.abort()
    await _forever()
