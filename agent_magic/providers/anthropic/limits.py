"""Anthropic's rate limits: the headers that announce them, as numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.limits import MOST, Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.engine.pacing.limits import Dimension, Readings

PREFIX: Final = "anthropic-ratelimit-"
HEADER_OF: Final[dict[Dimension, str]] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}
_NAMES: Final = tuple(
    (f"{PREFIX}{name}-limit", f"{PREFIX}{name}-remaining", f"{PREFIX}{name}-reset") for name in HEADER_OF.values()
)


def empty_limit(headers: Mapping[str, str]) -> Dimension | None:
    """Name the limit that a 429's headers show as used up."""
    return next((name for name, header in HEADER_OF.items() if headers.get(f"{PREFIX}{header}-remaining") == "0"), None)


def read_headers(headers: Mapping[str, str]) -> Readings:
    """Read what a response's headers say of requests, input tokens and output tokens.

    Whatever makes no sense counts as not said: a server or a proxy may send anything.

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
