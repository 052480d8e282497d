"""Runs: plan, run, start and wait, and the batches at the provider."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError

from agent_magic import forecast, measure, show
from agent_magic.api import Controls
from agent_magic.declare.tool import Tool
from agent_magic.declare.units import plural, seconds
from agent_magic.errors import Unreachable
from agent_magic.notebook.command import OF_PLAN, CommandContext, Parser, Verb, argument, one_of
from agent_magic.notebook.front_end import can_ask, can_decide, is_kernel, is_unwatched, note, say, show_page
from agent_magic.notebook.planning import confirm, retry_price, run_pilot, show_plan
from agent_magic.notebook.running import ANEW, Resumed, execute, recording_beside
from agent_magic.notebook.settings import policy_options
from agent_magic.notebook.verbs.results import show_result
from agent_magic.record.files import shown_home
from agent_magic.show.page import Column, Line, Page, Table

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from agent_magic.api import Plan, Run
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.value import Estimate
    from agent_magic.live.batching import Collected
    from agent_magic.live.driver import Driver
    from agent_magic.notebook.session import Session
    from agent_magic.record.ledger.batches import KeptBatch
    from agent_magic.record.results import RunRecord


LOOKS_S: Final = 0.05
"""Seconds between two looks at a run of another loop."""
HELD_UP_S: Final = 2.0
"""A loop that answers nothing for this long is blocked by a cell."""
MOCK_AGAIN = "the mock server answers anew; %config AgentMagics.reuse_simulated = True reuses answers"


PLAN_OPTIONS: Final = (
    argument("names", nargs="*", metavar="NAME", help="Only these agents and what they wait for."),
    *OF_PLAN,
    argument("--on-cycle", metavar="WORD", help="Agents that wait for each other: error or sequential."),
    argument("--on-missing", metavar="WORD", help="Undeclared parents: error or drop."),
)


RUN_OPTIONS: Final = (
    *PLAN_OPTIONS,
    *policy_options(),
    argument("--fresh", action="store_true", help="Reuse no earlier answer."),
    argument("--yes", action="store_true", help="Run without asking, however large it is."),
)


async def run_and_tell(
    ctx: CommandContext, given: Namespace, plan: Plan, policy: Policy, resumed: Resumed, *, answer: str | None = None
) -> Run:
    session, graphic = ctx.session, is_kernel(ctx.shell)
    front: Any = {"graphic": graphic, "asks": can_decide(ctx.shell) and answer is None, "answer": answer}
    before = None if session.last is None else session.last.record
    if answer is None and resumed.run is None and not given.fresh and session.asks_mock_again(plan):
        note(MOCK_AGAIN)
    run = await execute(session, plan, policy, fresh=given.fresh, resumed=resumed, **front)
    session.just_shown = run
    if is_unwatched(ctx.shell) and answer is None:
        say(show.run_line(run.record))  # a log keeps the first picture as a line, not the last one
    tell_end(ctx, run, policy, before, closes=answer is None or not run.ok)
    return run


def tell_end(
    ctx: CommandContext, run: Run, policy: Policy | None = None, before: RunRecord | None = None, *, closes: bool = True
) -> None:
    """Print the notes that a finished run's picture does not show, and the next step."""
    session, graphic = ctx.session, is_kernel(ctx.shell)
    policy = policy or forecast.policy_of(run.record)[0]
    notes = [
        measure.summarize(run.record).why if graphic and not is_unwatched(ctx.shell) else "",  # the line has it already
        *show.ending_notes(run.record, policy),
        show.budget_note(run.record, policy),
        show.replayed_files_note(run.record),
        *show.context_notes(run.record, run.prices),
        *session.keeping.take_notes(),
        *session.shared.client.take_notes(),
        _recording_note(session, run, policy),
    ]
    for text in filter(None, notes):
        note(text)
    if closes and (graphic or sys.stdout.isatty() or not run.ok):  # a log of what went well ends with a line
        price = "" if run.ok else retry_price(session, run, policy)
        show_page(show.closing(run.record, price, before, run.prices), graphic=graphic)


def _recording_note(session: Session, run: Run, policy: Policy) -> str:
    if session.deck is not None or all(one.kind != Unreachable.__name__ for one in run.record.results):
        return ""
    found = recording_beside(run.plan, Path.cwd(), timeout_s=policy.timeout_s)
    return (
        "" if found is None else f"{found.name} has all these answers: %agents replay {found.name}, then %agents run."
    )


async def _plan(ctx: CommandContext, given: Namespace) -> Estimate:
    plan = ctx.freeze(given)
    pilot = None if given.pilot is None else await run_pilot(ctx, given, plan)
    front: Any = {"graphic": is_kernel(ctx.shell), "asks": can_decide(ctx.shell)}
    found = await show_plan(plan, ctx.session, ctx.policy(given), fresh=given.fresh, **front, pilot=pilot)
    ctx.session.just_shown = found
    return found


