"""Common response headers: how long to wait, whether to retry, who answers."""

from __future__ import annotations

import functools
import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.limits import MOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from httpx2 import Response

LONGEST_WAIT_S: Final = 366 * 86_400.0
"""A longer wait is a server's mistake."""
_WORTH_REPEATING = frozenset({408, 409, 425})
SIMULATED_HEADER = "x-agent-magic-simulated"


def headers_of(response: Response) -> dict[str, str]:
    """By lower-case name: each look-up in the transport's own takes a microsecond."""
    return {_lowered(name): value.decode("latin-1") for name, value in response.headers.raw}


@functools.lru_cache(maxsize=256)
def _lowered(name: bytes) -> str:
    return name.decode("latin-1").lower()


def is_worth_repeating(status: int, headers: Mapping[str, str]) -> bool:
    """The server's own header wins over its status, as in the SDK."""
    said = should_retry(headers)
    return said or (said is None and (status >= 500 or status in _WORTH_REPEATING))


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Parse `x-should-retry`, the server's advice on retries."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def number_of(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= MOST else None  # not a number is in no range


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Parse `retry-after-ms`, or `retry-after` in seconds or as a date."""
    # A date is of the server's clock, which may be hours off, so it counts from the response's own `date`.
    exact = _seconds(headers.get("retry-after-ms", ""))
    if exact is not None:
        return _wait_s(exact / 1000)
    value = headers.get("retry-after", "")
    seconds = _seconds(value)
    if seconds is not None:
        return _wait_s(seconds)
    then = _date(value)
    if then is None:
        return None
    now = _date(headers.get("date", "")) or datetime.now(UTC)
    return _wait_s((then - now).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else None


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _wait_s(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST_WAIT_S)
