"""Results: the last run, an answer, an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.notebook.command import CommandContext, Parser, Verb, add_name, add_nothing
from agent_magic.notebook.front_end import display_value, say
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run
    from agent_magic.record.results import AgentResult

MOST_ERRORS = 5
MOST_PARTIAL = 200


def _last(ctx: CommandContext, _: Namespace) -> Run:
    return ctx.session.last_run()


def _show_options(parser: Parser) -> None:
    add_name(parser)
    parser.add_argument("--markdown", action="store_true", help="Render it, without HTML, pictures or unsafe links.")


def _show(ctx: CommandContext, given: Namespace) -> None:
    show_result(ctx.session.run_of(given.name), given.name, markdown=given.markdown)


def show_result(run: Run, name: str, *, markdown: bool) -> None:
    """Show the answer of an agent, as text or as Markdown; of a group its frame."""
    if name in run.plan.groups:
        display_value(run.each(name))
    elif markdown:
        display_value(run.markdown(name))
    else:
        say(answer_text(run, name))


def _error(ctx: CommandContext, given: Namespace) -> None:
    say(error_text(ctx.session.run_of(given.name), given.name))


def answer_text(run: Run, name: str) -> str:
    """Return the answer of an agent, or the part of it that arrived."""
    result = run[name]
    if result.text:
        return result.text
    return f"{name} has no text: {result.status}{f' ({result.error})' if result.error else ''}."


def error_text(run: Run, name: str) -> str:
    """Return why an agent did not succeed, attempt by attempt. Of a group, the first failed agents."""
    if name not in run.plan.groups:
        return _result_error(run[name])
    members = [run.record.results[number] for number in run.plan.groups[name].values()]
    failed = [one for one in members if one.error is not None]
    more = [f"… and {len(failed) - MOST_ERRORS:,} more"] if len(failed) > MOST_ERRORS else []
    told = map(_result_error, failed[:MOST_ERRORS])
    return "\n".join([f"{name}: {len(failed):,} of {len(members):,} failed", *told, *more])


def _result_error(result: AgentResult) -> str:
    if result.error is None and not any(attempt.error for attempt in result.attempts):
        return f"{result.name}: {result.status}."
    lines = [
        f"{result.name}: {result.status}" + (f": {result.error}" if result.error else ""),
        f"  model {result.model}, {plural(len(result.attempts), 'attempt')}",
    ]
    for attempt in result.attempts:
        took = "" if attempt.api_s is None else f" after {attempt.api_s:.1f} s"
        status = "" if attempt.status_code is None else f" (HTTP {attempt.status_code})"
        lines.append(f"  attempt {attempt.number}{status}{took}: {attempt.error or attempt.status}")
        if attempt.partial:
            lines.append(f"    {len(attempt.partial):,} characters had arrived: {attempt.partial[:MOST_PARTIAL]!r}")
    return "\n".join(lines)


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
        "Show why an agent failed, attempt by attempt, in the last run or the run under way.",
        add_name,
        _error,
        examples=("%agents error compare",),
    ),
}
