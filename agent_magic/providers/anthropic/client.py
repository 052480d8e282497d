"""Sends requests through the `anthropic` SDK: to the API, to a cloud that offers it, or to a server that speaks it.

A cached prefix is tools, then system, then messages, so the shared context comes before the agent's own text. A mark
at the top level moves with the end of a conversation. Source: the vendor's pages on the Messages API and on prompt
caching.

Requests are raw event streams over the SDK's aiohttp transport: the helper that accumulates a message costs twice as
much per event, the default transport three times as much per request at 1,000 connections (measured on loopback).
`messages.create` copies a body piece by piece and looks for tracers, a sixth of the cost of a turn: if the client is
ours and nothing watches the method, the body is written as text and sent through the client's `post`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from agent_magic.declare.content import blocks_of
from agent_magic.engine.admission.pool import Key
from agent_magic.engine.pacing.limits import NO_READINGS
from agent_magic.errors import AgentMagicError, DeclarationError, NotConnected, Rejected
from agent_magic.machine import in_browser
from agent_magic.providers.anthropic import models
from agent_magic.providers.anthropic.batches import MessageBatches
from agent_magic.providers.anthropic.errors import AsCallErrors
from agent_magic.providers.anthropic.models import DEFAULT_URL, MODELS, server_tool
from agent_magic.providers.anthropic.stream import collect, counted, named_stream, plain
from agent_magic.providers.base import EVERYTHING, Provider
from agent_magic.providers.capabilities import SchemaWatch
from agent_magic.providers.responses import (
    ENVIRONMENT_KEYS,
    NOT_OFFERED,
    UNPROCESSABLE,
    compact_json,
    excerpt,
    in_base64,
    with_options,
)
from agent_magic.providers.transport import (
    Hidden,
    PerLoop,
    bounding_errors,
    check_key,
    checked_url,
    http_client,
    timeout_of,
    without_credentials,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from anthropic import AsyncAnthropic, AsyncStream

    from agent_magic.declare.content import Attachment, TokenRule
    from agent_magic.providers.base import Capabilities, Stream
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request

BASE_URL = "ANTHROPIC_BASE_URL"
NO_KEY = "none"
"""For the user's own server: most accept any key, and the SDK demands one."""
IN_A_PAGE = "%agents connect simulator, or replay a recording: %agents replay FILE."
SELLERS = {
    "AsyncAnthropicBedrock": "aws",
    "AsyncAnthropicBedrockMantle": "aws",
    "AsyncAnthropicVertex": "google",
    "AsyncAnthropicFoundry": "azure",
}
"""By class of the SDK's client; otherwise the maker."""
BASIC_TOOLS = frozenset({"google", "azure"})
"""They have only the first versions of the API's tools."""
NO_MOVING_MARK = frozenset({"aws", "google"})
"""They have no cache mark at the top level of a request."""
SCHEMA_FIELDS = ("output_config", "output_format", "json_schema")


