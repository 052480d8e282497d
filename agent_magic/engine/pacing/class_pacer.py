"""The pacing of one limit class: a bucket per kind of limit, the lessons of its answers, and the order of queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.engine.contract import Hold
from agent_magic.engine.pacing.bucket import Bucket, Output, Ratio
from agent_magic.engine.pacing.concurrency import SILENT_S, Concurrency
from agent_magic.engine.pacing.limits import KINDS, Limits
from agent_magic.engine.pacing.share import Demand, Share
from agent_magic.engine.pacing.window import Minute, Window
from agent_magic.record.terms import Ceiling, Learned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from agent_magic.engine.contract import Reason
    from agent_magic.engine.pacing.bucket import LimitSource
    from agent_magic.engine.pacing.limits import Dimension, Reading, Readings

    Taking = tuple[Dimension, Bucket, float, float]  # use of a bucket by each request and each input token

BIN_S: Final = 5.0
BINS: Final = 12
"""A minute, in steps of five seconds."""


class LimitUse(NamedTuple):
    """One limit of one model class; unknown ones have no limit, share or source."""

    kind: Dimension
    model_class: str
    limit_per_min: float | None
    used_per_min: float  # by us, over the last minute or since the first request
    used_share: float | None  # over the minute's limit, 0 to 1 and more
    source: str = ""  # `announced` by the provider, `given` by the user, or `inferred from 3 refusals`
    share: float = 1.0  # the part that this kernel may take now, beside others with the key


def limit_use(
    kind: Dimension, model_class: str, bucket: Bucket, used: float, passed_s: float, refusals: int
) -> LimitUse:
    share = used / bucket.limit if bucket.limit else None
    source = bucket.source or ""
    if source == "inferred":
        source += f" from {refusals:,} refusal{'s' * (refusals > 1)}" if refusals else " in an earlier session"
    return LimitUse(kind, model_class, bucket.limit or None, used * 60 / passed_s, share, source, bucket.share)


@dataclass(frozen=True, slots=True)
class PoolHealth:
    """The state of one model class."""

    name: str
    limits: Mapping[Dimension, LimitUse]
    under_way: int = field(kw_only=True)
    refusals: int = field(kw_only=True)
    episodes: int = field(kw_only=True)  # refusals at one moment count once
    shut_s: float = field(default=0.0, kw_only=True)  # until something may be sent after a 429


class Meter:
    """Sums over the last minute."""

    __slots__ = ("_bins", "_first_s", "_place", "refusals")

    def __init__(self) -> None:
        self._bins = [[0.0, 0.0, 0.0] for _ in range(BINS)]
        self._place = -1
        self._first_s = 0.0
        self.refusals = 0

    def add(self, now: float, requests: float, taken: float, made: float) -> None:
        place = int(now / BIN_S)
        if place != self._place:
            self._turn(place, now)
        bin_ = self._bins[place % BINS]
        bin_[0] += requests
        bin_[1] += taken
        bin_[2] += made

    def lately(self, now: float, bins: int = BINS) -> tuple[list[float], float]:
        self.add(now, 0.0, 0.0, 0.0)
        passed_s = min(max(now - self._first_s, 1.0), (bins - 1) * BIN_S + now % BIN_S)
        rows = [self._bins[(self._place - back) % BINS] for back in range(bins)]
        return [max(0.0, sum(column)) for column in zip(*rows, strict=True)], passed_s

    def _turn(self, place: int, now: float) -> None:
        if self._place < 0:
            self._first_s = now
        for old in range(max(self._place + 1, place - BINS + 1), place + 1):
            self._bins[old % BINS] = [0.0, 0.0, 0.0]
        self._place = place


ALL: Final = Share(1.0)
MOST_WAIT_S: Final = 3600.0
"""The longest `retry-after` that is obeyed."""
UNSAID_S: Final = 1.0
MOST_UNSAID_S: Final = 60.0
"""The longest wait after a refusal without `retry-after`; it doubles while only refusals come."""
JITTER_S: Final = 0.1
FIRST_OUTPUT: Final = 1_000.0
"""The most output expected before the first answer, when `max_tokens` is often the only estimate."""
LATE_S: Final = 0.05
"""A request that wakes up late may make up for at most this delay."""
LONGEST_STEP_S: Final = 0.1
"""The longest spacing between requests, which only keeps them from leaving together."""
PLACE_S: Final = 1.0 + JITTER_S
"""If no rate explains a refusal, a `retry-after` of at most this concerns only the refused request."""
INSTANT_S: Final = 1e-6
"""A shorter wait would vanish when added to a large time, and the caller would ask for ever."""
OUTPUT_STEP_S: Final = 0.02
"""The shortest wait for output; its estimate is repeated while requests in flight drain."""
GRACE_S: Final = 2.0
"""A queue that does not ask again loses its turn after this time."""
FITS: Final = 1.5
"""A limit explains a refusal if less than this times the request's estimated need is left of it."""


