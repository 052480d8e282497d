"""Several endpoints behind one pacer, each with its limits and breaker.

A request is offered to them in the order of the route: it waits only if all of them hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeVar, cast

from agent_magic.declare.validation import check_word
from agent_magic.engine.admission.breaker import ErrorBreaker
from agent_magic.engine.pacing.class_pacer import Ticket
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.record.terms import Ceiling, Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.engine.admission.breaker import Blame
    from agent_magic.engine.admission.room import Hold
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.record.terms import Ceilings, Learned, Terms

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
