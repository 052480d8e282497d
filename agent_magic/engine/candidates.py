"""Candidates: steps that compete for one result, or begin before it is known whether they are needed.

| kind | a candidate starts | it is kept | the others |
| --- | --- | --- | --- |
| race (`agent_magic.declare.race`) | at once | if it answers first | aborted, with the steps that only they use |
| hedge, the second request of a step | when the first one is overdue | if it answers first | unused, or aborted |
| speculation | before its condition can be decided | if the condition holds | aborted, or thrown away |

A race has all of its candidates as parents. The place of a hedge has the parents of its step and one more thing to wait
for: that the step's request is overdue. It then queues like any step. First requests go before second ones, since a
hedge shortens a run only if a slot is left for it.

A speculating step waits for the parents that its prompt uses, and not for those that only its condition uses. An answer
or a failure before the condition is decided is kept back until then. If most conditions of its declaration were
false, it does not speculate.

A request is overdue after some seconds, or with `p95` when 95 of 100 would be over. Among requests that start together
the quick ones end first, so those under way or aborted count as censored.

The models of a cascade or a fallback are candidates within one step: see `Conductor.ask_another`.

Source: E. L. Kaplan, P. Meier, "Nonparametric estimation from incomplete observations", Journal of the American
Statistical Association 53 (1958): the product-limit estimate.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.each import group_of
from agent_magic.declare.flow import CONDITION, UNUSED, Left
from agent_magic.declare.race import BEATEN, NO_ANSWER, share_of
from agent_magic.engine.contract import Abort, Send
from agent_magic.engine.states import ENDED, HEDGES, KEPT, PENDING, READY, RUNNING, UNDER_WAY
from agent_magic.record.answer import WITH_ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.conductor import Conductor
    from agent_magic.engine.contract import Decision, Requests
    from agent_magic.record.answer import Status

LEAST_KNOWN: Final = 5
"""Minimum decided conditions to predict others. An assumption."""
UNNEEDED: Final = Left("unused", "the answer came in time", UNUSED)
"""Why a hedge was not sent."""


class End(NamedTuple):
    """How a step ends; `cause` is the step that made it end, if that is another one."""

    status: Status
    error: str | None
    kind: str | None
    cause: int | None = None


SUCCEEDED: Final = End("succeeded", None, None)


class Candidates:
    """The races, hedges and speculating steps of one run. The conductor calls it at each change of a step.

    `steps` is that conductor, with the steps of the run.
    """

    def __init__(self, plan: Plan, requests: Requests, kinds: Iterable[str]) -> None:
        flow, choices = plan.flow, requests.flow
        self._names, self._requests = plan.names, requests
        self.races: Collection[int] = flow.races if flow is not None else ()
        self._won: set[int] = set()
        self._beaten: dict[int, Left] = {}  # steps that are not needed any more, also while they are aborted
        self.overdue = Overdue(plan, [*kinds])
        self._place_of = self.overdue.places
        self._step_of = {place: step for step, place in self._place_of.items()}
        self.places: Collection[int] = self._step_of.keys()
        self._idle = set(self._step_of)  # places that are not needed yet
        self._alarm_s = math.inf
        self._ahead_of = dict(choices.ahead_of) if choices is not None else {}
        self._ahead: set[int] = set()  # steps that have begun before their condition is decided
        self._kept_back: dict[int, End] = {}  # ends that wait for a decision
        self._causes: dict[int, int] = {}  # of those that are aborted, since a parent did not succeed: which
        self._to_look_at: dict[int, None] = {}
        self._put_off: dict[int, list[int]] = {}  # steps that do not begin before another one's end, by that
        self._group = {step: group_of(plan.agents[step]) for step in self._ahead_of}
        self._held: dict[str, dict[int, bool]] = {}  # per group, the decided conditions, and how

    # when candidates start

    def look_at_all(self) -> bool:
        """Look at all speculating steps next; return False if there are none."""
        self._to_look_at.update(dict.fromkeys(self._ahead_of))
        return bool(self._to_look_at)

    def start_due(self, steps: Conductor, now: float) -> None:
        """Make those ready that may start now: with an overdue first request, or before their condition."""
        while self._to_look_at:
            agent, _ = self._to_look_at.popitem()
            self._look_at(steps, agent, now)
        found, _ = self.overdue.take_due(now, lambda step: self._may_be_overdue(steps, step))
        for step in found:
            place = self._place_of[step]
            self._idle.discard(place)
            steps.missing[place] -= 1
            steps.make_ready(place, now)

    def set_alarm(self, steps: Conductor, now: float) -> None:
        _, at_s = self.overdue.take_due(now, lambda step: self._may_be_overdue(steps, step))
        if at_s != self._alarm_s:
            self._alarm_s = at_s
            if at_s < math.inf:
                steps.alarms.set(at_s, HEDGES)

    def _may_be_overdue(self, steps: Conductor, step: int) -> bool:
        under_way = self._place_of[step] in self._idle and steps.state[step] == RUNNING
        return under_way and step not in steps.ends.stopping and not steps.ends.cut

    def launched(self, agent: int, now: float) -> None:
        if self._place_of.get(agent) in self._idle:
            self.overdue.launched(agent, now)

    def _look_at(self, steps: Conductor, agent: int, now: float) -> None:
        """Start a step before its condition, or decide that, if possible."""
        if steps.state[agent] == PENDING and steps.missing[agent]:
            parents = steps.dag.parents[agent]
            waits_for = self._ahead_of[agent].intersection(parents)
            missing = sum(steps.state[one] != ENDED for one in waits_for)
            needed = (one for one in parents if one not in waits_for)  # without one of them it may not be needed itself
            if steps.missing[agent] == missing and steps.ends.left.keys().isdisjoint(needed):
                if (at_hand := self._at_hand(steps, waits_for)) is None:
                    self._begin(steps, agent, now)
                else:
                    self._put_off.setdefault(at_hand, []).append(agent)
        elif agent in self._ahead and not steps.missing[agent]:
            self._ahead.discard(agent)
            self._decide(steps, agent, now)

    def _at_hand(self, steps: Conductor, waits_for: Iterable[int]) -> int | None:
        """Return an ancestor with its answer at hand, such as in the ledger, if nothing takes time."""
        found: int | None = None
        for one in steps.dag.ancestors(waits_for) | {*waits_for}:
            state = steps.state[one]
            if state in {READY, RUNNING} and one not in steps.tasks and self._requests.need(one).free:
                found = one
            elif state not in {PENDING, ENDED}:
                return None
        return found

    def _begin(self, steps: Conductor, agent: int, now: float) -> None:
        known = self._held.get(self._group[agent], {})
        if len(known) < LEAST_KNOWN or 2 * sum(known.values()) >= len(known):
            self._ahead.add(agent)
            steps.make_ready(agent, now, decided=True)

    def sort(self, steps: Conductor) -> None:
        """Put requests last that cost something: a candidate that is at hand may make them needless."""
        if self.races:
            steps.out.sort(key=lambda one: self._costs(steps, one))

    def _costs(self, steps: Conductor, one: Decision) -> bool:
        return isinstance(one, Send) and one.step not in steps.tasks and not self._requests.need(one.step).free

    # which one is kept

    def decided(self, agent: int, left: Left | None) -> None:
        if agent in self._group and (left is None or left.kind == CONDITION):
            self._held.setdefault(self._group[agent], {})[agent] = left is None

    def _decide(self, steps: Conductor, agent: int, now: float) -> None:
        left, kept = steps.why_left_out(agent), self._kept_back.pop(agent, None)
        if left is None and kept is not None:
            if kept.status == "failed":
                steps.give_up(agent, kept.kind or "", kept.error or "", now)
            else:
                steps.pass_on(agent, kept, now)
        elif left is not None and kept is None:
            self._drop(steps, agent, left, now)
        elif left is not None:
            steps.leave_out(agent, left, now)

    def _drop(self, steps: Conductor, agent: int, left: Left, now: float) -> None:
        """Leave out a step that is not needed any more; its request is aborted first."""
        if steps.state[agent] not in UNDER_WAY:
            steps.leave_out(agent, left, now)
            return
        self._beaten[agent] = left
        steps.ends.stopping[agent] = "skipped", left.why
        steps.out.append(Abort(agent, "stopped"))

    def takes_end(self, steps: Conductor, agent: int, end: End, now: float) -> bool:
        """Leave out a step that is answered too late, or keep back an answer that comes too early."""
        if self.takes_abort(steps, agent, now):  # its answer was whole before it could be aborted
            return True
        if agent not in self._ahead:
            return False
        if agent in steps.ends.stopping:  # its condition cannot be decided any more, or it was stopped
            steps.stopped(agent, now)
        else:
            self._keep_back(steps, agent, end, now)
        return True

    def takes_abort(self, steps: Conductor, agent: int, now: float) -> bool:
        """Leave out a step that was aborted because it is not needed any more."""
        left = self._beaten.get(agent)
        if left is not None:
            steps.leave_out(agent, left, now)
        return left is not None

    def takes_failure(self, steps: Conductor, agent: int, kind: str, why: str, now: float) -> bool:
        """Keep back a failure before its condition is decided; a race fails because of its candidates."""
        if agent in self._ahead:
            self._keep_back(steps, agent, End("failed", why, kind), now)
        elif kind == NO_ANSWER:
            cause = next(one for one in steps.dag.parents[agent] if one in steps.ends.lost)
            steps.end(agent, End("skipped", None, None, cause), now)
            steps.skip_descendants(agent, now)
        else:
            return False
        return True

    def _keep_back(self, steps: Conductor, agent: int, end: End, now: float) -> None:
        """Keep an end back, unless the condition cannot be decided because a step that it is about is lost."""
        cause = next((one for one in self._ahead_of[agent] if one in steps.ends.lost), None)
        if cause is not None:
            steps.end(agent, End("skipped", None, None, cause), now)
            steps.skip_descendants(agent, now)
            return
        steps.state[agent], self._kept_back[agent] = KEPT, end
        steps.give_back(agent)  # the steps that its condition waits for may need the same resources

    def won(self, steps: Conductor, winner: int, now: float) -> None:
        for race in self._races_of(steps, winner):
            self._won.add(race)
            for other in steps.dag.parents[race]:
                steps.ends.lost.pop(other, None)  # no race wants them again
            for agent in self._needless(steps, race):
                if steps.state[agent] != ENDED:  # the place of a hedge ends with its step
                    self._drop(steps, agent, Left("skipped", f"{self._names[winner]!r} answered first", BEATEN), now)

    def _races_of(self, steps: Conductor, agent: int) -> list[int]:
        return [child for child in steps.dag.children[agent] if child in self.races]

    def _needless(self, steps: Conductor, race: int) -> list[int]:
        """Return the open agents of a race and the steps that only they use, children before parents."""
        parents, children = steps.dag.parents, steps.dag.children
        todo = [one for one in parents[race] if steps.state[one] != ENDED]
        found: dict[int, None] = {}
        while todo:
            one = todo.pop(0)
            found[one] = None
            for before in parents[one]:
                wanted = [after for after in children[before] if after not in found and steps.state[after] != ENDED]
                if steps.state[before] != ENDED and not wanted:
                    todo.append(before)
        return [*found]

    def lost(self, steps: Conductor, agent: int) -> Left | None:
        """Return why a race has failed: all of its candidates have ended without an answer, one without success."""
        if agent not in self.races or agent in self._won or steps.ends.lost.keys().isdisjoint(steps.dag.parents[agent]):
            return None
        return Left("failed", "", NO_ANSWER)

    # what follows from an end

    def attempt_failed(self, agent: int, now: float) -> None:
        if agent in self._place_of:
            self.overdue.ended(agent, now)

    def ending(self, steps: Conductor, agent: int, end: End, now: float) -> End:
        """Return how a step ends that is about to."""
        for ones in (self._ahead, self._idle):
            ones.discard(agent)
        self._kept_back.pop(agent, None)
        cause = self._causes.pop(agent, end.cause)
        if agent in self._step_of and not steps.tries.made(agent):  # nothing was sent
            steps.ends.left[agent] = UNNEEDED
            return End(UNNEEDED.status, UNNEEDED.why, UNNEEDED.kind, None)
        self.attempt_failed(agent, now)
        return end._replace(cause=cause)

    def ended(self, steps: Conductor, agent: int, now: float) -> None:
        """Close the place of a step's hedge, and look at the steps that speculate on its end."""
        if (place := self._place_of.get(agent)) in self._idle:
            self._close(steps, place, now)
        self._to_look_at.update((child, None) for child in steps.dag.children[agent] if child in self._ahead_of)
        self._to_look_at.update(dict.fromkeys(self._put_off.pop(agent, ())))

    def _close(self, steps: Conductor, place: int, now: float) -> None:
        """Leave out a hedge that is not needed; one that was sent in an earlier try has cost something."""
        was_sent = steps.tries.made(place)
        steps.leave_out(place, Left("skipped", UNNEEDED.why, BEATEN) if was_sent else UNNEEDED, now)

    def can_do_without(self, steps: Conductor, step: int, now: float) -> bool:
        """Return whether a step survives a failed parent: a race, or for now a step with a request to abort."""
        if step in self._ahead and steps.state[step] in UNDER_WAY:
            if step not in steps.ends.stopping:
                cause = self._causes[step] = next(one for one in self._ahead_of[step] if one in steps.ends.lost)
                steps.ends.stopping[step] = "skipped", f"{self._names[cause]!r} did not succeed"
                steps.out.append(Abort(step, "stopped"))
            return True
        if step not in self.races:
            return False
        steps.missing[step] -= 1
        if not steps.missing[step] and steps.state[step] == PENDING:
            steps.make_ready(step, now)
        return True

    # recorded ends, and steps that run again

    def settle(self, steps: Conductor, done: Mapping[int, Status]) -> list[int]:
        """Take over the ends of a recorded run, and return its answers."""
        answered = [agent for agent, status in done.items() if status in WITH_ANSWER]
        self._idle.difference_update(done)
        for agent in answered:
            self._won.update(self._races_of(steps, agent))
        return answered

    def settled(self, steps: Conductor, answered: Iterable[int], now: float) -> None:
        for agent in answered:
            self.won(steps, agent, now)
        for place in sorted(self._idle):
            if steps.state[self._step_of[place]] == ENDED:
                self._close(steps, place, now)

    def reopened(self, again: Iterable[int]) -> None:
        """Let the hedges of steps that run again wait for a late answer again."""
        asked = {*again}
        self._idle.update(place for place, step in self._step_of.items() if place in asked and step in asked)

    def waits_for(self, steps: Conductor, step: int) -> int:
        """Return the number of things that a step waits for: a race does not wait for candidates that are lost."""
        lost = () if step in self.races else steps.ends.lost
        parents = sum(steps.state[one] != ENDED or one in lost for one in steps.dag.parents[step])
        return parents + (step in self._idle)


def candidates_of(plan: Plan, requests: Requests, kinds: Iterable[str]) -> Candidates | None:
    """Return the candidates of a plan; `None` if no step competes or begins early."""
    flow = plan.flow
    if flow is None or requests.flow is None or not (flow.races or flow.ahead_of):
        return None
    return Candidates(plan, requests, kinds)


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
