"""Speed of models, from earlier answers or dated assumptions."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from agent_magic.providers.anthropic.models import DEFAULT_URL, SPEEDS_FROM, USUAL_SPEED, speed_of, token_density

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.record.history import Past

Basis = Literal["measured", "ledger", "pilot", "assumed"]
"""Basis of a number: this run, earlier answers, other agents' answers in a pilot, or an assumption."""
SURE_BY: Final = {
    "measured": "measured",
    "ledger": "from earlier answers",
    "pilot": "from a pilot",
    "assumed": "partly assumed",
}
"""The least basis of numbers, in words."""
RANK: Final[dict[Basis, int]] = {"measured": 0, "ledger": 1, "pilot": 2, "assumed": 3}

ENOUGH: Final = 5
"""Answers needed to use their own spread as the range; with fewer, a range is assumed."""
LOW, HIGH = 0.1, 0.9
UNSURE: Final = (0.5, 2.0)
"""Assumed range of a duration: half to twice."""
UNSURE_EFFORT: Final = (0.25, 4.0)
"""Range of an answer's length at an untried effort."""
UNSURE_SERVER: Final = (0.04, 4.0)
"""Range of a duration at an unknown address that has not answered yet, such as a gateway or a local model."""
LEAST_TOKENS: Final = 8
"""Shorter answers tell nothing about pace."""


class Timing(NamedTuple):
    """The speed of a model, from `answers`, 0 for an assumption; `low` and `high` are ratios to the likely duration."""

    ttft_s: float
    pace: float
    answers: int = 0
    low: float = UNSURE[0]
    high: float = UNSURE[1]


def tokens_factor(old: str, new: str) -> float:
    return token_density(new) / token_density(old)


def timing_of(rows: Sequence[Past]) -> Timing | None:
    streamed = [
        (row.ttft_s, row.output_tokens / (row.api_s - row.ttft_s))
        for row in rows
        if not row.elsewhere
        and row.ttft_s is not None
        and row.output_tokens is not None
        and row.output_tokens >= LEAST_TOKENS
        and row.api_s > row.ttft_s
    ]
    if not streamed:
        return None
    paces = sorted(pace for _, pace in streamed)
    pace = median(paces)
    low, high = UNSURE
    if len(paces) >= ENOUGH:
        low, high = pace / quantile(paces, HIGH), pace / quantile(paces, LOW)
    return Timing(median(first for first, _ in streamed), pace, len(streamed), low, high)


def quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


class Speeds:
    """Speeds of models, from earlier answers or assumptions."""

    def __init__(self, rows: Iterable[Past], time_factor: float = 1.0, origin: str = "") -> None:
        self._factor = time_factor
        self._is_foreign = "://" in origin and origin.rstrip("/") != DEFAULT_URL and time_factor == 1.0
        by_model: dict[str, list[Past]] = {}
        for row in rows:
            by_model.setdefault(row.model, []).append(row)
        self._known = {model: found for model, each in by_model.items() if (found := timing_of(each))}

    def of(self, model: str) -> tuple[Timing, Basis, str]:
        known = self._known.get(model)
        if known is not None:
            answers = "1 earlier answer" if known.answers == 1 else f"{known.answers} earlier answers"
            return known, "ledger", f"{model}: speed of {answers}"
        assumed = speed_of(model)
        if assumed is not None:
            words = f"{model}: speed of the {assumed.family} family in {SPEEDS_FROM}"
        else:
            assumed, usual = USUAL_SPEED, USUAL_SPEED.family.title()
            words = f"{model}: speed unknown, assumed that of {usual} in {SPEEDS_FROM}"
        times = "" if self._factor == 1.0 else f", {self._factor:g} of it as the mock server is set"
        timing = Timing(assumed.ttft_s * self._factor, assumed.pace / self._factor)
        if self._is_foreign and not self._known:
            (low, high), times = UNSURE_SERVER, ", taken as a 25th to four times: this server has not answered yet"
            timing = timing._replace(low=low, high=high)
        return timing, "assumed", words + times

    def change(self, old: str, new: str) -> tuple[float, float, Timing, Basis, str]:
        before, after = self._known.get(old), self._known.get(new)
        if before is not None and after is not None:
            answers = "1 earlier answer" if after.answers == 1 else f"{after.answers} earlier answers"
            words = f"{new}: speed of {answers}"
            first = after.ttft_s / before.ttft_s if before.ttft_s > 0 else 1.0
            return first, after.pace / before.pace, after, "ledger", words
        was, will = speed_of(old), speed_of(new)
        if was is None or will is None:
            words = f"{new}: speed unknown, assumed as fast as {old}"
            return 1.0, 1.0, Timing(0.0, 1.0), "assumed", words
        words = f"{new}: speed relative to {old} by their families in {SPEEDS_FROM}"
        return will.ttft_s / was.ttft_s, will.pace / was.pace, Timing(will.ttft_s, will.pace), "assumed", words
