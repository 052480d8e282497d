"""The job of a plan as one agent: what concurrency and many agents are measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from agent_magic.declare.agent import DEFAULT_MAX_TOKENS, DEFAULT_MODEL, DEFAULT_TIMEOUT_S, Agent
from agent_magic.declare.options import INHERITED, SENT
from agent_magic.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.declare.content import Attachment, Prompt
    from agent_magic.declare.plan import Plan

P = TypeVar("P", bound="Plan")
BASELINE = "baseline"
TASKS = "tasks"


def one_agent(
    plan: P,
    *,
    model: str | None = None,
    max_tokens: int | None = None,
    most_of: Callable[[str], int] | None = None,
) -> P:
    """Return the whole job of a plan as one request, in a plan with one agent, `baseline`.

    Its token cap is the sum of all agents' caps, up to the model's maximum, so the work is the same; quality is not
    measured.
    """
    if all(one.is_task for one in plan.agents):
        raise PlanError("A plan without agents has no baseline. Declare an agent first.")
    order = [plan.agents[number] for number in plan.dag.order]
    every = {plan.agents[number].context: plan.context_of(number) for number in plan.dag.order}
    contexts = [name for name, one in every.items() if name is not None and isinstance(one, str)]  # others are attached
    alone = contexts[0] if len(contexts) == 1 else None
    asked = [agent for agent in order if isinstance(agent, Agent)]
    same: dict[str, Any] = {
        name: getattr(asked[0], name)
        for name in ((*INHERITED, *SENT) if len(asked) == len(order) else ())
        if all(getattr(one, name) == getattr(asked[0], name) for one in asked)
    }
    values: dict[str, Any] = {TASKS: _tasks(plan, [] if alone is not None else contexts)}
    attached = _attached(plan)
    values |= attached
    model = model or order[-1].model or DEFAULT_MODEL
    same["model"] = model
    cap = max_tokens or output_cap(plan)
    if most_of is not None and max_tokens is None:
        cap = min(cap, most_of(model))
    return type(plan)(
        (
            Agent(
                BASELINE,
                f"{{{{ {TASKS} }}}}",
                max_tokens=cap,
                context=None if alone is None else f"context_{alone}",
                **same,
                attach=tuple(attached),
                timeout_s=sum(agent.timeout_s or DEFAULT_TIMEOUT_S for agent in order),
            ),
        ),
        values if alone is None else {**values, f"context_{alone}": plan.values[alone]},
        name=f"{plan.name}: one agent",
        description=f"The {len(plan)} agents of {plan.name!r} as one request.",
    )


def output_cap(plan: Plan) -> int:
    return sum(agent.max_tokens or DEFAULT_MAX_TOKENS for agent in plan.agents)


def _tasks(plan: Plan, contexts: list[str]) -> str:
    by_context = {agent.context: number for number, agent in enumerate(plan.agents) if agent.context is not None}
    shared = [f"# {name}\n{plan.context_of(by_context[name])}" for name in contexts]
    intro = (
        f"There are {len(plan)} tasks below. Do them one after another, in this order, and answer each in full under "
        "its heading. Where a task refers to your answer to an earlier one, use what you wrote there."
    )
    return "\n\n".join([*shared, intro, *(_task(plan, number) for number in plan.dag.order)])


def _prompt(plan: Plan, number: int) -> Prompt:
    return plan.prompt_ahead(number, {name: f"(your answer to {name})" for name in plan.inputs[number]})


def _attached(plan: Plan) -> dict[str, Attachment]:
    every = [one.attachment for number in plan.dag.order for one in _prompt(plan, number).attachments]
    once = {one.sha256: one for one in every}
    return {f"attached_{index}": one for index, one in enumerate(once.values(), 1)}


def _task(plan: Plan, number: int) -> str:
    agent = plan.agents[number]
    prompt = _prompt(plan, number).text
    uses = f"\nMaterial: {agent.context}" if agent.context is not None else ""
    system = f"\n{agent.system_text}" if agent.system_text else ""
    return f"## {agent.name}{uses}{system}\n{prompt}"
