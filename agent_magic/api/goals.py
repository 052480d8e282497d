"""`plan_for`: a plan for a goal, written by a coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.api.plan import Plan
from agent_magic.declare.coordinator import COORDINATOR, coordinator, read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.api.run import Run
    from agent_magic.api.session import Session
    from agent_magic.engine.policy import Policy
    from agent_magic.providers.base import Provider


async def plan_for(  # noqa: PLR0913 - each by its name
    goal: str,
    values: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    *,
    agents: int | None = None,
    strategy: str = "free",
    model: str | None = None,
    max_tokens: int | None = None,
    client: Provider | None = None,
    session: Session | None = None,
    fresh: bool = False,
) -> Plan:
    """Ask a coordinator for a plan. One request, two if the first answer is no plan; nothing of the plan runs.

    `plan.to_cell()` writes it for a notebook. With a session the request is in its ledger, and reused.

    Args:
        goal: The goal: a template, as prompts are.
        values: Variables of the goal. The plan's prompts may use them too.
        policy: The coordinator's policy.
        agents: Maximum agents of the plan.
        strategy: How to split the work: `free`, `file`, `feature`, `layer`, `phase` or `module`.
        model: The coordinator's model.
        max_tokens: The coordinator's `max_tokens`.
        client, session: As in `Plan.run`.
        fresh: Ask again despite an answer in the ledger.

    Raises:
        RunFailed: No plan came back.
        DeclarationError: An argument is invalid; nothing was sent.
    """
    options: Any = {"agents": agents, "strategy": strategy, "model": model, "max_tokens": max_tokens}
    asked = coordinator(goal, values or {}, Plan, **options)
    return plan_of(await asked.run(policy, client=client, session=session, fresh=fresh))


def plan_of(run: Run, name: str = "agents") -> Plan:
    """Return the plan that a coordinator's run answered with, if it succeeded."""
    run.raise_for_failures()
    return read_plan(run[COORDINATOR].value, Plan, run.plan.values, name=name)
