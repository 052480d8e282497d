"""The Messages API through the `anthropic` SDK.

Requests are raw event streams over the SDK's aiohttp transport: the helper that accumulates a message costs twice as
much per event, the default transport three times as much per request at 1,000 connections (measured on loopback).
The SDK's own retries are off: one retry loop, the conductor's.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from agent_magic.errors import NotConnected, Truncated, Unreadable
from agent_magic.record.answer import Answer, Usage
from agent_magic.run.drain import drain
from agent_magic.run.faults import AsCallErrors, excerpt, note_response, raised_by_sdk
from agent_magic.schedule.key import Key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anthropic import AsyncAnthropic, AsyncStream
    from anthropic.types import RawMessageStreamEvent

    from agent_magic.record.request import Request
    from agent_magic.run.client import Stream

CONNECT_S = 10.0
NOTHING_KNOWN = Usage()
DRAIN_S = 0.25
"""How long to wait for the end of a connection whose answer is complete."""


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
        self._endpoint = endpoint
        self._given = sdk.with_options(max_retries=0) if sdk is not None else None
        self._base_url = base_url
        self._credential = credential
        self.key = Key()
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Open] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Claude({self._base_url or 'the default endpoint'!r})"

    @property
    def endpoint(self) -> str:
        """Where requests go, without credentials."""
        return self._endpoint or self._address.rstrip("/")

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
        """
        if self._given is not None:
            yield
            return
        loop = asyncio.get_running_loop()
        if "anthropic" not in sys.modules:  # takes seconds, in which the loop should hear a stop
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
            events = await sdk.messages.create(**request.body(), stream=True, timeout=_timeout(request.timeout_s))
            try:
                return await _collect(events, request, stream)
            finally:
                await events.close()

    async def count_tokens(self, request: Request) -> int:
        """Return the input tokens of a request, by the API's count endpoint. Free, and counted by its own limit."""
        body = request.body()
        del body["max_tokens"]
        sdk = self._sdk()
        with AsCallErrors(None, secrets=_secrets_of(sdk)):
            return (await sdk.messages.count_tokens(**body)).input_tokens

    def _sdk(self) -> AsyncAnthropic:
        return self._given if self._given is not None else self._open[asyncio.get_running_loop()].sdk

    def _make(self) -> AsyncAnthropic:
        import anthropic

        sdk = anthropic.AsyncAnthropic(
            api_key=self._credential,
            base_url=self._base_url,
            max_retries=0,
            http_client=anthropic.DefaultAioHttpClient(trust_env=not _is_loopback(self._address)),
        )
        if sdk.api_key is None and sdk.auth_token is None and sdk.credentials is None:
            raise NotConnected
        return sdk


def _secrets_of(sdk: AsyncAnthropic) -> tuple[str | None, ...]:
    """Return what no message may show. Clients of other clouds have no such attributes."""
    return getattr(sdk, "api_key", None), getattr(sdk, "auth_token", None)


