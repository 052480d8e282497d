"""The seam to whoever answers.

A run needs seven things of a provider, and `Provider` states all of them: connections for a while, one streamed
request, a count of tokens, a name for its address, whether it has accepted the credentials, and what it knows of its
models. Everything but `endpoint` and `send` has a default, so a provider of your own inherits from `Provider` and
writes those two.

```
open ── send(request, stream) ── stream.replied(status, readings)     the response has begun, an error too
                                 stream.opened()                      the answer has begun
                                 stream.add(text) ...                 its text
                                 return Answer                        or raise a CallError
```

Numbers cross this seam, never headers: a provider reads its own headers into a `Reading` for each limit it tells. A
provider does not retry, wait or price; it raises one of the `CallError`s, whose class says what the engine does next.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from agent_magic.declare.serialization import sendable
from agent_magic.engine.pacing.limits import NO_READINGS
from agent_magic.record.terms import ModelFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from agent_magic.declare.content import TokenRule
    from agent_magic.engine.admission.key import Key
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.pacing.routing import Endpoints
    from agent_magic.providers.batches import Batches
    from agent_magic.record.answer import Answer, Usage
    from agent_magic.record.request import Request


class Listener(Protocol):
    """Is told how a response arrives."""

    def replied(self, stream: Stream) -> None:
        """Record that the response has begun, an error too."""
        ...

    def opened(self, stream: Stream) -> None:
        """Record that the answer itself has begun, before its first token."""
        ...

    def first_token(self, stream: Stream) -> None:
        """Record that the first token came."""
        ...


class Taker(Protocol):
    """Takes an answer that comes after its attempt has failed: whoever made it was given up, and went on."""

    def awaits(self, stream: Stream, request: Request) -> bool:
        """Tell whether the answer would still be of use."""
        ...

    def take_late(self, stream: Stream, request: Request, answer: Answer) -> None:
        """Take the answer."""
        ...


class Stream:
    """What has arrived of one response so far. The provider writes, the run and the live view read.

    Args:
        listener: Who is told.
        agent: Whose response it is.
        number: Of which attempt.
        endpoint: To which of several endpoints it goes; empty where there is one.
        taker: Takes the answer if it comes when the attempt has failed; `None` where nobody does.

    Attributes:
        parts: The pieces of text, in order.
        usage: The token counts known before the end.
        status_code: The HTTP status, once there is one.
        readings: What the response says of limits, by what is limited.
        simulated: Whether the response says that it is simulated.
        answer: The complete answer, from the moment its `stop_reason` is here.
        worker: The worker process that makes the request; empty where this process does.
    """

    __slots__ = (
        "_listener",
        "_silent",
        "agent",
        "answer",
        "endpoint",
        "number",
        "parts",
        "readings",
        "simulated",
        "status_code",
        "taker",
        "usage",
        "worker",
    )

    def __init__(
        self,
        listener: Listener | None = None,
        agent: int = 0,
        number: int = 1,
        *,
        endpoint: str = "",
        taker: Taker | None = None,
    ) -> None:
        self._listener, self.agent, self.number, self.endpoint, self.taker = listener, agent, number, endpoint, taker
        self._silent = listener is not None
        self.readings: Readings = NO_READINGS
        self.parts: list[str] = []
        self.usage: Usage | None = None
        self.status_code: int | None = None
        self.simulated = False
        self.answer: Answer | None = None
        self.worker = ""

    def replied(self, status_code: int, readings: Readings = NO_READINGS, *, simulated: bool = False) -> None:
        """Record that the response has begun, an error too."""
        self.status_code, self.readings, self.simulated = status_code, readings, simulated
        if self._listener is not None:
            self._listener.replied(self)

    def opened(self) -> None:
        """Record that the answer itself has begun, before its first token."""
        if self._listener is not None:
            self._listener.opened(self)

    def began(self) -> None:
        """Record that the first token came, of text or of something else."""
        if self._silent and self._listener is not None:
            self._listener.first_token(self)
            self._silent = False

    def add(self, text: str) -> None:
        """Append a piece of text.

        Raises:
            TypeError: It is not a string.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes unchecked from a server
            raise TypeError(f"a piece of text is {text!r}")
        if self._silent:
            self.began()
        self.parts.append(text)

    @property
    def text(self) -> str:
        """All of the text, without lone surrogates, which no file could hold."""
        return sendable("".join(self.parts))

    def tail(self, most: int = 80) -> str:
        """Return the last characters of the text."""
        return sendable("".join(self.parts[-12:])[-most:])


