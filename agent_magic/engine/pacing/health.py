"""The recent use of rate limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.engine.pacing.bucket import Bucket
    from agent_magic.engine.pacing.limits import Dimension

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
