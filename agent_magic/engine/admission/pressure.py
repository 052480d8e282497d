"""Whether a run is short of time: what `--degrade` asks before a request is sent.

Two things have to fit into what is left until the deadline: the longest chain of work from a step to the end of the
plan, and all work that has not begun, shared out over the slots. How long steps take is what was expected of them,
corrected by what this run has measured of their kind, as for the order of steps; while nothing is known nothing is
late. Places and rounds that may not be needed count as nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.declare.flow import is_reserved
from agent_magic.engine.expected import Factors, kinds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.plan import Plan

ANEW = 8
"""Worked out anew when so many parts of what is known, one of 8, have come since."""


class Pressure:
    """Knows whether a run is short of time.

    Args:
        plan: The plan.
        dag: Who waits for whom.
        deadline_s: When the run ends.
        slots: How many requests may be under way at once.
        work_s: Per step, expected seconds of work; `None` is unknown.
    """

    def __init__(self, plan: Plan, dag: Dag, deadline_s: float, slots: int, work_s: Sequence[float] | None) -> None:
        self._dag, self._deadline_s, self._slots, self._known = dag, deadline_s, slots, work_s is not None
        needed = [not (one.is_task or is_reserved(one)) for one in plan.agents]
        self._work = [
            seconds if counts else 0.0 for seconds, counts in zip(work_s or [1.0] * len(plan), needed, strict=True)
        ]
        self._kinds, self._factors = kinds_of(plan), Factors()
        self._to_do = {step for step, counts in enumerate(needed) if counts}
        self._path_s: list[float] = []
        self._work_s: list[float] = []
        self._volume_s = 0.0
        self._ended = self._next = 0

    def learn(self, step: int, took_s: float) -> None:
        """Count what an answer took."""
        if self._work[step] > 0:
            self._factors.add(self._kinds[step], took_s, self._work[step])
            self._ended += 1
            self._known = True

    def began(self, step: int) -> None:
        """Record that a step has begun."""
        if step in self._to_do:
            self._to_do.discard(step)
            self._volume_s -= self._work_s[step] if self._work_s else 0.0

    def is_late(self, step: int, now: float) -> bool:
        """Tell whether what follows from a step, or all that is left, does not fit into the time that is left."""
        if not self._known:
            return False
        if not self._work_s or self._ended >= self._next:
            self._work_s = [work * self._factors.of(kind) for work, kind in zip(self._work, self._kinds, strict=True)]
            self._path_s = self._dag.remaining(self._work_s)
            self._volume_s = sum(self._work_s[one] for one in self._to_do)
            self._next = self._ended + max(1, self._ended // ANEW)
        return max(self._path_s[step], self._volume_s / self._slots) > self._deadline_s - now
