"""Batches at the provider."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.units import plural, seconds
from agent_magic.notebook.command import CommandContext, Parser, Verb, one_of
from agent_magic.notebook.front_end import is_kernel, say, show_page
from agent_magic.record.files import shown_home
from agent_magic.show.page import Column, Line, Page, Table

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.live.batching import Collected
    from agent_magic.record.ledger.batches import KeptBatch

COLUMNS = (Column("batch"), Column("requests", "number"), Column("sent"), Column("where"), Column("notebook"))

BILLED = "What has been answered is billed; %agents batches collect gets it."
WAYS = (
    "%agents batches collect gets the answers of those that have ended. A run with --batch that lacks an answer waits "
    "for the one that has the same request."
)


def _options(parser: Parser) -> None:
    does = "collect: store the answers of ended batches in the ledger. cancel: stop the open ones."
    parser.add_argument("what", nargs="?", metavar="collect|cancel", help=does)
    parser.add_argument("which", nargs="*", metavar="BATCH", help="A batch; without a name, all of this notebook.")


async def _batches(ctx: CommandContext, given: Namespace) -> None:
    ledger = ctx.session.keeping.ledger
    if ledger is None:
        raise UsageError("The ledger is off, so no batch is known. %config AgentMagics.ledger = 'FILE' turns it on.")
    does = None if given.what is None else one_of("%agents batches", given.what, ("cancel", "collect"))
    if does == "cancel":
        cancelled = await ctx.session.shared.cancel_batches(given.which)
        say(f"Cancelled: {', '.join(cancelled)}. {BILLED}" if cancelled else "Nothing to cancel.")
    elif does == "collect":
        found = await ctx.session.shared.collect_batches(given.which)
        say("\n".join(map(_told, found)) or "Nothing to collect.")
    show_page(_page(ledger.batches.open()), graphic=is_kernel(ctx.shell))


def _told(found: Collected) -> str:
    name = found.id or "A batch that is not named yet"
    if not found.is_over:
        return f"{name} has not ended, or not all of its results can be read yet: collect it later."
    if found.id is None:
        return "A batch was never created: nothing of it is billed."
    if found.answers is None:
        return f"{name} is not known to the provider any more."
    if not found.answers:
        return f"{name} ended without an answer, so nothing of it is billed."
    return f"{name} is over: {plural(found.answers, 'answer')} in the ledger. A run that asks the same reuses them."


def _page(batches: list[KeptBatch]) -> Page:
    if not batches:
        return Page([Line("This ledger knows of no open batch.")])
    rows = [
        (
            one.id or "not named yet",
            f"{len(one.names):,}",
            f"{seconds(time.time() - one.planned_at)} ago",
            one.endpoint,
            shown_home(one.home),
        )
        for one in batches
    ]
    return Page([Table(COLUMNS, rows, strong=True), Line(WAYS, "soft")])


VERBS = {
    "batches": Verb(
        "List the batches at the provider, whichever kernel has sent them; collect or cancel them.",
        _options,
        _batches,
        waits=True,
        examples=(
            "%agents batches",
            "%agents batches collect    # what has ended, also where no run asks for it any more",
            "%agents batches cancel msgbatch_013Zva2CMHLNnXjNJJKqJ2EF",
            "%agents batches cancel",
        ),
    ),
}
