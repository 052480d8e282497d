"""Identical requests of one run.

Among identical rows of one declaration the first one admitted asks, and the others share its answer or failure.
Deliberate repetitions are not identical: separate declarations, `--repeat`, rounds of a loop, hedges. Neither are rows
with tools that may act, nor rows that start ahead of their condition, since their answer may be thrown away.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from agent_magic.record.request import same_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.policy import Equal
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord

IDENTICAL: Final = "identical"


def sharers_ahead(
    plan: Plan, requests: Sequence[Request], held: Sequence[object], *, identical: Equal = "once"
) -> list[int | None]:
    # Missing answers are left empty in prompts. Such prompts are equal only if the steps they wait for are
    # identical.
    found: list[int | None] = [None] * len(plan)
    first: dict[Hashable, int] = {}
    for step in plan.dag.order if identical == "once" else ():
        if held[step] is not None or (same := same_of(plan, step, requests[step])) is None:
            continue
        if (part := plan.agents[step].part) is not None and part.source:
            continue  # its item is in an answer that is not there yet, and most likely another one than the next
        waits_for = [one for one in plan.dag.parents[step] if held[one] is None]
        found[step] = first.setdefault((same, *(_first(found, one) for one in waits_for)), step)
    return found


def _first(found: Sequence[int | None], step: int) -> int:
    first = found[step]
    return step if first is None else first


class Identical:
    """Identical steps of a run; `asks` returns the key of a step's request, or `None` if it shares nothing."""

    def __init__(self, asks: Callable[[int], Hashable], record: RunRecord) -> None:
        self._asks, self._record = asks, record
        self._leaders: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}  # requests of admitted and waiting steps
        self._waiting: dict[int, list[int]] = {}
        self._waits: set[int] = set()
        self.failures: dict[int, tuple[str, str]] = {}
        self.taken: set[int] = set()

    def leader(self, step: int) -> int | None:
        """Return the step with the same request that asks or has asked; `None` if this one is to ask."""
        if step in self._keys and self._leaders.get(self._keys[step]) == step:
            return None  # another attempt, or another turn
        key = self._asks(step)
        if key is None:
            self._keys.pop(step, None)
            return None
        self._keys[step] = key
        return self._leaders.get(key)

    def left(self, step: int) -> None:
        if step in self._keys:
            self._leaders.setdefault(self._keys[step], step)

    def wait(self, step: int, leader: int) -> None:
        self._waits.add(step)
        self._waiting.setdefault(leader, []).append(step)

    def waits(self, step: int) -> bool:
        return step in self._waits

    def take(self, step: int) -> None:
        self._waits.discard(step)
        self.taken.add(step)

    def ended(self, step: int, *, passed_on: bool, failure: tuple[str, str] | None) -> tuple[list[int], bool]:
        """Return the steps that waited for this one, and whether its outcome counts for them."""
        self._waits.discard(step)
        key = self._keys.get(step)
        if key is None or self._leaders.get(key) != step:
            return [], False
        counts = passed_on or self._has_answer(step)  # a person may have denied it, or its file was not written
        if not counts and failure is not None:
            self.failures[step] = failure
            counts = True
        if not counts:
            del self._leaders[key]
        waiting = self._waiting.pop(step, [])
        self._waits.difference_update(waiting)
        return waiting, counts

    def _has_answer(self, step: int) -> bool:
        attempts = self._record.results[step].attempts
        return bool(attempts) and attempts[-1].status == "succeeded" and not attempts[-1].asks_for_more

    def recorded(self, steps: Mapping[int, object]) -> None:
        for step in steps:
            if self._has_answer(step) and (key := self._asks(step)) is not None:
                self._keys[step] = key
                self._leaders.setdefault(key, step)

    def reopened(self, step: int) -> None:
        """Record that a step runs again, so that its earlier failure is not shared."""
        self.taken.discard(step)
        key = self._keys.pop(step, None)
        leader = self._leaders.get(key)
        if leader is not None and (leader == step or leader in self.failures):
            del self._leaders[key]
            self.failures.pop(leader, None)
