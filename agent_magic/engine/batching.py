"""Which requests go by batch: at half the price, and hours later.

A request that goes by batch takes no slot and waits for no rate limit, cache leader or key: whatever is ready goes
together. It counts toward the budget. Its deadline is the vendor's, who ends a batch after a day.
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
"""How long a batch takes. Source: the vendor's page on batches: most finish in less than an hour."""
BATCH_MOST_S = 86_400.0
"""Source: the same page: a batch expires after 24 hours."""
LIVE_SHARE = 0.25
"""The part of a deadline that is kept for asking live what no batch has answered by then."""


class Batching:
    """Decides, whenever a step gets into line, whether its next request goes by batch.

    Args:
        policy: How to run: its `batch`, `batch_fallback` and `deadline_s`.
        steps: Those whose requests may go by batch.
        layers_left: Per step, how many requests one after the other lead from it to the end, itself included.
        batch_s: How long a batch is expected to take.

    Attributes:
        steps: The same.
        now: The steps whose next request, or the one under way, goes by batch.
    """

    def __init__(
        self, policy: Policy, steps: Collection[int], layers_left: Sequence[float], batch_s: float = BATCH_S
    ) -> None:
        self.steps, self.now = steps, set[int]()
        self._layers_left, self._batch_s = layers_left, batch_s
        self._by_deadline = policy.deadline_s if policy.batch == "auto" else None
        self._falls_back = policy.batch_fallback == "live"
        self._live: set[int] = set()

    def decide(self, step: int, now: float) -> None:
        """Decide for the next request of a step."""
        by_batch = step in self.steps and step not in self._live and self._is_in_time(step, now)
        (self.now.add if by_batch else self.now.discard)(step)

    def ahead(self, layers: Sequence[int]) -> set[int]:
        """Return the steps that will go by batch if each batch takes as long as expected, by the layer of each."""
        return {one for one in self.steps if self._is_in_time(one, layers[one] * self._batch_s)}

    def failed(self, step: int) -> None:
        """Record that a request has failed: one that went by batch is asked live next, where the policy says so."""
        if self._falls_back and step in self.now:
            self._live.add(step)

    def _is_in_time(self, step: int, now: float) -> bool:
        """Tell whether batches are expected to answer it, and all that waits for it, before the deadline."""
        left_s = self._layers_left[step] * self._batch_s
        return self._by_deadline is None or now + left_s <= self._by_deadline


def batching_of(plan: Plan, policy: Policy) -> Batching | None:
    """Return who decides which requests of a plan go by batch; `None` where none may.

    Raises:
        PlanError: The policy and the plan do not go together.
    """
    if policy.batch == "off":  # but for those that say `batch` themselves
        may = {number for number in plan.special if plan.agents[number].batch == "on"}
    else:
        may = {number for number, one in enumerate(plan.agents) if _may(one, policy)}
    if not may:
        return None
    return Batching(policy, may, plan.dag.remaining([0.0 if one.is_task else 1.0 for one in plan.agents]))


def _may(step: Step, policy: Policy) -> bool:
    """Tell whether the requests of a step may go by batch.

    Raises:
        PlanError: The policy says so, and the step has tools of the user and does not say so itself.
    """
    if not isinstance(step, Agent) or step.batch is not None:
        return isinstance(step, Agent) and step.batch == "on"
    if policy.batch == "on" and step.tools.functions:
        raise PlanError(
            f"Agent {step.name!r} has tools, so it would wait for a batch in each of its turns. Say --batch off in its "
            "cell to ask it live, --batch on if it may take that long, or run with --batch auto."
        )
    return not step.tools.functions
