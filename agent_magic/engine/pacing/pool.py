"""The pacing of one model class: three buckets, a pace, and a window while nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.engine.admission.room import Hold
from agent_magic.engine.pacing.bucket import Bucket
from agent_magic.engine.pacing.health import Meter, PoolHealth, gauge
from agent_magic.engine.pacing.limits import DIMENSIONS, Limits
from agent_magic.engine.pacing.output import Output
from agent_magic.engine.pacing.ratio import Ratio
from agent_magic.engine.pacing.window import Window
from agent_magic.record.terms import Ceiling, Learned

if TYPE_CHECKING:
    from random import Random

    from agent_magic.engine.admission.room import Reason
    from agent_magic.engine.pacing.limits import Reading, Readings
    from agent_magic.engine.pacing.output import Arrived, Made

MOST_WAIT_S: Final = 3600.0
"""However long a refusal says to wait, after an hour somebody may ask again."""
FIRST_PACE: Final = 2.0
FIRST_OUTPUT: Final = 1_000.0
"""Before the first answer no request is expected to have more output than this: many know no better than `max_tokens`.
"""
LEAST_PACE: Final = 0.05
MOST_PACE: Final = 8.0
EXPLAINED_PACE: Final = 1.25
"""The pace does not sink below this if the limit that refused shows as used up: its bucket holds us back anyway."""
PROBE: Final = 0.02
"""How much faster the pace becomes per round trip above the pace that was refused."""
SPREAD_S: Final = 0.05
"""What a request that wakes up late has lost may be made up for within this time, no longer."""
LONGEST_STEP_S: Final = 0.1
"""The pace keeps requests from leaving together. That a large one has room is the bucket's business."""
INSTANT_S: Final = 1e-6
"""A shorter wait is none: added to a large time it would be lost, and whoever asks again then would ask for ever."""
OUTPUT_STEP_S: Final = 0.02
"""The shortest wait for output: what is under way drains meanwhile, so the time that is told comes again and again."""
GRACE_S: Final = 2.0
"""A queue that does not ask again loses its turn after this time."""
GATE_S: Final = 1.0
"""How long to wait after a refusal that does not say."""
JITTER_S: Final = 0.1
ROUNDED: Final = 500.0
"""Token counts in headers are rounded to thousands."""
KINDS: Final = 1000


class Ticket:
    """Leave to send one request now. Give it back by `finished` or `refused`, whatever becomes of it."""

    __slots__ = (
        "asked",
        "begun",
        "doubt",
        "fulls",
        "input",
        "kind",
        "marks",
        "open",
        "output",
        "pool",
        "sent_s",
        "spent",
        "then",
    )

    def __init__(self, pool: Pool, asked: tuple[int, int], kind: str, *, taken: float, made: float, now: float) -> None:
        self.pool, self.asked, self.kind, self.input, self.output, self.sent_s = pool, asked, kind, taken, made, now
        self.open = True
        self.begun: Made | None = None
        requests, inputs, output = pool.requests, pool.input, pool.output
        self.marks = requests.take(1.0, now), inputs.take(taken, now), output.begin(made, now)
        self.then = output.bucket.level
        self.spent = requests.spent, inputs.spent, output.bucket.spent
        self.fulls, self.doubt = inputs.fulls, inputs.doubt(taken)


