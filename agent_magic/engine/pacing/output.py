"""The output bucket: what is under way is still to be taken from it, and nobody knows when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.ratio import RECENT, Ratio

if TYPE_CHECKING:
    from agent_magic.engine.pacing.bucket import Bucket
    from agent_magic.engine.pacing.limits import Reading

Arrived = Callable[[float], int]
"""Says how many characters of an answer have arrived at a time."""
LOOK_S: Final = 0.1
"""How often to look at what has arrived, while it matters."""
FIRST_CHARS: Final = 1_600.0
PER_CHAR: Final = 0.25
"""Tokens of a character, and how many characters are taken to have shown that, before answers tell."""
LEAST_LEFT: Final = 0.1
"""The share of the capacity, of a second's worth at most, that has to be there: an empty bucket lets none in."""
MOST_LEFT: Final = 0.9
"""The largest share of it that a request waits for, however much it will use: a full bucket holds nobody."""
AIM: Final = 0.5
"""The share of the capacity, of a second's worth at most, that is aimed at: as far from full as from empty."""
TRIED_S: Final = 0.15
"""After the bucket was empty one goes ahead of the others for this time: a refusal comes at once."""
FIRST_TOKENS: Final = 300.0
FIRST_MADE_S: Final = 5.0
"""What one answer is taken to have, and how long to take from its beginning to its end, before answers tell."""
MOST_PRODUCED: Final = 2.0
"""Answers that have begun have not produced more than this many times what is expected of them, all taken together."""
FORGET: Final = 0.005
"""The weight of one more answer in what is learned from answers, once there are many."""
DATED: Final = 0.03
"""The weight of one more response in how well each of two times explains what it says."""
DATED_FROM: Final = 10
CLEARER: Final = 0.8


class Made:
    """What one answer that has begun has produced so far.

    Attributes:
        expected: The tokens that are expected of it.
        arrived: Says what has arrived of it; `None` if nobody can.
        begun_s: When it began.
        counted: The tokens that were taken from the bucket for it. While it is hidden: less what an answer without end
            would have produced until it began.
        seen: The characters that had arrived when it was last looked at; 0 while it is hidden.
    """

    __slots__ = ("arrived", "begun_s", "counted", "expected", "seen")

    def __init__(self, expected: float, arrived: Arrived | None, begun_s: float, counted: float) -> None:
        self.expected, self.arrived, self.begun_s, self.counted = expected, arrived, begun_s, counted
        self.seen = 0


