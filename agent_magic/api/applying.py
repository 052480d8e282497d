"""Changes after a run: `run.apply(...)` makes a plan and policy of advice, and `run.edit(...)` replaces an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import ndiff
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from agent_magic import forecast, measure
from agent_magic.declare.agent import DEFAULT_MAX_TOKENS
from agent_magic.declare.declared import (
    ANEW,
    askers,
    changed_options,
    declared,
    declared_anew,
    declared_names,
    with_options,
)
from agent_magic.declare.grouping import taken_apart
from agent_magic.declare.plan import Plan
from agent_magic.declare.values import as_json
from agent_magic.errors import DeclarationError, InvalidAnswer, shown_value
from agent_magic.measure.scores import answers_of
from agent_magic.record.answer import Answer, Usage
from agent_magic.record.ledger.reviews import edited

if TYPE_CHECKING:
    from agent_magic.declare.step import Step
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.advice.finding import Options
    from agent_magic.forecast.forecast import Forecaster
    from agent_magic.measure.trial import Setting, Trial
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.results import AgentResult, RunRecord

P = TypeVar("P", bound=Plan)
_SET = "%agents limits and %agents prices set them."
_CONNECT = "am.Pool(..., route=...) and %agents connect NAME --route set it."
_NOBODY: Final = "An outage is only forecast: it cannot be applied."
OUTSIDE: Final = {"limits": _SET, "prices": _SET, "route": _CONNECT, "outage": _NOBODY}
"""Advice for arguments of what-ifs that no declaration has."""
DROPPED, BACK = "dropped", "declared again"
HINT: Final = "Give a row of run.whatif(...), one of run.advise().changes, or what a trial found."


@dataclass(frozen=True, slots=True, repr=False)
class Applied(Generic[P]):
    """A plan and a policy with applied changes. Nothing was sent: `await found.plan.run(found.policy)`.

    Attributes:
        plan: The plan with changed agents.
        policy: The changed policy.
        agents: Changed options by agent or group: before and after.
        defaults: Changed fields of the policy: before and after.
    """

    plan: P
    policy: Policy
    agents: Mapping[str, Mapping[str, tuple[Any, Any]]]
    defaults: Mapping[str, tuple[Any, Any]]

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """The changes: agent, option, before and after. Prompts are in `prompts`."""
        found = [
            (name, option, *(("", "") if option in {DROPPED, BACK} else (_word(option, before), _word(option, after))))
            for name, options in self.agents.items()
            for option, (before, after) in options.items()
            if option != "prompt"
        ]
        return [*found, *(("run", name, str(before), str(after)) for name, (before, after) in self.defaults.items())]

    @property
    def prompts(self) -> dict[str, str]:
        """Changed lines of prompts by agent, `- ` before and `+ ` after."""
        found = {name: options["prompt"] for name, options in self.agents.items() if "prompt" in options}
        return {
            name: "\n".join(one.rstrip() for one in ndiff(before.splitlines(), after.splitlines()) if one[0] in "-+")
            for name, (before, after) in found.items()
        }

    @property
    def lines(self) -> list[str]:
        """The changes, a line each, and the lines of prompts; empty without any."""
        found = [f"{name}: {option}" + (f" {old} -> {new}" if old else "") for name, option, old, new in self.rows]
        return [*found, *(f"{name}: prompt\n{lines}" for name, lines in self.prompts.items())]

    @property
    def undone(self) -> list[str]:
        """The changes made by an undo, as in `lines`."""
        agents = {
            name: {BACK if option == DROPPED else option: (pair[1], pair[0]) for option, pair in options.items()}
            for name, options in self.agents.items()
        }
        defaults = {name: (after, before) for name, (before, after) in self.defaults.items()}
        return Applied(self.plan, self.policy, agents, defaults).lines

    def __repr__(self) -> str:
        return "\n".join(self.lines) or "Nothing to change: these settings are in effect already."


class Change(NamedTuple):
    """A change: arguments of `run.whatif`, and options by agent or group that no what-if has."""

    whatif: Mapping[str, Any]
    options: Options = MappingProxyType({})


def apply_to(kind: type[P], forecaster: Forecaster, what: object, trials: Sequence[Trial]) -> Applied[P]:
    """Return a run's plan with a change, or raise `DeclarationError` if no declaration changes."""
    plan, asked = forecaster.record.plan, _change_of(forecaster.record, what, trials)
    scenario = forecast.whatif.scenarios_of(forecaster, asked.whatif)[0].scenario
    changes: dict[int, dict[str, Any]] = {}
    for option, values in (("model", scenario.models), ("effort", scenario.efforts)):
        for number, value in values.items():
            changes.setdefault(number, {})[option] = value
    for number, options in scenario.sent.items():
        changes.setdefault(number, {}).update(options)
    anew = _anew(plan, asked)
    for name, options in asked.options.items():
        for number in askers(plan, plan.numbers([name])):
            changes.setdefault(number, {}).update({key: one for key, one in options.items() if key not in ANEW})
    made = with_options(kind, plan, {number: one for number, one in changes.items() if one}, without=scenario.dropped)
    agents = changed_options(plan, made)
    for name, options in anew.items():
        agents.setdefault(name, {}).update(options)
    if anew:
        options = {name: {option: after for option, (_, after) in each.items()} for name, each in anew.items()}
        made = declared_anew(kind, made, options)
    policy, before = scenario.policy or forecaster.policy, forecaster.policy
    pairs = {name: (getattr(before, name), getattr(policy, name)) for name in forecast.whatif.POLICY_WORDS}
    return Applied(made, policy, agents, {k: pair for k, pair in pairs.items() if pair[0] != pair[1]})


