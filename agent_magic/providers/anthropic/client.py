"""Sends requests through the `anthropic` SDK: to the API, to a cloud that offers it, or to a server that speaks it.

Requests are raw event streams over the SDK's aiohttp transport: the helper that accumulates a message costs twice as
much per event, the default transport three times as much per request at 1,000 connections (measured on loopback).
The SDK's own retries are off: the engine has the only retry loop.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import importlib
import inspect
import os
import sys
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agent_magic.engine.admission.key import Key
from agent_magic.engine.pacing.limits import NO_READINGS
from agent_magic.errors import AgentMagicError, DeclarationError, NotConnected, Rejected
from agent_magic.machine import in_browser
from agent_magic.providers.anthropic import models
from agent_magic.providers.anthropic.batches import MessageBatches
from agent_magic.providers.anthropic.errors import ENVIRONMENT_KEYS, AsCallErrors, excerpt
from agent_magic.providers.anthropic.models import MODELS
from agent_magic.providers.anthropic.sending import begin
from agent_magic.providers.anthropic.stream import collect, counted
from agent_magic.providers.anthropic.wire import body
from agent_magic.providers.base import Provider

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from anthropic import AsyncAnthropic
    from httpx2 import AsyncBaseTransport

    from agent_magic.declare.content import TokenRule
    from agent_magic.providers.base import Stream
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request

DEFAULT_URL = "https://api.anthropic.com"
NO_KEY = "none"
"""Sent to a server of one's own where no key was given: most take any, and the SDK wants one."""
SERVED: dict[str, AsyncBaseTransport] = {}
"""What answers inside this process in place of a server, by its address: the mock server in a browser."""
IN_A_PAGE = "%agents connect simulator, or replay a recording: %agents replay FILE."
"""What to do in a browser in place of asking the API."""
CONNECT_S = 10.0
BLOCKED_S = 120.0
"""How long user code may block the event loop before the transport takes a connection for silent."""
SELLERS = {
    "AsyncAnthropicBedrock": "aws",
    "AsyncAnthropicBedrockMantle": "aws",
    "AsyncAnthropicVertex": "google",
    "AsyncAnthropicFoundry": "azure",
}
"""Whose list prices count where a client of the SDK is one of these; otherwise the maker's."""
BASIC_TOOLS = frozenset({"google", "azure"})
"""The sellers that have the first versions only of the tools that the API runs."""
NO_MOVING_MARK = frozenset({"aws", "google"})
"""The sellers that do not know a mark for the cache at the top level of a request."""
NO_COUNT = frozenset({404, 405, 501})
"""What a server answers that has no count endpoint."""


class _Hidden:
    """A text that tracebacks do not show, even in the mode that writes every attribute out."""

    __slots__ = ("_text",)

    def __init__(self, text: str | None) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "'…'"

    def reveal(self) -> str | None:
        """Return it."""
        return self._text


@dataclass(slots=True)
class _Open:
    """The SDK client of one event loop, and how many runs use it."""

    sdk: AsyncAnthropic
    users: int = 0