async def _run(ctx: CommandContext, given: Namespace) -> Run:
    plan = ctx.freeze(given)
    resumed = ANEW if given.fresh else Resumed(ctx.session.unfinished(plan))
    policy = ctx.policy(given)
    await confirm(ctx, given, plan, policy, resumed)
    return await run_and_tell(ctx, given, plan, policy, resumed)


async def ask_at_once(ctx: CommandContext, name: str, plan_name: str) -> None:
    """Run a just declared agent with its ancestors, and show its answer: `%%agent NAME --run`."""
    # The answer replaces the picture if one agent is asked and nothing needs approval: the buttons are in the
    # picture.
    parser = Parser("%%agent --run", arguments=RUN_OPTIONS)
    given = parser.read(f"{name} --plan {plan_name}")
    plan = ctx.freeze(given)
    resumed = Resumed(ctx.session.unfinished(plan))
    policy = ctx.policy(given)
    await confirm(ctx, given, plan, policy, resumed)
    alone = name in plan.index and not needs_person(plan)
    answer = name if alone and is_kernel(ctx.shell) else None
    run = await run_and_tell(ctx, given, plan, policy, resumed, answer=answer)
    if not alone or not is_kernel(ctx.shell):
        show_result(run, name, markdown=is_kernel(ctx.shell))


def needs_person(plan: Plan) -> bool:
    """True if a person must approve an answer or a call of this plan."""
    agents = [one for one in plan.agents if not one.is_task]
    return any(one.ask or any(isinstance(tool, Tool) and tool.ask for tool in one.tools) for one in agents)


async def _start(ctx: CommandContext, given: Namespace) -> None:
    session = ctx.session
    if not is_kernel(ctx.shell):
        raise UsageError(
            "%agents start needs a notebook: in a terminal the loop runs only while a cell does. Use %agents run."
        )
    if session.background is not None and not session.background.done():
        raise UsageError("A background run is under way. %agents wait waits for it, %agents stop ends it.")
    plan = ctx.freeze(given)
    resumed = ANEW if given.fresh else Resumed(session.unfinished(plan))
    policy = ctx.policy(given)
    await confirm(ctx, given, plan, policy, resumed)
    shown = asyncio.Event()
    front: Any = {"graphic": True, "asks": can_ask(ctx.shell), "shown": shown.set}
    work = execute(session, plan, policy, fresh=given.fresh, resumed=resumed, **front)
    task = session.background = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_report)
    task.add_done_callback(lambda _: shown.set())
    try:
        await shown.wait()  # the next cell may steer the run
    except asyncio.CancelledError:
        task.cancel()
        raise


async def _wait(ctx: CommandContext, _: Namespace) -> Run:
    task = ctx.session.background
    if task is None:
        return await _end_in_its_cell(ctx.session)
    try:
        run = await _end_of(task)
    finally:
        ctx.session.background = None
    tell_end(ctx, run)
    return run


async def _end_in_its_cell(session: Session) -> Run:
    """Wait for a run that another cell waits for, too; Stop in this cell stops it."""
    if not session.running:
        raise UsageError("Nothing runs. %agents start starts a run in the background.")
    driver = session.running[-1]
    try:
        await until_over(session, [driver])
    except asyncio.CancelledError:
        Controls(driver).stop()
        raise
    run = next((one for one in session.runs if one.record is driver.record), None)
    if run is None:
        raise UsageError("The run did not begin: its own cell says why.")
    return run


async def until_over(session: Session, drivers: Sequence[Driver], task: asyncio.Task[Run] | None = None) -> None:
    """Wait for these runs and the task, which may be on any loop."""
    while any(one in session.running for one in drivers) or not (task is None or task.done()):  # noqa: ASYNC110 - other loops
        await asyncio.sleep(LOOKS_S)


async def _end_of(task: asyncio.Task[Run]) -> Run:
    """Wait for a run on any loop. Stop in this cell stops the run too."""
    loop = task.get_loop()
    if loop is asyncio.get_running_loop() or task.done():
        return await task if not task.done() else task.result()
    if loop.is_closed():
        raise UsageError("The loop on which the run was started is closed. %agents resume goes on with what is left.")

    async def ended() -> Run:
        return await task

    if loop.is_running():  # a subshell's, or the main one seen from a subshell or a thread
        beat = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop))
        if not (await asyncio.wait([beat], timeout=HELD_UP_S))[0]:
            say("The run stands still: a cell blocks its loop. It goes on when that cell ends or awaits.")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ended(), loop))
    try:  # a thread's loop, which has stopped
        return await asyncio.to_thread(loop.run_until_complete, task)
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(task.cancel)
        raise


