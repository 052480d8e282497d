"""One bucket of the server, as far as a client can know it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_magic.schedule.limits import Reading

MARGIN_S: Final = 0.02
"""Requests overtake each other on their way, so that much of the refill is left in the bucket at first."""
MOST_MARGIN: Final = 0.25
"""The most that is left in it after refusals, as a share of the capacity."""
REGAIN: Final = 0.25
"""How much of a surprise to the better is believed at once. A response that was computed before our latest requests
arrived shows more than is there."""
FOREIGN_PER_S: Final = 0.2
"""How fast unexplained use becomes the belief that somebody else takes so much all the time."""
GLIDE_S: Final = 1.0
"""What is saved up is spent ever more slowly, so that a level that is believed a little too high hurts little."""
FAIR: Final = 0.5
"""The share of a limit that is left to others who use the same key, and the share that is not left to them."""
SLACK: Final = 1.05
"""The capacity is a little more than the most that was ever seen."""
DATE_S: Final = 2.0
"""Two dates in whole seconds, one rounded up and one down, are off by less than this together."""


class Bucket:
    """Mirrors a token bucket of the server: continuous refill, known limit, unknown capacity.

    The level is an estimate: every request takes its share when it is let go, and every response says what remains.
    A response does not say when it was computed: it may have been any time between sending and hearing. Only what
    no such time explains moves the estimate.

    Attributes:
        limit: Per minute; 0 while unknown.
        rate: Per second; 0 while unknown.
        level: What may pass at `at_s`. Negative while something is owed.
        low: The most that was ever seen in it: what certainly fits.
        high: What certainly does not fit.
        foreign: What others take, per second.
        shift: The sum of all corrections so far, so that older expectations can be corrected too.
        spent: The sum of all that was taken so far.
        grain: How far a rounded `remaining` may be off.
    """

    __slots__ = (
        "_credit",
        "_doubt",
        "_extra",
        "_fair",
        "_flow",
        "_given",
        "_regain",
        "at_s",
        "foreign",
        "grain",
        "high",
        "level",
        "limit",
        "low",
        "margin",
        "rate",
        "seen",
        "shift",
        "spent",
        "spread",
    )

    def __init__(self, grain: float, given: float | None = None, burst_s: float = 1.0, *, fair: float = FAIR, regain: float = REGAIN) -> None:
        self._fair, self._regain = fair, regain
        self.grain, self._given = grain, given
        self.limit = self.rate = self._flow = self.level = self.at_s = 0.0
        self.low = self.high = self.margin = 0.0
        self.spread = self._doubt = 0.0
        self._extra: float | None = None
        self.foreign = self.shift = self.spent = self._credit = 0.0
        self.seen = False
        if given is not None:
            self._set_limit(given)
            self.low = self.high = self.level = self._credit = max(1.0, self.rate * burst_s)

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
        doubt = math.sqrt(self._doubt) if self._doubt > 0 else 0.0
        need = amount * (1 + self.spread) + self.margin + doubt
        if need > self.low:  # the server's bucket is full before ours: waiting on is time lost
            need = min(amount * (1 + self.spread), self._size()) + self.rate * MARGIN_S + doubt
        elif level > self.low:
            return 0.0
        return (need - level) / self._flow

    def take(self, amount: float, now: float) -> float:
        """Take an amount out. Return the level without corrections, for `read` to compare with."""
        self.spent += amount
        level = self.level + (now - self.at_s) * self._flow
        full = self.low if amount <= self.low else self._size()
        self._credit = min(self._credit + (now - self.at_s) * (self.rate * self._fair - self.foreign), self._most_credit())
        self.level = (min(full, level)) - amount
        self.at_s = now
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

    def doubt_of(self, amount: float) -> float:
        """Add an amount that is only believed. Return its doubt, for `settle`."""
        doubt = (amount * self.spread) ** 2
        self._doubt += doubt
        return doubt

    def settle(self, doubt: float) -> None:
        """Take in that the amount of a request is known, or that there was none."""
        self._doubt -= doubt

    def missed(self, used: float, believed: float) -> None:
        """Learn how far beliefs are off."""
        off = abs(used - believed) / max(1.0, believed)
        self.spread += (min(off, 1.0) - self.spread) * 0.05

    def correct(self, amount: float) -> None:
        """Take in that a request had taken so much less than was thought."""
        self.level += amount
        self.shift += amount

    def read(self, reading: Reading, mark: float, spent: float, *, now: float, sent_s: float) -> None:
        """Take in what a response says.

        Args:
            reading: What it says.
            mark: What `take` returned for this request.
            spent: `spent` just after that.
            now: The time.
            sent_s: When the request was let go.
        """
        self.learn(reading, now, sent_s)
        if reading.remaining is None or not self.rate:
            return
        if not self.seen:
            self.seen = True
            self.level, self.at_s = reading.remaining - (self.spent - spent), now
            self._credit = self._most_credit()
            return
        level, before = self.level_at(now), mark + self.shift
        least, most = (level, before) if level < before else (before, level)
        gap = reading.remaining + self.grain - least
        if gap < 0:
            self._lose(-gap, now, was_full=least >= self.low - self.grain)
        else:
            gap = reading.remaining - self.grain - most
            if gap > 0 and not self._own():
                self.correct(gap * self._regain)
                self._set_foreign(self.foreign - gap * self._regain * FOREIGN_PER_S, now)

    def refuse(self, reading: Reading | None, now: float, *, need: float | None, wait_s: float, first: bool) -> None:
        """Take in a refusal. Its headers are young: it was answered at once.

        Args:
            reading: What it says of this limit.
            now: The time.
            need: What the request wanted of it, if it is this limit that had no room; else `None`.
            wait_s: The server's `retry-after`, in whole seconds rounded up.
            first: Whether it is the first one of its episode.
        """
        if reading is not None:
            self.learn(reading, now, now)
        if not self.rate:
            return
        left = self.low
        if reading is not None and reading.remaining is not None:
            left = reading.remaining + (self.grain if need is None else 0.0)
            self.seen = True
        if need is not None:
            left = min(left, need - max(0.0, wait_s - 1.0) * self.rate)
            if first:
                self._doubt_size(need)
        self._advance(now)
        gap = self.level - left
        if gap > 0:
            self.correct(-gap)
            self._set_foreign(self.foreign + min(gap, self._most_credit()) * FOREIGN_PER_S, now)

    def learn(self, reading: Reading, now: float, sent_s: float) -> None:
        """Take in the limit, and what can be concluded about the capacity."""
        if self._given is None or reading.limit < self._given:
            if reading.limit != self.limit:
                self._advance(now)
                self._set_limit(reading.limit)
                self.high = self.high or reading.limit
        if reading.remaining is None or self._own():
            return
        least, most = reading.remaining - self.grain, reading.limit
        if reading.full_in_s is not None:
            if reading.remaining > self.grain:  # none left may be a debt, which is not shown
                least += self.rate * max(0.0, reading.full_in_s - DATE_S)
            most = reading.remaining + self.grain + self.rate * (reading.full_in_s + now - sent_s)
        self.low = min(max(1.0, self.low, least), reading.limit)
        self.high = max(self.low, min(self.high, most))

    def _most_credit(self) -> float:
        return max(self.low, self.rate, 2 * self.grain)

    def _own(self) -> bool:
        """Tell whether the user's own limit is the tighter one: the server's bucket then says little about it."""
        return self._given is not None and self.limit == self._given

    def _doubt_size(self, need: float) -> None:
        """Leave more in the bucket after a refusal, and correct what is believed of its capacity."""
        self.margin = min(self.margin * 1.5 + 0.1 * min(need, self.low), self.low * MOST_MARGIN)
        if need > self.low:
            self._extra = (self._size() + min(need, self.high)) / 2 - self.low
        else:
            self.high = max(self.low, need, self.high / 2)

    def _size(self) -> float:
        """What a request has to wait for that may be larger than the bucket."""
        return min(self.high, self.low * SLACK + 2 * self.grain if self._extra is None else self.low + self._extra)

    def _lose(self, gap: float, now: float, *, was_full: bool) -> None:
        """Believe in less. What others take is believed up to a fair share, else two of a kind starve each other."""
        if not was_full:
            self._advance(now)
            if self._fair:
                gap = min(gap, max(0.0, self._credit))
                self._credit -= gap
            self._set_foreign(self.foreign + gap * FOREIGN_PER_S, now)
        self.correct(-gap)

    def _advance(self, now: float) -> None:
        self._credit = min(self._credit + (now - self.at_s) * (self.rate * self._fair - self.foreign), self._most_credit())
        self.level = self.level_at(now)
        self.at_s = now

    def _set_limit(self, limit: float) -> None:
        self.limit, self.rate = limit, limit / 60
        self.margin = max(self.margin, self.rate * MARGIN_S)
        self._flow = self.rate - self.foreign

    def _set_foreign(self, foreign: float, now: float) -> None:
        self._advance(now)
        self.foreign = min(max(0.0, foreign), self.rate * self._fair)
        self._flow = self.rate - self.foreign
