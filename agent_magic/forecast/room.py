"""The room of a forecast: who shares a context, and the gate, both built as the live run builds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.engine.breaker import Breakers
from agent_magic.engine.budget import Budget, Worst
from agent_magic.engine.key import Key
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.prefix import paying_groups
from agent_magic.engine.room import LONGEST_TOKEN, OVERHEAD_TOKENS, Gate, Need
from agent_magic.forecast.terms import known_to
from agent_magic.record.answer import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.engine.policy import Policy
    from agent_magic.engine.prefix import Prefixes
    from agent_magic.forecast.work import Work
    from agent_magic.forecast.world import Pricing
    from agent_magic.record.results import RunRecord

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
    needs = _Needs(works, prefixes, price if capped else None)
    pacer = Pacer(seed=policy.seed) if paced else None
    gate = Gate(
        [work.model for work in works],
        needs.of,
        pacer=pacer,
        budget=Budget(policy.budget_usd, policy.budget_tokens) if budget else None,
        prefixes=prefixes,
        breakers=Breakers(policy.breaker_share, policy.max_usd_per_min),
        key=Key() if untried else None,
        patience_s=timeouts_s,
    )
    gate.count = needs.count
    if pacer is not None and knows:
        gate.began_s = PRIMED_S
        known_to(pacer, record, PRIMED_S)
    return gate


class _Needs:
    """What the requests of a forecast will use.

    Args:
        works: What the agents do.
        prefixes: Who shares a context with whom.
        price: What tokens cost; `None` where nothing counts dollars or tokens.
    """

    def __init__(self, works: Sequence[Work], prefixes: Prefixes | None, price: Pricing | None) -> None:
        self._works, self._prefixes, self._price = works, prefixes, price
        self._known: dict[int, Need] = {}

    def of(self, agent: int) -> Need:
        """Say what an agent's request will use."""
        found = self._known.get(agent)
        if found is None:
            worst, least = NOTHING, None
            if self._price is not None:
                size = self._works[agent].size + OVERHEAD_TOKENS
                worst, least = (self._worst(agent, self._price, most) for most in (size, size // LONGEST_TOKEN))
            found = self._known[agent] = self._need(agent, worst, least)
        return found

    def count(self, agent: int) -> bool:
        """Know an agent's input, as a live run does that has it counted. Nobody waits for that here."""
        if self._price is not None:
            work = self._works[agent]
            known = (one.input_tokens for one in work.tries if one.input_tokens)
            size = next(known, work.size + OVERHEAD_TOKENS)
            self._known[agent] = self._need(agent, self._worst(agent, self._price, size), None)
        return False

    def _need(self, agent: int, worst: Worst, least: Worst | None) -> Need:
        work = self._works[agent]
        shared = work.shared if self._prefixes is not None and self._prefixes.name(agent) is not None else 0
        return Need(work.model, work.need, work.max_tokens, worst, shared_tokens=shared, least=least)

    def _worst(self, agent: int, price: Pricing, size: int) -> Worst:
        ttl = None if self._prefixes is None else self._prefixes.ttl(agent)
        return worst_of(self._works[agent], size, ttl, price)


def worst_of(work: Work, size: int, ttl: str | None, price: Pricing) -> Worst:
    """Return what a request uses that fills its answer, as a live run sets it aside.

    Args:
        work: What the agent does.
        size: Its input tokens; no token is shorter than a byte.
        ttl: For how long its context is to be cached; `None` caches nothing.
        price: What tokens cost.
    """
    written = 0 if ttl is None else min(size, work.context_size)
    usage = Usage(
        size - written,
        cache_write_tokens=written,
        output_tokens=work.max_tokens,
        cache_write_1h_tokens=written if ttl == "1h" else 0,
    )
    return Worst(price(work.model, usage), size + work.max_tokens)
