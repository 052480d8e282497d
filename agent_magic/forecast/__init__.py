"""The engine on virtual time."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.forecast.advice.finding import Finding, Outlook
    from agent_magic.forecast.calibration import Forecasts
    from agent_magic.forecast.estimate.agents import ASSUMED_OUTPUT_TOKENS
    from agent_magic.forecast.estimate.value import Outlay, outlay, pilot_agents
    from agent_magic.forecast.evidence import rows_of
    from agent_magic.forecast.forecast import Forecaster, Scenario
    from agent_magic.forecast.provider import Provider

__getattr__ = lazy_names(
    __name__,
    {
        "ASSUMED_OUTPUT_TOKENS": "agent_magic.forecast.estimate.agents",
        "Finding": "agent_magic.forecast.advice.finding",
        "Forecaster": "agent_magic.forecast.forecast",
        "Forecasts": "agent_magic.forecast.calibration",
        "Outlay": "agent_magic.forecast.estimate.value",
        "Outlook": "agent_magic.forecast.advice.finding",
        "Provider": "agent_magic.forecast.provider",
        "Scenario": "agent_magic.forecast.forecast",
        "outlay": "agent_magic.forecast.estimate.value",
        "pilot_agents": "agent_magic.forecast.estimate.value",
        "rows_of": "agent_magic.forecast.evidence",
    },
)
