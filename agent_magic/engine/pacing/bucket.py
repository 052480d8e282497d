"""A client's model of one token bucket on the server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from agent_magic.engine.pacing.limits import Kind, Reading
    from agent_magic.record.terms import Ceiling

LimitSource = Literal["announced", "given", "inferred"]
"""Announced by the server, given by the user, or inferred from refusals that nothing else explains."""

MARGIN_S: Final = 0.02
"""Seconds of refill kept in reserve at first, since requests overtake each other on the wire."""
MOST_MARGIN: Final = 0.25
"""Maximum reserve after refusals, as a share of the capacity."""
GLIDE_S: Final = 1.0
MOST_PACE: Final = 8.0
"""Savings are spent over `GLIDE_S` seconds, at most at this many times the refill rate. Requests then leave evenly,
and an overestimated level costs one refusal, not fifty."""
REGAIN: Final = 0.25
"""The part of a surplus that is accepted at once: a response from before our latest requests reports too much."""
EXTERNAL_PER_S: Final = 0.2
"""How fast unexplained use raises the assumed rate of other clients."""
FAIR: Final = 0.5
"""Maximum share of a limit that is left to other clients with the key, or two pacers could starve each other."""
FADE_S: Final = 60.0
"""How long a remembered level is used."""
SPREAD: Final = 0.12
"""The relative standard deviation of an estimate of input tokens."""


class Bucket:
    """Mirrors a token bucket on the server: continuous refill, an announced limit, an unannounced capacity.

    Limits are per minute, rates per second. `capacity` is the highest level ever observed; `level` is negative while
    something is owed; `margin` is never used; `share` is what other kernels leave us.
    """

    def __init__(self, kind: Kind, given: float | None = None, burst_s: float = 1.0) -> None:
        self.grain = max(1.0, kind.rounded / 2)
        self._fair = 0.0 if kind.per_output_token else FAIR  # missing output may be our own, in flight
        self._spread = SPREAD if kind.per_input_token else 0.0
        self._given, self._own = given, given  # a lower limit than the server's: given, or inferred
        self.announced = 0.0
        self.source: LimitSource | None = None
        self.limit = self.rate = self.capacity = self.margin = 0.0
        self.share, self._begun_s = 1.0, -math.inf
        self.taken = self._largest = 0.0
        self._saving = 0.0  # the amount that the head of the queue waits for, if our share of the capacity is smaller
        self.level = self._at_s = 0.0
        self._shift = self._variance = 0.0
        self.external_rate = self._credit = 0.0
        self._seen = False
        if given is not None:
            self.source = "given"
            self._set_limit(given)
            self.capacity = self.level = max(1.0, self.rate * burst_s)

    @property
    def room(self) -> float:
        return self.capacity if self.source == "inferred" else self.capacity * self.share

    def level_at(self, now: float) -> float:
        return min(self._unbounded(now), self.room)

    def sure_level_at(self, now: float) -> float:
        return self.level_at(now) - math.sqrt(self._variance)

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until an amount is available; 0 or less if it is now.

        An amount larger than our share of the capacity is saved up for. One that exceeds the capacity, together with
        margins too, passes when the bucket is full, and the rest is owed.
        """
        if not self.rate:
            return 0.0
        self._largest = max(self._largest, amount)
        need = amount + self.margin
        if self._variance:
            need += math.sqrt(self._variance + (self._spread * amount) ** 2)
        if need > self.room:  # the server's bucket is full before ours: waiting longer gains nothing
            need = max(self.room, min(amount, self._full) + self.rate * MARGIN_S)
            self._saving = need if self.share < 1 else 0.0
        return (need - self._unbounded(now)) / (self.rate - self.external_rate)

    def step_s(self, amount: float) -> float:
        if not self.rate:
            return 0.0
        saved = max(0.0, self.level - self.margin) / GLIDE_S
        return amount / (self.rate + min(saved, (MOST_PACE - 1) * self.rate))

    def take(self, amount: float, now: float) -> float:
        """Take an estimated amount, and return the level without corrections."""
        self._advance(now, amount)
        self.level -= amount
        self.taken += amount
        self._saving = 0.0
        if self._spread:
            self._variance += (self._spread * amount) ** 2
        return self.level - self._shift

    def settle(self, taken: float, used: float) -> None:
        if self._spread:
            self._variance = max(0.0, self._variance - (self._spread * taken) ** 2)
        self.level += taken - used
        self.taken -= taken - used

    def read(self, reading: Reading, mark: float, amount: float, sent_s: float, now: float) -> None:
        """Correct the level by a response to the request that took `amount`."""
        # Reports on requests sent before our turn are ignored.
        self._learn(reading, amount, now)
        remaining = reading.remaining
        if remaining is None or sent_s < self._begun_s or self._is_first(remaining, mark):
            return
        level, then = self.level_at(now), mark + self._shift
        slack = self.grain + 2 * math.sqrt(self._variance)  # estimates in flight may be wrong: usage will tell
        missing = min(level, then) - slack - remaining
        surplus = remaining - slack - max(level, then) - self.capacity * (1 - self.share)  # others may hold it
        if missing > 0:
            self._lose(missing, now, was_full=min(level, then) >= self.room - self.grain)
        elif surplus > 0 and remaining > 0 and self.source == "announced":  # a debt is shown as 0
            self._correct(surplus * (REGAIN if self._fair else 1.0))
            self._set_external(self.external_rate - surplus * REGAIN * EXTERNAL_PER_S, now)
        elif self.external_rate and (self.share < 1 or self.capacity <= 2 * self.grain):  # too small to show a surplus
            self._set_external(self.external_rate * (1 - EXTERNAL_PER_S), now)

    def refuse(
        self,
        reading: Reading | None,
        mark: float,
        amount: float,
        now: float,
        *,
        need: float | None,
        wait_s: float,
        first: bool,
    ) -> None:
        """Correct the level by a refusal; `need` is the amount, if this limit refused it."""
        # Refusals come at once, so their readings are current. The server rounds the wait up to whole seconds.
        if reading is not None:
            self._learn(reading, 0.0, now)
        if not self.rate:
            return
        self._advance(now)
        left = self.capacity
        if reading is not None and reading.remaining is not None:
            left = reading.remaining
            self._is_first(left, mark + amount)
        if need is None:
            left += self.grain
        else:
            left = min(left, need - max(0.0, wait_s - 1.0) * self.limit / 60)
            if first:
                wider = 1.5 * self.margin + 0.1 * min(need, self.room)
                self.margin = min(wider, self.room * MOST_MARGIN)
        missing = self.level - left * (self.share if left > 0 else 1.0)
        if missing > 0:
            self._correct(-missing)
            if need is not None and need <= self.room and first and self._seen and self.share == 1:
                self._set_external(self.external_rate + min(missing, self._most_credit) * EXTERNAL_PER_S, now)

    def impose(self, limit: float, now: float, *, closed_s: float | None = None, doubted: bool = False) -> None:
        """Keep an inferred limit per minute, unless the user's is lower; one second of it may be used at once.

        It is a guess, so nothing is saved up during the `closed_s` seconds without requests. If refusals contradict it
        (`doubted`), it ends when as much as the announced limit has passed.
        """
        self._advance(now)
        known = self.announced or (self.limit if self.source == "announced" else 0.0)  # this session's, or remembered
        limit = min(limit, known or limit)
        if doubted and limit == self.announced and self._given is None:
            self.source, self._own = "announced", None
            self._set_limit(limit)
        elif self._given is None or limit < self._given:
            self.source, self._own = "inferred", limit
            self._set_limit(limit)
        self.capacity = max(1.0, self.rate)
        if closed_s is not None:
            self._correct(min(1 - closed_s * self.rate, 0.0) - self.level)

    def free(self, now: float, counted: float = 0.0) -> None:
        """Forget an inferred limit that explains no refusals."""
        self._advance(now)
        self._own = self._given
        known: list[tuple[float, LimitSource]] = [(self.announced, "announced"), (self._given or 0.0, "given")]
        self.source = None
        self._set_limit(0.0)
        for limit, source in known:
            if limit and (not self.limit or limit < self.limit):
                self.source = source
                self._set_limit(limit)
        if counted and not self.limit:
            self.source, self.limit, self.capacity = "inferred", counted, counted

    def recall(self, ceiling: Ceiling, source: LimitSource, now: float) -> None:
        if self.source is None:
            self.source = source
            self._set_limit(ceiling.per_minute)
            self._own = self.limit if source == "inferred" else None
            self.capacity = max(1.0, ceiling.capacity)
            self.level, self._at_s = self.room, now

    def recall_level(self, level: float, margin: float, external_rate: float, now: float, age_s: float = 0.0) -> None:
        # Level and external rate fade: after a minute the bucket is full, and other clients may be gone.
        if self.rate:
            self.margin, self._seen = margin, not age_s
            self._set_external(external_rate * max(0.0, 1 - age_s / FADE_S), now)
            self.level = min(level + self.rate * age_s, self.room) if age_s < FADE_S else self.room

    def take_largest(self) -> float:
        found, self._largest = max(self._largest, self._saving), 0.0
        return found

    def set_share(self, share: float, level_s: float | None = None, *, now: float) -> None:
        """Keep to a share of the limit; other kernels report the level, in seconds of the whole refill."""
        if share == self.share:
            return
        self._advance(now)
        before, self.share = self.share, share
        if self.rate and self.source != "inferred":
            self.margin = min(self.margin * share / before, self.room * MOST_MARGIN)
            self._set_limit(self.limit)
            if level_s is not None:
                self._begun_s = now
                self._correct(min(level_s * self.limit / 60, self.room) - self.level)
            elif share < before and self.level > 0:
                self._correct(-self.level * (1 - share / before))

    @property
    def _full(self) -> float:
        return self.capacity + (2 * self.grain if self.source == "announced" else 0.0)

    @property
    def _most_credit(self) -> float:
        return max(self.room, self.rate, 2 * self.grain)

    def _unbounded(self, now: float) -> float:
        return self.level + (now - self._at_s) * (self.rate - self.external_rate)

    def _learn(self, reading: Reading, amount: float, now: float) -> None:
        if self.source == "inferred" and not self.announced:
            self._own = self._given  # the inferred limit was this one
        self.announced = reading.limit
        limit = reading.limit if self._own is None else min(reading.limit, self._own)
        source = "announced" if limit != self._own else self.source
        if limit != self.limit or source != self.source:
            self._advance(now)
            self.source = source
            self._set_limit(limit)
        if reading.remaining is None or self.source != "announced":
            return
        seen = reading.remaining - self.grain
        for usual in (self.limit / 60, self.limit):  # a limit per minute may be enforced per second: the vendor's page
            if abs(usual - reading.remaining - amount) <= min(self.grain, self.limit / 10):
                seen = usual
        self.capacity = min(max(1.0, self.capacity, seen), limit)

    def _is_first(self, remaining: float, mark: float) -> bool:
        """Accept the first report of the level as true, less the amounts sent since."""
        if self._seen or self.source != "announced":
            return False
        self._seen, self._credit = True, self._most_credit
        self._correct(remaining * self.share - mark - self._shift)
        return True

    def _lose(self, missing: float, now: float, *, was_full: bool) -> None:
        if not was_full:
            self._advance(now)
            if self._fair:
                missing = min(missing, max(0.0, self._credit))
                self._credit -= missing
            self._set_external(self.external_rate + missing * EXTERNAL_PER_S, now)
        self._correct(-missing)

    def _correct(self, amount: float) -> None:
        self.level += amount
        self._shift += amount

    def _advance(self, now: float, amount: float = 0.0) -> None:
        """Add the refill, up to the capacity or the larger amount that a request waited for."""
        passed_s, full, self._at_s = now - self._at_s, self.room, now
        if (most := max(amount, self._saving)) > full:
            full = max(full, min(most, self._full))
        level = self.level + passed_s * (self.rate - self.external_rate)
        self.level = min(full, level)
        if self._fair:
            credit, most = self._credit + passed_s * (self.rate * self._fair - self.external_rate), self._most_credit
            self._credit = min(most, credit)

    def _set_limit(self, limit: float) -> None:
        self.limit, self.rate = limit, limit / 60 * (1.0 if self.source == "inferred" else self.share)
        self.margin = max(self.margin, self.rate * MARGIN_S)
        self.external_rate = min(self.external_rate, self.rate * self._fair)

    def _set_external(self, external_rate: float, now: float) -> None:
        self._advance(now)
        self.external_rate = min(max(0.0, external_rate), self.rate * self._fair)


