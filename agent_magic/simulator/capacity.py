"""A self-hosted server: a few slots, a speed shared by all slots, and a queue, first come, first served.

Each of `n` writing requests gets `min(cap, shared_rate / n)` tokens a second (processor sharing). `Station` keeps one
clock for all, in tokens that each of them has received.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a server, in tokens per second; by default requests do not slow each other.

    `prompt_rate` are input tokens read by an otherwise idle server; without it a prompt is read within the time to the
    first token, at any load.
    """

    slots: float = math.inf
    shared_rate: float = math.inf
    cap: float = math.inf
    prompt_rate: float | None = None

    @property
    def is_unlimited(self) -> bool:
        return self.slots == math.inf == self.shared_rate

    @property
    def is_paced(self) -> bool:
        """True if it sets the tokens a second of requests. With slots alone, each has its own pace."""
        return self.pace(1) < math.inf

    def pace(self, writing: int) -> float:
        return min(self.cap, self.shared_rate / max(1, writing))

    def read(self, input_tokens: int) -> float:
        """Return how many output tokens could be written while a prompt is read."""
        return 0.0 if not self.prompt_rate else input_tokens / self.prompt_rate * self.pace(1)


class Station:
    """The slots and the clock of a server."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._queue: deque[asyncio.Future[None]] = deque()
        self._inside = self._writing = 0
        self._tokens, self._at_s = 0.0, time.monotonic()
        self._goals: list[tuple[float, int, asyncio.Future[None]]] = []
        self._serial = 0
        self._alarm: asyncio.TimerHandle | None = None

    async def enter(self) -> None:
        if self._inside < self.capacity.slots:
            self._inside += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it had got the slot in the meantime
            else:
                self._queue.remove(turn)
            raise

    def leave(self) -> None:
        if self._queue:
            self._queue.popleft().set_result(None)
        else:
            self._inside -= 1

    def begin(self) -> float:
        """Start writing and return the clock, in tokens."""
        self._turn()
        self._writing += 1
        self._set_alarm()
        return self._tokens

    def end(self) -> None:
        self._turn()
        self._writing -= 1
        self._set_alarm()

    def now(self) -> float:
        self._turn()
        return self._tokens

    async def until(self, tokens: float) -> None:
        """Wait until this many tokens are written; only for a request that is writing."""
        self._turn()
        if tokens <= self._tokens:
            return
        goal = asyncio.get_running_loop().create_future()
        self._serial += 1
        heappush(self._goals, (tokens, self._serial, goal))
        self._set_alarm()
        await goal

    def _turn(self) -> None:
        now_s = time.monotonic()
        if self._writing:
            self._tokens += (now_s - self._at_s) * self.capacity.pace(self._writing)
        self._at_s = now_s

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._goals and self._goals[0][2].done():  # the waiting request is gone
            heappop(self._goals)
        if self._goals and self._writing:
            wait_s = (self._goals[0][0] - self._tokens) / self.capacity.pace(self._writing)
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, wait_s), self._ring)

    def _ring(self) -> None:
        self._turn()
        while self._goals and self._goals[0][0] <= self._tokens + 1e-6:
            _, _, goal = heappop(self._goals)
            if not goal.done():
                goal.set_result(None)
        self._alarm = None
        self._set_alarm()
