"""The barrier between layers, for `schedule="layers"`: it exists to measure what a barrier costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_magic.declare.dag import Dag


class Barrier:
    """Holds agents back while an agent of an earlier layer has not ended.

    That counts for an agent that runs again, too: the layers behind it close, but for what is under way there.
    """

    def __init__(self, dag: Dag) -> None:
        self._layer = dag.layer
        self._left = [len(row) for row in dag.layers()]
        self._opened_s = [0.0] * len(self._left)
        self._open = 0
        self._held: set[int] = set()

    def hold(self, agent: int) -> bool:
        """Tell whether the agent has to wait. `ended` names it when it has waited enough."""
        if self._layer[agent] <= self._open:
            return False
        self._held.add(agent)
        return True

    def is_held(self, agent: int) -> bool:
        """Tell whether the agent waits."""
        return agent in self._held

    def opened_s(self, agent: int) -> float:
        """Return when the agent's layer last opened."""
        return self._opened_s[self._layer[agent]]

    def ended(self, agent: int, now: float) -> list[int]:
        """Count an agent off; return those that waited for it."""
        self._held.discard(agent)
        self._left[self._layer[agent]] -= 1
        before = self._open
        while self._open < len(self._left) - 1 and not self._left[self._open]:
            self._open += 1
            self._opened_s[self._open] = now
        if self._open == before:
            return []
        passed = sorted(one for one in self._held if self._layer[one] <= self._open)
        self._held.difference_update(passed)
        return passed

    def reopened(self, agent: int) -> bool:
        """Count an agent in again that is to run once more; tell whether layers close by it."""
        layer = self._layer[agent]
        self._left[layer] += 1
        closes, self._open = layer < self._open, min(layer, self._open)
        return closes
