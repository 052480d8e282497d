"""How long agents are expected to work, by what earlier answers took: who goes first among ready ones stands on it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.agent import Agent
    from agent_magic.record.history import History, Past


def expected_work_s(agents: Sequence[Agent], models: Sequence[str], history: History) -> list[float] | None:
    """Say how long each agent will work.

    1. An agent that was answered by the same model before, or else one of its group: the median of what that took.
    2. One that names its `max_tokens`: so much of them as such answers use, at the model's median pace.
    3. Any other: the median answer of its model, or of all models where it has none.

    Made-up answers and real ones are never mixed: the kind of the latest answer counts.

    Args:
        agents: The agents of a plan.
        models: Per agent, the model it asks.
        history: What earlier answers took.

    Returns:
        Seconds per agent, all above 0; `None` where nothing at all is known, so that every agent counts the same.
    """
    latest = history.latest
    if latest is None:
        return None
    made_up = latest.simulated
    rows = [
        _usable(history.of_agent(agent.name, model) or history.of_kin(agent.name, model), simulated=made_up)
        for agent, model in zip(agents, models, strict=True)
    ]
    answers = {model: _usable(history.of_model(model), simulated=made_up) for model in set(models)}
    known = [row.api_s for some in answers.values() for row in some]
    if not known:
        return None
    paces = {model: _pace_s(some) for model, some in answers.items()}
    share = _share_used(agents, rows)
    usual = {model: median(row.api_s for row in some) if some else median(known) for model, some in answers.items()}

    def seconds(agent: Agent, model: str, own: Sequence[Past]) -> float:
        if own:
            return median(row.api_s for row in own)
        pace_s = paces[model]
        if agent.max_tokens is None or pace_s is None:
            return usual[model]
        return pace_s * agent.max_tokens * share

    return [seconds(agent, model, own) for agent, model, own in zip(agents, models, rows, strict=True)]


def _usable(rows: Sequence[Past], *, simulated: bool) -> list[Past]:
    return [row for row in rows if row.simulated == simulated and row.api_s > 0]


def _pace_s(rows: Sequence[Past]) -> float | None:
    """Return the median seconds per output token; `None` where no row knows."""
    paces = [row.api_s / row.output_tokens for row in rows if row.output_tokens]
    return median(paces) if paces else None


def _share_used(agents: Sequence[Agent], rows: Sequence[Sequence[Past]]) -> float:
    """Return how much of its `max_tokens` an answer uses, by the agents of which both are known; 1 where none is."""
    shares = [
        row.output_tokens / agent.max_tokens
        for agent, own in zip(agents, rows, strict=True)
        for row in own
        if agent.max_tokens and row.output_tokens
    ]
    return median(shares) if shares else 1.0
