"""A large run is asked about before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from agent_magic.errors import NotConnected
from agent_magic.forecast.confirm import confirmation, outlay
from agent_magic.live.ahead import unbought
from agent_magic.live.earlier import Earlier
from agent_magic.notebook.front_end import agrees, can_ask
from agent_magic.record.prices import Prices
from agent_magic.show.estimates import outlay_line

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from agent_magic.api import Plan, Run
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.confirm import Outlay
    from agent_magic.notebook.session import Session
    from agent_magic.notebook.verb import Desk


async def confirm(
    desk: Desk, given: Namespace, plan: Plan, resume: Run | None, again: Sequence[str] | None = None
) -> None:
    """Ask whether to run a plan, where it is large by `%config AgentMagics`. Where nobody can answer, say what it is.

    Raises:
        UsageError: The answer was no; nothing was sent.
    """
    session = desk.session
    if not session.spends or given.yes or not (desk.confirm_agents or desk.confirm_usd):
        return
    plan.check_prompts()
    policy = desk.policy(given)
    what = _outlay(session, plan, policy, resume, again, fresh=given.fresh)
    limits = {"above_agents": desk.confirm_agents, "above_usd": desk.confirm_usd}
    decided = confirmation(what, **limits, yes=given.yes, can_ask=can_ask(desk.shell))
    if decided == "go" or not await _has_key(session):
        return
    line = outlay_line(what, policy.budget_usd)
    if decided == "note":
        cap = "" if policy.budget_usd is not None else "; --budget USD sets a cap"
        print(f"note: {line}{cap}")  # noqa: T201 - whoever reads the log has to know
    elif not agrees(f"{line}: run? [y/N] "):
        raise UsageError(f"Nothing was sent: {line}. --yes runs without asking, --budget USD sets a cap.")


def _outlay(
    session: Session, plan: Plan, policy: Policy, resume: Run | None, again: Sequence[str] | None, *, fresh: bool
) -> Outlay:
    """Estimate those agents of a plan that have to be bought."""
    where = session.client.endpoint
    earlier = None if resume is None else Earlier(resume.record, where, plan=plan, again=again)
    if session.deck is not None:  # it answers what it has, and the rest is bought
        asked = session.deck.find(plan, timeout_s=policy.timeout_s).missing
    else:
        asked = unbought(plan, where, session.ledger, earlier, fresh=fresh, timeout_s=policy.timeout_s)
    prices = Prices(session.prices, tell=lambda _: None)  # the line says how many have none
    found = plan.estimate(policy, client=session.client, history=session.history, prices=prices)
    return outlay(found.expected[agent] for agent in asked)


async def _has_key(session: Session) -> bool:
    """Tell whether something can be sent at all. Where it cannot, the run says so, or plays a recording."""
    try:
        async with session.client.open():
            return True
    except NotConnected:
        return False
