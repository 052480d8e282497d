"""`%agents plan`: the graph, the prompts and what they may cost and take, without spending."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agent_magic.declare.written import python_notes
from agent_magic.live.ahead import count_ahead, terms_ahead
from agent_magic.notebook.front_end import display_bundle
from agent_magic.show.cards import plan_picture
from agent_magic.show.estimates import estimate_text, price_line
from agent_magic.show.text import plan_text

if TYPE_CHECKING:
    from agent_magic.api import Ledger, Plan, Run
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.value import Estimate
    from agent_magic.notebook.session import Session

MOST_PROMPTS = 3
"""More prompts of one group than this are not printed: they differ in their items."""
MOST_CHARS = 2_000
"""More of a prompt than this is not printed."""


async def show_plan(
    plan: Plan, session: Session, policy: Policy, *, fresh: bool, graphic: bool, pilot: Run | None = None
) -> None:
    """Show a plan. Nothing is sent but the prompts, to the free count endpoint.

    Args:
        plan: The plan.
        session: Who counts tokens, what was bought, and what earlier answers took. Without a key tokens are estimated,
            and said to be.
        policy: How it would run.
        fresh: Whether what was bought before would be bought again.
        graphic: Whether the front end can show a picture.
        pilot: A run of a few of its agents, by which the rest is estimated.
    """
    found, trouble = await _estimate(plan, session, policy, None if fresh else session.ledger, pilot)
    if graphic:
        estimates = {one.agent: (one.input_tokens + one.output_tokens, one.cost_usd) for one in found.expected}
        display_bundle(plan_picture(plan, estimates, theme=session.theme))
    else:
        print(plan_text(plan))  # noqa: T201 - the answer
    if trouble:
        print(f"note: tokens could not be counted: {trouble}")  # noqa: T201 - the user has to know
    for note in _python_notes(plan):
        print(f"note: {note}")  # noqa: T201 - as above
    print(f"{estimate_text(found)}\n\n{_prompts_text(plan)}")  # noqa: T201 - the answer


async def show_price(plan: Plan, session: Session, policy: Policy, times: int = 1) -> None:
    """Print in a line what so many runs of a plan may cost, everything bought anew."""
    found, _ = await _estimate(plan, session, policy, None)
    print(price_line(found.expected, times))  # noqa: T201 - the answer


async def _estimate(
    plan: Plan, session: Session, policy: Policy, ledger: Ledger | None, pilot: Run | None = None
) -> tuple[Estimate, str]:
    """Estimate a plan, its prompts counted where the endpoint says, and why it does not."""
    counted, trouble = await count_ahead(plan, session.client, ledger, None if pilot is None else pilot.record)
    return plan.estimate(
        policy,
        client=session.client,
        ledger=ledger,
        history=session.history,
        counted=counted,
        ceilings=terms_ahead(session.client, session.pacer, time.monotonic()),
        simulated=session.simulates,
        prices=session.prices,
        pilot=pilot,
    ), trouble


def _prompts_text(plan: Plan) -> str:
    """Write every context and prompt as it will go out, answers as `<name's answer>`."""
    parts: list[str] = []
    sharing: dict[str, list[int]] = {}
    for number, agent in enumerate(plan.agents):
        if agent.context is not None:
            sharing.setdefault(agent.context, []).append(number)
    for name, numbers in sharing.items():
        who = ", ".join(plan.names[number] for number in numbers)
        parts.append(f"--- context {name}, first for {who}\n{_shortened(plan.context_of(numbers[0]) or '')}")
    for number, agent in enumerate(plan.agents):
        if agent.part is not None and agent.part.number >= MOST_PROMPTS:
            if agent.part.number == MOST_PROMPTS:
                parts.append(f"--- … {len(plan.groups[agent.part.group]) - MOST_PROMPTS:,} more of {agent.part.group}")
            continue
        answers = {name: f"<{name}'s answer>" for name in plan.inputs[number]}
        parts.append(f"--- {agent.name}\n{_shortened(plan.prompt_ahead(number, answers))}")
    return "\n".join(parts)


def _python_notes(plan: Plan) -> list[str]:
    """Say once each which values go out as Python writes them."""
    notes: list[str] = []
    for agent, answers in zip(plan.agents, plan.inputs, strict=True):
        values = {**plan.values, **(agent.part.values if agent.part is not None else {})}
        names = [name for name in agent.template.whole if name not in answers and name not in plan.groups]
        notes += python_notes([*names, *([agent.context] if agent.context else [])], values)
    return list(dict.fromkeys(notes))


def _shortened(prompt: str) -> str:
    if len(prompt) <= MOST_CHARS:
        return prompt
    half = MOST_CHARS // 2
    return f"{prompt[:half]}\n… {len(prompt) - MOST_CHARS:,} more characters …\n{prompt[-half:]}"
