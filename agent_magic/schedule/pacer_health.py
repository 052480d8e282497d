"""How much of the rate limits was used of late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

BIN_S: Final = 5.0
BINS: Final = 12
"""A minute, in steps of five seconds."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """One limit.

    Attributes:
        limit: Per minute; `None` while unknown.
        used: Per minute, by us, over the last minute or since the first request.
        others: Per minute, by others with the same key, as far as it shows.
    """

    limit: float | None
    used: float
    others: float

    @property
    def percent(self) -> float | None:
        """How much of the limit we use; `None` while it is unknown."""
        return 100 * self.used / self.limit if self.limit else None


@dataclass(frozen=True, slots=True)
class PoolHealth:
    """The state of one model class.

    Attributes:
        name: The class.
        requests: The limit of requests.
        input: The limit of uncached input tokens.
        output: The limit of output tokens.
        under_way: Requests under way.
        refusals: How many 429s there were.
        episodes: How many times they began. Refusals of one moment are one episode.
    """

    name: str
    requests: Gauge
    input: Gauge
    output: Gauge
    under_way: int = field(kw_only=True)
    refusals: int = field(kw_only=True)
    episodes: int = field(kw_only=True)


class Meter:
    """Sums over the last minute.

    Attributes:
        refusals: Requests that were turned away, ever.
    """

    __slots__ = ("_bins", "_first_s", "_place", "refusals")

    def __init__(self) -> None:
        self._bins = [[0.0, 0.0, 0.0] for _ in range(BINS)]
        self._place = -1
        self._first_s = 0.0
        self.refusals = 0

    def add(self, now: float, requests: float, taken: float, made: float) -> None:
        """Count requests, input tokens and output tokens."""
        place = int(now / BIN_S)
        if place != self._place:
            self._turn(place, now)
        bin_ = self._bins[place % BINS]
        bin_[0] += requests
        bin_[1] += taken
        bin_[2] += made

    def per_minute(self, now: float) -> tuple[float, float, float]:
        """Return requests, input tokens and output tokens per minute."""
        self.add(now, 0.0, 0.0, 0.0)
        passed_s = min(max(now - self._first_s, 1.0), (BINS - 1) * BIN_S + now % BIN_S)
        requests, taken, made = (max(0.0, sum(column)) * 60 / passed_s for column in zip(*self._bins, strict=True))
        return requests, taken, made

    def _turn(self, place: int, now: float) -> None:
        """Clear the bins that a minute has passed over."""
        if self._place < 0:
            self._first_s = now
        for old in range(max(self._place + 1, place - BINS + 1), place + 1):
            self._bins[old % BINS] = [0.0, 0.0, 0.0]
        self._place = place
