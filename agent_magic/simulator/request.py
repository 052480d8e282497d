"""Parsing and validation of a request. The first error is returned, worded as by the API.

The prompt is a list of segments in cache order (tools, system, messages), each with its tokens.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from agent_magic.simulator import tokens
from agent_magic.simulator.errors import ApiError, invalid
from agent_magic.simulator.json_types import Json, as_flag, as_int, as_list, as_object, as_text
from agent_magic.simulator.models import MODELS, Model
from agent_magic.simulator.schemas import check_schema

REQUEST_OVERHEAD = 3
MESSAGE_OVERHEAD = 4
FORMAT_OVERHEAD = 40
"""Of the instruction that comes with a schema. The API's own length is not documented."""
MEDIA_TOKENS = 1500
"""The tokens of a picture or document of unknown size."""
TTL_S = {"5m": 300, "1h": 3600}
ROLES = ("user", "assistant", "system")
SAMPLING = ("temperature", "top_p", "top_k")
CHOICES = ("auto", "any", "tool", "none")
MAX_MESSAGES = 100_000
MAX_BREAKPOINTS = 4
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Segment:
    """One block of the prompt.

    Attributes:
        label: Its position, such as `system` or `user:text`; part of the identity of a prefix.
        text: Its content, without `cache_control`.
        tokens: Its length, with its share of the overhead.
        ttl_s: The lifetime of the cache entry that ends here, or `None`.
    """

    label: str
    text: str
    tokens: int
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A valid request.

    Attributes:
        model: The model.
        segments: Tools, system and messages, in prefix order.
        max_tokens: The most tokens of the response; `None` for `count_tokens`.
        stream: Whether to respond with a stream.
        stop_sequences: The stop sequences.
        system: The text of the system prompt.
        prompt: The text of the last user message with more than tool results.
        earlier: The text of the user messages before that.
        schema: The JSON schema of the response, or `None`.
        may_call: Whether tools are offered and no tool result follows the prompt.
    """

    model: Model
    segments: tuple[Segment, ...]
    max_tokens: int | None = None
    stream: bool = False
    stop_sequences: tuple[str, ...] = ()
    system: str = ""
    prompt: str = ""
    earlier: str = ""
    schema: Json | None = None
    may_call: bool = False

    @property
    def input_tokens(self) -> int:
        """The tokens of the whole prompt, cached or not."""
        return sum(segment.tokens for segment in self.segments)

    def prefixes(self) -> Iterator[tuple[Segment, int, bytes]]:
        """Yield each segment, with the tokens and a digest of the prompt up to its end."""
        state = hashlib.blake2b(self.model.id.encode(), digest_size=16)
        total = 0
        for segment in self.segments:
            for part in (segment.label, segment.text):
                data = part.encode("utf-8", "surrogatepass")
                state.update(len(data).to_bytes(8, "big"))
                state.update(data)
            total += segment.tokens
            yield segment, total, state.digest()

    def digest(self) -> bytes:
        """Return a digest of model and prompt, without `max_tokens`, `stream` and cache marks."""
        return deque(self.prefixes(), maxlen=1)[0][2]


def parse(data: bytes, *, counting: bool = False) -> Request:
    """Parse and validate a request.

    Args:
        data: The body.
        counting: Whether it is for `count_tokens`, which needs no `max_tokens`.

    Raises:
        ApiError: The request is invalid.
    """
    body = _decoded(data)
    model_id = _required(body, "model", as_text, "a valid string")
    max_tokens = None if counting else _required(body, "max_tokens", as_int, "a valid integer")
    if max_tokens is not None and max_tokens < 0:
        raise invalid("max_tokens: Input should be greater than or equal to 0")
    messages = _messages(body)
    if body.get("system"):
        _check_blocks(_optional(body, "system", _text_or_list, "a valid string or a list of text blocks"), "system")
    tools = _tools(body)
    if (model := MODELS.get(model_id)) is None:
        raise ApiError(404, f"model: {model_id}")
    _check_model(body, model, messages, max_tokens)
    choice = _tool_choice(body, model, {tool["name"] for tool in tools})
    asking = max((place for place, one in enumerate(messages) if _asks(one)), default=None)
    request = Request(
        model,
        _segments(body, tools, messages, model),
        max_tokens=max_tokens,
        stream=_optional(body, "stream", as_flag, "a valid boolean") or False,
        stop_sequences=_stop_sequences(body),
        system=text_of(body.get("system")),
        prompt="" if asking is None else text_of(messages[asking]["content"]),
        earlier="\n\n".join(text_of(one["content"]) for one in messages[:asking] if one["role"] == "user"),
        schema=_schema(body),
        may_call=bool(tools) and choice != "none" and asking == len(messages) - 1,
    )
    if (marks := sum(segment.ttl_s is not None for segment in request.segments)) > MAX_BREAKPOINTS:
        raise invalid(f"At most {MAX_BREAKPOINTS} blocks with cache_control may be provided; found {marks}.")
    if request.input_tokens > model.context:
        raise invalid(f"prompt is too long: {request.input_tokens} tokens > {model.context} maximum")
    return request


def text_of(content: object) -> str:
    """Return the text of a message or a tool result, its blocks joined by blank lines."""
    if isinstance(content, str):
        return content
    return "\n\n".join(filter(None, map(_block_text, _blocks(content))))


def _block_text(block: Json) -> str:
    if block.get("type") == "text":
        return str(block.get("text", ""))
    return text_of(block.get("content")) if block.get("type") == "tool_result" else ""


def _blocks(content: object) -> list[Json]:
    return [block for each in as_list(content) or () if (block := as_object(each))]


def _asks(message: Json) -> bool:
    """Return whether a message is a user message with more than tool results."""
    blocks = _blocks(message["content"])
    return message["role"] == "user" and (not blocks or any(block["type"] != "tool_result" for block in blocks))


# Validation.


def _decoded(data: bytes) -> Json:
    try:
        body = as_object(json.loads(data))
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are both ValueErrors.
        raise invalid(f"The request body is not valid JSON: {error}") from None
    if body is None:
        raise invalid("The request body must be a JSON object")
    return body


def _optional(body: Json, key: str, narrow: Callable[[object], _Value | None], wanted: str) -> _Value | None:
    """Return a field narrowed to its type, or `None` if it is missing."""
    if (value := body.get(key)) is None:
        return None
    if (narrowed := narrow(value)) is None:
        raise invalid(f"{key}: Input should be {wanted}")
    return narrowed


def _required(body: Json, key: str, narrow: Callable[[object], _Value | None], wanted: str) -> _Value:
    if (value := _optional(body, key, narrow, wanted)) is None:
        raise invalid(f"{key}: Field required")
    return value


def _text_or_list(value: object) -> str | list[object] | None:
    return as_text(value) or as_list(value)


def _messages(body: Json) -> list[Json]:
    given = _required(body, "messages", as_list, "a valid list")
    if not given:
        raise invalid("messages: at least one message is required")
    if len(given) > MAX_MESSAGES:
        raise invalid(f"messages: at most {MAX_MESSAGES} messages are allowed")
    messages = [_message(each, f"messages.{place}") for place, each in enumerate(given)]
    _check_results(messages)
    return messages


def _message(value: object, where: str) -> Json:
    message = as_object(value)
    if message is None:
        raise invalid(f"{where}: Input should be an object")
    if message.get("role") not in ROLES:
        raise invalid(f"{where}.role: Input should be 'user', 'assistant' or 'system'")
    if "content" not in message:
        raise invalid(f"{where}.content: Field required")
    _check_blocks(message["content"], f"{where}.content")
    return message


def _check_blocks(content: object, where: str) -> None:
    if isinstance(content, str):
        if not content:
            raise invalid(f"{where}: text content must be non-empty")
        return
    if not (blocks := as_list(content)):
        raise invalid(f"{where}: Input should be a valid string or a non-empty list of blocks")
    for place, each in enumerate(blocks):
        block = as_object(each)
        if block is None or not isinstance(block.get("type"), str):
            raise invalid(f"{where}.{place}.type: Field required")
        if block["type"] == "text" and not (isinstance(block.get("text"), str) and block["text"]):
            raise invalid(f"{where}.{place}.text: text content blocks must be non-empty strings")


def _check_results(messages: list[Json]) -> None:
    """Reject tool calls without a result in the next message, and results without a call in the previous one."""
    calls: list[object] = []
    for place, message in enumerate([*messages, {"content": ()}]):
        blocks = _blocks(message["content"])
        results = [block.get("tool_use_id") for block in blocks if block["type"] == "tool_result"]
        if missing := [str(call) for call in calls if call not in results]:
            raise invalid(
                f"messages.{place - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}"
            )
        if unknown := [str(result) for result in results if result not in calls]:
            raise invalid(f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {unknown[0]}")
        calls = [block.get("id") for block in blocks if block["type"] == "tool_use"]


def _tools(body: Json) -> list[Json]:
    tools: list[Json] = []
    for place, each in enumerate(_optional(body, "tools", as_list, "a valid list") or ()):
        tool, where = as_object(each), f"tools.{place}"
        if tool is None or not isinstance(tool.get("name"), str):
            raise invalid(f"{where}.name: Field required")
        if not _TOOL_NAME.fullmatch(tool["name"]):
            raise invalid(f"{where}.name: String should match pattern '^{_TOOL_NAME.pattern}$'")
        if any(tool["name"] == other["name"] for other in tools):
            raise invalid("tools: Tool names must be unique.")
        if tool.get("type") in (None, "custom") and (as_object(tool.get("input_schema")) or {}).get("type") != "object":
            raise invalid(f"{where}.input_schema.type: Input should be 'object'")
        tools.append(tool)
    return tools


def _tool_choice(body: Json, model: Model, names: set[str]) -> str:
    """Return the type of the tool choice."""
    choice = _optional(body, "tool_choice", as_object, "an object") or {"type": "auto"}
    kind = choice.get("type")
    if kind not in CHOICES:
        raise invalid(f"tool_choice.type: Input should be one of {', '.join(CHOICES)}")
    if kind in ("any", "tool") and not model.forced_tools:
        raise invalid(f"tool_choice: {kind!r} is not supported by {model.id}; use 'auto' or output_config.format")
    if kind == "tool" and choice.get("name") not in names:
        raise invalid(f"tool_choice.name: tool {choice.get('name')!r} not found in provided tools")
    return kind


def _check_model(body: Json, model: Model, messages: list[Json], max_tokens: int | None) -> None:
    """Refuse what this model does not support."""
    if max_tokens is not None and max_tokens > model.max_output:
        raise invalid(f"max_tokens: {max_tokens} > {model.max_output}, which is the maximum for {model.id}")
    for key in SAMPLING:
        if body.get(key) is not None and not model.sampling:
            raise invalid(f"{key}: this parameter is not supported by {model.id}; leave it out")
    if messages[-1]["role"] == "assistant" and _schema(body) is not None:
        raise invalid("output_config.format: cannot be combined with an assistant prefill")
    if messages[-1]["role"] == "assistant" and not model.prefill and not _is_paused(messages[-1]):
        raise invalid(f"messages: {model.id} takes no assistant prefill; the last message must be a user message")
    if body.get("thread") is not None:
        raise invalid("thread: message threads are not simulated", code="thread_unsupported_request")


def _is_paused(message: Json) -> bool:
    """Tell whether a message is a paused turn: it ends with a server tool's call or result."""
    kind = str((_blocks(message["content"]) or [{}])[-1].get("type"))
    return kind == "server_tool_use" or kind.endswith("_tool_result")


