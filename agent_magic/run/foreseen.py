"""What a run will ask, as far as it can be known before, and which of its answers were bought already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.run.asking import ask
from agent_magic.run.chosen import as_client
from agent_magic.run.known import Known

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from agent_magic.declare.plan import Plan
    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger import Ledger
    from agent_magic.record.request import Request
    from agent_magic.run.client import Client

ANY_TIMEOUT_S = 60.0
"""No deadline is part of what is asked."""


def foresee(
    plan: Plan, client: Client | AsyncAnthropic | None = None, ledger: Ledger | None = None
) -> tuple[tuple[Request, ...], tuple[Answer | None, ...]]:
    """Write every request of a plan, and look the answers up that are there already.

    An agent can be looked up once the answers are there that its prompt holds. Nothing is sent.

    Args:
        plan: The plan.
        client: Who would answer: answers are kept by whom they were bought from.
        ledger: Answers bought before; `None` has none.

    Returns:
        Per agent, its request, answers that are not there left empty; and per agent, its answer or `None`.

    Raises:
        DeclarationError: A prompt cannot be filled in.
    """
    plan.check_prompts()
    known = None if ledger is None else Known(plan, as_client(client).endpoint, ledger, None, fresh=False)
    requests: dict[int, Request] = {}
    held: dict[int, Answer | None] = {}
    for agent in plan.dag.order:
        parents = {name: held[plan.index[name]] for name in plan.inputs[agent]}
        answers = {name: answer.text if answer else "" for name, answer in parents.items()}
        request = requests[agent] = ask(plan, agent, answers, ANY_TIMEOUT_S)
        whole = None not in parents.values()
        held[agent] = (
            ledger.find(*known.key(agent, request)) if ledger is not None and known is not None and whole else None
        )
    every = range(len(plan))
    return tuple(requests[agent] for agent in every), tuple(held[agent] for agent in every)
