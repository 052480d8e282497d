"""Results: the last run, an answer, an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.declare.units import UNKNOWN, plural, seconds
from agent_magic.errors import Rejected
from agent_magic.notebook.command import CommandContext, Parser, Verb, add_name, add_nothing
from agent_magic.notebook.front_end import display_value, is_kernel, note, say, show_page
from agent_magic.notebook.own_runs import whose
from agent_magic.record.display import single_line
from agent_magic.record.ledger.base import IN_DOUBT
from agent_magic.show.page import Column, Line, Page, Table, Words

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run
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


def _show_options(parser: Parser) -> None:
    add_name(parser)
    parser.add_argument("--markdown", action="store_true", help="Render it, without HTML, pictures or unsafe links.")


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
            seconds(one.api_s),
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
        add_nothing,
        _last,
        examples=("run = %agents last", "%agents last    # its picture"),
    ),
    "show": Verb(
        "Show the answer of an agent of the last run, or of the run under way.",
        _show_options,
        _show,
        examples=("%agents show compare", "%agents show compare --markdown"),
    ),
    "error": Verb(
        "Show why an agent or a task failed, by attempts and lines of your functions, in the last run or the run under "
        "way.",
        add_name,
        _error,
        examples=("%agents error compare",),
    ),
}
