"""Narrowing of decoded JSON to typed shapes."""

from __future__ import annotations

import math
import sys
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]


def as_object(value: object) -> Json | None:
    """Return a JSON object, or `None` if the value is something else."""
    return cast("Json", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    """Return a JSON array, or `None` if the value is something else."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def as_int(value: object) -> int | None:
    """Return a JSON integer, or `None` if the value is something else; `true` is not an integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_number(value: object) -> float | None:
    """Return a JSON number as a float, or `None` if the value is something else, or larger than any."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max:
        return None
    return None if math.isnan(value) else float(value)
