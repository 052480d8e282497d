"""Health of a run with its provider, by thresholds of common practice for APIs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

from agent_magic.declare.race import BEATEN
from agent_magic.declare.units import seconds
from agent_magic.errors import InvalidAnswer
from agent_magic.record.answer import ESCALATED, PAID_BEFORE, SHARED
from agent_magic.record.events import AttemptEnded, AttemptStarted, FirstToken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.engine.pacing.class_pacer import LimitUse
    from agent_magic.record.events import Event
    from agent_magic.record.results import RunRecord

Level = Literal["ok", "warn", "bad"]
LEVELS: Final[tuple[Level, ...]] = ("ok", "warn", "bad")
RECENT: Final = 10
"""Answers that count as recent; the trend compares their median with the median of as many before."""
LEAST: Final = 4
"""Answers needed on either side of a trend."""
LATELY_S: Final = 60.0
UNJUDGED: Final = frozenset({ESCALATED, BEATEN, InvalidAnswer.__name__, "cancelled"})
"""Ends of attempts that say nothing about the provider."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of `warn` and `bad`, over the last minute."""

    warn_share: float = 0.6
    bad_share: float = 0.7
    warn_latency_s: float = 2.0  # median seconds to the first token
    bad_refusals: int = 5  # a single 429 is a warning
    warn_failed_share: float = 0.2
    bad_failed_share: float = 0.5  # with at least two failures


@dataclass(frozen=True, slots=True, repr=False)
class Health:
    """The health of a run."""

    level: Level
    reason: str
    limits: tuple[LimitUse, ...] = field(default=(), kw_only=True)
    refusals: int = field(default=0, kw_only=True)
    retries: int = field(default=0, kw_only=True)
    latency_s: float | None = field(default=None, kw_only=True)  # median seconds to the first token of recent answers
    latency_trend_s: float | None = field(default=None, kw_only=True)  # change of that against earlier answers
    # current stops in words: open breakers, a provider's demand to wait
    breakers: tuple[str, ...] = field(default=(), kw_only=True)

    def __repr__(self) -> str:
        return f"Health({self})"

    def __str__(self) -> str:
        used = [one for one in self.limits if one.limit_per_min is not None]
        parts = [self.level + (f": {self.reason}" if self.reason else "")]
        names = _names_of(used)
        for one in used:
            inferred = f" ({one.source})" if one.source.startswith("inferred") else ""
            parts.append(f"{names[one]} {_percent(one.used_share)} of {one.limit_per_min:,.0f}/min{inferred}")
        if not used:
            parts.append("limits unknown")
        if self.latency_s is not None:
            trend = "" if self.latency_trend_s is None else f" ({self.latency_trend_s:+.1f} s)"
            parts.append(f"first token {seconds(self.latency_s)}{trend}")
        said = [one for one in self.breakers if one not in self.reason]
        parts += [f"429s {self.refusals}", f"retries {self.retries}", *said]
        return " · ".join(parts)


class Watch:
    """Health metrics of a run's events, read on demand."""

    def __init__(self) -> None:
        self._seen = 0
        self._refused_s: deque[float] = deque()
        self._ended: deque[tuple[float, bool]] = deque()  # when, and whether it failed
        self._sent_s: dict[int, float] = {}
        self._first_s: dict[int, float] = {}
        self._failed: set[int] = set()
        self._latencies: deque[float] = deque(maxlen=2 * RECENT)
        self.refusals = 0
        self.retries = 0

    def read(self, events: Sequence[Event]) -> None:
        for event in events[self._seen :]:
            match event:
                case AttemptStarted():
                    self._sent_s[event.agent] = event.at_s
                    self.retries += event.agent in self._failed
                case FirstToken():
                    self._first_s[event.agent] = event.at_s - self._sent_s[event.agent]
                case AttemptEnded():
                    self._end(event)
                case _:
                    pass
        self._seen = len(events)

    def _end(self, event: AttemptEnded) -> None:
        (self._failed.discard if event.kind in {None, ESCALATED} else self._failed.add)(event.agent)
        first_s = self._first_s.pop(event.agent, None)
        if event.kind == "RateLimited":
            self.refusals += 1
            self._refused_s.append(event.at_s)
        elif event.kind not in UNJUDGED and event.price not in {PAID_BEFORE, SHARED}:
            self._ended.append((event.at_s, event.kind is not None))
        if event.answer is not None and first_s is not None and event.price != PAID_BEFORE:
            self._latencies.append(first_s)

    def refused_lately(self, now: float) -> int:
        while self._refused_s and self._refused_s[0] < now - LATELY_S:
            self._refused_s.popleft()
        return len(self._refused_s)

    def failed_lately(self, now: float) -> tuple[int, int]:
        while self._ended and self._ended[0][0] < now - LATELY_S:
            self._ended.popleft()
        return sum(failed for _, failed in self._ended), len(self._ended)

    def latency_s(self) -> tuple[float | None, float | None]:
        known = list(self._latencies)
        if not known:
            return None, None
        now, before = known[-RECENT:], known[:-RECENT]
        if len(before) < LEAST:
            half = len(known) // 2
            before, later = known[:half], known[half:]
        else:
            later = now
        trend = median(later) - median(before) if min(len(before), len(later)) >= LEAST else None
        return median(now), trend


def health_of(
    watch: Watch, now: float, *, limits: Sequence[LimitUse], breakers: tuple[str, ...], thresholds: Thresholds
) -> Health:
    latency_s, trend_s = watch.latency_s()
    signs: list[tuple[int, str]] = [(2, words) for words in breakers]
    names = _names_of(limits)
    for one in limits:
        share = one.used_share or 0.0
        if share > thresholds.warn_share:
            signs.append((1 + (share > thresholds.bad_share), f"{names[one]} at {_percent(share)} of the limit"))
    refused = watch.refused_lately(now)
    if refused:
        signs.append((1 + (refused >= thresholds.bad_refusals), f"{refused} refused (429) within a minute"))
    failed, ended = watch.failed_lately(now)
    if ended and failed / ended > thresholds.warn_failed_share:
        is_bad = failed > 1 and failed / ended >= thresholds.bad_failed_share
        signs.append((1 + is_bad, f"{failed} of {ended} requests failed within a minute"))
    if latency_s is not None and latency_s > thresholds.warn_latency_s:
        signs.append((1, f"first tokens take {seconds(latency_s)}"))
    worst = max((grade for grade, _ in signs), default=0)
    return Health(
        LEVELS[worst],
        "; ".join(words for grade, words in signs if grade == worst),
        limits=tuple(limits),
        refusals=watch.refusals,
        retries=watch.retries,
        latency_s=latency_s,
        latency_trend_s=trend_s,
        breakers=breakers,
    )


def record_health(record: RunRecord) -> Health:
    watch = Watch()
    watch.read(record.events)
    now = record.events[-1].at_s if record.events else 0.0
    return health_of(watch, now, limits=(), breakers=(), thresholds=Thresholds())


def _names_of(limits: Sequence[LimitUse]) -> dict[LimitUse, str]:
    several = len({one.model_class for one in limits}) > 1
    return {one: f"{one.model_class} {one.kind}" if several else one.kind for one in limits}


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.0f} %"
