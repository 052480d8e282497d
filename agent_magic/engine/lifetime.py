"""How long a cached context should live: five minutes or an hour, by when its agents are expected to start.

An entry lives from the start of the request that wrote it, and each read starts its life anew. Within a burst five
minutes are plenty, and cheaper to write. Where agents that share a context are expected to start more than that apart,
five minutes would have it written again each time; an hour then pays, and for two agents often nothing does.

Source: the vendor's page on prompt caching. In units of the context's price as plain input: a write for five minutes
costs 1.25, one for an hour 2, a read 0.1 at most.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Final

from agent_magic.engine.lines import turns_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.engine.policy import Policy
    from agent_magic.record.request import Ttl

LIFE_S: Final[Mapping[Ttl, float]] = {"5m": 300.0, "1h": 3600.0}
WRITE: Final[Mapping[Ttl, float]] = {"5m": 1.25, "1h": 2.0}
READ: Final = 0.1
SURE: Final = 0.8
"""Durations are expected only: so much of a life is counted on."""


def with_lives(
    groups: Sequence[str | None], dag: Dag, policy: Policy, work_s: Sequence[float] | None
) -> tuple[list[str | None], dict[str, Ttl]]:
    """Choose how long the context of each group lives, and leave groups out for which no life pays.

    Args:
        groups: Per agent, the name of its group; `None` where nothing is shared.
        dag: Who waits for whom.
        policy: How to run; its `cache_ttl` counts where it names one, and with `cache="on"` no group is left out.
        work_s: Per agent, expected seconds of work. Without it nothing is known of gaps, and it is five minutes.
    """
    names = {name for name in groups if name is not None}
    if policy.cache_ttl != "auto":
        return list(groups), dict.fromkeys(names, policy.cache_ttl)
    if work_s is None or not names:
        return list(groups), dict.fromkeys(names, "5m")
    starts_s = expected_starts_s(dag, policy, work_s)
    lives: dict[str, Ttl] = {}
    for name in names:
        own = [at_s for at_s, group in zip(starts_s, groups, strict=True) if group == name]
        chosen = best_ttl(own) or ("5m" if policy.cache == "on" else None)
        if chosen is not None:
            lives[name] = chosen
    return [name if name in lives else None for name in groups], lives


def best_ttl(starts_s: Sequence[float]) -> Ttl | None:
    """Return the cheapest life for a context that is asked for at these times; `None` where caching costs more."""
    costs: dict[Ttl, float] = {ttl: _cost(sorted(starts_s), ttl) for ttl in LIFE_S}
    best = min(costs, key=lambda ttl: costs[ttl])  # the first of equal ones: five minutes
    return best if costs[best] < len(starts_s) or len(starts_s) <= 1 else None


def _cost(ordered_s: Sequence[float], ttl: Ttl) -> float:
    """Price the uses of a context, in units of its price as plain input."""
    rewrites = sum(later - earlier > LIFE_S[ttl] * SURE for earlier, later in itertools.pairwise(ordered_s))
    return WRITE[ttl] * (1 + rewrites) + READ * (len(ordered_s) - 1 - rewrites)


def expected_starts_s(dag: Dag, policy: Policy, work_s: Sequence[float]) -> list[float]:
    """Say when each agent will start if everybody works as long as expected; limits and barriers are left out."""
    turn, by_turn = turns_of(dag, policy, work_s)
    slots = 1 if policy.schedule == "sequential" else policy.concurrency
    missing = [len(before) for before in dag.parents]
    ready = [turn[agent] for agent, left in enumerate(missing) if not left]
    heapq.heapify(ready)
    working: list[tuple[float, int]] = []
    starts_s = [0.0] * len(missing)
    now = 0.0
    while ready or working:
        while ready and len(working) < slots:
            agent = by_turn[heapq.heappop(ready)]
            starts_s[agent] = now
            heapq.heappush(working, (now + work_s[agent], agent))
        now, agent = heapq.heappop(working)
        for child in dag.children[agent]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, turn[child])
    return starts_s
