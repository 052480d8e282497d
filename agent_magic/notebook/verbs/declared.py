"""Declarations: list, drop, clear."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.api import Plan
from agent_magic.declare.each import Part
from agent_magic.declare.units import count, plural, seconds
from agent_magic.errors import AgentMagicError
from agent_magic.notebook.command import CommandContext, Verb, add_names, add_plan
from agent_magic.notebook.front_end import is_kernel, note, say, show_page
from agent_magic.notebook.registry import resources_of
from agent_magic.notebook.session import DEFAULT_PLAN, drop_command, shown_name
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.record.display import single_line
from agent_magic.show.cards import step_facts
from agent_magic.show.page import Column, Line, Page, Table
from agent_magic.show.states import STATES, states_of
from agent_magic.show.text import counts_line, listed, steps_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agent_magic.declare.context import Context
    from agent_magic.declare.step import Step
    from agent_magic.notebook.registry import Registry
    from agent_magic.notebook.session import Session

FIRST_STEPS = (
    ("%agents connect simulator", "the mock server answers; leave it out when ANTHROPIC_API_KEY is set"),
    ("%%agent NAME", "first line of a cell, its prompt below; %%agent? shows examples"),
    ("run = %agents run", "runs what is declared, and shows the graph"),
)


def _list(ctx: CommandContext, given: Namespace) -> Plan | None:
    name = given.plan or DEFAULT_PLAN
    try:
        plan = ctx.freeze(Namespace(names=[], plan=name, on_cycle=None, on_missing=None))
        stale = ctx.session.stale(plan)
    except AgentMagicError:  # something is missing yet: the list says what
        plan, stale = None, []
    blocks = [*declared_page(ctx.session, name, ctx.shell.user_ns, stale, ctx.model).blocks, *_under_way(ctx.session)]
    show_page(Page(blocks), graphic=is_kernel(ctx.shell))
    ctx.session.just_shown = plan
    return plan


def _drop(ctx: CommandContext, given: Namespace) -> None:
    if not given.names:
        raise UsageError("%agents drop needs the names of agents or contexts. %agents clear drops all.")
    plan = given.plan or DEFAULT_PLAN
    ctx.session.registry(plan).drop(given.names)
    say(f"Dropped {', '.join(given.names)}.")
    for text in ctx.session.runs_old_text(given.names, plan):
        note(text)


def _clear(ctx: CommandContext, given: Namespace) -> None:
    registry = ctx.session.registry(given.plan or DEFAULT_PLAN)
    contexts = f" and {plural(len(registry.contexts), 'context')}" if registry.contexts else ""
    say(f"Dropped {plural(len(registry), 'agent')}{contexts} of {registry.name!r}.")
    registry.clear()


def declared_page(
    session: Session, plan: str, namespace: Mapping[str, Any], stale: Sequence[str] = (), model: str | None = None
) -> Page:
    registry, held = session.registry(plan), namespace.get(plan)
    if not len(registry) and isinstance(held, Plan):
        said = (
            f"{steps_of(held)}, in a variable. %agents plan --plan {plan} shows it, %agents run --plan {plan} runs it."
        )
        return Page([Line(said, head=f"{plan}:")])
    if not len(registry):
        others = [Line(f"Other plans: {listed(session.plans)}.", "soft")] if session.plans else []
        head = [Line(session.restarted.strip(), "soft")] if session.restarted else []
        head.append(Line(f"No agents are declared in {plan!r}. Next:"))
        return Page([*head, Table((Column("type"), Column("", "prose")), FIRST_STEPS, strong=True), *others])
    undefined = {one.name: registry.undefined(one, namespace) for one in registry.agents}
    values = {**registry.values(namespace), **{name: "" for names in undefined.values() for name in names}}
    values.update(dict.fromkeys([*(one.name for one in registry.contexts), *resources_of(registry.agents)], ""))
    try:
        frozen = Plan(_complete(registry.agents), values, name=plan)
    except AgentMagicError as error:
        names = listed([one.name for one in registry.agents])
        left = _gone(session.leftovers(plan), plan)
        return Page([Line(names, head=f"{plan}:"), Line(str(error), "warn"), *_missing(undefined), *left])
    notes = [Line(single_line(note), "soft", "note:") for note in frozen.notes]
    contexts = [_context_line(one, session.sharing(one.name, plan), namespace) for one in registry.contexts]
    last = _last_words(session, plan) | dict.fromkeys(stale, "stale")
    gone = session.leftovers(plan)
    head = Line(f"{steps_of(frozen)}.", head=f"{plan}:")
    declared = [one.with_defaults(model=model) for one in registry.agents]
    table = _table(frozen, registry, declared, last, gone)
    return Page([head, table, *contexts, *notes, *_missing(undefined), *_gone(gone, plan), *_next(stale)])


def _table(
    plan: Plan, registry: Registry, declared: Sequence[Step], last: Mapping[str, str], gone: Collection[str]
) -> Table:
    layers: dict[str, int] = {}
    for step, layer in zip(plan.agents, plan.dag.layer, strict=True):
        layers[shown_name(step)] = min(layer, layers.get(shown_name(step), layer))
    rows: list[tuple[str, ...]] = []
    before = -1
    for agent in sorted(declared, key=lambda one: layers[one.name]):
        layer = layers[agent.name]
        waits = listed([name for name, _ in registry.parents(agent)])
        told = (
            "" if layer == before else str(layer),
            waits,
            " · ".join([*step_facts(agent), *(["cell deleted or changed"] if agent.name in gone else [])]),
            last.get(agent.name, ""),
        )
        rows.append((agent.name, *told))
        before = layer
    columns = [Column("agent"), Column("layer"), Column("waits for", "prose"), Column("model, options", "prose")]
    if any(row[-1] for row in rows):
        return Table([*columns, Column("last run")], rows, strong=True)
    return Table(columns, [row[:-1] for row in rows], strong=True)


def _last_words(session: Session, plan: str) -> dict[str, str]:
    run = next((one for one in reversed(session.runs) if one.plan.name == plan), None)
    states: dict[str, list[str]] = {}
    for step, state in zip(run.plan.agents, states_of(run.record), strict=True) if run is not None else ():
        states.setdefault(shown_name(step), []).append(STATES[state].word)
    done = STATES["s"].word
    return {
        name: words[0] if len(words) == 1 else f"{words.count(done):,} of {len(words):,} {done}"
        for name, words in states.items()
    }


def _missing(undefined: Mapping[str, Sequence[str]]) -> list[Line]:
    return [Line(f"{name}: not defined yet: {', '.join(names)}", "warn") for name, names in undefined.items() if names]


def _next(stale: Sequence[str]) -> list[Line]:
    changed = [Line(f"{listed(stale)}; %agents run asks these again.", head="stale since their last run:")]
    step = Line("%agents plan shows prompts and price, %agents run runs the plan.", "soft")
    return [*(changed if stale else []), step]


def _gone(names: Sequence[str], plan: str) -> list[Line]:
    if not names:
        return []
    return [
        Line(
            f"{listed(names)}; {drop_command(names, plan)} removes what they declared.",
            head="cells deleted or changed:",
        )
    ]


def _complete(agents: tuple[Step, ...]) -> tuple[Step, ...]:
    known = {agent.name for agent in agents}
    found: list[Step] = []
    for agent in agents:
        after = tuple(one for one in agent.after if one in known)
        options: dict[str, Any] = {"after": after, "each": None, "part": _first(agent, known)}
        found.append(replace(agent, **options, **({} if agent.is_task else {"group": None})))
    return tuple(found)


def _first(agent: Step, known: Collection[str]) -> Part | None:
    if agent.each is None:
        return None
    base, *path = agent.each.split(".")
    source = base if agent.most and base in known else ""
    return Part(agent.name, agent.each, 0, 0, "", source=source, path=tuple(path), most=agent.most or 0)


def _context_line(context: Context, agents: Sequence[str], namespace: Mapping[str, Any]) -> Line:
    missing = [name for name in context.uses if name not in namespace]
    if missing:
        size = f"not defined yet: {', '.join(missing)}"
    else:
        size = f"about {count(len(context.render(namespace)) // CHARS_PER_TOKEN)} tokens"
    return Line(f"{size}, shared by {', '.join(agents) or 'nobody yet'}", head=f"context {context.name}:")


def _under_way(session: Session) -> list[Line]:
    lines: list[Line] = []
    for driver in session.running:
        states, now_s, health = states_of(driver.record), driver.now(), driver.health()
        reason = f" · {health.reason}" if health.reason else ""
        paused = " · paused" if driver.paused else ""
        head = f"{driver.plan.name}, running for {seconds(now_s)}:"
        lines.append(Line(f"{counts_line(states, driver.asked)}{paused}{reason}", head=head))
    return [*lines, Line("%agents stop ends it.", "soft")] if lines else []


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
