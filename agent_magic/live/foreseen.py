"""What a run will ask, as far as it can be known before, and which of its answers were bought already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.engine.asking import ask
from agent_magic.live.earlier import Earlier
from agent_magic.live.known import Known
from agent_magic.providers.anthropic.client import as_provider
from agent_magic.record.terms import Terms

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from agent_magic.declare.plan import Plan
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.providers.base import Provider
    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger.base import Ledger
    from agent_magic.record.request import Request
    from agent_magic.record.results import RunRecord

ANY_TIMEOUT_S = 60.0
"""No deadline is part of what is asked."""


def foresee(
    plan: Plan,
    client: Provider | AsyncAnthropic | None = None,
    ledger: Ledger | None = None,
    pilot: RunRecord | None = None,
) -> tuple[tuple[Request, ...], tuple[Answer | None, ...]]:
    """Write every request of a plan, and look the answers up that are there already.

    An agent can be looked up once the answers are there that its prompt holds. Nothing is sent.

    Args:
        plan: The plan.
        client: Who would answer: answers are kept by whom they were bought from.
        ledger: Answers bought before; `None` has none.
        pilot: A run of some of the agents, whose answers are there too.

    Returns:
        Per agent, its request, answers that are not there left empty; and per agent, its answer or `None`.

    Raises:
        DeclarationError: A prompt cannot be filled in.
    """
    plan.check_prompts()
    known = None
    if ledger is not None or pilot is not None:
        where = as_provider(client).endpoint
        earlier = None if pilot is None else Earlier(pilot, where, plan=plan)
        known = Known(plan, where, ledger, earlier, fresh=False)
    requests: dict[int, Request] = {}
    held: dict[int, Answer | None] = {}
    for agent in plan.dag.order:
        parents = {name: held[plan.index[name]] for name in plan.inputs[agent]}
        answers = {name: answer.text if answer else "" for name, answer in parents.items()}
        whole = None not in parents.values()
        request = requests[agent] = ask(plan, agent, answers, ANY_TIMEOUT_S, ahead=not whole)
        held[agent] = known.find(agent, request) if known is not None and whole else None
    every = range(len(plan))
    return tuple(requests[agent] for agent in every), tuple(held[agent] for agent in every)


def terms_ahead(client: Provider | AsyncAnthropic | None, pacer: Pacer | None, now: float) -> Terms:
    """Return under which terms a run would begin now, as far as an estimate has to know.

    Args:
        client: Who would answer.
        pacer: Who would keep the rate limits; `None` knows none yet.
        now: The time, in seconds of the pacer's clock.
    """
    key = getattr(as_provider(client), "key", None)
    untried = key is not None and not key.accepted
    before, learned = ({}, {}) if pacer is None else (pacer.ceilings(), pacer.learned(now))
    return Terms({}, bool(before), before, {}, key_untried=untried, learned=learned)
