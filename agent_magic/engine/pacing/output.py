"""The number of answers under way if output tokens are limited, and how far their expected length is off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_magic.engine.pacing.bucket import Bucket


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
