"""What surrounds a run on the screen and is not in its record: its cap, its budget, the health of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent_magic.show.markup import single_line
from agent_magic.show.units import count, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("requests", "input", "output")
NEAR, FULL = 0.8, 0.95
WORDS = {"ok": "steady", "warn": "strained", "bad": "in trouble"}
_MOST_REASON = 90


class LimitUse(Protocol):
    """How much of one rate limit is used."""

    @property
    def kind(self) -> str: ...  # noqa: D102 - the words of `agent_magic.schedule.health`
    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def limit(self) -> float | None: ...  # noqa: D102
    @property
    def used(self) -> float | None: ...  # noqa: D102
    @property
    def learned(self) -> bool: ...  # noqa: D102


class Vitals(Protocol):
    """The health of the service, as `agent_magic.schedule.health` works it out."""

    @property
    def limits(self) -> Sequence[LimitUse]: ...  # noqa: D102
    @property
    def refusals(self) -> int: ...  # noqa: D102
    @property
    def retries(self) -> int: ...  # noqa: D102
    @property
    def breakers(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def level(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102


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


def strip_of(health: Vitals | None) -> dict[str, Any] | None:
    """Say the health of the service: a meter per kind of limit, a word, and what it comes from."""
    if health is None:
        return None
    notes = [plural(health.refusals, "429")] if health.refusals else []
    notes += [f"{health.retries:,} {'retry' if health.retries == 1 else 'retries'}"] if health.retries else []
    reason = "; ".join(health.breakers) or ("" if health.level == "ok" else health.reason)
    return {
        "level": health.level,
        "word": WORDS[health.level],
        "notes": " · ".join(notes),
        "reason": single_line(reason)[:_MOST_REASON],
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
