"""The interface of providers.

`Provider` lists the needs of a run: temporary connections, one streamed request, a count of tokens, a name for its
address, whether it has accepted the credentials, its features, and facts about its models. All but `endpoint` and
`send` have defaults, so a custom provider inherits from `Provider` and writes those two.

```
open ── send(request, stream) ── stream.replied(status, readings)     the response has begun, an error too
                                 stream.opened()                      the answer has begun
                                 stream.add(text) ...                 its text
                                 return Answer                        or raise a CallError
```

Numbers cross this interface, never headers: a provider parses its headers into a `Reading` per limit. A provider does
not retry, wait or price; it raises a `CallError` of a class that decides the engine's reaction.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from agent_magic.declare.values import sendable
from agent_magic.engine.pacing.limits import NO_READINGS
from agent_magic.errors import PlanError
from agent_magic.record.answer import estimated_tokens, utf8_length
from agent_magic.record.terms import ModelFacts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from agent_magic.declare.content import TokenRule
    from agent_magic.engine.admission.pool import Key
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.pacing.pacer import Endpoints
    from agent_magic.errors import CallError
    from agent_magic.record.answer import Answer, Usage
    from agent_magic.record.prices import TokenPrice
    from agent_magic.record.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Features of a provider besides text: `Capabilities(tools=True, images=True)`.

    All are off by default. Every provider sends text: context, system prompt, prompt and messages. An agent that needs
    a missing feature is refused before anything is sent.

    Attributes:
        tools: Functions the model may call (`--tools`).
        server_tools: Tools run by the provider, such as `web_search`.
        images: Pictures (`--attach`, or in a prompt).
        documents: PDFs and texts as documents.
        citations: Citations of documents (`--cite`).
        effort: How hard the model should think (`--effort`).
        sampling: Sampling options (`--temperature`, `--top-p`, `--top-k`).
        stop: Stop texts (`--stop`).
        extra: Fields of an API unknown to agent_magic (`--extra`).
        schemas: The JSON schema of a typed answer. Without it, answers are still read by their type, and the user is
            told that the model does not know it.
    """

    tools: bool = False
    server_tools: bool = False
    images: bool = False
    documents: bool = False
    citations: bool = False
    effort: bool = False
    sampling: bool = False
    stop: bool = False
    extra: bool = False
    schemas: bool = False

    def __and__(self, other: Capabilities) -> Capabilities:
        """Return what two providers can both send."""
        return Capabilities(**{one.name: getattr(self, one.name) and getattr(other, one.name) for one in fields(self)})


NO_PRICES: Mapping[str, TokenPrice] = MappingProxyType({})
TEXT_ONLY = Capabilities()
EVERYTHING = Capabilities(**dict.fromkeys([one.name for one in fields(Capabilities)], True))


class Listener(Protocol):
    """Receives the events of a response."""

    def replied(self, stream: Stream) -> None:
        """Record that the response has begun, an error too."""
        ...

    def opened(self, stream: Stream) -> None:
        """Record that the answer itself has begun, before its first token."""
        ...

    def first_token(self, stream: Stream) -> None:
        """Record the first token."""
        ...


class Taker(Protocol):
    """Takes an answer that arrives after its attempt has failed, from a worker that was given up."""

    def awaits(self, stream: Stream, request: Request) -> bool:
        """Return whether the answer would still be useful."""
        ...

    def take_late(self, stream: Stream, request: Request, answer: Answer) -> None:
        """Take the answer."""
        ...


