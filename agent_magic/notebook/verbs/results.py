"""Results: the last run, an answer, an error; and which runs of a ledger shared by many are this notebook's.

A run is the notebook's if its file started it, or if its agents are declared now, word for word, so a renamed notebook
finds its runs. If no front end tells the file, as under nbclient, the working folder replaces it, and the plan must
have a declared agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.declared import declared
from agent_magic.declare.units import UNKNOWN, plural, seconds
from agent_magic.errors import LedgerError, Rejected
from agent_magic.notebook.command import NAME, CommandContext, Verb, argument
from agent_magic.notebook.front_end import display_value, is_kernel, note, say, show_page
from agent_magic.record.display import single_line
from agent_magic.record.files import is_file, shown_home
from agent_magic.record.ledger.base import IN_DOUBT
from agent_magic.show.page import Column, Line, Page, Table, Words

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from agent_magic.api import Ledger, Run
    from agent_magic.declare.plan import Plan
    from agent_magic.notebook.session import Session
    from agent_magic.record.ledger.runs import PastRun
    from agent_magic.record.results import AgentResult
    from agent_magic.show.page import Block


MOST_ERRORS = 5
MOST_PARTIAL = 200
MOST_CALLS = 3
MOST_TRACE = 3_000
ATTEMPTS = (
    Column("attempt", "number"),
    Column("HTTP", "number"),
    Column("waited", "number"),
    Column("took", "number"),
    Column("error", "prose"),
)


def _last(ctx: CommandContext, _: Namespace) -> Run:
    run = ctx.session.last_run()
    if said := whose(ctx.session, run):
        note(said)
    return run


def _show(ctx: CommandContext, given: Namespace) -> None:
    show_result(ctx.session.run_of(given.name), given.name, markdown=given.markdown)


def show_result(run: Run, name: str, *, markdown: bool) -> None:
    if name in run.plan.groups:
        display_value(run.each(name))
    elif markdown:
        display_value(run.markdown(name))
    else:
        say(answer_text(run, name))


def _error(ctx: CommandContext, given: Namespace) -> None:
    show_page(error_page(ctx.session.run_of(given.name), given.name), graphic=is_kernel(ctx.shell))


def answer_text(run: Run, name: str) -> str:
    result = run[name]
    if result.text:
        return result.text
    return f"{name} has no text: {result.status}{f' ({result.error})' if result.error else ''}."


def error_page(run: Run, name: str) -> Page:
    if name not in run.plan.groups:
        return Page([*_errors(run[name]), *_step(run[name])])
    members = [run.record.results[number] for number in run.plan.groups[name].values()]
    failed = [one for one in members if one.error is not None]
    more = [Line(f"… and {len(failed) - MOST_ERRORS:,} more", "soft")] if len(failed) > MOST_ERRORS else []
    told = [block for one in failed[:MOST_ERRORS] for block in _errors(one)]
    step = [Line("%agents retry asks again what failed.", "soft")] if failed else []
    return Page([Line(f"{len(failed):,} of {len(members):,} failed", head=f"{name}:"), *told, *more, *step])


def _step(result: AgentResult) -> list[Block]:
    """Return the next step; a rejected request or a function must be fixed first."""
    if result.status != "failed" or result.kind == IN_DOUBT:
        return []
    is_wrong = result.kind == Rejected.__name__ or result.is_task
    again = f"%agents retry {single_line(result.name)} asks it again."
    return [Line("Fix it, then %agents run goes on." if is_wrong else again, "soft")]


def _errors(result: AgentResult) -> list[Block]:
    head = f"{single_line(result.name)}:"
    calls = _failed_calls(result)
    failed = [one for one in result.attempts if one.error]
    if result.error is None and not calls and not failed:
        return [Line(f"{result.status}.", head=head)]
    told = f"{result.status}" + (f": {result.error}" if result.error else "")
    rows = [
        (
            f"{one.number}",
            UNKNOWN if one.status_code is None else f"{one.status_code}",
            seconds(one.queued_s + one.backoff_s),
            seconds(one.duration_s),
            one.error or one.status,
        )
        for one in result.attempts
    ]
    partial = [
        Line(f"attempt {one.number}: {len(one.partial):,} characters had arrived: {one.partial[:MOST_PARTIAL]!r}")
        for one in failed
        if one.partial
    ]
    facts = Line(f"{result.model}, {plural(len(result.attempts), 'attempt')}", "soft")
    return [
        Line(told, "warn" if result.error else "", head),
        *([facts, Table(ATTEMPTS, rows)] if rows else []),
        *partial,
        *calls,
    ]


def _failed_calls(result: AgentResult) -> list[Block]:
    failed = [one for one in result.calls if one.status == "failed" and one.ended is not None]
    told: list[Block] = []
    for call in failed[-MOST_CALLS:]:
        if call.turn:
            told.append(Line(call.arguments or "{}", head=f"{single_line(call.tool)}, turn {call.turn}:"))
        told.append(Words((call.ended and call.ended.trace) or call.error or "", MOST_TRACE))
        told += [Line("", head="printed"), Words(call.prints[-MOST_PARTIAL:].rstrip())] if call.prints.strip() else []
    left = len(failed) - MOST_CALLS
    return [*([Line(f"{left:,} earlier calls failed too: run.tool_calls", "soft")] if left > 0 else []), *told]


VERBS = {
    "last": Verb(
        "Return the last run, also one that was stopped.",
        (),
        _last,
        examples=("run = %agents last", "%agents last    # its picture"),
    ),
    "show": Verb(
        "Show the answer of an agent of the last run, or of the run under way.",
        (
            *NAME,
            argument("--markdown", action="store_true", help="Render it, without HTML, pictures or unsafe links."),
        ),
        _show,
        examples=("%agents show compare", "%agents show compare --markdown"),
    ),
    "error": Verb(
        "Show why an agent or a task failed, by attempts and lines of your functions, in the last run or the run under "
        "way.",
        NAME,
        _error,
        examples=("%agents error compare",),
    ),
}


CUT = frozenset({"lost", "cut"})
MOST_LISTED = 5


def is_own(session: Session, ledger: Ledger, run: PastRun) -> bool:
    if run.home == session.keeping.home and (run.plan, run.began_at) in {
        (one.plan.name, one.record.began_at.isoformat(timespec="seconds")) for one in session.runs
    }:
        return True  # this kernel ran it; its agents may be cleared by now
    return _is_own(session, run.home, run.plan, lambda: ledger.plan_of(run.run)) is True


def _is_own(session: Session, home: str, name: str, plan_of: Callable[[], Plan]) -> bool | None:
    """Return whether a run of this home and plan is the notebook's own; `None` if unknown."""
    here = home == session.keeping.home
    if here and is_file(home):
        return True
    if here and not session.plans:
        return None
    if name not in session.plans:
        return False
    try:
        then = {one.name: one for one in declared(plan_of()) if not one.is_task}
    except LedgerError:
        return False
    now = {one.name: one for one in session.registry(name).agents if not one.is_task}
    if here:
        return bool(then.keys() & now.keys())
    return then.keys() == now.keys() and all(one.prompt == now[each].prompt for each, one in then.items())


