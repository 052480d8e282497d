"""What a plan may cost before it has run. Every number here is an estimate and says on what it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, DEFAULT_MODEL
from agent_magic.record.answer import CHARS_PER_TOKEN, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.record.prices import Prices
    from agent_magic.record.request import Request

ASSUMED_OUTPUT_TOKENS = 500
"""The length of an answer nobody has seen yet: an assumption, not a measurement. Capped at `max_tokens`."""

Basis = Literal["counted", "estimated"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What one agent may use.

    Attributes:
        input_tokens: Its prompt, its parents' answers assumed `ASSUMED_OUTPUT_TOKENS` long.
        output_tokens: The assumed length of its answer.
        cost_usd: Dollars for both; `None` where the price is unknown.
        most_usd: Dollars if it and its parents use their `max_tokens` to the full.
        basis: `counted` where the API counted the whole prompt, else `estimated`.
    """

    agent: str
    layer: int
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    most_usd: float | None
    basis: Basis


def expect(plan: Plan, requests: Sequence[Request], counted: Sequence[int | None], prices: Prices) -> list[Expected]:
    """Estimate every agent of a plan.

    Args:
        plan: The plan.
        requests: Per agent, what it will ask, its parents' answers left empty.
        counted: Per agent, the API's count of that, or `None`.
        prices: What tokens cost.
    """
    return [_expect(plan, agent, requests[agent], counted[agent], prices) for agent in range(len(plan))]


def _expect(plan: Plan, agent: int, request: Request, counted: int | None, prices: Prices) -> Expected:
    declared = plan.agents[agent]
    model, cap = declared.model or DEFAULT_MODEL, declared.max_tokens or DEFAULT_MAX_TOKENS
    parents = [plan[name] for name in plan.inputs[agent]]
    caps = [parent.max_tokens or DEFAULT_MAX_TOKENS for parent in parents]
    texts = (request.prompt, request.system or "", request.context or "")
    own = sum(map(len, texts)) // CHARS_PER_TOKEN + 1 if counted is None else counted
    tokens = own + sum(min(ASSUMED_OUTPUT_TOKENS, one) for one in caps)
    output = min(ASSUMED_OUTPUT_TOKENS, cap)

    def cost(given: int, produced: int) -> float | None:
        return prices.of(model, Usage(given, output_tokens=produced)).cost_usd

    return Expected(
        agent=declared.name,
        layer=plan.dag.layer[agent],
        model=model,
        input_tokens=tokens,
        output_tokens=output,
        cost_usd=cost(tokens, output),
        most_usd=cost(own + sum(caps), cap),
        basis="counted" if counted is not None and not parents else "estimated",
    )
