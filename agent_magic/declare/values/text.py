"""The text of a value, as a prompt sends it: tables as CSV, arrays as lists, all else as `str`. Whole, or refused."""

from __future__ import annotations

import dataclasses
import gc
import os
import re
import sys
from collections import UserDict, UserList
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, cast

from agent_magic.declare.content import Attachment
from agent_magic.declare.user_code import reason_of, run_user_code
from agent_magic.declare.values.contents import (
    CONTAINERS,
    NUMBERS,
    PLAIN,
    check_size,
    everything_in,
    is_array,
    is_keyed,
    is_lazy,
    is_mapping,
    is_numbered,
    is_single_use,
    is_table,
    items_of,
    pairs_of,
    plain_scalar,
    read_array,
    read_table,
    record_fields,
    single_use_in,
    text_size,
)
from agent_magic.declare.values.pictures import as_attachment, is_content, is_one
from agent_magic.errors import AgentMagicError, DeclarationError

_NO_TEXT = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type)
_ADDRESS = re.compile(r"<.*(?: at 0x[0-9a-f]+|\baddress=0x[0-9a-f]+.*)>", re.DOTALL)
"""Python's text of an object without its own."""
_AT = re.compile(r"(?: at |\bid=['\"]?)(0x[0-9a-fA-F]{4,16}|[1-9]\d{5,19})\b")
_MOST_HELD = 100_000
"""How many objects are searched for an address that a text holds."""
HOLDS_ITSELF = "holds itself"
_SHORT = 20
"""Texts this short may occur in another text by chance."""
TOO_DEEP = f"{HOLDS_ITSELF}, or is nested too deeply"


class RenderError(AgentMagicError):
    """A value or a prompt cannot be rendered."""


class RaisedError(RenderError):
    """A method of the value has raised something."""


class NoTextError(ValueError):
    """A value has no text that says anything."""


