"""The engine on virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.doors import door

if TYPE_CHECKING:
    from agent_magic.forecast.calibration import Forecasts

__all__ = ["Forecasts"]

__getattr__ = door(
    __name__,
    {
        "Forecasts": "agent_magic.forecast.calibration",
    },
)
