"""The model of a server (`server`) that fits the answers of runs, by likelihood.

For each request `log(work / usual)` is taken to be normal, where `usual` is
`a + b * input` until the first token, and `a + output * (b + c * input)` after it, in tokens; the density of its end is
the density of the work, times `share(n at its end) / work`. Each parameter must improve the fit by its penalty.

Source: Schwarz, "Estimating the dimension of a model", 1978 (the penalty of a parameter).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Generator
from heapq import heappop, heappush
from itertools import accumulate
from operator import attrgetter, mul, sub
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from agent_magic.measure.server import CONSTANT, NEVER, Held, Needs, Server, limit_of
from agent_magic.providers.anthropic import models as by_name
from agent_magic.record.facts import overlap
from agent_magic.record.history import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.measure.server import At
    from agent_magic.record.facts import Attempt
    from agent_magic.record.history import Exchange
    from agent_magic.record.results import RunRecord

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A computation in steps, so that a loop can do something else in between."""
BURST: Final = 0.03
"""A loop reads ends in bursts, so the load is counted this part of a request before its end."""
JITTER_S: Final = 0.012
"""Error of a request's seconds: a loaded client, buffers, frames that are sent together."""
HANDED_OVER_S: Final = 0.05
"""How long a request may seem to run on after another took its slot: its last frame is on the wire."""
LEAST_SPREAD: Final = 0.03
"""A smaller spread would make a wrong model look certain."""
PENALTY: Final = 3.0
SLOTS_PENALTY: Final = 5.0
"""Slots are the best of as many models as requests were in flight."""
OPEN: Final = 3.0
"""Models within this log likelihood of the best stay open: about a 90 % interval for one parameter."""
FEWEST: Final = 10
"""With fewer requests any model fits."""
MOST: Final = 60
"""Requests of a run that are compared, evenly chosen: more cost time and add little."""
MOST_IN_ALL: Final = 240
"""The same of several runs."""
CHANGED: Final = 0.7
"""Runs are of different servers if their joint fit costs more log likelihood per answer than this."""
CLIPPED: Final = 3.0
"""Spreads beyond which an answer is an outlier, counted by its logarithm within one run."""
IMPOSSIBLE: Final = 5.0
"""Cost in log likelihood of each answer that comes earlier than the model allows."""
BEFORE_FREE: Final = 2.0
"""The same for an answer that begins while its slot still seems taken: one in seven does."""
TOGETHER_S: Final = 0.06
"""Requests sent within this may overtake each other on the wire, if the starts of answers were not recorded."""
OVERTAKES: Final = 3.0
"""Cost in log likelihood of each request that was served before an earlier one: one in twenty is."""
OURS: Final = frozenset({"slot", "dependencies", "longest", "barrier", "group"})
"""The causes that a run shows if its requests slow each other at their server."""
AT_ONCE_S: Final = 0.015
"""An answer is not streamed if its last token comes this soon after the first one."""
COARSE, MIDDLE, FINE, ROUNDS = 2, 4, 8, 3
FAR: Final = 12.0
"""A shape is dropped if its best score on the coarse grid is this far behind."""
POWERS: Final = (0.5, 1.5)
CAUGHT_UP_S: Final = 0.03
"""A client that stood still reads everything that arrived meanwhile within this time."""
STOOD_STILL: Final = 1e-3
"""Maximum probability of a silence and the burst after it, for a client that stood still."""
LEAST_STILL: Final = 0.1
"""Silences shorter than this share of a usual answer are ignored."""


class Fit(NamedTuple):
    """The likely model of a server, all that the answers leave open, and the pace alone."""

    likely: Server = CONSTANT
    open: tuple[Server, ...] = (CONSTANT,)
    most: int = 0
    pace: float | None = None


UNKNOWN: Final = Fit()


def limit_of_run(record: RunRecord) -> str:
    """Return what limited a run at its servers, computed once per set of events; empty if little did."""
    # A forecast is no evidence of a server.
    if record.forecast is not None:
        return record.forecast.limited_by
    if record.server_limit is None or record.server_limit[0] != len(record.events):
        found = () if is_forecast(record) else asked_at(record).values()
        runs = [Observed([each for _, each in some]) for some in found]
        record.server_limit = len(record.events), limit_of([one.held(fit([one]).likely) for one in runs])
    return record.server_limit[1]


