"""Ready agents: the queues they wait in, one per set of shared limits, their order, and the barrier between layers.

Expected work (`agent_magic.engine.expected`) is corrected during the run by actual over expected work of the same kind
of steps (rows of an `--each`, or agents of a model), of all kinds for one without any. The order is recomputed after 1,
2, 3, 4, 6, 9, 13, ... steps: late ones change little and a recomputation walks the whole plan.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from agent_magic.declare.dag import by_most, places
from agent_magic.engine.expected import Factors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.engine.policy import Policy
    from agent_magic.record.reasons import Reason

NOTHING: Final[tuple[str, float, float]] = ("", 0.0, 0.0)
"""The longest wait so far, with start and end: none."""


def turns_of(dag: Dag, policy: Policy, work_s: Sequence[float] | None) -> tuple[Sequence[int], Sequence[int]]:
    if policy.schedule == "sequential":
        return places(dag.order), dag.order
    return dag.turns if work_s is None else _ranked(dag, policy, work_s)


def _ranked(dag: Dag, policy: Policy, work_s: Sequence[float]) -> tuple[Sequence[int], Sequence[int]]:
    rest = [-work for work in work_s] if policy.schedule == "shortest" else dag.remaining(work_s)
    return by_most(rest, dag.priority)


class Order:
    """The order of one run, by expected work; without it each agent counts as one."""

    def __init__(self, dag: Dag, policy: Policy, work_s: Sequence[float] | None, kinds: Sequence[str] = ()) -> None:
        self._dag, self._policy, self._work_s, self._kinds = dag, policy, work_s, kinds
        self.turns, self.by_turn = turns_of(dag, policy, work_s)
        self.learns = policy.schedule != "sequential" and len(set(kinds)) > 1
        self._factors = Factors()
        self._ended, self._next = 0, 1

    def learn(self, agent: int, took_s: float) -> bool:
        self._factors.add(self._kinds[agent], took_s, 1.0 if self._work_s is None else self._work_s[agent])
        self._ended += 1
        if self._ended < self._next:
            return False
        self._next = self._ended + max(1, self._ended // 2)
        work_s = self._work_s or [1.0] * len(self._kinds)
        factors = {kind: self._factors.of(kind) for kind in set(self._kinds)}
        corrected = [work * factors[kind] for work, kind in zip(work_s, self._kinds, strict=True)]
        self.turns, self.by_turn = _ranked(self._dag, self._policy, corrected)
        return True


class Queues:
    """One queue per set of shared limits, by the `name` of an agent's: a blocked queue does not block the others."""

    def __init__(
        self,
        name: Callable[[int], str] | None,
        order: Order,
        barrier: Barrier | None = None,
    ) -> None:
        turns = order.turns
        self._name = name
        self._numbers = numbers = dict[str, int]() if name is not None else {"": 0}  # by first appearance
        self._line_of = [0 if name is None else numbers.setdefault(name(n), len(numbers)) for n in range(len(turns))]
        count = len(self._numbers)
        self._order, self._turns, self._by_turn, self.barrier = order, turns, order.by_turn, barrier
        self._waiting: list[list[int]] = [[] for _ in range(count)]
        self._reasons = [""] * count
        self._since_s = [0.0] * count
        self._longest: list[tuple[str, float, float]] = [NOTHING] * count
        self.waiting, self.learns = 0, order.learns

    def learn(self, agent: int, took_s: float) -> None:
        if self._order.learn(agent, took_s):
            before, self._turns, self._by_turn = self._by_turn, self._order.turns, self._order.by_turn
            for waiting in self._waiting:
                waiting[:] = [self._turns[before[turn]] for turn in waiting]
                heapify(waiting)

    def join(self, agent: int) -> None:
        if self.barrier is not None and self.barrier.hold(agent):
            return
        self.waiting += 1
        heappush(self._waiting[self._line_of[agent]], self._turns[agent])

    def rename(self, agent: int) -> None:
        if self._name is not None:
            line = self._line_of[agent] = self._numbers.setdefault(self._name(agent), len(self._numbers))
            if line == len(self._waiting):
                self._waiting.append([])
                self._reasons.append("")
                self._since_s.append(0.0)
                self._longest.append(NOTHING)

    def first(self, held: Collection[int]) -> int | None:
        if len(self._waiting) == 1:  # the most common case: nothing limits the run
            waiting = self._waiting[0]
            return self._by_turn[waiting[0]] if waiting and not held else None
        best: int | None = None
        for line, waiting in enumerate(self._waiting):
            if waiting and line not in held and (best is None or waiting[0] < best):
                best = waiting[0]
        return None if best is None else self._by_turn[best]

    def leave(self, agent: int, since_s: float, now: float) -> str:
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
        if self.barrier is not None:
            for held in self.barrier.ended(agent, now):
                self.join(held)

    def reopened(self, agent: int) -> None:
        if self.barrier is None or not self.barrier.reopened(agent):
            return
        for waiting in self._waiting:
            passed = [turn for turn in waiting if not self.barrier.hold(self._by_turn[turn])]
            self.waiting -= len(waiting) - len(passed)
            waiting[:] = passed
            heapify(waiting)

    def hold(self, agent: int, reason: str, now: float) -> int:
        line = self._line_of[agent]
        if reason != self._reasons[line]:
            self._turn_to(line, reason, now)
        return line

    def hold_others(self, held: Container[int], reason: str, now: float) -> None:
        for line, waiting in enumerate(self._waiting):
            if waiting and reason != self._reasons[line] and line not in held:
                self._turn_to(line, reason, now)

    def _turn_to(self, line: int, reason: str, now: float) -> None:
        before, since_s = self._reasons[line], self._since_s[line]
        _, from_s, to_s = self._longest[line]
        if before and now - since_s > to_s - from_s:
            self._longest[line] = before, since_s, now
        self._reasons[line], self._since_s[line] = reason, now

    def reason(self, agent: int) -> str:
        if self.barrier is not None and self.barrier.is_held(agent):
            return self.barrier.reason
        return self._reasons[self._line_of[agent]]

    def opened(self, agent: int, since_s: float, now: float) -> str:
        opened_s = since_s if self.barrier is None else self.barrier.opened_s(agent)
        held_s = opened_s - since_s
        return self.barrier.reason if self.barrier is not None and held_s > 0 and held_s >= now - opened_s else ""


def barrier_of(dag: Dag, policy: Policy) -> Barrier | None:
    if policy.schedule == "layers":
        return Barrier(dag.layer)
    if policy.schedule == "groups":
        return Barrier([place // policy.concurrency for place in places(dag.order)], "group")
    return None


class Barrier:
    """Holds agents back until all of earlier layers have ended, to measure the cost of that."""

    def __init__(self, layer: Sequence[int], reason: Reason = "barrier") -> None:
        self._layer, self.reason = layer, reason
        counts = Counter(layer)
        self._left = [counts[one] for one in range(len(counts))]
        self._opened_s = [0.0] * len(self._left)
        self._open = 0
        self._held: set[int] = set()

    def hold(self, agent: int) -> bool:
        if self._layer[agent] <= self._open:
            return False
        self._held.add(agent)
        return True

    def is_held(self, agent: int) -> bool:
        return agent in self._held

    def opened_s(self, agent: int) -> float:
        return self._opened_s[self._layer[agent]]

    def ended(self, agent: int, now: float) -> list[int]:
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
        layer = self._layer[agent]
        self._left[layer] += 1
        closes, self._open = layer < self._open, min(layer, self._open)
        return closes
