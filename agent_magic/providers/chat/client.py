"""Sends requests to a server that speaks the chat completions API.

A `tool` message answers each call and can hold text only, so a picture that a tool returned follows in a user's
message. Source: the vendors' pages on chat completions.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from agent_magic.declare.answers.lenient import decoded, written
from agent_magic.declare.content import blocks_of
from agent_magic.declare.units import plural
from agent_magic.declare.validation import listed, must_be
from agent_magic.declare.values import sendable
from agent_magic.engine.admission.pool import Key
from agent_magic.engine.pacing.limits import NO_READINGS
from agent_magic.errors import CallError, DeclarationError
from agent_magic.providers.base import Capabilities, Provider
from agent_magic.providers.capabilities import SchemaWatch
from agent_magic.providers.chat.errors import (
    CHECK,
    error_of,
    read_body,
    read_error,
    read_headers,
)
from agent_magic.providers.chat.stream import ErrorInside, collect
from agent_magic.providers.responses import (
    NOT_OFFERED,
    SIMULATED_HEADER,
    UNPROCESSABLE,
    bounded,
    broken,
    compact_json,
    excerpt,
    fields_of,
    headers_of,
    hide,
    in_base64,
    no_connection,
    raised_by_transport,
    with_options,
)
from agent_magic.providers.transport import (
    Hidden,
    PerLoop,
    check_key,
    checked_url,
    http_client,
    timeout_of,
    without_credentials,
)
from agent_magic.record.prices import NO_LIST, ModelPrice, checked_prices, seller_at
from agent_magic.record.request import read_blocks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

    from httpx2 import AsyncClient, Response
    from httpx2 import Request as Sent

    from agent_magic.declare.content import Attachment
    from agent_magic.providers.base import Stream
    from agent_magic.providers.chat.errors import Told
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Message, Request

PATH = "/chat/completions"
VERSION = "/v1"
MOST_NAMED = 4
"""Of more models, only their number is named."""
MOST_LISTED = 1 << 24
"""Bytes; the longest known list has a million."""
HINT = "Give one such as http://127.0.0.1:8000/v1."


class Chat(Provider):
    """Sends requests to a server of the chat completions API: `am.Chat(base_url="http://127.0.0.1:8000/v1")`.

    Such servers are vLLM, llama.cpp, Ollama, LiteLLM and most gateways. It sends tools, pictures and the schemas of
    typed answers. It has no documents, citations, effort, cache marks, batches and token counts: a plan that needs one
    is refused by name before anything is sent. If a server ignores the schema of an answer, it is asked in words from
    then on.

    Args:
        base_url: The address before `/chat/completions`; `/v1` is added if it has no path.
        api_key: The key; default none, also if the environment has one.
        prices: Dollars per million tokens by model: a `TokenPrice`, or a pair of input and output. Prices of a run or
            session come first. Without any, costs are unknown unless the address is of a seller on the list.
        free: True if answers cost nothing, as on a machine of your own.
        models: Its models, to offer them and refuse others before anything is sent; default any.
        headers: More headers, such as a gateway's own key. Their values never appear in a message.
        endpoint: The name under which answers are stored, for a server with changing addresses; default the address.

    Raises:
        DeclarationError: The address, the key, a header or a price is invalid.
    """

    capabilities = Capabilities(tools=True, images=True, sampling=True, stop=True, extra=True, schemas=True)

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        free: bool = False,
        models: str | Iterable[str] = (),
        headers: Mapping[str, str] | None = None,
        endpoint: str | None = None,
    ) -> None:
        self._base_url = _base_of(base_url)
        check_key(api_key, "api_key")
        if free and prices:
            raise DeclarationError("Give either prices= or free=True.", hint="What is free has no price.")
        given = _checked_headers(headers)
        self._api_key, self._headers = Hidden(api_key), Hidden(compact_json(given))
        self.models: Sequence[str] = tuple(listed(models))
        self.prices, self.is_free = checked_prices(prices), bool(free)
        self.credentials = None if api_key is None and not given else Key()
        self._endpoint = endpoint
        self._open: PerLoop[AsyncClient] = PerLoop(
            functools.partial(http_client, self._base_url), lambda http: http.aclose()
        )
        self._dialects: dict[str, Dialect] = {}
        self._schemas = SchemaWatch()
        self._notes: list[str] = []
        self._tells_limits = True

    def __repr__(self) -> str:
        return f"Chat({self.endpoint!r})"

    @property
    def endpoint(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """Where requests go, without credentials."""
        return self._endpoint or without_credentials(self._base_url)

    @property
    def price_list(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """The seller on the list with this address; `none` for a self-hosted server."""
        return seller_at(self._base_url) or NO_LIST

    @property
    def account(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        """The key and the address as a hash."""
        named = f"{self._base_url}\0{self._api_key.reveal() or ''}\0{self._headers.reveal()}"
        return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()

    def lacks_model(self, model: str) -> bool:
        """Return whether there is certainly no such model: only if models were given.

        Args:
            model: Its name.
        """
        return bool(self.models) and model not in self.models

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Hold connections while a run lasts."""
        async with self._open.held():
            yield

    async def reach(self, request: Request) -> str:
        """Ask for the list of models, which costs nothing.

        Args:
            request: A request to the model of agents that name none.

        Raises:
            CallError: The server cannot be reached, or refuses the key.
        """
        headers = self._sent_headers()
        response = await self._begin(self._open.here.build_request("GET", f"{self._base_url}/models", headers=headers))
        try:
            body_ = [chunk async for chunk in bounded(response.aiter_bytes(), MOST_LISTED)]
            text = b"".join(body_).decode("utf-8", "replace")
        except raised_by_transport() as error:
            raise broken(error, self._secrets) from None
        finally:
            await response.aclose()
        status = response.status_code
        if not response.is_success and status not in NOT_OFFERED:
            raise self._error(request, response)(read_body(text), status)
        names = _models_in(text)
        if not names:
            return f"it answered ({status}), without a list of models"
        lacks = "" if request.model in names else f"; {request.model} is none of them"
        return f"it listed {', '.join(names) if len(names) <= MOST_NAMED else plural(len(names), 'model')}{lacks}"

    def settings(self) -> dict[str, Any]:
        """Return arguments that make the same provider in another process. Prices stay where costs are counted."""
        return {
            "base_url": self._base_url,
            "api_key": self._api_key.reveal(),
            "headers": self._given_headers,
            "models": list(self.models),
            "endpoint": self._endpoint,
        }

    def warm_up(self) -> None:
        """Import the transport, and read the certificates. Nothing is opened."""
        importlib.import_module("anthropic")  # its transport carries these requests, too
        http_client(self._base_url)

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Send one request and read its answer as a stream.

        If the server refuses a field by name, the request is sent once more without it; a refusal bills nothing.

        Args:
            request: The request.
            stream: Receives the response.

        Raises:
            CallError: The attempt failed; `partial` is the text received so far.
        """
        try:
            answer = None
            while answer is None:
                answer = await self._sent(request, stream)
        except CallError as error:
            error.partial = error.partial or stream.text
            error.args = (hide(str(error), self._secrets),)
            raise
        if self._schemas.hears(request, answer):
            self._note(f"does not hold {request.model!r} to the schema of an answer")
        if stream.readings == NO_READINGS and self._tells_limits and not stream.simulated:
            self._tells_limits = False
            self._notes.append(f"{self.endpoint} tells no rate limits: they are learned from refusals.")
        return answer

    async def _sent(self, request: Request, stream: Stream) -> Answer | None:
        content = compact_json(body(self._schemas.in_words(request), self._dialects.get(request.model, USUAL)))
        made = self._open.here.build_request(
            "POST",
            f"{self._base_url}{PATH}",
            content=content.encode("utf-8", "replace"),
            headers=self._sent_headers(),
            timeout=timeout_of(request.timeout_s),
        )
        response = await self._begin(made)
        headers, failed = headers_of(response), self._error(request, response)
        try:
            if response.is_success:
                stream.replied(response.status_code, read_headers(headers), simulated=SIMULATED_HEADER in headers)
                return await collect(response, headers, request, stream)
            told = read_body((await response.aread()).decode("utf-8", "replace"))
            if self._learns(request, response.status_code, told.message):
                return None
            stream.replied(response.status_code, read_headers(headers), simulated=SIMULATED_HEADER in headers)
            raise failed(told, response.status_code)
        except ErrorInside as error:
            raise failed(read_error(error.body), response.status_code) from None
        except raised_by_transport() as error:
            raise broken(error, self._secrets) from None
        finally:
            await response.aclose()

    async def _begin(self, made: Sent) -> Response:
        try:
            return await self._open.here.send(made, stream=True)
        except raised_by_transport() as error:
            import httpx2

            is_late = isinstance(error, httpx2.TimeoutException | TimeoutError)
            raise no_connection(error, made, self._secrets, check=CHECK, is_late=is_late) from None

    def _error(self, request: Request, response: Response) -> Callable[[Told, int], CallError]:
        return functools.partial(
            error_of,
            headers=headers_of(response),
            request=request,
            secrets=self._secrets,
            has_key=self.credentials is not None,
        )

    def _learns(self, request: Request, status: int, refusal: str) -> bool:
        """Learn another dialect from a refusal; return whether there is one to try."""
        before = self._dialects.get(request.model, USUAL)
        found = before.without(status, refusal, typed=bool(request.schema))
        if found is None:
            return False
        self._dialects[request.model] = found
        if before.schemas and not found.schemas and self._schemas.loosen(request.model):
            self._note(f"takes no schema of an answer for {request.model!r}")
        if before.counts and not found.counts:
            self._notes.append(f"{self.endpoint} does not count the tokens of a stream: costs may be unknown.")
        return True

    def _note(self, what: str) -> None:
        self._notes.append(f"{self.endpoint} {what} (response_format). It is asked for in the prompt from now on.")

    def take_notes(self) -> Sequence[str]:
        """Return messages about options the server ignores, each once."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def _sent_headers(self) -> dict[str, str]:
        key = self._api_key.reveal()
        own = {"content-type": "application/json", "accept": "text/event-stream", "user-agent": "agent-magic"}
        return own | ({"authorization": f"Bearer {key}"} if key else {}) | self._given_headers

    @property
    def _given_headers(self) -> dict[str, str]:
        return json.loads(self._headers.reveal() or "{}")

    @property
    def _secrets(self) -> tuple[str, ...]:
        given = self._given_headers.values()
        return tuple(filter(None, (self._api_key.reveal(), *given, *(one.partition(" ")[2] for one in given))))


