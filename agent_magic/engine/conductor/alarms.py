"""Wake-up times of the conductor. Only the earliest is reported, once."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from agent_magic.engine.admission.room import FOREVER

LINES: Final = -1
"""Stands for all queued agents."""
RUN: Final = -2
"""Stands for the run's deadline."""
HEDGES: Final = -3
"""Stands for overdue requests."""


class Alarms:
    """Wake-up times by agent number, or `LINES`, `RUN`, `HEDGES`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._told_s = self._lines_s = FOREVER

    def set(self, at_s: float, agent: int, number: int = 0) -> None:
        """Set a wake-up time for an agent; `number` breaks ties."""
        heappush(self._heap, (at_s, number, agent))

    def set_lines(self, at_s: float) -> None:
        """Set the time to try the queues again, unless an earlier one is set. An infinite hold waits for an answer."""
        if at_s < self._lines_s:
            self._lines_s = at_s
            self.set(at_s, LINES)

    def woken(self) -> None:
        """Record a wake-up: callers take due ones with `due`, and the next time is reported again."""
        self._told_s = self._lines_s = FOREVER

    def due(self, now: float) -> int | None:
        """Return the next agent that is due, or `None`."""
        return heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def next_s(self) -> float | None:
        """Return the earliest time, if it is earlier than the last one reported.

        Superseded times of the queues are dropped, since each would lead to another.
        """
        heap = self._heap
        while heap and heap[0][0] < self._told_s:
            if heap[0][2] != LINES or heap[0][0] == self._lines_s:
                self._told_s = heap[0][0]
                return self._told_s
            heappop(heap)
        return None
