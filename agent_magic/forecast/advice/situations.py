"""The decision matrix by situation: what counts in it, and whether several agents are worth it.

The thresholds are conventions of this package, shown beside the run's own numbers so that a reader can disagree.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.units import dollars, seconds
from agent_magic.forecast.advice.finding import CONCURRENT, Finding

if TYPE_CHECKING:
    from agent_magic.forecast.outlook import Outlook


class Situation(NamedTuple):
    """A row of the matrix.

    Attributes:
        least_saved: The share of the time from which several agents are worth it; 1 is never.
        most_dollars: How many times the dollars of one agent they may cost.
    """

    by: str
    least_saved: float
    most_dollars: float
    because: str


NEVER: Final = 1.0
SITUATIONS: Final[dict[str, Situation]] = {
    "emergency fix": Situation("seconds", 0.05, math.inf, "somebody waits for it, whatever it costs"),
    "release": Situation("seconds", 0.1, 3.0, "several views find more, and a mistake is dear"),
    "large review": Situation("seconds", 0.2, 2.0, "many parts that do not need each other"),
    "routine change": Situation("dollars", 0.3, 1.25, "it happens often, and nobody is in a hurry"),
    "cost-sensitive": Situation("dollars", 0.1, 1.05, "dollars count more than seconds"),
    "exploration": Situation("dollars", 0.2, 1.5, "most of it will be thrown away"),
    "shared account": Situation("dollars", 0.2, 1.25, "others need the same rate limits"),
    "nightly job": Situation("dollars", NEVER, 1.0, "nobody waits for it, so a batch at half price will do"),
}
"""Source of the question: the decision matrix of `CONCURRENT`."""


def in_situation(outlook: Outlook, name: str, multiple: float | None) -> Finding:
    """Answer by one row of the matrix; `multiple` is the run's dollars over those of one agent, if known."""
    row, slow_s, fast_s = SITUATIONS[name], outlook.sequential.wall_s, outlook.as_it_was.wall_s
    saved = 1.0 - fast_s / slow_s if slow_s else 0.0
    asks = "which nobody needs" if row.least_saved == NEVER else f"it asks for {row.least_saved:.0%}"
    most = "at any price" if row.most_dollars == math.inf else f"it allows {row.most_dollars:.2f} times"
    money = "unknown dollars" if multiple is None else f"{multiple:.2f} times the dollars of one agent"
    choice = _choice(row, saved, multiple)
    measured = (
        f"{choice}: {row.because}. Running agents at once saves {saved:.0%} of the time ({asks}), for {money} ({most})."
    )
    return Finding(f"situation: {name}", measured, source=f"{CONCURRENT}: decision matrix")


def _choice(row: Situation, saved: float, multiple: float | None) -> str:
    """Return what to do in a situation."""
    if row.least_saved == NEVER:
        return "send a batch"
    if saved < row.least_saved:
        return "take one"
    if multiple is None and row.most_dollars < math.inf:
        return "it depends on the dollars"
    return "take several" if multiple is None or multiple <= row.most_dollars else "take one"


def fitting(one: Finding, row: Situation) -> Finding:
    """Return a finding without its change, if that costs what counts in the situation."""
    gain = one.saves_s if row.by == "seconds" else one.saves_usd
    if not one.change or gain is None or gain >= 0:
        return one
    loss = seconds(-gain) if row.by == "seconds" else dollars(-gain)
    kept = f"{one.measured} Its change is left out, as it costs {loss}: {one.change}"
    return replace(one, measured=kept, change="", edit="", apply={}, options={})
