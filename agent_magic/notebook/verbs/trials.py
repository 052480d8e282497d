"""Improvements and what measures them: advise, baseline, sweep, grades, trials of settings, and applying one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError

from agent_magic.api import Plan
from agent_magic.api.applying import DROPPED
from agent_magic.api.grading import TrialOptions, trial_plans
from agent_magic.declare.baseline import output_cap
from agent_magic.declare.plan_json import asks_the_same
from agent_magic.declare.units import plural, times
from agent_magic.engine.policy import Policy
from agent_magic.errors import did_you_mean
from agent_magic.forecast.advice.advice import SITUATIONS
from agent_magic.forecast.calibration import make_sweep
from agent_magic.forecast.estimate.value import pilot_agents
from agent_magic.measure.judge import Judge, judge
from agent_magic.measure.trial import settings_of
from agent_magic.notebook.command import CommandContext, Verb, argument
from agent_magic.notebook.front_end import can_decide, is_kernel, note, say, show_page
from agent_magic.notebook.planning import show_new_price, show_price
from agent_magic.notebook.running import Resumed, execute
from agent_magic.notebook.settings import policy_options
from agent_magic.notebook.verbs.runs import PLAN_OPTIONS, tell_end
from agent_magic.providers.capabilities import check_plan
from agent_magic.show.bundles import diff_page
from agent_magic.show.text import listed

if TYPE_CHECKING:
    from argparse import Namespace

    import pandas as pd

    from agent_magic.api import Run
    from agent_magic.api.applying import Applied
    from agent_magic.forecast.advice.advice import Advice
    from agent_magic.forecast.calibration import Sweep
    from agent_magic.measure.trial import Trial


USUAL = (1, 2, 4, 8)


def _advise(ctx: CommandContext, given: Namespace) -> Advice:
    return ctx.session.last_run().advise(given.by, situation=given.situation)


async def _baseline(ctx: CommandContext, given: Namespace) -> Run:
    session = ctx.session
    plan = ctx.freeze(given)
    alone = plan.baseline(model=given.model, max_tokens=given.max_tokens)
    cap, whole = alone.agents[0].max_tokens or 0, output_cap(plan)
    if given.max_tokens is None and cap < whole:
        gives = f"{alone.agents[0].model} gives at most {cap:,} output tokens in one request"
        note(f"{gives}, and the agents may make {whole:,} together: it may not suffice.")
    await show_price(alone, session, ctx.policy(given))
    before = session.last
    run = await execute(
        session, alone, ctx.policy(given), fresh=True, graphic=is_kernel(ctx.shell), asks=can_decide(ctx.shell)
    )
    session.just_shown = run
    tell_end(ctx, run, ctx.policy(given))
    if before is None:
        return run
    if run.totals.succeeded < run.totals.steps:
        session.last = before
        say("The one agent gave no whole answer, so nothing was compared. The last run is still the one before.")
    elif asks_the_same(before.plan, plan):
        before.against(run)
        session.last = before
        say(_measured_words(before))
    return run


def _measured_words(run: Run) -> str:
    if run.record.served:
        return "The last run reused answers, which took no time. To compare: %agents run --fresh, then this again."
    alone, wall_s, cost_usd = run.record.bases["one agent"], run.totals.wall_s, run.totals.cost_usd
    took = f"{times(wall_s / alone.wall_s)} its seconds" if wall_s and alone.wall_s else "unknown seconds"
    costs = f"{times(cost_usd / alone.cost_usd)} its dollars" if cost_usd and alone.cost_usd else "unknown dollars"
    low, high = run.totals.cost_multiple_low, run.totals.cost_multiple_high
    again = "" if low is None else f" (95 % {times(low)}–{times(high)}, {len(alone.made)} baselines)"
    return f"The last run took {took} and {costs}{again}. Its run.summary has both."


async def _sweep(ctx: CommandContext, given: Namespace) -> Sweep[Run] | None:
    if any(name.replace(",", "").isdigit() for name in given.names):
        raise UsageError(f"Give values of concurrency with --at: %agents sweep --at {','.join(given.names)}")
    plan, policy = ctx.freeze(given), ctx.policy(given)
    if given.sample is not None:
        plan = plan.select(pilot_agents(plan, [False] * len(plan), given.sample))
    slots = _slots(given.at, len(plan))
    await show_price(plan, ctx.session, policy, len(slots))
    if not given.yes:
        say(f"Nothing was sent. Add --yes to run it at concurrency {', '.join(map(str, slots))}.")
        return None

    async def run(one: Policy) -> Run:
        return await execute(
            ctx.session, plan, one, fresh=True, graphic=is_kernel(ctx.shell), asks=can_decide(ctx.shell)
        )

    return await make_sweep(run, slots, policy)


def _slots(text: str, agents: int) -> list[int]:
    if not text:
        return [one for one in USUAL if one <= agents] or [1]
    try:
        slots = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--at must be integers with commas such as 1,2,4, got {text!r}.") from None
    if min(slots) < 1:
        raise UsageError(f"--at must be integers >= 1, got {text!r}.")
    return slots


UNSENT = "Nothing was sent. Add --yes to run it; --budget USD sets a cap."


_GRADERS: Final = (
    argument("--truth", metavar="COLUMN", help="The column of the rows, or a variable, with what is true."),
    argument("--grader", metavar="FUNCTION", help="Takes (answer, row); returns a number or a bool."),
)


async def _score(ctx: CommandContext, given: Namespace) -> pd.DataFrame | None:
    run = ctx.session.last_run()
    how = {name: value for name in ("truth", "grader", "judge") if (value := getattr(given, name)) is not None}
    if len(how) != 1:
        raise UsageError("%agents score takes one of --truth COLUMN, --grader FUNCTION and --judge QUESTION.")
    if given.judge is None:
        found = graders_of(ctx, given)
        return run.score(given.target, truth=found.get("truth"), grader=found.get("grader"))
    asked = ctx.shell.user_ns.get(given.judge)
    asked = asked if isinstance(asked, Judge) else judge(given.judge)
    plans = [(plural(len(plan := run.judge_plan(given.target, asked)), "answer"), plan)]
    if await show_new_price(plans, ctx.session, ctx.policy(given)) and not given.yes:
        say(UNSENT)
        return None
    return await run.judge(given.target, asked, policy=ctx.policy(given))


async def _trial(ctx: CommandContext, given: Namespace) -> Trial | None:
    if ctx.session.last is None and not ctx.session.running:
        raise UsageError(
            "A trial needs a run for its rows. A small one will do: %agents run --budget 0.05. A larger budget "
            "continues it later."
        )
    run, policy, how = ctx.session.last_run(), ctx.policy(given), graders_of(ctx, given)
    model, effort = (value and value.split(",") for value in (given.model, given.effort))
    more: Any = {"n": given.rows, "until": given.until, "margin": given.margin}
    options = TrialOptions(given.target, settings_of(model, effort), **more, **how)
    most = "at most " if given.until else ""
    few, truths = trial_plans(Plan, run.record, options)
    plans = [
        (f"{setting.label}, {most}{plural(len(plan), 'row')}", plan)
        for setting, plan in zip(options.settings, few, strict=True)
    ]
    if truths:
        say(truths)
    if await show_new_price(plans, ctx.session, policy, Resumed(run)) and not given.yes:
        say(UNSENT)
        return None
    return await run.trial(given.target, model=model, effort=effort, policy=policy, **more, **how)


def _apply(ctx: CommandContext, given: Namespace) -> None:
    session = ctx.session
    run, what = _wanted(ctx, given.what)
    found = run.apply(what)
    if not found.lines:
        say(repr(found))
        return
    check_plan(found.plan, Policy(), session.shared.client)  # a forecast does not ask what the server refuses
    registry = session.registry(run.plan.name)
    undo = [registry.snapshot()]
    for name, options in found.agents.items():
        if "dropped" in options:
            registry.drop([name])
        else:
            registry.change(name, **{option: after for option, (_, after) in options.items()})
    undo += [ctx.configure(name, after) for name, (_, after) in found.defaults.items()]
    session.applied.append(("\n".join(found.undone), undo))
    changed = [name for name, options in found.agents.items() if "dropped" not in options]
    cells = (
        f" The cell{'s' * (len(changed) > 1)} of {listed(changed)} still {'say' if changed[1:] else 'says'} what was."
    )
    note = f"%agents undo takes it back.{cells if changed else ''}"
    show_page(diff_page(found.rows, found.prompts, note), graphic=is_kernel(ctx.shell))


def is_applied(ctx: CommandContext, change: Applied[Any]) -> bool:
    """True if the declarations have all of a change, however made."""
    declared = {one.name: one for one in ctx.session.registry(change.plan.name).agents}
    for name, options in change.agents.items():
        one = declared.get(name)
        if (one is None) is not (DROPPED in options):
            return False
        if one is not None and any(getattr(one, option) != after for option, (_, after) in options.items()):
            return False
    return bool(change.lines) and all(getattr(ctx, name) == after for name, (_, after) in change.defaults.items())


def _wanted(ctx: CommandContext, what: str | None) -> tuple[Run, object]:
    session = ctx.session
    if what is not None and what.isdigit():
        newest = session.linted[-1] if session.linted and session.linted[-1].is_newest(session.last) else None
        if newest is not None:
            changes, whose = newest.advice.changes, f"%agents lint found {{}} in {newest.run.plan.name!r}"
        else:
            run = session.last_run()
            changes, whose = run.advise(by=run.advised_by).changes, "the advice for the last run has {}"
        if not 0 < int(what) <= len(changes):
            # The number may be of another run's advice: the last shown need not be of the last run.
            found = whose.format(plural(len(changes), "change"))
            raise UsageError(
                f"%agents apply {what}: {found}. For an earlier run: chosen = run.advise().changes[0], then "
                "%agents apply chosen."
            )
        return session.last_run() if newest is None else newest.run, changes[int(what) - 1]
    if what is None:
        run = session.last_run()
        if not run.trials:
            raise UsageError("%agents apply needs a number of %agents advise, a variable, or a trial before it.")
        return run, run.trials[-1]
    value = _variable(ctx, what)
    found = [one.run for one in session.linted if any(value is each for each in one.advice.changes)]
    return found[0] if found else session.planned or session.last_run(), value


def _variable(ctx: CommandContext, what: str) -> object:
    read = re.fullmatch(r"(\w+)((?:\.[^\W_]\w*|\[-?\d+\])*)", what)
    name = read[1] if read is not None else what
    if name not in ctx.shell.user_ns:
        raise UsageError(f"%agents apply {what}: there is no such variable.{did_you_mean(name, ctx.shell.user_ns)}")
    value = ctx.shell.user_ns[name]
    for field, place in re.findall(r"\.(\w+)|\[(-?\d+)\]", "" if read is None else read[2]):
        try:
            value = getattr(value, field) if field else value[int(place)]
        except (AttributeError, LookupError, TypeError) as error:
            raise UsageError(f"%agents apply {what}: {error}.") from None
    return value


def _undo(ctx: CommandContext, _: Namespace) -> None:
    if not ctx.session.applied:
        raise UsageError("Nothing to undo.")
    words, undo = ctx.session.applied.pop()
    for one in undo:
        one()
    say(f"Taken back:\n{words}")


def graders_of(ctx: CommandContext, given: Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if given.truth is not None:
        value = ctx.shell.user_ns.get(given.truth)
        holds = isinstance(value, Mapping | list | tuple) or hasattr(value, "to_dict")
        found["truth"] = value if holds else given.truth
    if given.grader is not None:
        if not callable(ctx.shell.user_ns.get(given.grader)):
            names = [name for name, value in ctx.shell.user_ns.items() if callable(value)]
            hint = did_you_mean(given.grader, names) or " Define it: def right(answer, row): return ..."
            raise UsageError(f"--grader {given.grader}: there is no such function.{hint}")
        found["grader"] = ctx.shell.user_ns[given.grader]
    return found


VERBS = {
    "advise": Verb(
        "Say what would have made the last run faster or cheaper, with forecasts. Nothing is sent.",
        (
            argument("--by", default="seconds", metavar="WORD", help="What counts: seconds or dollars."),
            argument(
                "--situation",
                metavar="NAME",
                help=f"What it is for, which says what counts: {', '.join(SITUATIONS)}. Quote names of two words.",
            ),
        ),
        _advise,
        examples=("%agents advise", "%agents advise --by dollars", '%agents advise --situation "emergency fix"'),
    ),
    "baseline": Verb(
        "Do the same job with one agent and the same token cap, to compare costs. Prints its price first.",
        (
            *PLAN_OPTIONS,
            *policy_options(without={"concurrency"}),
            argument("--model", metavar="M", help="The model of the one agent; by default the last agent's."),
            argument(
                "--max-tokens",
                type=int,
                metavar="N",
                help="Its most output tokens; by default the agents' sum, or what its model gives.",
            ),
        ),
        _baseline,
        waits=True,
        examples=("%agents baseline", "%agents baseline --model claude-opus-5-5"),
    ),
    "sweep": Verb(
        "Run the plan at several values of concurrency, beside forecasts. Prints the price; --yes runs it.",
        (
            *PLAN_OPTIONS,
            *policy_options(without={"concurrency"}),
            argument("--at", default="", metavar="1,2,4", help="Values of concurrency; by default 1,2,4,8."),
            argument("--sample", type=int, metavar="N", help="Run N agents that stand for the others, not all."),
            argument("--yes", action="store_true", help="Run them. Without it only the price is shown."),
        ),
        _sweep,
        waits=True,
        examples=(
            "%agents sweep",
            "sweep = %agents sweep --at 1,2,4 --yes",
            "%agents sweep --at 1,8 --sample 12    # twelve rows show how the server bears more at once",
        ),
    ),
    "score": Verb(
        "Grade answers of the last run: against a column, by a function, or by a model (its price; --yes asks it).",
        (
            argument("target", metavar="AGENT.FIELD", help="An agent or a group, and the field of a typed answer."),
            *_GRADERS,
            argument("--judge", metavar="QUESTION", help="Ask a model: a question, or a variable with am.judge(...)."),
            *policy_options(),
            argument("--yes", action="store_true", help="Ask the judge. Without it only the price is shown."),
        ),
        _score,
        waits=True,
        examples=(
            "%agents score label.sentiment --truth true_sentiment",
            "%agents score report --grader has_three_sources    # def has_three_sources(answer, row): ...",
            '%agents score report --judge "Is every claim supported?" --yes --budget 0.50',
        ),
    ),
    "apply": Verb(
        "Change what is declared: by a number of %agents advise or %agents lint, a row of a what-if, or what the last "
        "trial chose.",
        (
            argument(
                "what",
                nargs="?",
                metavar="WHAT",
                help="A number of %agents advise or %agents lint, whichever was seen last, or a variable: a row of a "
                "what-if, a setting, found.changes[0]. Without: what the trial chose.",
            ),
        ),
        _apply,
        examples=(
            "%agents apply 2",
            "%agents apply    # what the trial chose",
            "%agents apply row",
            "%agents apply found.changes[0]    # found = %agents lint",
        ),
    ),
    "undo": Verb(
        "Take back what was applied last.",
        (),
        _undo,
        examples=("%agents undo",),
    ),
    "trial": Verb(
        "Ask and grade a sample of rows under several settings. Prints the price; --yes runs it.",
        (
            argument("target", metavar="AGENT.FIELD", help="A group of agents, and the field of a typed answer."),
            argument("--model", metavar="A,B", help="Models to try."),
            argument("--effort", metavar="A,B", help="Efforts to try."),
            *_GRADERS,
            argument(
                "--rows", type=int, default=20, metavar="N", help="How many rows (20); with --until, so many at a time."
            ),
            argument("--until", choices=["decided"], help="Go on until every setting is better, as good, or worse."),
            argument(
                "--margin", type=float, default=0.05, metavar="D", help="Smaller differences count as equal (0.05)."
            ),
            *policy_options(),
            argument("--yes", action="store_true", help="Run it. Without it only the price is shown."),
        ),
        _trial,
        waits=True,
        examples=(
            "%agents trial label.sentiment --model claude-haiku-5-5,claude-sonnet-5-5 --truth true_sentiment",
            "trial = %agents trial label.sentiment --effort low,high --truth true_sentiment --until decided --yes",
        ),
    ),
}