class Ticket:
    """The permission to send one request now; give it back by `finished` or `refused`."""

    __slots__ = (
        "amounts",
        "asked",
        "before",
        "had_room",
        "heard",
        "input",
        "marks",
        "open",
        "output",
        "passed",
        "pool",
        "sent_s",
    )

    def __init__(self, pool: ClassPacer, asked: tuple[int, int], *, taken: float, made: float, now: float) -> None:
        self.pool, self.asked, self.input, self.output, self.sent_s = pool, asked, taken, made, now
        self.open, self.heard, self.had_room, self.passed = True, False, False, 0
        self.before = pool.under_way
        pool.output.sent(made, now)
        self.amounts: dict[Dimension, float] = {}  # its use of each bucket; output is taken when it is produced
        self.marks: dict[Dimension, float] = {}
        for name, bucket, per_request, per_token in pool.shares:
            amount = self.amounts[name] = per_request + per_token * taken
            self.marks[name] = bucket.take(amount, now)


class ClassPacer:
    """The known limits of one class of models, and its requests in flight."""

    def __init__(self, limits: Limits, random: Random, endpoint: str = "") -> None:
        self._random, self.endpoint = random, endpoint
        self._buckets: dict[Dimension, Bucket] = {
            name: Bucket(kind, given, limits.burst_s)
            for (name, kind), given in zip(KINDS.items(), limits.rates.values(), strict=True)
        }
        self.requests, self.output = self._buckets["requests"], Output(self._buckets["output"])
        self.shares: list[Taking] = [
            (name, self._buckets[name], kind.per_request, kind.per_input_token) for name, kind in KINDS.items()
        ]
        self._guessed = [each for each in self.shares if each[3]]
        self._known: list[Taking] = []  # those with a limit; output has its own law
        self._window, self._concurrency, self._minute = Window(), Concurrency(), Minute()
        self._inputs, self._outputs = Ratio(500.0), Ratio(300.0)
        self._turns: dict[int, Hold] = {}
        self._meter = Meter()
        self.under_way = self._episodes = 0
        self._fruitless = self._patience = 0  # refusals in a row, now and the time before
        self._said, self._shut_s = False, -1.0  # whether the last one said when to come again, and when the first came
        self._next_s, self._gate_s, self._cut_s = 0.0, -1.0, -1.0
        self._is_half_open = False  # after refusals in a row one request is sent first
        self._heed()

    def ask(self, input_tokens: int, output_tokens: int, now: float, queue: int) -> Ticket | Hold:
        if now < self._gate_s:
            return Hold("backoff", self._gate_s)
        turns = self._turns
        if turns and (ahead := self._ahead(queue, now)):
            return ahead
        places = self._concurrency
        if hold := places.hold(self.under_way, now) or (not places.kept and self._minute.hold(now)):
            return self._hold(queue, hold)
        if not self.requests.rate:
            if self._window.rate and not places.kept and not self._minute.kept:
                self._window.eased()
                self.requests.impose(60 * self._window.rate, now, closed_s=0.0)
                self._heed()
            elif hold := self._window.hold(self.under_way, now):
                return self._hold(queue, hold)
        taken = input_tokens * self._inputs.value
        made = output_tokens * self._outputs.value
        if made > FIRST_OUTPUT and not self.output.answers:
            made = FIRST_OUTPUT
        wait_s, why = self._wait_s(taken, now)
        if wait_s > INSTANT_S:
            return self._hold(queue, Hold(why or self._tightest(taken, made), now + wait_s))
        turns.pop(queue, None)
        ticket = Ticket(self, (input_tokens, output_tokens), taken=taken, made=made, now=now)
        self.under_way += 1
        self._concurrency.sent(self.under_way, now)
        self._meter.add(now, 1.0, taken, 0.0)
        self._count(ticket, now)
        self._space(taken, made, now)
        return ticket

    def _count(self, ticket: Ticket, now: float) -> None:
        self._minute.sent(now)
        if self._is_half_open:
            self._gate_s = now + SILENT_S
        window = self._window
        grown = window.sent(now)
        ticket.had_room, ticket.passed = window.has_room, window.passed
        if grown and self.requests.rate and self.requests.source == "inferred":
            self.requests.impose(60 * window.rate, now, doubted=window.doubted)

    def forgo(self, queue: int) -> None:
        self._turns.pop(queue, None)

    @property
    def quiet(self) -> bool:
        """True if requests wait for a first reply, which may report the limits."""
        return self._window.quiet

    def heard(self, ticket: Ticket, readings: Readings, now: float) -> None:
        if ticket.open and not ticket.heard:
            self._let_in(ticket, now)
        if readings:
            for name, reading in readings.items():
                self._buckets[name].read(reading, ticket.marks[name], ticket.amounts[name], ticket.sent_s, now)
            self._heed()

    def finished(self, ticket: Ticket, input_tokens: int | None, output_tokens: int | None, now: float) -> None:
        if not ticket.open:
            return
        if not input_tokens and not output_tokens:  # an error that cost nothing is no evidence of answers
            input_tokens = output_tokens = None
        self._end(ticket, output_tokens, now)
        used = ticket.input if input_tokens is None else input_tokens
        for name, bucket, per_request, per_token in self._guessed:
            bucket.settle(ticket.amounts[name], per_request + per_token * used)
        if input_tokens is not None:
            self._inputs.add(ticket.asked[0], input_tokens)
            self._meter.add(now, 0.0, input_tokens - ticket.input, 0.0)
        if output_tokens is not None:
            self._outputs.add(ticket.asked[1], output_tokens)
            self._meter.add(now, 0.0, 0.0, output_tokens)
            self._window.answered()
            self._concurrency.answered(now - ticket.sent_s)
            if not ticket.heard:
                self._let_in(ticket, now)

    def refused(
        self, ticket: Ticket, retry_after_s: float | None, limit: str | None, readings: Readings, now: float
    ) -> None:
        if not ticket.open:
            return
        self._end(ticket, None, now)
        for name, bucket, *_ in self.shares:
            bucket.settle(ticket.amounts[name], 0.0)
        self._meter.add(now, -1.0, -ticket.input, 0.0)
        self._meter.refusals += 1
        first = ticket.sent_s > self._cut_s
        if first and not self._window.by_chance:
            again = self._fruitless == 1 and retry_after_s is None
            self._shut_s = self._shut_s if self._fruitless else now
            self._fruitless = max(2, self._patience - 1) if again else self._fruitless + 1
        self._said = retry_after_s is not None
        unsaid_s = min(UNSAID_S * 2 ** max(0, self._fruitless - 1), MOST_UNSAID_S)
        wait_s = unsaid_s if retry_after_s is None else retry_after_s
        if self._fruitless > 1 and limit is None and not readings:  # the server's wait was too short
            wait_s = max(wait_s, unsaid_s / 2)
        explained = False
        for name, bucket in self._buckets.items():
            reading, amount = readings.get(name), ticket.amounts[name]
            said = reading is not None or bucket.source in {"announced", "given"}
            empty = _is_short(reading, amount, bucket.grain) or (limit == name and said)
            explained = explained or (empty and bucket.source != "inferred")
            need = (amount or 1.0) if empty else None
            bucket.refuse(reading, ticket.marks[name], amount, now, need=need, wait_s=wait_s, first=first)
        self._episodes += first
        self._window.take_back(ticket.sent_s)
        gentle = False
        if not explained:
            self._is_half_open = self._fruitless > 1
            gentle = self._explain(ticket, limit, wait_s, now, first=first) and wait_s <= PLACE_S
        if first and not (gentle and self._window.by_chance):
            self._cut_s = now
        if first:
            wait_s += JITTER_S * self._random.random()
        self._heed()
        if not gentle:
            self._gate_s = max(self._gate_s, now + min(wait_s, MOST_WAIT_S))

    def _explain(self, ticket: Ticket, limit: str | None, wait_s: float, now: float, *, first: bool) -> bool:
        """Attribute a refusal that no known limit explains; return True if other requests may go on."""
        odd = any(each.announced for each in self._buckets.values())
        places = self._concurrency
        if self._minute.refused(ticket.sent_s, now, first=first, alone=not (odd or places.kept)):
            self.requests.free(now, self._minute.limit)
            self._known = []
            return False
        was_kept = places.kept
        (lately, *_), passed_s = self._meter.lately(now, 2)
        crowded = (
            not odd
            and (places.kept or not self._window.by_chance)
            and places.refused(
                ticket.before,
                self.under_way,
                now,
                sent_s=ticket.sent_s,
                first=first,
                wait_s=wait_s,
                lately=lately / passed_s,
            )
        )
        if crowded and not was_kept and self.requests.source == "inferred":
            self.requests.free(now)
            self._known = []
        if crowded:
            return places.is_sure
        window = self._window
        is_limit = window.refused(
            now, wait_s, had_room=ticket.had_room or (odd and not window.rate), passed=ticket.passed, first=first,
            burst=self._minute.burst, announced=self.requests.announced / 60, ramp=limit == "ramp",
        )  # fmt: skip
        if is_limit and window.rate:
            self.requests.impose(60 * window.rate, now, closed_s=wait_s)
        return window.by_chance and not is_limit

    def health(self, name: str, now: float) -> PoolHealth:
        used, passed_s = self._meter.lately(now)
        refusals = self._meter.refusals
        return PoolHealth(
            name,
            {
                kind: limit_use(kind, name, bucket, KINDS[kind].amount(*used), passed_s, refusals)
                for kind, bucket in self._buckets.items()
            },
            under_way=self.under_way,
            refusals=refusals,
            episodes=self._episodes,
            shut_s=max(0.0, self._gate_s - now),
        )

    def load(self, now: float) -> float:
        known = [one for one in self._buckets.values() if one.rate]
        return max((1 - one.level_at(now) / one.capacity for one in known), default=0.0)

    def demands(self, now: float) -> dict[Dimension, Demand]:
        used, passed_s = self._meter.lately(now, 2)
        held = {hold.reason for hold in self._turns.values() if hold.until_s + GRACE_S > now}
        shut = now < self._gate_s
        found: dict[Dimension, Demand] = dict.fromkeys(self._buckets, Demand())
        for name, bucket in self._buckets.items():
            if bucket.rate:
                second = bucket.limit / 60
                largest = bucket.take_largest()
                found[name] = Demand(
                    KINDS[name].amount(*used) / passed_s / second,
                    shut or name in held,
                    largest / bucket.capacity,
                    largest / second,
                    bucket.sure_level_at(now) / second,
                    bucket.taken / second,
                    shut,
                    *((bucket.limit, bucket.capacity) if bucket.source == "announced" else ()),
                )
        return found

    def set_shares(self, shares: Mapping[Dimension, Share], now: float) -> bool:
        before = [bucket.share for bucket in self._buckets.values()]
        for name, bucket in self._buckets.items():
            bucket.set_share(*shares.get(name, ALL), now=now)
        return before != [bucket.share for bucket in self._buckets.values()]

    def ceilings(self) -> dict[str, Ceiling]:
        return {name: Ceiling(each.limit, each.capacity) for name, each in self._buckets.items() if each.limit}

    def learned(self, now: float) -> Learned:
        buckets = self._buckets.values()
        return Learned(
            self._inputs.sums,
            self._outputs.sums,
            self.output.learned,
            self.output.answers,
            self._window.size,
            levels=tuple(each.level_at(now) for each in buckets),
            margins=tuple(each.margin for each in buckets),
            external=tuple(each.external_rate for each in buckets),
            slots=self._concurrency.learned,
            minute=self._minute.learned(now),
        )

    def sources(self) -> dict[str, LimitSource]:
        return {name: each.source for name, each in self._buckets.items() if each.source}

    def recall(self, ceilings: Mapping[str, Ceiling], sources: Mapping[str, LimitSource], now: float) -> None:
        for name, bucket in self._buckets.items():
            if name in ceilings:
                bucket.recall(ceilings[name], sources.get(name, "announced"), now)
        if self.requests.source == "inferred":
            self._window.recall_rate(self.requests.rate)
        self._heed()

    def recall_learned(self, learned: Learned, now: float, age_s: float = 0.0) -> None:
        self._inputs.recall(*learned.inputs)
        self._outputs.recall(*learned.outputs)
        self.output.recall(learned.ahead, learned.answers)
        if learned.answers:
            self._window.recall(learned.window)
        if learned.slots:
            self._concurrency.recall(learned.slots)
        if learned.minute:
            self._minute.recall(learned.minute, now, age_s)
        if self._minute.kept:  # it is no rate
            self.requests.free(now, self._minute.limit)
            self._known = []
            self._heed()
        learned_of_each = zip(learned.levels, learned.margins, learned.external, strict=False)
        # A record from before a kind of limit was added says nothing of it.
        for bucket, (level, margin, external_rate) in zip(self._buckets.values(), learned_of_each, strict=False):
            bucket.recall_level(level, margin, external_rate, now, age_s)

    def _wait_s(self, taken: float, now: float) -> tuple[float, Reason | None]:
        longest_s, why = max(0.0, self._next_s - now), None
        for name, bucket, per_request, per_token in self._known:
            wait_s = bucket.wait_s(per_request + per_token * taken, now)
            if wait_s > longest_s:
                longest_s, why = wait_s, name
        if longest_s > INSTANT_S and why in {None, "requests"}:
            self._window.held(now)
        if (wait_s := self.output.wait_s(now)) > longest_s:
            longest_s, why = max(wait_s, OUTPUT_STEP_S), "output"
        return longest_s, why

    def _hold(self, queue: int, hold: Hold) -> Hold:
        self._turns[queue] = hold
        return hold

    def _ahead(self, queue: int, now: float) -> Hold | None:
        """Return the hold of another queue, if it is that queue's turn: the refill is saved for it."""
        while self._turns:
            first, hold = next(iter(self._turns.items()))
            if first == queue:
                return None
            if hold.until_s + GRACE_S > now:
                own = self._turns.get(queue)
                if own is None or own.until_s <= now + INSTANT_S:  # a time that has come would be asked for without end
                    own = self._turns[queue] = Hold(hold.reason, max(hold.until_s, now) + LATE_S)
                return own
            del self._turns[first]
        return None

    def _tightest(self, taken: float, made: float) -> Reason:
        part, why = 0.0, "slot"
        for name, bucket in self._buckets.items():
            if bucket.rate and (share := KINDS[name].amount(1, taken, made) / bucket.rate) > part:
                part, why = share, name
        return why

    def _space(self, taken: float, made: float, now: float) -> None:
        step_s = min(self.output.bucket.step_s(made), OUTPUT_STEP_S)  # it takes nothing at once
        step_s = max(step_s, self._concurrency.step_s(now))
        for _, bucket, per_request, per_token in self._known:
            step_s = max(step_s, bucket.step_s(per_request + per_token * taken))
        self._next_s = max(now - LATE_S, self._next_s) + min(step_s, LONGEST_STEP_S)

    def _let_in(self, ticket: Ticket, now: float) -> None:
        ticket.heard = True
        if self._is_half_open and ticket.sent_s > self._cut_s:
            self._is_half_open, self._gate_s = False, now
        self._speak()
        if ticket.sent_s > self._shut_s or self._said:  # what left before says nothing of how long it is shut
            self._patience, self._fruitless = self._fruitless or self._patience, 0
        self._window.let_in(had_room=ticket.had_room or not self._window.rate)
        self._concurrency.let_in(ticket.before + 1, ticket.sent_s, now)
        self._minute.let_in(ticket.sent_s)

    def _speak(self) -> None:
        if self._window.quiet:
            self._turns.clear()
            self._window.quiet = False

    def _heed(self) -> None:
        if len(self._known) + 1 < len(self.shares):
            self._known = [each for each in self.shares if each[1].rate and each[0] != "output"]
        if self._known or self.output.bucket.rate:
            self._window.quiet = False

    def _end(self, ticket: Ticket, output_tokens: int | None, now: float) -> None:
        ticket.open = False
        self.under_way -= 1
        self._speak()  # with any outcome
        self.output.ended(ticket.output, output_tokens, ticket.sent_s, now)


def _is_short(reading: Reading | None, amount: float, grain: float) -> bool:
    need = FITS * amount + grain if amount > 1 else 1.0
    return reading is not None and reading.remaining is not None and reading.remaining < need
