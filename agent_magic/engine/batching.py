"""Which requests go by batch: at half the price, and hours later.

A request that goes by batch takes no slot and waits for no rate limit, cache leader or key: whatever is ready goes
together. It counts toward the budget. Its deadline is the vendor's, who ends a batch after a day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent_magic.engine.policy import Policy

BATCH_S = 3600.0
"""How long a batch takes. Source: the vendor's page on batches: most finish in less than an hour."""
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

    def failed(self, step: int) -> None:
        """Record that a request has failed: one that went by batch is asked live next, where the policy says so."""
        if self._falls_back and step in self.now:
            self._live.add(step)

    def _is_in_time(self, step: int, now: float) -> bool:
        """Tell whether batches are expected to answer it, and all that waits for it, before the deadline."""
        left_s = self._layers_left[step] * self._batch_s
        return self._by_deadline is None or now + left_s <= self._by_deadline
