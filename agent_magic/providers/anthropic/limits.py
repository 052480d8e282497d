"""What a response says of rate limits: its headers, and the sentence of a 429, as numbers.

Source: the vendor's page on rate limits: `limit`, `remaining` (tokens to the nearest thousand) and `retry-after`
(seconds in which every retry fails). `reset`, the time of full replenishment, adds nothing that a pacer could use.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.limits import DIMENSIONS, MOST, Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.engine.pacing.limits import Dimension, Readings

PREFIX: Final = "anthropic-ratelimit-"
HEADER_OF: Final[dict[Dimension, str]] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}
_NAMES: Final = tuple((f"{PREFIX}{name}-limit", f"{PREFIX}{name}-remaining") for name in HEADER_OF.values())
LONGEST_WAIT_S: Final = 366 * 86_400.0
"""No server means a longer one."""
_SENTENCE = re.compile(
    r"(?P<number>[\d,]+) (?P<per>requests|(?:input|output) tokens) per minute"
    r"|number of (?P<over>requests|(?:input|output) tokens) has exceeded",
    re.IGNORECASE,
)
"""Such as `This request would exceed your organization's rate limit of 30,000 input tokens per minute`."""


def named_limit(sentence: str) -> Dimension | None:
    """Name the limit that the sentence of a 429 names."""
    found = _SENTENCE.search(sentence)
    if found is None:
        return None
    named = (found["per"] or found["over"]).lower()
    return next(name for name in DIMENSIONS if named.startswith(name))


def with_sentence(readings: Readings, sentence: str) -> Readings:
    """Add the limit that the sentence of a 429 tells, where the headers do not tell it."""
    found, name = _SENTENCE.search(sentence), named_limit(sentence)
    number = _number((found["number"] or "").replace(",", "")) if found else None
    if name is None or not number:
        return readings
    requests, taken, made = (
        Reading(number) if one is None and each == name else one for each, one in zip(DIMENSIONS, readings, strict=True)
    )
    return requests, taken, made


def empty_limit(headers: Mapping[str, str]) -> Dimension | None:
    """Name the limit that a 429's headers show as used up."""
    return next((name for name, header in HEADER_OF.items() if headers.get(f"{PREFIX}{header}-remaining") == "0"), None)


def read_headers(headers: Mapping[str, str]) -> Readings:
    """Read what a response's headers say of requests, input tokens and output tokens.

    Whatever makes no sense counts as not said: a server or a proxy may send anything.

    Args:
        headers: The headers by lower-case name, or a mapping that ignores case.
    """
    requests, taken, made = _NAMES
    return _reading(headers, *requests), _reading(headers, *taken), _reading(headers, *made)


def _reading(headers: Mapping[str, str], limit_name: str, remaining_name: str) -> Reading | None:
    limit = _number(headers.get(limit_name))
    if not limit:
        return None
    remaining = _number(headers.get(remaining_name))
    return Reading(limit, remaining if remaining is None else min(remaining, limit))


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= MOST else None  # not a number is in no range


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read `retry-after-ms`, or `retry-after` in seconds or as a date; `None` where neither makes sense."""
    exact = _seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return _wait_s(exact / 1000)
    value = headers.get("retry-after", "")
    seconds = _seconds(value)
    if seconds is not None:
        return _wait_s(seconds)
    try:
        then = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return _wait_s((then - datetime.now(UTC)).total_seconds()) if then.tzinfo else None


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _wait_s(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST_WAIT_S)
