"""What is declared: listed, forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.notebook.listing import declared_text, running_text
from agent_magic.notebook.session import DEFAULT_PLAN
from agent_magic.notebook.verb import Desk, Verb, add_names, add_plan
from agent_magic.show.units import plural

if TYPE_CHECKING:
    from argparse import Namespace


def _list(desk: Desk, given: Namespace) -> None:
    text = declared_text(desk.session, given.plan or DEFAULT_PLAN, desk.shell.user_ns)
    print("\n".join(filter(None, [text, running_text(desk.session)])))  # noqa: T201 - the answer


def _drop(desk: Desk, given: Namespace) -> None:
    if not given.names:
        raise UsageError("%agents drop needs the names of agents or contexts. %agents clear forgets all.")
    desk.session.registry(given.plan or DEFAULT_PLAN).drop(given.names)
    print(f"Forgotten: {', '.join(given.names)}.")  # noqa: T201 - the answer


def _clear(desk: Desk, given: Namespace) -> None:
    registry = desk.session.registry(given.plan or DEFAULT_PLAN)
    contexts = f" and {plural(len(registry.contexts), 'context')}" if registry.contexts else ""
    print(f"Forgotten: {plural(len(registry), 'agent')}{contexts} of {registry.name!r}.")  # noqa: T201 - the answer
    registry.clear()


VERBS = {
    "list": Verb("List the declared agents by layer, and what runs.", add_plan, _list),
    "drop": Verb("Forget agents or contexts.", add_names, _drop),
    "clear": Verb("Forget all agents and contexts of a plan.", add_plan, _clear),
}