class Claude(Provider):
    """Sends requests to the Messages API, or to any server that speaks it.

    Without arguments the SDK reads `ANTHROPIC_API_KEY` and `ANTHROPIC_BASE_URL` (and what else it knows) when a run
    begins; the key is never kept here. Connections belong to the event loop a run is on and are closed when its last
    run ends.

    Args:
        api_key: The key; by default the environment's. A server of your own mostly takes any.
        base_url: Where to send, such as `http://127.0.0.1:11434` for Ollama, without `/v1`.
        client: A client of the SDK: `AsyncAnthropic`, `AsyncAnthropicBedrock`, `AsyncAnthropicVertex`,
            `AsyncAnthropicFoundry` and the like. Its settings are kept, its retries are switched off, and it is never
            closed here.
        endpoint: The name under which answers are kept, for a server whose address changes; by default the address.
        own_models: Whether the server may have models of any name. By default all but the API itself may; there a
            name that it cannot have is told before anything is sent.

    Raises:
        DeclarationError: The address or the key cannot be used, or both `client` and one of them are given.
        AgentMagicError: `client` is not an asynchronous client of the SDK.
    """

    models = MODELS

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncAnthropic | None = None,
        endpoint: str | None = None,
        own_models: bool | None = None,
    ) -> None:
        _check_client(client)
        if client is not None and (api_key is not None or base_url is not None):
            raise DeclarationError("Give either client= or api_key= and base_url=.", hint="A client has its own.")
        if base_url is not None:
            base_url = _checked_url(base_url, "base_url")
        _check_key(api_key, "api_key")
        self._endpoint, self._own_models = endpoint, own_models
        self._client = client.with_options(max_retries=0) if client is not None else None
        self._base_url = base_url
        self._api_key = _Hidden(api_key)
        self.credentials = Key()
        kinds = [kind.__name__ for kind in type(client).__mro__]
        self.price_list = next((SELLERS[one] for one in kinds if one in SELLERS), "anthropic")
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = WeakKeyDictionary()
        self._notes: list[str] = []
        self._noted: set[str] = set()

    def limit_class(self, model: str) -> str:
        """Name the models that share rate limits with this one.

        Args:
            model: Its name.
        """
        return models.limit_class(model)

    def lacks_model(self, model: str) -> bool:
        """Tell whether there certainly is no model of this name; of a server of one's own nobody knows.

        Args:
            model: Its name.
        """
        return not self._has_own_models and models.lacks(model)

    @property
    def _has_own_models(self) -> bool:
        if self._own_models is not None:
            return self._own_models
        return self.price_list != "anthropic" or self._address.rstrip("/") != DEFAULT_URL

    @property
    def choices(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Models from cheap to dear among which one is chosen; none where a server may have others."""
        return () if self._has_own_models else MODELS[:3]

    def min_cacheable_tokens(self, model: str) -> int:
        """Return the shortest prefix that the prompt cache keeps.

        Args:
            model: Its name.
        """
        return models.min_cacheable_tokens(model)

    def token_rule(self, model: str) -> TokenRule:
        """Return how many tokens a model makes of pictures and PDFs.

        Args:
            model: Its name.
        """
        return models.token_rule(model)

    def __repr__(self) -> str:
        return f"Claude({self.endpoint!r})"

    @property
    def endpoint(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Where requests go, without credentials."""
        return self._endpoint or _without_credentials(self._address.rstrip("/"))

    @property
    def _address(self) -> str:
        if self._client is not None:
            return str(self._client.base_url)
        return self._base_url or os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_URL

    @property
    def account(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """The key and the address as a hash. `None` where the SDK finds the key by itself when a run begins."""
        if self._client is not None:
            given: Any = self._client  # those of the clouds have other credentials: their address names the account
            key = getattr(given, "api_key", None) or getattr(given, "auth_token", None) or ""
        else:
            found = (os.environ.get(name) for name in ENVIRONMENT_KEYS)
            key = self._api_key.reveal() or next(filter(None, found), "")
        if not key and self._client is None and self._base_url is None:
            return None
        return hashlib.sha256(f"{self._address}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()

    def settings(self) -> dict[str, str | None]:
        """Return the arguments that make the same provider in another process, its key only where one was given.

        Raises:
            DeclarationError: It was made with a client of the SDK, which no other process has.
        """
        if self._client is not None:
            hint = "Give Claude(api_key=..., base_url=...)."
            raise DeclarationError("Claude(client=...) cannot be made in another process.", hint=hint)
        base_url = os.environ.get("ANTHROPIC_BASE_URL") if self._base_url is None else self._base_url
        return {"api_key": self._api_key.reveal(), "base_url": base_url, "endpoint": self._endpoint}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Hold connections while a run lasts.

        Raises:
            NotConnected: There is no key.
            DeclarationError: The address or the key of the environment cannot be used.
        """
        if self._client is not None:
            yield
            return
        loop = asyncio.get_running_loop()
        if not _is_loaded("anthropic"):  # takes seconds, in which the loop should hear a stop
            await asyncio.to_thread(importlib.import_module, "anthropic")
        held = self._open.get(loop)
        if held is None:
            held = self._open[loop] = _Open(self._make())
        held.users += 1
        try:
            yield
        finally:
            held.users -= 1
            if not held.users:
                del self._open[loop]
                await held.sdk.close()

    def warm_up(self) -> None:
        """Import the SDK and its transport, and read the certificates. Nothing is opened."""
        _transport(importlib.import_module("anthropic"), DEFAULT_URL)

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Send one request and read its answer as a stream.

        Args:
            request: What to ask.
            stream: Is told what arrives.

        Raises:
            CallError: The attempt failed. Its `partial` holds the text that had arrived.
        """
        sdk = self._sdk()
        with AsCallErrors(stream, sdk):
            options: Any = {"own": self._client is None, "basic_tools": self.price_list in BASIC_TOOLS}
            events = await begin(sdk, self._marked(request), _timeout(request.timeout_s), **options)
            try:
                answer = await collect(events, request, stream)
            finally:
                await events.close()
        if stream.readings == NO_READINGS and not stream.simulated:
            self._note("rate limits (learned from refusals)")
        return answer

    def _body(self, request: Request) -> dict[str, Any]:
        return body(self._marked(request), basic_tools=self.price_list in BASIC_TOOLS)

    def _marked(self, request: Request) -> Request:
        """Return a request with the marks of the cache that the seller knows."""
        if request.cached_turns and self.price_list in NO_MOVING_MARK:
            return request._replace(cached_turns=False)
        return request

    @property
    def batches(self) -> MessageBatches | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Sends requests as batches. `None` for the clouds, whose clients have none."""
        return None if self.price_list in SELLERS.values() else MessageBatches(self._sdk, self._body)

    async def count_tokens(self, request: Request) -> int | None:
        """Count the input tokens of a request by the count endpoint, which is free and has a limit of its own.

        Args:
            request: What would be asked.

        Returns:
            The count; `None` where the server has no such endpoint.

        Raises:
            CallError: The count failed, or is no number.
        """
        asked = self._body(request)
        del asked["max_tokens"]
        sdk = self._sdk()
        try:
            with AsCallErrors(None, sdk):
                count = getattr(await sdk.messages.count_tokens(**asked), "input_tokens", None)
        except Rejected as error:
            if error.status is not None and error.status not in NO_COUNT:
                raise
            self._note("token counts (estimated)")
            return None
        return counted(count)

    def take_notes(self) -> Sequence[str]:
        """Return what the server leaves out, in one sentence, once."""
        if not self._notes:
            return ()
        said = f"{self.endpoint} leaves out {' and '.join(self._notes)}."
        self._notes.clear()
        return (said,)

    def _note(self, what: str) -> None:
        if what not in self._noted:
            self._noted.add(what)
            self._notes.append(what)

    def _sdk(self) -> AsyncAnthropic:
        return self._client if self._client is not None else self._open[asyncio.get_running_loop()].sdk

    def _make(self) -> AsyncAnthropic:
        import anthropic

        address = _checked_url(self._address, "ANTHROPIC_BASE_URL")
        if in_browser() and address.rstrip("/") == DEFAULT_URL:
            raise DeclarationError("A page is no place for a key of the API, so nothing was sent.", hint=IN_A_PAGE)
        for name in ENVIRONMENT_KEYS if self._api_key.reveal() is None else ():
            _check_key(os.environ.get(name) or None, name)
        # The transport warns of every prompt beyond 1 MB. Where warnings are errors it could not be sent.
        warnings.filterwarnings("ignore", "Sending a large body", ResourceWarning)
        made = functools.partial(
            anthropic.AsyncAnthropic,
            base_url=self._base_url,
            max_retries=0,
            http_client=_transport(anthropic, address),
        )
        try:
            sdk = made(api_key=self._api_key.reveal())
            if sdk.api_key is None and sdk.auth_token is None and sdk.credentials is None:
                if self._base_url is None:
                    raise NotConnected
                sdk = made(api_key=NO_KEY)
        except (ValueError, TypeError, anthropic.AnthropicError) as error:
            why, hint = excerpt(error), "Check the ANTHROPIC_ variables of the environment, and its proxies."
            raise DeclarationError(f"The SDK cannot make a client: {why}.", hint=hint) from None  # hides it
        return sdk


def _transport(anthropic: Any, address: str) -> Any:
    """Return what carries the requests of a client: aiohttp, in a browser the page's own `fetch`.

    The API never redirects; whoever does would be handed the prompt and the key.
    """
    inside = SERVED.get(address.rstrip("/"))
    if inside is not None:
        return anthropic.DefaultAsyncHttpxClient(transport=inside, follow_redirects=False)
    if in_browser():
        return anthropic.DefaultAsyncHttpxClient(follow_redirects=False)
    return anthropic.DefaultAioHttpClient(trust_env=not _is_loopback(address), follow_redirects=False)


def as_provider(client: Provider | AsyncAnthropic | None) -> Provider:
    """Return the provider that a user's `client=` names: a provider, a client of the SDK, or `None` for `Claude()`.

    Raises:
        AgentMagicError: It cannot answer.
    """
    if client is None:
        return Claude()
    if Provider in type(client).__mro__:  # looking at each method, as `isinstance` does, takes 0.1 ms
        return cast("Provider", client)
    if hasattr(client, "send") and not hasattr(client, "messages"):
        if isinstance(client, Provider):
            return client
        raise AgentMagicError(f"client={type(client).__name__!r} is not a whole Provider: inherit from Provider.")
    return Claude(client=cast("AsyncAnthropic", client))


def _check_client(client: object) -> None:
    """Raise `AgentMagicError` for what cannot answer. It is named by its kind: a text may be a key."""
    create = getattr(getattr(client, "messages", None), "create", None)
    if client is not None and (create is None or not inspect.iscoroutinefunction(inspect.unwrap(create))):
        raise AgentMagicError(
            f"client={type(client).__name__!r} cannot answer. Give a Claude(), an AsyncAnthropic or a Provider of your "
            "own. A key is read from ANTHROPIC_API_KEY, or given as Claude(api_key=...)."
        )


def _check_key(key: object, name: str) -> None:
    """Raise `DeclarationError` for a key that no header can hold. It is never shown."""
    if key is None or (isinstance(key, str) and key and key.strip() == key and key.isascii() and key.isprintable()):
        return
    what = "not a string" if not isinstance(key, str) else "not one line of plain characters" if key else "empty"
    hint = "Mostly a line break at its end is the cause: strip it."
    raise DeclarationError(f"The key in {name} is {what}.", hint=hint)


def _checked_url(url: object, name: str) -> str:
    """Return the address of a server.

    Raises:
        DeclarationError: It is not one, or cannot be used.
    """
    shown = _without_credentials(url) if isinstance(url, str) else type(url).__name__
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        known = bool(parts.hostname) and parts.scheme in {"http", "https"} and (parts.port or 1) > 0
    except ValueError:
        parts, known = urlsplit(""), False
    if not known or not isinstance(url, str) or not url.isprintable() or " " in url:
        hint = f"Give one such as {DEFAULT_URL}, or take ANTHROPIC_BASE_URL out of the environment."
        raise DeclarationError(f"{name}={shown!r} is not the address of a server.", hint=hint)
    if parts.username is not None or parts.password is not None:
        raise DeclarationError(f"{name}={shown!r} holds a user name or a password.", hint="Give a key by api_key=.")
    if parts.path.rstrip("/").endswith("/v1"):
        raise DeclarationError(f"{name}={shown!r} ends with /v1.", hint="Leave that out: the SDK adds it.")
    return url


def _without_credentials(url: str) -> str:
    """Leave a user name and a password out of an address."""
    start, mark, rest = url.partition("://")
    return f"{start}{mark}{rest.rpartition('@')[2]}"


def _is_loopback(url: str) -> bool:
    """Tell whether a server is on this machine, where no proxy of the environment reaches it."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_loaded(name: str) -> bool:
    """Tell whether a module is imported completely: importing one that another thread imports would block."""
    return not getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", name not in sys.modules)


@functools.lru_cache(maxsize=16)
def _timeout(seconds: float) -> Any:
    """Return a longer timeout than the deadline of the attempt, which the engine enforces.

    The transport's clocks run on while user code blocks the loop, and would give up on what has arrived meanwhile.
    """
    import httpx2

    return httpx2.Timeout(seconds + BLOCKED_S, connect=min(CONNECT_S, seconds))
