"""The output bucket: what is under way is still to be taken from it, and nobody knows when."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agent_magic.schedule.pacer_bucket import Bucket

if TYPE_CHECKING:
    from agent_magic.schedule.limits import Reading

LEAST_LEFT: Final = 0.1
"""The share of the capacity that is there when a request is let go: an empty bucket takes none."""
MOST_LEFT: Final = 0.9
"""The largest share of it that a request waits for, however much it will use: a full bucket holds nobody."""
AIM: Final = 0.5
"""The share of the capacity that is aimed at: as far from full, which wastes refill, as from empty."""
PRODUCED: Final = 0.8
"""The mean age of a token when it is counted, as a share of the mean latency: between as it is produced and at the end.
"""
AHEAD: Final = 0.53
"""What is under way and not counted yet in a steady state, as a share of rate times latency, if `PRODUCED` is right."""
GAIN_PER_S: Final = 0.15
WRONG: Final = 3.0
"""The most that `AHEAD` is believed to be off."""
FIRST_LATENCY_S: Final = 10.0
"""How long answers are taken to last before the first one is complete: one that hangs holds the others no longer."""
FORGET: Final = 0.01
"""The weight of one more answer in the mean latency, once there are many."""


class Output:
    """Mirrors the bucket of output tokens.

    Output is counted as it is produced, `max_tokens` is not reserved, and a request is let in while anything is left.
    So a request is let go if the bucket, after what is under way has been taken and what flows in meanwhile has come,
    is about half full. What is under way is assumed to flow out evenly; answers that end, and the `remaining` of
    responses, correct that. How far ahead the bucket is filled is adjusted until it is half full on the average.

    Source: the vendor's page on rate limits.

    Attributes:
        bucket: The mirror.
        under_way: Tokens that were expected and are not counted yet.
    """

    __slots__ = ("_aimed_s", "_answers", "_drained_s", "_lead", "_short_s", "bucket", "latency_s", "under_way")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.under_way = self.latency_s = 0.0
        self._answers = 0
        self._lead, self._aimed_s, self._short_s = 1.0, 0.0, -math.inf
        self._drained_s = 0.0

    def wait_s(self, expected: float, now: float) -> float:
        """Return how long there is no room for one more answer; 0 or less if there is."""
        bucket = self.bucket
        self._drain(now)
        ahead = bucket.rate * AHEAD * self.latency_s * self._lead
        lack = min(self._aim() + expected / 2, MOST_LEFT * bucket.low) + self.under_way - ahead
        floor = min(max(bucket.low * LEAST_LEFT, bucket.margin), self._aim())
        wait = ((max(floor, lack)) - bucket.level_at(now)) / bucket.rate
        if wait > 0:
            self._short_s = now
        return wait

    def begin(self, expected: float, now: float) -> float:
        """Take in that a request was let go. Return the level without corrections, for `Bucket.read`."""
        self._drain(now)
        self.under_way += expected
        return self.bucket.take(0.0, now)

    def end(self, expected: float, used: float | None, begun_s: float, now: float) -> None:
        """Take in that an answer is complete, or with `None` that what it used is not known."""
        self._drain(now)
        left = expected * self._kept(now - begun_s)
        self.under_way -= left
        if used is None:
            return
        if self.bucket.rate:
            self.bucket.take(used - (expected - left), now)
        self._answers += 1
        self.latency_s += (now - begun_s - self.latency_s) * max(FORGET, 1 / self._answers)

    def undo(self, expected: float, begun_s: float, now: float) -> None:
        """Take in that a request was turned away: it uses nothing."""
        self.end(expected, None, begun_s, now)
        if self.bucket.rate:
            self.bucket.take(expected * (self._kept(now - begun_s) - 1.0), now)

    @property
    def learned(self) -> tuple[float, int, float]:
        """The mean latency in seconds, of how many answers, and how far ahead the bucket is filled."""
        return self.latency_s, self._answers, self._lead

    def recall(self, latency_s: float, answers: int, lead: float) -> None:
        """Go on from what was learned earlier."""
        self.latency_s, self._answers, self._lead = latency_s, answers, lead

    def aim(self, reading: Reading, now: float) -> None:
        """Adjust how far ahead the bucket is filled, while it is this limit that holds requests."""
        past_s, self._aimed_s = now - self._aimed_s, now
        if reading.remaining is None or not self.latency_s or now - self._short_s > self.latency_s:
            return
        bucket, aim = self.bucket, self._aim()
        if bucket.low > 3 * aim and reading.remaining > 2 * aim:  # what was saved up is being spent: that is no error
            return
        aim_s = aim / bucket.rate
        error_s = min(reading.remaining / bucket.rate - aim_s, aim_s)
        self._lead += GAIN_PER_S * error_s * min(past_s, 1.0) / max(self.latency_s, self.latency_s**2)
        self._lead = min(max(self._lead, 1 / WRONG), WRONG)

    def _aim(self) -> float:
        return min(AIM * self.bucket.low, self.bucket.rate)

    def _kept(self, age_s: float) -> float:
        """The share of an answer that is not counted yet at an age."""
        return math.exp(-age_s / (PRODUCED * (self.latency_s or FIRST_LATENCY_S)))

    def _drain(self, now: float) -> None:
        past_s, self._drained_s = now - self._drained_s, now
        if past_s > 0 and self.under_way > 0:
            gone = self.under_way * -math.expm1(-past_s / (PRODUCED * (self.latency_s or FIRST_LATENCY_S)))
            self.under_way -= gone
            self.bucket.take(gone, now)
