"""Who goes first among those that are ready: whoever has the most work before the end of the plan.

How long a step works is expected before the run, see `agent_magic.engine.expected`, and corrected as it goes on. Steps
of one kind, the rows of an `--each` or else the agents of a model, are off alike: what those took that have ended, over
what was expected of them, is the factor of those to come. A kind of which none has ended takes the factor of all.

The order is made anew when 1, 2, 3, 4, 6, 9, 13, ... steps have ended, half as many again each time: late ones change
it little, and it costs a walk through the plan, however many kinds there are. Plans of one kind never need it, since
one factor for all changes no order.
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
    """Number the agents by who goes first among ready ones; return turn by agent and agent by turn."""
    if policy.schedule == "sequential":
        return places(dag.order), dag.order
    return dag.turns if work_s is None else by_most(dag.remaining(work_s), dag.priority)


class Order:
    """The order of one run.

    Args:
        dag: Who waits for whom.
        policy: How to run.
        work_s: Per agent, expected seconds of work; `None` counts each as one.
        kinds: Per agent, what it is alike in; empty corrects nothing.

    Attributes:
        turns: Per agent, its place among all; lower goes first.
        by_turn: The agents by their places.
        learns: Whether what steps took can change it.
    """

    def __init__(self, dag: Dag, policy: Policy, work_s: Sequence[float] | None, kinds: Sequence[str] = ()) -> None:
        self._dag, self._work_s, self._kinds = dag, work_s, kinds
        self.turns, self.by_turn = turns_of(dag, policy, work_s)
        self.learns = policy.schedule != "sequential" and len(set(kinds)) > 1
        self._factors = Factors()
        self._ended, self._next = 0, 1

    def learn(self, agent: int, took_s: float) -> bool:
        """Count what a step took. Tells whether the order was made anew."""
        self._factors.add(self._kinds[agent], took_s, 1.0 if self._work_s is None else self._work_s[agent])
        self._ended += 1
        if self._ended < self._next:
            return False
        self._next = self._ended + max(1, self._ended // 2)
        self.turns, self.by_turn = by_most(self._dag.remaining(self._corrected()), self._dag.priority)
        return True

    def _corrected(self) -> list[float]:
        """Return the expected work of each step, times the factor of its kind."""
        work_s = self._work_s or [1.0] * len(self._kinds)
        factors = {kind: self._factors.of(kind) for kind in set(self._kinds)}
        return [work * factors[kind] for work, kind in zip(work_s, self._kinds, strict=True)]