def _report(task: asyncio.Task[Run]) -> None:
    """Print the error of a background run, which may never be awaited."""
    if not task.cancelled() and (error := task.exception()) is not None:
        say(f"The run in the background failed: {error}")


BATCH_COLUMNS = (Column("batch"), Column("requests", "number"), Column("sent"), Column("where"), Column("notebook"))

BILLED = "What has been answered is billed; %agents batches collect gets it."
WAYS = (
    "%agents batches collect gets the answers of those that have ended. A run with --batch that lacks an answer waits "
    "for the one that has the same request."
)


async def _batches(ctx: CommandContext, given: Namespace) -> None:
    ledger = ctx.session.keeping.ledger
    if ledger is None:
        raise UsageError("The ledger is off, so no batch is known. %config AgentMagics.ledger = 'FILE' turns it on.")
    does = None if given.what is None else one_of("%agents batches", given.what, ("cancel", "collect"))
    if does == "cancel":
        cancelled = await ctx.session.shared.cancel_batches(given.which)
        say(f"Cancelled: {', '.join(cancelled)}. {BILLED}" if cancelled else "Nothing to cancel.")
    elif does == "collect":
        found = await ctx.session.shared.collect_batches(given.which)
        say("\n".join(map(_collected, found)) or "Nothing to collect.")
    show_page(_batches_page(ledger.batches.open()), graphic=is_kernel(ctx.shell))


def _collected(found: Collected) -> str:
    name = found.id or "A batch that is not named yet"
    if not found.is_over:
        return f"{name} has not ended, or not all of its results can be read yet: collect it later."
    if found.id is None:
        return "A batch was never created: nothing of it is billed."
    if found.answers is None:
        return f"{name} is not known to the provider any more."
    if not found.answers:
        return f"{name} ended without an answer, so nothing of it is billed."
    return f"{name} is over: {plural(found.answers, 'answer')} in the ledger. A run that asks the same reuses them."


def _batches_page(batches: list[KeptBatch]) -> Page:
    if not batches:
        return Page([Line("This ledger knows of no open batch.")])
    rows = [
        (
            one.id or "not named yet",
            f"{len(one.names):,}",
            f"{seconds(time.time() - one.planned_at)} ago",
            one.endpoint,
            shown_home(one.home),
        )
        for one in batches
    ]
    return Page([Table(BATCH_COLUMNS, rows, strong=True), Line(WAYS, "soft")])


VERBS = {
    "plan": Verb(
        "Show the graph, the prompts and what they may cost and take. Spends nothing, except with --pilot.",
        (
            *RUN_OPTIONS,
            argument("--pilot", type=int, metavar="N", help="Run N agents first, and estimate the rest by them."),
        ),
        _plan,
        waits=True,
        examples=(
            "%agents plan",
            "%agents plan compare --budget 0.50    # compare and what it waits for",
            "%agents plan --pilot 3    # run three agents, estimate the rest by them",
            "estimate = %agents plan",
        ),
    ),
    "run": Verb(
        "Run the agents and show the graph while they run. Returns the run.",
        RUN_OPTIONS,
        _run,
        waits=True,
        examples=(
            "run = %agents run",
            "run = %agents run compare --concurrency 2 --budget 0.50    # compare and what it waits for",
            "run = %agents run --schedule layers --fresh    # measure what layer barriers cost",
            "run = %agents run --batch    # half the price, within hours; stop it and come back",
        ),
    ),
    "start": Verb(
        "Run in the background; the next cells work meanwhile.",
        RUN_OPTIONS,
        _start,
        waits=True,
        examples=("%agents start --concurrency 4", "run = %agents wait", "%agents stop"),
    ),
    "wait": Verb(
        "Wait for the run under way, in the background or in another cell. Returns the run.",
        (),
        _wait,
        waits=True,
        examples=("run = %agents wait",),
    ),
    "batches": Verb(
        "List the batches at the provider, whichever kernel has sent them; collect or cancel them.",
        (
            argument(
                "what",
                nargs="?",
                metavar="collect|cancel",
                help="collect: store the answers of ended batches in the ledger. cancel: stop the open ones.",
            ),
            argument("which", nargs="*", metavar="BATCH", help="A batch; without a name, all of this notebook."),
        ),
        _batches,
        waits=True,
        examples=(
            "%agents batches",
            "%agents batches collect    # what has ended, also where no run asks for it any more",
            "%agents batches cancel msgbatch_013Zva2CMHLNnXjNJJKqJ2EF",
            "%agents batches cancel",
        ),
    ),
}
