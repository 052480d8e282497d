"""What a rule of `run.advise()` says, where such rules are published, and when a change is worth proposing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_magic.forecast.forecast import Forecast
    from agent_magic.forecast.outlook import Outlook

CONCURRENT = '"Technical Architecture: Concurrent vs. Parallel Execution", git.openharbor.io/svrnty/claude-skills'
TOKENS = '"Token Usage & Cost Analysis", git.openharbor.io/svrnty/claude-skills'
SPECIFICATION = '"Parallel Agent Architecture Specification"'
DEEP_DIVE = '"Parallel Execution - Deep Dive"'
LAYERS = '"Parallel Execution Architecture", Meta-Agent System'
SCALING = '"Agent Scaling Analysis & Solutions", github.com/rawjaws/anvil'

WORTH = 0.05
"""A change that saves less than this share of the run is not proposed: forecasts are not better than that."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule says.

    Attributes:
        rule: The rule's name.
        measured: What it looked at, in numbers of this run.
        change: What to change; an empty string where all is fine.
        source: Where the rule is from.
        saves_s: Seconds that the change saves; `None` where it foresees none.
        saves_usd: Dollars that it saves; `None` where unknown.
        forecast_s: Seconds of the run with the change.
        forecast_usd: Dollars of it.
        basis: What that stands on: `measured`, `ledger` or `assumed`.
        assumed: What was assumed, in words.
    """

    rule: str
    measured: str
    change: str = field(default="", kw_only=True)
    source: str = field(kw_only=True)
    saves_s: float | None = field(default=None, kw_only=True)
    saves_usd: float | None = field(default=None, kw_only=True)
    forecast_s: float | None = field(default=None, kw_only=True)
    forecast_usd: float | None = field(default=None, kw_only=True)
    basis: str = field(default="measured", kw_only=True)
    assumed: str = field(default="", kw_only=True)


def found(
    outlook: Outlook, rule: str, measured: str, source: str, changed: Forecast | None = None, change: str = ""
) -> Finding:
    """Say what a rule found; `changed` is the forecast of the run with the change, if the rule has one."""
    if changed is None:
        return Finding(rule, measured, source=source)
    return Finding(
        rule,
        measured,
        change=change,
        source=source,
        saves_s=outlook.saves_s(changed),
        saves_usd=outlook.saves_usd(changed),
        forecast_s=changed.wall_s,
        forecast_usd=changed.cost_usd,
        basis=changed.note.basis,
        assumed=changed.note.assumed,
    )


def pays(outlook: Outlook, changed: Forecast) -> bool:
    """Tell whether a change saves enough seconds to be proposed."""
    return outlook.saves_s(changed) > WORTH * outlook.as_it_was.wall_s
