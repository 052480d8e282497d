"""The barrier between layers, for `schedule="layers"`: it exists to measure what a barrier costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_magic.declare.dag import Dag


class Barrier:
    """Holds agents back until all agents of earlier layers have ended, for `schedule="layers"`."""

    def __init__(self, dag: Dag) -> None:
        self._layer = dag.layer
        self._layers = dag.layers()
        self._left = [len(row) for row in self._layers]
        self._opened_s = [0.0] * len(self._layers)
        self._open = 0

    def lets_pass(self, agent: int) -> bool:
        """Tell whether all earlier layers have ended."""
        return self._layer[agent] <= self._open

    def opened_s(self, agent: int) -> float:
        """Return when the agent's layer opened."""
        return self._opened_s[self._layer[agent]]

    def ended(self, agent: int, now: float) -> tuple[int, ...]:
        """Count an agent off; return the agents of the layers that open by it."""
        self._left[self._layer[agent]] -= 1
        opened: list[int] = []
        while self._open < len(self._left) - 1 and not self._left[self._open]:
            self._open += 1
            self._opened_s[self._open] = now
            opened.extend(self._layers[self._open])
        return tuple(opened)

    def reopened(self, agent: int) -> None:
        """Count an agent in again that is to run once more. A layer that has opened stays open."""
        self._left[self._layer[agent]] += 1
