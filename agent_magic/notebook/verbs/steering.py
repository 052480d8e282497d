"""Steer what runs: stop, pause, leave out, run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.api import Controls
from agent_magic.errors import UnknownAgent
from agent_magic.notebook.confirming import confirm
from agent_magic.notebook.running import run_and_tell
from agent_magic.notebook.session import DEFAULT_PLAN
from agent_magic.notebook.verb import Desk, Verb, add_names, add_nothing
from agent_magic.notebook.verbs.runs import add_run_options

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Run


def _running(desk: Desk, names: list[str]) -> list[tuple[Controls, list[str]]]:
    """Return what runs, each with those of the names that it has.

    Raises:
        UsageError: Nothing runs.
        UnknownAgent: No run has an agent of such a name.
    """
    running = list(desk.session.running)
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


def _stop(desk: Desk, given: Namespace) -> None:
    for controls, names in _running(desk, given.names):
        controls.stop(names or None)


def _skip(desk: Desk, given: Namespace) -> None:
    if not given.names:
        raise UsageError("%agents skip needs the names of agents. %agents stop ends the run.")
    for controls, names in _running(desk, given.names):
        controls.skip(names)


def _pause(desk: Desk, _: Namespace) -> None:
    for controls, _names in _running(desk, []):
        controls.pause()
    print("Paused: what is under way goes on, nothing else starts. %agents resume goes on.")  # noqa: T201


def _resume(desk: Desk, _: Namespace) -> None:
    for controls, _names in _running(desk, []):
        controls.resume()


async def _retry(desk: Desk, given: Namespace) -> Run | None:
    """Retry within what runs; where nothing does, go on with the last run."""
    if desk.session.running:
        for controls, names in _running(desk, given.names):
            controls.retry(names or None)
        return None
    last, again = desk.session.last_run(), given.names or None
    given.plan = given.plan or (last.plan.name if last.plan.name in desk.session.plans else None)
    given.names = _declared_of(desk, last, given.plan or DEFAULT_PLAN, given.names)
    plan = desk.freeze(given)
    await confirm(desk, given, plan, last, again)
    return await run_and_tell(desk, given, plan, last, again)


def _declared_of(desk: Desk, last: Run, plan: str, named: list[str]) -> list[str]:
    """Name what the last run had, as it was declared, and these: what it never had is not bought along with it.

    Raises:
        UsageError: None of it is declared any more.
    """
    had = {agent.name if agent.part is None else agent.part.group for agent in last.plan.agents}
    found = [agent.name for agent in desk.session.registry(plan).agents if agent.name in had or agent.name in named]
    if not found:
        raise UsageError("No agent of the last run is declared any more. %agents run runs what is.")
    return found


VERBS = {
    "stop": Verb("Stop what runs, or these agents of it.", add_names, _stop),
    "skip": Verb("Leave these agents of what runs out, and what waits for them.", add_names, _skip),
    "pause": Verb("Start nothing more until %agents resume. What is under way goes on.", add_nothing, _pause),
    "resume": Verb("Go on after %agents pause.", add_nothing, _resume),
    "retry": Verb(
        "Run again what failed, was skipped or stopped; all of it, or these agents. What succeeded is kept.",
        add_run_options,
        _retry,
        waits=True,
    ),
}