def sendable(text: str) -> str:
    """Replace lone surrogates, joining the halves that belong together."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def plain_reason(error: BaseException) -> str:
    """Return why a value has no text or JSON: this package's words, or the error of a user's method."""
    if isinstance(error, RecursionError):
        return f"it {TOO_DEEP}"
    return (
        str(error).rstrip(".")
        if type(error) in {NoTextError, ValueError, TypeError, OverflowError} and str(error)
        else reason_of(error)
    )


def value_text(name: str, value: object) -> str:
    """Return `as_text` of a value outside a template, or raise a `RenderError` that names it."""
    if issubclass(type(value), str):  # a proxy of one is none
        return str.__str__(cast("str", value))  # without the class of an enum, or numpy's
    if type(value) in NUMBERS:
        return str(value)
    if is_one(value):
        return str(as_attachment(value, name))

    def failed(error: BaseException) -> RenderError:
        has_none = isinstance(error, NoTextError | OverflowError | RecursionError)
        return (RenderError if has_none else RaisedError)(f"{{{{ {name} }}}}: {plain_reason(error)}")

    return run_user_code(lambda: as_text(value), failed)


def as_text(value: object) -> str:
    """Return a value as a prompt shows it, or raise `NoTextError` or `OverflowError`."""
    if issubclass(type(value), str):
        return str.__str__(cast("str", value))
    if is_one(value):
        return str(as_attachment(value, type(value).__name__.lower()))
    check_size(text_size(value))
    try:
        text = _text(value)
    except RecursionError:
        raise NoTextError(f"it {TOO_DEEP}") from None
    _check_addresses(value, text)
    return text


def _text(value: Any) -> str:
    kind = cast("type[Any]", type(value))
    if (table := read_table(value)) is not None:
        check_size(table.size)
        return str(with_whole_cells(table).to_csv(index=not is_numbered(table.index)))
    if (items := read_array(value)) is not None:
        return str(whole(items))
    if hasattr(kind, "as_py"):  # of pyarrow: its text of a struct is a list of pairs
        return _text(value.as_py())
    if isinstance(value, _NO_TEXT) or str(kind.__module__).startswith("jinja2."):
        raise NoTextError(_what_to_write(value))
    if hasattr(kind, "is_task"):
        raise NoTextError(f"an am.{kind.__name__} is a step, and has no text; put it among the steps of the plan")
    shown = whole(value) if kind.__str__ is object.__str__ else value
    text = str(shown) if kind in PLAIN or shown is not value else _long(value, str)
    if is_single_use(value):
        raise NoTextError(f"a {kind.__name__} can be read only once, and has no text; use list(...) of it")
    return text


def _check_addresses(value: object, text: str) -> None:
    """Raise `NoTextError` if a text holds the address of a part of its value."""
    if "0x" not in text and "id=" not in text:
        return
    unnamed = next(filter(_is_address, everything_in(value)), None)
    if unnamed is None:
        unnamed = _held_at({int(one, 0) for one in _AT.findall(text)}, value)
    if unnamed is not None:
        kind = type(value).__name__
        what = f"this {kind}" if unnamed is value else f"the {type(unnamed).__name__} in this {kind}"
        raise NoTextError(f"the text of {what} is an address in memory; use list(...) of it, or an attribute")


def _held_at(addresses: AbstractSet[int], value: object) -> object | None:
    """Return the objects of any class in a value at one of these addresses."""
    todo, seen = [value], {id(value)}
    while todo and len(seen) < _MOST_HELD:
        for one in gc.get_referents(todo.pop()):
            if id(one) not in seen and not isinstance(one, type | ModuleType):
                if id(one) in addresses:
                    return one
                seen.add(id(one))
                todo += [] if isinstance(one, _NO_TEXT) else [one]
    return None


def _is_address(value: object) -> bool:
    text = repr(value).lower()
    return f"{id(value):x}" in text or str(id(value)) in text or _ADDRESS.fullmatch(text) is not None


def _what_to_write(value: Any) -> str:
    kind, name = type(value).__name__, str(getattr(value, "__name__", ""))
    owner = getattr(value, "__self__", None)
    if isinstance(owner, Mapping) and name in owner:
        return f"this is a method of a {type(cast('Any', owner)).__name__}; its item of that name is ['{name}']"
    if hasattr(value, "_agent_magic_task"):
        return f'{name} is a task of another module: put am.Task("{name}", {name}) among the steps of the plan'
    return f"a {kind} has no text; call it in a cell, and use what it returns"


def _long(value: Any, write: Callable[[Any], str]) -> str:
    """Return the `str` or `repr` of an object, with tables and arrays in it written whole."""
    # Most classes write their contents by `repr`, of which libraries omit the middle, so those parts are replaced.
    with ExitStack() as options:
        # a library may be half imported by another thread
        if (numpy := getattr(sys.modules.get("numpy"), "printoptions", None)) is not None:
            options.enter_context(numpy(threshold=sys.maxsize, floatmode="unique"))
        pandas: Any = sys.modules.get("pandas")
        if hasattr(pandas, "DataFrame"):  # it comes after the options
            most = ("max_rows", "max_columns", "max_colwidth", "width", "max_seq_items")
            options.enter_context(pandas.option_context(*(part for name in most for part in (f"display.{name}", None))))
        text, found = write(value), dict[str, str]()
        for one in _shown_in(value):
            if one is not value and _is_read(one):
                own = _text(one)
                for cut in {repr(one), str(one)}:
                    if found.setdefault(cut, own) != own:
                        kind = type(one).__name__
                        raise NoTextError(f"it holds several of {kind} that look alike; write each by its attribute")
    for cut, own in sorted(found.items(), key=lambda pair: -len(pair[0])):  # one may begin another
        text = text.replace(cut, own) if len(cut) > _SHORT else text
    return text


class _Text:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _shown_in(value: Any) -> Iterator[object]:
    """Yield the contents and attributes that the text of a value may show, except plain containers."""
    for one in everything_in(value):
        if type(one) in CONTAINERS:
            continue
        yield one
        attributes = getattr(one, "__dict__", None)
        if attributes and record_fields(one) is None and not _is_read(one):
            yield from everything_in([*attributes.values()])


def _is_read(value: object) -> bool:
    return is_table(value) or is_array(value)


def whole(value: Any) -> Any:
    """Return a value with a `str` that omits nothing of tables and arrays at any depth."""
    return value if type(value) in PLAIN or not any(map(_is_foreign, _shown_in(value))) else _whole(value, ())


def _is_foreign(value: object) -> bool:
    """Return whether Python writes a library's value differently inside a container, or not at all."""
    return _is_read(value) or _is_unnamed(value) or plain_scalar(value) is not value or _is_picture(value)


