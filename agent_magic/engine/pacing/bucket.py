"""One bucket of the server, as far as a client can know it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_magic.engine.pacing.limits import Reading

MARGIN_S: Final = 0.02
"""Requests overtake each other on their way, so that much of the refill is left in the bucket at first."""
MOST_MARGIN: Final = 0.25
"""The most that is left in it after refusals, as a share of the capacity."""
GLIDE_S: Final = 1.0
"""What is saved up is spent ever more slowly, so that a level that is believed a little too high hurts little."""
REGAIN: Final = 0.25
"""How much of a surprise to the better is believed at once. A response that was computed before our latest requests
arrived shows more than is there."""
FOREIGN_PER_S: Final = 0.2
"""How fast unexplained use becomes the belief that somebody else takes so much all the time."""
FORGOTTEN_S: Final = 100.0
"""How long that belief lasts when nothing confirms it and nothing denies it."""
FAIR: Final = 0.5
"""The share of a limit that is left to others who use the same key, and the share that is not left to them."""
SLACK: Final = 1.05
"""The capacity is a little more than the most that was ever seen."""
DATE_S: Final = 2.0
"""Two dates in whole seconds, one rounded up and one down, are off by less than this together."""
FITTING: Final = 0.97
"""What is believed of the capacity above what was seen shrinks by this with every request that needed all of it."""
DOUBTED: Final = 2.0
"""How many times its standard deviation what is under way may be off: usage will tell, so a response need not."""
LATEST: Final = 0.05
"""The weight of the latest answer in how far beliefs are off."""


class Bucket:
    """Mirrors a token bucket of the server: continuous refill, known limit, unknown capacity.

    The level is an estimate: every request takes its share when it is let go, and every response says what remains.
    A response does not say when it was computed: it may have been any time between sending and hearing. Only what
    no such time explains moves the estimate. What is missing without explanation was taken by others with the same
    key: that much less is expected to flow in, down to a fair share.

    Args:
        grain: See there.
        given: The user's own limit per minute.
        burst_s: Seconds' worth of it that may pass at once.
        fair: The share of the limit that others may have.
        regain: How much of a surprise to the better is believed at once.

    Attributes:
        grain: How far a rounded `remaining` may be off.
        limit: Per minute; 0 while unknown.
        rate: Per second; 0 while unknown.
        level: What may pass at `at_s`. Negative while something is owed.
        low: The most that was ever seen in it: what certainly fits.
        high: What certainly does not fit.
        margin: What is left in it.
        foreign: What others take, per second.
        shift: The sum of all corrections so far, so that older expectations can be corrected too.
        spent: The sum of all that was taken so far.
        fulls: How often it was full when something was taken: what was saved before that has run over.
        spread: How far beliefs are off on the average, as a share.
    """

    __slots__ = (
        "_announced",
        "_credit",
        "_doubt",
        "_fair",
        "_flow",
        "_given",
        "_read_s",
        "_regain",
        "_seen",
        "_size",
        "at_s",
        "foreign",
        "fulls",
        "grain",
        "high",
        "level",
        "limit",
        "low",
        "margin",
        "rate",
        "shift",
        "spent",
        "spread",
    )

    def __init__(
        self,
        grain: float,
        given: float | None = None,
        burst_s: float = 1.0,
        *,
        fair: float = FAIR,
        regain: float = REGAIN,
    ) -> None:
        self.grain, self._given, self._fair, self._regain = grain, given, fair, regain
        self.limit = self.rate = self._flow = 0.0
        self.level = self.at_s = self.margin = 0.0
        self.low = self.high = 0.0
        self._size: float | None = None
        self.foreign = self._credit = self._read_s = 0.0
        self.shift = self.spent = self.spread = self._doubt = 0.0
        self.fulls, self._seen = 0, False
        self._announced = 0.0
        if given is not None:
            self._set_limit(given)
            self.low = self.high = self.level = max(1.0, self.rate * burst_s)
            self._credit = self._most_credit()

    def level_at(self, now: float) -> float:
        """What may pass now."""
        return min(self.level + (now - self.at_s) * self._flow, self.low)

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until an amount may pass; 0 or less if it may now.

        An amount larger than the capacity passes when the bucket is full, and the rest is owed.
        """
        if not self.rate:
            return 0.0
        level = self.level + (now - self.at_s) * self._flow
        doubt = math.sqrt(self._doubt) if self._doubt else 0.0
        need = amount * (1 + self.spread) + self.margin + doubt
        if need > self.low:  # the server's bucket is full before ours: waiting on is time lost
            need = min(amount * (1 + self.spread), self._capacity()) + self.rate * MARGIN_S + doubt
        elif level > self.low:
            return 0.0
        return (need - level) / self._flow

    def take(self, amount: float, now: float) -> float:
        """Take an amount out. Return the level without corrections, for `read` to compare with."""
        self.spent += amount
        if not self.rate:
            return 0.0
        full = self.low
        if amount > full:  # it waited for more than was ever seen, so that much is there; output is counted afterwards
            full = max(full, min(amount, self._capacity()) if self._fair else self._capacity())
        self._advance(now, full)
        self.level -= amount
        return self.level - self.shift

    def step_s(self, amount: float, extra: float) -> float:
        """Return how long to let nothing follow, so that what is saved up is spent over a second or more.

        Args:
            amount: What was just taken.
            extra: How much faster than the refill it may be spent; negative to stay behind the refill.
        """
        if not self.rate:
            return 0.0
        extra *= self.rate
        saved = (self.level - self.margin) / GLIDE_S
        if saved < extra:
            extra = saved if saved > 0 or extra < 0 else 0.0
        return amount / (self.rate + extra)

    def doubt(self, amount: float) -> float:
        """Add an amount that is only believed. Return its doubt, for `settle`."""
        doubt = (amount * self.spread) ** 2
        self._doubt += doubt
        return doubt

    def settle(self, doubt: float) -> None:
        """Record that the amount of a request is known, or that there was none."""
        self._doubt = max(0.0, self._doubt - doubt)

    def used(self, used: float, believed: float, fulls: int) -> None:
        """Record what a request has really taken.

        Args:
            used: That.
            believed: What `take` was told.
            fulls: `fulls` just after that.
        """
        if used > believed or fulls == self.fulls:
            self.correct(believed - used)
        off = abs(used - believed) / max(1.0, believed)
        self.spread += (min(off, 1.0) - self.spread) * LATEST

    def correct(self, amount: float) -> None:
        """Record that so much less had been taken than was thought."""
        self.level += amount
        self.shift += amount

    def read(
        self, reading: Reading, mark: float, spent: float, *, now: float, sent_s: float, believed: float | None = None
    ) -> None:
        """Record what a response says.

        Args:
            reading: What it says.
            mark: What `take` returned for this request.
            spent: `spent` just after that.
            now: The time.
            sent_s: When the request was let go.
            believed: The level to compare it with, if it is known when the response was computed.
        """
        self._learn(reading, now, sent_s)
        if reading.remaining is None:
            return
        if not self._seen and not self._own():
            self._seen = True
            self.level, self.at_s = reading.remaining - (self.spent - spent), now
            self._credit = self._most_credit()
            return
        level, before = self.level + (now - self.at_s) * self._flow, mark + self.shift
        level = min(level, self.low)
        least, most = (level, before) if level < before else (before, level)
        if believed is not None:
            least = most = believed
        off = self.grain + DOUBTED * math.sqrt(self._doubt)
        missing, surplus = least - reading.remaining - off, reading.remaining - off - most
        if missing > 0:
            self._lose(missing, now, was_full=least >= self.low - self.grain)
        elif surplus > 0 and reading.remaining > 0 and not self._own():  # a debt is shown as 0
            self.correct(surplus * self._regain)
            self._set_foreign(self.foreign - surplus * self._regain * FOREIGN_PER_S, now)
        elif self.foreign:
            self._set_foreign(self.foreign * (1 - min(1.0, (now - self._read_s) / FORGOTTEN_S)), now)
        self._read_s = now

    def recall(self, level: float | None, margin: float, foreign: float, now: float) -> None:
        """Go on from what was learned earlier, if the limit is known; a level of `None` is left as it is."""
        if self.rate:
            self._seen, self.margin = True, margin
            self._set_foreign(foreign, now)
            if level is not None:
                self.level = min(level, self.low)

    def refuse(self, reading: Reading | None, now: float, *, need: float | None, wait_s: float, first: bool) -> None:
        """Record a refusal. Its headers are young: it was answered at once.

        Args:
            reading: What it says of this limit.
            now: The time.
            need: What the request wanted of it, if it is this limit that had no room; else `None`.
            wait_s: The server's `retry-after`, in whole seconds rounded up.
            first: Whether it is the first one of its episode.
        """
        if reading is not None:
            self._learn(reading, now, now)
        if not self.rate:
            return
        said = None if reading is None else reading.remaining
        left = self.low if said is None else said
        if need is None:
            left += self.grain
        else:
            owed_s = max(0.0, wait_s - 1.0)
            if first:
                self._resize(need, left, owed_s * self.rate)
            left = min(left, need - owed_s * self.rate)
        self._advance(now, self.low)
        missing = self.level - left
        if missing > 0:
            self.correct(-missing)
            if need is not None and need <= self.low and first and self._seen:
                self._set_foreign(self.foreign + min(missing, self._most_credit()) * FOREIGN_PER_S, now)
        self._seen = self._seen or said is not None

    def announce(self, reading: Reading, own: float) -> None:
        """Take in how much there was when a request came, by what its response says remained behind it.

        Args:
            reading: What the response says.
            own: What the request itself took.
        """
        if reading.remaining is not None and reading.remaining + own > self._announced:
            self._announced = reading.remaining + own
        if own > self.low and self.rate:  # what was let in may have waited for too much: a refusal will tell
            self._size = self.low + (self._capacity() - self.low) * FITTING

    @property
    def holds(self) -> float:
        """What it likely holds when full: a second's worth where that agrees with all that was announced.

        Source: the vendor's page on rate limits: a limit per minute may be enforced as one per second.
        """
        most = self._announced
        if not most or self._own():
            return self.low
        return self.rate if abs(self.rate - most) <= self.grain else max(self.low, most)

    def _learn(self, reading: Reading, now: float, sent_s: float) -> None:
        """Take in the limit, and what can be concluded about the capacity."""
        limit = reading.limit if self._given is None else min(reading.limit, self._given)
        if limit != self.limit:
            self._advance(now, self.low)
            self._set_limit(limit)
            self.high = self.high or limit
        if reading.remaining is None or self._own():
            return
        least, most = reading.remaining - self.grain, limit
        if reading.full_in_s is not None:
            if reading.remaining > self.grain:  # none left may be a debt, which is not shown
                least += self.rate * max(0.0, reading.full_in_s - DATE_S)
            most = reading.remaining + self.grain + self.rate * (reading.full_in_s + now - sent_s)
        self.low = min(max(1.0, self.low, least), limit)
        self.high = max(self.low, min(self.high, most))

    def _own(self) -> bool:
        """Tell whether the user's own limit is the tighter one: the server's bucket then says little about it."""
        return self._given is not None and self.limit == self._given

    def _capacity(self) -> float:
        """What a request has to wait for that may be larger than the bucket."""
        likely = self.low * SLACK + 2 * self.grain if self._size is None else max(self.low, self._size)
        return min(self.high, likely)

    def _resize(self, need: float, left: float, owed: float) -> None:
        """Leave more in the bucket after a refusal, and correct what is believed of its capacity."""
        self.margin = min(self.margin * 1.5 + 0.1 * min(need, self.low), self.low * MOST_MARGIN)
        if need <= self.low:
            return
        size = self._capacity()
        if left >= size - 2 * self.grain:  # it was as full as we thought it could be, and that was not enough
            self._size = left + max(self.low * (SLACK - 1), owed)
            self.high = max(self.high, self._size)
        else:
            self._size = max(min(need, size), size / 2)

    def _most_credit(self) -> float:
        return max(self.low, self.rate, 2 * self.grain)

    def _lose(self, missing: float, now: float, *, was_full: bool) -> None:
        """Believe in less. What others take is believed up to a fair share, else two of a kind starve each other."""
        if not was_full:
            self._advance(now, self.low)
            if self._fair:
                missing = min(missing, max(0.0, self._credit))
                self._credit -= missing
            self._set_foreign(self.foreign + missing * FOREIGN_PER_S, now)
        self.correct(-missing)

    def _advance(self, now: float, full: float) -> None:
        passed_s, self.at_s = now - self.at_s, now
        level = self.level + passed_s * self._flow
        if level >= full:
            level = full
            self.fulls += 1
        self.level = level
        if self._fair:
            credit = self._credit + passed_s * (self.rate * self._fair - self.foreign)
            self._credit = credit if credit < self.low else min(credit, self._most_credit())

    def _set_limit(self, limit: float) -> None:
        self.limit, self.rate = limit, limit / 60
        self.margin = max(self.margin, self.rate * MARGIN_S)
        self.foreign = min(self.foreign, self.rate * self._fair)
        self._flow = self.rate - self.foreign

    def _set_foreign(self, foreign: float, now: float) -> None:
        self._advance(now, self.low)
        self.foreign = min(max(0.0, foreign), self.rate * self._fair)
        self._flow = self.rate - self.foreign
