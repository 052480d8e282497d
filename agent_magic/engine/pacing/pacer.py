"""The pacer: one object for everything that uses the same key, or several endpoints, each with limits and a breaker.

A request is offered to endpoints in the order of the route: it waits only if all of them hold it.
"""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

from agent_magic.declare.validation import check_word
from agent_magic.engine.admission.breaker import ErrorBreaker
from agent_magic.engine.contract import Hold
from agent_magic.engine.pacing.bucket import LimitSource
from agent_magic.engine.pacing.class_pacer import ClassPacer, Ticket
from agent_magic.engine.pacing.limits import KINDS, NO_READINGS, Limits
from agent_magic.engine.pacing.share import Demand
from agent_magic.record.codec import from_json, to_json
from agent_magic.record.terms import Ceiling, Endpoint, Learned, Terms, checked_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent_magic.engine.admission.breaker import Blame
    from agent_magic.engine.pacing.class_pacer import PoolHealth
    from agent_magic.engine.pacing.limits import Dimension, Readings
    from agent_magic.engine.pacing.share import Demands, Share
    from agent_magic.record.terms import Ceilings

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


T = TypeVar("T")
Route = Literal["least loaded", "round robin", "in order"]
ROUTES: Final = ("least loaded", "round robin", "in order")
FAILING: Final = 0.1
"""Share of failures among its last 20 requests that pauses an endpoint: a dead one would always seem the least loaded.
"""


def as_route(value: object) -> Route:
    check_word("route", value, ROUTES)
    return cast("Route", value)


class Endpoints:
    """The endpoints of one provider. The provider drops those that refuse it, the pacer chooses among the others.

    The route is by the smallest used share of the tightest limit, by weight alone (`round robin`), or `in order`: the
    first that has room.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        route: Route,
        lacks: Callable[[str, str], bool] = lambda _name, _class: False,
    ) -> None:
        self.weights, self._lacks = dict(weights), lacks
        self.route: Route = route
        self.left_out: dict[str, str] = {}

    @property
    def inside(self) -> list[str]:
        return [name for name in self.weights if name not in self.left_out]

    def having(self, limit_class: str) -> list[str]:
        return [name for name in self.inside if not self._lacks(name, limit_class)] or self.inside

    def leave_out(self, name: str, why: str) -> bool:
        """Drop an endpoint; return False if it is the last one, which stays."""
        if name in self.left_out:
            return True
        if self.inside == [name]:
            return False
        self.left_out[name] = why
        return True


def _of_endpoint(name: str, pools: Mapping[str, T]) -> dict[str, T]:
    return {pool.partition("/")[2]: each for pool, each in pools.items() if pool.partition("/")[0] == name}


class Router(Pacer):
    """Keeps the limits of several endpoints; a user's limit counts for each, or for one by `name/model class`."""

    def __init__(
        self, endpoints: Endpoints, limits: Mapping[str, Limits] | None = None, seed: int | None = None
    ) -> None:
        given: dict[str, Limits] = {}
        for limit_class, one in (limits or {}).items():
            own = limit_class.partition("/")[0] in endpoints.weights
            given |= {limit_class: one} if own else {f"{name}/{limit_class}": one for name in endpoints.weights}
        super().__init__(given, seed)
        self._endpoints = endpoints
        self._sent = dict.fromkeys(endpoints.weights, 0)
        self._breakers = {name: ErrorBreaker(FAILING) for name in endpoints.weights}

    def ask(
        self, limit_class: str, input_tokens: int, output_tokens: int, now: float, *, queue: int = 0
    ) -> Ticket | Hold:
        holds: dict[str, Hold] = {}
        for name in self._order(limit_class, now):
            pool = f"{name}/{limit_class}"
            found = self._breakers[name].hold(now)
            if found is None:
                found = super().ask(pool, input_tokens, output_tokens, now, queue=queue)
            if isinstance(found, Ticket):
                for other in holds:
                    super().forgo(other, queue)
                self._sent[name] += 1
                self._breakers[name].left(id(found), now)
                return found
            holds[pool] = found
        return min(holds.values(), key=lambda one: one.until_s)

    def forgo(self, limit_class: str, queue: int) -> None:
        for name in self._endpoints.weights:
            super().forgo(f"{name}/{limit_class}", queue)

    def blamed(self, ticket: Ticket, bad: Blame, now: float) -> None:
        self._breakers[ticket.pool.endpoint].ended(id(ticket), bad=bad, now=now)

    def ceilings(self) -> Ceilings:
        found: Ceilings = {}
        for name, limits in super().ceilings().items():
            sums = found.setdefault(name.partition("/")[2], {})
            for kind, one in limits.items():
                before = sums.get(kind, Ceiling(0.0, 0.0))
                sums[kind] = Ceiling(before.per_minute + one.per_minute, before.capacity + one.capacity)
        return found

    def route(self, terms: Terms, now: float) -> Terms:
        ceilings, learned = super().ceilings(), super().learned(now)
        found: dict[str, Endpoint] = {}
        for name in self._endpoints.inside:
            known, taught = _of_endpoint(name, ceilings), _of_endpoint(name, learned)
            began = terms.endpoints.get(name, Endpoint(self._endpoints.weights[name], known, {}, taught))
            found[name] = began._replace(after=known)
        return terms._replace(route=self._endpoints.route, endpoints=found)

    def recall_endpoints(self, endpoints: Mapping[str, Endpoint]) -> None:
        for name, one in endpoints.items():
            known = {f"{name}/{limit_class}": each for limit_class, each in one.before.items()}
            self.recall(known, {f"{name}/{limit_class}": each for limit_class, each in one.learned.items()})

    def learned(self, now: float) -> dict[str, Learned]:
        """Return nothing: knowledge of one endpoint does not apply to all."""
        del now
        return {}

    def _order(self, limit_class: str, now: float) -> list[str]:
        inside, weights = self._endpoints.having(limit_class), self._endpoints.weights
        if self._endpoints.route == "in order":
            return inside
        by_load = self._endpoints.route == "least loaded"

        def key(name: str) -> tuple[float, float]:
            load = self._class(f"{name}/{limit_class}").load(now) if by_load else 0.0
            return round(load / weights[name], 1), self._sent[name] / weights[name]

        return sorted(inside, key=key)

    def _endpoint_of(self, name: str) -> str:
        return name.partition("/")[0]