class Output:
    """Mirrors the bucket of output tokens.

    Output is counted as it is produced, `max_tokens` is not reserved, a request is let in while anything is left, and
    answers that go on may use more than there is: that is owed. So there are two questions. Is anything left? Each
    answer that has begun takes what has arrived of it, or while nothing has, what answers produce on the average; and
    when it is over, what it really had. And is as much under way as flows in while it is? Then the bucket stays where
    it is: half full. A request that has to wait because nothing is left is no loss, if as many as are missing may
    follow it at once.

    How long a token is under way follows from how fast answers are seen to arrive, and how long they take to begin.
    Where none is seen it follows from how much was under way when, and how much was counted. Answers that are complete
    tell that best, but the first of them are the shortest: what is still under way counts as well. If the bucket is
    full although requests are held, more goes: so one that hangs holds the others no longer.

    When a response was computed, as it begins or when its request was let in, is seen from which explains it better.

    Source: the vendor's page on rate limits.

    Attributes:
        bucket: The mirror.
        under_way: Tokens that are expected of all that is under way.
        open: How many requests that are.
    """

    __slots__ = (
        "_ahead",
        "_answers",
        "_asked_s",
        "_at_s",
        "_begun",
        "_coming",
        "_drained",
        "_early",
        "_empty",
        "_full_s",
        "_hidden",
        "_late",
        "_looked_s",
        "_made",
        "_per_char",
        "_produced",
        "_readings",
        "_refused_s",
        "_seen",
        "_sees",
        "_spilt",
        "_sums",
        "_tried_s",
        "_waited",
        "bucket",
        "open",
        "under_way",
    )

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.under_way, self.open = 0.0, 0
        self._at_s = self._drained = 0.0
        self._begun: dict[Made, None] = {}  # in the order they began, so that the same events give the same sums
        self._hidden = self._answers = 0
        self._per_char, self._looked_s = Ratio(FIRST_CHARS, PER_CHAR), 0.0
        self._seen = self._waited = 0.0, 0.0
        self._sees = False
        self._coming = self._produced = 0.0
        self._made = FIRST_TOKENS, FIRST_MADE_S
        self._ahead = self._sums = 0.0, 0.0
        self._empty, self._tried_s, self._refused_s = False, 0.0, 0.0
        self._early = self._late = 0.0
        self._readings = 0
        self._spilt, self._asked_s = 0.0, 0.0
        self._full_s: float | None = None

    @property
    def ahead_s(self) -> float:
        """For how long a token is under way on the average, in seconds, by the answers that are complete; 0 before."""
        held, used = self._ahead
        return held / used if used else 0.0

    @property
    def learned(self) -> tuple[tuple[float, float], int, tuple[float, float]]:
        """Token seconds under way and tokens, of how many answers, and tokens and the seconds they were produced in."""
        return self._ahead, self._answers, self._made

    def recall(self, ahead: tuple[float, float], answers: int, made: tuple[float, float]) -> None:
        """Go on from what was learned earlier."""
        self._ahead, self._answers, self._made = ahead, answers, made

    def wait_s(self, expected: float, now: float) -> float:
        """Return how long there is no room for one more answer; 0 or less if there is."""
        bucket = self.bucket
        self._drain(now)
        level, second = bucket.level_at(now), min(bucket.low, bucket.rate)
        floor = min(max(LEAST_LEFT * second, bucket.margin), AIM * second)
        if level < floor:
            self._empty = True
        ahead_s = self._under_way_s(expected)
        self._spill(level, ahead_s, now)
        lack = min(AIM * second + expected / 2, MOST_LEFT * bucket.low)
        lack += self.under_way - bucket.rate * ahead_s - self._spilt
        self._full_s = now if lack > level >= bucket.low else None
        return max((max(floor, lack) - level) / bucket.rate, self._tried_s - now)

    def begin(self, expected: float, now: float) -> float:
        """Record that a request was let go. Return the level without corrections, for `read`."""
        self._drain(now)
        self.under_way += expected
        self.open += 1
        if self._empty:
            self._empty, self._tried_s = False, now + TRIED_S
        return self.bucket.take(0.0, now)

    def heard(self, expected: float, arrived: Arrived | None, sent_s: float, now: float) -> Made:
        """Record that an answer begins. Return what it has produced, for `end`."""
        self._drain(now)
        made = Made(expected, arrived, now, -self._drained)
        self._begun[made] = None
        self._hidden += 1
        self._coming += expected
        self._waited = self._waited[0] * RECENT + now - sent_s, self._waited[1] * RECENT + 1
        return made

    def read(self, reading: Reading, mark: float, spent: float, then: float, *, now: float, sent_s: float) -> None:
        """Record what a response says.

        Args:
            reading: What it says.
            mark: What `begin` returned for this request.
            spent: What had been taken from the bucket by then.
            then: The level by then.
            now: The time.
            sent_s: When the request was let go.
        """
        self._drain(now)
        bucket, before = self.bucket, mark + self.bucket.shift
        level = bucket.level_at(now)
        believed = None
        if reading.remaining is not None and bucket.rate:
            self._date(reading.remaining, max(0.0, then), max(0.0, level))
            if self._readings > DATED_FROM and self._late < CLEARER * self._early:
                believed = level
            elif self._readings > DATED_FROM and self._early < CLEARER * self._late:
                believed = before
            most = max(level, before) if believed is None else believed
            if sent_s < self._refused_s and reading.remaining > most:  # the refusal is the younger news
                reading = reading._replace(remaining=None)
        bucket.read(reading, mark, spent, now=now, sent_s=sent_s, believed=believed)

    def end(self, expected: float, used: float | None, sent_s: float, begun: Made | None, now: float) -> None:
        """Record that an answer is complete, or with `None` that what it used is not known.

        Args:
            expected: What `begin` was told.
            used: What it had.
            sent_s: When the request was let go.
            begun: What `heard` returned; `None` if the answer never began.
            now: The time.
        """
        self._drain(now)
        counted = 0.0
        if begun is not None:
            del self._begun[begun]
            if not begun.seen:
                self._show(begun)
            counted = begun.counted
        self.under_way -= expected
        self.open -= 1
        if used is None:
            return
        if self.bucket.rate:
            self.bucket.take(used - counted, now)
        self._answers += 1
        keep = 1 - max(FORGET, 1 / (self._answers + 1))
        if begun is not None:
            self._made = self._made[0] * keep + used, self._made[1] * keep + now - begun.begun_s
            if begun.arrived is not None and (seen := begun.arrived(now)):
                self._per_char.add(seen, used)
        self._ahead = self._ahead[0] * keep + expected * (now - sent_s), self._ahead[1] * keep + used
        self._sums = self._sums[0], self._sums[1] + used

    def refused(self, expected: float, now: float) -> None:
        """Record that a request was turned away: it uses nothing."""
        self._drain(now)
        self.under_way -= expected
        self.open -= 1
        self._refused_s = now

    def _under_way_s(self, expected: float) -> float:
        """Return for how long a token is under way with one answer more, as far as can be told by now."""
        if not self._sees:
            held, used = self._sums
            return max(self.ahead_s, held / max(1.0, used + self.under_way))
        tokens, seconds = self._seen
        made, made_s = self._made
        waited_s, begun = self._waited
        each = (self.under_way + expected) / (self.open + 1)
        return waited_s / begun + each * (seconds + made_s) / (tokens + made)

    def _look(self, now: float) -> None:
        """See what has arrived of the answers that go on."""
        self._looked_s = now
        per_char, more, tokens, seconds = self._per_char.value, 0.0, 0.0, 0.0
        for made in self._begun:
            if made.arrived is None or not (seen := made.arrived(now)):
                continue
            if not made.seen:
                self._show(made)
            more += seen * per_char - made.counted
            made.seen, made.counted = seen, seen * per_char
            tokens += made.counted
            seconds += now - made.begun_s
        self._seen = tokens, seconds
        self._sees = self._sees or bool(tokens)
        self.bucket.take(more, now)

    def _show(self, made: Made) -> None:
        """Record that an answer is hidden no more."""
        self._hidden -= 1
        made.counted += self._drained
        self._coming -= made.expected
        self._produced -= made.counted

    def _spill(self, level: float, ahead_s: float, now: float) -> None:
        """Count what flowed into a full bucket while requests were held: too little was under way, or some of it hangs.

        Once the bucket is full no more this is forgotten, in about the time that a token is under way.
        """
        past_s, self._asked_s = now - self._asked_s, now
        if self._full_s is not None and level >= self.bucket.low:
            self._spilt += (now - self._full_s) * self.bucket.rate
        elif self._spilt:
            self._spilt *= max(0.0, 1 - past_s / max(ahead_s, 1.0))

    def _date(self, remaining: float, then: float, level: float) -> None:
        """Learn whether responses say what was there when the request was let in, or what is there now."""
        if abs(then - level) > 2 * self.bucket.grain:
            self._readings += 1
            self._early += (abs(remaining - then) - self._early) * DATED
            self._late += (abs(remaining - level) - self._late) * DATED

    def _drain(self, now: float) -> None:
        past_s, self._at_s = now - self._at_s, now
        if past_s <= 0 or not self.under_way:
            return
        self._sums = self._sums[0] + past_s * self.under_way, self._sums[1]
        if self.bucket.rate and now >= self._looked_s + LOOK_S:
            self._look(now)
        if self._hidden:
            tokens, seconds = self._made
            left = max(0.0, MOST_PRODUCED * self._coming - self._produced) / self._hidden  # none of those that hang
            each = min(past_s * tokens / max(seconds, 1e-3), left)
            self._drained += each
            self._produced += each * self._hidden
            if self.bucket.rate:
                self.bucket.take(each * self._hidden, now)