def _is_picture(value: object) -> bool:
    return is_one(value) and type(value) is not Attachment


def _is_unnamed(value: object) -> bool:
    kind = cast("type[Any]", type(value))
    return kind.__repr__ is object.__repr__ and (
        is_mapping(value) or (issubclass(kind, Collection) and not is_keyed(value))
    )


def _whole(value: Any, around: tuple[int, ...]) -> Any:
    if (plain := plain_scalar(value)) is not value:
        return plain
    kind = cast("type[Any]", type(value))
    if id(value) in around or kind in PLAIN:
        return value if kind in PLAIN else _Text("...")
    if _is_read(value):
        return _Text(_text(value))
    if _is_picture(value):
        raise NoTextError(f"it has a picture, a {kind.__name__}, in it; write it by itself, or in a list or dict")
    if kind in {UserDict, UserList}:  # with the text of their content
        return _whole(value.data, around)
    inner = (*around, id(value))
    same: Any
    for same in (dict, list, tuple, set, frozenset):
        if kind.__repr__ is same.__repr__:
            return _rebuilt(same, value, inner)
    has_text, same = not _is_unnamed(value), dict if is_mapping(value) else list
    if not has_text or (kind.__module__ in {"collections", "builtins"} and isinstance(value, Collection)):
        found = _rebuilt(same, value, inner)
        return _Text(f"{kind.__name__}({found!r})") if has_text else found  # such as a `defaultdict`
    is_named = isinstance(value, tuple) and hasattr(kind, "_fields")
    fields: Mapping[str, Any] | None = kind._asdict(value) if is_named else record_fields(value)
    if fields is None or not (is_named or isinstance(value, SimpleNamespace) or _has_made_repr(kind)):
        return _Text(_long(value, repr if around else str))
    hidden = {one.name for one in dataclasses.fields(kind) if not one.repr} if dataclasses.is_dataclass(kind) else ()
    fields = {one: part for one, part in fields.items() if one not in hidden}
    name = "namespace" if kind is SimpleNamespace else kind.__qualname__
    return _Text(f"{name}({', '.join(f'{one}={_whole(part, inner)!r}' for one, part in fields.items())})")


def _rebuilt(same: Any, value: Any, inner: tuple[int, ...]) -> Any:
    if same is dict:
        return {_whole(name, inner): _whole(one, inner) for name, one in pairs_of(value)}
    return same(_whole(one, inner) for one in items_of(value) or ())


def _has_made_repr(kind: Any) -> bool:
    """Return whether the `repr` of a class was generated by `dataclass`, which keeps a written one."""
    made = getattr(kind.__repr__, "__wrapped__", None)
    return dataclasses.is_dataclass(kind) and made is not None and made.__code__.co_filename == "<string>"


def with_whole_cells(table: Any) -> Any:
    """Return a frame or series of pandas with lists and arrays in its cells written whole."""
    columns = [table.iloc[:, place] for place in range(table.shape[1])] if table.ndim > 1 else [table]
    wide = [at for at, one in enumerate(columns) if one.dtype == object and not {*map(type, one.array)} <= PLAIN]
    if not wide:
        return table
    if table.ndim == 1:
        return table.map(whole)
    named = table.set_axis(range(table.shape[1]), axis=1).copy()  # names may be there twice
    for place in wide:
        named[place] = named[place].map(whole)
    return named.set_axis(table.columns, axis=1)


# what people should know, or write instead


def value_notes(names: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """Return a note for each value that a prompt shows in an unexpected form."""
    found = list[str]()
    for name in names:
        if name in values:
            with suppress(AgentMagicError):  # it is refused where it is used
                found.append(run_user_code(partial(_note_on, name, values[name]), lambda _: AgentMagicError()))
    return list(filter(None, found))


_READERS = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", ".gif"), "image"),
    ".pdf": "pdf",
}
"""What reads a file, by the end of its name."""


