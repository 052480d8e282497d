"""Rate limits as values: what a user may set, and what a response says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from agent_magic.declare.validation import is_number, must_be

Dimension = Literal["requests", "input", "output"]
"""What is limited per minute: requests, uncached input tokens, output tokens."""

FIELDS: Final[dict[Dimension, str]] = {"requests": "requests", "input": "input_tokens", "output": "output_tokens"}
"""The fields of `Limits`, by what they limit."""
DIMENSIONS: Final = tuple(FIELDS)
MOST: Final = 1e12
"""A limit above this is a mistake of whoever wrote it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one model class, per minute. `None` is not known: learned from the answers.

    Args:
        requests: Requests.
        input_tokens: Uncached input tokens. Cache reads do not count.
        output_tokens: Output tokens.
        burst_s: Seconds' worth that may pass at once, until response headers say more.

    Raises:
        DeclarationError: A value is not a number above 0.
    """

    requests: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = field(default=None, kw_only=True)
    burst_s: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        for option in (*FIELDS.values(), "burst_s"):
            value = getattr(self, option)
            if value is not None and not (is_number(value) and 0 < value < MOST):
                raise must_be(option, "a number above 0", value)

    @property
    def rates(self) -> dict[Dimension, float | None]:
        """What may pass per minute, by what is limited; `None` is not known."""
        return {name: getattr(self, each) for name, each in FIELDS.items()}


class Reading(NamedTuple):
    """What one response said of one limit.

    Attributes:
        limit: Per minute.
        remaining: What may pass now; tokens are rounded to thousands. `None` if not said.
    """

    limit: float
    remaining: float | None = None


Readings = tuple[Reading | None, Reading | None, Reading | None]
"""What one response said of requests, input and output; `None` is nothing."""

NO_READINGS: Final[Readings] = (None, None, None)