def _stop_sequences(body: Json) -> tuple[str, ...]:
    given = _optional(body, "stop_sequences", as_list, "a list of strings") or []
    if not all(isinstance(each, str) for each in given):
        raise invalid("stop_sequences: Input should be a list of strings")
    if any(not each.strip() for each in given):
        raise invalid("stop_sequences: each stop sequence must contain non-whitespace")
    return tuple(given)


def _schema(body: Json) -> Json | None:
    wanted = as_object((as_object(body.get("output_config")) or {}).get("format"))
    if wanted is None:
        return None
    schema = as_object(wanted.get("schema"))
    if wanted.get("type") != "json_schema" or schema is None:
        raise invalid("output_config.format: Input should be {'type': 'json_schema', 'schema': {...}}")
    check_schema(schema)
    return schema


# Segments and their tokens.


def _segments(body: Json, tools: Iterable[Json], messages: Iterable[Json], model: Model) -> tuple[Segment, ...]:
    """Split a body into its segments, the top-level `cache_control` applied to the last one."""
    found = [Segment("tool", text := _canonical(tool), tokens.count(text), _ttl_s(tool)) for tool in tools]
    if wanted := as_object((as_object(body.get("output_config")) or {}).get("format")):
        # The API turns it into an instruction of its own. Another format empties the cache, so it stands in front.
        text = _canonical(wanted)
        found.append(Segment("format", text, FORMAT_OVERHEAD + tokens.count(text)))
    if isinstance(system := body.get("system") or (), str):
        found.append(Segment("system", system, tokens.count(system)))
    else:
        found += [_segment("system", block, model) for block in _blocks(system)]
    for message in messages:
        role, content, first = message["role"], message["content"], len(found)
        if isinstance(content, str):
            found.append(Segment(f"{role}:text", content, tokens.count(content)))
        else:
            found += [_segment(role, block, model) for block in _blocks(content)]
        found[first] = replace(found[first], tokens=found[first].tokens + MESSAGE_OVERHEAD)
    found[0] = replace(found[0], tokens=found[0].tokens + REQUEST_OVERHEAD)
    found[-1] = replace(found[-1], ttl_s=found[-1].ttl_s or _ttl_s(body))
    return tuple(found)


