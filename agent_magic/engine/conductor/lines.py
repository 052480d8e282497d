"""Who waits, and in which order: one line per kind of room, and the barrier of `schedule="layers"` before them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container

    from agent_magic.declare.dag import Dag
    from agent_magic.engine.conductor.order import Order


NOTHING: Final[tuple[str, float, float]] = ("", 0.0, 0.0)
"""What was waited for longest, from when and until when: nothing yet."""


class Lines:
    """One line per kind of room: where one is held, the others move on.

    Args:
        name: Returns the name of an agent's line; `None` puts all into one.
        order: Says who goes first.
        barrier: Keeps agents out of their lines until earlier layers have ended; `None` keeps none.

    Attributes:
        waiting: How many agents wait in lines.
        barrier: What was given.
    """

    def __init__(
        self,
        name: Callable[[int], str] | None,
        order: Order,
        barrier: Barrier | None = None,
    ) -> None:
        turns = order.turns
        self._name = name
        self._numbers, self._line_of = ({"": 0}, [0] * len(turns)) if name is None else _numbered(name, len(turns))
        count = len(self._numbers)
        self._order, self._turns, self._by_turn, self.barrier = order, turns, order.by_turn, barrier
        self._waiting: list[list[int]] = [[] for _ in range(count)]
        self._reasons = [""] * count
        self._since_s = [0.0] * count
        self._longest = [NOTHING] * count
        self.waiting = 0

    def learn(self, agent: int, took_s: float) -> None:
        """Count what a step took: those that wait may change places."""
        if self._order.learn(agent, took_s):
            before, self._turns, self._by_turn = self._by_turn, self._order.turns, self._order.by_turn
            for waiting in self._waiting:
                waiting[:] = [self._turns[before[turn]] for turn in waiting]
                heapify(waiting)

    def join(self, agent: int) -> None:
        """Put an agent into its line, as soon as the barrier lets it."""
        if self.barrier is not None and self.barrier.hold(agent):
            return
        self.waiting += 1
        heappush(self._waiting[self._line_of[agent]], self._turns[agent])

    def rename(self, agent: int) -> None:
        """Read the name of an agent's line anew, while it is in none: it asks another model than before."""
        if self._name is not None:
            line = self._line_of[agent] = self._numbers.setdefault(self._name(agent), len(self._numbers))
            if line == len(self._waiting):
                self._waiting.append([])
                self._reasons.append("")
                self._since_s.append(0.0)
                self._longest.append(NOTHING)

    def first(self, held: Collection[int]) -> int | None:
        """Return the agent that goes before all others, those in held lines left out."""
        if len(self._waiting) == 1:  # the most common, where nothing limits the run
            waiting = self._waiting[0]
            return self._by_turn[waiting[0]] if waiting and not held else None
        best: int | None = None
        for line, waiting in enumerate(self._waiting):
            if waiting and line not in held and (best is None or waiting[0] < best):
                best = waiting[0]
        return None if best is None else self._by_turn[best]

    def leave(self, agent: int, since_s: float, now: float) -> str:
        """Let an agent out that is first in its line. Returns what it waited for longest since a time, if anything."""
        self.waiting -= 1
        line = self._line_of[agent]
        waiting, reason = self._waiting[line], self._reasons[line]
        heappop(waiting)
        if reason:
            longest, from_s, to_s = self._longest[line]
            if to_s - max(from_s, since_s) > now - max(self._since_s[line], since_s):
                reason = longest
            if not waiting:
                self._reasons[line], self._longest[line] = "", NOTHING
        return reason

    def ended(self, agent: int, now: float) -> None:
        """Record that an agent has ended: others may have waited for its layer."""
        if self.barrier is not None:
            for held in self.barrier.ended(agent, now):
                self.join(held)

    def reopened(self, agent: int) -> None:
        """Record that an agent will run again. Agents of later layers that have not gone yet wait for it."""
        if self.barrier is None or not self.barrier.reopened(agent):
            return
        for waiting in self._waiting:
            passed = [turn for turn in waiting if not self.barrier.hold(self._by_turn[turn])]
            self.waiting -= len(waiting) - len(passed)
            waiting[:] = passed
            heapify(waiting)

    def hold(self, agent: int, reason: str, now: float) -> int:
        """Note what an agent's line waits for. Returns the line."""
        line = self._line_of[agent]
        if reason != self._reasons[line]:
            self._turn_to(line, reason, now)
        return line

    def hold_others(self, held: Container[int], reason: str, now: float) -> None:
        """Note what all lines wait for that are not among these."""
        for line, waiting in enumerate(self._waiting):
            if waiting and reason != self._reasons[line] and line not in held:
                self._turn_to(line, reason, now)

    def _turn_to(self, line: int, reason: str, now: float) -> None:
        """Begin to wait for something else, and remember the longest that was waited for before."""
        before, since_s = self._reasons[line], self._since_s[line]
        _, from_s, to_s = self._longest[line]
        if before and now - since_s > to_s - from_s:
            self._longest[line] = before, since_s, now
        self._reasons[line], self._since_s[line] = reason, now

    def reason(self, agent: int) -> str:
        """Return what the agent waits for: the barrier, or what its line waits for, or last waited for."""
        if self.barrier is not None and self.barrier.is_held(agent):
            return "barrier"
        return self._reasons[self._line_of[agent]]

    def opened(self, agent: int, now: float) -> bool:
        """Tell whether the barrier has let the agent pass just now."""
        return self.barrier is not None and self.barrier.opened_s(agent) == now


def _numbered(name: Callable[[int], str], count: int) -> tuple[dict[str, int], list[int]]:
    """Number the names of agents by their first appearance. Returns the number of each name, and of each agent."""
    numbers: dict[str, int] = {}
    return numbers, [numbers.setdefault(name(agent), len(numbers)) for agent in range(count)]


class Barrier:
    """Holds agents back while an agent of an earlier layer has not ended: it exists to measure what that costs.

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
