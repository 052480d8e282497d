"""Live view data that is not in the record: slots, budget, pause, health, remaining time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.units import count
from agent_magic.engine.health import Thresholds
from agent_magic.engine.pacing.limits import DIMENSIONS
from agent_magic.record.plaintext import single_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.engine.health import Health
    from agent_magic.engine.pacing.class_pacer import LimitUse

GOOD = "API healthy"
HELD = "nothing new is sent"
ASKED = "waits for your answer"
TREND_S = 0.1
"""A smaller change of the first-token latency has no arrow."""
_MOST_REASON = 90


class Around(NamedTuple):
    """State that is not in the record; `left_s` is the remaining time, low and high."""

    cap: int | None = None
    budget_usd: float | None = None
    paused: bool = False
    health: Health | None = None
    left_s: tuple[float, float] | None = None
    alerts: tuple[str, ...] = ()
    asked: int = 0


ALONE = Around()


def strip_of(
    health: Health | None, thresholds: Thresholds | None = None, *, paused: bool = False, asked: bool = False
) -> dict[str, Any] | None:
    """Return a meter per kind of limit, one of latency, a verdict with its reason."""
    # If new requests are held, or everything waits for a person, good health says nothing.
    if health is None:
        return None
    thresholds = thresholds or Thresholds()
    notes = [f"{health.refusals:,} × 429"] if health.refusals else []
    notes += [f"{health.retries:,} {'retry' if health.retries == 1 else 'retries'}"] if health.retries else []
    meters = [_meter(kind, [one for one in health.limits if one.kind == kind], thresholds) for kind in DIMENSIONS]
    reason = single_line(health.reason)[:_MOST_REASON]
    return {
        "level": "none" if (paused or asked) and not reason else health.level,
        "word": reason or (HELD if paused else ASKED if asked else GOOD),
        "notes": " · ".join(notes),
        "meters": [*meters, _latency(health, thresholds)],
    }


def _meter(kind: str, limits: Sequence[LimitUse], thresholds: Thresholds) -> list[str | int | None]:
    used = max((one.used_share for one in limits if one.used_share is not None), default=None)
    words = "; ".join(map(_limit_words, limits)) or "unknown"
    if used is None:
        return [kind, "–", None, "none", f"rate limit used, {kind}: {words}"]
    level = "bad" if used > thresholds.bad_share else "warn" if used > thresholds.warn_share else "ok"
    return [kind, f"{100 * used:.0f} %", round(100 * used), level, f"rate limit used, {kind}: {words}"]


def _latency(health: Health, thresholds: Thresholds) -> list[str | int | None]:
    kind, late, trend = "first token", health.latency_s, health.latency_trend_s
    if late is None:
        return [kind, "–", None, "none", f"{kind}: no response yet"]
    arrow = "" if trend is None or abs(trend) < TREND_S else " ↗" if trend > 0 else " ↘"
    words = f"{kind}: {late:.1f} s, the median of recent responses; slow from {thresholds.warn_latency_s:g} s"
    if trend is not None:
        words += f"; {trend:+.1f} s compared with earlier ones"
    level = "warn" if late > thresholds.warn_latency_s else "ok"
    return [kind, f"{late:.1f} s{arrow}", round(100 * late / thresholds.warn_latency_s), level, words]


def _limit_words(one: LimitUse) -> str:
    share = "unknown" if one.used_share is None else f"{100 * one.used_share:.0f} %"
    of = "" if one.limit_per_min is None else f" of {count(one.limit_per_min)} a minute"
    return single_line(f"{one.model_class} {share}{of}")
