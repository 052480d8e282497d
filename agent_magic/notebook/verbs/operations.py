"""Operate many agents: what failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.measure.dead import to_requeue
from agent_magic.notebook.command import CommandContext, Parser, Verb, one_of
from agent_magic.notebook.front_end import note
from agent_magic.notebook.verbs.runs import add_run_options
from agent_magic.notebook.verbs.steering import run_again

if TYPE_CHECKING:
    from argparse import Namespace

    import pandas as pd

    from agent_magic.api import Run


def _dead_options(parser: Parser) -> None:
    parser.add_argument("what", nargs="?", metavar="requeue", help="requeue [NAMES]: ask those again.")
    add_run_options(parser)
    parser.add_argument("--of", type=int, metavar="RUN", help="A run of %%agents runs; by default the last one.")


async def _dead(ctx: CommandContext, given: Namespace) -> pd.DataFrame | Run:
    """Show what failed for good, of all kernels where there is a ledger; or ask it again."""
    session, ledger = ctx.session, ctx.session.keeping.ledger
    if given.of is not None and ledger is None:
        raise UsageError("The ledger is off. %config AgentMagics.ledger = 'FILE' turns it on.")
    chosen = ledger.open(given.of) if given.of is not None and ledger is not None else None
    if given.what is None:
        frame = chosen.dead if chosen is not None else session.last_run().dead if ledger is None else ledger.dead()
        if not len(frame):
            note("nothing failed for good")
        return frame
    one_of("%agents dead", given.what, ("requeue",))
    last = chosen or session.last_run()
    again = to_requeue(last.record, given.names or None)
    given.names = []
    return await run_again(ctx, given, last, again)


VERBS = {
    "dead": Verb(
        "List what failed for good, also in other kernels; requeue asks it again.",
        _dead_options,
        _dead,
        waits=True,
        examples=(
            "%agents dead",
            "run = %agents dead requeue    # where asking again can help",
            "run = %agents dead requeue draft    # this one, whatever it failed of",
            "run = %agents dead requeue --of 12    # of an earlier run",
        ),
    ),
}
