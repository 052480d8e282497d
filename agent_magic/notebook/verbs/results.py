"""What came of the last run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.notebook.listing import agent_error, agent_text
from agent_magic.notebook.verb import Desk, Verb, add_name, add_nothing

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run


def _last(desk: Desk, _: Namespace) -> Run:
    return desk.session.last_run()


def _show(desk: Desk, given: Namespace) -> None:
    print(agent_text(desk.session.last_run(), given.name))  # noqa: T201 - the answer


def _error(desk: Desk, given: Namespace) -> None:
    print(agent_error(desk.session.last_run(), given.name))  # noqa: T201 - the answer


VERBS = {
    "last": Verb("Return the last run, one that was cut too.", add_nothing, _last),
    "show": Verb("Show the answer of an agent of the last run.", add_name, _show),
    "error": Verb("Show all that is known of why an agent of the last run failed.", add_name, _error),
}
