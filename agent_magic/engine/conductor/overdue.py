"""When the request of a step with a hedge is overdue: after some seconds, or with `p95` when 95 of 100 would be over.

Among requests that start together the quick ones end first, so those under way or aborted count as censored.

Source: E. L. Kaplan, P. Meier, "Nonparametric estimation from incomplete observations", Journal of the American
Statistical Association 53 (1958): the product-limit estimate.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final

from agent_magic.declare.race import share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_magic.declare.plan import Plan

ENOUGH: Final = 20
"""Of 20 requests, the 95th percentile is the second longest."""
LATEST: Final = 200
"""Latest requests that count, since a service has slow hours."""
ANEW: Final = 20
"""The estimate is renewed after this fraction (1/20) of new requests."""
TIE_S: Final = 0.001
"""Seconds by which a duration must exceed another to count as longer."""


class _Made:
    __slots__ = ("answered", "made_s", "took_s")

    def __init__(self, made_s: float) -> None:
        self.made_s, self.answered = made_s, False
        self.took_s: float | None = None

    def at(self, now: float) -> tuple[float, bool]:
        return (now - self.made_s if self.took_s is None else self.took_s), not self.answered


class Latencies:
    """Durations of the latest requests of one kind of steps."""

    def __init__(self) -> None:
        self._latest: deque[_Made] = deque(maxlen=LATEST)
        self._open: dict[int, _Made] = {}
        self._known_s: dict[float, tuple[float, int]] = {}
        self._ended = 0

    def made(self, step: int, now: float) -> None:
        self._open[step] = made = _Made(now)
        self._latest.append(made)

    def ended(self, step: int, took_s: float | None, now: float) -> None:
        """Record the end of a request; `None` if it was not answered."""
        made = self._open.pop(step, None)
        if made is not None:
            made.answered, made.took_s = took_s is not None, now - made.made_s if took_s is None else took_s
            self._ended += 1

    def share_s(self, share: float, now: float) -> float:
        known_s, at = self._known_s.get(share, (math.inf, 0))
        if known_s == math.inf or (self._ended - at) * ANEW >= len(self._latest):
            known_s = self._product_limit(share, now)
            self._known_s[share] = known_s, self._ended
        return known_s

    def _product_limit(self, share: float, now: float) -> float:
        rows = sorted(one.at(now) for one in self._latest)
        left, at_risk = 1.0, len(rows)
        for took_s, may_take_longer in rows if at_risk >= ENOUGH else ():
            if not may_take_longer:
                left *= 1 - 1 / at_risk
                if left <= 1 - share + 1e-9:
                    return took_s + TIE_S
            at_risk -= 1
        return math.inf


class Overdue:
    """Knows which requests of a run are overdue."""

    def __init__(self, plan: Plan, kinds: Sequence[str]) -> None:
        self.places = {plan.index[one.hedges]: at for at, one in enumerate(plan.agents) if one.hedges is not None}
        self._when: dict[int, str | float] = {
            step: plan.agents[place].hedge or 0.0 for step, place in self.places.items()
        }
        self._kinds = kinds
        self._latencies: defaultdict[str, Latencies] = defaultdict(Latencies)
        self._waiting: defaultdict[tuple[str, str | float], deque[tuple[float, int]]] = defaultdict(deque)

    def learn(self, step: int, took_s: float) -> None:
        if step in self.places:
            self._latencies[self._kinds[step]].ended(step, took_s, 0.0)

    def ended(self, step: int, now: float) -> None:
        self._latencies[self._kinds[step]].ended(step, None, now)

    def launched(self, step: int, now: float) -> None:
        self._latencies[self._kinds[step]].made(step, now)
        self._waiting[self._kinds[step], self._when[step]].append((now, step))

    def take_due(self, now: float, waits: Callable[[int], bool]) -> tuple[list[int], float]:
        """Return the overdue steps, each once, and when to ask again."""
        found, next_s = list[int](), math.inf
        for (kind, when), waiting in self._waiting.items():
            share = share_of(when)
            while waiting:
                made_s, step = waiting[0]
                if waits(step):
                    after_s = float(when) if share is None else self._latencies[kind].share_s(share, now)
                    due_s = made_s + after_s
                    if due_s > now:
                        next_s = min(next_s, due_s)
                        break
                    found.append(step)
                waiting.popleft()
        return found, next_s
