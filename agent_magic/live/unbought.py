"""What a run will have to buy, before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.engine.asking import ask
from agent_magic.live.known import Known

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan
    from agent_magic.live.earlier import Earlier
    from agent_magic.record.ledger.base import Ledger


def unbought(
    plan: Plan, endpoint: str, ledger: Ledger | None, earlier: Earlier | None, *, fresh: bool, timeout_s: float
) -> list[int]:
    """Return the agents that will be asked: those of which no answer is there, and those that use an answer of these.

    Args:
        plan: What runs.
        endpoint: Where requests go.
        ledger: Answers bought before; `None` has none.
        earlier: Answers of an earlier run; `None` takes none over.
        fresh: Ask again what the ledger has.
        timeout_s: The deadline of agents that name none.

    Raises:
        DeclarationError: A prompt cannot be filled in.
    """
    known = Known(plan, endpoint, ledger, earlier, fresh=fresh)
    left_out = () if earlier is None else earlier.left_out
    texts: dict[str, str] = {}
    found: list[int] = []
    for agent in plan.dag.order:
        name = plan.agents[agent].name
        if name in left_out:
            continue
        answer = None
        if all(one in texts for one in plan.inputs[agent]):
            answer = known.find(agent, ask(plan, agent, texts, timeout_s, ahead=True))
        if answer is None:
            found.append(agent)
        else:
            texts[name] = answer.text
    return found
