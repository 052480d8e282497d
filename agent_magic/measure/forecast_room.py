"""The room of a forecast: who shares a context, and the gate, both built as the live run builds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.measure.forecast_terms import known_to
from agent_magic.record.answer import Usage
from agent_magic.schedule.breaker import Breakers
from agent_magic.schedule.budget import Budget, Worst
from agent_magic.schedule.key import Key
from agent_magic.schedule.pacer import Pacer
from agent_magic.schedule.prefix import paying_groups
from agent_magic.schedule.room import OVERHEAD_TOKENS, Gate, Need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.measure.forecast_work import Work
    from agent_magic.measure.forecast_world import Pricing
    from agent_magic.record.results import RunRecord
    from agent_magic.schedule.policy import Policy
    from agent_magic.schedule.prefix import Prefixes

PRIMED_S: Final = 120.0
"""How long before the run the pacer is taken to have learned the limits it knew."""
NOTHING: Final = Worst(0.0, 0)


def groups_of(works: Sequence[Work], contexts: Sequence[str | None], policy: Policy) -> list[str | None] | None:
    """Name the shared context each agent asks to be cached; `None` where none is.

    Args:
        works: What the agents do.
        contexts: Per agent, the name of its context.
        policy: How to run.
    """
    if policy.cache == "off" or not any(contexts):
        return None
    tokens = {name: work.shared for name, work in zip(contexts, works, strict=True) if name is not None}
    return paying_groups([work.model for work in works], contexts, tokens, always=policy.cache == "on")


def gate_of(
    record: RunRecord,
    policy: Policy,
    works: Sequence[Work],
    *,
    prefixes: Prefixes | None,
    price: Pricing,
    timeouts_s: Sequence[float],
    limited: bool,
    knows: bool,
) -> Gate | None:
    """Build the room of a run; `None` where nothing limits it.

    Args:
        record: The run that was recorded.
        policy: How to run.
        works: What the agents do.
        prefixes: Who shares a context with whom.
        price: What tokens of a model cost.
        timeouts_s: Per agent, its deadline.
        limited: Whether the provider has limits.
        knows: Whether the pacer begins with what the recorded run's knew.
    """
    budget = policy.budget_usd is not None or policy.budget_tokens is not None
    capped = budget or policy.max_usd_per_min is not None
    paced = limited or (record.terms is not None and record.terms.paced)
    untried = record.terms is not None and record.terms.key_untried
    if not (capped or paced or untried or prefixes is not None):
        return None
    needs: dict[int, Need] = {}

    def need(agent: int) -> Need:
        found = needs.get(agent)
        if found is None:
            work = works[agent]
            worst = worst_of(work, None if prefixes is None else prefixes.ttl(agent), price) if capped else NOTHING
            shared = work.shared if prefixes is not None and prefixes.name(agent) is not None else 0
            found = needs[agent] = Need(work.model, work.need, work.max_tokens, worst, shared_tokens=shared)
        return found

    pacer = Pacer(seed=policy.seed) if paced else None
    gate = Gate(
        [work.model for work in works],
        need,
        pacer=pacer,
        budget=Budget(policy.budget_usd, policy.budget_tokens) if budget else None,
        prefixes=prefixes,
        breakers=Breakers(policy.breaker_share, policy.max_usd_per_min),
        key=Key() if untried else None,
        patience_s=timeouts_s,
    )
    if pacer is not None and knows:
        gate.began_s = PRIMED_S
        known_to(pacer, record, PRIMED_S)
    return gate


def worst_of(work: Work, ttl: str | None, price: Pricing) -> Worst:
    """Return the most a request can use, counted as a live run sets it aside: no token is shorter than a byte.

    Args:
        work: What the agent does.
        ttl: For how long its context is to be cached; `None` caches nothing.
        price: What tokens cost.
    """
    size = work.size + OVERHEAD_TOKENS
    written = 0 if ttl is None else work.context_size
    usage = Usage(
        size - written,
        cache_write_tokens=written,
        output_tokens=work.max_tokens,
        cache_write_1h_tokens=written if ttl == "1h" else 0,
    )
    return Worst(price(work.model, usage), size + work.max_tokens)
