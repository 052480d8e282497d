"""Steer a run: stop, skip, pause, resume, retry; edit an answer, and continue from it; answer its questions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, cast

from IPython.core.error import UsageError

from agent_magic.api import Controls
from agent_magic.declare.declared import declared_names
from agent_magic.declare.units import plural
from agent_magic.engine.calls import Verdict
from agent_magic.errors import DeclarationError, UnknownAgent
from agent_magic.live.ahead import ANY_TIMEOUT_S, is_rejected, unbought
from agent_magic.live.answer_cache import Earlier
from agent_magic.live.people import NOTHING, settle
from agent_magic.notebook.command import EDIT, NAME, NAMES, CommandContext, Parser, Verb, argument
from agent_magic.notebook.front_end import note, put_cell, say
from agent_magic.notebook.planning import confirm, left_line, rejected_before
from agent_magic.notebook.running import Resumed, edit_answer, text_to_edit
from agent_magic.notebook.session import DEFAULT_PLAN
from agent_magic.notebook.verbs.results import CUT, cut_run, is_own, whose
from agent_magic.notebook.verbs.runs import RUN_OPTIONS, run_and_tell, tell_end, until_over
from agent_magic.record.answer import WITHOUT_ANSWER
from agent_magic.record.display import visible
from agent_magic.show.asking import asked_text
from agent_magic.show.notes import rejected_note
from agent_magic.show.text import listed

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from agent_magic.api import Plan, Run

SETTLES_S: Final = 2.0
"""Seconds that `%agents stop` waits for the end of the run: a function in a thread cannot be aborted."""
MOST_NAMED: Final = 5


def _running(ctx: CommandContext, names: list[str]) -> list[tuple[Controls, list[str]]]:
    running = list(ctx.session.running)
    if not running:
        raise UsageError("Nothing runs. %agents start runs in the background.")
    known = [name for driver in running for name in (*driver.plan.names, *driver.plan.groups)]
    for name in names:
        if name not in known:
            raise UnknownAgent(name, known=known)
    of_each = [
        (driver, [name for name in names if name in driver.plan.index or name in driver.plan.groups])
        for driver in running
    ]
    return [(Controls(driver), its) for driver, its in of_each if its or not names]


async def _stop(ctx: CommandContext, given: Namespace) -> None:
    task, drivers = ctx.session.background, list(ctx.session.running)
    told = _told(ctx, given.names, "Stopped")
    for controls, names in _running(ctx, given.names):
        controls.stop(names or None)
    if told:
        say(told)
        return
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(until_over(ctx.session, drivers, task), SETTLES_S)
    if any(one in ctx.session.running for one in drivers) or (task is not None and not task.done()):
        say("Stopping: no more requests are sent; one of your functions still runs. %agents wait waits for it.")
    elif task is None:
        say("Stopped. What the run has answered is kept; its own cell says how it ended.")
    elif not task.cancelled() and task.exception() is None:
        tell_end(ctx, task.result())


def _told(ctx: CommandContext, names: list[str], word: str) -> str:
    open_now = [
        name
        for driver in ctx.session.running
        for name in names
        if (name in driver.plan.index or name in driver.plan.groups)
        and any(driver.record.results[one].finished_s is None for one in driver.plan.numbers([name]))
    ]
    done = f"{word}: {listed(open_now, MOST_NAMED)}, with what waits for it. The rest goes on."
    return done if open_now else "Nothing to do: already finished." if names else ""


def _skip(ctx: CommandContext, given: Namespace) -> None:
    if not given.names:
        raise UsageError("%agents skip needs the names of agents. %agents stop ends the whole run.")
    told = _told(ctx, given.names, "Skipped")
    for controls, names in _running(ctx, given.names):
        controls.skip(names)
    say(told)


def _pause(ctx: CommandContext, _: Namespace) -> None:
    for controls, _names in _running(ctx, []):
        controls.pause()
    say("Paused: requests under way finish, nothing else starts. %agents resume continues.")


async def _resume(ctx: CommandContext, given: Namespace) -> Run | None:
    """Resume paused runs; without any, continue the last cut run."""
    if ctx.session.running:
        for controls, _names in _running(ctx, []):
            controls.resume()
        say("The run goes on. %agents wait waits for its end.")
        return None
    last = ctx.session.last
    if given.of is not None or last is None:
        ctx.session.last = _cut_run(ctx, given.of)
    elif not last.record.cut:
        hint = "%agents retry asks again what failed, %agents start runs in the background, where it can be paused."
        raise UsageError(f"Nothing is paused, and the last run was not cut. {hint}")
    return await run_again(ctx, given, ctx.session.last_run(), given.names or None, prices=True)


def _cut_run(ctx: CommandContext, number: int | None) -> Run:
    ledger = ctx.session.keeping.ledger
    if ledger is None:
        raise UsageError("The ledger is off, so no run before this kernel is known. %agents run runs what is declared.")
    if number is not None:
        found = next((one for one in ledger.past() if one.run == number), None)
        if found is None or found.state not in CUT:
            raise UsageError(f"Run {number} was not cut. %agents runs lists the runs of the ledger.")
    else:
        found = cut_run(ctx.session, ledger)
    maybe = f"; {plural(found.unknown, 'request')} may have been billed" if found.unknown else ""
    own = is_own(ctx.session, ledger, found)
    of = f"{found.plan!r}" if own or not found.home else f"{found.plan!r} in {found.notebook}"
    say(f"Run {found.run} of {of} was cut: {found.succeeded} of {found.agents} agents had finished{maybe}.")
    return ledger.open(found.run)


async def _retry(ctx: CommandContext, given: Namespace) -> Run | None:
    if ctx.session.running and not given.names:
        _retry_under_way(ctx)
        return None
    if ctx.session.running:
        for controls, names in _running(ctx, given.names):
            controls.retry(names)
        say(f"The run asks {listed(given.names, MOST_NAMED)} again.")
        return None
    return await run_again(ctx, given, ctx.session.last_run(), given.names or None)


def _retry_under_way(ctx: CommandContext) -> None:
    rejected: list[str] = []
    has_asked = False
    for driver in ctx.session.running:
        results, plan = driver.record.results, driver.plan
        wrong = [one.name for one in results if is_rejected(one)]
        kept = {*wrong, *(plan.names[one] for one in plan.dag.descendants(plan.numbers(wrong)))}
        lost = [one.name for one in results if one.status in WITHOUT_ANSWER]
        asked = [name for name in lost if name not in kept]
        if asked or not wrong:
            Controls(driver).retry(asked if wrong else None)
            has_asked = True
        rejected += wrong
    said = ["The run asks what failed again."] if has_asked else []
    say("\n".join([*said, *([rejected_note(rejected)] if rejected else [])]))


async def run_again(
    ctx: CommandContext, given: Namespace, last: Run, again: list[str] | None, *, prices: bool = False
) -> Run:
    """Run agents of a run again: these, or all without success, except rejected ones."""
    plan = _plan_of(ctx, given, last)
    leave = [] if again is not None or given.fresh else _rejected(ctx, plan, last)
    resumed, policy = Resumed(last, again, leave), ctx.policy(given)
    _take_back(ctx, last, again or ())
    if (said := whose(ctx.session, last)) and not prices:
        note(said)
    if prices and (left := left_line(ctx.session, plan, policy, resumed, fresh=given.fresh)):
        say(f"What is left: {left}.")
    await confirm(ctx, given, plan, policy, resumed)
    if leave:
        note(rejected_note(leave))
    return await run_and_tell(ctx, given, plan, policy, resumed)


def _rejected(ctx: CommandContext, plan: Plan, last: Run) -> list[str]:
    session = ctx.session
    found = rejected_before(session, plan, last)
    if not found:
        return []
    where, numbers = session.shared.client.endpoint, plan.numbers(found)
    asked = unbought(plan, where, None, Earlier(last.record, where, plan=plan), fresh=False, timeout_s=ANY_TIMEOUT_S)
    if {*asked} <= {*numbers, *plan.dag.descendants(numbers)}:
        raise UsageError(f"Nothing was sent: {rejected_note(found)}")
    return found


def _plan_of(ctx: CommandContext, given: Namespace, last: Run) -> Plan:
    """Return the last run's agents as declared now, and the named ones."""
    # If nothing is declared, as after `%agents open` in a fresh kernel, the run brings its plan along.
    given.plan = given.plan or (last.plan.name if last.plan.name in ctx.session.plans else None)
    had = {*declared_names(last.plan)}
    declared = [agent.name for agent in ctx.session.registry(given.plan or DEFAULT_PLAN).agents]
    found = [name for name in declared if name in had or name in given.names]
    if found:
        given.names = found
        return ctx.freeze(given)
    if declared:
        raise UsageError("No agent of the last run is declared any more. %agents run runs what is.")
    return cast("Plan", last.plan)


