"""The engine on virtual time."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.forecast.calibration import Forecasts
    from agent_magic.forecast.evidence import rows_of
    from agent_magic.forecast.forecast import Forecaster, Scenario
    from agent_magic.forecast.provider import Provider

__getattr__ = lazy_names(
    __name__,
    {
        "Forecaster": "agent_magic.forecast.forecast",
        "Forecasts": "agent_magic.forecast.calibration",
        "Provider": "agent_magic.forecast.provider",
        "Scenario": "agent_magic.forecast.forecast",
        "rows_of": "agent_magic.forecast.evidence",
    },
)
