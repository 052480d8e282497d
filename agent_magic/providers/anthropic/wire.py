"""Bodies of Messages API requests.

Source: the vendor's pages on the Messages API and on prompt caching. A cached prefix is tools, then system, then
messages. So the shared context comes first in the system prompt, before the agent's own text; shared pictures and
documents come first in the messages. A mark at the top level moves with the end of a conversation: each turn reads the
entry of the last.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.content import blocks_of
from agent_magic.errors import DeclarationError
from agent_magic.providers.anthropic.models import server_tool
from agent_magic.providers.http.bodies import with_options

if TYPE_CHECKING:
    from agent_magic.declare.content import Attachment
    from agent_magic.record.request import Request


CALLED = {"stop": "stop_sequences"}
"""The API's names of pass-through options, if they differ."""
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def body(request: Request, *, basic_tools: bool = False) -> dict[str, Any]:
    """Return a request as the API's body, with cache marks; with `basic_tools`, first versions of the API's tools."""
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
    """Return `body` as streaming JSON, with messages in their stored form.

    Args:
        request: The request.
        basic_tools: See `body`.
    """
    said = request.messages
    if request.returned or not all(one.content[:1] == "[" for one in said):  # they have to be taken apart
        return _JSON.encode(body(request, basic_tools=basic_tools) | {"stream": True}).encode()
    found = body(request._replace(messages=()), basic_tools=basic_tools)
    first = found.pop("messages")[0]
    parts = [_JSON.encode(first), *(f'{{"role":"{one.role}","content":{one.content}}}' for one in said)]
    return f'{_JSON.encode(found)[:-1]},"messages":[{",".join(parts)}],"stream":true}}'.encode()


def _fill(messages: list[dict[str, Any]], request: Request) -> None:
    """Put the bytes of what tools returned in the place of its sha256."""
    known = {one.sha256: one for one in request.returned}
    sent = [one for message in messages[1:] if message["role"] == "user" for one in message["content"]]
    inside = (one.get("content") if one["type"] == "tool_result" else [one] for one in sent)
    for block in (one for content in inside if isinstance(content, list) for one in cast("list[Any]", content)):
        if "source" in block:
            block["source"]["data"] = _sent(known[block["source"]["data"]])
            if request.cite and block["type"] == "document":  # on for all documents or for none
                block["citations"] = {"enabled": True}


def _sent(one: Attachment) -> str:
    """Write the bytes of a picture or document for the API; a `DeclarationError` if a recording left them out."""
    if not one.data:
        hint = "Run the cell that reads it, and declare its agent again."
        raise DeclarationError(f"The bytes of {one.label} are not here.", hint=hint)
    return one.text or base64.b64encode(one.data).decode()
