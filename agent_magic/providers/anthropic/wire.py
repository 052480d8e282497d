"""Requests of the Messages API: their bodies, and how they are sent.

A cached prefix is tools, then system, then messages, so the shared context comes before the agent's own text. A mark
at the top level moves with the end of a conversation. Source: the vendor's pages on the Messages API and on prompt
caching.

The SDK's `messages.create` copies a body piece by piece and looks for tracers: a sixth of the cost of a turn
(2026-11-25). So if the client is ours and nothing watches the method, the body is written as text and sent through the
client's `post`.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.content import blocks_of
from agent_magic.errors import DeclarationError
from agent_magic.providers.anthropic.models import server_tool
from agent_magic.providers.anthropic.stream import named_stream, plain
from agent_magic.providers.http.responses import with_options

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream

    from agent_magic.declare.content import Attachment
    from agent_magic.record.request import Request


PATH = "/v1/messages"
UNTRACED = frozenset({"ProxyTracerProvider", "NoOpTracerProvider"})
"""OpenTelemetry providers that record nothing."""
CALLED = {"stop": "stop_sequences"}
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


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
        return _JSON.encode(body(request, basic_tools=basic_tools) | {"stream": True}).encode()
    found = body(request._replace(messages=()), basic_tools=basic_tools)
    first = found.pop("messages")[0]
    parts = [_JSON.encode(first), *(f'{{"role":"{one.role}","content":{one.content}}}' for one in said)]
    return f'{_JSON.encode(found)[:-1]},"messages":[{",".join(parts)}],"stream":true}}'.encode()


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
    """Raise `DeclarationError` if a recording left out its bytes."""
    if not one.data:
        hint = "Run the cell that reads it, and declare its agent again."
        raise DeclarationError(f"The bytes of {one.label} are not here.", hint=hint)
    return one.text or base64.b64encode(one.data).decode()


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