class Pool:
    """What is known of the limits of one model class, and what is under way.

    While no limit is known a window bounds what is under way. Once limits are known the buckets decide. The pace says
    how much faster than the limit saved up room may be spent. It is halved by refusals, below 1 only if the headers do
    not explain them: then the true limit is lower, or counted over shorter times, than announced.
    """

    def __init__(self, limits: Limits, random: Random) -> None:
        self._random = random
        self.requests = Bucket(1.0, limits.requests, limits.burst_s)
        self.input = Bucket(ROUNDED, limits.input_tokens, limits.burst_s)
        self.output = Output(Bucket(ROUNDED, limits.output_tokens, limits.burst_s, fair=0.0, regain=1.0))
        self._buckets = self.requests, self.input, self.output.bucket
        self._known = any(bucket.rate for bucket in self._buckets)
        self._open = 0
        self._window = Window()
        self._pace, self._hurt, self._next_s, self._paced = FIRST_PACE, MOST_PACE, 0.0, False
        self._gate_s = self._cut_s = -1.0
        self._episodes = 0
        self._inputs, self._outputs = Ratio(ROUNDED), Ratio(300.0)
        self._kinds: dict[str, Ratio] = {}
        self._turns: dict[int, Hold] = {}
        self._meter = Meter()

    def ask(self, input_tokens: int, output_tokens: int, now: float, kind: str, queue: int) -> Ticket | Hold:
        """Let a request go, or say what it waits for."""
        if now < self._gate_s:
            return Hold("backoff", self._gate_s)
        turns = self._turns
        if turns and (ahead := self._ahead(queue, now)):
            return ahead
        if not self._known and (hold := self._window.hold(self._open, now)):
            return self._hold(queue, hold)
        taken = input_tokens * self._inputs.value
        made = output_tokens * (self._kinds.get(kind) or self._outputs).value
        if made > FIRST_OUTPUT and not self.output.ahead_s:
            made = FIRST_OUTPUT
        wait_s, why = self._wait_s(taken, made, now)
        if wait_s > INSTANT_S:
            if why == "output" and wait_s < OUTPUT_STEP_S:
                wait_s = OUTPUT_STEP_S
            return self._hold(queue, Hold(why or self._tightest(taken, made), now + wait_s))
        if turns:
            turns.pop(queue, None)
        ticket = Ticket(self, (input_tokens, output_tokens), kind, taken=taken, made=made, now=now)
        self._open += 1
        self._meter.add(now, 1.0, taken, 0.0)
        if self._known or self._episodes:
            self._space(taken, made, now)
        return ticket

    def forgo(self, queue: int) -> None:
        """Record that a queue that waited cannot go for another reason now: it keeps nobody from going."""
        self._turns.pop(queue, None)

    @property
    def quiet(self) -> bool:
        """Whether requests wait for a first reply, which may tell the limits."""
        return self._window.quiet and not self._known

    def heard(self, ticket: Ticket, readings: Readings, now: float, arrived: Arrived | None) -> None:
        """Record what a response says of the limits, unless it is a refusal: that is for `refused`."""
        if ticket.open and ticket.begun is None:
            ticket.begun = self.output.heard(ticket.output, arrived, ticket.sent_s, now)
            self._replied()
        requests, taken, made = readings
        marks, spent, sent_s = ticket.marks, ticket.spent, ticket.sent_s
        if requests is not None:
            self._known = True
            self.requests.read(requests, marks[0], spent[0], now=now, sent_s=sent_s)
            self.requests.announce(requests, 1.0)
        if taken is not None:
            self._known = True
            self.input.read(taken, marks[1], spent[1], now=now, sent_s=sent_s)
            self.input.announce(taken, ticket.input)
        if made is not None:
            self._known = True
            self.output.read(made, marks[2], spent[2], ticket.then, now=now, sent_s=sent_s)
            self.output.bucket.announce(made, 0.0)

    def finished(self, ticket: Ticket, input_tokens: int | None, output_tokens: int | None, now: float) -> None:
        """Record what a request has used; `None` if that is not known."""
        if not ticket.open:
            return
        if not input_tokens and not output_tokens:  # an error that cost nothing says nothing of answers
            input_tokens = output_tokens = None
        self._leave(ticket)
        self.output.end(ticket.output, output_tokens, ticket.sent_s, ticket.begun, now)
        if input_tokens is not None:
            self.input.used(input_tokens, ticket.input, ticket.fulls)
            self._inputs.add(ticket.asked[0], input_tokens)
            self._meter.add(now, 0.0, input_tokens - ticket.input, 0.0)
        if output_tokens is not None:
            self._learn_output(ticket, output_tokens)
            self._meter.add(now, 0.0, 0.0, output_tokens)
            if ticket.begun is None:
                self._replied()
            self._quicken()

    def refused(
        self, ticket: Ticket, retry_after_s: float | None, limit: str | None, readings: Readings, now: float
    ) -> None:
        """Record a 429: nothing was used, and nothing goes for a while."""
        if not ticket.open:
            return
        self._leave(ticket)
        self.output.refused(ticket.output, now)
        self.requests.correct(1.0)
        self.input.correct(ticket.input)
        self._meter.add(now, -1.0, -ticket.input, 0.0)
        self._meter.refusals += 1
        wait_s = GATE_S if retry_after_s is None else retry_after_s
        first = ticket.sent_s > self._cut_s
        needs = 1.0, ticket.input, 1.0
        explained = False
        for name, bucket, reading, need in zip(DIMENSIONS, self._buckets, readings, needs, strict=True):
            self._known = self._known or reading is not None
            empty = _is_empty(reading, need + (ROUNDED if need > 1 else 0)) or limit == name
            explained = explained or empty
            bucket.refuse(reading, now, need=need if empty else None, wait_s=wait_s, first=first)
        if first:
            self._cut_s = now
            self._episodes += 1
            self._cut(ramp=limit == "ramp", explained=explained)
            wait_s += JITTER_S * self._random.random()
        self._gate_s = max(self._gate_s, now + min(wait_s, MOST_WAIT_S))

    def health(self, name: str, now: float) -> PoolHealth:
        """Say how much of the limits was used of late."""
        used, passed_s = self._meter.lately(now)
        gauges = [gauge(bucket, each, passed_s) for bucket, each in zip(self._buckets, used, strict=True)]
        return PoolHealth(
            name,
            *gauges,
            under_way=self._open,
            refusals=self._meter.refusals,
            episodes=self._episodes,
            shut_s=max(0.0, self._gate_s - now),
        )

    def ceilings(self) -> dict[str, Ceiling]:
        """Return the limits that are known, and what each bucket likely holds."""
        pairs = zip(DIMENSIONS, self._buckets, strict=True)
        return {name: Ceiling(bucket.limit, bucket.holds) for name, bucket in pairs if bucket.rate}

    def learned(self, now: float) -> Learned:
        """Return what answers have taught so far."""
        requests, taken, made = self._buckets
        ahead, answers, produced = self.output.learned
        return Learned(
            self._inputs.sums,
            self._outputs.sums,
            ahead,
            answers,
            produced,
            self._window.size,
            (self._pace, self._hurt),
            (requests.level_at(now), taken.level_at(now), made.level_at(now)),
            (requests.margin, taken.margin, made.margin),
            (requests.foreign, taken.foreign, made.foreign),
            taken.spread,
        )

    def recall(self, learned: Learned, now: float, *, levels: bool) -> None:
        """Go on from what was learned earlier, with or without what was in the buckets."""
        self._inputs.recall(*learned.inputs)
        self._outputs.recall(*learned.outputs)
        self.output.recall(learned.ahead, learned.answers, learned.produced)
        self._pace, self._hurt = learned.pace
        if learned.answers:
            self._window.recall(learned.window)
        self.input.spread = learned.spread
        for place, bucket in enumerate(self._buckets):
            bucket.recall(
                learned.levels[place] if levels else None, learned.margins[place], learned.foreign[place], now
            )

    def _wait_s(self, taken: float, made: float, now: float) -> tuple[float, Reason | None]:
        """Return how long a request has to wait, and for which limit; `None` if only the pace holds it."""
        longest_s, why = max(0.0, self._next_s - now), None
        if (wait_s := self.requests.wait_s(1.0, now)) > longest_s:
            longest_s, why = wait_s, "requests"
        if (wait_s := self.input.wait_s(taken, now)) > longest_s:
            longest_s, why = wait_s, "input"
        if self.output.bucket.rate and (wait_s := self.output.wait_s(made, now)) > longest_s:
            longest_s, why = wait_s, "output"
        if longest_s > 0 and why is None:
            self._paced = True
        return longest_s, why

    def _hold(self, queue: int, hold: Hold) -> Hold:
        self._turns[queue] = hold
        return hold

    def _ahead(self, queue: int, now: float) -> Hold | None:
        """Return what holds the queue whose turn it is, if that is another one: what flows in is saved for it."""
        while self._turns:
            first, hold = next(iter(self._turns.items()))
            if first == queue:
                return None
            if hold.until_s + GRACE_S > now:
                own = self._turns.get(queue)
                if own is None or own.until_s <= now + INSTANT_S:  # a time that has come would be asked for without end
                    own = self._turns[queue] = Hold(hold.reason, max(hold.until_s, now) + SPREAD_S)
                return own
            del self._turns[first]
        return None

    def _tightest(self, taken: float, made: float) -> Reason:
        """Name the limit of which a request takes the greatest part."""
        part, why = 0.0, "slot"
        for name, bucket, amount in zip(DIMENSIONS, self._buckets, (1.0, taken, made), strict=True):
            if bucket.rate and amount / bucket.rate > part:
                part, why = amount / bucket.rate, name
        return why

    def _space(self, taken: float, made: float, now: float) -> None:
        """Set the earliest time for the next one."""
        if self._known:
            extra = self._pace - 1.0
            step = self.requests.step_s(1.0, extra)
            if (other := self.input.step_s(taken, extra)) > step:
                step = other
            if step < OUTPUT_STEP_S and (other := self.output.bucket.step_s(made, extra)) > step:
                step = min(other, OUTPUT_STEP_S)  # it takes nothing at once, so whoever had to wait may follow soon
            if extra > 0 and step > LONGEST_STEP_S:
                step = LONGEST_STEP_S
        else:
            step = 0.5 * self.output.ahead_s / self._window.size
        start = now - SPREAD_S
        self._next_s = (max(start, self._next_s)) + step

    def _learn_output(self, ticket: Ticket, used: int) -> None:
        self._outputs.add(ticket.asked[1], used)
        if ticket.kind:
            ratio = self._kinds.get(ticket.kind)
            if ratio is None and len(self._kinds) < KINDS:
                ratio = self._kinds[ticket.kind] = Ratio(max(1.0, ticket.asked[1]), self._outputs.value)
            if ratio is not None:
                ratio.add(ticket.asked[1], used)

    def _replied(self) -> None:
        """Record that a reply begins: more may be under way where limits are not known."""
        self._speak()
        if not self._known:
            self._window.widen(self._open)

    def _speak(self) -> None:
        """Record that there was a reply: whoever waited for the first one may ask anew."""
        if self._window.quiet:
            if not self._known:
                self._turns.clear()
            self._window.quiet = False

    def _quicken(self) -> None:
        """Allow a faster pace after an answer, if it held requests."""
        if self._paced:
            self._paced = False
            step = self._window.growth / max(1, self._open)
            self._pace = min(MOST_PACE, self._pace * (1 + (step if self._pace < self._hurt else step * PROBE)))

    def _cut(self, *, ramp: bool, explained: bool) -> None:
        """Allow half as much."""
        self._window.refused(ramp=ramp)
        if not self._known:
            self._window.cut(self._open, ramp=ramp)
            return
        self._hurt = 0.9 * self._pace
        self._pace = max(EXPLAINED_PACE if explained and not ramp else LEAST_PACE, self._pace / 2)

    def _leave(self, ticket: Ticket) -> None:
        ticket.open = False
        self._open -= 1
        self._speak()  # whatever came of it
        self.input.settle(ticket.doubt)


def _is_empty(reading: Reading | None, need: float) -> bool:
    return reading is not None and reading.remaining is not None and reading.remaining < need
