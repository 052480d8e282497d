"""The batches that are at the provider."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.declare.units import seconds
from agent_magic.notebook.command import CommandContext, Parser, Verb, one_of
from agent_magic.notebook.front_end import is_kernel, say, show_page
from agent_magic.show.page import Column, Line, Page, Table

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.record.ledger.batches import KeptBatch

COLUMNS = (Column("batch"), Column("requests", "number"), Column("sent"), Column("where"))


def _options(parser: Parser) -> None:
    parser.add_argument("what", nargs="?", metavar="cancel", help="cancel: have no more of its requests answered.")
    parser.add_argument("which", nargs="*", metavar="BATCH", help="Which to cancel; all without a name.")


async def _batches(ctx: CommandContext, given: Namespace) -> None:
    ledger = ctx.session.keeping.ledger
    if ledger is None:
        raise UsageError("The ledger is off, so no batch is known. %config AgentMagics.ledger = 'FILE' turns it on.")
    if given.what is not None and one_of("%agents batches", given.what, ("cancel",)):
        cancelled = await ctx.session.shared.cancel_batches(given.which)
        say(f"Cancelled: {', '.join(cancelled) or 'nothing'}. What was answered by now is billed; a run collects it.")
    show_page(_page(ledger.batches.open()), graphic=is_kernel(ctx.shell))


def _page(batches: list[KeptBatch]) -> Page:
    if not batches:
        return Page([Line("No batch is at a provider, as far as this ledger knows.")])
    rows = [
        (one.id or "not named yet", f"{len(one.names):,}", f"{seconds(time.time() - one.planned_at)} ago", one.endpoint)
        for one in batches
    ]
    return Page([Table(COLUMNS, rows, strong=True), Line("%agents run --batch collects their answers.", "soft")])


VERBS = {
    "batches": Verb(
        "List the batches at the provider, whichever kernel has sent them, or cancel them.",
        _options,
        _batches,
        waits=True,
        examples=(
            "%agents batches",
            "%agents batches cancel msgbatch_013Zva2CMHLNnXjNJJKqJ2EF",
            "%agents batches cancel",
        ),
    ),
}
