"""`run.apply(...)`: a recommendation, a row of a what-if, or what a trial chose, as a changed plan and policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_magic.api.plan import Plan
from agent_magic.declare.changes import changed_options, with_options
from agent_magic.declare.units import plural
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.forecast.advice.rules import Finding
from agent_magic.forecast.whatif import ARGUMENTS, POLICY_WORDS, scenarios_of
from agent_magic.measure.scores import answers_of
from agent_magic.measure.trial import Setting, Trial

if TYPE_CHECKING:
    from agent_magic.api.run import Run
    from agent_magic.engine.policy import Policy

_SET = "%agents limits and prices set those two."
_DECLARE = "Declare the step anew, with another --rounds or --most."
_CONNECT = "am.Pool(..., route=...) and %agents connect NAME --route set it."
OUTSIDE: Final = {"limits": _SET, "prices": _SET, "rounds": _DECLARE, "most": _DECLARE, "route": _CONNECT}
"""What a what-if can ask about and cannot be applied, and what to do instead."""
HINT: Final = "Give a row of run.whatif(...), one of run.advise().changes, or what a trial found."


@dataclass(frozen=True, slots=True, repr=False)
class Applied:
    """A plan and a policy with what was applied. Nothing was sent: `await found.plan.run(found.policy)`.

    Attributes:
        plan: The plan with changed agents.
        policy: How to run it.
        agents: Per name of an agent or group, the options that changed: before and after.
        defaults: Per field of the policy that changed, before and after.
    """

    plan: Plan
    policy: Policy
    agents: Mapping[str, Mapping[str, tuple[Any, Any]]]
    defaults: Mapping[str, tuple[Any, Any]]

    @property
    def lines(self) -> list[str]:
        """What changed, a line each; empty where all is so already."""
        found = [
            f"{name}: {option} {_word(before)} -> {_word(after)}" if option != "dropped" else f"{name}: dropped"
            for name, options in self.agents.items()
            for option, (before, after) in options.items()
        ]
        return [*found, *(f"run: {name} {before} -> {after}" for name, (before, after) in self.defaults.items())]

    def __repr__(self) -> str:
        return "\n".join(self.lines) or "Nothing changes: all is so already."


def apply_to(run: Run, what: object) -> Applied:
    """Return the run's plan with a change.

    Args:
        run: The run.
        what: A row of a what-if, a finding of an advice or its number, a trial, or a setting of one.

    Raises:
        DeclarationError: It changes nothing that is declared, or cannot be read.
    """
    plan, forecaster = run.plan, run.forecaster()
    scenario = scenarios_of(forecaster, _changes(run, what))[0].scenario
    changes: dict[int, dict[str, Any]] = {}
    for option, values in (("model", scenario.models), ("effort", scenario.efforts)):
        for number, value in values.items():
            changes.setdefault(number, {})[option] = value
    made = with_options(Plan, plan, changes, without=scenario.dropped)
    policy, before = scenario.policy or forecaster.policy, forecaster.policy
    pairs = {name: (getattr(before, name), getattr(policy, name)) for name in POLICY_WORDS}
    return Applied(
        made, policy, changed_options(plan, made), {k: pair for k, pair in pairs.items() if pair[0] != pair[1]}
    )


def _numbered(run: Run, number: int) -> Finding:
    """Return a change of the run's advice, counted from 1."""
    changes = run.advise().changes
    if not 0 < number <= len(changes):
        raise DeclarationError(f"There is no change {number}: run.advise() has {plural(len(changes), 'change')}.")
    return changes[number - 1]


def _changes(run: Run, what: object) -> dict[str, Any]:
    """Return what is to change as arguments of `run.whatif`."""
    what = _numbered(run, what) if isinstance(what, int) and not isinstance(what, bool) else what
    if isinstance(what, Trial):
        if what.chosen is None:
            raise DeclarationError("The trial has chosen nothing: no answer was graded.", hint="Look at trial.frame.")
        return _of_setting(run, what.chosen, what.target)
    if isinstance(what, Setting):
        return _of_setting(run, what, run.trials[-1].target if run.trials else None)
    if isinstance(what, Finding):
        if not what.apply:
            raise DeclarationError(f"Nobody but you can do that: {what.change or what.measured}")
        return dict(what.apply)
    given: Any = what
    if hasattr(given, "columns") and hasattr(given, "iloc"):
        if len(given) != 1:
            raise DeclarationError(
                f"A frame of {len(given)} rows is no change: choose one.", hint="row = frame.iloc[0]"
            )
        given = given.iloc[0]
    row: Any = given.to_dict() if hasattr(given, "to_dict") else given
    if not hasattr(row, "keys"):
        raise DeclarationError(f"{shown_value(what)} cannot be applied.", hint=HINT)
    return _of_row(row)


def _of_setting(run: Run, setting: Setting, target: str | None) -> dict[str, Any]:
    names = [one.result.name for one in answers_of(run.record, target)] if target else list(run.plan.names)
    return {option: dict.fromkeys(names, value) for option, value in setting._asdict().items() if value is not None}


def _of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a row: its columns of that name, those that are `NA` left out."""
    given = {name: row[name] for name in ARGUMENTS if name in row and _is_said(row[name])}
    for name, hint in OUTSIDE.items():
        if given.pop(name, None):
            said = f"{name} is declared with the step." if hint == _DECLARE else f"No declaration says {name}."
            raise DeclarationError(said, hint=hint)
    for name in ("model", "effort", "drop"):
        text = given.get(name)
        if isinstance(text, str) and " for " in text:
            hint = f"Give it as it was asked for: run.apply({{{name!r}: {{'agent': ...}}}})."
            raise DeclarationError(f"{name}={text!r} is words for several agents.", hint=hint)
        if name == "drop" and isinstance(text, str) and ", " in text:
            given[name] = tuple(text.split(", "))
    if not given:
        raise DeclarationError("The row changes nothing that is declared.", hint=HINT)
    if "concurrency" in given:
        given["concurrency"] = int(given["concurrency"])
    return given


def _is_said(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | str) or (value == value and value is not None and str(value) != "<NA>")  # noqa: PLR0124 - NaN


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return "as it is by default" if value is None else str(value)
