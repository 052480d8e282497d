"""Text for `%agents`, `%agents show` and `%agents error`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_magic.declare.each import Part
from agent_magic.declare.plan import Plan
from agent_magic.errors import AgentMagicError
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.show.states import state_of
from agent_magic.show.text import counts_line, plan_text
from agent_magic.show.units import count, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.api import Run
    from agent_magic.declare.context import Context
    from agent_magic.notebook.session import Session


MOST_ERRORS = 5


def declared_text(session: Session, plan: str, namespace: Mapping[str, Any]) -> str:
    """List the declared agents by layer, with what is undefined and what is stale."""
    registry = session.registry(plan)
    if not len(registry):
        others = f"\nOther plans: {', '.join(session.plans)}." if session.plans else ""
        return f"No agents are declared in {plan!r}. Write a cell that starts with %%agent NAME.{others}"
    values = dict(registry.values(namespace))
    undefined = {agent.name: registry.undefined(agent, namespace) for agent in registry.agents}
    values.update({name: "" for names in undefined.values() for name in names})
    values.update({one.name: "" for one in registry.contexts})
    lines: list[str] = []
    try:
        lines.append(plan_text(_lenient(registry.agents, values, plan)))
    except AgentMagicError as error:
        lines += [f"{plan}: {', '.join(agent.name for agent in registry.agents)}", f"  {error}"]
    lines += [f"  {agent.name}: one for each of {agent.each}" for agent in registry.agents if agent.each]
    lines += [_context_line(one, session.sharing(one.name, plan), namespace) for one in registry.contexts]
    lines += [f"  {name}: not defined yet: {', '.join(names)}" for name, names in undefined.items() if names]
    if registry.stale:
        lines.append(f"  stale since the last run: {', '.join(registry.stale)}")
    return "\n".join(lines)


def running_text(session: Session) -> str:
    """Say of each run under way how far it is, and how it fares; an empty string where nothing runs."""
    lines: list[str] = []
    for driver in session.running:
        states, now_s, health = "".join(map(state_of, driver.record.results)), driver.now(), driver.health()
        fares = f" · {health.reason}" if health.reason else ""
        paused = " · paused" if driver.paused else ""
        lines.append(f"{driver.plan.name}, running for {seconds(now_s)}: {counts_line(states)}{paused}{fares}")
    return "\n".join([*lines, "%agents stop ends it."]) if lines else ""


def _context_line(context: Context, agents: Sequence[str], namespace: Mapping[str, Any]) -> str:
    lacking = [name for name in context.uses if name not in namespace]
    if lacking:
        size = f"not defined yet: {', '.join(lacking)}"
    else:
        size = f"about {count(len(context.written(namespace)) // CHARS_PER_TOKEN)} tokens"
    return f"  context {context.name}: {size}, shared by {', '.join(agents) or 'nobody yet'}"


def agent_text(run: Run, name: str) -> str:
    """Write the answer of an agent, or the part of it that had arrived."""
    result = run[name]
    if result.text:
        return result.text
    return f"{name} has no text: {result.status}{f' ({result.error})' if result.error else ''}."


def agent_error(run: Run, name: str) -> str:
    """Write all that is known of why an agent did not succeed."""
    if name in run.plan.groups:
        members = [run.record.results[number] for number in run.plan.groups[name].values()]
        failed = [one.name for one in members if one.error is not None]
        more = [f"… and {len(failed) - MOST_ERRORS:,} more"] if len(failed) > MOST_ERRORS else []
        told = [agent_error(run, one) for one in failed[:MOST_ERRORS]]
        return "\n".join([f"{name}: {len(failed):,} of {len(members):,} failed", *told, *more])
    result = run[name]
    if result.error is None and not any(attempt.error for attempt in result.attempts):
        return f"{name}: {result.status}."
    lines = [
        f"{name}: {result.status}" + (f": {result.error}" if result.error else ""),
        f"  model {result.model}, {plural(len(result.attempts), 'attempt')}",
    ]
    for attempt in result.attempts:
        took = "" if attempt.api_s is None else f" after {attempt.api_s:.1f} s"
        status = "" if attempt.status_code is None else f" (HTTP {attempt.status_code})"
        lines.append(f"  attempt {attempt.number}{status}{took}: {attempt.error or attempt.status}")
        if attempt.partial:
            lines.append(f"    {len(attempt.partial):,} characters had arrived: {attempt.partial[:200]!r}")
    return "\n".join(lines)


def _lenient(agents: tuple[Any, ...], values: Mapping[str, Any], name: str) -> Plan:
    """Make a plan of agents whose parents may not all be declared yet, each once, whatever it is for each of."""
    known = {agent.name for agent in agents}
    mended = tuple(
        replace(
            agent,
            after=tuple(one for one in agent.after if one in known),
            each=None,
            part=Part(agent.name, agent.each, 0, 0, "") if agent.each else None,
        )
        for agent in agents
    )
    return Plan(mended, values, name=name)