class Remote(Protocol):
    """Runs functions in processes of other machines, or of this one."""

    async def run(self, job: bytes, tell: Callable[[str], object]) -> tuple[bytes, str]:
        """Run a job, and return what it returned and the name of who ran it.

        Never again by itself: it may have been done before it was lost.

        Args:
            job: A function, pickled. It is called there with what takes prints, and awaited; cancelling ends it.
            tell: Is called with what it prints.

        Raises:
            AgentMagicError: It could not be run, or whoever ran it was lost.
        """
        ...


@runtime_checkable
class Provider(Protocol):
    """Whoever answers requests.

    Inherit from it and write `endpoint` and `send`. See `docs/providers.md` for one of forty lines.

    Attributes:
        endpoint: Where requests go, without credentials. Answers in the ledger are found by it.
        credentials: Whether the server has accepted the credentials: until it has, one request goes ahead of all
            others. `None` where there are none that could be refused.
        is_limited: Whether there are rate limits to keep. Answers that are made in this process have none.
        price_list: Whose list prices count, by the name that `genai-prices` has for the seller. `None` is the maker of
            a model, by its name.
        account: Stands for whoever the rate limits belong to, so that a later session can go on from what this one has
            learned of them. It must not be a key: hash that. `None`, the default: nothing is remembered.
        models: Names of models to offer where one is to be chosen. Others work as well.
        choices: Models among which `--model auto` chooses where the user names none, from cheap to dear.
        endpoints: Where requests go, where that is several places with limits of their own; see `am.Pool`.
        batches: Sends requests as batches; `None` where there are none. See `agent_magic.providers.batches`.
        room: The most requests it makes at once; a run has no more under way. `None` is as many as come.
        remote: Runs functions where requests are made, while connections are open; `None` leaves them here.
    """

    endpoint: str
    credentials: Key | None = None
    is_limited: bool = True
    price_list: str | None = None
    account: str | None = None
    models: Sequence[str] = ()
    choices: Sequence[str] = ()
    endpoints: Endpoints | None = None
    batches: Batches | None = None
    room: int | None = None
    remote: Remote | None = None

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Send one request, stream its text, and return the answer. Never retry here.

        Raises:
            CallError: The attempt failed. The class says how: see `agent_magic.errors`.
        """
        ...

    def open(self) -> AbstractAsyncContextManager[None]:
        """Hold connections while a run lasts. By default there is nothing to hold.

        Raises:
            NotConnected: There are no credentials.
        """
        return nullcontext()

    def warm_up(self) -> None:
        """Load what the first request needs. Called in a thread beside the user's cells; by default nothing."""

    async def count_tokens(self, request: Request) -> int | None:
        """Count the input tokens of a request without sending it to a model. `None`, the default: it cannot count.

        Raises:
            CallError: The count failed.
        """
        del request
        return None

    def limit_class(self, model: str) -> str:
        """Name the models that share rate limits with this one. By default each model has its own."""
        return model

    def lacks_model(self, model: str) -> bool:
        """Tell whether there certainly is no model of this name. By default nobody knows, so `False`."""
        del model
        return False

    def min_cacheable_tokens(self, model: str) -> int | None:
        """Return the shortest prefix that the prompt cache keeps. `None`, the default: there is no cache to ask."""
        del model
        return None

    def token_rule(self, model: str) -> TokenRule | None:
        """Return how many tokens a model makes of pictures and PDFs. `None`, the default: nobody knows."""
        del model
        return None

    def take_notes(self) -> Sequence[str]:
        """Return what a user has to be told of this provider, each thing once: what it leaves out, for one."""
        return ()


def facts_of(provider: Provider, models: Iterable[str]) -> dict[str, ModelFacts]:
    """Return what a run has to know of each model."""
    return {
        one: ModelFacts(provider.limit_class(one), provider.min_cacheable_tokens(one), provider.token_rule(one))
        for one in set(models)
    }
