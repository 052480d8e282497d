"""Improvements, and real runs that measure them: advise, baseline, sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.baseline import output_cap
from agent_magic.declare.plan_json import asks_the_same
from agent_magic.declare.units import times
from agent_magic.forecast.advice.advice import SITUATIONS
from agent_magic.forecast.pilot import pilot_agents
from agent_magic.forecast.sweep import make_sweep
from agent_magic.notebook.command import CommandContext, Parser, Verb
from agent_magic.notebook.front_end import can_decide, is_kernel, note, say
from agent_magic.notebook.planning import show_price
from agent_magic.notebook.running import execute
from agent_magic.notebook.settings import add_policy
from agent_magic.notebook.verbs.runs import add_plan_options, tell_end

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.advice.advice import Advice
    from agent_magic.forecast.sweep import Sweep

USUAL = (1, 2, 4, 8)


def _baseline_options(parser: Parser) -> None:
    add_plan_options(parser)
    add_policy(parser, without={"concurrency"})
    parser.add_argument("--model", metavar="M", help="The model of the one agent; by default the last agent's.")
    parser.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="Its most output tokens; by default the agents' sum, or what its model gives.",
    )


def _sweep_options(parser: Parser) -> None:
    add_plan_options(parser)
    add_policy(parser, without={"concurrency"})
    parser.add_argument("--at", default="", metavar="1,2,4", help="Values of concurrency; by default 1,2,4,8.")
    parser.add_argument("--sample", type=int, metavar="N", help="Run N agents that stand for the others, not all.")
    parser.add_argument("--yes", action="store_true", help="Run them. Without it only the price is shown.")


def _advise_options(parser: Parser) -> None:
    parser.add_argument("--by", default="seconds", metavar="WORD", help="What counts: seconds or dollars.")
    parser.add_argument(
        "--situation",
        metavar="NAME",
        help=f"What it is for, which says what counts: {', '.join(SITUATIONS)}. Quote names of two words.",
    )


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


VERBS = {
    "advise": Verb(
        "Say what would have made the last run faster or cheaper, with forecasts. Nothing is sent.",
        _advise_options,
        _advise,
        examples=("%agents advise", "%agents advise --by dollars", '%agents advise --situation "emergency fix"'),
    ),
    "baseline": Verb(
        "Do the same job with one agent and the same token cap, to compare costs. Prints its price first.",
        _baseline_options,
        _baseline,
        waits=True,
        examples=("%agents baseline", "%agents baseline --model claude-opus-5-5"),
    ),
    "sweep": Verb(
        "Run the plan at several values of concurrency, beside forecasts. Prints the price; --yes runs it.",
        _sweep_options,
        _sweep,
        waits=True,
        examples=(
            "%agents sweep",
            "sweep = %agents sweep --at 1,2,4 --yes",
            "%agents sweep --at 1,8 --sample 12    # twelve rows show how the server bears more at once",
        ),
    ),
}
