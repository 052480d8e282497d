"""Latency: the time to the first token and the pace after it, lognormal around the medians of the model's family."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

FAST_FACTOR = 0.1


@dataclass(frozen=True, slots=True)
class Timing:
    """The timing of one response: seconds to the first token, seconds per further token."""

    ttft_s: float
    per_token_s: float

    def at_s(self, tokens: int) -> float:
        return self.ttft_s + tokens * self.per_token_s


@dataclass(frozen=True, slots=True)
class Speed:
    """Medians of a family, in tokens per second, and the lognormal sigma of both."""

    ttft_s: float
    pace: float
    spread: float = 0.25


FAMILIES = {
    "haiku": Speed(0.4, 150.0),
    "sonnet": Speed(0.7, 80.0),
    "opus": Speed(1.1, 55.0),
    "fable": Speed(1.4, 45.0),
    "mythos": Speed(1.4, 45.0),
}


@dataclass(frozen=True, slots=True)
class Latency:
    """`factor` multiplies every duration, the rest overrides the families' values."""

    factor: float = 1.0
    ttft_s: float | None = None
    pace: float | None = None
    spread: float | None = None

    def draw(self, family: str, rng: Random, *, ttft_s: float | None = None, pace: float | None = None) -> Timing:
        """Always draw two numbers of the generator; exact values win."""
        usual = FAMILIES[family]
        usual_ttft_s = usual.ttft_s if self.ttft_s is None else self.ttft_s
        usual_pace = usual.pace if self.pace is None else self.pace
        spread = usual.spread if self.spread is None else self.spread
        slower, faster = (math.exp(spread * rng.gauss(0.0, 1.0)) for _ in range(2))
        return Timing(
            self.factor * usual_ttft_s * slower if ttft_s is None else ttft_s,
            self.factor / (usual_pace * faster) if pace is None else 1 / pace,
        )


REAL = Latency()
_NAMED = {"none": Latency(factor=0.0), "fast": Latency(factor=FAST_FACTOR), "real": REAL}
FORMS = "none, fast, real, a factor such as x0.1, or ttft=0.3,pace=200,spread=0.4"


def parse(spec: str) -> Latency:
    """Raise `ValueError` with the valid forms."""
    if spec in _NAMED:
        return _NAMED[spec]
    try:
        if spec.startswith("x"):
            return Latency(factor=_number(spec[1:]))
        given = read_numbers(spec)
        if given.get("pace") != 0:
            return Latency(1.0, given.pop("ttft", None), given.pop("pace", None), given.pop("spread", None), **given)
    except (TypeError, ValueError):  # An unknown name, or no number.
        pass
    raise ValueError(f"latency {spec!r} is unknown: use {FORMS}")


def read_numbers(text: str) -> dict[str, float]:
    """Parse numbers by name, as in `ttft=0.3,pace=200`."""
    parts = (part.partition("=") for part in text.split(","))
    return {name.strip(): _number(number) for name, _, number in parts}


def _number(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError(text)
    return number
