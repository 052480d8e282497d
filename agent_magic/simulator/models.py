"""The models of the mock server, and their latency: lognormal around the medians of the family."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from random import Random

from agent_magic.simulator.api import Json


@dataclass(frozen=True, slots=True)
class Model:
    """One model.

    Attributes:
        pool: The rate-limit pool; its models share limits.
        cache_min: The shortest cached prefix, in tokens.
        sampling: True if `temperature`, `top_p` and `top_k` are accepted.
        prefill: True if the last message may be an assistant turn.
        forced_tools: True if `tool_choice` may force a tool.
        picture: Maximum side in pixels and tokens of a picture; larger ones are scaled down.
        tool_prompt: Tokens of the hidden instruction on tools, for a free and for a forced choice. Undocumented for
            models since 5.1, which use those of Opus 5.
        preserved: True if a thinking block is bound to everything before it.
        notes: True if text between tool calls comes as thinking.
    """

    id: str
    name: str
    family: str
    pool: str
    cache_min: int
    context: int = 1_000_000
    max_output: int = 128_000
    sampling: bool = False
    prefill: bool = False
    forced_tools: bool = True
    picture: tuple[int, int] = (2576, 4784)
    tool_prompt: tuple[int, int] = (286, 406)
    preserved: bool = False
    notes: bool = False


_PRESERVED = partial(Model, cache_min=512, preserved=True)
_NOTING = partial(_PRESERVED, forced_tools=False, notes=True)
_CURRENT = (
    _NOTING("claude-fable-5-2", "Claude Fable 5.2", "fable", "fable-5"),
    _NOTING("claude-mythos-5-2", "Claude Mythos 5.2", "mythos", "mythos-5"),
    _PRESERVED("claude-haiku-5-5", "Claude Haiku 5.5", "haiku", "haiku-5-5"),
    _NOTING("claude-sonnet-5-5", "Claude Sonnet 5.5", "sonnet", "sonnet-5-5"),
    _NOTING("claude-fable-5-1", "Claude Fable 5.1", "fable", "fable-5"),
    _NOTING("claude-opus-5-5", "Claude Opus 5.5", "opus", "opus-5-5"),
    _NOTING("claude-mythos-5-1", "Claude Mythos 5.1", "mythos", "mythos-5"),
    Model("claude-sonnet-5", "Claude Sonnet 5", "sonnet", "sonnet-5", 1024, tool_prompt=(354, 474)),
    Model("claude-fable-5", "Claude Fable 5", "fable", "fable-5", 512),
    Model("claude-mythos-5", "Claude Mythos 5", "mythos", "mythos-5", 512),
    Model("claude-opus-5", "Claude Opus 5", "opus", "opus-5", 512),
    Model("claude-opus-4-8", "Claude Opus 4.8", "opus", "opus-4", 1024, tool_prompt=(290, 410)),
    Model("claude-opus-4-7", "Claude Opus 4.7", "opus", "opus-4", 2048, tool_prompt=(675, 804)),
)


_OLDER = partial(Model, sampling=True, picture=(1568, 1568), tool_prompt=(497, 588))
_OLDEST = partial(_OLDER, context=200_000, max_output=64_000, prefill=True)
_EARLIER = (
    _OLDER("claude-opus-4-6", "Claude Opus 4.6", "opus", "opus-4", 4096),
    _OLDER("claude-sonnet-4-6", "Claude Sonnet 4.6", "sonnet", "sonnet-4", 1024),
    *(_OLDEST(f"claude-haiku-4-5{date}", "Claude Haiku 4.5", "haiku", "haiku-4-5", 4096) for date in ("", "-20251001")),
    *(_OLDEST(f"claude-opus-4-5{date}", "Claude Opus 4.5", "opus", "opus-4", 4096) for date in ("", "-20251101")),
    *(
        _OLDEST(f"claude-sonnet-4-5{date}", "Claude Sonnet 4.5", "sonnet", "sonnet-4", 1024)
        for date in ("", "-20250929")
    ),
)

MODELS: dict[str, Model] = {model.id: model for model in (*_CURRENT, *_EARLIER)}


def describe(model: Model) -> Json:
    """The release date is unknown: the epoch."""
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": "1970-01-01T00:00:00Z",
        "deprecated_at": None,
        "retires_at": None,
        "lifecycle": "active",
        "line": model.family,
        "max_input_tokens": model.context,
        "max_tokens": model.max_output,
        "capabilities": None,
    }


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
        """Draw a duration, always by two numbers of the generator; exact values win."""
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
LATENCY_FORMS = "none, fast, real, a factor such as x0.1, or ttft=0.3,pace=200,spread=0.4"


def parse_latency(spec: str) -> Latency:
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
    raise ValueError(f"latency {spec!r} is unknown: use {LATENCY_FORMS}")


def read_numbers(text: str) -> dict[str, float]:
    """Parse numbers by name, as in `ttft=0.3,pace=200`."""
    parts = (part.partition("=") for part in text.split(","))
    return {name.strip(): _number(number) for name, _, number in parts}


def _number(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError(text)
    return number
