"""The ledger: reopen past runs, and look after the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError

from agent_magic.declare.agent import Agent
from agent_magic.declare.answers.returns import found_again
from agent_magic.declare.cells import to_cell
from agent_magic.declare.declared import declared
from agent_magic.declare.units import dollars, plural
from agent_magic.errors import PlanError
from agent_magic.notebook.command import CommandContext, Verb, argument, one_of, path_of
from agent_magic.notebook.files.cells import Kept, load_session, save_session
from agent_magic.notebook.front_end import cell_of, note, put_cell, say
from agent_magic.notebook.verbs.results import newest_run, whose
from agent_magic.show.text import listed

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    import pandas as pd

    from agent_magic.api import Ledger, Run
    from agent_magic.declare.step import Step


def _ledger_of(ctx: CommandContext) -> Ledger:
    ledger = ctx.session.keeping.ledger
    if ledger is None:
        raise UsageError("The ledger is off. %config AgentMagics.ledger = 'FILE' turns it on.")
    for text in ctx.session.keeping.take_notes():
        note(text)
    return ledger


def _runs(ctx: CommandContext, _: Namespace) -> pd.DataFrame:
    runs = _ledger_of(ctx).runs()
    if not len(runs):
        note("the ledger has no run yet")  # an empty frame says less
    return runs


def _open(ctx: CommandContext, given: Namespace) -> Run:
    ledger = _ledger_of(ctx)
    run = ledger.open(newest_run(ctx.session, ledger) if given.run is None else given.run)
    ctx.session.last = run
    if said := whose(ctx.session, run):
        note(said)
    if given.declare:
        _declare(ctx, run)
    return run


def _declare(ctx: CommandContext, run: Run) -> None:
    # Its functions are the notebook's, and stay as they are declared.
    registry = ctx.session.registry(run.plan.name)
    now = {step.name: step for step in registry.agents}
    steps = [_as_written(ctx, step, now.get(step.name)) for step in declared(run.plan)]
    asked = [step for step in steps if isinstance(step, Agent) or step.race]
    text = to_cell(asked, name=run.plan.name, description=run.plan.description)
    gone = [step.name for step in registry.agents if step.name not in {one.name for one in steps}]
    registry.drop(gone)
    cell = cell_of(ctx.shell)
    registry.declare_all(asked, replace(cell, id=None), ran=(), variables=(), cycles=True)
    kept = [step.name for step in steps if step not in asked]
    stays = f" {listed(kept)} stay{'s' * (len(kept) == 1)} as declared now." if kept else ""
    say(f"Declared {plural(len(asked), 'agent')} of {run.plan.name!r} as they were; their cell is below.{stays}")
    put_cell(ctx.shell, text)


def _as_written(ctx: CommandContext, step: Step, now: Step | None) -> Step:
    """Return a step of a record as its cell had it: a record has defaults, but no names of types and tools."""
    if not isinstance(step, Agent):
        if now is None and not step.race:
            message = f"{step.name!r} was a function, and the notebook declares none of that name."
            raise PlanError(f"{message} Run the cell that defines it with @am.task, then this again.")
        return step
    found: dict[str, Any] = {name: None for name, value in ctx.defaults().items() if getattr(step, name) == value}
    same = {name for name in ("returns", "tools") if now is not None and getattr(now, name) == getattr(step, name)}
    found |= {name: getattr(now, name) for name in same}
    names, hint = ctx.shell.user_ns, "Run the cell that defines it, then this again."
    if step.returns is not None and not (found.get("returns") and found["returns"].written):
        found["returns"] = found_again(step.returns, names, step.name)
        if found["returns"] is None:
            raise PlanError(f"{step.name!r} returned {step.returns}, and the notebook has no type like that. {hint}")
    if step.tools and "tools" not in same:  # two are equal with their functions, which no record has
        wanted = ",".join(tool.name for tool in step.tools)
        found["tools"] = ctx.session.find_tools(names, step.name, wanted)
        if [one.definition() for one in found["tools"]] != [one.definition() for one in step.tools]:
            raise PlanError(f"The tools of {step.name!r}, {wanted}, have changed since. {hint}")
    return replace(step, **found)


def _ledger(ctx: CommandContext, given: Namespace) -> None:
    do = ACTIONS[one_of("%agents ledger", given.action, ACTIONS)]
    say(do(_ledger_of(ctx), given))


def _size(ledger: Ledger, _: Namespace) -> str:
    size = ledger.size()
    where = "in memory, until this kernel ends" if ledger.path is None else _near(ledger.path)
    spent = "nothing spent" if size.cost_usd is None else f"{dollars(size.cost_usd)} spent"
    saved = "" if size.saved_usd is None else f", {dollars(size.saved_usd)} saved by reusing answers"
    lines = [
        f"ledger: {where}, {size.bytes / 1e6:,.1f} MB",
        f"{plural(size.answers, 'answer')} ({size.simulated:,} simulated) of {plural(size.runs, 'run')}",
        f"{spent}{saved}",
    ]
    if size.unknown:
        lines.append(f"{plural(size.unknown, 'call')} in flight when a kernel ended: may have been billed")
    return "\n".join(lines)


def _near(path: Path) -> str:
    for base, mark in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{mark}{path.relative_to(base)}"
    return str(path)


def _verify(ledger: Ledger, _: Namespace) -> str:
    check = ledger.verify()
    found = f"{plural(check.answers, 'answer')} of {plural(check.runs, 'run')} are intact"
    if check.ok:
        return f"{found}. No problem found."
    wrong = [*([f"{check.damaged:,} damaged, which are never reused"] if check.damaged else []), *check.problems[:5]]
    return f"{found}; {'; '.join(wrong)}. A new kernel moves a damaged file aside and recovers what can be read."


def _prune(ledger: Ledger, given: Namespace) -> str:
    if given.days is None and not given.simulated:
        raise UsageError("%agents ledger prune deletes answers for good: say which with --days N, --simulated or both.")
    before = ledger.size().bytes
    gone = ledger.prune(days=given.days, simulated=given.simulated)
    return f"{plural(gone, 'answer')} deleted, {max(0, before - ledger.size().bytes) / 1e6:,.1f} MB freed."


def _export(ledger: Ledger, given: Namespace) -> str:
    if not given.file:
        raise UsageError("%agents ledger export needs a file to write: %agents ledger export FILE")
    try:
        answers = plural(ledger.export(Path(given.file).expanduser()), "answer")
        return f"{answers} written to {given.file}, a line of JSON each."
    except OSError as error:
        raise UsageError(f"{given.file!r} cannot be written: {error.strerror}. Choose another place.") from None


def _salvage(ledger: Ledger, _: Namespace) -> str:
    return f"{plural(ledger.salvage(), 'answer')} recovered from damaged files that were moved aside."


ACTIONS: dict[str, Callable[[Ledger, Any], str]] = {
    "size": _size,
    "verify": _verify,
    "prune": _prune,
    "export": _export,
    "salvage": _salvage,
}


_SESSION_OPTIONS: Final = (
    argument("file", metavar="FILE", help="The file of the session, such as work.session."),
    argument("--anywhere", action="store_true", help="The file may lie outside the notebook's folder."),
)


def _save(ctx: CommandContext, given: Namespace) -> None:
    kept = save_session(ctx.session, path_of(given.file, given))
    say(f"Saved in {given.file}: {_told(kept)}. It has your prompts and answers: it is yours, not for sharing.")
    if kept.left_out:
        note(f"functions are not in it, run their cells again: {', '.join(kept.left_out)}")


def _load(ctx: CommandContext, given: Namespace) -> Run | None:
    kept = load_session(ctx.session, path_of(given.file, given), ctx.shell.user_ns, cell_of(ctx.shell))
    say(f"Loaded from {given.file}: {_told(kept)}.")
    return ctx.session.last if kept.runs else None


def _told(kept: Kept) -> str:
    others = "not the limits learned, which are another provider's" if kept.others else "no limits"
    limits = "the limits learned" if kept.limits else others
    return ", ".join([plural(kept.steps, "declaration"), plural(kept.runs, "run"), limits])


VERBS = {
    "save": Verb(
        "Save the session to a file: what is declared, the rate limits that were learned, its runs.",
        _SESSION_OPTIONS,
        _save,
        examples=("%agents save work.session",),
    ),
    "load": Verb(
        "Load a session that %agents save has saved. Returns its last run.",
        _SESSION_OPTIONS,
        _load,
        examples=("run = %agents load work.session",),
    ),
    "runs": Verb(
        "List all runs of the ledger, also those of earlier sessions.",
        (),
        _runs,
        examples=("%agents runs",),
    ),
    "open": Verb(
        "Bring a past run back: frames, picture, timeline. Returns the run.",
        (
            argument(
                "run",
                nargs="?",
                type=int,
                metavar="RUN",
                help="Its number in %agents runs; without, this notebook's newest.",
            ),
            argument("--declare", action="store_true", help="Declare its agents again, and put their cell below."),
        ),
        _open,
        examples=(
            "run = %agents open    # the newest",
            "run = %agents open 12",
            "%agents open 7 --declare    # its agents as they were, and their cell below",
        ),
    ),
    "ledger": Verb(
        "Show what the ledger holds; verify, prune, export or salvage it.",
        (
            argument(
                "action", nargs="?", default="size", metavar="WHAT", help=f"One of {', '.join(ACTIONS)}.", words=ACTIONS
            ),
            argument("file", nargs="?", metavar="FILE", help="Where export writes."),
            argument("--days", type=float, metavar="N", help="prune: answers older than this."),
            argument("--simulated", action="store_true", help="prune: only simulated answers."),
        ),
        _ledger,
        examples=(
            "%agents ledger",
            "%agents ledger verify",
            "%agents ledger prune --days 90    # for good",
            "%agents ledger export answers.jsonl",
        ),
    ),
}
