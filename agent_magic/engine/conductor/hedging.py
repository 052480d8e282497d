"""A conductor for hedges (`agent_magic.declare.race`): a second request when an answer is overdue.

The place of a second request waits until its step's request is overdue; once sent, the two race. First requests go
before second ones: a hedge shortens a run only if a slot is left for it.

The delay is a number of seconds, or learned: with `p95`, longer than 95 of 100 requests take. Among requests that start
together the quick ones end first, so those under way or aborted count as censored at their duration so far.

Source: E. L. Kaplan, P. Meier, "Nonparametric estimation from incomplete observations", Journal of the American
Statistical Association 53 (1958): the product-limit estimate.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.flow import UNUSED, Left
from agent_magic.declare.race import share_of
from agent_magic.engine.conductor.conductor import ENDED, HEDGES, RUNNING
from agent_magic.engine.conductor.racing import RacingConductor
from agent_magic.engine.contract import WakeAt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.plan import Plan
    from agent_magic.engine.contract import Decision
    from agent_magic.engine.policy import Policy
    from agent_magic.engine.retry import Failure
    from agent_magic.record.answer import Status

ENOUGH: Final = 20
"""Of 20 requests, the 95th percentile is the second longest."""
LATEST: Final = 200
"""Latest requests that count, since a service has slow hours."""
ANEW: Final = 20
"""The estimate is renewed after this fraction (1/20) of new requests."""
TIE_S: Final = 0.001
"""Seconds by which a duration must exceed another to count as longer."""
NOT_NEEDED: Final = "the answer came in time"


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
        made = self._open.pop(step, None)
        if made is not None:
            made.answered, made.took_s = took_s is not None, now - made.made_s if took_s is None else took_s
            self._ended += 1

    def share_s(self, share: float, now: float) -> float:
        """Return the seconds within which this share of requests is answered; infinity if too little is known."""
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

    def __init__(self, plan: Plan, kinds: Sequence[str], then: Callable[[int, float], None] | None) -> None:
        self.places = {plan.index[one.hedges]: at for at, one in enumerate(plan.agents) if one.hedges is not None}
        self._when: dict[int, str | float] = {
            step: plan.agents[place].hedge or 0.0 for step, place in self.places.items()
        }
        self._kinds, self._then = kinds, then
        self._latencies: defaultdict[str, Latencies] = defaultdict(Latencies)
        self._waiting: defaultdict[tuple[str, str | float], deque[tuple[float, int]]] = defaultdict(deque)

    def learn(self, step: int, took_s: float) -> None:
        if step in self.places:
            self._latencies[self._kinds[step]].ended(step, took_s, 0.0)
        if self._then is not None:
            self._then(step, took_s)

    def ended(self, step: int, now: float) -> None:
        self._latencies[self._kinds[step]].ended(step, None, now)

    def launched(self, step: int, now: float) -> None:
        self._latencies[self._kinds[step]].made(step, now)
        self._waiting[self._kinds[step], self._when[step]].append((now, step))

    def take_due(self, now: float, waits: Callable[[int], bool]) -> tuple[list[int], float]:
        """Return the overdue steps, each once, and when to ask again; steps that no longer wait are dropped."""
        found, next_s = list[int](), math.inf
        for (kind, when), waiting in self._waiting.items():
            while waiting:
                made_s, step = waiting[0]
                if waits(step):
                    due_s = made_s + self._after_s(kind, when, now)
                    if due_s > now:
                        next_s = min(next_s, due_s)
                        break
                    found.append(step)
                waiting.popleft()
        return found, next_s

    def _after_s(self, kind: str, when: str | float, now: float) -> float:
        share = share_of(when)
        return float(when) if share is None else self._latencies[kind].share_s(share, now)


class HedgingConductor(RacingConductor):
    """Decides for one run of a plan with hedges."""

    def __init__(self, dag: Dag, policy: Policy, *, plan: Plan, kinds: Sequence[str], **more: Any) -> None:
        super().__init__(dag, policy, kinds=kinds, **more)
        self._overdue = Overdue(plan, kinds, self.learn)
        self.learn = self._overdue.learn
        self._places = self._overdue.places
        self._steps = {place: step for step, place in self._places.items()}
        self._kept = set(self._steps)  # the places that are not needed yet
        self._alarm_s = math.inf
        for place in self._kept:
            self._missing[place] += 1

    def _settle_done(self, now: float) -> None:
        for agent in self._ends.done:
            self._kept.discard(agent)
        super()._settle_done(now)
        for place in sorted(self._kept):
            if self._state[self._steps[place]] == ENDED:
                self._close(place, now)

    def _launch(self, agent: int, now: float, reason: str) -> None:
        super()._launch(agent, now, reason)
        if self._places.get(agent) in self._kept:
            self._overdue.launched(agent, now)

    def failed(self, agent: int, failure: Failure, now: float) -> list[Decision]:
        if agent in self._places:
            self._overdue.ended(agent, now)
        return super().failed(agent, failure, now)

    def _go_on(self, now: float) -> list[Decision]:
        found, _ = self._overdue.take_due(now, self._may_be_overdue)
        for step in found:
            place = self._places[step]
            self._kept.discard(place)
            self._missing[place] -= 1
            self._make_ready(place, now)
        out = super()._go_on(now)
        _, at_s = self._overdue.take_due(now, self._may_be_overdue)  # some were made just now
        if at_s != self._alarm_s:
            self._alarm_s = at_s
            if at_s < math.inf:
                self._alarms.set(at_s, HEDGES)
                out += [] if (wake_s := self._alarms.next_s()) is None else [WakeAt(wake_s)]
        return out

    def _may_be_overdue(self, step: int) -> bool:
        under_way = self._places[step] in self._kept and self._state[step] == RUNNING
        return under_way and step not in self._ends.stopping and not self._ends.cut

    def _end(
        self,
        agent: int,
        status: Status,
        error: str | None,
        now: float,
        kind: str | None = None,
        *,
        cause: int | None = None,
    ) -> None:
        if agent in self._steps and not self._tries.made(agent):  # nothing was sent
            self._kept.discard(agent)
            self._ends.left[agent] = Left("unused", NOT_NEEDED, UNUSED)
            super()._end(agent, "unused", NOT_NEEDED, now, UNUSED)
            return
        if agent in self._places:
            self._overdue.ended(agent, now)
        super()._end(agent, status, error, now, kind, cause=cause)
        if self._places.get(agent) in self._kept:
            self._close(self._places[agent], now)

    def _to_reopen(self, asked: Iterable[int]) -> tuple[list[int], dict[int, int]]:
        again, skipped = super()._to_reopen(asked)
        for place in self._steps.keys() & again:
            self._kept.add(place)
            self._missing[place] += 1
        return again, skipped

    def _close(self, place: int, now: float) -> None:
        self._leave_out(place, Left("unused", NOT_NEEDED, UNUSED), now)
