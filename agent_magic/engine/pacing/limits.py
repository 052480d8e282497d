"""Rate limits as values: kinds, users' settings, and readings of responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from agent_magic.declare.validation import is_number, make_builtin, must_be

Dimension = Literal["requests", "input", "output"]
"""Requests, uncached input tokens and output tokens, per minute."""


class Kind(NamedTuple):
    """A kind of rate limit: the use of a request, and its words."""

    field: str  # of `Limits`; with spaces, its unit
    counted: str
    option: str  # of `%agents limits`
    per_request: float = 0.0
    per_input_token: float = 0.0
    per_output_token: float = 0.0
    rounded: int = 1  # as `remaining` is in responses

    @property
    def unit(self) -> str:
        return self.field.replace("_", " ")

    def amount(self, requests: float, input_tokens: float, output_tokens: float) -> float:
        return self.per_request * requests + self.per_input_token * input_tokens + self.per_output_token * output_tokens


KINDS: Final[Mapping[Dimension, Kind]] = {
    "requests": Kind("requests", "requests", "rpm", per_request=1.0),
    "input": Kind("input_tokens", "uncached input tokens", "itpm", per_input_token=1.0, rounded=1000),
    "output": Kind("output_tokens", "output tokens", "otpm", per_output_token=1.0, rounded=1000),
}
"""The pacer, forecasts, `%agents limits` and the charts read this table."""
DIMENSIONS: Final = tuple(KINDS)
MOST: Final = 1e12
"""Higher limits are mistakes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one model class, per minute; unknown ones (`None`) are learned from responses.

    Args:
        requests: Requests.
        input_tokens: Uncached input tokens. Cache reads do not count.
        output_tokens: Output tokens.
        burst_s: Seconds of the limit that may be used at once, until response headers report more.

    Raises:
        DeclarationError: A value is not a number above 0.
    """

    requests: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = field(default=None, kw_only=True)
    burst_s: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        make_builtin(self)
        for option in (*(kind.field for kind in KINDS.values()), "burst_s"):
            value = getattr(self, option)
            if value is not None and not (is_number(value) and 0 < value < MOST):
                raise must_be(option, "a number above 0", value)

    @property
    def rates(self) -> dict[Dimension, float | None]:
        """Limits per minute, by kind; `None`: unknown."""
        return {name: getattr(self, kind.field) for name, kind in KINDS.items()}


class Reading(NamedTuple):
    """One limit in one response."""

    limit: float  # per minute
    remaining: float | None = None  # tokens are rounded to thousands; `None` if not given


Readings = Mapping[Dimension, Reading]

NO_READINGS: Final[Readings] = MappingProxyType({})
