"""The request an agent makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, DEFAULT_MODEL
from agent_magic.record.made import made
from agent_magic.record.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.agent import Agent
    from agent_magic.declare.plan import Plan
    from agent_magic.record.request import Ttl


def model_of(agent: Agent) -> str:
    """Return the model an agent asks."""
    return agent.model or DEFAULT_MODEL


def ask(
    plan: Plan,
    number: int,
    answers: Mapping[str, str],
    timeout_s: float,
    *,
    ttl: Ttl | None = None,
    ahead: bool = False,
) -> Request:
    """Write the request of the agent with this number.

    Args:
        plan: The plan.
        number: The agent.
        answers: The texts of its parents.
        timeout_s: The deadline if it names none.
        ttl: For how long its context is to be cached; `None` does not ask for it.
        ahead: Whether answers are missing, stand-ins in their place; see `Plan.prompt_ahead`.

    Raises:
        DeclarationError: Its prompt cannot be filled in.
    """
    agent = plan.agents[number]
    prompt = plan.prompt_ahead(number, answers) if ahead else plan.prompt_of(number, answers)
    asked = (
        agent.model or DEFAULT_MODEL,
        prompt,
        agent.max_tokens or DEFAULT_MAX_TOKENS,
        agent.system_text,
        None if agent.context is None else plan.context_of(number),
        ttl is not None,
        agent.effort,
        agent.timeout_s or timeout_s,
        ttl or "5m",
        (),
        "",
    )
    return made(Request, asked)