def _models_in(text: str) -> list[str]:
    try:
        found: Any = json.loads(text)
        return [excerpt(one["id"]) for one in found["data"]]
    except (ValueError, RecursionError, TypeError, LookupError):
        return []


def _base_of(base_url: object) -> str:
    """Return the address to which a request's path is added, or raise `DeclarationError`."""
    url = checked_url(base_url, "base_url", HINT)
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        where = without_credentials(url).partition("?")[0].partition("#")[0]
        raise DeclarationError(f"base_url={where!r} has more behind its path.", hint=HINT)
    url = url.rstrip("/").removesuffix(PATH).rstrip("/")
    return url if urlsplit(url).path else f"{url}{VERSION}"


def _checked_headers(headers: object) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise must_be("headers", "a mapping of names to texts", type(headers).__name__)
    found: dict[str, str] = {}
    for name, value in cast("Mapping[Any, Any]", headers).items():
        if not (isinstance(name, str) and isinstance(value, str) and value.isascii() and value.isprintable() and value):
            hint = "A value is one line of plain characters."
            raise DeclarationError(f"The header {str(name)!r} cannot be sent.", hint=hint)
        found[name.lower()] = value
    return found


class Dialect(NamedTuple):
    """A server's dialect for a model, learned from refusals.

    A refusal bills nothing, so the request is sent once more without the field, as are all later ones for that model.
    Source: the vendors' pages on chat completions.
    """

    most: str = "max_tokens"
    counts: bool = True
    schemas: bool = True

    def without(self, status: int, refusal: str, *, typed: bool) -> Dialect | None:
        if status not in UNPROCESSABLE:
            return None
        if self.most == "max_tokens" and "max_completion_tokens" in refusal:
            return self._replace(most="max_completion_tokens")
        if self.counts and ("stream_options" in refusal or "include_usage" in refusal):
            return self._replace(counts=False)
        if typed and self.schemas and ("response_format" in refusal or "json_schema" in refusal):
            return self._replace(schemas=False)
        return None


