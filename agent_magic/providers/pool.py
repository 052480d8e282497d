"""Several accounts, keys or servers as one provider, each with its own limits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from agent_magic.declare.validation import check_positive, check_word, must_be
from agent_magic.engine.admission.pool import REFUSED
from agent_magic.engine.pacing.pacer import Endpoints, Route, as_route
from agent_magic.errors import CallError, DeclarationError, LeftOut, NotConnected, RateLimited, Rejected, shown_value
from agent_magic.providers.base import EVERYTHING, Provider
from agent_magic.record.prices import TokenPrice

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from agent_magic.declare.content import TokenRule
    from agent_magic.providers.base import Capabilities, Stream
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request

FREE = TokenPrice(0.0, 0.0)


class Pool(Provider):
    """Distributes requests among providers, such as two accounts: `am.Pool({"work": work, "lab": lab})`.

    Each request goes to a member with its model and free capacity, so a pool has the features of all members. Members
    of several makers are told apart by their models: `am.Claude()` has those of its maker, `am.Chat(models=...)` the
    named ones. `run.attempts` has the column `endpoint`. A member that refuses its key is dropped, a failing one is
    paused; its requests go to others. Several keys of one account share their limits, so pooling them gains nothing.
    There are no batches, limits are learned again in each session and not shared with other kernels; a forecast uses
    the sum of limits.

    Args:
        members: The providers by name.
        weights: Relative share of each, by name; default 1.
        route: `least loaded`: the smallest used share of its tightest limit. `round robin`: by weight alone.
            `in order`: the first with free capacity, such as the cheapest.

    Raises:
        DeclarationError: There is no member, one is no provider, or a weight or the route is invalid.
    """

    batches = None

    def __init__(
        self,
        members: Mapping[str, Provider],
        *,
        weights: Mapping[str, float] | None = None,
        route: Route = "least loaded",
    ) -> None:
        if not isinstance(members, Mapping) or not members:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise must_be("members", "providers by name", members, " Give {'work': am.Claude(), 'lab': other}.")
        for name, one in members.items():
            if not name or "/" in name or not isinstance(one, Provider):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise DeclarationError(
                    f"members[{name!r}]={shown_value(one)} is no provider.",
                    hint="Give am.Claude(...) or a Provider of your own; a name has no '/'.",
                )
        given = dict(weights or {})
        for name, weight in given.items():
            check_word("weights", name, members)
            check_positive(f"weights[{name!r}]", weight)
        self.members = dict(members)
        self._shared = Endpoints({name: given.get(name, 1.0) for name in members}, as_route(route), self._lacks)
        addresses = list(dict.fromkeys(one.endpoint for one in members.values()))
        self.endpoint = " + ".join(addresses)
        self._first = next(iter(self.members.values()))
        sellers = {one.price_list for one in members.values()}
        self.price_list = sellers.pop() if len(sellers) == 1 else None
        self.prices = {model: price for one in reversed(self.members.values()) for model, price in one.prices.items()}
        free = {model for one in members.values() if one.is_free for model in one.models}
        paid = [name for name, one in members.items() if not one.is_free]
        self.prices |= {model: FREE for model in free if all(self._lacks(name, model) for name in paid)}
        self.is_free = all(one.is_free for one in members.values())
        rooms = [one.room for one in members.values()]
        self.room = None if None in rooms else sum(filter(None, rooms))
        self.capabilities = EVERYTHING
        for one in members.values():
            self.capabilities &= one.capabilities
        self.models, self.choices = self._first.models, self._first.choices
        self._told: set[str] = set()

    @property
    def endpoints(self) -> Endpoints:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Where requests go."""
        return self._shared

    def __repr__(self) -> str:
        return f"Pool({', '.join(self.members)}; {self._shared.route})"

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Hold connections of all members while a run lasts; one without credentials is left out.

        Raises:
            NotConnected: None of them has credentials.
        """
        async with AsyncExitStack() as held:
            for name in self._shared.inside:
                try:
                    await held.enter_async_context(self.members[name].open())
                except NotConnected:
                    if not self._shared.leave_out(name, "it has no key"):
                        raise
            yield

    def capabilities_of(self, model: str) -> Capabilities:
        """Return what every member can send to a model.

        Args:
            model: Its name.
        """
        found = self.capabilities
        for one in self.members.values():
            found &= one.capabilities_of(model)
        return found

    def warm_up(self) -> None:
        """Load the modules of each member's first request."""
        for one in self.members.values():
            one.warm_up()

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Send one request to the stream's member.

        Args:
            request: The request.
            stream: Receives the response.

        Raises:
            CallError: The attempt failed. `LeftOut` if the member refuses us and another one may not.
        """
        name = stream.endpoint or self._shared.inside[0]
        try:
            return await self.members[name].send(request, stream)
        except (Rejected, RateLimited) as error:
            gone = error.final if isinstance(error, RateLimited) else error.status in REFUSED
            if gone and self._shared.leave_out(name, str(error)):
                raise LeftOut(name, str(error)) from error
            raise

    async def count_tokens(self, request: Request) -> int | None:
        """Count the input tokens of a request at the first available member.

        Args:
            request: The request.

        Raises:
            CallError: The count failed.
        """
        return await self.members[self._shared.inside[0]].count_tokens(request)

    async def reach(self, request: Request) -> str:
        """Try each available member without asking a model; "" if none can be tried for nothing.

        Args:
            request: A short one; a member without its model tries another.

        Raises:
            CallError: A member cannot be reached, or refuses the key.
        """
        told: dict[str, str] = {}
        for name in self._shared.inside:
            member = self.members[name]
            model = member.models[0] if member.models and self._lacks(name, request.model) else request.model
            try:
                told[name] = await member.reach(request._replace(model=model))
            except CallError as error:
                error.args = (f"{name}: {error}",)
                raise
        return "; ".join(f"{name}: {said or 'not tried'}" for name, said in told.items()) if any(told.values()) else ""

    def limit_class(self, model: str) -> str:
        """Name the models that share rate limits with this one, as the first member does.

        Args:
            model: Its name.
        """
        return self._first.limit_class(model)

    def lacks_model(self, model: str) -> bool:
        """Return whether no member has such a model.

        Args:
            model: Its name.
        """
        return all(one.lacks_model(model) for one in self.members.values())

    def _lacks(self, name: str, model: str) -> bool:
        one = self.members[name]
        is_left_out = one.models and model not in one.models and any(model in o.models for o in self.members.values())
        return bool(is_left_out) or one.lacks_model(model)

    def min_cacheable_tokens(self, model: str) -> int | None:
        """Return the shortest prefix that the prompt cache keeps, as the first member says.

        Args:
            model: Its name.
        """
        return self._first.min_cacheable_tokens(model)

    def token_rule(self, model: str) -> TokenRule | None:
        """Return a model's token rule for pictures and PDFs, of the first member.

        Args:
            model: Its name.
        """
        return self._first.token_rule(model)

    def take_notes(self) -> Sequence[str]:
        """Return the notes of the members, and once of each that is left out, why."""
        new = {name: why for name, why in self._shared.left_out.items() if name not in self._told}
        self._told |= new.keys()
        said = [f"the endpoint {name} is left out: {why}" for name, why in new.items()]
        return [*said, *(note for one in self.members.values() for note in one.take_notes())]
