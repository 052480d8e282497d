"""Rate limits in a response: `x-ratelimit-*` headers and the message of a 429, as numbers.

They come for `requests` and `tokens`; a reset is a duration such as `6m0s` or `250ms`, until the limit is fully
replenished. Source: the vendors' pages on rate limits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.limits import Reading
from agent_magic.providers.http.headers import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.engine.pacing.limits import Dimension, Readings

PREFIX: Final = "x-ratelimit-"
KINDS: Final[Mapping[str, Dimension]] = {"requests": "requests", "tokens": "input"}
"""A limit of tokens includes answers; it is kept as one of input, and each response corrects the rest."""
MINUTE_S: Final = 60.0
LONGER_S: Final = (3_600.0, 86_400.0)
"""Limits of these periods cannot be kept per minute. Their rest may be used at once."""
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_AGAIN = re.compile(r"(?:try|retry)[^.]{0,40}? in ((?:\d+(?:\.\d+)?(?:ms|s|m|h|d)\s*)+)", re.IGNORECASE)
"""Such as `Please try again in 6m0s.`"""
_NAMED = re.compile(r"\b(?P<requests>requests per|rpm|rpd)\b|\b(?P<tokens>tokens per|tpm|tpd)\b", re.IGNORECASE)


def duration_s(text: str) -> float | None:
    """Parse `1s`, `6m0s`, `1h2m3.5s`, `250ms`, or plain seconds."""
    found = _DURATION.findall(text)
    if found and "".join(number + unit for number, unit in found) == re.sub(r"\s", "", text):
        return sum(float(number) * _UNITS[unit] for number, unit in found)
    return number_of(text)


def read_headers(headers: Mapping[str, str]) -> Readings:
    """Invalid values are ignored."""
    found: dict[Dimension, Reading] = {}
    for name, kind in KINDS.items():
        limit, left = (number_of(headers.get(f"{PREFIX}{what}-{name}")) for what in ("limit", "remaining"))
        if not limit:
            continue
        left = left if left is None else min(left, limit)
        if _is_per_minute(limit, left, duration_s(headers.get(f"{PREFIX}reset-{name}", ""))):
            found[kind] = Reading(limit, left)
    return found


def _is_per_minute(limit: float, left: float | None, reset_s: float | None) -> bool:
    """Return whether a limit is per minute, unless the reset time of its used part contradicts that."""
    if reset_s is None:
        return True
    if reset_s > MINUTE_S + 1:
        return False
    used = 0.0 if left is None else limit - left
    period_s = reset_s * limit / used if used else MINUTE_S
    return not any(0.9 * one < period_s < 1.1 * one for one in LONGER_S)


def wait_said_s(sentence: str) -> float | None:
    found = _AGAIN.search(sentence)
    return None if found is None else duration_s(found[1].strip())


def named_limit(sentence: str, headers: Mapping[str, str]) -> Dimension | None:
    found = _NAMED.search(sentence)
    if found is not None:
        return KINDS["requests" if found["requests"] else "tokens"]
    return next((kind for name, kind in KINDS.items() if headers.get(f"{PREFIX}remaining-{name}") == "0"), None)
