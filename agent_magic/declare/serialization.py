"""Values as the text that a prompt sends: frames as CSV, arrays as lists, `| tojson` as JSON, the rest as `str`."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, cast

from agent_magic.declare.pictures import as_attachment, is_one
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.errors import AgentMagicError

MOST_CHARS = 32_000_000
"""The longest prompt. Source: https://platform.claude.com/docs/en/api/overview, "Request size limits": 32 MB."""
DEEPEST = 1000
"""How deep `text_size` counts: Python can write nothing deeper, and what holds itself has no end."""
TOO_LONG = f"it has more than {MOST_CHARS:,} characters, and a request has 32 MB at most"
_NO_TEXT = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type)
_ADDRESS = re.compile(r"<.* at 0x[0-9a-fA-F]+>", re.DOTALL)
"""What Python writes of an object that has no text of its own."""
_NUMBERS = frozenset({int, float, bool, type(None)})
_PLAIN = _NUMBERS | {str}


class RenderError(AgentMagicError):
    """A value or a prompt cannot be rendered. Who knows whose it is makes a `DeclarationError` of it."""


def sendable(text: str) -> str:
    """Replace lone surrogates, joining the halves that belong together."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def check_size(size: float) -> None:
    """Raise `OverflowError` for a text that is too long for a request."""
    if size > MOST_CHARS:
        raise OverflowError(TOO_LONG)


def text_size(value: object) -> int:
    """Return roughly how many characters a value has as text. It stops counting above `MOST_CHARS`."""
    total, todo = 0, [iter((value,))]
    while todo and total <= MOST_CHARS and len(todo) < DEEPEST:
        for one in todo[-1]:
            if isinstance(one, str | bytes | bytearray):
                total += len(one)
            elif isinstance(one, list | tuple | set | frozenset | dict):
                found = cast("Collection[Any]", one)
                total += len(found)
                if not {*map(type, found)} <= _NUMBERS or isinstance(one, dict):
                    todo += (
                        [iter(found), iter(cast("dict[Any, Any]", one).values())]
                        if isinstance(one, dict)
                        else [iter(found)]
                    )
                    break
            else:
                total += 1
        else:
            todo.pop()
    return total


def value_text(name: str, value: object) -> str:
    """Return `as_text` of a value, outside a template.

    Raises:
        RenderError: It has none; the message names it.
    """
    if isinstance(value, str):
        return value
    if type(value) in _NUMBERS:
        return str(value)
    if is_one(value):
        return str(as_attachment(value, name))

    def failed(error: BaseException) -> RenderError:
        why = str(error) if type(error) in {ValueError, OverflowError} else reason_of(error)
        return RenderError(f"{{{{ {name} }}}}: {why}")

    return run_user_code(lambda: as_text(value), failed)


def as_text(value: object) -> str:
    """Return a value as a prompt shows it: frames as CSV and arrays as lists, whole; the rest as `str`.

    Raises:
        ValueError: It is a function, a class or a module, or an object whose `str` is its address.
        OverflowError: It is too long for a request.
        BaseException: What its methods raise: they are the user's own code.
    """
    if isinstance(value, str):
        return value
    if is_one(value):
        return str(as_attachment(value, type(value).__name__.lower()))
    check_size(text_size(value))
    library, kind = type(value).__module__.partition(".")[0], type(value).__name__
    shown: Any = value
    if library in {"numpy", "pandas"}:
        check_size(getattr(shown, "size", 0))
        if hasattr(shown, "to_csv"):
            numbered = type(shown.index).__name__ == "RangeIndex"  # an index nobody chose is no data
            return str(_with_whole_cells(shown).to_csv(index=not numbered))
        if hasattr(shown, "tolist"):
            return str(whole(shown.tolist()))  # `str` of an array leaves its middle out
    if isinstance(shown, _NO_TEXT):
        raise ValueError(f"a {kind} has no text; call it in a cell, and use what it returns")
    if hasattr(kind_of := type(value), "is_task"):
        raise ValueError(f"an am.{kind_of.__name__} is a step, and has no text; put it among the steps of the plan")
    text = _long_str(whole(shown))
    if text[:1] == "<" and _ADDRESS.fullmatch(text):
        raise ValueError(f"the text of this {kind} is an address in memory; use list(...) of it, or an attribute")
    return text


def _long_str(value: Any) -> str:
    """Return the `str` of a value. An object of the user's that shows an array of its own shows all of it."""
    kind = cast("type[Any]", type(value))
    own = kind not in _PLAIN and kind not in {list, tuple, dict}
    options = getattr(sys.modules.get("numpy"), "printoptions", None) if own else None  # a thread may be importing it
    if options is None:
        return str(value)
    with options(threshold=sys.maxsize, floatmode="unique"):
        return str(value)


class _Text:
    """Stands in a list or dict for what is in it, as the text that it has alone."""

    def __init__(self, value: object) -> None:
        self._text = as_text(value)

    def __repr__(self) -> str:
        return self._text