def reader_of(value: os.PathLike[str], name: str) -> str:
    """Return what to write instead of a path."""
    end = PurePath(os.fsdecode(value)).suffix.lower()
    return f"{name} = am.{_READERS.get(end, 'text_file')}({name}) sends what is in it"


def _note_on(name: str, value: Any) -> str:
    kind = cast("type[Any]", type(value))
    if hasattr(value.__class__, "__fspath__"):  # the type of a proxy has the methods of every type
        return f"{name} is a path: its name goes out, not the file. {reader_of(cast('os.PathLike[str]', value), name)}"
    if issubclass(kind, bytes | bytearray):
        return f"{name} is of {kind.__name__} and goes out as Python text, b'…': {name}.decode() is its own"
    if is_single_use(value):
        return f"{name} can be read only once, and a plan refuses it: {name} = list({name}) keeps what it gives"
    if is_lazy(value):
        return f"{name} is a query: it is computed when the plan is made, and goes out as CSV"
    if kind.__str__ is not object.__str__ or not issubclass(kind, dict | list | tuple | set | frozenset):
        return ""
    if kind is list and {type(one) for one in value} <= {int, float}:
        return ""  # the same in JSON
    said = f"{name} is a {kind.__name__} and goes out as Python text"
    return said if issubclass(kind, set | frozenset) else f"{said}: {{{{ {name} | tojson }}}} sends JSON"


def check_values(names: Iterable[str], values: Mapping[str, Any], user: str) -> None:
    """Raise for a value that can be read only once: showing a plan would use it up."""
    for name in names:
        if name not in values or type(values[name]) in PLAIN:
            continue
        value = values[name]

        def failed(error: BaseException, name: str = name) -> DeclarationError:
            return DeclarationError(f"{user} uses {name!r}, which cannot be read: {plain_reason(error)}.")

        once = run_user_code(lambda value=value: single_use_in(value), failed)
        if once is not None:
            what, within = type(once).__name__, once is not value
            owner = f"{type(value).__name__} with a {what} in it" if within else what
            message = f"{user} uses {name!r}, a {owner}, which can be read only once."
            keep = "put list(...) of it there" if within else f"{name} = list({name})"
            raise DeclarationError(message, hint=f"Keep what it gives, and use that: {keep}.")


def holds_content(value: object) -> bool:
    """Return whether a value is a picture or document, or lists, tuples and dicts hold one."""
    todo, seen = [value], set[int]()
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            named = cast("dict[Any, object]", one)
            todo += () if id(named) in seen else named.values()
            seen.add(id(named))
        elif type(one) in {list, tuple}:
            rows = cast("list[object] | tuple[object, ...]", one)
            if any(map(is_content, kinds := {type(row) for row in rows})):
                return True
            if id(rows) not in seen and not kinds <= PLAIN:
                todo += rows
                seen.add(id(rows))
        elif is_one(one):
            return True
    return False


def is_frozen(value: object) -> bool:
    return not (is_lazy(value) or holds_content(value))


def frozen(value: Any, title: str) -> Any:
    """Return a value as it is now: a query computed, pictures read."""

    def failed(error: BaseException) -> DeclarationError:
        return DeclarationError(f"{title!r} cannot be computed: {plain_reason(error)}.")

    if is_lazy(value):
        return run_user_code(lambda: read_table(value), failed)
    try:
        return _with_pictures(value, title)
    except RecursionError:
        raise DeclarationError(f"{title!r} cannot be sent: it {TOO_DEEP}.") from None


def _with_pictures(value: Any, title: str) -> Any:
    if not holds_content(value):
        return value
    if isinstance(value, dict):
        named = cast("dict[Any, Any]", value)
        same: Any = type(named)
        return same({name: _with_pictures(one, f"{title} {name}") for name, one in named.items()})
    if isinstance(value, list | tuple):
        rows = [_with_pictures(one, f"{title} {number}") for number, one in enumerate(cast("list[Any]", value), 1)]
        return tuple(rows) if isinstance(value, tuple) else rows
    return as_attachment(value, title)
