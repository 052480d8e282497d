"""The engine on virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.forecast.calibration import Forecasts

__all__ = ["Forecasts"]

__getattr__ = lazy_names(
    __name__,
    {
        "Forecasts": "agent_magic.forecast.calibration",
    },
)
