"""Findings of rules, their common words, and the forecasts with one change each that they ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from agent_magic.declare.declared import declared_names
from agent_magic.declare.units import times
from agent_magic.forecast.forecast import Scenario
from agent_magic.measure.path import works

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.forecast.evidence import Seen
    from agent_magic.forecast.forecast import Forecast, Forecaster
    from agent_magic.measure.trial import Trial


CONCURRENT = '"Technical Architecture: Concurrent vs. Parallel Execution", git.openharbor.io/svrnty/claude-skills'
TOKENS = '"Token Usage & Cost Analysis", git.openharbor.io/svrnty/claude-skills'
SPECIFICATION = '"Parallel Agent Architecture Specification"'
DEEP_DIVE = '"Parallel Execution - Deep Dive"'
LAYERS = '"Parallel Execution Architecture", Meta-Agent System'
SCALING = '"Agent Scaling Analysis & Solutions", github.com/rawjaws/anvil'

PRACTICES: Final[Mapping[int, str]] = {
    1: "have every context ready before the first call",
    2: "make the calls together, without a loop or an await between them",
    3: "check by times whether they ran at once",
    4: "put two to six tasks into a group",
    5: "have tasks of a group take about as long",
    6: "let the critical path go first",
    7: "find who changes the same files",
    8: "write down before how much is expected to be saved",
    9: "measure afterwards how much it was",
    10: "regroup where less than half of the time is saved",
}
"""The ten practices of `DEEP_DIVE`, in our words."""


def practices(*numbers: int) -> str:
    return f"{DEEP_DIVE}: {'; '.join(f'practice {one}, {PRACTICES[one]}' for one in numbers)}"


ALIKE = 0.9
"""Agents with at least this share of the dearest one's cost are judged together with it."""
LEAST_PREFIX = 1024
"""The shortest shared text worth naming, in tokens: the least that a provider caches."""
WORTH = 0.05
"""A change must save this share of the run: forecasts are not more exact."""


Action = Literal["change", "applied", "keep"]
Options: TypeAlias = "Mapping[str, Mapping[str, Any]]"
UNLIMITED: Final = "the rate limits are unknown, and none are assumed"
BRACES: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
"""Placeholders in a prompt; the rest is its own text."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one rule.

    Attributes:
        rule: The rule's name.
        measured: Its evidence, in numbers of this run.
        change: The change in words; empty if all is fine.
        source: Source of the rule.
        saves_s: Seconds saved; `None` without a forecast.
        saves_usd: Dollars saved; `None` if unknown.
        forecast_s: Seconds of the run with the change.
        forecast_usd: Dollars of the run with the change.
        basis: Basis of the forecast: `measured`, `ledger` or `assumed`.
        assumed: Assumptions in words.
        where: The agents or cells concerned.
        edit: The change as text to write.
        apply: The change as arguments of `run.whatif`, for `run.apply`.
        options: The change as options by agent, such as `{"label": {"max_tokens": 400}}`, likewise. If both are empty,
            only a person can make it.
        applied: True if the declarations already have the change.
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
    where: str = field(default="", kw_only=True)
    edit: str = field(default="", kw_only=True)
    apply: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    options: Options = field(default_factory=dict[str, "Mapping[str, Any]"], kw_only=True)
    applied: bool = field(default=False, kw_only=True)

    @property
    def action(self) -> Action:
        """The action: `change`, none as it is `applied`, or `keep`."""
        return "applied" if self.applied else "change" if self.change else "keep"

    def at(self, where: str, edit: str, options: Options | None = None) -> Finding:
        options = options if options and self.change else {}
        return replace(self, where=where, edit=edit if self.change else "", options=options)


def found(
    outlook: Outlook,
    rule: str,
    measured: str,
    source: str,
    changed: Forecast | None = None,
    change: str = "",
    **apply: Any,
) -> Finding:
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
        assumed=assumed_of(outlook, changed),
        apply=apply if change else {},
    )


def assumed_of(outlook: Outlook, changed: Forecast) -> str:
    """Return the assumptions of a forecast; with unknown rate limits, a faster run may meet them."""
    terms = outlook.record.terms
    unknown = (terms is None or not terms.after) and pays(outlook, changed)
    return "; ".join(filter(None, [changed.note.assumed, UNLIMITED if unknown else ""]))


def pays(outlook: Outlook, changed: Forecast) -> bool:
    return outlook.saves_s(changed) > WORTH * outlook.as_it_was.wall_s


def cheapens(outlook: Outlook, saves_usd: float | None) -> bool:
    total = outlook.as_it_was.cost_usd
    return saves_usd is not None and total is not None and saves_usd > WORTH * total


def fold(value: float) -> str:
    number = times(value).removesuffix("x")
    return "" if float(number.replace(",", "")) == 1.0 else f"{number} times "


NEAR = 1.02
"""Two forecasts within this factor count as the same: they repeat a recorded run no better."""


class Outlook:
    """Answers the effect of one change on a run."""

    # Savings are differences of two forecasts, so that common errors cancel out.

    def __init__(self, forecaster: Forecaster, trials: Sequence[Trial] = ()) -> None:
        self._forecaster, self.record, self.policy = forecaster, forecaster.record, forecaster.policy
        self.prices, self.trials = forecaster.prices, trials

    @cached_property
    def names(self) -> Sequence[str]:
        return declared_names(self.record.plan)

    @cached_property
    def as_it_was(self) -> Forecast:
        return self.ask()

    @cached_property
    def unlimited(self) -> Forecast:
        return self.under(concurrency=max(1, len(self.record.plan)), schedule="ready")

    @cached_property
    def sequential(self) -> Forecast:
        return self.under(schedule="sequential")

    @property
    def seen(self) -> Sequence[Seen]:
        return self._forecaster.evidence.seen

    def ask(self, *, ranges: bool = False, **changes: Any) -> Forecast:
        return self._forecaster.forecast(Scenario(**changes), ranges=ranges)

    def under(self, **policy: Any) -> Forecast:
        return self.ask(policy=replace(self.policy, **policy))

    def saves_s(self, changed: Forecast) -> float:
        return self.as_it_was.wall_s - changed.wall_s

    def saves_usd(self, changed: Forecast) -> float | None:
        before, after = self.as_it_was.cost_usd, changed.cost_usd
        return None if before is None or after is None else before - after

    def barrier_cost_s(self) -> float:
        return self.under(schedule="layers").wall_s - self.under(schedule="ready").wall_s

    @cached_property
    def enough_slots(self) -> int:
        most, best_s = max(1, len(self.record.plan)), NEAR * self.unlimited.wall_s
        # Fewer cannot do all the work in that time.
        least = min(most, max(1, int(sum(works(self.record)) / best_s))) if best_s else 1
        while least < most:  # more slots are rarely slower, and then by little: good enough to search by halves
            middle = (least + most) // 2
            if self.under(concurrency=middle, schedule="ready").wall_s <= best_s:
                most = middle
            else:
                least = middle + 1
        return most
