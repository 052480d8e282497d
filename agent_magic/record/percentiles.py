"""Percentiles, and how many values each needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENOUGH: Mapping[int, int] = {50: 1, 95: 20, 99: 100}
"""With fewer values it would be the largest of them."""


def percentile(values: Iterable[float], percent: int) -> float | None:
    """Return a percentile by nearest rank; `None` if there are fewer values than `ENOUGH`."""
    found = sorted(values)
    if len(found) < ENOUGH.get(percent, 1):
        return None
    return found[max(0, math.ceil(percent * len(found) / 100) - 1)]
