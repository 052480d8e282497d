"""Numbers as people read them. Unknown is an en dash, never 0."""

from __future__ import annotations

import math

UNKNOWN = "–"
_MINUTE_S, _HOUR_S = 60, 3600


def known(value: float | None) -> float | None:
    """Return `value`, or `None` where it is not a number."""
    return None if value is None or math.isnan(value) else value


def seconds(value: float | None) -> str:
    """Write a duration: `2.1 s`, `1 min 12 s`, `1 h 05 min`."""
    value = known(value)
    if value is None:
        return f"{UNKNOWN} s"
    if value < _MINUTE_S - 0.05:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02d} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"


def count(value: float | None) -> str:
    """Write a whole number with thousands marked: `5,366`."""
    value = known(value)
    return UNKNOWN if value is None else f"{value:,.0f}"


def dollars(value: float | None) -> str:
    """Write dollars with the digits that matter: `$0.0021`, `$1.25`, `$0`."""
    value = known(value)
    if value is None:
        return f"${UNKNOWN}"
    if value == 0:
        return "$0"
    if value >= 1:
        return f"${value:,.2f}"
    return f"${value:.4f}" if value >= 0.00095 else f"${value:.2g}" if value >= 0.0001 else f"${value:.6f}"


def ratio(value: float | None) -> str:
    """Write a ratio with at most two decimals: `2.25`, `2.1`, `1`."""
    value = known(value)
    return UNKNOWN if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def plural(number: int, noun: str) -> str:
    """Write `1 agent`, `2 agents`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