def whole(value: Any) -> Any:
    """Return a value whose `str` leaves nothing out: in lists, tuples and dicts, arrays and frames are their text."""
    kind = cast("type[Any]", type(value))
    if kind in _NUMBERS or kind is str:
        return value
    if _is_table(value):
        return _Text(value)
    if kind not in {list, tuple, dict} or not _has_table(value):
        return value
    if kind is dict:
        return {name: whole(one) for name, one in cast("dict[Any, Any]", value).items()}
    found = map(whole, cast("Iterable[Any]", value))
    return list(found) if kind is list else tuple(found)


def _is_table(value: object) -> bool:
    """Return whether a value is one of which `str` shows its ends only."""
    library = type(value).__module__.partition(".")[0]
    return library in {"numpy", "pandas"} and getattr(value, "ndim", 0) > 0


def _has_table(value: object) -> bool:
    """Return whether a list, tuple or dict holds an array or a frame, however deep."""
    todo, deep = [value], 0
    while todo and deep < DEEPEST:  # what holds itself has no end
        found: list[Any] = []
        for one in todo:
            inner = list(cast("dict[Any, Any]", one).values()) if type(one) is dict else cast("list[Any]", one)
            inner = inner if type(one) in {list, tuple, dict} else []
            found += inner if not inner or not {*map(type, inner)} <= _PLAIN else ()
        if any(map(_is_table, found)):
            return True
        todo, deep = found, deep + 1
    return False


def _with_whole_cells(table: Any) -> Any:
    """Return a frame or Series in whose cells lists and arrays are written whole."""
    columns = [table.iloc[:, place] for place in range(table.shape[1])] if table.ndim > 1 else [table]
    wide = [at for at, one in enumerate(columns) if one.dtype == object and not {*map(type, one.array)} <= _PLAIN]
    if not wide:
        return table
    if table.ndim == 1:
        return table.map(whole)
    named = table.set_axis(range(table.shape[1]), axis=1).copy()  # names may be there twice
    for place in wide:
        named[place] = named[place].map(whole)
    return named.set_axis(table.columns, axis=1)


def as_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON, for the filter `tojson` of a prompt: letters as they are, and no web page's escapes.

    Frames become lists of rows, dataclasses and pydantic's models objects, arrays lists, dates ISO text, a `Decimal` a
    text with all its digits, and what pandas has in the place of a value that is missing `null`.

    Raises:
        TypeError: It cannot be written as JSON.
        ValueError: It contains itself.
    """
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return a value that JSON has no form for as one that it has."""
    if is_one(value):
        raise TypeError("a picture or document cannot be written as JSON; write it whole, {{ name }}")
    if type(value).__module__.partition(".")[0] in {"numpy", "pandas"}:
        return _plain_table(value)
    if isinstance(value, Decimal):
        return str(value)  # a number of JSON would be read as a float
    if isinstance(value, SimpleNamespace):  # an object of a typed answer
        return vars(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    shown: Any = value
    if hasattr(shown, "isoformat"):
        return shown.isoformat()
    if isinstance(value, set | frozenset):
        return list(cast("Iterable[Any]", value))
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _plain_table(value: Any) -> Any:
    """Return what numpy and pandas make as plain data."""
    if type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if hasattr(value, "to_json"):  # it writes `null` for what is missing
        rows = hasattr(value, "columns") or not value.index.is_unique
        form = "records" if rows else "index"
        return json.loads(value.to_json(orient=form, date_format="iso", double_precision=15))
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def python_notes(names: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """Return a note for each value that goes out in a form which few people mean.

    Args:
        names: Those that a prompt writes whole.
        values: Their values. A name without one is left out.
    """
    return [note for name in names if name in values and (note := _python_note(name, values[name]))]


_READERS = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", ".gif"), "image"),
    ".pdf": "pdf",
}
"""What reads a file, by the end of its name."""


def reader_of(value: os.PathLike[str], name: str) -> str:
    """Return what to write instead of a path."""
    end = PurePath(os.fsdecode(value)).suffix.lower()
    return f"{name} = am.{_READERS.get(end, 'text_file')}({name}) sends what is in it"


def _python_note(name: str, value: Any) -> str:
    kind = cast("type[Any]", type(value))
    if isinstance(value, os.PathLike):
        return f"{name} is a path: its name goes out, not the file. {reader_of(cast('os.PathLike[str]', value), name)}"
    if issubclass(kind, bytes | bytearray):
        return f"{name} is of {kind.__name__} and goes out as Python text, b'…': {name}.decode() is its own"
    if kind.__str__ is not object.__str__ or not issubclass(kind, dict | list | tuple | set | frozenset):
        return ""
    if kind is list and {type(one) for one in value} <= {int, float}:
        return ""  # the same in JSON
    said = f"{name} is a {kind.__name__} and goes out as Python text"
    return said if issubclass(kind, set | frozenset) else f"{said}: {{{{ {name} | tojson }}}} sends JSON"
