"""Declarations: listed, dropped, written for a goal, as presets and exports, checked, and as a list of things to do."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from agent_magic.api import Plan, Run
from agent_magic.declare.cells import to_cell, without_tool_lines
from agent_magic.declare.coordinator import COORDINATOR, PRESETS, coordinator, read_plan
from agent_magic.declare.each import Part
from agent_magic.declare.units import count, plural, seconds
from agent_magic.errors import AgentMagicError
from agent_magic.forecast.advice.advice import Advice, lint
from agent_magic.forecast.estimate.value import LOADS, loads_frame, places_words, under_load, verdict_on
from agent_magic.live.ahead import statuses
from agent_magic.measure.compare import todo_frame, todo_markdown
from agent_magic.notebook.command import NAMES, OF_PLAN, CommandContext, Verb, argument, one_of, path_of
from agent_magic.notebook.declaring import PARSERS, tool_lines_note
from agent_magic.notebook.files.cells import to_notebook
from agent_magic.notebook.front_end import (
    can_ask,
    can_decide,
    display_bundle,
    is_kernel,
    note,
    put_cell,
    say,
    show_page,
)
from agent_magic.notebook.planning import estimated, show_plan
from agent_magic.notebook.registry import resources_of
from agent_magic.notebook.running import execute, play_forecast
from agent_magic.notebook.session import DEFAULT_PLAN, MOST_LOOKED_AT, drop_command, shown_name
from agent_magic.notebook.verbs.cassettes import pace_of
from agent_magic.notebook.verbs.runs import PLAN_OPTIONS, RUN_OPTIONS
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.record.display import single_line
from agent_magic.show.cards import step_facts, todo_page
from agent_magic.show.page import Column, Fold, Line, Page, Table, Words
from agent_magic.show.states import STATES, states_of
from agent_magic.show.text import counts_line, listed, steps_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

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
    changed = [Line(f"{listed(stale)}; %agents run asks these again.", head="stale since their last run:")]
    step = Line("%agents plan shows prompts and price, %agents run runs the plan.", "soft")
    notes += [*_missing(undefined), *_gone(gone, plan), *(changed if stale else []), step]
    return Page([head, table, *contexts, *notes])


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


FORMS = ("cell", "cells", "json")


def _preset(ctx: CommandContext, given: Namespace) -> None:
    if given.preset is None:
        rows = [(f"%agents preset {name}", text.splitlines()[1]) for name, text in PRESETS.items()]
        page = Page([Table((Column("preset"), Column("what it does", "prose")), rows, strong=True)])
        show_page(page, graphic=is_kernel(ctx.shell))
        return
    put_cell(ctx.shell, PRESETS[one_of("%agents preset", given.preset.lower(), PRESETS)])


def _export(ctx: CommandContext, given: Namespace) -> None:
    one_of("%agents export", given.form, FORMS)
    registry = ctx.session.registry(given.plan or DEFAULT_PLAN)
    if given.form == "cell":
        put_cell(ctx.shell, to_cell(registry.agents, name=registry.name))
        return
    names = ctx.shell.user_ns
    plan, known = ctx.session.plan(names, name=registry.name, defaults={}), registry.values(names)
    as_cells = given.form == "cells"
    data = to_notebook(plan, steps=registry.agents, known=known) if as_cells else plan.to_dict()
    ending = ".ipynb" if as_cells else ".json"
    name = given.file or plan.name + ending
    path = path_of(name, given)
    try:
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{name!r} cannot be written: {error.strerror}. Choose another place.") from None
    say(f"{plural(len(plan), 'agent')} written to {name}.")


async def _lint(ctx: CommandContext, given: Namespace) -> Advice:
    plan = ctx.freeze(given)
    found = await estimated(plan, ctx.session, ctx.policy(given))
    cells = [str(cell) for cell in ctx.shell.user_ns.get("In", ())]
    advice = lint(found, cells, ctx.session.shared.price_book(lambda _: None))  # the estimate warns
    ctx.session.take_lint(Run(found.likely), advice)
    return advice


def _todo(ctx: CommandContext, given: Namespace) -> None:
    name = given.plan or DEFAULT_PLAN
    running = [driver.record for driver in ctx.session.running if driver.plan.name == name]
    runs = [run.record for run in ctx.session.runs[-MOST_LOOKED_AT:] if run.plan.name == name]
    plan = running[0].plan if running else ctx.freeze(given)
    known: dict[str, str] = {}
    for record in [*runs, *running]:  # the newest counts
        known |= statuses(plan, record)
    frame = todo_frame(plan, known)
    text = todo_markdown(frame)
    if is_kernel(ctx.shell):
        display_bundle({**todo_page(frame).bundle(), "text/markdown": text, "text/plain": text})
    else:
        say(text)


async def _scenario(ctx: CommandContext, given: Namespace) -> Run | pd.DataFrame:
    if given.load is not None:
        one_of("%agents scenario", given.load, LOADS)
    found = await estimated(ctx.freeze(given), ctx.session, ctx.policy(given))
    if places := places_words(found):
        note(places)
    account = {"rpm": given.rpm, "colleague": given.colleague}
    if given.load is None:
        frame = loads_frame(found, **account)
        if verdict := verdict_on(frame, "--rpm 1"):
            note(verdict)
        return frame
    run = Run(under_load(found, given.load, on_limit=given.on_limit, **account).record or found.likely)
    pace = pace_of(given.pace)
    if pace is None:
        return run
    return await play_forecast(ctx.session, run, ctx.policy(given), pace=pace, graphic=is_kernel(ctx.shell))


VERBS = {
    "list": Verb(
        "List the declared agents by layer, and what runs. Returns the plan.",
        OF_PLAN,
        _list,
        examples=("%agents", "%agents --plan review", "plan = %agents    # the plan, for the Python API"),
    ),
    "drop": Verb("Drop agents or contexts.", NAMES, _drop, examples=("%agents drop draft critic",)),
    "clear": Verb(
        "Drop all agents and contexts of a plan.",
        OF_PLAN,
        _clear,
        examples=("%agents clear", "%agents clear --plan review"),
    ),
    "scenario": Verb(
        "Forecast the plan under a load of the account: off_peak, near_rpm, tpm_hit, colleague. Nothing is sent.",
        (
            argument("load", nargs="?", metavar="LOAD", help=f"One of {', '.join(LOADS)}; all without one."),
            *RUN_OPTIONS,
            argument("--on-limit", default="queue", metavar="WORD", help="What waits for a limit: queue or reject."),
            argument("--rpm", type=float, help="The account's requests a minute; by default as many as the plan has."),
            argument(
                "--colleague", type=float, default=0.5, metavar="PART", help="The part that a colleague uses, below 1."
            ),
            argument("--pace", metavar="N", help="Watch it: real, or N of its seconds in one."),
        ),
        _scenario,
        waits=True,
        examples=(
            "%agents scenario    # all of them, queued and rejected",
            "run = %agents scenario near_rpm    # a run like any other: run.timeline(), run.agents",
            "run = %agents scenario tpm_hit --pace 10    # watch it, ten of its seconds in one",
            "%agents scenario colleague --colleague 0.8 --rpm 50 --on-limit reject",
        ),
    ),
    "lint": Verb(
        "Check the plan before it runs: needless waits, text and requests, and what they cost. Nothing is sent.",
        RUN_OPTIONS,
        _lint,
        waits=True,
        examples=(
            "%agents lint",
            "%agents apply 1    # the first change that it names",
            "found = %agents lint    # found.frame has a row for each rule",
        ),
    ),
    "todo": Verb(
        "Show the plan as a checklist, with what a run has done of it. plan.todo() is a frame.",
        PLAN_OPTIONS,
        _todo,
        examples=("%agents todo",),
    ),
    "preset": Verb(
        "Put a ready plan below, as a %%agents cell to change and run. Without a name it lists them.",
        (argument("preset", nargs="?", metavar="NAME", help=f"One of {', '.join(PRESETS)}."),),
        _preset,
        examples=("%agents preset", "%agents preset review    # four reviewers and a synthesis"),
    ),
    "export": Verb(
        "Write the declared agents as one %%agents cell, as a notebook of %%agent cells, or as JSON.",
        (
            argument(
                "form",
                metavar="FORM",
                help="cell: one %%agents cell below. cells: a notebook of %%agent cells. json: a plan as JSON.",
                words=FORMS,
            ),
            argument("file", nargs="?", metavar="FILE", help="Where cells and json are written: PLAN.ipynb, .json."),
            argument("--anywhere", action="store_true", help="The file may lie outside the notebook's folder."),
            *OF_PLAN,
        ),
        _export,
        examples=(
            "%agents export cell    # one cell with all agents, below",
            "%agents export cells    # a notebook with a cell for each",
            "%agents export json plan.json    # am.Plan.from_json reads it",
        ),
    ),
}


async def plan_goal(ctx: CommandContext, line: str, goal: str) -> None:
    """Ask for a plan of the goal, show it, and put its cells below without running them."""
    given, session = PARSERS["plan"].read(line), ctx.session
    for text in tool_lines_note(goal):
        note(text)
    goal = without_tool_lines(goal)[0]
    options: Any = {"agents": given.agents, "strategy": given.strategy, "max_tokens": given.max_tokens}
    asked = coordinator(goal, ctx.shell.user_ns, Plan, model=given.model or ctx.model, **options)
    graphic, policy = is_kernel(ctx.shell), ctx.policy(given)
    run = await execute(session, asked, policy, fresh=given.fresh, graphic=graphic, asks=can_ask(ctx.shell))
    plan = _plan_of(run, given)
    text = plan.to_cell()
    defaults = ctx.defaults()
    known = Plan(
        [agent.with_defaults(**defaults) for agent in plan.agents if not agent.is_task],
        plan.values,
        name=plan.name,
        description=plan.description,
    )
    await show_plan(known, session, policy, fresh=False, graphic=graphic, asks=can_decide(ctx.shell))
    if run.record.served and not given.put:
        show_page(Page([Fold("the cell", [Words(text)])]), graphic=graphic)
        note("this plan was bought earlier, so its cell is not put below once more: --put does, --fresh asks again")
        return
    show_page(Page([Line("change this cell, run it, then %agents run.", head="next:")]), graphic=graphic)
    put_cell(ctx.shell, text)


def _plan_of(run: Run, given: Namespace) -> Plan:
    result = run[COORDINATOR]
    if result.status != "succeeded":
        raise UsageError(
            f"No plan came back: {result.error or result.status}. "
            f"%agents show {COORDINATOR} has the answer, --fresh asks again."
        )
    return read_plan(result.value, Plan, run.plan.values, name=given.plan)
