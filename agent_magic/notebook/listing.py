"""Text for `%agents`, `%agents show` and `%agents error`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_magic.declare.plan import Plan
from agent_magic.errors import PlanError
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.show.text import plan_text
from agent_magic.show.units import count, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.api import Run
    from agent_magic.declare.context import Context
    from agent_magic.notebook.registry import Registry
    from agent_magic.notebook.session import Session


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
    except PlanError as error:
        lines += [f"{plan}: {', '.join(agent.name for agent in registry.agents)}", f"  {error}"]
    lines += [_context_line(registry, context, namespace) for context in registry.contexts]
    lines += [f"  {name}: not defined yet: {', '.join(names)}" for name, names in undefined.items() if names]
    if registry.stale:
        lines.append(f"  stale since the last run: {', '.join(registry.stale)}")
    return "\n".join(lines)


def _context_line(registry: Registry, context: Context, namespace: Mapping[str, Any]) -> str:
    lacking = [name for name in context.uses if name not in namespace]
    if lacking:
        size = f"not defined yet: {', '.join(lacking)}"
    else:
        size = f"about {count(len(context.written(namespace)) // CHARS_PER_TOKEN)} tokens"
    agents = [agent.name for agent in registry.sharing(context.name)]
    return f"  context {context.name}: {size}, shared by {', '.join(agents) or 'nobody yet'}"


def agent_text(run: Run, name: str) -> str:
    """Write the answer of an agent, or the part of it that had arrived."""
    result = run[name]
    if result.text:
        return result.text
    return f"{name} has no text: {result.status}{f' ({result.error})' if result.error else ''}."


def agent_error(run: Run, name: str) -> str:
    """Write all that is known of why an agent did not succeed."""
    result = run[name]
    if result.error is None:
        return f"{name}: {result.status}."
    lines = [
        f"{name}: {result.status}: {result.error}",
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
    """Make a plan of agents whose parents may not all be declared yet."""
    known = {agent.name for agent in agents}
    mended = tuple(replace(agent, after=tuple(one for one in agent.after if one in known)) for agent in agents)
    return Plan(mended, values, name=name)
