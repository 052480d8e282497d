"""The pacer: one object for everything that uses the same key."""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agent_magic.engine.admission.room import Hold
from agent_magic.engine.pacing.bucket import LimitSource
from agent_magic.engine.pacing.class_pacer import ClassPacer, Ticket
from agent_magic.engine.pacing.limits import KINDS, NO_READINGS, Limits
from agent_magic.engine.pacing.share import Demand
from agent_magic.record.codec import from_json, to_json
from agent_magic.record.terms import Ceiling, Learned, Terms, checked_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_magic.engine.admission.breaker import Blame
    from agent_magic.engine.pacing.class_pacer import PoolHealth
    from agent_magic.engine.pacing.limits import Dimension, Readings
    from agent_magic.engine.pacing.share import Demands, Share
    from agent_magic.record.terms import Ceilings

__all__ = ["Hold", "Pacer", "Ticket"]

NO_LIMITS: Final = Limits()


class _Kept(NamedTuple):
    """The remembered state of one limit class."""

    ceilings: dict[str, Ceiling]
    sources: dict[str, LimitSource]
    learned: Learned


class Pacer:
    """Decides when the next request may be sent, for everything that uses the same key.

    Times are seconds of one monotonic clock for all runs that share it. The same events and the same seed give the same
    answers. A user's limit below the server's is kept.
    """

    def __init__(self, limits: Mapping[str, Limits] | None = None, seed: int | None = None) -> None:
        self.given = dict(limits or {})
        self._seed = seed
        self._classes: dict[str, ClassPacer] = {}
        self._shares: Mapping[str, Mapping[Dimension, Share]] = {}

    @cached_property
    def _random(self) -> Random:
        """The source of jitter, created on first use, since seeding is slow."""
        return Random(self._seed)

    def ask(
        self, limit_class: str, input_tokens: int, output_tokens: int, now: float, *, queue: int = 0
    ) -> Ticket | Hold:
        """Ask to send the first request of a queue for this model class.

        A request that is held keeps its place, so ask for nothing behind it. The output is the expected one, not
        `max_tokens`; expectations that are off by a factor are learned from answers.
        """
        found = self._classes.get(limit_class) or self._class(limit_class)
        return found.ask(input_tokens, output_tokens, now, queue)

    def forgo(self, limit_class: str, queue: int) -> None:
        if limit_class in self._classes:
            self._classes[limit_class].forgo(queue)

    def heard(self, ticket: Ticket, readings: Readings, now: float) -> None:
        ticket.pool.heard(ticket, readings, now)

    def finished(self, ticket: Ticket, input_tokens: int | None, output_tokens: int | None, now: float) -> None:
        ticket.pool.finished(ticket, input_tokens, output_tokens, now)

    def blamed(self, ticket: Ticket, bad: Blame, now: float) -> None: ...

    def refused(
        self,
        ticket: Ticket,
        retry_after_s: float | None,
        limit: str | None,
        now: float,
        readings: Readings = NO_READINGS,
    ) -> None:
        """Record a 429 of this limit: `requests`, `input`, `output`, or `ramp` if the load grew too fast."""
        ticket.pool.refused(ticket, retry_after_s, limit, readings, now)

    def health(self, now: float) -> dict[str, PoolHealth]:
        return {name: each.health(name, now) for name, each in self._classes.items()}

    def demands(self, limit_classes: Iterable[str], now: float) -> Demands:
        """Return the demands to publish to others with the key, by model class, `limit_classes` included."""
        unasked: Demands = {name: dict.fromkeys(KINDS, Demand()) for name in limit_classes}
        return unasked | {name: each.demands(now) for name, each in self._classes.items()}

    def set_shares(self, shares: Mapping[str, Mapping[Dimension, Share]], now: float) -> bool:
        self._shares = shares
        changed = [each.set_shares(shares.get(name, {}), now) for name, each in self._classes.items()]
        return any(changed)

    def ceilings(self) -> Ceilings:
        return {name: found for name, each in self._classes.items() if (found := each.ceilings())}

    def learned(self, now: float) -> dict[str, Learned]:
        return {name: each.learned(now) for name, each in self._classes.items()}

    def route(self, terms: Terms, now: float) -> Terms:
        """Return the routing of requests among endpoints; here there is one."""
        del now
        return terms

    def recall(self, ceilings: Ceilings, learned: Mapping[str, Learned], now: float = 0.0) -> None:
        for name, limits in ceilings.items():
            self._class(name).recall(limits, {}, now)
        for name, each in learned.items():
            self._class(name).recall_learned(each, now)

    def memory(self, now: float) -> dict[str, Any]:
        """Return the knowledge for a later session, as plain JSON data, without the user's own limits."""
        found: dict[str, Any] = {}
        for name, each in self._classes.items():
            sources: dict[str, LimitSource] = {
                limit: source for limit, source in each.sources().items() if source != "given"
            }
            ceilings = {limit: ceiling for limit, ceiling in each.ceilings().items() if limit in sources}
            found[name] = to_json(_Kept(ceilings, sources, each.learned(now)))
        return found

    def remember(self, memory: object, now: float, age_s: float) -> None:
        """Start from an earlier session's `memory`; its limits hold until a reply corrects them."""
        # Levels of the buckets fade with its age, and are dropped after a minute. Unreadable parts are left
        # out.
        for name, data in cast("dict[str, object]", memory).items() if isinstance(memory, dict) else ():
            try:
                kept = from_json(_Kept, data)
                checked_terms(Terms({}, True, {name: kept.ceilings}, {}, learned={name: kept.learned}))  # noqa: FBT003
            except ValueError:
                continue
            found = self._class(name)
            found.recall(kept.ceilings, kept.sources, now)
            found.recall_learned(kept.learned, now, age_s)

    def _class(self, name: str) -> ClassPacer:
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = ClassPacer(
                self.given.get(name, NO_LIMITS), self._random, self._endpoint_of(name)
            )
            found.set_shares(self._shares.get(name, {}), 0.0)
        return found

    def _endpoint_of(self, name: str) -> str:
        del name
        return ""