KEEP: Final = 0.97
"""The factor by which each answer lowers the weight of the earlier ones."""


class Ratio:
    """A quotient of two sums in which older answers count less, such as tokens used by tokens expected."""

    __slots__ = ("expected", "used")

    def __init__(self, expected: float, value: float = 1.0) -> None:
        self.expected, self.used = expected, expected * value

    @property
    def value(self) -> float:
        return self.used / self.expected

    @property
    def sums(self) -> tuple[float, float]:
        return self.expected, self.used

    def recall(self, expected: float, used: float) -> None:
        self.expected, self.used = expected, used

    def add(self, expected: float, used: float) -> None:
        self.expected = self.expected * KEEP + expected
        self.used = self.used * KEEP + used


LEAST_LEFT: Final = 0.15
"""Required share of the capacity, or of a second's refill if that is less: an empty bucket admits none."""
AIM: Final = 0.5
"""The share of it to aim at: as far from full as from empty."""


class Output:
    """Decides when one more answer may be under way.

    Running answers may overdraw. So as much may be under way as flows in meanwhile (Little's law); then the bucket
    stays half full.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.under_way, self.answers = 0.0, 0
        self._ahead = Ratio(0.0, 0.0)
        self._at_s = self._held = self._used = 0.0
        self._spilt, self._full = 0.0, False

    @property
    def ahead_s(self) -> float:
        # Complete answers tell that best, but the first of them are the shortest, so running ones count too.
        known_s = self._ahead.value if self._ahead.expected else 0.0
        return max(known_s, self._held / max(1.0, self._used + self.under_way))

    @property
    def learned(self) -> tuple[float, float]:
        return self._ahead.used, self._ahead.expected

    def recall(self, ahead: tuple[float, float], answers: int) -> None:
        self._ahead.recall(ahead[1], ahead[0])
        self.answers = answers

    def wait_s(self, now: float) -> float:
        """Return the seconds until there is room for one more answer; 0 or less if there is."""
        bucket = self.bucket
        if not bucket.rate:
            return 0.0
        self._advance(now)
        level, second = bucket.level_at(now), min(bucket.room, bucket.rate)
        need = AIM * second + self.under_way - bucket.rate * self.ahead_s - self._spilt
        self._full = need > level >= bucket.room
        return (max(LEAST_LEFT * second, need) - level) / bucket.rate

    def sent(self, expected: float, now: float) -> None:
        self._advance(now)
        self.under_way += expected

    def ended(self, expected: float, used: float | None, sent_s: float, now: float) -> None:
        self._advance(now)
        self.under_way -= expected
        if used is not None:
            self.bucket.take(used, now)
            self.answers += 1
            self._used += used
            self._ahead.add(used, expected * (now - sent_s))

    def _advance(self, now: float) -> None:
        """Count tokens under way, and inflow into a full bucket while requests were held."""
        # In the second case too little was under way, or some of it hangs: more may be sent. When the bucket is
        # no longer full, this is forgotten in about the time a token is under way.
        past_s, self._at_s = now - self._at_s, now
        self._held += past_s * self.under_way
        if self._full:
            self._spilt += past_s * self.bucket.rate
        elif self._spilt:
            self._spilt *= max(0.0, 1 - past_s / max(self.ahead_s, 1.0))