def is_forecast(record: RunRecord) -> bool:
    """True if a run never happened: it is no evidence of a server."""
    return record.forecast is not None or "forecast" in record.facts.sources


def at_of(record: RunRecord, endpoint: str, model: str) -> At:
    known = None if record.terms is None else record.terms.models.get(model)
    return endpoint, (known or by_name.facts_of(model)).limit_class


def asked_at(record: RunRecord) -> dict[At, list[tuple[Attempt, Exchange]]]:
    found: dict[At, list[tuple[Attempt, Exchange]]] = {}
    for attempt, exchange in exchanges_of(record):
        found.setdefault(at_of(record, attempt.endpoint, attempt.model), []).append((attempt, exchange))
    return found


class Observed:
    """The requests of one run at one server; `caught` ones, under way while the client stood still, are no evidence."""

    def __init__(self, exchanges: Iterable[Exchange], *, drawn: bool = False) -> None:
        self.exchanges = sorted(exchanges, key=attrgetter("sent_s"))
        self._timelines: dict[tuple[float, bool], _Timeline] = {}
        whole = [number for number, one in enumerate(self.exchanges) if one.whole and one.ended_s > one.sent_s]
        still = [] if drawn else _still([self.exchanges[one] for one in whole])
        known = [(number, self.exchanges[number]) for number in whole]
        caught = {n for n, one in known if any(one.sent_s < end and one.ended_s > begin for begin, end in still)}
        self.caught = caught if len(caught) < len(whole) else set[int]()  # nothing else tells how long they take
        whole = self.whole = [one for one in whole if one not in self.caught]
        step = max(1.0, len(whole) / MOST)
        self.compared = [whole[int(index * step)] for index in range(int(len(whole) / step))]
        self.most = max(1, overlap([(one.sent_s, one.ended_s) for one in self.exchanges])[0])
        streamed = sorted(self.exchanges[one].ended_s - (self.exchanges[one].first_s or NEVER) for one in whole)
        self.streams = bool(streamed) and streamed[len(streamed) // 2] > AT_ONCE_S
        self.reads = self.streams
        answering = [
            (one.first_s, one.ended_s - _lag_s(one))
            for one in self.exchanges
            if one.first_s is not None and self.streams
        ]
        self.fewest = max(1, overlap([(begin, end) for begin, end in answering if end > begin])[0])
        self.seen_s = [
            one.ended_s if one.first_s is None or not self.streams else one.first_s for one in self.exchanges
        ]
        self.groups = [0 if self.streams else number for number in _together(one.sent_s for one in self.exchanges)]

    def timeline(self, model: Server) -> _Timeline:
        key = min(model.slots, self.most), model.reads_beside
        found = self._timelines.get(key)
        if found is None:
            found = self._timelines[key] = _Timeline(self, *key)
        return found

    def needs(self, model: Server) -> list[Needs]:
        found = self.timeline(model).needs(model)
        if self.caught:
            made = [one.output_tokens or 1 for one in self.exchanges]
            before_s = median(found[one].before_s for one in self.whole)
            per_token_s = sum(found[one].after_s for one in self.whole) / sum(made[one] for one in self.whole)
            for one in self.caught:
                found[one] = Needs(before_s, per_token_s * made[one])
        return found

    def held(self, model: Server) -> Held:
        busy_s = sum(one.ended_s - one.sent_s for one in self.exchanges)
        return Held(model, 0.0, 0.0, busy_s) if model.is_constant else self.timeline(model).held(model, busy_s)


def _still(answers: Sequence[Exchange]) -> list[tuple[float, float]]:
    """Return when the client stood still: silences that end with answers to requests of different times.

    Answers begin, and end, at a rate. None for `s` seconds, and then one and `k` more at once, have the likelihood
    `exp(-rate s) (rate CAUGHT_UP_S) ** k / k!`.
    """
    found = list[tuple[float, float]]()
    if len(answers) < FEWEST:
        return found
    least_s = LEAST_STILL * median(one.ended_s - one.sent_s for one in answers)
    began_s = min(one.sent_s for one in answers)
    events = sorted(at for one in answers for at in (one.sent_s, one.first_s, one.ended_s) if at is not None)
    begun = [(one.first_s, one.sent_s) for one in answers if one.first_s is not None]
    for seen in sorted(begun), sorted((one.ended_s, one.sent_s) for one in answers):
        for index, (at_s, _) in enumerate(seen):
            since_s = events[max(0, bisect_left(events, at_s) - 1)]
            if at_s - since_s <= least_s:
                continue
            until = bisect_right(seen, (at_s + CAUGHT_UP_S, NEVER))
            sent = [sent_s for _, sent_s in seen[index:until] if sent_s <= since_s]
            more, rate = len(set(_together(sorted(sent)))) - 1, len(seen) / (seen[-1][0] - began_s)
            silent = math.exp(-rate * (at_s - since_s))
            if more > 0 and silent * (rate * CAUGHT_UP_S) ** more / math.factorial(more) < STOOD_STILL:
                found.append((since_s, at_s))
    return found


def _together(sent_s: Iterable[float]) -> list[int]:
    """Number the requests, equally those sent within `TOGETHER_S`."""
    found, group, since_s = list[int](), 0, -NEVER
    for one in sent_s:
        if one - since_s > TOGETHER_S:
            group, since_s = group + 1, one
        found.append(group)
    return found


def _lag_s(one: Exchange) -> float:
    """Return how late the end of an answer may be seen: at most a part of its time."""
    return min(HANDED_OVER_S, (one.ended_s - (one.ended_s if one.first_s is None else one.first_s)) / 2)


class _Timeline:
    """The requests running over time, for a number of slots."""

    def __init__(self, run: Observed, slots: float, reads_beside: bool) -> None:  # noqa: FBT001 - private
        self.exchanges, self.reads_beside = run.exchanges, reads_beside
        self.begun, self.cost = _begins(run, slots)
        self.firsts = [  # when each begins to answer; if unseen, when it is begun
            begun if one.first_s is None or not run.streams else min(max(one.first_s, begun), one.ended_s)
            for one, begun in zip(run.exchanges, self.begun, strict=True)
        ]
        counted = self.begun if reads_beside else self.firsts
        spans = [(begin, one.ended_s) for begin, one in zip(counted, run.exchanges, strict=True)]
        changes = sorted([(at, change) for begin, end in spans for at, change in ((begin, 1), (end, -1))])
        self.times, self.counts = [min(0.0, run.exchanges[0].sent_s)], [0]
        running = 0
        for at, change in changes:
            running += change
            if at > self.times[-1]:
                self.times.append(at)
                self.counts.append(running)
            else:
                self.counts[-1] = running
        self.before, self.after = _Parts(self, apart=not reads_beside), _Parts(self, signed=True)
        self._last: tuple[Server, list[float], list[float]] | None = None
        for number in run.compared:
            one, begun_s, first_s = run.exchanges[number], self.begun[number], self.firsts[number]
            given, made = float(one.input_tokens), float(one.output_tokens or 1)
            if run.streams and one.first_s is not None:
                self.before.add(begun_s, first_s, (1.0, given))
                self.after.add(first_s, one.ended_s, (1.0, made, made * given))
            else:
                self.after.add(begun_s, one.ended_s, (1.0, made, given))
        self._begins = [self.place(one) for one in self.begun]
        self._firsts = [self.place(one) for one in self.firsts]
        self._ends = [self.place(one.ended_s) for one in run.exchanges]

    def place(self, at_s: float) -> tuple[int, float]:
        found = max(0, bisect_right(self.times, at_s) - 1)
        return found, at_s - self.times[found]

    def shares(self, model: Server) -> list[float]:
        return self._of(model)[1]

    def served(self, model: Server) -> list[float]:
        return self._of(model)[2]

    def _of(self, model: Server) -> tuple[Server, list[float], list[float]]:
        if self._last is None or self._last[0] != model:
            shares = [1.0, *(model.share(count) for count in range(1, max(self.counts) + 1))]
            steps = (
                (after - before) * shares[count]
                for before, after, count in zip(self.times, self.times[1:], self.counts, strict=False)
            )
            self._last = model, shares, [0.0, *accumulate(steps)]
        return self._last

    def held(self, model: Server, busy_s: float) -> Held:
        shares, spans = self.shares(model), zip(self.times, self.times[1:], self.counts, strict=False)
        slowed_s = sum((after - before) * count * (1.0 - shares[count]) for before, after, count in spans)
        queued_s = sum(begun - one.sent_s for begun, one in zip(self.begun, self.exchanges, strict=True))
        return Held(model, queued_s, slowed_s, busy_s)

    def needs(self, model: Server) -> list[Needs]:
        _, shares, served = self._of(model)

        def at(place: tuple[int, float]) -> float:
            return served[place[0]] + place[1] * shares[self.counts[place[0]]]

        found: list[Needs] = []
        for number, (begin, first, end) in enumerate(zip(self._begins, self._firsts, self._ends, strict=True)):
            at_first = at(first)
            before_s = at_first - at(begin) if self.reads_beside else self.firsts[number] - self.begun[number]
            found.append(Needs(max(0.0, before_s), max(0.0, at(end) - at_first)))
        return found


def _begins(run: Observed, slots: float) -> tuple[list[float], float]:
    """Return when each request gets a slot, and the cost of that order in log likelihood."""
    sent = range(len(run.exchanges))
    begins, cost = _let_in(run, sent, slots)
    if cost < IMPOSSIBLE:
        return begins, cost
    by_answers = sorted(sent, key=lambda one: (run.groups[one], run.seen_s[one], one))
    others, less = _let_in(run, by_answers, slots)
    less += _order_cost(run, by_answers, others)
    return (others, less) if less < cost else (begins, cost)


def _let_in(run: Observed, order: Iterable[int], slots: float) -> tuple[list[float], float]:
    cost = 0.0
    found = [0.0] * len(run.exchanges)
    busy: list[tuple[float, float]] = []
    for number in order:
        one = run.exchanges[number]
        begun_s, lag_s = one.sent_s, HANDED_OVER_S
        while busy and busy[0][0] <= begun_s:
            heappop(busy)
        while len(busy) >= slots:
            begun_s, lag_s = max((begun_s, lag_s), heappop(busy))
        latest_s = one.ended_s if one.first_s is None else one.first_s
        # No answer takes no time. Without this, rows that all end at once fit a slot that only the first one needs.
        no_time = not run.streams and begun_s > max(one.sent_s, one.ended_s - JITTER_S / 2)
        if no_time or begun_s > latest_s + lag_s:
            cost += IMPOSSIBLE
        elif begun_s > latest_s:
            cost += BEFORE_FREE
        found[number] = max(one.sent_s, min(begun_s, latest_s))
        heappush(busy, (one.ended_s, _lag_s(one) if run.streams else HANDED_OVER_S))
    return found, cost


def _order_cost(run: Observed, order: Iterable[int], begins: Sequence[float]) -> float:
    """Return the cost of the order of service, which is rarely other than as sent."""
    sent_s = [one.sent_s for one in run.exchanges]
    left = [-number for number in reversed(range(len(sent_s)))]  # the earliest is last, to be taken out cheaply
    rarely = by_lot = 0.0
    for number in order:
        place = bisect_left(left, -number)
        overtaken = len(left) - 1 - place
        waiting = len(left) - bisect_left(left, 1 - bisect_right(sent_s, begins[number]))
        del left[place]
        rarely += OVERTAKES + math.log(max(1, waiting - 1)) if overtaken else 0.0
        by_lot += math.log(max(1, waiting))
    return min(rarely, by_lot)


def _penalty(model: Server) -> float:
    shared = (model.full < NEVER) + 2 * (model.power != 1.0)  # it is rarely otherwise
    return PENALTY * shared + (SLOTS_PENALTY if model.slots < NEVER else 0.0)


def fit(runs: Sequence[Observed]) -> Fit:
    """Fit a server to the first run, the most relevant, and those that agree with it."""
    # A server restarted with other slots, or on another machine, has the same address: earlier observations of it
    # are no evidence.
    return all_at_once(fitting(runs))


def fitting(runs: Sequence[Observed]) -> Steps[Fit]:
    """Fit in steps of a few milliseconds."""
    runs = [one for one in runs if one.compared]
    if sum(len(one.compared) for one in runs) < FEWEST:
        return UNKNOWN._replace(most=max((one.most for one in runs), default=0))
    search = _Search(_chosen(runs), max(one.most for one in runs), strict=len(runs) > 1)
    found = yield from search.fitting()
    if len(runs) == 1 or len(runs[0].compared) < FEWEST:
        return found
    alone = _Search(runs[:1], runs[0].most, strict=True)
    own = yield from alone.fitting()
    return own if search.lost(found.likely, alone, own.likely) > CHANGED * len(runs[0].compared) else found


def all_at_once(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _chosen(runs: Sequence[Observed]) -> list[Observed]:
    first = {one.most: number for number, one in reversed([*enumerate(runs)])}
    order = sorted(range(len(runs)), key=lambda number: (number and number != first[runs[number].most], number))
    counts = [*accumulate(len(runs[number].compared) for number in order)]
    return [runs[number] for number, count in zip(order, counts, strict=True) if not number or count <= MOST_IN_ALL]


class _Search:
    """Searches for the models with the highest likelihood of some runs' requests."""

    def __init__(self, runs: Sequence[Observed], most: int, *, strict: bool) -> None:
        self.runs, self.most, self.strict = runs, most, strict
        self.known: dict[Server, float] = {}
        self.each: dict[Server, list[float]] = {}
        self._designs: dict[tuple[float, bool], tuple[_Design, _Design]] = {}

    def fitting(self) -> Steps[Fit]:
        for shape in self.shapes():
            yield from self.comparing([shape, *(shape._replace(full=full) for full in self.grid(shape, COARSE))])
        best = max(self.known.values())
        near = [one for one in self.shapes() if max(self.of(one).values()) > best - FAR]
        for shape in near:
            yield from self.comparing([shape._replace(full=full) for full in self.grid(shape, FINE)])
        # Batches slow each a little with every other: beside a constant server never likely, often open.
        likely = self.likely()
        for power in POWERS if likely.full < NEVER else POWERS[:1]:
            yield from self.comparing([likely._replace(full=full, power=power) for full in self.grid(likely, MIDDLE)])
        if likely.full < NEVER:
            for _ in range(ROUNDS):
                yield from self.comparing(self.between(self.likely()))
        likely = self.likely()
        middle = self.middle(likely)
        return Fit(middle, (middle, *self.open(middle)), self.most, _pace(self.runs, likely))

    def comparing(self, models: Iterable[Server]) -> Steps[None]:
        for model in models:
            self.score(model)
            yield

    def lost(self, likely: Server, alone: _Search, own: Server) -> float:
        """Return how much less likely the first run's answers are under a fit of all runs than under its own."""
        count = len(self.runs[0].compared)
        together, apart = (
            search.designs(model)[1].scores(model)[:count] for search, model in ((self, likely), (alone, own))
        )
        return sum(apart) - sum(together)

    def open(self, apart: Server) -> list[Server]:
        """Return the open models: of each shape those with the least and the most `full`."""
        top = max(self.known.values())
        left: dict[Server, list[float]] = {}
        for one, score in self.known.items():
            if score > top - OPEN:
                left.setdefault(one._replace(full=NEVER), []).append(one.full)
        ends = [one._replace(full=full) for one, fulls in left.items() for full in sorted({min(fulls), max(fulls)})]
        return [one for one in ends if one != apart]

    def shapes(self) -> list[Server]:
        fewest = max(one.fewest for one in self.runs)
        return [
            Server(float(slots) if slots < self.most else NEVER, reads_beside=reads_beside)
            for slots in (*_some(fewest, self.most - 1), self.most)
            for reads_beside in ((True, False) if any(one.reads for one in self.runs) else (True,))
        ]

    def score(self, model: Server) -> float:
        found = self.known.get(model)
        if found is None:
            each = self.each[model] = [one for design in self.designs(model) for one in design.scores(model)]
            found = self.known[model] = sum(each) - sum(one.timeline(model).cost for one in self.runs)
        return found

    def designs(self, model: Server) -> tuple[_Design, _Design]:
        key = model.slots, model.reads_beside
        found = self._designs.get(key)
        if found is None:
            lines = [one.timeline(model) for one in self.runs]
            befores, afters = [one.before for one in lines], [one.after for one in lines]
            found = _Design(befores, strict=self.strict), _Design(afters, strict=self.strict)
            self._designs[key] = found
        return found

    def grid(self, shape: Server, steps: int) -> list[float]:
        top = min(self.most, shape.slots)
        return [top ** (step / steps) for step in range(steps)] if top > 1 else []

    def of(self, shape: Server) -> dict[float, float]:
        return {one.full: score for one, score in self.known.items() if one._replace(full=shape.full) == shape}

    def likely(self) -> Server:
        """Return the model with the best penalised likelihood."""
        constant, base = self.each[CONSTANT], self.known[CONSTANT]

        def earned(model: Server) -> float:
            most = max(map(sub, self.each[model], constant), default=0.0)
            return self.known[model] - base - max(0.0, most) - _penalty(model)

        return max(self.known, key=earned)

    def between(self, likely: Server) -> list[Server]:
        values = sorted(one for one in self.of(likely) if one < NEVER)
        place = values.index(likely.full) if likely.full < NEVER else len(values)
        beside = values[max(0, place - 1) : place] + values[place + 1 : place + 2]
        return [likely._replace(full=math.sqrt(likely.full * other)) for other in beside if likely.full < NEVER]

    def middle(self, likely: Server) -> Server:
        """Return the posterior mean of `full`, instead of the single best value."""
        if likely.full == NEVER:
            return likely
        found = sorted((math.log(full), score) for full, score in self.of(likely).items() if full < NEVER)
        top = max(score for _, score in found)
        total = weights = 0.0
        for index, (at, score) in enumerate(found):
            left = found[index - 1][0] if index else at
            right = found[index + 1][0] if index + 1 < len(found) else at
            weight = math.exp(score - top) * ((right - left) or 1.0)
            total, weights = total + weight * at, weights + weight
        return likely._replace(full=math.exp(total / weights))


def _pace(runs: Sequence[Observed], model: Server) -> float | None:
    paces: list[float] = []
    for run in runs:
        needs = run.needs(model)
        for number in run.compared:
            tokens, after_s = run.exchanges[number].output_tokens, needs[number].after_s
            if tokens and after_s > 0:
                paces.append(tokens / after_s)
    return median(paces) if paces else None


def _some(low: int, high: int) -> list[int]:
    found, step, one = list[int](), 1, low
    while one <= high:
        found.append(one)
        if len(found) > 3:
            step = max(1, one // 4)
        one += step
    return found


class _Parts:
    """One part of some requests: begins and ends as places of the timeline and seconds after them.

    `counts` ran shortly before its end; the first of `known`, the features of its work, may reduce it if `signed`.
    """

    def __init__(self, line: _Timeline, *, signed: bool = False, apart: bool = False) -> None:
        self.line, self.signed, self.apart = line, signed, apart
        self.begins: list[tuple[int, float]] = []
        self.ends: list[tuple[int, float]] = []
        self.took_s: list[float] = []
        self.counts: list[int] = []
        self.known: list[tuple[float, ...]] = []

    def add(self, begin_s: float, end_s: float, known: tuple[float, ...]) -> None:
        """Add a request; all models are compared on all requests."""
        begin, end = self.line.place(min(begin_s, end_s - JITTER_S)), self.line.place(end_s)
        self.begins.append(begin)
        self.ends.append(end)
        self.took_s.append(max(JITTER_S, end_s - begin_s))
        before_end = self.line.place(end_s - BURST * (end_s - begin_s))
        self.counts.append(max(1, self.line.counts[before_end[0]]))
        self.known.append(known)


class _Design:
    """One part of the requests of all runs; `strict` counts outliers in full."""

    def __init__(self, parts: Sequence[_Parts], *, strict: bool) -> None:
        self.parts, self.strict = parts, strict
        self.known = [known for each in parts for known in each.known]
        self._columns = list(zip(*self.known, strict=True))
        took_s = [took for each in parts for took in each.took_s]
        self.blur = [(JITTER_S / one) ** 2 for one in took_s]
        self.weights = [1.0 / (one * one * (0.01 + each)) for one, each in zip(took_s, self.blur, strict=True)]
        self._solutions: dict[tuple[int, ...], list[list[float]]] = {}

    def scores(self, model: Server) -> list[float]:
        """Return the log likelihood per request, with the best parameters of work."""
        work: list[float] = []
        ends: list[float] = []
        for each in self.parts:
            line = each.line
            if each.apart:
                work += each.took_s
                ends += [1.0] * len(each.took_s)
                continue
            served, shares, counts = line.served(model), line.shares(model), line.counts
            work += [
                served[end] + more * shares[counts[end]] - served[begin] - less * shares[counts[begin]]
                for (begin, less), (end, more) in zip(each.begins, each.ends, strict=True)
            ]
            ends += [shares[count] for count in each.counts]
        if len(work) < FEWEST:
            return []
        logs = [math.log(max(one, 1e-9)) for one in work]
        usual = self._usual(work)
        off = [log - math.log(max(each, 0.1 * one, 1e-9)) for log, each, one in zip(logs, usual, work, strict=True)]
        shift = median(off)
        off = [(one - shift) ** 2 for one in off]
        squares = sorted([max(0.0, one - each) for one, each in zip(off, self.blur, strict=True)])
        kept = squares[: max(1, int(0.95 * len(squares)))]
        spread = max(LEAST_SPREAD**2, sum(kept) / max(1, len(kept) - len(self._columns)))
        found: list[float] = []
        for one, each, log, share in zip(off, self.blur, logs, ends, strict=True):
            variance = spread + each
            away = one / variance
            lost = away / 2
            if away > CLIPPED**2:
                times = math.sqrt(away) / CLIPPED
                lost = CLIPPED**2 * (2 * times - 1 if self.strict else 1 + 2 * math.log(times)) / 2
            found.append(math.log(share) - log - math.log(variance) / 2 - lost)
        return found

    def _usual(self, work: Sequence[float]) -> list[float]:
        """Return the expected work by least squares over the features, with factors that are >= 0."""
        used = tuple(range(len(self._columns)))
        while True:
            factors = [sum(map(mul, row, work)) for row in self._solution(used)]
            signed = self.parts[0].signed
            wrong = [n for n, factor in enumerate(factors) if factor < 0 and not (signed and used[n] == 0)]
            if not wrong or len(used) == 1:
                break
            worst = min(wrong, key=lambda n: factors[n])
            used = (*used[:worst], *used[worst + 1 :])
        parts = [[factor * one for one in self._columns[n]] for factor, n in zip(factors, used, strict=True)]
        return list(map(sum, zip(*parts, strict=True)))

    def _solution(self, used: tuple[int, ...]) -> list[list[float]]:
        found = self._solutions.get(used)
        if found is None:
            rows = [[one[place] for place in used] for one in self.known]
            found = self._solutions[used] = _solved(rows, self.weights)
        return found


def _solved(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[list[float]]:
    """Return `(X' W X)^-1 X' W` by elimination. A column that adds nothing gets a factor of 0."""
    size = len(rows[0])
    weighted = [[w * row[a] for w, row in zip(weights, rows, strict=True)] for a in range(size)]
    matrix = [
        [*(sum(map(mul, weighted[a], (row[b] for row in rows))) for b in range(size)), *weighted[a]]
        for a in range(size)
    ]
    scale = [matrix[a][a] for a in range(size)]
    for a in range(size):
        if matrix[a][a] <= 1e-9 * scale[a] or scale[a] <= 0:
            matrix[a] = [0.0] * len(matrix[a])
            continue
        for b in range(size):
            if b != a and matrix[b][a]:
                by = matrix[b][a] / matrix[a][a]
                matrix[b] = [x - by * y for x, y in zip(matrix[b], matrix[a], strict=True)]
    return [[one / matrix[a][a] for one in matrix[a][size:]] if matrix[a][a] else matrix[a][size:] for a in range(size)]
