"""What the last run could have done better, and real runs that measure it: advice, baseline, sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.plan_json import asks_the_same
from agent_magic.forecast.sweep import make_sweep
from agent_magic.notebook.front_end import is_kernel
from agent_magic.notebook.planning import show_price
from agent_magic.notebook.running import execute
from agent_magic.notebook.verb import Desk, Parser, Verb, add_nothing
from agent_magic.notebook.verbs.runs import add_policy

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.advice.advice import Advice
    from agent_magic.forecast.sweep import Sweep

USUAL = (1, 2, 4, 8)


def _baseline_options(parser: Parser) -> None:
    add_policy(parser)
    parser.add_argument("--model", metavar="M", help="Who does the whole job; the last agent's model by default.")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="Most output tokens; the agents' sum by default.")


def _sweep_options(parser: Parser) -> None:
    add_policy(parser)
    parser.add_argument("--at", default="", metavar="1,2,4", help="The concurrencies; 1,2,4,8 by default.")
    parser.add_argument("--yes", action="store_true", help="Run them. Without it only the price is shown.")


def _advise(desk: Desk, _: Namespace) -> Advice:
    return desk.session.last_run().advise()


async def _baseline(desk: Desk, given: Namespace) -> Run:
    session = desk.session
    plan = desk.freeze(given)
    alone = plan.baseline(model=given.model, max_tokens=given.max_tokens)
    await show_price(alone, session, desk.policy(given))
    before = session.last
    run = await execute(session, alone, desk.policy(given), fresh=True, graphic=is_kernel(desk.shell))
    session.just_shown = run
    if before is not None and asks_the_same(before.plan, plan):
        before.against(run)
        session.last = before
        print(_measured_words(before))  # noqa: T201
    return run


def _measured_words(run: Run) -> str:
    """Say what a run is against the one agent that did its job."""
    if run.record.served:
        return (
            "The last run had answers that were bought before and took no time: %agents run --fresh, then this again."
        )
    alone, wall_s, cost_usd = run.record.bases["one agent"], run.totals.wall_s, run.totals.cost_usd
    times = f"{wall_s / alone.wall_s:.2f} times its seconds" if wall_s and alone.wall_s else "unknown seconds"
    costs = f"{cost_usd / alone.cost_usd:.2f} times its dollars" if cost_usd and alone.cost_usd else "unknown dollars"
    return f"Against it the last run took {times} and {costs}: %agents last has both in its summary."


async def _sweep(desk: Desk, given: Namespace) -> Sweep[Run] | None:
    if any(name.replace(",", "").isdigit() for name in given.names):
        raise UsageError(f"Concurrencies are given by --at: %agents sweep --at {','.join(given.names)}")
    plan, policy = desk.freeze(given), desk.policy(given)
    slots = _slots(given.at, len(plan))
    await show_price(plan, desk.session, policy, len(slots))
    if not given.yes:
        print(f"Nothing was sent. Add --yes to run it at concurrency {', '.join(map(str, slots))}.")  # noqa: T201
        return None

    async def run(one: Policy) -> Run:
        return await execute(desk.session, plan, one, fresh=True, graphic=is_kernel(desk.shell))

    return await make_sweep(run, slots, policy)


def _slots(text: str, agents: int) -> list[int]:
    """Read `1,2,4`; by default the usual ones up to the number of agents."""
    if not text:
        return [one for one in USUAL if one <= agents] or [1]
    try:
        slots = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--at {text!r} cannot be read. Write numbers with commas: 1,2,4.") from None
    if min(slots) < 1:
        raise UsageError(f"--at {text!r}: the least is 1.")
    return slots


VERBS = {
    "advise": Verb(
        "Say what would have made the last run faster or cheaper, each with its forecast. Nothing is sent.",
        add_nothing,
        _advise,
    ),
    "baseline": Verb(
        "Do the same job as one agent with the same token cap: what the agents are measured against. Shows its price.",
        _baseline_options,
        _baseline,
        waits=True,
        examples=("%agents baseline", "%agents baseline --model claude-opus-5-5"),
    ),
    "sweep": Verb(
        "Really run at several concurrencies, beside their forecasts. Shows its price; --yes runs it.",
        _sweep_options,
        _sweep,
        waits=True,
        examples=("%agents sweep", "sweep = %agents sweep --at 1,2,4 --yes"),
    ),
}
