"""What is declared: listed, dropped, cleared."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.api import Plan
from agent_magic.declare.condition import flow_notes
from agent_magic.declare.each import Part
from agent_magic.errors import AgentMagicError
from agent_magic.notebook.command import CommandContext, Verb, add_names, add_plan
from agent_magic.notebook.front_end import say
from agent_magic.notebook.session import DEFAULT_PLAN
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.show.states import state_of
from agent_magic.show.text import counts_line, plan_text
from agent_magic.show.units import count, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent_magic.declare.context import Context
    from agent_magic.declare.step import Step
    from agent_magic.notebook.session import Session

FIRST_STEPS = """No agents are declared in {plan!r}. Next:
  %agents connect simulator    # the mock server; leave it out when ANTHROPIC_API_KEY is set
  a cell that starts with %%agent NAME, its prompt below    # %%agent? shows examples
  run = %agents run"""


def _list(ctx: CommandContext, given: Namespace) -> Plan | None:
    name = given.plan or DEFAULT_PLAN
    try:
        plan = ctx.freeze(Namespace(names=[], plan=name, on_cycle=None, on_missing=None))
        stale = ctx.session.stale(plan)
    except AgentMagicError:  # something is missing yet: the list says what
        plan, stale = None, []
    text = declared_text(ctx.session, name, ctx.shell.user_ns, stale)
    say("\n".join(filter(None, [text, running_text(ctx.session)])))
    ctx.session.just_shown = plan
    return plan


def _drop(ctx: CommandContext, given: Namespace) -> None:
    if not given.names:
        raise UsageError("%agents drop needs the names of agents or contexts. %agents clear drops all.")
    ctx.session.registry(given.plan or DEFAULT_PLAN).drop(given.names)
    say(f"Dropped {', '.join(given.names)}.")


def _clear(ctx: CommandContext, given: Namespace) -> None:
    registry = ctx.session.registry(given.plan or DEFAULT_PLAN)
    contexts = f" and {plural(len(registry.contexts), 'context')}" if registry.contexts else ""
    say(f"Dropped {plural(len(registry), 'agent')}{contexts} of {registry.name!r}.")
    registry.clear()


def declared_text(session: Session, plan: str, namespace: Mapping[str, Any], stale: Sequence[str] = ()) -> str:
    """Return the declared agents by layer, with what is undefined and which answers are `stale`."""
    registry = session.registry(plan)
    if not len(registry):
        others = f"\nOther plans: {', '.join(session.plans)}." if session.plans else ""
        return FIRST_STEPS.format(plan=plan) + others
    values = dict(registry.values(namespace))
    undefined = {agent.name: registry.undefined(agent, namespace) for agent in registry.agents}
    values.update({name: "" for names in undefined.values() for name in names})
    values.update({one.name: "" for one in registry.contexts})
    lines: list[str] = []
    try:
        lines.append(plan_text(Plan(_complete(registry.agents), values, name=plan)))
    except AgentMagicError as error:
        lines += [f"{plan}: {', '.join(agent.name for agent in registry.agents)}", f"  {error}"]
    each = [one for one in registry.agents if one.each]
    lines += [f"  {one.name}: one for each of {one.each}{f', at most {one.most}' if one.most else ''}" for one in each]
    lines += [f"  {one.name}: {note}" for one in registry.agents for note in flow_notes(one)]
    lines += [_context_line(one, session.sharing(one.name, plan), namespace) for one in registry.contexts]
    lines += [f"  {name}: not defined yet: {', '.join(names)}" for name, names in undefined.items() if names]
    if stale:
        lines.append(f"  stale since their last run: {', '.join(stale)}")
    return "\n".join(lines)


def _complete(agents: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the agents without parents that are not declared, and each group as one agent."""
    known = {agent.name for agent in agents}
    return tuple(
        replace(
            agent,
            after=tuple(one for one in agent.after if one in known),
            each=None,
            part=_first(agent, known),
        )
        for agent in agents
    )


def _first(agent: Step, known: Collection[str]) -> Part | None:
    """Return the first item of what an agent is declared for each of."""
    if agent.each is None:
        return None
    base, *path = agent.each.split(".")
    source = base if agent.most and base in known else ""
    return Part(agent.name, agent.each, 0, 0, "", source=source, path=tuple(path), most=agent.most or 0)


def _context_line(context: Context, agents: Sequence[str], namespace: Mapping[str, Any]) -> str:
    missing = [name for name in context.uses if name not in namespace]
    if missing:
        size = f"not defined yet: {', '.join(missing)}"
    else:
        size = f"about {count(len(context.render(namespace)) // CHARS_PER_TOKEN)} tokens"
    return f"  context {context.name}: {size}, shared by {', '.join(agents) or 'nobody yet'}"


def running_text(session: Session) -> str:
    """Return how far each run under way is, and its health; an empty string where nothing runs."""
    lines: list[str] = []
    for driver in session.running:
        states, now_s, health = "".join(map(state_of, driver.record.results)), driver.now(), driver.health()
        reason = f" · {health.reason}" if health.reason else ""
        paused = " · paused" if driver.paused else ""
        lines.append(f"{driver.plan.name}, running for {seconds(now_s)}: {counts_line(states)}{paused}{reason}")
    return "\n".join([*lines, "%agents stop ends it."]) if lines else ""


VERBS = {
    "list": Verb(
        "List the declared agents by layer, and what runs. Returns the plan.",
        add_plan,
        _list,
        examples=("%agents", "%agents --plan review", "plan = %agents    # the plan, for the Python API"),
    ),
    "drop": Verb("Drop agents or contexts.", add_names, _drop, examples=("%agents drop draft critic",)),
    "clear": Verb(
        "Drop all agents and contexts of a plan.",
        add_plan,
        _clear,
        examples=("%agents clear", "%agents clear --plan review"),
    ),
}