def _anew(plan: Plan, asked: Change) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return changed options that determine the steps, by declared name: before and after."""
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    for one in declared(plan):
        options = {key: each for key, each in asked.options.get(one.name, {}).items() if key in ANEW}
        # A loop or a map reserves its maximum, and a what-if asks for fewer of all of them.
        options |= {key: int(asked.whatif[key]) for key in ("rounds", "most") if key in asked.whatif}
        for option, after in options.items():
            before = getattr(one, option)
            if before != after and (option == "group" or (before is not None and before > after)):
                found.setdefault(one.name, {})[option] = (before, after)
    return found


def _change_of(record: RunRecord, what: object, trials: Sequence[Trial]) -> Change:
    if isinstance(what, measure.trial.Trial):
        if what.chosen is None:
            raise DeclarationError(f"The trial chose no setting: {what.headline()}.", hint="Look at trial.frame.")
        return Change(_of_setting(record, what.chosen, what.target))
    if isinstance(what, measure.trial.Setting):
        return Change(_of_setting(record, what, trials[-1].target if trials else None))
    if isinstance(what, forecast.Finding):
        if not (what.apply or what.options):
            by_hand = f" Write: {what.edit} (where: {what.where})." if what.edit else ""
            raise DeclarationError(f"Only you can do that: {what.change or what.measured}{by_hand}")
        return Change(dict(what.apply), what.options)
    given: Any = what
    if hasattr(given, "columns") and hasattr(given, "iloc"):
        if len(given) != 1:
            raise DeclarationError(
                f"A frame of {len(given)} rows is not a change: choose one row.", hint="row = frame.iloc[0]"
            )
        given = given.iloc[0]
    row: Any = given.to_dict() if hasattr(given, "to_dict") else given
    if not hasattr(row, "keys"):
        raise DeclarationError(f"{shown_value(what)} cannot be applied.", hint=HINT)
    found = _of_row(row, record.plan)
    if found.get("model") == forecast.whatif.recorded_models(record):
        found["model"] = None
    return Change(found)


def _of_setting(record: RunRecord, setting: Setting, target: str | None) -> dict[str, Any]:
    names = [one.result.name for one in answers_of(record, target)] if target else list(record.plan.names)
    return {option: dict.fromkeys(names, value) for option, value in setting._asdict().items() if value is not None}


def _of_row(row: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Return a row's arguments: its columns of that name, except `NA`."""
    given = {name: row[name] for name in forecast.whatif.ARGUMENTS if name in row and _is_said(row[name])}
    for name, hint in OUTSIDE.items():
        if given.pop(name, None):
            raise DeclarationError(f"No declared agent sets {name}.", hint=hint)
    for name in ("model", "effort", "drop"):
        text = given.get(name)
        if isinstance(text, str) and " for " in text:
            given[name] = _of_words(name, text, plan)
        if name == "drop" and isinstance(text, str) and ", " in text:
            given[name] = tuple(text.split(", "))
    if not given:
        raise DeclarationError("This row changes no declared setting.", hint=HINT)
    for name in ("concurrency", "rounds", "most"):
        if name in given:
            given[name] = int(given[name])
    return given


