"""Numbers as people read them. Unknown is an en dash, never 0."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

UNKNOWN = "–"
AT_LEAST = "≥"
_MINUTE_S, _HOUR_S = 60, 3600
_UNITS_S = {"s": 1, "m": _MINUTE_S, "h": _HOUR_S}
_LEAST_USD = 0.0001
_LEAST_S = 0.05
"""Half of the last written digit: values this close to a minute, or to 0, are rounded to it."""


def known(value: float | None) -> float | None:
    """Return `None` for `NaN`."""
    return None if value is None or math.isnan(value) else value


def seconds(value: float | None) -> str:
    """Write a duration: `2.1 s`, `1 min 12 s`, `1 h 05 min`."""
    value = known(value)
    if value is None:
        return f"{UNKNOWN} s"
    if value < 0:
        return f"{'−' if value <= -_LEAST_S else ''}{seconds(-value)}"
    if value < _MINUTE_S - _LEAST_S:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02d} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"


def duration(text: str) -> float:
    """Parse seconds: `90`, `90s`, `30m`, `8h`."""
    unit = text[-1:] if text[-1:] in _UNITS_S else ""
    return float(text.removesuffix(unit)) * _UNITS_S.get(unit, 1)


def count(value: float | None) -> str:
    """Write a whole number with thousands separators: `5,366`."""
    value = known(value)
    return UNKNOWN if value is None else f"{value:,.0f}"


def dollars(value: float | None, mark: str = "") -> str:
    """Write dollars: `$1.25`, `$0.0021`, `<$0.0001`, `$0`; after a mark with a digit, `≥$0.00003`, rounded down."""
    value = known(value)
    if mark and value is not None and value > 0:
        digits = 2 if value >= 1 else 4 if value >= _LEAST_USD else -math.floor(math.log10(value))
        rounding = ROUND_FLOOR if mark == AT_LEAST else ROUND_HALF_EVEN
        return f"{mark}${Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), rounding):,f}"
    if mark and value is not None:
        return mark + dollars(value)
    if value is None:
        return f"${UNKNOWN}"
    if value == 0:
        return "$0"
    if value < 0:
        return f"−{dollars(-value)}"
    if value >= 1:
        return f"${value:,.2f}"
    return f"${value:.4f}" if value >= _LEAST_USD / 2 else "<$0.0001"


def times(value: float | None) -> str:
    """Write a factor with one decimal: `2.3x`, `2x`."""
    value = known(value)
    return f"{UNKNOWN}x" if value is None else f"{value:.1f}".removesuffix(".0") + "x"


def plural(number: int, noun: str) -> str:
    """Write `1 agent`, `2 agents`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def steps(every: int, tasks: int) -> str:
    """Write `2 agents and 3 tasks`, of `every` in total."""
    agents = [plural(every - tasks, "agent")] if every > tasks or not tasks else []
    return " and ".join([*agents, *([plural(tasks, "task")] if tasks else [])])


_TICK_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 43200, 86400)
_MOST_TICKS = 7


def time_step(span_s: float) -> float:
    """Choose a round step between ticks, so that they fit under an axis."""
    return next((one for one in _TICK_STEPS_S if span_s / one <= _MOST_TICKS - 1), span_s / (_MOST_TICKS - 1))


def time_ticks(span_s: float) -> tuple[float, ...]:
    step = time_step(span_s)
    return tuple(round(index * step, 6) for index in range(int(span_s / step + 1e-9) + 1))


def time_tick(value_s: float, span_s: float) -> str:
    """Write a time in a unit that fits the length of the axis."""
    if span_s >= 2 * _HOUR_S:
        return f"{value_s / _HOUR_S:g} h"
    if span_s >= 3 * _MINUTE_S:
        return f"{value_s / _MINUTE_S:g} min"
    return f"{value_s:g} s"
