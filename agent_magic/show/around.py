"""What surrounds a run on the screen and is not in its record: its cap, its budget, the health of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.show.markup import single_line
from agent_magic.show.units import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.schedule.pacer_health import PoolHealth

KINDS = ("requests", "input", "output")
NEAR, FULL = 0.8, 0.95
_MOST_REASON = 90


class LimitUse(NamedTuple):
    """How much of one rate limit is used.

    Attributes:
        kind: One of `KINDS`.
        model: The class of models that share it.
        limit: Per minute; `None` where unknown.
        used: Share, 1 is all of it; `None` where the limit is unknown.
    """

    kind: str
    model: str
    limit: float | None
    used: float | None


class Vitals(NamedTuple):
    """How the service is.

    Attributes:
        limits: What is used of each limit.
        refusals: How many requests were turned away with a 429.
        retries: How many requests repeated a failed one.
        troubles: What stands still because of the service, in words.
    """

    limits: tuple[LimitUse, ...] = ()
    refusals: int = 0
    retries: int = 0
    troubles: tuple[str, ...] = ()


class Around(NamedTuple):
    """What a run's record does not know.

    Attributes:
        cap: The most requests under way at once.
        budget_usd: The most dollars of the run.
        paused: Whether nothing new starts.
        health: How the service is; `None` where nobody looks.
        left_s: The least and the most seconds that it still takes; `None` where nobody can know.
    """

    cap: int | None = None
    budget_usd: float | None = None
    paused: bool = False
    health: Vitals | None = None
    left_s: tuple[float, float] | None = None


ALONE = Around()


def vitals_of(classes: Mapping[str, PoolHealth], retries: int = 0, troubles: Sequence[str] = ()) -> Vitals:
    """Gather what a pacer knows.

    Args:
        classes: Per model class, what it used of late; see `agent_magic.schedule.pacer_health`.
        retries: How many requests repeated a failed one.
        troubles: What stands still because of the service, in words.
    """
    limits = [
        LimitUse(kind, name, gauge.limit, None if gauge.percent is None else gauge.percent / 100)
        for name, one in classes.items()
        for kind, gauge in zip(KINDS, (one.requests, one.input, one.output), strict=True)
    ]
    return Vitals(tuple(limits), sum(one.refusals for one in classes.values()), retries, tuple(troubles))


def level_of(health: Vitals) -> tuple[str, str]:
    """Return a level and a word: `bad` where the service keeps agents from going on, `warn`, or `ok`."""
    if health.troubles:
        return "bad", "in trouble"
    if any(one.used is not None and one.used >= NEAR for one in health.limits):
        return "warn", "near a limit"
    return ("warn", "met a limit") if health.refusals else ("ok", "steady")


def strip_of(health: Vitals | None) -> dict[str, Any] | None:
    """Say the health of the service: a meter per kind of limit, a word, and what it comes from."""
    if health is None:
        return None
    level, word = level_of(health)
    notes = [f"{health.refusals:,} × 429"] if health.refusals else []
    notes += [f"{health.retries:,} {'retry' if health.retries == 1 else 'retries'}"] if health.retries else []
    return {
        "level": level,
        "word": word,
        "notes": " · ".join(notes),
        "reason": single_line("; ".join(health.troubles))[:_MOST_REASON],
        "meters": [_meter(kind, [one for one in health.limits if one.kind == kind]) for kind in KINDS],
    }


def _meter(kind: str, limits: Sequence[LimitUse]) -> list[str | int | None]:
    """Say the fullest limit of a kind: its name, its percentage, its level and all of them in words."""
    known = [one for one in limits if one.used is not None]
    used = max((one.used or 0.0 for one in known), default=None)
    level = "none" if used is None else "bad" if used >= FULL else "warn" if used >= NEAR else "ok"
    words = "; ".join(_limit_words(one) for one in limits) or "not known yet"
    return [kind, None if used is None else round(100 * used), level, f"{kind}: {words}"]


def _limit_words(one: LimitUse) -> str:
    share = "unknown" if one.used is None else f"{100 * one.used:.0f} %"
    of = "" if one.limit is None else f" of {count(one.limit)} a minute"
    return single_line(f"{one.model} {share}{of}")
