"""Parsing and validation of a request and its conversation. The first error is returned, worded as by the API.

The prompt is a list of segments in cache order (tools, system, messages), each with its tokens. Source: the vendor's
pages on handling tool calls, parallel tool use, server tools and citations.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agent_magic.simulator.api import (
    ApiError,
    Json,
    as_flag,
    as_int,
    as_list,
    as_object,
    as_text,
    count_tokens,
    invalid,
)
from agent_magic.simulator.content import (
    THINKING_BLOCKS,
    USUAL,
    Chain,
    Thinking,
    block_of,
    blocks_of,
    check_media,
    check_start,
    parse_thinking,
    source_of,
    tokens_of,
)
from agent_magic.simulator.models import MODELS, Model
from agent_magic.simulator.tools import NO_TOOLS, Tools, parse_tools

REQUEST_OVERHEAD = 3
MESSAGE_OVERHEAD = 4
FORMAT_OVERHEAD = 40
"""For the instruction that comes with a schema. The API's number is undocumented."""
TTL_S = {"5m": 300, "1h": 3600}
SAMPLING = ("temperature", "top_p", "top_k")
COUNTED = frozenset(
    "model messages system tools tool_choice thinking output_config cache_control speed user_profile_id workspace_id "
    "billing_policy compaction context_management mcp_servers output_format".split()
)
"""Source: parameters of `messages.count_tokens` in anthropic 2.14, and of beta."""
_MORE = (
    "max_tokens stream stop_sequences metadata container diagnostics inference_geo service_tier fallback_credit_token "
    "fallbacks thread"
)
FIELDS = COUNTED | frozenset((*_MORE.split(), *SAMPLING))
"""Source: parameters of `messages.create`. The models refuse sampling."""
MAX_BREAKPOINTS = 4
UNBOUND = ("format", "settings")
"""These may change without invalidating a thinking block."""
_encode = json.JSONEncoder(separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Segment:
    """One block of the prompt; `tokens` include its share of the overhead.

    Its `label` is part of the identity of a prefix. `settings` holds what empties the cache of the messages when
    changed: tool choice, thinking, effort, presence of pictures.
    """

    label: str
    text: str
    tokens: int
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool result of the last message."""

    name: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A valid request.

    Attributes:
        max_tokens: `None` for `count_tokens`.
        prompt: The text of the last user message with more than tool results.
        earlier: The text of earlier user messages.
        turn: 1 for the response to the prompt, 2 after its first tool results, and so on.
        resumed: True if the last message is an assistant message to continue.
        called: Names of the tools called since the prompt.
        open_calls: Server tool calls without a result.
        citable: Documents and search results to cite.
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
    tools: Tools = NO_TOOLS
    thinking: Thinking = USUAL
    turn: int = 1
    resumed: bool = False
    called: tuple[str, ...] = ()
    results: tuple[ToolResult, ...] = ()
    open_calls: tuple[Json, ...] = ()
    citable: tuple[Json, ...] = ()
    chain: Chain | None = None

    @property
    def input_tokens(self) -> int:
        return sum(segment.tokens for segment in self.segments)

    def prefixes(self) -> Iterator[tuple[Segment, int, bytes]]:
        state = hashlib.blake2b(self.model.id.encode(), digest_size=16)
        total = 0
        for segment in self.segments:
            for part in (segment.label, segment.text):
                data = part.encode("utf-8", "surrogatepass")
                state.update(len(data).to_bytes(8, "big"))
                state.update(data)
            total += segment.tokens
            yield segment, total, state.digest()


def parse(data: bytes, *, counting: bool = False) -> Request:
    """Parse a request; `count_tokens` needs no `max_tokens`."""
    body = _decoded(data)
    if unknown := body.keys() - (COUNTED if counting else FIELDS):
        raise invalid(f"{min(unknown)}: Extra inputs are not permitted")
    model_id = _required(body, "model", as_text, "a valid string")
    max_tokens = None if counting else _required(body, "max_tokens", as_int, "a valid integer")
    if max_tokens is not None and max_tokens < 0:
        raise invalid("max_tokens: Input should be greater than or equal to 0")
    messages = check_messages(_required(body, "messages", as_list, "a valid list"))
    if body.get("system"):
        check_blocks(_optional(body, "system", _text_or_list, "a valid string or a list of text blocks"), "system")
    if (model := MODELS.get(model_id)) is None:
        raise ApiError(404, f"model: {model_id}")
    schema = _schema(body)
    tools = parse_tools(body, model)
    _check_model(body, model, messages, max_tokens, typed=schema is not None)
    how = parse_thinking(body, model, tools.choice)
    check_start(messages, how)
    asking = max((index for index, one in enumerate(messages) if _asks(one)), default=None)
    request = Request(
        model,
        _segments(body, tools, messages, model),
        max_tokens=max_tokens,
        stream=_optional(body, "stream", as_flag, "a valid boolean") or False,
        stop_sequences=_stop_sequences(body),
        system=text_of(body.get("system")),
        prompt="" if asking is None else _said(messages[asking]["content"]),
        earlier="\n\n".join(text_of(one["content"]) for one in messages[:asking] if one["role"] == "user"),
        schema=schema,
        tools=tools,
        thinking=how,
        resumed=messages[-1]["role"] == "assistant",
    )
    if any(not isinstance(one["content"], str) for one in messages):
        check_content(messages, model, typed=schema is not None)
        request = _with_blocks(request, messages, asking)
    if (marks := sum(segment.ttl_s is not None for segment in request.segments)) > MAX_BREAKPOINTS:
        raise invalid(f"At most {MAX_BREAKPOINTS} blocks with cache_control may be provided; found {marks}.")
    if request.input_tokens > model.context:
        raise invalid(f"prompt is too long: {request.input_tokens} tokens > {model.context} maximum")
    return request


def _with_blocks(request: Request, messages: list[Json], asking: int | None) -> Request:
    since = messages[(-1 if asking is None else asking) + 1 :]
    calls = [block for one in since for block in blocks_of(one["content"]) if block["type"] == "tool_use"]
    names = {call["id"]: call["name"] for call in calls}
    segments, chain = _chained(request, messages)
    return replace(
        request,
        segments=segments,
        turn=1 + sum(one["role"] == "user" for one in since),
        called=tuple(names.values()),
        results=tuple(
            ToolResult(names.get(block["tool_use_id"], ""), _block_text(block), bool(block.get("is_error")))
            for block in blocks_of(messages[-1]["content"])
            if block["type"] == "tool_result"
        ),
        open_calls=tuple(open_calls(messages)),
        citable=tuple(documents(messages)),
        chain=chain,
    )


def _chained(request: Request, messages: list[Json]) -> tuple[tuple[Segment, ...], Chain | None]:
    """Check the thinking blocks and add their tokens, taken from their signatures."""
    places = [
        f"messages.{index}.content.{number}"
        for index, one in enumerate(messages)
        for number, block in enumerate(blocks_of(one["content"]))
        if block["type"] in THINKING_BLOCKS
    ]
    if not places:
        return request.segments, None
    chain, segments, next_place = Chain(request.model), list[Segment](), iter(places)
    for segment in request.segments:
        if segment.label.partition(":")[2] in THINKING_BLOCKS:
            size = chain.check(block_of(segment.text), next(next_place))
            segments.append(replace(segment, tokens=segment.tokens + size))
        else:
            segments.append(segment)
            if segment.label not in UNBOUND:
                chain.add(segment.label, segment.text)
    return tuple(segments), chain


def text_of(value: object) -> str:
    if isinstance(value, str):
        return value
    return "\n\n".join(filter(None, map(_block_text, blocks_of(value))))


def _said(value: object) -> str:
    if isinstance(value, str):
        return value
    return text_of([block for block in blocks_of(value) if block["type"] != "tool_result"])


def _block_text(block: Json) -> str:
    if block.get("type") == "text":
        return str(block.get("text", ""))
    return text_of(block.get("content")) if block.get("type") == "tool_result" else ""


def _asks(message: Json) -> bool:
    """Return whether it is a user message with more than tool results."""
    blocks = blocks_of(message["content"])
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


def _check_model(body: Json, model: Model, messages: list[Json], max_tokens: int | None, *, typed: bool) -> None:
    if max_tokens is not None and max_tokens > model.max_output:
        raise invalid(f"max_tokens: {max_tokens} > {model.max_output}, which is the maximum for {model.id}")
    for key in SAMPLING:
        if body.get(key) is not None and not model.sampling:
            raise invalid(f"{key}: this parameter is not supported by {model.id}; leave it out")
    if messages[-1]["role"] == "assistant" and typed and not _is_paused(messages[-1]):
        raise invalid("output_config.format: cannot be combined with an assistant prefill")
    if messages[-1]["role"] == "assistant" and not model.prefill and not _is_paused(messages[-1]):
        raise invalid(f"messages: {model.id} takes no assistant prefill; the last message must be a user message")
    if body.get("thread") is not None:
        raise invalid("thread: message threads are not simulated", code="thread_unsupported_request")


def _is_paused(message: Json) -> bool:
    """Return whether its last block is a server tool call or result."""
    kind = str((blocks_of(message["content"]) or [{}])[-1].get("type"))
    return kind == "server_tool_use" or kind.endswith("_tool_result")


def _stop_sequences(body: Json) -> tuple[str, ...]:
    given = _optional(body, "stop_sequences", as_list, "a list of strings") or []
    if not all(isinstance(each, str) for each in given):
        raise invalid("stop_sequences: Input should be a list of strings")
    if any(not each.strip() for each in given):
        raise invalid("stop_sequences: each stop sequence must contain non-whitespace")
    return tuple(given)


def _format(body: Json) -> Json | None:
    """Return the output format; `output_format` is an older name, which clients still send."""
    return as_object((as_object(body.get("output_config")) or {}).get("format") or body.get("output_format"))


def _schema(body: Json) -> Json | None:
    wanted = _format(body)
    if wanted is None:
        return None
    schema = as_object(wanted.get("schema"))
    if wanted.get("type") != "json_schema" or schema is None:
        raise invalid("output_config.format: Input should be {'type': 'json_schema', 'schema': {...}}")
    return schema


# Segments and their tokens.


def _segments(body: Json, tools: Tools, messages: Iterable[Json], model: Model) -> tuple[Segment, ...]:
    """The top-level `cache_control` applies to the last one."""
    found = [Segment("tool", text := _canonical(tool), count_tokens(text), _ttl_s(tool)) for tool in tools.offered]
    if wanted := _format(body):
        # The API turns it into an instruction. Another format empties the cache, so it stands in front.
        text = _canonical(wanted)
        found.append(Segment("format", text, FORMAT_OVERHEAD + count_tokens(text)))
    if isinstance(system := body.get("system") or (), str):
        found.append(Segment("system", system, count_tokens(system)))
    else:
        found += [_segment("system", block, model) for block in blocks_of(system)]
    said = [part for message in messages for part in _message_segments(message, model)]
    if settings := _settings(body, said):
        found.append(Segment("settings", _encode(settings), 0))
    found += said
    found[0] = replace(found[0], tokens=found[0].tokens + REQUEST_OVERHEAD + tools.prompt_tokens(model))
    if ttl_s := _ttl_s(body):
        found[-1] = replace(found[-1], ttl_s=found[-1].ttl_s or ttl_s)
    return tuple(found)


def _settings(body: Json, said: Sequence[Segment]) -> Json:
    effort = (as_object(body.get("output_config")) or {}).get("effort")
    found: Json = {"tool_choice": body.get("tool_choice"), "thinking": body.get("thinking"), "effort": effort}
    found["pictures"] = any('"type":"image"' in part.text for part in said if not part.label.endswith(":text")) or None
    return {key: value for key, value in found.items() if value is not None}


def _message_segments(message: Json, model: Model) -> list[Segment]:
    role, given = message["role"], message["content"]
    if isinstance(given, str):
        return [Segment(f"{role}:text", given, count_tokens(given) + MESSAGE_OVERHEAD)]
    found = [_segment(f"{role}:{block['type']}", block, model) for block in blocks_of(given)]
    found[0] = replace(found[0], tokens=found[0].tokens + MESSAGE_OVERHEAD)
    return found


def _segment(label: str, block: Json, model: Model) -> Segment:
    text = str(block["text"]) if block["type"] == "text" else canonical(block)
    return Segment(label, text, _tokens_of(block, model), _ttl_s(block))


def _tokens_of(block: Json, model: Model) -> int:
    """Count tokens of a block; citations are free, thinking is counted with its signature."""
    kind = block.get("type")
    if kind == "text":
        return count_tokens(str(block.get("text", "")))
    if kind in ("image", "document"):
        return tokens_of(block, model)
    if kind in THINKING_BLOCKS:
        return 0
    nested = blocks_of(block.get("content")) if kind in ("tool_result", "search_result") else []
    rest = {key: value for key, value in block.items() if not (nested and key == "content")}
    return count_tokens(_canonical(rest)) + sum(_tokens_of(each, model) for each in nested)


def _ttl_s(block: Json) -> int | None:
    control = as_object(block.get("cache_control"))
    return TTL_S.get(str(control.get("ttl") or "5m"), TTL_S["5m"]) if control else None


def _canonical(block: Json) -> str:
    return _encode({key: value for key, value in block.items() if key != "cache_control"})


def canonical(block: Json) -> str:
    """Return a block for comparison: clients may change key order."""
    return _encode_sorted({key: value for key, value in block.items() if key != "cache_control" and value is not None})


ROLES = ("user", "assistant", "system")
MAX_MESSAGES = 100_000
MEDIA = ("image", "document")
RESULT_BLOCKS = ("text", "image", "document", "search_result", "tool_reference", "browser_state")
SERVER_RESULTS = tuple(
    f"{name}_tool_result"
    for name in "web_search web_fetch code_execution bash_code_execution text_editor_code_execution tool_search".split()
)
BLOCKS: dict[str, tuple[str, ...]] = {
    "user": ("text", "image", "document", "search_result", "tool_result", "container_upload"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", *SERVER_RESULTS),
    "system": ("text",),
}
_ID = re.compile(r"[a-zA-Z0-9_-]+")


def check_messages(given: list[object]) -> list[Json]:
    """Check the model-independent rules; raise the first `ApiError`."""
    if not given:
        raise invalid("messages: at least one message is required")
    if len(given) > MAX_MESSAGES:
        raise invalid(f"messages: at most {MAX_MESSAGES} messages are allowed")
    messages = [_message(each, f"messages.{index}") for index, each in enumerate(given)]
    if any(not isinstance(message["content"], str) for message in messages):
        _Calls().check(messages)
    return messages


def check_content(messages: list[Json], model: Model, *, typed: bool) -> None:
    """Check pictures, documents and citations, which a schema excludes."""
    media = list(_media(messages))
    check_media(((where, block) for where, block in media if block["type"] in MEDIA), model)
    citing = [_cites(block) for _, block in media if block["type"] == "document"]
    if any(citing) and not all(citing):
        raise invalid("citations: must be enabled on all documents or on none of them")
    if typed and any(_cites(block) for _, block in media):
        raise invalid("output_config.format: cannot be combined with citations")


def _media(messages: list[Json]) -> Iterator[tuple[str, Json]]:
    """Yield them with their places, including those in tool results."""
    for index, message in enumerate(messages):
        for number, block in enumerate(blocks_of(message["content"])):
            where = f"messages.{index}.content.{number}"
            if block["type"] in (*MEDIA, "search_result"):
                yield f"{where}.{block['type']}", block
            elif block["type"] == "tool_result":
                for inner, each in enumerate(blocks_of(block.get("content"))):
                    if each["type"] in (*MEDIA, "search_result"):
                        yield f"{where}.tool_result.content.{inner}.{each['type']}", each


def _cites(block: Json) -> bool:
    return bool((as_object(block.get("citations")) or {}).get("enabled")) and block["type"] != "image"


def _message(value: object, where: str) -> Json:
    message = as_object(value)
    if message is None:
        raise invalid(f"{where}: Input should be an object")
    role = message.get("role")
    if role not in ROLES:
        raise invalid(f"{where}.role: Input should be 'user', 'assistant' or 'system'")
    if "content" not in message:
        raise invalid(f"{where}.content: Field required")
    check_blocks(message["content"], f"{where}.content", BLOCKS[role], role)
    return message


def check_blocks(content: object, where: str, allowed: tuple[str, ...] = ("text",), role: str = "system") -> None:
    if isinstance(content, str):
        if not content:
            raise invalid(f"{where}: text content must be non-empty")
        return
    if not (blocks := as_list(content)):
        raise invalid(f"{where}: Input should be a valid string or a non-empty list of blocks")
    for index, each in enumerate(blocks):
        block = as_object(each)
        if block is None or not isinstance(block.get("type"), str):
            raise invalid(f"{where}.{index}.type: Field required")
        kind = block["type"]
        if kind not in allowed:
            _refuse(kind, f"{where}.{index}", role)
        if kind == "text":
            _check_text(block, f"{where}.{index}", role)
        elif kind in ("tool_use", "server_tool_use"):
            _check_call(block, f"{where}.{index}.{kind}")
        elif kind == "tool_result":
            _check_result(block, f"{where}.{index}.tool_result")


def _refuse(kind: str, where: str, role: str) -> None:
    roles = [other for other, kinds in BLOCKS.items() if kind in kinds]
    if roles:
        raise invalid(f"{where}: `{kind}` blocks can only be in `{roles[0]}` messages, not in a `{role}` message")
    expected = ", ".join(f"'{each}'" for each in BLOCKS[role])
    raise invalid(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}")


def _check_text(block: Json, where: str, role: str) -> None:
    text = as_text(block.get("text"))
    if not text:
        raise invalid(f"{where}.text: text content blocks must be non-empty strings")
    if text.isspace():
        raise invalid(f"{where}.text: text content blocks must contain non-whitespace text")
    if role == "user" and block.get("citations"):
        raise invalid(f"{where}.citations: citations are only allowed on text of the assistant")


def _check_call(block: Json, where: str) -> None:
    name, number = as_text(block.get("name")), as_text(block.get("id"))
    if not number or not _ID.fullmatch(number):
        raise invalid(f"{where}.id: String should match pattern '^{_ID.pattern}$'")
    if not name:
        raise invalid(f"{where}.name: Field required")
    if as_object(block.get("input")) is None:
        raise invalid(f"{where}.input: Input should be a valid dictionary")


def _check_result(block: Json, where: str) -> None:
    if as_text(block.get("tool_use_id")) is None:
        raise invalid(f"{where}.tool_use_id: Field required")
    content = block.get("content")
    if content is None or isinstance(content, str):
        return
    inside = as_list(content)
    if inside is None:
        raise invalid(f"{where}.content: Input should be a valid string or a list of blocks")
    if inside:
        check_blocks(inside, f"{where}.content", RESULT_BLOCKS, "user")
    if block.get("is_error") and any(each["type"] != "text" for each in blocks_of(inside)):
        raise invalid(f"{where}.content: all content must be type `text` if `is_error` is true")


@dataclass
class _Calls:
    """Matches calls and results, message by message; `waiting` must be answered in the next one."""

    waiting: list[str] = field(default_factory=list[str])
    open: dict[str, str] = field(default_factory=dict[str, str])
    known: set[str] = field(default_factory=set[str])

    def check(self, messages: list[Json]) -> None:
        """Check that calls have results, those of the last message too."""
        for index, message in enumerate(messages):
            blocks = blocks_of(message["content"])
            if message["role"] == "assistant" and not (index and messages[index - 1]["role"] == "assistant"):
                self._answered(index, [])
            if message["role"] != "assistant":
                self._answered(index, blocks)
                self._resolved(index, blocks, text=isinstance(message["content"], str))
            for block in blocks:
                self._add(block, index)
        self._answered(len(messages), [])

    def _answered(self, index: int, blocks: list[Json]) -> None:
        """Require that a message starts with one result per waiting call, and has no other result."""
        kinds = [block["type"] for block in blocks]
        leading = next((at for at, kind in enumerate(kinds) if kind != "tool_result"), len(kinds))
        results = [str(block["tool_use_id"]) for block in blocks[:leading]]
        if missing := [call for call in self.waiting if call not in results]:
            raise invalid(
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        late = [str(block["tool_use_id"]) for block in blocks[leading:] if block["type"] == "tool_result"]
        for number, times in Counter([*results, *late]).items():
            if number not in self.waiting:
                raise invalid(
                    f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {number}. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
            if times > 1:
                raise invalid(
                    f"messages.{index}: each tool_use must have a single result. Found multiple `tool_result` blocks "
                    f"with id: {number}"
                )
        self.waiting = []

    def _resolved(self, index: int, blocks: list[Json], *, text: bool) -> None:
        if self.open and (text or any(block["type"] != "tool_result" for block in blocks)):
            number, name = next(iter(self.open.items()))
            raise invalid(
                f"messages.{index}: `{name}` tool use with id `{number}` was found without a corresponding "
                f"`{name}_tool_result` block"
            )

    def _add(self, block: Json, index: int) -> None:
        kind, number = block["type"], str(block.get("id"))
        if kind in ("tool_use", "server_tool_use"):
            if number in self.known:
                raise invalid(f"messages.{index}: `tool_use` ids must be unique")
            self.known.add(number)
            if kind == "tool_use":
                self.waiting.append(number)
            else:
                self.open[number] = str(block["name"])
        elif kind in SERVER_RESULTS and self.open.pop(str(block.get("tool_use_id")), None) is None:
            raise invalid(
                f"messages.{index}: unexpected `tool_use_id` found in `{kind}` blocks: {block.get('tool_use_id')}"
            )


def open_calls(messages: list[Json]) -> list[Json]:
    found: dict[str, Json] = {}
    for message in messages:
        for block in blocks_of(message["content"]):
            if block["type"] == "server_tool_use":
                found[block["id"]] = block
            elif block["type"] in SERVER_RESULTS:
                found.pop(block["tool_use_id"], None)
    return list(found.values())


def documents(messages: list[Json]) -> list[Json]:
    return [block for _, block in _media(messages) if _cites(block) and source_of(block).get("type") != "url"]
