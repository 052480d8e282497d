"""Runs of this notebook in a ledger shared by many.

A run is the notebook's if its file started it, or if its agents are declared now, word for word, so a renamed notebook
finds its runs. If no front end tells the file, as under nbclient, the working folder replaces it, and the plan must
have a declared agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.declared import declared
from agent_magic.errors import LedgerError
from agent_magic.record.files import is_file, shown_home

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.api import Ledger, Run
    from agent_magic.declare.plan import Plan
    from agent_magic.notebook.session import Session
    from agent_magic.record.ledger.runs import PastRun

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