def _edit(ctx: CommandContext, given: Namespace) -> None:
    run = ctx.session.last_run()
    if given.undo:
        run.unedit(given.name, session=ctx.session.shared)
        say(f"Taken back: {given.name} has the model's answer again. %agents run goes on from it.")
        return
    text = text_to_edit(run, given.name)
    put_cell(ctx.shell, f"%%agents {EDIT} {given.name}\n{text}")


def edit_cell(ctx: CommandContext, line: str, text: str) -> None:
    parser = Parser(f"%%agents {EDIT}", arguments=NAME)
    name = parser.read(line.split(maxsplit=1)[1] if line.split()[1:] else "").name
    if not text.strip():
        raise UsageError(f"%%agents {EDIT} {name}: the cell is empty. Write the answer below the first line.")
    say(edit_answer(ctx.session, ctx.session.last_run(), name, text.removesuffix("\n")))


def _take_back(ctx: CommandContext, run: Run, names: Iterable[str]) -> None:
    asked = {
        run.plan.names[one]
        for one in run.plan.numbers(one for one in names if one in {*run.plan.index, *run.plan.groups})
    }
    edits = {name for name, _ in run.record.edits}
    edits |= {one.name for one in run.record.results if one.original is not None}
    for name in sorted(edits & asked):
        run.unedit(name, session=ctx.session.shared)
        note(f"{name} is asked again, so its edit is taken back")


