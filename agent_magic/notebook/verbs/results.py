"""What came of the last run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.notebook.front_end import display_value
from agent_magic.notebook.listing import agent_error, agent_text
from agent_magic.notebook.verb import Desk, Parser, Verb, add_name, add_nothing

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run


def _last(desk: Desk, _: Namespace) -> Run:
    return desk.session.last_run()


def _show_options(parser: Parser) -> None:
    add_name(parser)
    parser.add_argument("--markdown", action="store_true", help="Render it: without HTML, pictures or unsafe links.")


def _show(desk: Desk, given: Namespace) -> None:
    run = desk.session.run_of(given.name)
    if given.name in run.plan.groups:
        display_value(run.each(given.name))
        return
    if given.markdown:
        display_value(run.markdown(given.name))
        return
    print(agent_text(run, given.name))  # noqa: T201 - the answer


def _error(desk: Desk, given: Namespace) -> None:
    print(agent_error(desk.session.run_of(given.name), given.name))  # noqa: T201 - the answer


VERBS = {
    "last": Verb("Return the last run, one that was cut too.", add_nothing, _last),
    "show": Verb(
        "Show the answer of an agent of the last run, or of one that goes on.",
        _show_options,
        _show,
        examples=("%agents show compare", "%agents show compare --markdown"),
    ),
    "error": Verb(
        "Show all that is known of why an agent failed, in the last run or in one that goes on.",
        add_name,
        _error,
        examples=("%agents error compare",),
    ),
}
