"""Decoded JSON: its type, and functions that narrow a value or return `None`."""

from __future__ import annotations

import math
import sys
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]


def as_object(value: object) -> Json | None:
    return cast("Json", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def as_flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def as_int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_number(value: object) -> float | None:
    """Finite numbers only."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max:
        return None
    return None if math.isnan(value) else float(value)
