"""The contents of a value, the length of its text, and whether it is single-use, without reading it."""

from __future__ import annotations

import dataclasses
from collections import UserList, deque
from collections.abc import Collection, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from itertools import islice
from types import SimpleNamespace
from typing import Any, Final, cast

from agent_magic.declare.values.tables import MOST_CHARS, cells_of, is_table

NUMBERS: Final = frozenset({int, float, bool, type(None)})
PLAIN: Final = NUMBERS | {str, bytes}
"""Types without contents."""
CONTAINERS: Final = frozenset({list, tuple, set, frozenset, dict})
DEEPEST: Final = 300
"""Maximum depth. Python itself supports little more."""
MOST_FOLLOWED: Final = 1_000_000
"""How many values inside one are looked at."""


def record_fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a dataclass, attrs, msgspec or pydantic object or a namespace."""
    kind = cast("type[Any]", type(value))
    if kind.__module__ == "builtins":
        return None
    if isinstance(value, SimpleNamespace) or hasattr(kind, "model_fields"):
        return vars(value)
    own = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else getattr(kind, "__attrs_attrs__", None)
    names = getattr(kind, "__struct_fields__", None) if own is None else [one.name for one in own]
    return None if names is None else {name: getattr(value, name, None) for name in names}


def is_mapping(value: object) -> bool:
    """Return whether a value is a mapping, or a row of a database, which may be no `Mapping`."""
    # A row cannot be changed. What can be is no row, and holds more than its keys: an element of XML, an e-mail.
    if isinstance(value, Mapping):
        return True
    kind = cast("type[Any]", type(value))
    is_read = callable(getattr(kind, "keys", None)) and hasattr(kind, "__getitem__")
    return is_read and not hasattr(kind, "__setitem__")


def is_keyed(value: object) -> bool:
    """Return whether the items of a collection are not all it holds, such as the nodes of a graph."""
    kind = cast("type[Any]", type(value))
    return hasattr(kind, "__getitem__") and issubclass(kind, Collection) and not issubclass(kind, Sequence)


def items_of(value: object) -> list[Any] | None:
    """Return the items of a collection; `None` if they are not all it holds."""
    if not isinstance(value, Collection) or is_keyed(cast("object", value)):
        return None
    given = cast("Collection[Any]", value)
    found = list(islice(given, len(given) + 1))  # it may have no end
    if len(found) > len(given):
        raise ValueError(f"a {type(given).__name__} gives more items than its length says")
    return found


def pairs_of(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(cast("Mapping[Any, Any]", value).items())
    return [(name, value[name]) for name in value.keys()]  # noqa: SIM118 - what sqlite's rows give are their values


def parts_of(value: Any) -> Collection[Any]:
    """Return the direct contents of a value: items, dict values, fields, cells with objects."""
    if isinstance(value, Mapping):
        return cast("Collection[Any]", value.values())
    if isinstance(value, list | tuple | AbstractSet | ValuesView | deque | UserList):
        return cast("Collection[Any]", value)
    fields = record_fields(value)
    return cells_of(value) if fields is None else fields.values()


def everything_in(value: object) -> Iterator[object]:
    """Yield a value and its contents at any depth, each once, without plain ones."""
    todo, seen = [value], {id(value): value}
    while todo and len(seen) < MOST_FOLLOWED:
        yield (one := todo.pop())
        parts = parts_of(one)
        if not {*map(type, parts)} <= PLAIN:
            new = {id(part): part for part in parts if type(part) not in PLAIN and id(part) not in seen}
            seen |= new  # which keeps the objects of this look, so that no other gets their ids
            todo += new.values()


def is_too_deep(value: object) -> bool:
    """Return whether a value is inside itself, or nested more deeply than Python can write."""
    return _measured(value)[1]


def text_size(value: object) -> int:
    """Return roughly how many characters a value has as text. It stops counting above `MOST_CHARS`."""
    return _measured(value)[0]


def _measured(value: object) -> tuple[int, bool]:
    known: dict[int, int] = {}  # of containers that are counted: one may be there many times
    is_deep, sizes, path, todo = False, [0], [0], [iter(cast("Collection[Any]", (value,)))]
    while True:
        part: Any
        for part in todo[-1] if sizes[-1] <= MOST_CHARS else ():
            key = id(part)
            if issubclass(type(part), str | bytes | bytearray):
                sizes[-1] += len(part)
            elif key in known:
                sizes[-1] += known[key]
            elif key in path or len(path) > DEEPEST:
                sizes[-1], is_deep = sizes[-1] + 1, True
            elif type(part) in NUMBERS or not (found := _sized(part)):
                sizes[-1] += 1
            else:
                sizes.append(len(found))
                path.append(key)
                todo.append(iter(() if {*map(type, found)} <= NUMBERS else found))
                break
        else:
            todo.pop()
            size = known[path.pop()] = sizes.pop()
            if not todo:
                return size, is_deep
            sizes[-1] += size


def _sized(value: Any) -> Collection[Any]:
    return [*value, *value.values()] if isinstance(value, dict) else parts_of(value)


def is_single_use(value: object) -> bool:
    """Return whether reading a value uses it up: an iterator, an open file, a cursor, a reader."""
    # Files and cursors may have no `__next__`, and are known by other methods. A file that is open for writing only
    # has nothing to read.
    kind = cast("type[Any]", value.__class__)  # the type of a proxy has the methods of every type
    if hasattr(kind, "__next__") or hasattr(kind, "__anext__"):
        return not _is_for_writing(value)
    if kind.__module__ == "builtins" or isinstance(value, Collection | type) or is_table(value):
        return False
    if hasattr(kind, "fetchone") and hasattr(kind, "fetchall"):
        return not hasattr(kind, "cursor")  # a connection makes as many cursors as one likes
    is_file = hasattr(kind, "read") and hasattr(kind, "readline")
    if is_file or (hasattr(kind, "__iter__") and hasattr(value, "read")):
        return not _is_for_writing(value)
    return hasattr(kind, "__iter__") and not hasattr(kind, "__len__") and _gives_itself_once(value)


def _gives_itself_once(value: Any) -> bool:
    """Return whether a value returns the same iterator each time, without reading it."""
    try:
        return iter(value) is iter(value)
    except Exception:  # noqa: BLE001 - it cannot be iterated now: who does that is told
        return False


def _is_for_writing(value: Any) -> bool:
    readable = getattr(value, "readable", None) if hasattr(value, "write") else None
    try:
        return callable(readable) and not readable()
    except ValueError:  # it is closed
        return False


def single_use_in(value: object) -> object | None:
    """Return the part of a value that can be read only once."""
    if type(value) in PLAIN:
        return None
    return next((one for one in everything_in(value) if is_single_use(one)), None)
