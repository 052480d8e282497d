"""A response on its schedule, for any transport."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator

from agent_magic.simulator.journal import Entry
from agent_magic.simulator.response import Ending
from agent_magic.simulator.service import Exchange, Service

FLUSH_S = 0.03
FLUSH_PER_STREAM_S = 0.000_2
TOKEN_PART = 1e-3
"""Within this fraction a token counts as written."""


class Sending:
    """A response that is being sent."""

    def __init__(self, service: Service, exchange: Exchange, entry: Entry) -> None:
        self._cache, self._journal = service.cache, service.journal
        self._exchange, self._entry = exchange, entry
        self._start_s = time.monotonic()
        self._station, self._has_slot, self._from = exchange.station, False, -1.0
        self._clock = exchange.station if exchange.station and exchange.station.capacity.is_paced else None

    async def first(self) -> None:
        """Forever if it hangs."""
        planned = self._exchange.response
        if self._station is not None:
            await self._station.enter()
            self._has_slot, self._start_s = True, time.monotonic()
        if planned.ending is Ending.HANG:
            await forever()
        await _sleep_until(self._start_s + planned.frames[0].at_s)
        if self._clock is not None:
            self._from = self._clock.begin()
            self._from += self._clock.capacity.read(self._entry.input_tokens)
            await self._clock.until(self._from + (planned.frames[0].tokens if len(planned.frames) == 1 else 0))

    def close(self) -> None:
        if self._station is not None and self._has_slot:
            self._has_slot = False
            if self._from >= 0:
                self._station.end()
            self._station.leave()

    def began(self) -> None:
        now_s = time.monotonic()
        self._entry.first_byte_s = self._journal.at(now_s)
        if self._exchange.lookup:
            self._cache.begin(self._exchange.lookup, now_s)

    async def parts(self) -> AsyncGenerator[tuple[bytes, bool]]:
        """Yield parts when due, each with whether it is the last, which is sent with the ending."""
        # Frames due together are one part. A stream is written at most every 30 ms, less often when many are
        # open: 1,000 streams are 5,000 writes a second, not 50,000.
        frames, place = self._exchange.response.frames, 0
        while place < len(frames):
            due, first = time.monotonic() - self._start_s, place
            made = math.inf if self._clock is None else self._clock.now() - self._from
            while place < len(frames) and frames[place].at_s <= due and frames[place].tokens <= made + TOKEN_PART:
                place += 1
            if place > first:
                self._sent(frames[place - 1].tokens)
                yield b"".join([frame.data for frame in frames[first:place]]), place == len(frames)
            if place < len(frames):
                gap_s = max(FLUSH_S, self._journal.in_flight * FLUSH_PER_STREAM_S)
                await _sleep_until(max(self._start_s + frames[place].at_s, time.monotonic() + gap_s))
                if self._clock is not None:
                    await self._clock.until(self._from + frames[place].tokens)

    def finished(self) -> None:
        self._entry.finished_s = self._journal.at(time.monotonic())

    def _sent(self, tokens: int) -> None:
        """Record the output so far and count it against the limit."""
        if self._exchange.pool:
            self._exchange.pool.output_tokens.take(tokens - self._entry.output_tokens, time.monotonic())
        self._entry.output_tokens = tokens


async def forever() -> None:
    """Until the client disconnects."""
    await asyncio.get_running_loop().create_future()


async def _sleep_until(at_s: float) -> None:
    if (wait_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(wait_s)