def _pending(ctx: CommandContext, _: Namespace) -> None:
    found = {number: question for desk in ctx.session.desks for number, question in desk.open.items()}
    say("\n".join(asked_text(number, one) for number, one in sorted(found.items())) or NOTHING)


def _answer(ctx: CommandContext, wanted: str, verdict: Verdict) -> None:
    if not any(desk.open for desk in ctx.session.desks):
        raise UsageError(f"{NOTHING} %agents start runs in the background; what it asks can be answered then.")
    try:
        settle(ctx.session.desks, wanted, verdict)
    except DeclarationError as error:
        raise UsageError(visible(str(error))) from None


def _approve(ctx: CommandContext, given: Namespace) -> None:
    _answer(ctx, given.question, Verdict(approved=True, text=given.edit))


def _deny(ctx: CommandContext, given: Namespace) -> None:
    _answer(ctx, given.question, Verdict(approved=False, why=" ".join(given.why)))


_QUESTION: Final = (
    argument("question", metavar="NUMBER", help="The question's number, or the agent if it asks only this one."),
)


VERBS = {
    "stop": Verb(
        "Stop the run under way, or these agents of it. What has finished is kept.",
        NAMES,
        _stop,
        waits=True,
        examples=("%agents stop", "%agents stop draft critic"),
    ),
    "skip": Verb(
        "Skip these agents of the run under way, and the agents that wait for them.",
        NAMES,
        _skip,
        examples=("%agents skip critic",),
    ),
    "pause": Verb(
        "Start nothing more until %agents resume. Requests under way finish.",
        (),
        _pause,
        examples=("%agents pause",),
    ),
    "resume": Verb(
        "Continue after %agents pause; after a restart of the kernel, take up this notebook's last run where it was.",
        (
            *RUN_OPTIONS,
            argument("--of", type=int, metavar="RUN", help="A run of %agents runs; by default this notebook's."),
        ),
        _resume,
        waits=True,
        examples=(
            "%agents resume",
            "run = %agents resume --budget 0.50    # in a new kernel: what is left of it",
            "run = %agents resume --of 12    # a run of another notebook",
        ),
    ),
    "retry": Verb(
        "Ask again what failed, was skipped or stopped: all of it, or these agents. What succeeded is kept. "
        "A request that was rejected as wrong is sent again only if you name its agent.",
        RUN_OPTIONS,
        _retry,
        waits=True,
        examples=("run = %agents retry", "run = %agents retry draft --max-attempts 5"),
    ),
    EDIT: Verb(
        "Edit an answer of the last run: a cell comes below with it. The next run asks again what depends on it.",
        (
            *NAME,
            argument("--undo", action="store_true", help="Take the edit back: the model's answer counts again."),
        ),
        _edit,
        examples=(
            "%agents edit writer",
            "%%agents edit writer    # such a cell: your answer stands below its first line",
            "%agents edit writer --undo",
            'run.edit("writer", text)    # the same in Python',
        ),
    ),
    "pending": Verb(
        "List the open questions of agents, each with its number.",
        (),
        _pending,
        examples=("%agents pending",),
    ),
    "approve": Verb(
        "Approve a question of an agent, unchanged or edited.",
        (
            *_QUESTION,
            argument("--edit", metavar="TEXT", help="The changed arguments as JSON, or the changed answer; in quotes."),
        ),
        _approve,
        examples=(
            "%agents approve 1",
            "%agents approve analyst    # its only question",
            """%agents approve 1 --edit '{"to": "sales@example.com"}'""",
        ),
    ),
    "deny": Verb(
        "Deny a question of an agent.",
        (
            *_QUESTION,
            argument("why", nargs="*", metavar="WHY", help="The reason. The model is told."),
        ),
        _deny,
        examples=("%agents deny 1", "%agents deny analyst send it to sales instead"),
    ),
}
