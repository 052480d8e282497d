"""`run.advise()`: published rules for many agents, applied to this run.

A rule without a number is silent; the quality of answers is left to the reader. In a situation, a row of the decision
matrix tells what counts; its thresholds are conventions of this package, shown beside the run's numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.units import dollars, known, seconds
from agent_magic.declare.validation import is_word, must_be
from agent_magic.errors import did_you_mean
from agent_magic.forecast.advice.finding import CONCURRENT, Finding, Outlook
from agent_magic.forecast.advice.rules import OF_PLANS, RULES
from agent_magic.forecast.advice.structure import (
    WORTH_IT,
    awaits_in_loops,
    dollars_over_one,
    is_all_there,
    worth_it,
)
from agent_magic.measure.frames import make_frame
from agent_magic.record.display import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from agent_magic.forecast.estimate.value import Estimate
    from agent_magic.record.prices import Prices

ADVICE: Mapping[str, str] = {
    "rule": "string",
    "action": "string",
    "measured": "string",
    "change": "string",
    "saves_s": "Float64",
    "saves_usd": "Float64",
    "forecast_s": "Float64",
    "forecast_usd": "Float64",
    "basis": "string",
    "assumed": "string",
    "source": "string",
    "where": "string",
    "edit": "string",
}
COLUMNS = 80
LEAST_S, LEAST_USD = 0.05, 0.00005
"""Smaller gains would read as 0, so they are not shown."""
APPLIED = " Applied: the next run has it."
BY = ("seconds", "dollars")


@dataclass(frozen=True, slots=True, repr=False)
class Advice(Shown):
    """Advice on a run.

    Attributes:
        findings: One per rule with a number, the largest savings first, settled ones last.
        wall_s: Wall time of the run.
        cost_usd: Cost of the run; `None` if unknown.
        simulated: True if its answers are simulated.
        planned: True for a plan that has not run: seconds and dollars are those of its estimate.
    """

    findings: tuple[Finding, ...]
    wall_s: float | None = field(kw_only=True)
    cost_usd: float | None = field(kw_only=True)
    simulated: bool = field(kw_only=True)
    planned: bool = field(default=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def changes(self) -> tuple[Finding, ...]:
        """The recommended changes, possibly none."""
        return tuple(one for one in self.findings if one.change)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per rule with a number; columns are `ADVICE`.

        `action` is `change`, `applied` or `keep`. `saves_s` and `saves_usd` are differences of two forecasts, negative
        for losses; `forecast_s` and `forecast_usd` are the run with the change. `NaN` without a forecast or a known
        price. `basis` is the basis of the forecast: `measured` durations of this run, the `ledger`'s history, or
        `assumed`, explained by `assumed`.
        """
        return make_frame([{name: getattr(one, name) for name in ADVICE} for one in self.findings], ADVICE)

    def marked(self, is_applied: Callable[[Finding], bool]) -> Advice:
        """Return the advice with applied changes marked."""
        marked = [replace(one, applied=bool(one.change) and is_applied(one)) for one in self.findings]
        return replace(self, findings=tuple(marked))

    def __repr__(self) -> str:
        took = "" if self.wall_s is None else f" {seconds(self.wall_s)}"
        cost = "" if self.cost_usd is None else f", {dollars(self.cost_usd)}"
        what = "Lint of a plan" if self.planned else "Advice on a run"
        head = f"{what} of{took}{cost}{', simulated' if self.simulated else ''}"
        fine = [one for one in self.findings if not one.change]
        lines = [head, *(_told(number, one) for number, one in enumerate(self.changes, 1))]
        if not self.changes:
            lines.append("Nothing to improve: no rule finds a change that pays.")
        return "\n".join([*lines, *(_wrapped("ok ", f"{one.rule}: {one.measured}") for one in fine)])


def _wrapped(first: str, text: str) -> str:
    behind = " " * len(first)
    return fill(text, COLUMNS, initial_indent=first, subsequent_indent=behind, break_on_hyphens=False)


def _told(number: int, one: Finding) -> str:
    said = [one.change + (APPLIED if one.applied else ""), _worth(one), f"Why: {one.measured}"]
    said += [f"Write: {one.edit} (where: {one.where})"] if one.edit else []
    first, *others = [*said, f"Rule: {one.rule}. From {one.source}."]
    mark = f"{number}. "
    return "\n".join([_wrapped(mark, first), *(_wrapped(" " * len(mark), text) for text in others if text)])


def _worth(one: Finding) -> str:
    amounts = [(one.saves_s, LEAST_S, seconds), (one.saves_usd, LEAST_USD, dollars)]
    told = [(value, write(abs(value))) for value, least, write in amounts if value is not None and abs(value) >= least]
    words = [
        ("saves", [text for value, text in told if value > 0]),
        ("costs", [text for value, text in told if value < 0]),
    ]
    gain = " and ".join(f"{word} {' and '.join(texts)}" for word, texts in words if texts)
    then = f" The run then takes {seconds(one.forecast_s)}." if known(one.forecast_s) is not None else ""
    trust = f" {one.basis.capitalize()}{': ' + one.assumed if one.assumed else ''}."
    return f"It {gain}.{then}{trust}" if gain else trust.strip() if one.assumed else ""


