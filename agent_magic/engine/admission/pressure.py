"""Time pressure of a run, for `--degrade`.

The longest path from a step to the end, and all remaining work divided by the slots, must fit into the time until the
deadline. Places and rounds that may not be needed count as nothing.
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
"""The estimate is renewed after this fraction (1/8) of new durations."""


class Pressure:
    """Knows if a run is short of time; while nothing is known, nothing is late."""

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
        if self._work[step] > 0:
            self._factors.add(self._kinds[step], took_s, self._work[step])
            self._ended += 1
            self._known = True

    def began(self, step: int) -> None:
        if step in self._to_do:
            self._to_do.discard(step)
            self._volume_s -= self._work_s[step] if self._work_s else 0.0

    def is_late(self, step: int, now: float) -> bool:
        if not self._known:
            return False
        if not self._work_s or self._ended >= self._next:
            self._work_s = [work * self._factors.of(kind) for work, kind in zip(self._work, self._kinds, strict=True)]
            self._path_s = self._dag.remaining(self._work_s)
            self._volume_s = sum(self._work_s[one] for one in self._to_do)
            self._next = self._ended + max(1, self._ended // ANEW)
        return max(self._path_s[step], self._volume_s / self._slots) > self._deadline_s - now
