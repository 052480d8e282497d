"""The result of a tool as the model reads it: text, frames as CSV, pictures and PDFs as they are, all else as JSON."""

from __future__ import annotations

import enum
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.content import PLAIN_TEXT, Attachment, check_sizes
from agent_magic.declare.pictures import frozen, holds_content
from agent_magic.declare.serialization import as_json, as_text, sendable
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import AgentMagicError, DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARS = 100_000
"""The characters of a result that a model is sent: some 25,000 tokens, paid for again in each later turn."""


class ToolResult(NamedTuple):
    """What goes back to the model for one call.

    Attributes:
        content: The text; where there are files, content blocks as JSON, with a sha256 in the place of bytes.
        is_error: Whether the model is told that the call failed.
        chars: How many characters the whole result has, or what is known of them.
        files: The pictures and PDFs in it.
    """

    content: str
    is_error: bool
    chars: int
    files: tuple[Attachment, ...] = ()


class _NoText(AgentMagicError):
    """A result that no model can read."""


def result_text(value: object, most: int = MOST_CHARS) -> ToolResult:
    """Return what a model is sent of what a tool returned.

    Args:
        value: What it returned. A text goes as it is, a frame as CSV, a figure as a picture, `None` as a remark, other
            things as JSON, or as their `str` where JSON has no form for them. Lists and dicts may hold pictures.
        most: The characters that go out. The model is told what was left out.
    """
    if type(value) is str:
        text = sendable(value)
        return ToolResult(text, is_error=False, chars=len(text)) if len(text) <= most else _written(value, most)
    try:
        write = _with_files if holds_content(value) else _written
        return run_user_code(lambda: write(value, most), _failed)  # `__str__` and its like are the user's code
    except (_NoText, DeclarationError) as error:  # the latter of a picture
        return error_text(str(error))


def error_text(message: str, most: int = MOST_CHARS) -> ToolResult:
    """Return what a model is told of a call that failed, or that was not made."""
    return ToolResult(sendable(message)[:most], is_error=True, chars=len(message))


def _failed(error: BaseException) -> _NoText:
    why = str(error) if type(error) in {ValueError, OverflowError} else reason_of(error)
    return _NoText(f"The tool ran, but what it returned cannot be sent: {why}.")


def _with_files(value: Any, most: int) -> ToolResult:
    """Return content blocks: texts, pictures and PDFs in their order."""
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
    """Yield what a value holds, in order: what stands under a name has the name in front."""
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
    """Return a remark on the size of a frame or an array that is too long anyway, and as much of it as can go out."""
    library = type(value).__module__.partition(".")[0]
    if _is_frame(value) and len(value) > (rows := most // (2 * max((1, *value.shape[1:]))) + 1):
        return f" There are {len(value):,} rows.", value.iloc[:rows]
    if library == "numpy" and getattr(value, "size", 0) > most:
        return f" There are {value.size:,} values.", value.reshape(-1)[:most]
    return "", value


def _is_frame(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "to_csv")


def _text(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return value
    if value is None:
        return "(done; there is no result)"
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{len(value):,} bytes that are no text") from None
    if _is_frame(value) or isinstance(value, Decimal):
        return as_text(value)
    try:
        return as_json(value.value if isinstance(value, enum.Enum) else value)
    except (TypeError, ValueError, RecursionError):  # keys that are no text, things that contain themselves
        return as_text(value)
