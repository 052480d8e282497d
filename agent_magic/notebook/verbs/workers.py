"""Worker processes: which there are, and how many there should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.notebook.command import CommandContext, Parser, Verb, one_of
from agent_magic.notebook.front_end import is_kernel, say, show_page
from agent_magic.show.page import Column, Line, Page, Table

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.providers.dask.client import Dask

NO_WORKERS = "The kernel makes the requests itself. %agents connect dask has workers make them."
COLUMNS = (
    Column("worker"),
    Column("state"),
    Column("streams", "number"),
    Column("answered", "number"),
    Column("failed", "number"),
)


def _options(parser: Parser) -> None:
    parser.add_argument(
        "what", nargs="?", metavar="scale|drain", help="scale N: run N workers. drain: send them nothing new."
    )
    parser.add_argument("which", nargs="*", metavar="N|NAME", help="How many; or names to drain, by default all.")


def _workers(ctx: CommandContext, given: Namespace) -> None:
    dask = ctx.session.workers
    if dask is None and given.what is None:
        say(NO_WORKERS)
        return
    if dask is None:
        raise UsageError(NO_WORKERS)
    if given.what is not None and one_of("%agents workers", given.what, ("scale", "drain")) == "scale":
        _scale(dask, given.which)
    elif given.what is not None:
        _drain(dask, given.which)
    show_page(_page(dask), graphic=is_kernel(ctx.shell))


def _scale(dask: Dask, which: list[str]) -> None:
    if len(which) != 1 or not which[0].isdecimal() or not int(which[0]):
        raise UsageError(f"%agents workers scale: the number of workers must be >= 1, got {' '.join(which)!r}.")
    wanted, there = int(which[0]), sum(one.state != "draining" for one in dask.workers())
    dask.scale(wanted)
    fewer = " Workers that are no longer needed finish their streams first." if wanted < there else ""
    auto = dask.autoscale
    more = "" if auto is None else f" Automatic scaling goes on from there: it decides every {auto.interval_s:g} s."
    say(f"From now on there {'is' if wanted == 1 else 'are'} {wanted}.{fewer}{more}")


def _drain(dask: Dask, which: list[str]) -> None:
    known = [one.name for one in dask.workers()]
    for name in which:
        one_of("%agents workers drain", name, known)
    dask.drain(which or None)


def _page(dask: Dask) -> Page:
    found = dask.workers()
    rows = [(one.name, one.state, f"{one.streams:,}", f"{one.answered:,}", f"{one.failed:,}") for one in found]
    count, more = dask.starting, list[Line]()
    if count:
        more.append(Line(f"{count} more {'is' if count == 1 else 'are'} being started, which takes seconds"))
    if not rows and not dask.cluster.is_started:
        return Page([Line("The workers start with the first run.")])
    if not rows:
        how = "%agents workers scale 2 starts some." if dask.cluster.is_own else "Start some where the cluster runs."
        return Page(more or [Line(f"There are no workers. {how}")])
    which = "the last run" if all(one.state == "idle" for one in found) else "the run under way"
    return Page([Table(COLUMNS, rows, strong=True), *more, Line(f"answered and failed: in {which}")])


VERBS = {
    "workers": Verb(
        "Show the worker processes that make requests, or change them: scale N, drain [NAMES].",
        _options,
        _workers,
        examples=(
            "%agents workers",
            "%agents workers scale 4",
            "%agents workers drain worker-0    # its streams end, nothing new begins",
        ),
    ),
}
