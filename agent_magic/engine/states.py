"""The states of steps, their ends, and the times to wake up."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from agent_magic.engine.contract import FOREVER

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.flow import Left
    from agent_magic.record.answer import Status

LINES: Final = -1
"""All queued agents."""
RUN: Final = -2
"""The run's deadline."""
HEDGES: Final = -3
"""Overdue requests."""


class Alarms:
    """Wake-up times by agent number, or `LINES`, `RUN`, `HEDGES`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._told_s = self._queues_s = FOREVER

    def set(self, at_s: float, agent: int, number: int = 0) -> None:
        heappush(self._heap, (at_s, number, agent))

    def set_lines(self, at_s: float) -> None:
        if at_s < self._queues_s:
            self._queues_s = at_s
            self.set(at_s, LINES)

    def woken(self) -> None:
        self._told_s = self._queues_s = FOREVER

    def due(self, now: float) -> int | None:
        return heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def next_s(self) -> float | None:
        # Superseded times of the queues are dropped, since each would lead to another.
        heap = self._heap
        while heap and heap[0][0] < self._told_s:
            if heap[0][2] != LINES or heap[0][0] == self._queues_s:
                self._told_s = heap[0][0]
                return self._told_s
            heappop(heap)
        return None


PENDING: Final = 0
READY: Final = 1
RUNNING: Final = 2
BACKOFF: Final = 3
ENDED: Final = 4
AWAY: Final = 5
KEPT: Final = 6
"""It has ended, and whether it counts is not decided yet."""
UNDER_WAY: Final = frozenset({RUNNING, AWAY})
SKIPPED: Final = "skipped by the user"
STOPPED: Final = "Stopped"
"""Kind of an end on demand, or caused by another agent's end."""


class Ends:
    """Steps that ended without success, or are about to, with the reasons."""

    __slots__ = ("again", "cut", "done", "late", "left", "lost", "stopping")

    def __init__(self, done: Mapping[int, Status] | None, left: Mapping[int, Left] | None) -> None:
        self.done: dict[int, Status] = dict(done or {})  # ends of a recorded run; empty once the run has started
        self.left: dict[int, Left] = dict(left or {})
        self.stopping: dict[int, tuple[Status, str]] = {}  # steps that are aborted, with the end that they will have
        self.lost: dict[int, int] = {}  # steps without success, with the one that caused it: itself or an ancestor
        self.again: set[int] = set()  # steps to run again as soon as they are aborted
        self.cut, self.late = False, ""  # `late` says why nothing more starts after the run's deadline


def to_reopen(
    dag: Dag, lost: Mapping[int, int], asked: Iterable[int], races: Container[int] = ()
) -> tuple[list[int], dict[int, int]]:
    """Return the agents to run again, parents before children, and the new cause of each that stays skipped.

    A retried agent brings its unsuccessful ancestors, and the steps skipped because of them. Agents skipped or stopped
    by name come back only by name.
    """
    wanted = {agent for agent in asked if agent in lost}
    if not wanted:
        return [], {}
    wanted |= {agent for agent in dag.ancestors(wanted) if agent in lost}
    below = dag.descendants(wanted)
    found: dict[int, None] = {}
    causes: dict[int, int] = {}
    for agent in dag.order:
        if agent in wanted or (agent in below and lost.get(agent, agent) != agent):
            in_its_way = [parent for parent in dag.parents[agent] if parent in lost and parent not in found]
            if agent in races and len(in_its_way) < len(dag.parents[agent]):
                in_its_way = []
            if not in_its_way:
                found[agent] = None
            elif lost[agent] in found:
                causes[agent] = causes.get(in_its_way[0], lost[in_its_way[0]])
    return list(found), causes
