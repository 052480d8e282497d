"""The cost of shared contexts, and what prompt caching saved or lost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.measure.frames import frame_of, table
from agent_magic.record.facts import Facts
from agent_magic.record.prices import MTOK, Prices
from agent_magic.record.reasons import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from agent_magic.record.answer import Usage
    from agent_magic.record.facts import Attempt
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.results import AgentResult, RunRecord

CONTEXTS = table(
    "context model agents requests cost_usd uncached_usd saved_usd cached ttl leader prefix_tokens cache_write_tokens "
    "cache_read_tokens waited_s uncounted"
)


class Shared(NamedTuple):
    """A context shared by the agents of one model. Sums cover requests with known tokens.

    Attributes:
        context: Its name.
        model: The model.
        agents: Number of agents that share it.
        requests: Number of requests sent with it, without reused answers.
        cost_usd: Cost of cache writes and reads; `None` if nothing was cached or the price is unknown.
        uncached_usd: Cost of the same tokens as uncached input.
        saved_usd: `uncached_usd - cost_usd`, negative if caching lost money; 0 if nothing was cached.
        cached: True if the provider cached it; while unknown, whether any request asked for caching.
        ttl: The requested lifetime; `None` if no request asked for caching.
        leader: The agent that wrote the cache first, or `None`.
        prefix_tokens: Length of the cached prefix; `None` if nothing was read or written.
        cache_write_tokens: Tokens written to the cache; `None` if unknown.
        cache_read_tokens: Tokens read from it.
        waited_s: Total seconds that agents waited for the leader.
        uncounted: Number of requests with unknown tokens.
    """

    context: str
    model: str
    agents: int
    requests: int
    cost_usd: float | None
    uncached_usd: float | None
    saved_usd: float | None
    cached: bool
    ttl: str | None
    leader: str | None
    prefix_tokens: int | None
    cache_write_tokens: int | None
    cache_read_tokens: int | None
    waited_s: float
    uncounted: int


def contexts_frame(record: RunRecord, prices: Prices | Mapping[str, TokenPrice] | None = None) -> pd.DataFrame:
    return frame_of([one._asdict() for one in shared_contexts(record, prices)], CONTEXTS, record)


def shared_contexts(record: RunRecord, prices: Prices | Mapping[str, TokenPrice] | None = None) -> tuple[Shared, ...]:
    groups: dict[tuple[str, str], list[AgentResult]] = {}
    for agent, result in zip(record.plan.agents, record.results, strict=True):
        if agent.context is not None:
            groups.setdefault((agent.context, result.model), []).append(result)
    if not groups:
        return ()
    book = prices if isinstance(prices, Prices) else Prices(prices)
    return tuple(_shared(context, model, results, book) for (context, model), results in groups.items())


def _shared(context: str, model: str, results: Sequence[AgentResult], prices: Prices) -> Shared:
    sent = Facts.of(results).sent
    marked = [one for one in sent if one.request.cached]
    known = [(one, one.usage) for one in sent if one.usage is not None and one.usage.input_tokens is not None]
    writers = [one for one, usage in known if usage.cache_write_tokens]
    written = [usage.cache_write_tokens or 0 for _, usage in known]
    read = [usage.cache_read_tokens or 0 for _, usage in known]
    was_cached = any(written) or any(read)
    cost, uncached = _bill(model, (usage for _, usage in known), prices) if was_cached else (None, None)
    saved = None if cost is None or uncached is None else uncached - cost
    saved = 0.0 if sent and not was_cached and (known or not marked) else saved
    return Shared(
        context,
        model,
        agents=len(results),
        requests=len(sent),
        cost_usd=cost,
        uncached_usd=uncached,
        saved_usd=saved,
        cached=was_cached or (bool(marked) and not known),
        ttl=marked[0].request.ttl if marked else None,
        leader=min(writers, key=lambda one: one.started_s).agent if writers else None,
        prefix_tokens=max([*written, *read], default=0) or None,
        cache_write_tokens=sum(written) if known else None,
        cache_read_tokens=sum(read) if known else None,
        waited_s=_waited_s(results, marked),
        uncounted=len(sent) - len(known),
    )


def _bill(model: str, usages: Iterable[Usage], prices: Prices) -> tuple[float | None, float | None]:
    cost: list[float] = []
    uncached: list[float] = []
    for usage in usages:
        rates = prices.rates(model, usage.total_input_tokens or 0)
        if rates is None:
            return None, None
        base, _, read, write, write_1h = rates
        written, back, long = usage.cache_write_tokens or 0, usage.cache_read_tokens or 0, usage.cache_write_1h_tokens
        cost.append(((written - long) * write + long * write_1h + back * read) / MTOK)
        uncached.append((written + back) * base / MTOK)
    return (math.fsum(cost), math.fsum(uncached)) if cost else (None, None)


def _waited_s(results: Iterable[AgentResult], marked: Sequence[Attempt]) -> float:
    # Only the last reason of a wait is recorded. An attempt held last by a rate limit counts as waiting for the
    # leader until the first of the others was sent.
    if not marked:
        return 0.0
    first = min(marked, key=lambda one: one.started_s)
    begun = [one.granted_s for one in marked if one is not first and one.granted_s > first.granted_s]
    until_s = min(begun, default=first.started_s)
    waits: list[float] = []
    for one in Facts.of(results).attempts:
        if one.held_by == "leader":
            waits.append(one.queued_s)
        elif wording(one.held_by).is_rate_limit and one is not first:
            waits.append(min(until_s, one.granted_s) - max(one.free_s + one.backoff_s, first.granted_s))
    return math.fsum(max(0.0, wait) for wait in waits)
