"""A response on its schedule, whatever carries it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from agent_magic.simulator.journal import Entry
from agent_magic.simulator.response import Ending
from agent_magic.simulator.service import Exchange, Service

FLUSH_S = 0.03
FLUSH_PER_STREAM_S = 0.000_2


class Sending:
    """A response that is being sent. Times of its frames count from its creation.

    Args:
        service: What has decided it.
        exchange: The response.
        entry: Its entry in the journal.
    """

    def __init__(self, service: Service, exchange: Exchange, entry: Entry) -> None:
        self._cache, self._journal = service.cache, service.journal
        self._exchange, self._entry = exchange, entry
        self._start_s = time.monotonic()

    async def first(self) -> None:
        """Wait until it begins; where it hangs, for ever."""
        planned = self._exchange.response
        if planned.ending is Ending.HANG:
            await forever()
        await _sleep_until(self._start_s + planned.frames[0].at_s)

    def began(self) -> None:
        """Record that its head is sent."""
        now_s = time.monotonic()
        self._entry.first_byte_s = self._journal.at(now_s)
        if self._exchange.lookup:
            self._cache.begin(self._exchange.lookup, now_s)

    async def parts(self) -> AsyncGenerator[tuple[bytes, bool]]:
        """Yield its parts when they are due, and whether each is the last, which is sent with the ending.

        Frames that are due together are one part. A stream is written at most every 30 ms, less often when many are
        open: 1,000 streams are 5,000 writes a second, not 50,000.
        """
        frames, place = self._exchange.response.frames, 0
        while place < len(frames):
            due, first = time.monotonic() - self._start_s, place
            while place < len(frames) and frames[place].at_s <= due:
                place += 1
            if place > first:
                self._sent(frames[place - 1].tokens)
                yield b"".join([frame.data for frame in frames[first:place]]), place == len(frames)
            if place < len(frames):
                gap_s = max(FLUSH_S, self._journal.in_flight * FLUSH_PER_STREAM_S)
                await _sleep_until(max(self._start_s + frames[place].at_s, time.monotonic() + gap_s))

    def finished(self) -> None:
        """Record that it, or its fault, is complete."""
        self._entry.finished_s = self._journal.at(time.monotonic())

    def _sent(self, tokens: int) -> None:
        """Record the output so far, and take it from the limit."""
        if self._exchange.pool:
            self._exchange.pool.output_tokens.take(tokens - self._entry.output_tokens, time.monotonic())
        self._entry.output_tokens = tokens


async def forever() -> None:
    """Wait until whoever asked is gone, which cancels this."""
    await asyncio.get_running_loop().create_future()


async def _sleep_until(at_s: float) -> None:
    if (wait_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(wait_s)
