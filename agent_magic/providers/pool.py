"""Several accounts, keys or servers as one provider: each with limits of its own, requests shared out among them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from agent_magic.declare.validation import check_positive, check_word, must_be
from agent_magic.engine.admission.key import REFUSED
from agent_magic.engine.pacing.routing import Endpoints, Route, as_route
from agent_magic.errors import DeclarationError, LeftOut, NotConnected, RateLimited, Rejected, shown_value
from agent_magic.providers.base import Provider

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from agent_magic.declare.content import TokenRule
    from agent_magic.providers.base import Stream
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request


class Pool(Provider):
    """Shares requests out among providers, such as two accounts: `am.Pool({"work": work, "lab": lab})`.

    Each request goes to one that has room. `run.attempts` has the column `endpoint`. One that refuses its key is left
    out for good, one that fails for a while; what it was asked goes to another one. Several keys of one account share
    their limits, so a pool of them gains nothing. There are no batches, limits are learned anew in each session and not
    divided with other kernels; a forecast takes the limits of all together.

    Args:
        members: The providers by name, with the same models.
        weights: How much each is to get compared with the others, by name; 1 by default.
        route: `least loaded`: the smallest used share of its tightest limit. `round robin`: by weight alone.
            `in order`: the first that has room, such as the cheapest.

    Raises:
        DeclarationError: There is no member, one is no provider, or a weight or the route is not what it must be.
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
        self._shared = Endpoints({name: given.get(name, 1.0) for name in members}, as_route(route))
        addresses = list(dict.fromkeys(one.endpoint for one in members.values()))
        self.endpoint = " + ".join(addresses)
        self._first = next(iter(self.members.values()))
        sellers = {one.price_list for one in members.values()}
        self.price_list = sellers.pop() if len(sellers) == 1 else None
        rooms = [one.room for one in members.values()]
        self.room = None if None in rooms else sum(filter(None, rooms))
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

    def warm_up(self) -> None:
        """Load what the first request of each member needs."""
        for one in self.members.values():
            one.warm_up()

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Send one request to the member that the stream names.

        Args:
            request: What to ask.
            stream: Is told what arrives.

        Raises:
            CallError: The attempt failed. `LeftOut` where the member refuses us and another one may not.
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
        """Count the input tokens of a request at the first member that may be asked.

        Args:
            request: What would be asked.

        Raises:
            CallError: The count failed.
        """
        return await self.members[self._shared.inside[0]].count_tokens(request)

    def limit_class(self, model: str) -> str:
        """Name the models that share rate limits with this one, as the first member does.

        Args:
            model: Its name.
        """
        return self._first.limit_class(model)

    def lacks_model(self, model: str) -> bool:
        """Tell whether a member certainly has no model of this name.

        Args:
            model: Its name.
        """
        return any(one.lacks_model(model) for one in self.members.values())

    def min_cacheable_tokens(self, model: str) -> int | None:
        """Return the shortest prefix that the prompt cache keeps, as the first member says.

        Args:
            model: Its name.
        """
        return self._first.min_cacheable_tokens(model)

    def token_rule(self, model: str) -> TokenRule | None:
        """Return how many tokens a model makes of pictures and PDFs, as the first member says.

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
