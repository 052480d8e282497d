"""Rules of a conversation: allowed blocks, and each tool call answered once, immediately.

Source: the vendor's pages on handling tool calls, parallel tool use, server tools and citations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent_magic.simulator.content import blocks_of, check_media, source_of
from agent_magic.simulator.errors import invalid
from agent_magic.simulator.json_types import Json, as_list, as_object, as_text
from agent_magic.simulator.models import Model

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
    messages = [_message(each, f"messages.{place}") for place, each in enumerate(given)]
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
    for place, message in enumerate(messages):
        for number, block in enumerate(blocks_of(message["content"])):
            where = f"messages.{place}.content.{number}"
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
    for place, each in enumerate(blocks):
        block = as_object(each)
        if block is None or not isinstance(block.get("type"), str):
            raise invalid(f"{where}.{place}.type: Field required")
        kind = block["type"]
        if kind not in allowed:
            _refuse(kind, f"{where}.{place}", role)
        if kind == "text":
            _check_text(block, f"{where}.{place}", role)
        elif kind in ("tool_use", "server_tool_use"):
            _check_call(block, f"{where}.{place}.{kind}")
        elif kind == "tool_result":
            _check_result(block, f"{where}.{place}.tool_result")


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
        """Calls of the last message need results too, except a paused server tool."""
        for place, message in enumerate(messages):
            blocks = blocks_of(message["content"])
            if message["role"] == "assistant" and not (place and messages[place - 1]["role"] == "assistant"):
                self._answered(place, [])
            if message["role"] != "assistant":
                self._answered(place, blocks)
                self._resolved(place, blocks, text=isinstance(message["content"], str))
            for block in blocks:
                self._add(block, place)
        self._answered(len(messages), [])

    def _answered(self, place: int, blocks: list[Json]) -> None:
        """Require that a message starts with one result per waiting call, and has no other result."""
        kinds = [block["type"] for block in blocks]
        leading = next((at for at, kind in enumerate(kinds) if kind != "tool_result"), len(kinds))
        results = [str(block["tool_use_id"]) for block in blocks[:leading]]
        if missing := [call for call in self.waiting if call not in results]:
            raise invalid(
                f"messages.{place - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        late = [str(block["tool_use_id"]) for block in blocks[leading:] if block["type"] == "tool_result"]
        for number, times in Counter([*results, *late]).items():
            if number not in self.waiting:
                raise invalid(
                    f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {number}. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
            if times > 1:
                raise invalid(
                    f"messages.{place}: each tool_use must have a single result. Found multiple `tool_result` blocks "
                    f"with id: {number}"
                )
        self.waiting = []

    def _resolved(self, place: int, blocks: list[Json], *, text: bool) -> None:
        if self.open and (text or any(block["type"] != "tool_result" for block in blocks)):
            number, name = next(iter(self.open.items()))
            raise invalid(
                f"messages.{place}: `{name}` tool use with id `{number}` was found without a corresponding "
                f"`{name}_tool_result` block"
            )

    def _add(self, block: Json, place: int) -> None:
        kind, number = block["type"], str(block.get("id"))
        if kind in ("tool_use", "server_tool_use"):
            if number in self.known:
                raise invalid(f"messages.{place}: `tool_use` ids must be unique")
            self.known.add(number)
            if kind == "tool_use":
                self.waiting.append(number)
            else:
                self.open[number] = str(block["name"])
        elif kind in SERVER_RESULTS and self.open.pop(str(block.get("tool_use_id")), None) is None:
            raise invalid(
                f"messages.{place}: unexpected `tool_use_id` found in `{kind}` blocks: {block.get('tool_use_id')}"
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
