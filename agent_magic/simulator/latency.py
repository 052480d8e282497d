"""How long an answer takes: time to the first token, and the pace after it, per model family.

Both are lognormal around the family's median and drawn from the content of the request, so a run that is repeated takes
the same time again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

FAST_FACTOR = 0.1


@dataclass(frozen=True, slots=True)
class Timing:
    """The timing of one answer: seconds before the first token, seconds per token after it."""

    ttft_s: float
    per_token_s: float

    def at_s(self, tokens: int) -> float:
        """Return when so many tokens are out, in seconds after the request."""
        return self.ttft_s + tokens * self.per_token_s


@dataclass(frozen=True, slots=True)
class Speed:
    """The medians of a family: seconds to the first token, tokens per second, and the lognormal sigma of both."""

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
    """A latency model.

    Attributes:
        factor: Multiplies every duration; 0 answers at once.
        ttft_s: Replaces the families' time to the first token.
        pace: Replaces the families' tokens per second.
        spread: Replaces the families' spread.
    """

    factor: float = 1.0
    ttft_s: float | None = None
    pace: float | None = None
    spread: float | None = None

    def speed(self, family: str) -> Speed:
        """Return the medians of a family, with what was replaced."""
        usual = FAMILIES[family]
        return Speed(
            usual.ttft_s if self.ttft_s is None else self.ttft_s,
            usual.pace if self.pace is None else self.pace,
            usual.spread if self.spread is None else self.spread,
        )

    def draw(self, family: str, rng: Random, *, ttft_s: float | None = None, pace: float | None = None) -> Timing:
        """Draw the timing of one answer.

        Args:
            family: The family of the model.
            rng: Two draws are taken from it, always.
            ttft_s: An exact time to the first token for this answer; not multiplied, not spread.
            pace: An exact pace for this answer, in tokens per second.
        """
        speed = self.speed(family)
        slower, faster = (math.exp(speed.spread * rng.gauss(0.0, 1.0)) for _ in range(2))
        return Timing(
            self.factor * speed.ttft_s * slower if ttft_s is None else ttft_s,
            self.factor / (speed.pace * faster) if pace is None else 1 / pace,
        )


REAL = Latency()
_WORDS = {"none": Latency(factor=0.0), "fast": Latency(factor=FAST_FACTOR), "real": REAL}
_HINT = "use none, fast, real, a factor such as x0.1, or ttft=0.3,pace=200,spread=0.4"


def parse(spec: str) -> Latency:
    """Read a latency model from its command-line form.

    Raises:
        ValueError: The text cannot be read; the message says what can.
    """
    if spec in _WORDS:
        return _WORDS[spec]
    try:
        if spec.startswith("x"):
            return Latency(factor=_number(spec[1:]))
        given = {key: _number(value) for key, _, value in (part.partition("=") for part in spec.split(","))}
    except ValueError:
        raise ValueError(f"latency {spec!r} cannot be read: {_HINT}") from None
    if set(given) - {"ttft", "pace", "spread"} or given.get("pace") == 0:
        raise ValueError(f"latency {spec!r} cannot be read: {_HINT}")
    return Latency(1.0, given.get("ttft"), given.get("pace"), given.get("spread"))


def _number(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError(text)
    return number
