"""The pacer (first cut)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from agent_magic.schedule.limits import Limits, class_of
from agent_magic.schedule.pacer_pool import Hold, Pool, Ticket

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_LIMITS = Limits()


class Pacer:
    def __init__(self, limits: Mapping[str, Limits] | None = None, seed: int | None = None) -> None:
        self._limits = {class_of(m): v for m, v in (limits or {}).items()}
        self._random = Random(seed)
        self._pools: dict[str, Pool] = {}

    def pool(self, model):
        name = class_of(model)
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = Pool(self._limits.get(name, NO_LIMITS), self._random)
        self._pools[model] = pool
        return pool

    def ask(self, model: str, input_tokens: int, output_tokens: int, now: float) -> Ticket | Hold:
        return (self._pools.get(model) or self.pool(model)).ask(input_tokens, output_tokens, now)

    def heard(self, ticket, headers, now):
        ticket.pool.heard(ticket, headers, now)

    def finished(self, ticket, i, o, now):
        ticket.pool.finished(ticket, i, o, now)

    def refused(self, ticket, retry, limit, now, headers={}):
        ticket.pool.refused(ticket, retry, limit, now, headers)
