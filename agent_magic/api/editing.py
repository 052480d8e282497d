"""`run.edit("writer", text)`: an answer of the user's in place of a model's, and what depends on it asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.declare.declared import declared_names
from agent_magic.declare.grouping import taken_apart
from agent_magic.declare.values import as_json
from agent_magic.errors import DeclarationError, InvalidAnswer
from agent_magic.record.answer import Answer, Usage
from agent_magic.record.ledger.reviews import edited

if TYPE_CHECKING:
    from agent_magic.declare.step import Step
    from agent_magic.record.ledger.store import SqliteLedger
    from agent_magic.record.results import AgentResult, RunRecord


def edit(record: RunRecord, name: str, text: Any, ledger: SqliteLedger | None) -> list[str]:
    """Put an answer in place of an agent's; see `Run.edit`."""
    result = editable(record, name)
    number = record.plan.index[result.name]
    agent = record.plan.agents[number]
    said = text if isinstance(text, str) else as_json(text)
    try:
        check(agent, said)
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


def check(agent: Step, text: str) -> None:
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
