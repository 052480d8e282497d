"""`run.advise()`: rules that people publish for many agents, answered with the numbers of this run.

A rule speaks only where it has a number. What it proposes is forecast by the conductor that ran the agents; what it
cannot judge, the quality of the answers, it leaves to the reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import TYPE_CHECKING, Literal

from agent_magic.declare.units import dollars, known, seconds
from agent_magic.declare.validation import is_word, must_be
from agent_magic.errors import did_you_mean
from agent_magic.forecast.advice.rules import OF_PLANS, RULES
from agent_magic.forecast.advice.structure import awaits_in_loops, worth_it
from agent_magic.forecast.forecast import Forecaster
from agent_magic.forecast.outlook import Outlook
from agent_magic.measure.frames import make_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from agent_magic.forecast.advice.finding import Finding
    from agent_magic.forecast.estimate.value import Estimate
    from agent_magic.record.prices import Prices

Action = Literal["change", "keep"]
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
"""What is less than this is not written as a gain: it would read as 0."""
BY = ("seconds", "dollars")


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """What the rules say of a run.

    Attributes:
        findings: One per rule that had a number, what saves most first, what is fine last.
        wall_s: What the run took.
        cost_usd: What it cost; `None` is unknown.
        simulated: Whether its answers are simulated.
        planned: Whether it is about a plan that has not run: seconds and dollars are those of its estimate.
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
        """What there is to change; empty where nothing is to improve."""
        return tuple(one for one in self.findings if one.change)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per rule that had a number; columns are `ADVICE`.

        `action` is `change` or `keep`. `saves_s` and `saves_usd` are differences of two forecasts, below 0 where it
        gets slower or dearer; `forecast_s` and `forecast_usd` the run with the change. `NaN` where the rule foresees
        none or a price is unknown. `basis` is what the forecast stands on: `measured` durations of this run, the
        `ledger`'s history, or `assumed`, which `assumed` explains.
        """
        names = [name for name in ADVICE if name != "action"]
        rows = [
            {**{name: getattr(one, name) for name in names}, "action": "change" if one.change else "keep"}
            for one in self.findings
        ]
        return make_frame(rows, ADVICE)

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
    """Break a paragraph into lines of a terminal, indented behind its first word."""
    behind = " " * len(first)
    return fill(text, COLUMNS, initial_indent=first, subsequent_indent=behind, break_on_hyphens=False)


def _told(number: int, one: Finding) -> str:
    """Say what to change, what it is worth, why, and what to write, a paragraph each."""
    said = [one.change, _worth(one), f"Why: {one.measured}"]
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
    """Ask every rule of a run.

    Args:
        outlook: The run, ready to be forecast.
        wall_s: What it took.
        cost_usd: What it cost.
        by: What comes first: what saves most `seconds` or most `dollars`.

    Raises:
        DeclarationError: It is neither.
    """
    if not is_word(by, BY):
        raise must_be("by", f"one of {', '.join(BY)}", by, did_you_mean(by, BY))
    worked = any(result.attempts for result in outlook.record.results)
    told = [found for rule in RULES if (found := rule(outlook)) is not None] if worked else []
    told.sort(key=_by_seconds if by == "seconds" else _by_dollars)
    return Advice(tuple(told), wall_s=wall_s, cost_usd=cost_usd, simulated=outlook.record.simulated)


def lint(estimate: Estimate, cells: Sequence[str] = (), prices: Prices | None = None) -> Advice:
    """Ask the rules of a plan that has not run: what is said stands on its estimate.

    Args:
        estimate: The estimate.
        cells: The cells of the notebook as Python.
        prices: What tokens cost; `None` is the list.
    """
    outlook = Outlook(Forecaster(estimate.likely, prices=prices))
    told = [found for rule in OF_PLANS if (found := rule(outlook)) is not None]
    told += [found] if (found := awaits_in_loops(cells)) is not None else []
    cost = None if estimate.cost is None else estimate.cost.likely
    rows = [replace(one, basis=estimate.basis, assumed="") for one in told]  # the estimate says what that stands on
    return Advice(
        tuple(sorted(rows, key=_by_seconds)),
        wall_s=estimate.wall_s.likely,
        cost_usd=cost,
        simulated=estimate.simulated,
        planned=True,
    )


def several_or_one(estimate: Estimate, prices: Prices | None = None) -> str:
    """Return the paragraph on whether several agents are worth it; empty where nothing is known. See `lint`."""
    found = worth_it(Outlook(Forecaster(estimate.likely, prices=prices)))
    return "" if found is None else found.measured