class Claude(Provider):
    """Sends requests to the Messages API, or any server that speaks it.

    Without arguments the SDK reads `ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL` and its other sources when a run begins;
    the key is never stored here. Connections belong to the event loop of a run and are closed when its last run ends.

    Args:
        api_key: The key; default from the environment. Servers of your own mostly accept any.
        base_url: The address, such as `http://127.0.0.1:11434` for Ollama, without `/v1`.
        client: A client of the SDK: `AsyncAnthropic`, `AsyncAnthropicBedrock`, `AsyncAnthropicVertex`,
            `AsyncAnthropicFoundry` and the like. Its settings are kept, its retries are switched off, and it is never
            closed here.
        endpoint: The name under which answers are stored, for a server with changing addresses; default the address.
        own_models: True if the server may have models of any name. Default for all but the API itself, where impossible
            names are refused before anything is sent.

    Raises:
        DeclarationError: The address or key is invalid, or both `client` and one of them are given.
        AgentMagicError: `client` is not an asynchronous client of the SDK.
    """

    models = MODELS
    capabilities = EVERYTHING

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncAnthropic | None = None,
        endpoint: str | None = None,
        own_models: bool | None = None,
    ) -> None:
        create = getattr(getattr(client, "messages", None), "create", None)
        if client is not None and (create is None or not inspect.iscoroutinefunction(inspect.unwrap(create))):
            raise AgentMagicError(f"client={type(client).__name__!r} cannot answer. {_instead_of(client, create)}")
        if client is not None and (api_key is not None or base_url is not None):
            raise DeclarationError("Give either client= or api_key= and base_url=.", hint="A client has its own.")
        if base_url is not None:
            base_url = _checked_address(base_url, "base_url")
        check_key(api_key, "api_key")
        self._endpoint, self._own_models = endpoint, own_models
        self._client = client.with_options(max_retries=0) if client is not None else None
        self._base_url = base_url
        self._api_key = Hidden(api_key)
        self.credentials = Key()
        kinds = [kind.__name__ for kind in type(client).__mro__]
        self.price_list = next((SELLERS[one] for one in kinds if one in SELLERS), "anthropic")
        self._open: PerLoop[AsyncAnthropic] = PerLoop(self._make, lambda sdk: sdk.close())
        self._schemas = SchemaWatch()
        self._notes: list[str] = []
        self._noted: set[str] = set()

    def limit_class(self, model: str) -> str:
        """Name the models that share rate limits with this one.

        Args:
            model: Its name.
        """
        return models.limit_class(model)

    def lacks_model(self, model: str) -> bool:
        """Return whether there is certainly no such model; never for another server.

        Args:
            model: Its name.
        """
        return not self._has_own_models and models.lacks(model)

    def capabilities_of(self, model: str) -> Capabilities:
        """Return the options that a model accepts: newer ones refuse sampling options.

        Args:
            model: Its name.
        """
        return self.capabilities if models.takes_sampling(model) else replace(self.capabilities, sampling=False)

    @property
    def _has_own_models(self) -> bool:
        if self._own_models is not None:
            return self._own_models
        return self.price_list != "anthropic" or self._address.rstrip("/") != DEFAULT_URL

    @property
    def choices(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Models to choose among, cheapest first; empty if the server may have others."""
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
        return self._endpoint or without_credentials(self._address.rstrip("/"))

    @property
    def _address(self) -> str:
        if self._client is not None:
            return str(self._client.base_url)
        return self._base_url or _named_address() or DEFAULT_URL

    @property
    def account(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """A hash of key and address. `None` if the SDK finds the key itself when a run begins."""
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
        """Return arguments that make the same provider in another process, with the key only if one was given.

        Raises:
            DeclarationError: It has a client of the SDK, which cannot be sent to another process.
        """
        if self._client is not None:
            hint = "Give Claude(api_key=..., base_url=...)."
            raise DeclarationError("Claude(client=...) cannot be made in another process.", hint=hint)
        base_url = _named_address() if self._base_url is None else self._base_url
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
        async with self._open.held():
            yield

    def warm_up(self) -> None:
        """Import the SDK and its transport, and read the certificates. Nothing is opened."""
        importlib.import_module("anthropic")
        http_client(DEFAULT_URL)

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Send one request and read its answer as a stream.

        Args:
            request: The request.
            stream: Receives the response.

        Raises:
            CallError: The attempt failed; `partial` is the text received so far.
        """
        try:
            answer = await self._sent(request, stream)
        except Rejected as error:
            refused = self._has_own_models and error.status in UNPROCESSABLE
            if not refused or not self._schemas.refuses(request, str(error), SCHEMA_FIELDS):
                raise
            self._note(f"the schema of an answer for {request.model!r} (asked for in the prompt)")
            answer = await self._sent(request, stream)  # a refusal of a field bills nothing
        if self._has_own_models and not stream.simulated and self._schemas.hears(request, answer):
            self._note(f"the schema of an answer for {request.model!r} (asked for in the prompt)")
        if stream.readings == NO_READINGS and not stream.simulated:
            self._note("rate limits (learned from refusals)")
        return answer

    async def _sent(self, request: Request, stream: Stream) -> Answer:
        sdk = self._sdk()
        with AsCallErrors(stream, sdk):
            options: Any = {"own": self._client is None, "basic_tools": self.price_list in BASIC_TOOLS}
            with bounding_errors(sdk):
                events = await begin(sdk, self._as_sent(request), timeout_of(request.timeout_s), **options)
            try:
                return await collect(events, request, stream)
            finally:
                await events.close()

    def _body(self, request: Request) -> dict[str, Any]:
        return body(self._as_sent(request), basic_tools=self.price_list in BASIC_TOOLS)

    def _as_sent(self, request: Request) -> Request:
        """Return a request with its schema and cache marks in the form that the server knows."""
        request = self._schemas.in_words(request)
        if request.cached_turns and self.price_list in NO_MOVING_MARK:
            return request._replace(cached_turns=False)
        return request

    @property
    def batches(self) -> MessageBatches | None:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Sends requests as batches; `None` for clouds: their clients have none."""
        return None if self.price_list in SELLERS.values() else MessageBatches(self._sdk, self._body)

    async def count_tokens(self, request: Request) -> int | None:
        """Count the input tokens of a request with the count endpoint, which is free and has its own limit.

        Args:
            request: The request.

        Returns:
            The count; `None` if the server has no such endpoint.

        Raises:
            CallError: Counting failed, or the result is not a number.
        """
        asked = self._body(request._replace(options=""))  # they change no count, and the endpoint takes none of them
        del asked["max_tokens"]
        sdk = self._sdk()
        try:
            with AsCallErrors(None, sdk), bounding_errors(sdk):
                count = getattr(await sdk.messages.count_tokens(**asked), "input_tokens", None)
        except Rejected as error:
            if error.status is not None and error.status not in NOT_OFFERED:
                raise
            self._note("token counts (estimated)")
            return None
        return counted(count)

    def take_notes(self) -> Sequence[str]:
        """Return a sentence on options that the server ignores, once."""
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
        return self._client if self._client is not None else self._open.here

    def _make(self) -> AsyncAnthropic:
        import anthropic

        address = _checked_address(self._address, BASE_URL)
        if in_browser() and address.rstrip("/") == DEFAULT_URL:
            raise DeclarationError("A page is no place for a key of the API, so nothing was sent.", hint=IN_A_PAGE)
        for name in ENVIRONMENT_KEYS if self._api_key.reveal() is None else ():
            check_key(os.environ.get(name) or None, name)
        made = functools.partial(
            anthropic.AsyncAnthropic,
            # The SDK takes a blank address of the environment for one, and a profile's without one.
            base_url=self._base_url or (address if BASE_URL in os.environ else None),
            max_retries=0,
            http_client=http_client(address),
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


def as_provider(client: Provider | AsyncAnthropic | None) -> Provider:
    """Return the provider for a user's `client=`."""
    if client is None:
        return Claude()
    if isinstance(client, type):
        raise AgentMagicError(f"client={client.__name__} is a class. Call it: client={client.__name__}(...).")
    if Provider in type(client).__mro__:  # looking at each method, as `isinstance` does, takes 0.1 ms
        if not hasattr(client, "endpoint"):
            name = type(client).__name__
            raise AgentMagicError(
                f"client={name!r} has no endpoint. Write one into its class: endpoint = 'https://...'."
            )
        return cast("Provider", client)
    if hasattr(client, "send") and not hasattr(client, "messages"):
        if isinstance(client, Provider):
            return client
        raise AgentMagicError(f"client={type(client).__name__!r} is not a whole Provider: inherit from Provider.")
    return Claude(client=cast("AsyncAnthropic", client))


def _instead_of(client: object, create: object) -> str:
    if create is not None:
        return "It blocks until an answer is there. Give the async client with the same arguments: AsyncAnthropic(...)."
    if hasattr(getattr(client, "chat", None), "completions"):
        return "It speaks the chat completions API. Give am.Chat(base_url, api_key=...) with its address."
    if isinstance(client, str) and "://" in client:
        return "Give am.Claude(base_url=...) with the address, or am.Chat(...) if it speaks the chat completions API."
    return (
        "Give a Claude(), an AsyncAnthropic or a Provider of your own. A key is read from ANTHROPIC_API_KEY, or given "
        "as Claude(api_key=...)."
    )


def _named_address() -> str | None:
    return os.environ.get(BASE_URL, "").strip() or None


def _checked_address(url: object, name: str) -> str:
    url = checked_url(url, name, f"Give one such as {DEFAULT_URL}, or take {BASE_URL} out of the environment.")
    if urlsplit(url).path.rstrip("/").endswith("/v1"):
        raise DeclarationError(f"{name}={url!r} ends with /v1.", hint="Leave that out: the SDK adds it.")
    return url


PATH = "/v1/messages"
UNTRACED = frozenset({"ProxyTracerProvider", "NoOpTracerProvider"})
"""OpenTelemetry providers that record nothing."""
CALLED = {"stop": "stop_sequences"}


def body(request: Request, *, basic_tools: bool = False) -> dict[str, Any]:
    """Return the API's body, with cache marks."""
    found = request.canonical()
    for tool in found.get("tools", ()):
        if "type" in tool:  # asked for by its plain name, which no later version changes
            tool["type"] = server_tool(tool["type"], request.model, basic=basic_tools)
    if request.attachments:
        found["messages"][0]["content"] = request.content(_sent)
    if request.returned:
        _fill(found["messages"], request)
    mark = {"type": "ephemeral", **({"ttl": request.ttl} if request.ttl != "5m" else {})}
    if request.cached and request.context:
        found["system"][0]["cache_control"] = mark
    elif request.cached and request.attachments:  # the context is the pictures and documents that stand first
        blocks = found["messages"][0]["content"]
        if request.shared:
            own = [one for one in request.attachments if one.at < request.shared]
            blocks[len(blocks_of(request.prompt[: request.shared], own)) - 1]["cache_control"] = mark
        else:
            next(one for one in blocks if one["type"] != "text")["cache_control"] = mark
    if request.cached_turns:
        found["cache_control"] = {"type": "ephemeral"}
    return with_options(found, request.sent, CALLED) if request.options else found


def body_text(request: Request, *, basic_tools: bool = False) -> bytes:
    """Return `body` as streaming JSON, with messages in their stored form."""
    said = request.messages
    if request.returned or not all(one.content[:1] == "[" for one in said):  # they have to be taken apart
        return compact_json(body(request, basic_tools=basic_tools) | {"stream": True}).encode()
    found = body(request._replace(messages=()), basic_tools=basic_tools)
    first = found.pop("messages")[0]
    parts = [compact_json(first), *(f'{{"role":"{one.role}","content":{one.content}}}' for one in said)]
    return f'{compact_json(found)[:-1]},"messages":[{",".join(parts)}],"stream":true}}'.encode()


def _fill(messages: list[dict[str, Any]], request: Request) -> None:
    known = {one.sha256: one for one in request.returned}
    sent = [one for message in messages[1:] if message["role"] == "user" for one in message["content"]]
    inside = (one.get("content") if one["type"] == "tool_result" else [one] for one in sent)
    for block in (one for content in inside if isinstance(content, list) for one in cast("list[Any]", content)):
        if "source" in block:
            block["source"]["data"] = _sent(known[block["source"]["data"]])
            if request.cite and block["type"] == "document":  # on for all documents or for none
                block["citations"] = {"enabled": True}


def _sent(one: Attachment) -> str:
    return one.text or in_base64(one)


async def begin(
    sdk: AsyncAnthropic, request: Request, limits: Any, *, own: bool, basic_tools: bool
) -> AsyncStream[Any]:
    """Send a request; `own` if the client was created here."""
    if own and _is_unwatched(sdk, request.model):
        content = body_text(request, basic_tools=basic_tools)
        options: Any = {"timeout": limits}
        return await sdk.post(
            PATH, cast_to=object, content=content, options=options, stream=True, stream_cls=named_stream()
        )
    asked = body(request, basic_tools=basic_tools)
    more: dict[str, Any] = {}
    if request.options:  # the method knows only the fields of its day
        known = body(request._replace(options=""), basic_tools=basic_tools)
        more = {"extra_body": {name: asked.pop(name) for name in [*asked] if name not in known}}
    made = await sdk.messages.create(**asked, stream=True, timeout=limits, **more)
    return plain(made, sdk)


def _is_unwatched(sdk: AsyncAnthropic, model: str) -> bool:
    """Return whether a request can bypass `messages.create` without an observer."""
    import anthropic

    if type(sdk) is not anthropic.AsyncAnthropic or _warns_of(model):
        return False
    create: Any = type(sdk.messages).create
    if type(create) is not FunctionType or not create.__code__.co_filename.startswith(_folder()):
        return False
    traces = sys.modules.get("opentelemetry.trace")
    return traces is None or type(traces.get_tracer_provider()).__name__ in UNTRACED


@functools.lru_cache(maxsize=1024)
def _warns_of(model: str) -> bool:
    from anthropic.resources.messages import DEPRECATED_MODELS

    return model in DEPRECATED_MODELS


@functools.lru_cache(maxsize=1)
def _folder() -> str:
    import anthropic

    return os.path.join(os.path.dirname(anthropic.__file__), "")  # noqa: PTH118, PTH120 - names of code objects