class Stream:
    """The received part of one response. The provider writes, the run and the live view read.

    Args:
        listener: Receives events.
        agent: The agent.
        number: Number of the attempt.
        endpoint: The endpoint; empty if there is only one.
        taker: Takes the answer if it arrives after the attempt has failed, if anyone does.

    Attributes:
        parts: Pieces of text, in order.
        unseen: Received bytes other than text: thinking, arguments of tools, and text before a restart.
        usage: Running token counts so far. Only an answer's can be final.
        model: The answering model named in the response; empty until then.
        status_code: HTTP status, once received.
        readings: Rate limits in the response, by kind.
        simulated: True if the response says that it is simulated.
        answer: The complete answer, as soon as its `stop_reason` has arrived.
        worker: The worker process that makes the request; empty for this process.
    """

    __slots__ = (
        "_listener",
        "_silent",
        "agent",
        "answer",
        "endpoint",
        "model",
        "number",
        "parts",
        "readings",
        "simulated",
        "status_code",
        "taker",
        "unseen",
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
        self.unseen, self.model = 0, ""
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
        """Record the first token, of text or of something else."""
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

    def restart(self) -> None:
        """Record that the answer begins again. Its earlier text is no longer shown, but may be billed."""
        self.unseen, self.parts = self.produced_bytes, []

    def add_unseen(self, text: str) -> None:
        """Count hidden output, such as thinking: it is billed like the rest."""
        self.unseen += utf8_length(text)

    @property
    def produced_bytes(self) -> int:
        """The output that has arrived: text and hidden output."""
        return self.unseen + utf8_length("".join(self.parts)) if self.parts else self.unseen

    @property
    def produced_tokens(self) -> int:
        """The same in tokens, estimated."""
        return estimated_tokens(self.produced_bytes)

    @property
    def usage_so_far(self) -> Usage | None:
        """Estimated usage of the received part; `None` without any count."""
        if self.usage is None or self.usage.is_unknown:
            return None
        produced = max(self.usage.output_tokens or 0, self.produced_tokens)
        return replace(self.usage, output_tokens=produced, estimated=True)

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
        """Run a job, and return its result and the name of the worker.

        It is never repeated: it may have run before it was lost.

        Args:
            job: A pickled function, called on the worker with a receiver of prints, and awaited; cancelling ends it.
            tell: Called with its prints.

        Raises:
            AgentMagicError: It could not be run, or its worker was lost.
        """
        ...


@runtime_checkable
class Provider(Protocol):
    """Answers requests.

    Inherit from it and write `endpoint` and `send`. See `docs/providers.md` for one of forty lines.

    Attributes:
        endpoint: Address of requests, without credentials. Answers in the ledger are found by it.
        credentials: True if the server has accepted the credentials; until then one request goes first. `None` without
            credentials that could be refused.
        is_limited: True if there are rate limits to keep. Answers computed in this process have none.
        price_list: Seller of the list prices, as `genai-prices` names it. `None` for the maker of a model.
        prices: The provider's prices by model, after the user's and before any list. Default: none.
        is_free: True if answers cost nothing.
        account: Owner of the rate limits, so that later sessions can reuse learned limits. It must not be a key: hash
            that. Default `None`: nothing is remembered.
        models: Models to offer. Others work as well.
        choices: Models for `--model auto` if the user names none, cheapest first.
        endpoints: Several addresses with separate limits; see `am.Pool`.
        capabilities: Features besides text; agents that need others are refused. Default: none.
        batches: Sends requests as batches, if possible. See `Batches`.
        room: Maximum requests at once; caps the concurrency of runs. `None` for no maximum.
        remote: Runs functions on the machines that make the requests, while connections are open; `None` runs them
            here.
    """

    endpoint: str
    credentials: Key | None = None
    is_limited: bool = True
    price_list: str | None = None
    prices: Mapping[str, TokenPrice] = NO_PRICES
    is_free: bool = False
    account: str | None = None
    models: Sequence[str] = ()
    choices: Sequence[str] = ()
    endpoints: Endpoints | None = None
    capabilities: Capabilities = TEXT_ONLY
    batches: Batches | None = None
    room: int | None = None
    remote: Remote | None = None

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Send one request, stream its text, and return the answer. Never retry here.

        Raises:
            CallError: The attempt failed; see `agent_magic.errors` for the classes.
        """
        ...

    def open(self) -> AbstractAsyncContextManager[None]:
        """Hold connections while a run lasts. By default there is nothing to hold.

        Raises:
            NotConnected: There are no credentials.
        """
        return nullcontext()

    def capabilities_of(self, model: str) -> Capabilities:
        """Return the features of one model. Default: the same for all.

        Args:
            model: Its name.
        """
        del model
        return self.capabilities

    def warm_up(self) -> None:
        """Load the modules of the first request. Called in a thread beside the user's cells. Default: nothing."""

    async def count_tokens(self, request: Request) -> int | None:
        """Count the input tokens of a request without sending it to a model; default `None`: it cannot.

        Args:
            request: The request.

        Raises:
            CallError: The count failed.
        """
        del request
        return None

    async def reach(self, request: Request) -> str:
        """Try the server without asking a model; return the outcome, or "" if every request costs money.

        Default: it counts the tokens of the request.

        Args:
            request: A short one, to the model of agents that name none.

        Raises:
            CallError: The server cannot be reached, or refuses the key.
        """
        return "" if await self.count_tokens(request) is None else "it counted tokens"

    def limit_class(self, model: str) -> str:
        """Return the class of models that share rate limits with this one; default each model is its own.

        Args:
            model: Its name.
        """
        return model

    def lacks_model(self, model: str) -> bool:
        """Return whether there is certainly no such model. Default: False."""
        del model
        return False

    def min_cacheable_tokens(self, model: str) -> int | None:
        """Return the shortest prefix that the prompt cache keeps; default `None`: no cache.

        Args:
            model: Its name.
        """
        del model
        return None

    def token_rule(self, model: str) -> TokenRule | None:
        """Return the token rule of a model for pictures and PDFs, if known. Default: `None`.

        Args:
            model: Its name.
        """
        del model
        return None

    def take_notes(self) -> Sequence[str]:
        """Return messages for the user about this provider, each once, such as ignored options."""
        return ()


def facts_of(provider: Provider, models: Iterable[str]) -> dict[str, ModelFacts]:
    """Return the facts about each model."""
    return {
        one: ModelFacts(provider.limit_class(one), provider.min_cacheable_tokens(one), provider.token_rule(one))
        for one in set(models)
    }


class BatchState(NamedTuple):
    """The state of a batch; times are seconds since the epoch, `ask_again_s` is the provider's wish."""

    id: str
    requests: int
    created_at: float
    ended_at: float | None = None
    cancelling: bool = False
    ask_again_s: float | None = None


class BatchItem(NamedTuple):
    """The outcome of one request; without answer and error it expired or was cancelled."""

    id: str
    answer: Answer | None = None
    error: CallError | None = None
    status: int | None = None
    cancelled: bool = False
    simulated: bool = False


class Batches(Protocol):
    """Sends requests as batches: answered together, hours later and at a lower price.

    ```
    create(requests by id) ── state(id) ... state(id) ── ended ── items(id): an answer, an error or neither, by id
                              cancel(id): the rest is not answered, and not billed
    recent(since): created batches, for a process that was killed before it read the id
    ```

    Each method is one request, raises `CallError`, and never retries. The texts of a batch have at most `most_bytes`.
    """

    @property
    def most_requests(self) -> int: ...
    @property
    def most_bytes(self) -> int: ...

    async def create(self, requests: Mapping[str, Request]) -> BatchState:
        """Create a batch of requests, each under a name of 1 to 64 letters, digits, `_` and `-`."""
        ...

    async def state(self, batch: str) -> BatchState | None:
        """Return `None` if the provider does not know it, possibly not yet."""
        ...

    async def recent(self, since: float) -> Sequence[BatchState]:
        """Return the batches created since a time of the epoch; raise `Rejected` if the server has no batches."""
        ...

    def items(self, batch: str) -> AsyncIterator[BatchItem]:
        """Yield the outcomes of a finished batch, in any order."""
        ...

    async def cancel(self, batch: str) -> None:
        """Cancel the unanswered requests. The batch ends soon, with the answers so far."""
        ...


def no_batches(endpoint: str) -> PlanError:
    return PlanError(
        f"{endpoint} has no batches, so nothing was sent: the API of Anthropic has them, the clouds and servers of "
        "your own do not. Run it without --batch (Policy(batch=False)), or connect elsewhere: %agents connect api."
    )