def newest_run(session: Session, ledger: Ledger) -> int | None:
    """Return `None` if the ledger has no run, and raise if it has only others'."""
    runs = ledger.past()
    found = next((one for one in runs if is_own(session, ledger, one)), None)
    if found is None and runs:
        raise UsageError(_others(session, "This notebook has no run in the ledger.", runs, "open"))
    return None if found is None else found.run


def cut_run(session: Session, ledger: Ledger) -> PastRun:
    """Return this notebook's newest cut run, unless a later one of the same plan finished."""
    plans, runs = session.plans, ledger.past()
    ended: dict[str, int] = {}  # how many agents the largest later run had, by plan
    for run in runs:
        if run.state == "running" or (plans and run.plan not in plans) or not is_own(session, ledger, run):
            continue
        if run.state in CUT and run.agents > ended.get(run.plan, 0):
            return run
        if run.state not in CUT:
            ended[run.plan] = max(run.agents, ended.get(run.plan, 0))
    cut = [one for one in runs if one.state in CUT and not is_own(session, ledger, one)]
    none = "This notebook has no run that was cut. %agents run runs what is declared."
    raise UsageError(_others(session, none, cut, "resume --of"))


def _others(session: Session, none: str, runs: list[PastRun], verb: str) -> str:
    if not runs:
        return f"{none} %agents runs lists the runs of the ledger."
    rows = [
        f"  run {one.run} of {one.plan!r} in {one.notebook}, {one.began_at:.16}: "
        f"{one.succeeded} of {one.agents} agents had finished"
        for one in runs[:MOST_LISTED]
    ]
    more = [f"  and {len(runs) - MOST_LISTED:,} more: %agents runs"] * (len(runs) > MOST_LISTED)
    ways = f"%agents {verb} {runs[0].run} takes the first of them."
    unknown = not session.plans and any(one.home == session.keeping.home for one in runs)
    others = "No agent is declared to tell this notebook's from others'" if unknown else "Other notebooks have"
    return "\n".join([none, f"{others}:", *rows, *more, ways])


def whose(session: Session, run: Run) -> str:
    """Return a note if a run is another notebook's."""
    home = run.record.home  # empty for a run of this kernel
    if not home or _is_own(session, home, run.plan.name, lambda: run.plan) is not False:
        return ""
    return f"This is a run of {shown_home(home)}."