def _of_words(option: str, text: str, plan: Plan) -> dict[str, str]:
    """Parse a row's models by agent: `claude-haiku-5-5 for facts; claude-opus-5-5 for the rest`."""
    found: dict[str, str] = {}
    for part in text.split("; "):
        value, _, names = part.rpartition(" for ")
        if names != forecast.whatif.THE_REST:
            found |= dict.fromkeys(names.split(", "), value)
    known = {*plan.index, *plan.groups}
    if not found or not known.issuperset(found):
        hint = f"Give it as it was asked for: run.apply({{{option!r}: {{'agent': ...}}}})."
        raise DeclarationError(f"{option}={text!r} names no agents of the plan.", hint=hint)
    return found


def _is_said(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | str) or (value == value and value is not None and str(value) != "<NA>")  # noqa: PLR0124 - NaN


USUAL: Final = {"context": "none", "group": "none", "max_tokens": f"{DEFAULT_MAX_TOKENS} by default"}
"""How an option reads that is not given."""


def _word(option: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return USUAL.get(option, "as it is by default") if value is None else str(value)


def edit(record: RunRecord, name: str, text: Any, ledger: SqliteLedger | None) -> list[str]:
    """Put an answer in place of an agent's; see `Run.edit`."""
    result = editable(record, name)
    number = record.plan.index[result.name]
    agent = record.plan.agents[number]
    said = text if isinstance(text, str) else as_json(text)
    try:
        _check_answer(agent, said)
    except InvalidAnswer as error:
        raise DeclarationError(f"The edited answer of {name!r} does not fit: {error}", agent=name) from None
    first = result.attempts[0].request
    before = result.answer or Answer("", "end_turn", usage=Usage(), model=result.model)
    answer, key = edited(before, said), first.key(record.origin)
    record.edits[result.name, key] = answer
    if ledger is not None:
        ledger.edits.keep(result.name, key, answer)
    names = declared_names(record.plan)
    return list(dict.fromkeys(names[one] for one in sorted(record.plan.dag.descendants([number]))))


def unedit(record: RunRecord, name: str, ledger: SqliteLedger | None) -> None:
    result = editable(record, name)
    kept = {place: one for place, one in record.edits.items() if place[0] != result.name}
    record.edits.clear()
    record.edits.update(kept)
    if ledger is not None:
        ledger.edits.drop(result.name, result.attempts[0].request.key(record.origin))


def editable(record: RunRecord, name: str) -> AgentResult:
    """Return the result with an editable answer."""
    members = [record.plan.agents[one] for one in record.plan.groups.get(name, {}).values()]
    if any(one.part is not None and not one.part.rounds for one in members):
        hint = f"Name one, such as {members[0].name}."
        raise DeclarationError(f"{name!r} is {len(members):,} answers.", agent=name, hint=hint)
    result = record[name]
    if result.is_task:
        hint = "Edit an agent before it, or change the function."
        raise DeclarationError(f"{name!r} is a function: its result is not a model's answer.", agent=name, hint=hint)
    if not result.attempts:
        hint = "%agents run asks it first; to do without the model, make it a variable of that name."
        raise DeclarationError(
            f"{name!r} was not asked in this run, so it has no answer to edit.", agent=name, hint=hint
        )
    return result


def _check_answer(agent: Step, text: str) -> None:
    """Refuse a text that does not fit the agent's type or check."""
    if not text.strip():
        raise InvalidAnswer("it is empty")
    if agent.part is not None and agent.part.asks:
        fault = taken_apart(agent, text)[1]
        if fault is not None:
            raise fault
        return
    value = text if agent.returns is None else agent.returns.value(text)
    if agent.check is not None:
        agent.check.run(value)