def _by_seconds(one: Finding) -> tuple[bool, float, float]:
    return not one.change, -(one.saves_s or 0.0), -(one.saves_usd or 0.0)


def _by_dollars(one: Finding) -> tuple[bool, float, float]:
    return not one.change, -(one.saves_usd or 0.0), -(one.saves_s or 0.0)


def advise(outlook: Outlook, wall_s: float | None, cost_usd: float | None, *, by: str = "seconds") -> Advice:
    """Apply every rule to a run; `by` orders the findings, or is one of `SITUATIONS`."""
    if not is_word(by, words := (*BY, *SITUATIONS)):
        raise must_be("by or situation", f"one of {', '.join(words)}", by, did_you_mean(by, words))
    row, worked = SITUATIONS.get(by), any(result.attempts for result in outlook.record.results)
    told = [found for rule in RULES if (found := rule(outlook)) is not None] if worked else []
    told = told if row is None else [fitting(one, row) for one in told]
    told.sort(key=_by_dollars if (by if row is None else row.by) == "dollars" else _by_seconds)
    if row is not None and worked and not is_all_there(outlook):  # it answers what `worth_it` leaves open
        answer = in_situation(outlook, by, dollars_over_one(outlook))
        told = [answer, *(one for one in told if one.rule != WORTH_IT)]
    return Advice(tuple(told), wall_s=wall_s, cost_usd=cost_usd, simulated=outlook.record.simulated)


def lint(estimate: Estimate, cells: Sequence[str] = (), prices: Prices | None = None) -> Advice:
    outlook = Outlook(estimate.repeat(prices=prices))
    told = [found for rule in OF_PLANS if (found := rule(outlook)) is not None]
    told += [found] if (found := awaits_in_loops(cells)) is not None else []
    cost = None if estimate.cost is None else estimate.cost.likely
    rows = [_from_estimate(one, estimate, cost) for one in told]
    return Advice(
        tuple(sorted(rows, key=_by_seconds)),
        wall_s=estimate.wall_s.likely,
        cost_usd=cost,
        simulated=estimate.simulated,
        planned=True,
    )


def _from_estimate(one: Finding, estimate: Estimate, cost_usd: float | None) -> Finding:
    # The forecast behind both savings knows no wait for a first reply, so it takes less than the estimate.
    told = replace(one, basis=estimate.basis, assumed="")  # the estimate says what that stands on
    if one.forecast_s is None or one.saves_s is None:
        return told
    usd = None if cost_usd is None or one.saves_usd is None else cost_usd - one.saves_usd
    return replace(told, forecast_s=estimate.wall_s.likely - one.saves_s, forecast_usd=usd)


def several_or_one(estimate: Estimate, prices: Prices | None = None) -> str:
    found = worth_it(Outlook(estimate.repeat(prices=prices)))
    return "" if found is None else found.measured


class _Situation(NamedTuple):
    """A row of the matrix."""

    by: str
    least_saved: float  # share of the time from which several agents are worth it; 1 is never
    most_dollars: float  # as a multiple of one agent's
    because: str


NEVER: Final = 1.0
SITUATIONS: Final[dict[str, _Situation]] = {
    "emergency fix": _Situation("seconds", 0.05, math.inf, "somebody waits for it, whatever it costs"),
    "release": _Situation("seconds", 0.1, 3.0, "several views find more, and a mistake is dear"),
    "large review": _Situation("seconds", 0.2, 2.0, "many parts that do not need each other"),
    "routine change": _Situation("dollars", 0.3, 1.25, "it happens often, and nobody is in a hurry"),
    "cost-sensitive": _Situation("dollars", 0.1, 1.05, "dollars count more than seconds"),
    "exploration": _Situation("dollars", 0.2, 1.5, "most of it will be thrown away"),
    "shared account": _Situation("dollars", 0.2, 1.25, "others need the same rate limits"),
    "nightly job": _Situation("dollars", NEVER, 1.0, "nobody waits for it, so a batch at half price will do"),
}
"""Source of the question: the decision matrix of `CONCURRENT`."""


def in_situation(outlook: Outlook, name: str, multiple: float | None) -> Finding:
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


def _choice(row: _Situation, saved: float, multiple: float | None) -> str:
    if row.least_saved == NEVER:
        return "send a batch"
    if saved < row.least_saved:
        return "take one"
    if multiple is None and row.most_dollars < math.inf:
        return "it depends on the dollars"
    return "take several" if multiple is None or multiple <= row.most_dollars else "take one"


def fitting(one: Finding, row: _Situation) -> Finding:
    """Drop a finding's change if it costs what counts in the situation."""
    gain = one.saves_s if row.by == "seconds" else one.saves_usd
    if not one.change or gain is None or gain >= 0:
        return one
    loss = seconds(-gain) if row.by == "seconds" else dollars(-gain)
    kept = f"{one.measured} Its change is left out, as it costs {loss}: {one.change}"
    return replace(one, measured=kept, change="", edit="", apply={}, options={})
