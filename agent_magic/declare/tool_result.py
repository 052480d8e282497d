"""The result of a tool as the model reads it: text, frames as CSV, pictures and PDFs as they are, all else as JSON."""

from __future__ import annotations

import enum
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.content import PLAIN_TEXT, Attachment, check_sizes
from agent_magic.declare.user_code import run_user_code
from agent_magic.declare.values import (
    as_json,
    as_text,
    count_cells,
    frozen,
    holds_content,
    is_array,
    is_table,
    plain_reason,
    read_table,
    sendable,
)
from agent_magic.errors import AgentMagicError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARS = 100_000
"""Maximum characters of a result for the model: some 25,000 tokens, paid again in each later turn."""


class ToolResult(NamedTuple):
    """The result of one call, as sent to the model.

    Attributes:
        content: The text; with files, content blocks as JSON, with a sha256 instead of bytes.
        chars: Characters of the whole result.
    """

    content: str
    is_error: bool
    chars: int
    files: tuple[Attachment, ...] = ()


class _NoText(AgentMagicError): ...


def result_text(value: object, most: int = MOST_CHARS) -> ToolResult:
    """Return a tool's result for the model, at most `most` characters; the model is told of omissions."""
    if type(value) is str:
        text = sendable(value)
        return ToolResult(text, is_error=False, chars=len(text)) if len(text) <= most else _written(value, most)
    try:
        return run_user_code(lambda: _told(value, most), _failed)  # `__str__` and its like are the user's code
    except AgentMagicError as error:  # such a method may raise one of ours
        return error_text(str(error))


def _told(value: object, most: int) -> ToolResult:
    return _with_files(value, most) if holds_content(value) else _written(value, most)


def error_text(message: str, most: int = MOST_CHARS) -> ToolResult:
    """Return the message to the model about a failed or omitted call."""
    return ToolResult(sendable(message)[:most], is_error=True, chars=len(message))


def _failed(error: BaseException) -> _NoText:
    return _NoText(f"The tool ran, but what it returned cannot be sent: {plain_reason(error)}.")


def _with_files(value: Any, most: int) -> ToolResult:
    blocks: list[dict[str, Any]] = []
    files: dict[str, Attachment] = {}
    chars = 0
    for part in _parts(frozen(value, "result")):
        if isinstance(part, Attachment) and part.media_type != PLAIN_TEXT:
            files[part.sha256] = part
            blocks.append(part.block(part.sha256))
            continue
        plain = f"{part.label}\n{part.text}" if isinstance(part, Attachment) else part
        told = _written(plain, max(0, most - chars))
        chars += told.chars
        if told.content.strip():  # a block of nothing is refused
            blocks.append({"type": "text", "text": told.content})
    check_sizes(files.values(), "")
    found = tuple(files.values())
    return ToolResult(json.dumps(blocks, ensure_ascii=True), is_error=False, chars=chars, files=found)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a value in order, named ones with their names."""
    if isinstance(value, dict):
        for name, one in cast("dict[Any, Any]", value).items():
            yield f"{name}:"
            yield from _parts(one)
    elif isinstance(value, list | tuple) and holds_content(cast("list[Any]", value)):
        for one in cast("list[Any]", value):
            yield from _parts(one)
    else:
        yield value


def _written(value: Any, most: int) -> ToolResult:
    more, value = _start_of(value, most)
    text = sendable(_text(value))
    if len(text) <= most and not more:
        return ToolResult(text, is_error=False, chars=len(text))
    shown = text[: most if len(text) > most else None]
    left = f"{len(text) - len(shown):,} more characters" if not more else "the rest"
    said = f"{shown}\n[Cut here: {left} left out.{more} Ask for less, such as a selection or a sum.]"
    return ToolResult(said, is_error=False, chars=len(text))


def _start_of(value: Any, most: int) -> tuple[str, Any]:
    """Return a remark on the size of a table or an array that is too long, and the part of it that fits."""
    table = read_table(value)
    if table is not None and len(table) > (rows := most // (2 * max((1, *table.shape[1:]))) + 1):
        return f" There are {len(table):,} rows.", table.iloc[:rows]
    if table is None and is_array(value) and (count := count_cells(value)) > most:
        flat = value.toarray() if hasattr(value, "toarray") else value
        return f" There are {count:,} values.", flat.reshape(-1)[:most] if hasattr(flat, "reshape") else flat[:most]
    return "", value


def _text(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return str.__str__(value)
    if value is None:
        return "(done; there is no result)"
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{len(value):,} bytes that are no text") from None
    if is_table(value) or isinstance(value, Decimal):
        return as_text(value)
    try:
        return as_json(value)
    except (TypeError, ValueError):  # keys that are no text, what holds itself
        return as_text(value)
