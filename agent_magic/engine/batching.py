"""Which requests are sent in batches: half the price, hours later.

A batched request takes no slot and waits for no limit, cache leader or key; it counts toward the budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.declare.agent import Agent
from agent_magic.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.declare.step import Step
    from agent_magic.engine.policy import Policy

BATCH_S = 3600.0
"""Expected seconds of a batch. Source: the vendor's page on batches: most finish in less than an hour."""
BATCH_MOST_S = 86_400.0
"""Source: the same page: a batch expires after 24 hours."""
LIVE_SHARE = 0.25
"""Share of a deadline reserved for asking live what no batch has answered."""


class Batching:
    """Decides whether a queued step's next request is batched; `now` has the steps with a batched request."""

    def __init__(
        self, policy: Policy, steps: Collection[int], layers_left: Sequence[float], batch_s: float = BATCH_S
    ) -> None:
        self.steps, self.now = steps, set[int]()
        self._layers_left, self._batch_s = layers_left, batch_s
        self._by_deadline = policy.deadline_s if policy.batch == "auto" else None
        self._falls_back = policy.batch_fallback == "live"
        self._live: set[int] = set()

    def decide(self, step: int, now: float) -> None:
        by_batch = step in self.steps and step not in self._live and self._is_in_time(step, now)
        (self.now.add if by_batch else self.now.discard)(step)

    def ahead(self, layers: Sequence[int]) -> set[int]:
        return {one for one in self.steps if self._is_in_time(one, layers[one] * self._batch_s)}

    def failed(self, step: int) -> None:
        if self._falls_back and step in self.now:
            self._live.add(step)

    def _is_in_time(self, step: int, now: float) -> bool:
        left_s = self._layers_left[step] * self._batch_s
        return self._by_deadline is None or now + left_s <= self._by_deadline


def batching_of(plan: Plan, policy: Policy) -> Batching | None:
    """Return the batching of a plan, if any; raise a `PlanError` if policy and plan contradict."""
    if policy.batch == "off":  # except those that say `batch` themselves
        may = {number for number in plan.special if plan.agents[number].batch == "on"}
    else:
        may = {number for number, one in enumerate(plan.agents) if _may(one, policy)}
    if not may:
        return None
    return Batching(policy, may, plan.dag.remaining([0.0 if one.is_task else 1.0 for one in plan.agents]))


def _may(step: Step, policy: Policy) -> bool:
    """Return whether a step may be batched; raise a `PlanError` if the policy demands it despite its tools."""
    if not isinstance(step, Agent) or step.batch is not None:
        return isinstance(step, Agent) and step.batch == "on"
    if policy.batch == "on" and step.tools.functions:
        raise PlanError(
            f"Agent {step.name!r} has tools, so it would wait for a batch in each of its turns. Say --batch off in its "
            "cell to ask it live, --batch on if it may take that long, or run with --batch auto."
        )
    return not step.tools.functions