def _segment(role: str, block: Json, model: Model) -> Segment:
    text = str(block["text"]) if block["type"] == "text" else _canonical(block)
    return Segment(f"{role}:{block['type']}", text, _tokens_of(block, model), _ttl_s(block))


def _tokens_of(block: Json, model: Model) -> int:
    kind, source = block.get("type"), as_object(block.get("source")) or {}
    if kind == "text":
        return tokens.count(str(block.get("text", "")))
    if kind == "image":
        size = tokens.png_size(str(source.get("data", ""))) if source.get("type") == "base64" else None
        return tokens.of_picture(size, *model.picture) if size else MEDIA_TOKENS
    if kind == "document":
        return tokens.count(str(source.get("data", ""))) if source.get("type") == "text" else MEDIA_TOKENS
    nested = _blocks(block.get("content")) if kind == "tool_result" else []
    rest = {key: value for key, value in block.items() if not (nested and key == "content")}
    return tokens.count(_canonical(rest)) + sum(_tokens_of(each, model) for each in nested)


def _ttl_s(block: Json) -> int | None:
    control = as_object(block.get("cache_control"))
    return TTL_S.get(str(control.get("ttl") or "5m"), TTL_S["5m"]) if control else None


def _canonical(block: Json) -> str:
    return json.dumps({key: value for key, value in block.items() if key != "cache_control"}, separators=(",", ":"))