USUAL = Dialect()


Json = dict[str, Any]


def body(request: Request, dialect: Dialect) -> Json:
    found: Json = {"model": request.model, dialect.most: request.max_tokens, "messages": [*_messages(request)]}
    found["stream"] = True
    if dialect.counts:
        found["stream_options"] = {"include_usage": True}
    if request.tools:
        found["tools"] = [_tool(one) for one in read_blocks(request.tools)]
        if request.tool_choice:
            found["tool_choice"] = request.tool_choice
    if request.schema and dialect.schemas:
        schema = read_blocks(request.schema)
        wanted = {"name": "answer", "schema": schema} | ({"strict": True} if _is_strict(schema) else {})
        found["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return with_options(found, request.sent, {}) if request.options else found


def _messages(request: Request) -> Iterator[Json]:
    system = "\n\n".join(sendable(text) for text in (request.context, request.system) if text)
    if system:
        yield {"role": "system", "content": system}
    parts = blocks_of(request.prompt, request.attachments, request.shared) if request.attachments else []
    content = [_text(one) if isinstance(one, str) else _picture(one.media_type, one) for one in parts]
    yield {"role": "user", "content": content or request.prompt}
    files = {one.sha256: one for one in request.returned}
    for message in request.messages:
        yield from _assistant(message) if message.role == "assistant" else _user(message, files)


def _assistant(message: Message) -> Iterator[Json]:
    """Yield a message of the model: its text, and its calls with the digits of their numbers."""
    blocks = _blocks(decoded(message.content))
    text = "".join(one.get("text", "") for one in blocks if one.get("type") == "text")
    calls = [
        {
            "id": str(one["id"]),
            "type": "function",
            "function": {"name": str(one["name"]), "arguments": written(one.get("input") or {})},
        }
        for one in blocks
        if one.get("type") == "tool_use"
    ]
    yield {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})


