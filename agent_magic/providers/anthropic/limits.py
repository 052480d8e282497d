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

from agent_magic.engine.pacing.limits import MOST, Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.engine.pacing.limits import Dimension, Readings

PREFIX: Final = "anthropic-ratelimit-"
HEADER_OF: Final[dict[Dimension, str]] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}
_NAMES: Final[list[tuple[Dimension, str, str]]] = [
    (kind, f"{PREFIX}{name}-limit", f"{PREFIX}{name}-remaining") for kind, name in HEADER_OF.items()
]
_KIND_OF: Final[dict[str, Dimension]] = {name.replace("-", " "): kind for kind, name in HEADER_OF.items()}
_WORDS: Final = "|".join(_KIND_OF)
LONGEST_WAIT_S: Final = 366 * 86_400.0
"""No server means a longer one."""
_SENTENCE = re.compile(
    rf"(?P<number>[\d,]+) (?P<per>{_WORDS}) per minute|number of (?P<over>{_WORDS}) has exceeded",
    re.IGNORECASE,
)
"""Such as `This request would exceed your organization's rate limit of 30,000 input tokens per minute`."""


def named_limit(sentence: str) -> Dimension | None:
    """Name the limit that the sentence of a 429 names."""
    found = _SENTENCE.search(sentence)
    if found is None:
        return None
    return _KIND_OF[(found["per"] or found["over"]).lower()]


def with_sentence(readings: Readings, sentence: str) -> Readings:
    """Add the limit that the sentence of a 429 tells, where the headers do not tell it."""
    found, name = _SENTENCE.search(sentence), named_limit(sentence)
    number = _number((found["number"] or "").replace(",", "")) if found else None
    return readings if name is None or not number else {name: Reading(number), **readings}


def empty_limit(headers: Mapping[str, str]) -> Dimension | None:
    """Name the limit that a 429's headers show as used up."""
    return next((name for name, header in HEADER_OF.items() if headers.get(f"{PREFIX}{header}-remaining") == "0"), None)


def read_headers(headers: Mapping[str, str]) -> Readings:
    """Read what a response's headers say of each limit.

    Whatever makes no sense counts as not said: a server or a proxy may send anything.

    Args:
        headers: The headers by lower-case name, or a mapping that ignores case.
    """
    found: dict[Dimension, Reading] = {}
    for kind, limit_name, remaining_name in _NAMES:
        if limit := _number(headers.get(limit_name)):
            remaining = _number(headers.get(remaining_name))
            found[kind] = Reading(limit, remaining if remaining is None else min(remaining, limit))
    return found


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
