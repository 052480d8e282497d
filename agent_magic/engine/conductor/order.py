"""Order of ready steps: the longest remaining path first, or the least work first (`schedule="shortest"`).

Expected work is known before the run (`agent_magic.engine.expected`) and corrected during it. The correction factor of
a kind of steps (rows of an `--each`, or agents of a model) is actual over expected work of those that have ended; a
kind without any uses the factor of all.

The order is recomputed after 1, 2, 3, 4, 6, 9, 13, ... steps, since late steps change little and a recomputation walks
the whole plan. Plans of one kind need none: one common factor changes no order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.declare.dag import by_most, places
from agent_magic.engine.expected import Factors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.engine.policy import Policy


def turns_of(dag: Dag, policy: Policy, work_s: Sequence[float] | None) -> tuple[Sequence[int], Sequence[int]]:
    """Rank the agents by order of start; return rank by agent, and agent by rank."""
    if policy.schedule == "sequential":
        return places(dag.order), dag.order
    return dag.turns if work_s is None else _ranked(dag, policy, work_s)


def _ranked(dag: Dag, policy: Policy, work_s: Sequence[float]) -> tuple[Sequence[int], Sequence[int]]:
    rest = [-work for work in work_s] if policy.schedule == "shortest" else dag.remaining(work_s)
    return by_most(rest, dag.priority)


class Order:
    """The order of one run, by expected work; without it each agent counts as one.

    Attributes:
        turns: Rank of each agent; the lowest goes first.
        learns: True if durations can change the order.
    """

    def __init__(self, dag: Dag, policy: Policy, work_s: Sequence[float] | None, kinds: Sequence[str] = ()) -> None:
        self._dag, self._policy, self._work_s, self._kinds = dag, policy, work_s, kinds
        self.turns, self.by_turn = turns_of(dag, policy, work_s)
        self.learns = policy.schedule != "sequential" and len(set(kinds)) > 1
        self._factors = Factors()
        self._ended, self._next = 0, 1

    def learn(self, agent: int, took_s: float) -> bool:
        """Record the duration of a step. Return True if the order was recomputed."""
        self._factors.add(self._kinds[agent], took_s, 1.0 if self._work_s is None else self._work_s[agent])
        self._ended += 1
        if self._ended < self._next:
            return False
        self._next = self._ended + max(1, self._ended // 2)
        self.turns, self.by_turn = _ranked(self._dag, self._policy, self._corrected())
        return True

    def _corrected(self) -> list[float]:
        """Return the expected work of each step, corrected by the factor of its kind."""
        work_s = self._work_s or [1.0] * len(self._kinds)
        factors = {kind: self._factors.of(kind) for kind in set(self._kinds)}
        return [work * factors[kind] for work, kind in zip(work_s, self._kinds, strict=True)]