def _user(message: Message, files: Mapping[str, Attachment]) -> Iterator[Json]:
    """Yield the results of calls, a message each, then the user's message, with pictures of results."""
    said: list[Json] = []
    for block in _blocks(read_blocks(message.content)):
        if block.get("type") != "tool_result":
            said += _part(block, files)
            continue
        inside = block.get("content") or ""
        parts = _blocks(inside) if isinstance(inside, list) else [_text(str(inside))]
        texts = [str(one.get("text", "")) for one in parts if one.get("type") == "text"]
        pictures = [part for one in parts if one.get("type") != "text" for part in _part(one, files)]
        note = ["(its pictures follow)"] if pictures else []
        yield {"role": "tool", "tool_call_id": str(block.get("tool_use_id")), "content": "\n".join([*texts, *note])}
        said += pictures
    if said:
        plain = all(one["type"] == "text" for one in said)
        yield {"role": "user", "content": "\n\n".join(one["text"] for one in said) if plain else said}


def _blocks(content: Any) -> list[Json]:
    given = cast("list[Any]", content) if isinstance(content, list) else [{"type": "text", "text": str(content)}]
    return [cast("Json", one) for one in given if isinstance(one, dict)]


def _part(block: Json, files: Mapping[str, Attachment]) -> list[Json]:
    if block.get("type") == "text":
        return [_text(block["text"])]
    if block.get("type") == "image":
        source = block["source"]
        return [_picture(source["media_type"], files[source["data"]])]
    return []


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _picture(media_type: str, one: Attachment) -> Json:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{in_base64(one)}"}}


def _tool(tool: Json) -> Json:
    strict = {"strict": True} if tool.get("strict") and _is_strict(tool["input_schema"]) else {}
    told = {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["input_schema"]}
    return {"type": "function", "function": told | strict}


def _is_strict(schema: Any) -> bool:
    """Return whether a schema suits `strict`: every object closed, and all fields required."""
    if isinstance(schema, list):
        return all(map(_is_strict, cast("list[Any]", schema)))
    if not isinstance(schema, dict):
        return True
    fields = cast("Json", schema)
    inside: Any = fields.get("properties")
    if fields.get("type") == "object" or isinstance(inside, dict):
        named = fields_of(fields.get("properties"))
        if fields.get("additionalProperties") is not False or {*named} != {*fields.get("required", ())}:
            return False
        return all(map(_is_strict, named.values()))
    return all(map(_is_strict, fields.values()))
