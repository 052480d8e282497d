"""The bodies of chat completions requests.

A `tool` message answers each call and can hold text only, so a picture that a tool returned follows in a user's
message. Source: the vendors' pages on chat completions.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.answers.lenient import decoded, written
from agent_magic.declare.content import blocks_of
from agent_magic.declare.values import sendable
from agent_magic.errors import DeclarationError
from agent_magic.providers.http.responses import with_options
from agent_magic.record.request import read_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent_magic.declare.content import Attachment
    from agent_magic.record.request import Message, Request


UNPROCESSABLE = frozenset({400, 422, 501})


class Dialect(NamedTuple):
    """A server's dialect for a model, learned from refusals.

    A refusal bills nothing, so the request is sent once more without the field (the token cap's name, `stream_options`,
    `json_schema`), as are all later ones for that model. Source: the vendors' pages on chat completions.
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
    """Raise `DeclarationError` if a recording left out its bytes."""
    if not one.data:
        hint = "Run the cell that reads it, and declare its agent again."
        raise DeclarationError(f"The bytes of {one.label} are not here.", hint=hint)
    return {
        "type": "image_url",
        "image_url": {"url": f"data:{media_type};base64,{base64.b64encode(one.data).decode()}"},
    }


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
        named = cast("Json", inside) if isinstance(inside, dict) else {}
        if fields.get("additionalProperties") is not False or {*named} != {*fields.get("required", ())}:
            return False
        return all(map(_is_strict, named.values()))
    return all(map(_is_strict, fields.values()))
