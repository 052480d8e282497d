"""The chat completions API, translated to and from message requests.

So latency, limits, tools, schemas, directives and faults are those of `/v1/messages`. Source: the vendors' pages on
chat completions.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from agent_magic.simulator.api import (
    CHAT,
    ApiError,
    Json,
    as_list,
    as_number,
    as_object,
    as_text,
    chat_error,
    invalid,
)
from agent_magic.simulator.models import MODELS
from agent_magic.simulator.response import Frame, Response, encode, whole
from agent_magic.simulator.service import Entry, Exchange, Service

PATH: Final = f"/v1{CHAT}"
STAND_IN: Final = "claude-haiku-5-5"
"""It lends an unknown name its speed and limits."""
FIELDS: Final = frozenset(
    "model messages max_tokens max_completion_tokens stream stream_options tools tool_choice parallel_tool_calls "
    "response_format stop temperature top_p top_k frequency_penalty presence_penalty logit_bias seed n user metadata "
    "store service_tier reasoning_effort verbosity prompt_cache_key safety_identifier".split()
)
RANGES: Final = {"temperature": (0, 2), "top_p": (0, 1), "frequency_penalty": (-2, 2), "presence_penalty": (-2, 2)}
ANY_OBJECT: Final[Json] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
"""The form of an answer to `json_object`, which asks for none."""
REASONS: Final = {"max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
"""`finish_reason` by `stop_reason`; `stop` for all others."""
CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


def exchange(service: Service, body: bytes, entry: Entry, now_s: float) -> Exchange:
    asked = _object(body)
    found = service.exchange(encode(_message_request(asked)), entry, now_s)
    return replace(found, response=_Translation(asked).response(found.response))


def models(name: str) -> Exchange:
    if name and name not in MODELS:
        raise ApiError(404, f"The model {name!r} does not exist.")
    found = [{"id": one, "object": "model", "created": 0, "owned_by": "simulator"} for one in MODELS]
    every: Json = {"object": "list", "data": found}
    return Exchange(whole(200, encode(next((one for one in found if one["id"] == name), every))))


def _object(body: bytes) -> Json:
    try:
        asked = as_object(json.loads(body))
    except (ValueError, RecursionError):
        asked = None
    if asked is None:
        raise invalid("We could not parse the JSON body of your request.")
    if unknown := sorted(asked.keys() - FIELDS):
        raise invalid(f"Unrecognized request argument supplied: {unknown[0]}")
    if not as_text(asked.get("model")):
        raise invalid("you must provide a model parameter")
    for name, (low, high) in RANGES.items():
        number = 0 if asked.get(name) is None else as_number(asked[name])
        if number is None or not low <= number <= high:
            raise invalid(f"Invalid {name!r}: expected a number from {low} to {high}.")
    return asked


def _message_request(asked: Json) -> Json:
    """Translate to `/v1/messages`, without sampling, which no mock answer uses."""
    system, messages = _messages(as_list(asked.get("messages")) or [])
    found: Json = {
        "model": asked["model"] if asked["model"] in MODELS else STAND_IN,
        "max_tokens": asked.get("max_completion_tokens") or asked.get("max_tokens") or 1_000,
        "messages": messages,
        "stream": bool(asked.get("stream")),
    }
    if system:
        found["system"] = system
    if stop := asked.get("stop"):
        found["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if tools := as_list(asked.get("tools")):
        found["tools"] = [_tool(as_object(one) or {}) for one in tools]
    choice = asked.get("tool_choice")
    if named := as_object((as_object(choice) or {}).get("function")):
        found["tool_choice"] = {"type": "tool", "name": named.get("name")}
    elif choice is not None:
        found["tool_choice"] = {"type": CHOICES.get(str(choice), str(choice))}
    if asked.get("parallel_tool_calls") is False and choice != "none":
        found["tool_choice"] = found.get("tool_choice", {"type": "auto"}) | {"disable_parallel_tool_use": True}
    wanted = as_object(asked.get("response_format")) or {}
    if wanted.get("type") in {"json_schema", "json_object"}:
        given = (as_object(wanted.get("json_schema")) or {}).get("schema")
        schema = ANY_OBJECT if wanted["type"] == "json_object" else given
        found["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return found


def _tool(tool: Json) -> Json:
    told = as_object(tool.get("function")) or {}
    schema: Json = as_object(told.get("parameters")) or {"type": "object", "properties": {}}
    found: Json = {"name": told.get("name"), "input_schema": schema}
    return found | ({"description": told["description"]} if told.get("description") else {})


def _messages(given: list[Any]) -> tuple[str, list[Json]]:
    """Return messages; results of tools and the texts after them are one."""
    system: list[str] = []
    found: list[Json] = []
    for index, each in enumerate(given):
        message = as_object(each)
        if message is None:
            raise invalid(f"Invalid type for 'messages[{index}]': expected an object.")
        role, content = message.get("role"), message.get("content")
        if role in {"system", "developer"}:
            system += [text for part in _parts(content) if (text := as_text(part.get("text")))]
            continue
        parts = _parts(content)
        if role == "assistant":
            parts += [_call(as_object(one) or {}) for one in as_list(message.get("tool_calls")) or []]
        elif role == "tool":
            role = "user"
            parts = [{"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": parts or "(empty)"}]
        if found and found[-1]["role"] == role:
            found[-1]["content"] += parts
        else:
            found.append({"role": role, "content": parts})
    return "\n\n".join(system), found


def _parts(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_part(as_object(one) or {}) for one in as_list(content) or []]


def _part(part: Json) -> Json:
    url = as_text((as_object(part.get("image_url")) or {}).get("url")) or ""
    if part.get("type") != "image_url":
        return {"type": "text", "text": part.get("text")}
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _call(call: Json) -> Json:
    told = as_object(call.get("function")) or {}
    try:
        arguments = as_object(json.loads(as_text(told.get("arguments")) or "{}"))
    except ValueError:
        arguments = None
    if arguments is None:
        raise invalid("Invalid 'tool_calls': arguments must be a JSON object.")
    return {"type": "tool_use", "id": call.get("id"), "name": told.get("name"), "input": arguments}


class _Translation:
    def __init__(self, asked: Json) -> None:
        self._counts = bool((as_object(asked.get("stream_options")) or {}).get("include_usage"))
        self._model, self._id = asked.get("model", ""), "chatcmpl-simulated"
        self._calls: list[int] = []
        self._read = self._cached = 0

    def response(self, planned: Response) -> Response:
        frames = tuple(Frame(one.at_s, self._data(one.data), one.tokens) for one in planned.frames)
        length = None if planned.length is None else sum(len(one.data) for one in frames)
        return replace(planned, frames=frames, length=length)

    def _data(self, data: bytes) -> bytes:
        """Rewrite events, or one JSON text. Damage by a fault stays."""
        found: list[bytes] = []
        for each in filter(None, data.split(b"\n\n")):
            is_event = each.startswith(b"event:")
            text = each.partition(b"\ndata: ")[2] if is_event else each
            try:
                told = as_object(json.loads(text)) or {}
            except ValueError:
                found.append(each)
                continue
            if told.get("type") == "error":
                error = chat_error(told["error"])
                found.append(_line(error) if is_event else encode(error))
            else:
                found += self._event(told) if is_event else [encode(self._whole(told))]
        return b"".join(found)

    def _event(self, event: Json) -> list[bytes]:
        kind = event.get("type")
        if kind == "message_start":
            self._begin(event["message"])
            return [self._chunk({"role": "assistant", "content": ""})]
        if kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            call = {"index": len(self._calls), **_called(event["content_block"], "")}
            self._calls.append(event["index"])
            return [self._chunk({"tool_calls": [call]})]
        if kind == "content_block_delta":
            return self._delta(event)
        if kind == "message_delta":
            usage: Json = {**self._head(), "choices": [], "usage": self._usage(event["usage"])}
            reason = REASONS.get(event["delta"]["stop_reason"], "stop")
            return [self._chunk({}, reason), *([_line(usage)] if self._counts else [])]
        return [b"data: [DONE]\n\n"] if kind == "message_stop" else []

    def _delta(self, event: Json) -> list[bytes]:
        told = event["delta"]
        if told["type"] == "text_delta":
            return [self._chunk({"content": told["text"]})]
        if told["type"] == "thinking_delta":
            return [self._chunk({"reasoning_content": told["thinking"]})]
        if told["type"] == "input_json_delta" and event["index"] in self._calls:
            call = {"index": self._calls.index(event["index"]), "function": {"arguments": told["partial_json"]}}
            return [self._chunk({"tool_calls": [call]})]
        return []

    def _begin(self, message: Json) -> None:
        usage, self._id = message["usage"], f"chatcmpl-{message['id']}"
        self._cached = usage.get("cache_read_input_tokens") or 0
        self._read = usage["input_tokens"] + (usage.get("cache_creation_input_tokens") or 0) + self._cached

    def _whole(self, message: Json) -> Json:
        self._begin(message)
        blocks = message["content"]
        calls = [_called(one, json.dumps(one["input"])) for one in blocks if one["type"] == "tool_use"]
        text = "".join(one["text"] for one in blocks if one["type"] == "text")
        said: Json = {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})
        choice = {"index": 0, "message": said, "finish_reason": REASONS.get(message["stop_reason"], "stop")}
        head = self._head() | {"object": "chat.completion"}
        return {**head, "choices": [choice], "usage": self._usage(message["usage"])}

    def _head(self) -> Json:
        return {"id": self._id, "object": "chat.completion.chunk", "created": 0, "model": self._model}

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        return _line({**self._head(), "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    def _usage(self, usage: Json) -> Json:
        written = usage["output_tokens"]
        return {
            "prompt_tokens": self._read,
            "completion_tokens": written,
            "total_tokens": self._read + written,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }


def _called(block: Json, arguments: str) -> Json:
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": arguments}}


def _line(value: Json) -> bytes:
    return b"data: " + encode(value) + b"\n\n"