def _is_loopback(url: str) -> bool:
    """Tell whether a server is on this machine, where no proxy of the environment reaches it."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@functools.lru_cache(maxsize=16)
def _timeout(seconds: float) -> Any:
    """Give the transport our deadline; the conductor enforces it over the whole attempt."""
    import httpx2

    return httpx2.Timeout(seconds, connect=min(CONNECT_S, seconds))


async def _collect(events: AsyncStream[RawMessageStreamEvent], request: Request, stream: Stream) -> Answer:
    """Read a stream to its end.

    Raises:
        Truncated: It ended without a `stop_reason`.
        Unreadable: It is no event stream, or its events are not the API's.
    """
    response = events.response
    note_response(stream, response)
    ending = _Ending(request.model, stream.headers.get("request-id"))
    kind = stream.headers.get("content-type", "")
    try:
        if kind.startswith("text/event-stream"):
            await _read(events, ending, stream)
        else:
            _whole(kind, (await response.aread()).decode("utf-8", "replace"), ending, stream)
    except (AttributeError, TypeError) as error:  # the SDK builds events without checking their fields
        raise Unreadable(f"An event of the stream is not the API's: {excerpt(error)}.") from None
    return stream.answer or ending.answer(stream)


async def _read(events: AsyncStream[RawMessageStreamEvent], ending: _Ending, stream: Stream) -> None:
    """Read the events. What breaks after the `stop_reason` breaks an answer no more: it is complete and paid for."""
    reading = aiter(events)
    try:
        async for event in reading:
            if ending.see(event, stream):
                break
        with suppress(TimeoutError):  # a connection whose end is read can serve the next request
            await drain(reading, DRAIN_S)
    except raised_by_sdk():
        if stream.answer is None:
            raise


class _Ending:
    """Collects what a reply says besides its text."""

    def __init__(self, model: str, request_id: str | None) -> None:
        self.model, self.request_id = model, request_id
        self.stop_reason: str | None = None
        self.refusal: str | None = None

    def see(self, event: RawMessageStreamEvent, stream: Stream) -> bool:
        """Take an event of a stream in; tell whether it was the last."""
        if event.type == "content_block_delta":
            delta = event.delta
            if delta.type == "text_delta":
                stream.add(delta.text)
            else:
                stream.began()
        elif event.type == "message_start":
            self.model = event.message.model or self.model
            stream.usage = _usage(event.message.usage, None)
            stream.opened()
        elif event.type == "message_delta":
            self.take(event.delta)
            stream.usage = _usage(event.usage, stream.usage)
            if self.stop_reason is not None:
                stream.answer = self.answer(stream)
        return event.type == "message_stop"

    def take(self, ending: Any) -> None:
        """Read `stop_reason` and `stop_details` of a message, or of its last delta."""
        self.stop_reason = ending.stop_reason or self.stop_reason
        if self.stop_reason == "refusal":
            details = getattr(ending, "stop_details", None)
            self.refusal = getattr(details, "category", None) or "unnamed"

    def answer(self, stream: Stream) -> Answer:
        """Make the answer of what has arrived.

        Raises:
            Truncated: There was no `stop_reason`.
        """
        if self.stop_reason is None:
            raise Truncated("The stream ended before the answer did (no stop_reason).")
        return Answer(
            stream.text,
            self.stop_reason,
            usage=stream.usage or Usage(),
            model=self.model,
            source="simulated" if stream.simulated else "live",
            request_id=self.request_id,
            refusal=self.refusal,
        )


def _whole(kind: str, body: str, ending: _Ending, stream: Stream) -> None:
    """Read a reply that came in one piece although a stream was asked for."""
    from anthropic.types import Message

    data: Any = json.loads(body) if kind.startswith("application/json") else None
    if not isinstance(data, dict) or cast("dict[str, Any]", data).get("type") != "message":
        raise Unreadable(f"The reply is no event stream but {kind or 'nothing'!r}: {excerpt(body)!r}.")
    message = Message.construct(**cast("dict[str, Any]", data))
    for block in message.content or ():
        if block.type == "text":
            stream.add(block.text)
    stream.usage = _usage(message.usage, None)
    ending.model = message.model
    ending.take(message)


def _usage(now: Any, before: Usage | None) -> Usage | None:
    """Read the token counts of an event. Counts are cumulative, and those left out keep their value."""
    if now is None:
        return before
    before = before or NOTHING_KNOWN
    known = _fields(now).get
    cached = known("cache_creation")
    long = _fields(cached).get("ephemeral_1h_input_tokens") if cached is not None else None
    taken, read = known("input_tokens"), known("cache_read_input_tokens")
    written, made = known("cache_creation_input_tokens"), known("output_tokens")
    return Usage(
        taken if isinstance(taken, int) else before.input_tokens,
        cache_read_tokens=read if isinstance(read, int) else before.cache_read_tokens,
        cache_write_tokens=written if isinstance(written, int) else before.cache_write_tokens,
        output_tokens=made if isinstance(made, int) else before.output_tokens,
        cache_write_1h_tokens=long if isinstance(long, int) else before.cache_write_1h_tokens,
    )


def _fields(model: Any) -> dict[str, Any]:
    """Return what is set of an SDK object. Asking it for what is not costs a microsecond a name."""
    fields: dict[str, Any] = getattr(model, "__dict__", {})
    extra: dict[str, Any] | None = getattr(model, "model_extra", None)
    return {**extra, **fields} if extra else fields
