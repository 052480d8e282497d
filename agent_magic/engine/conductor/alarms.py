"""When the conductor wants to be woken, and what for. The earliest time only is told, and each once."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from agent_magic.engine.admission.room import FOREVER

LINES: Final = -1
"""Stands for all the agents that wait for room."""
RUN: Final = -2
"""Stands for the deadline of the run."""
HEDGES: Final = -3
"""Stands for requests that may be overdue."""


class Alarms:
    """The times to wake at, for an agent by its number, or for `LINES` or `RUN`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._told_s = self._lines_s = FOREVER

    def set(self, at_s: float, agent: int, number: int = 0) -> None:
        """Wake at this time for an agent; `number` orders those of one time."""
        heappush(self._heap, (at_s, number, agent))

    def set_lines(self, at_s: float) -> None:
        """Wake at this time to ask for room again, if not before. A hold without an end waits for an answer."""
        if at_s < self._lines_s:
            self._lines_s = at_s
            self.set(at_s, LINES)

    def woken(self) -> None:
        """Record that a time has come: what is due is asked for with `due`, and the next is told anew."""
        self._told_s = self._lines_s = FOREVER

    def due(self, now: float) -> int | None:
        """Return for whom a time has come, one after another; `None` where there is nobody more."""
        return heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def next_s(self) -> float | None:
        """Return the earliest time, if it is earlier than what was told last.

        Times to ask for room that another has taken the place of are forgotten: each would bring forth the next.
        """
        heap = self._heap
        while heap and heap[0][0] < self._told_s:
            if heap[0][2] != LINES or heap[0][0] == self._lines_s:
                self._told_s = heap[0][0]
                return self._told_s
            heappop(heap)
        return None
