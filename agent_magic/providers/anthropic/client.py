"""The Messages API through the `anthropic` SDK.

Requests are raw event streams over the SDK's aiohttp transport: the helper that accumulates a message costs twice as
much per event, the default transport three times as much per request at 1,000 connections (measured on loopback).
The SDK's own retries are off: one retry loop, the conductor's.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import os
import sys
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agent_magic.engine.key import Key
from agent_magic.errors import AgentMagicError, DeclarationError, NotConnected
from agent_magic.providers.anthropic.errors import AsCallErrors, excerpt
from agent_magic.providers.anthropic.stream import collect, counted, plain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anthropic import AsyncAnthropic

    from agent_magic.providers.base import Stream
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request

CONNECT_S = 10.0
HELD_UP_S = 120.0
"""How long user code may hold the loop up before the transport takes a connection for silent."""


class _Hidden:
    """A text that tracebacks do not show, in the mode either that writes every attribute out."""

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


class Claude:
    """Sends requests to the Messages API, or to whatever speaks it.

    The key is the SDK's business: it is read from `ANTHROPIC_API_KEY` (or what else the SDK knows) when a run begins,
    and never kept here. Connections belong to the event loop a run is on and are closed when the last run ends.

    Args:
        sdk: A client of your own. Its settings are kept, its retries switched off, and it is never closed here.
        base_url: Where to send; `None` is what the SDK's environment says.
        credential: The key for a server of one's own that takes any, such as the stand-in.
        endpoint: The name under which its answers are kept, for a server whose address changes; `None` is the address.

    Raises:
        AgentMagicError: The client of your own cannot answer: it is none, or not an asynchronous one.

    Attributes:
        key: Whether the API has taken the key yet.
    """

    def __init__(
        self,
        sdk: AsyncAnthropic | None = None,
        *,
        base_url: str | None = None,
        credential: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        _check_sdk(sdk)
        self._endpoint = endpoint
        self._given = sdk.with_options(max_retries=0) if sdk is not None else None
        self._base_url = base_url
        self._credential = _Hidden(credential)
        self.key = Key()
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Claude({_without_credentials(self._base_url or 'the default endpoint')!r})"

    @property
    def endpoint(self) -> str:
        """Where requests go, without credentials."""
        return self._endpoint or _without_credentials(self._address.rstrip("/"))

    @property
    def _address(self) -> str:
        if self._given is not None:
            return str(self._given.base_url)
        return self._base_url or os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Hold connections for as long as a run lasts.

        Raises:
            NotConnected: There is no key.
            DeclarationError: The address is none.
        """
        if self._given is not None:
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

    async def call(self, request: Request, stream: Stream) -> Answer:
        """Ask once, as a stream.

        Raises:
            CallError: The attempt failed. Its `partial` holds the text that had arrived.
        """
        sdk = self._sdk()
        with AsCallErrors(stream, secrets=_secrets_of(sdk)):
            made = await sdk.messages.create(**request.body(), stream=True, timeout=_timeout(request.timeout_s))
            events = plain(made, sdk)
            try:
                return await collect(events, request, stream)
            finally:
                await events.close()

    async def count_tokens(self, request: Request) -> int:
        """Return the input tokens of a request, by the API's count endpoint. Free, and counted by its own limit.

        Raises:
            CallError: The count could not be had, or is none.
        """
        body = request.body()
        del body["max_tokens"]
        sdk = self._sdk()
        with AsCallErrors(None, secrets=_secrets_of(sdk)):
            count = getattr(await sdk.messages.count_tokens(**body), "input_tokens", None)
        return counted(count)

    def _sdk(self) -> AsyncAnthropic:
        return self._given if self._given is not None else self._open[asyncio.get_running_loop()].sdk

    def _make(self) -> AsyncAnthropic:
        import anthropic

        at_home = _is_loopback(self._address)
        # The transport warns of every prompt beyond 1 MB. Where warnings are errors it could not be sent.
        warnings.filterwarnings("ignore", "Sending a large body", ResourceWarning)
        try:
            sdk = anthropic.AsyncAnthropic(
                api_key=self._credential.reveal(),
                base_url=self._base_url,
                max_retries=0,
                # The API never redirects; who does would be handed the prompt and the key.
                http_client=anthropic.DefaultAioHttpClient(trust_env=not at_home, follow_redirects=False),
            )
        except (ValueError, TypeError, anthropic.AnthropicError) as error:
            why, hint = excerpt(error), "Check the ANTHROPIC_ variables of the environment, and its proxies."
            raise DeclarationError(f"The client of the API cannot be made: {why}.", hint=hint) from None  # hides it
        if sdk.api_key is None and sdk.auth_token is None and sdk.credentials is None:
            raise NotConnected
        return sdk


def _check_sdk(sdk: object) -> None:
    """Raise `AgentMagicError` for what cannot answer. It is named by its kind: a text may be a key."""
    create = getattr(getattr(sdk, "messages", None), "create", None)
    if sdk is not None and (create is None or not inspect.iscoroutinefunction(inspect.unwrap(create))):
        raise AgentMagicError(
            f"client={type(sdk).__name__!r} cannot answer. Give a Claude(), or an AsyncAnthropic of your own; a key is "
            "read from ANTHROPIC_API_KEY."
        )


def _is_loaded(name: str) -> bool:
    """Tell whether a module is there and whole: who imports one that another thread is importing waits for that."""
    return not getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", name not in sys.modules)


def _secrets_of(sdk: AsyncAnthropic) -> tuple[str | None, ...]:
    """Return what no message may show. Clients of other clouds have no such attributes."""
    return getattr(sdk, "api_key", None), getattr(sdk, "auth_token", None)


def _without_credentials(url: str) -> str:
    """Leave a name and a password out of an address."""
    start, mark, rest = url.partition("://")
    return f"{start}{mark}{rest.rpartition('@')[2]}"


def _is_loopback(url: str) -> bool:
    """Tell whether a server is on this machine, where no proxy of the environment reaches it.

    Raises:
        DeclarationError: It is no address of a server.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    if not host or parts.scheme not in {"http", "https"}:
        hint = "Give one such as https://api.anthropic.com, or take ANTHROPIC_BASE_URL out of the environment."
        raise DeclarationError(f"base_url={_without_credentials(url)!r} is no address of a server.", hint=hint)
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@functools.lru_cache(maxsize=16)
def _timeout(seconds: float) -> Any:
    """Give the transport more than our deadline, which the conductor enforces over the whole attempt.

    The transport's clocks run on while user code holds the loop up, and would give up on what has arrived meanwhile.
    """
    import httpx2

    return httpx2.Timeout(seconds + HELD_UP_S, connect=min(CONNECT_S, seconds))
