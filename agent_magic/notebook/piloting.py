"""`%agents plan --pilot N`: a few agents are really run, their price said first, and the rest is estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.notebook.confirming import confirm
from agent_magic.notebook.front_end import is_kernel
from agent_magic.notebook.planning import show_price
from agent_magic.notebook.running import execute

if TYPE_CHECKING:
    from argparse import Namespace

    from agent_magic.api import Plan, Run
    from agent_magic.notebook.verb import Desk


async def run_pilot(desk: Desk, given: Namespace, plan: Plan) -> Run | None:
    """Run the agents that stand for the most others; `None` where every answer is there already.

    The next run of the plan takes the answers over.

    Raises:
        DeclarationError: The number cannot work.
        UsageError: The user was asked, and said no; nothing was sent.
    """
    session, policy = desk.session, desk.policy(given)
    names = plan.pilot_agents(given.pilot, client=session.client, ledger=None if given.fresh else session.ledger)
    if not names:
        print("note: every answer is in the ledger: there is nothing to try.")  # noqa: T201 - why nothing runs
        return None
    few = plan.select(names)
    print(f"pilot: {', '.join(names)}")  # noqa: T201 - what is about to be bought
    await show_price(few, session, policy)
    await confirm(desk, given, few, None)
    session.pilot = await execute(session, few, policy, fresh=given.fresh, graphic=is_kernel(desk.shell))
    return session.pilot
