"""Plan, run, wait, stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.notebook.confirming import confirm
from agent_magic.notebook.front_end import is_kernel
from agent_magic.notebook.piloting import run_pilot
from agent_magic.notebook.planning import show_plan
from agent_magic.notebook.running import execute, run_and_tell
from agent_magic.notebook.verb import Desk, Parser, Verb, add_nothing, add_plan

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run


LOOK_S = 0.01
"""How often to look whether a run in the background has begun: the first one imports the SDK."""


def _plan_options(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these agents and what they wait for.")
    add_plan(parser)
    parser.add_argument("--on-cycle", metavar="WORD", help="error or sequential.")
    parser.add_argument("--on-missing", metavar="WORD", help="error or drop.")


def add_policy(parser: Parser) -> None:
    """Add the agents, and how to run them: all but the concurrency, and whether to buy anew."""
    _plan_options(parser)
    parser.add_argument("--schedule", metavar="WORD", help="ready, layers or sequential.")
    parser.add_argument("--max-attempts", type=int, metavar="N", help="The most requests for one agent.")
    parser.add_argument("--max-turns", type=int, metavar="N", help="The most requests for an answer the API pauses.")
    parser.add_argument("--timeout", type=float, metavar="S", help="Deadline in seconds of agents that name none.")
    parser.add_argument("--cache", metavar="WORD", help="auto, on or off: caching of contexts that agents share.")
    parser.add_argument("--cache-ttl", metavar="WORD", help="auto, 5m or 1h: how long cached contexts live.")
    parser.add_argument("--deadline", type=float, metavar="S", help="Seconds after which nothing of the run goes on.")
    parser.add_argument("--budget", type=float, metavar="USD", help="The most dollars; the cap cannot be crossed.")
    parser.add_argument("--budget-tokens", type=int, metavar="N", help="The most tokens, input and output together.")
    parser.add_argument("--on-max-tokens", metavar="WORD", help="fail, warn or allow answers cut at max_tokens.")
    parser.add_argument("--on-refusal", metavar="WORD", help="fail, warn or allow answers in which the model declined.")
    parser.add_argument("--timeout-counts", metavar="WORD", help="work, or total: waiting for a slot or a limit too.")
    parser.add_argument("--max-usd-per-min", type=float, metavar="USD", help="The most dollars within any minute.")


def add_run_options(parser: Parser) -> None:
    """Add the options of a run."""
    add_policy(parser)
    parser.add_argument("--concurrency", type=int, metavar="N", help="The most requests under way at once.")
    parser.add_argument("--fresh", action="store_true", help="Buy again what was bought before.")
    parser.add_argument("--yes", action="store_true", help="Run without asking, however large it is.")


def _add_plan_options(parser: Parser) -> None:
    add_run_options(parser)
    parser.add_argument(
        "--pilot", type=int, metavar="N", help="Really run N agents first; the rest is estimated by them."
    )


async def _plan(desk: Desk, given: Namespace) -> None:
    plan = desk.freeze(given)
    pilot = None if given.pilot is None else await run_pilot(desk, given, plan)
    graphic = is_kernel(desk.shell)
    await show_plan(plan, desk.session, desk.policy(given), fresh=given.fresh, graphic=graphic, pilot=pilot)


async def _run(desk: Desk, given: Namespace) -> Run:
    plan = desk.freeze(given)
    resume = None if given.fresh else desk.session.unfinished(plan)
    await confirm(desk, given, plan, resume)
    return await run_and_tell(desk, given, plan, resume)


async def _start(desk: Desk, given: Namespace) -> None:
    session = desk.session
    if not is_kernel(desk.shell):
        raise UsageError("%agents start needs a notebook: here the loop only runs while a cell does. Use %agents run.")
    if session.background is not None and not session.background.done():
        raise UsageError("A run is under way in the background. %agents wait for it, or %agents stop it.")
    plan = desk.freeze(given)
    resume = None if given.fresh else session.unfinished(plan)
    await confirm(desk, given, plan, resume)
    work = execute(session, plan, desk.policy(given), fresh=given.fresh, graphic=True, resume=resume)
    before, task = list(session.running), asyncio.get_running_loop().create_task(work)
    session.background = task
    task.add_done_callback(_report)
    try:
        # The next cell may steer it.
        while not task.done() and session.running == before:  # noqa: ASYNC110 - a replay is over without having begun
            await asyncio.sleep(LOOK_S)
    except asyncio.CancelledError:
        task.cancel()
        raise


async def _wait(desk: Desk, _: Namespace) -> Run:
    task = desk.session.background
    if task is None:
        raise UsageError("Nothing runs in the background. %agents start starts a run there.")
    try:
        return await task  # no shield: Stop in this cell reaches the run, and nothing goes on spending
    finally:
        desk.session.background = None


def _report(task: asyncio.Task[Run]) -> None:
    """Show the error of a run in the background, which nobody may ever wait for."""
    if not task.cancelled() and (error := task.exception()) is not None:
        print(f"The run in the background failed: {error}")  # noqa: T201 - it belongs under its cell


VERBS = {
    "plan": Verb(
        "Show the graph, the prompts and what they may cost and take. Nothing is spent but for a pilot.",
        _add_plan_options,
        _plan,
        waits=True,
        examples=(
            "%agents plan",
            "%agents plan compare --budget 0.50    # compare and what it waits for",
            "%agents plan --pilot 3    # three agents are bought, the rest is estimated by them",
        ),
    ),
    "run": Verb(
        "Run the agents and show the graph while they run. Returns the run.",
        add_run_options,
        _run,
        waits=True,
        examples=(
            "run = %agents run",
            "run = %agents run compare --concurrency 2 --budget 0.50    # compare and what it waits for",
            "run = %agents run --schedule layers --fresh    # what barriers cost; bought anew",
        ),
    ),
    "start": Verb(
        "Run in the background; the next cells work meanwhile.",
        add_run_options,
        _start,
        waits=True,
        examples=("%agents start --concurrency 4", "run = %agents wait", "%agents stop"),
    ),
    "wait": Verb("Wait for the run in the background. Returns the run.", add_nothing, _wait, waits=True),
}
