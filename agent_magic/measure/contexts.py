"""What agents that share a context paid for it, and what the provider's cache saved or lost them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.engine.pacing.limits import DIMENSIONS
from agent_magic.measure.frames import add_provenance
from agent_magic.measure.table import make_frame
from agent_magic.record.answer import PAID_BEFORE
from agent_magic.record.prices import MTOK, Prices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from agent_magic.record.answer import Usage
    from agent_magic.record.attempt import Attempt
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.results import AgentResult, RunRecord

CONTEXTS: Mapping[str, str] = {
    "context": "string",
    "model": "string",
    "agents": "Int64",
    "requests": "Int64",
    "cached": "bool",
    "ttl": "string",
    "leader": "string",
    "prefix_tokens": "Int64",
    "written_tokens": "Int64",
    "read_tokens": "Int64",
    "spent_usd": "float64",
    "uncached_usd": "float64",
    "saved_usd": "float64",
    "waited_s": "float64",
    "uncounted": "Int64",
}


class Shared(NamedTuple):
    """One context as one model's agents shared it. Sums are over the requests whose tokens are known.

    Attributes:
        context: Its name.
        model: The model.
        agents: How many agents of the plan share it.
        requests: How many requests were sent with it. Answers bought before are none.
        cached: Whether any asked the provider to cache it.
        ttl: For how long; `None` where none asked.
        leader: The agent that wrote it first; `None` where none did.
        prefix_tokens: Its length, as read or written; `None` where it was neither.
        written_tokens: Tokens written to the cache; `None` where nothing is known.
        read_tokens: Tokens read from it.
        spent_usd: Dollars for writing and reading them; `None` where nothing was asked for, or the price is unknown.
        uncached_usd: What the same tokens cost as plain input.
        saved_usd: `uncached_usd - spent_usd`, negative where caching lost money; 0 where nothing was asked for.
        waited_s: Seconds that its agents waited for the leader's answer to begin, added up.
        uncounted: Requests whose tokens are unknown.
    """

    context: str
    model: str
    agents: int
    requests: int
    cached: bool
    ttl: str | None
    leader: str | None
    prefix_tokens: int | None
    written_tokens: int | None
    read_tokens: int | None
    spent_usd: float | None
    uncached_usd: float | None
    saved_usd: float | None
    waited_s: float
    uncounted: int


def contexts_frame(record: RunRecord, prices: Prices | Mapping[str, TokenPrice] | None = None) -> pd.DataFrame:
    """One row per context and model; columns and dtypes are `CONTEXTS`, see `Shared`.

    Args:
        record: The run.
        prices: What tokens cost; `None` is the list.
    """
    frame = make_frame([one._asdict() for one in shared_contexts(record, prices)], CONTEXTS)
    return add_provenance(frame, record)


def shared_contexts(record: RunRecord, prices: Prices | Mapping[str, TokenPrice] | None = None) -> tuple[Shared, ...]:
    """Say what each context cost the agents of each model that share it, in the order of their first agent."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, (agent, result) in enumerate(zip(record.plan.agents, record.results, strict=True)):
        if agent.context is not None:
            groups.setdefault((agent.context, result.model), []).append(number)
    if not groups:
        return ()
    book = prices if isinstance(prices, Prices) else Prices(prices)
    return tuple(_shared(record, context, model, numbers, book) for (context, model), numbers in groups.items())


def _shared(record: RunRecord, context: str, model: str, numbers: Iterable[int], prices: Prices) -> Shared:
    results = [record.results[number] for number in numbers]
    sent = [one for result in results for one in result.attempts if one.price != PAID_BEFORE]
    marked = [one for one in sent if one.request.cached]
    known = [(one, one.usage) for one in sent if one.usage is not None and one.usage.input_tokens is not None]
    written = [(one, usage) for one, usage in known if usage.cache_write_tokens]
    lengths = [max(usage.cache_read_tokens or 0, usage.cache_write_tokens or 0) for _, usage in known]
    leader = min(written, key=lambda pair: pair[0].started_s)[0].agent if written else None
    spent, plain = _bill(model, (usage for _, usage in known), prices) if marked else (None, None)
    return Shared(
        context,
        model,
        len(results),
        len(sent),
        bool(marked),
        marked[0].request.ttl if marked else None,
        leader,
        max(lengths, default=0) or None,
        sum(usage.cache_write_tokens or 0 for _, usage in known) if known else None,
        sum(usage.cache_read_tokens or 0 for _, usage in known) if known else None,
        spent,
        plain,
        _saved(sent, marked, spent, plain),
        _waited_s(results, marked),
        len(sent) - len(known),
    )


def _saved(sent: list[Attempt], marked: list[Attempt], spent: float | None, plain: float | None) -> float | None:
    if not marked:
        return 0.0 if sent else None
    return None if spent is None or plain is None else plain - spent


def _bill(model: str, usages: Iterable[Usage], prices: Prices) -> tuple[float | None, float | None]:
    """Price what was written and read, as it was and as plain input; `None` where the price is unknown."""
    spent: list[float] = []
    plain: list[float] = []
    for usage in usages:
        rates = prices.rates(model, usage.total_input_tokens or 0)
        if rates is None:
            return None, None
        base, _, read, write, write_1h = rates
        out, back, long = usage.cache_write_tokens or 0, usage.cache_read_tokens or 0, usage.cache_write_1h_tokens
        spent.append(((out - long) * write + long * write_1h + back * read) / MTOK)
        plain.append((out + back) * base / MTOK)
    return (math.fsum(spent), math.fsum(plain)) if spent else (None, None)


def _waited_s(results: Iterable[AgentResult], marked: Sequence[Attempt]) -> float:
    """Add up what agents waited for the first of them to begin its answer.

    What held an attempt last is known, not what held it before. One that a rate limit held in the end, its leader
    having begun, waited for the leader until the first of the others was let go.
    """
    if not marked:
        return 0.0
    first = min(marked, key=lambda one: one.started_s)
    begun = [one.granted_s for one in marked if one is not first and one.granted_s > first.granted_s]
    until_s = min(begun, default=first.started_s)
    waits: list[float] = []
    for one in (attempt for result in results for attempt in result.attempts):
        if one.held_by == "leader":
            waits.append(one.queued_s)
        elif one.held_by in DIMENSIONS and one is not first:
            waits.append(min(until_s, one.granted_s) - max(one.free_s + one.backoff_s, first.granted_s))
    return math.fsum(max(0.0, wait) for wait in waits)
