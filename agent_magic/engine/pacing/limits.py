"""Rate limits as values: what a user may set, which models share them, and what response headers say of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from agent_magic.declare.agent import is_number
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Mapping

Dimension = Literal["requests", "input", "output"]
"""What is limited per minute: requests, uncached input tokens, output tokens."""

DIMENSIONS: Final[tuple[Dimension, ...]] = ("requests", "input", "output")
PREFIX: Final = "anthropic-ratelimit-"
HEADER_OF: Final[dict[Dimension, str]] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}
_NAMES: Final = tuple(
    (f"{PREFIX}{name}-limit", f"{PREFIX}{name}-remaining", f"{PREFIX}{name}-reset") for name in HEADER_OF.values()
)
MOST: Final = 1e12
"""A limit above this is a mistake of whoever wrote the header."""
_DATE = re.compile(r"[-@]\d{8}$")
_POOLS: Final = (
    (re.compile(r"claude-opus-4-[5-8]"), "claude-opus-4"),
    (re.compile(r"claude-sonnet-4(-\d)?"), "claude-sonnet-4"),
    (re.compile(r"claude-fable-5(-\d)?"), "claude-fable-5"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one model class, per minute. `None` is not known: learned from the answers.

    Args:
        requests: Requests.
        input_tokens: Uncached input tokens. Cache reads do not count.
        output_tokens: Output tokens.
        burst_s: Seconds' worth that may pass at once, until response headers say more.

    Raises:
        DeclarationError: A value cannot work.
    """

    requests: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = field(default=None, kw_only=True)
    burst_s: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        for option in ("requests", "input_tokens", "output_tokens", "burst_s"):
            value = getattr(self, option)
            if value is not None and not (is_number(value) and 0 < value < MOST):
                raise DeclarationError(f"{option}={value!r} cannot work.", hint="Give a number above 0.")


class Reading(NamedTuple):
    """What one response said of one limit.

    Attributes:
        limit: Per minute.
        remaining: What may pass now; tokens are rounded to thousands. `None` if not said.
        full_in_s: Seconds from the response's `date` to the time when the bucket is full, both in whole seconds.
            `None` if not said.
    """

    limit: float
    remaining: float | None = None
    full_in_s: float | None = None


@lru_cache(maxsize=1024)
def class_of(model: str) -> str:
    """Name the model class whose limits a model shares. A model that no documented class has is its own.

    Source: the vendor's page on rate limits: one pool for Opus 4.5 to 4.8, one for Sonnet 4.x, one for Fable 5.x;
    Opus 5, Opus 5.5, Sonnet 5, Sonnet 5.5, Haiku 4.5 and Haiku 5.5 have rows of their own.
    """
    name = _DATE.sub("", model)
    return next((pool for pattern, pool in _POOLS if pattern.fullmatch(name)), name)


def read_headers(headers: Mapping[str, str]) -> tuple[Reading | None, Reading | None, Reading | None]:
    """Read what a response's headers say of requests, input tokens and output tokens.

    Whatever makes no sense counts as not said: a server, a proxy or a recording may send anything.

    Source: the vendor's page on rate limits: `limit`, `remaining` (tokens to the nearest thousand) and `reset` (the
    time of full replenishment, RFC 3339).

    Args:
        headers: The headers by lower-case name, or a mapping that ignores case.
    """
    date = headers.get("date")
    sent_s = _date_s(date) if date else None
    requests, taken, made = _NAMES
    return _reading(headers, requests, sent_s), _reading(headers, taken, sent_s), _reading(headers, made, sent_s)


def _reading(headers: Mapping[str, str], names: tuple[str, str, str], sent_s: float | None) -> Reading | None:
    limit = _number(headers.get(names[0]))
    if not limit:
        return None
    remaining = _number(headers.get(names[1]))
    reset = headers.get(names[2])
    reset_s = _reset_s(reset) if reset else None
    full_in_s = None if reset_s is None or sent_s is None else reset_s - sent_s
    if full_in_s is not None and not -1 <= full_in_s <= 3600:  # no bucket of a minute takes that long
        full_in_s = None
    if remaining is not None and remaining > limit:
        remaining = limit
    return Reading(limit, remaining, full_in_s)


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= MOST else None  # not a number is in no range


@lru_cache(maxsize=64)
def _reset_s(text: str) -> float | None:
    """Read an RFC 3339 time as seconds since the epoch. It needs a zone."""
    try:
        then = datetime.fromisoformat(text)
        return then.timestamp() if then.tzinfo else None
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=64)
def _date_s(text: str) -> float | None:
    """Read the `date` header as seconds since the epoch. It is always in GMT."""
    try:
        then = parsedate_to_datetime(text)
        return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
