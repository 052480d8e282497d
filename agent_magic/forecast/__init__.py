"""The engine on virtual time."""

# pyright: reportUnusedImport=false
from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.lazy_names import lazy_names

if TYPE_CHECKING:
    from agent_magic.forecast import remaining, whatif
    from agent_magic.forecast.advice.advice import advise, lint, several_or_one
    from agent_magic.forecast.advice.finding import Finding, Outlook
    from agent_magic.forecast.advice.rules import MOST_COUNTED
    from agent_magic.forecast.calibration import Forecasts, make_sweep
    from agent_magic.forecast.estimate.agents import ASSUMED_OUTPUT_TOKENS
    from agent_magic.forecast.estimate.estimate import estimate as estimate_plan
    from agent_magic.forecast.estimate.value import (
        Outlay,
        confirmation,
        loads_frame,
        outlay,
        pilot_agents,
        under_load,
        verdict_on,
    )
    from agent_magic.forecast.evidence import policy_of, rows_of
    from agent_magic.forecast.forecast import Forecaster, Scenario
    from agent_magic.forecast.provider import Provider
    from agent_magic.forecast.whatif import one_by_one, totals_of

__getattr__ = lazy_names(
    __name__,
    {
        "ASSUMED_OUTPUT_TOKENS": "agent_magic.forecast.estimate.agents",
        "Finding": "agent_magic.forecast.advice.finding",
        "Forecaster": "agent_magic.forecast.forecast",
        "Forecasts": "agent_magic.forecast.calibration",
        "MOST_COUNTED": "agent_magic.forecast.advice.rules",
        "Outlay": "agent_magic.forecast.estimate.value",
        "Outlook": "agent_magic.forecast.advice.finding",
        "Provider": "agent_magic.forecast.provider",
        "Scenario": "agent_magic.forecast.forecast",
        "advise": "agent_magic.forecast.advice.advice",
        "confirmation": "agent_magic.forecast.estimate.value",
        "estimate_plan": "agent_magic.forecast.estimate.estimate:estimate",
        "lint": "agent_magic.forecast.advice.advice",
        "loads_frame": "agent_magic.forecast.estimate.value",
        "make_sweep": "agent_magic.forecast.calibration",
        "one_by_one": "agent_magic.forecast.whatif",
        "outlay": "agent_magic.forecast.estimate.value",
        "pilot_agents": "agent_magic.forecast.estimate.value",
        "policy_of": "agent_magic.forecast.evidence",
        "remaining": "agent_magic.forecast.remaining:",
        "rows_of": "agent_magic.forecast.evidence",
        "several_or_one": "agent_magic.forecast.advice.advice",
        "totals_of": "agent_magic.forecast.whatif",
        "under_load": "agent_magic.forecast.estimate.value",
        "verdict_on": "agent_magic.forecast.estimate.value",
        "whatif": "agent_magic.forecast.whatif:",
    },
)
