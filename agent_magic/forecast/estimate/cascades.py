"""Further models of a cascade in an estimate."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING

from agent_magic.engine.retry import Failure
from agent_magic.forecast.estimate.agents import guess_all
from agent_magic.forecast.pace import tokens_factor
from agent_magic.record.answer import ESCALATED

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.forecast.estimate.agents import Guess
    from agent_magic.record.answer import Answer
    from agent_magic.record.history import History
    from agent_magic.record.request import Request
    from agent_magic.record.terms import Terms

ESCALATION = Failure(ESCALATED, kind=ESCALATED)
"""The failure of an attempt after which the next model is asked."""


@dataclass(frozen=True, slots=True)
class NextModel:
    """The next model of one agent; at the low end it is never asked, at the high end always, else if `likely`."""

    request: Request
    guess: Guess
    likely: bool


def cascades_of(
    plan: Plan,
    requests: Sequence[Request],
    held: Sequence[Answer | None],
    counted: Sequence[int | None] | None,
    history: History,
    pilot: Collection[str],
    *,
    terms: Terms,
    there: Sequence[Answer | None],
) -> dict[int, list[NextModel]]:
    """Return the further models of each agent that has a cascade, in order.

    Earlier answers say how often one was asked after another: as many members of a group are taken to escalate.
    Without any, all are.
    """
    found: dict[int, list[NextModel]] = {n: [] for n, one in enumerate(plan.agents) if one.cascade}
    for rung in range(1, max((len(plan.agents[one].cascade) for one in found), default=1)):
        asked = [
            request._replace(model=plan.agents[n].cascade[rung]) if rung < len(plan.agents[n].cascade) else request
            for n, request in enumerate(requests)
        ]
        sizes = None if counted is None else [*map(as_of, counted, requests, asked)]
        guesses = guess_all(plan, asked, held, sizes, history, pilot, terms=terms, there=there)
        for agent, steps in found.items():
            cascade = plan.agents[agent].cascade
            if rung < len(cascade):
                share = _share(plan, agent, history, cascade[0], cascade[rung])
                steps.append(NextModel(asked[agent], guesses[agent], _is_likely(plan, agent, share)))
    return found


def as_of(tokens: int | None, request: Request, other: Request) -> int | None:
    """Return the counted tokens of a request, converted to another one's model."""
    return None if tokens is None else round(tokens * tokens_factor(request.model, other.model))


def _share(plan: Plan, agent: int, history: History, first: str, model: str) -> float:
    """Return how often a model was asked after the first one, by the answers of an agent or its group."""
    name = plan.agents[agent].name
    for rows in (history.of_agent, history.of_kin):
        if asked := len(rows(name, first)):
            return min(1.0, len(rows(name, model)) / asked)
    return 1.0


def _is_likely(plan: Plan, agent: int, share: float) -> bool:
    """Return whether an agent is among those that escalate: they are spread evenly over its group."""
    part = plan.agents[agent].part
    number = 0 if part is None else part.number
    return share > 0.5 if part is None else floor((number + 1) * share) > floor(number * share)
