"""The JSON of a value: one form per type; other types are refused by name.

Two keys of a dict, or two columns of a table, with one name in JSON are refused.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections import UserString, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final, cast
from uuid import UUID

from agent_magic.declare.answers.lenient import Decimals
from agent_magic.declare.values.contents import (
    check_size,
    is_keyed,
    is_mapping,
    is_numbered,
    is_single_use,
    items_of,
    levels_of,
    pairs_of,
    plain_scalar,
    read_array,
    read_table,
    record_fields,
    text_size,
)
from agent_magic.declare.values.pictures import is_one

_INSTEAD: Final[tuple[tuple[Any, str], ...]] = (
    (complex, "[x.real, x.imag]"),
    (bytes | bytearray | memoryview, "bytes(x).decode()"),
    (PurePath, "str(x)"),
)
"""What to write in the place of a value `x` that is refused."""
_MARK: Final = "\udfff\ud800"
"""Around a number that keeps its digits. Two surrogates that never occur together."""
_MARKED = re.compile(f'"{_MARK}([-+.0-9Ee]+){_MARK}"')
"""A number with preserved digits, which `json` would write by its value alone."""


def as_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON; errors are those of `as_plain`."""
    check_size(text_size(value))
    try:
        text = json.dumps(as_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ValueError("it holds itself, or is nested too deeply for JSON") from None
    return _MARKED.sub(r"\1", text) if _MARK in text else text


def as_plain(value: object) -> Any:
    """Return a value as plain JSON data, or raise with what to write instead."""
    return _plain(value, ())


def _plain(value: Any, around: tuple[int, ...]) -> Any:
    kind = cast("type[Any]", type(value))
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, enum.Enum):
        return _plain(value.value, around)
    for kinds, form in _SCALARS:
        if isinstance(value, kinds):
            return form(value)
    if id(value) in around:
        raise ValueError(f"this {kind.__name__} holds itself, and cannot be written as JSON")
    inner = (*around, id(value))
    if isinstance(value, Mapping):
        return _mapping(value, inner)
    if isinstance(value, list | tuple | deque | range):
        return [_plain(one, inner) for one in cast("Iterable[Any]", value)]
    return _other(value, inner)


def _mapping(value: Any, inner: tuple[int, ...]) -> dict[str, Any]:
    pairs = pairs_of(value)
    return _object([key for key, _ in pairs], (_plain(one, inner) for _, one in pairs), "key")


def _other(value: Any, inner: tuple[int, ...]) -> Any:
    """Return the JSON of a value that is neither a dict, a list nor a scalar of Python."""
    if is_one(value):
        raise TypeError("a picture or document cannot be written as JSON; write it whole, {{ name }}")
    if (table := read_table(value)) is not None:
        has_labels = table.ndim > 1 or isinstance(value, type(table))  # a series of another library has none
        return _table(table, inner) if has_labels else _cells(table, inner)
    if (items := read_array(value)) is not None:
        return [_plain(one, inner) for one in items]
    return _of_a_class(value, inner)


def _of_a_class(value: Any, inner: tuple[int, ...]) -> Any:
    kind = cast("type[Any]", type(value))
    if (plain := plain_scalar(value)) is not value:
        return _plain(plain, inner)
    if kind.__name__ in _BY_NAME:
        return _BY_NAME[kind.__name__](value)
    if isinstance(value, set | frozenset):
        return sorted((_plain(one, inner) for one in cast("set[Any]", value)), key=json.dumps)  # the same each time
    if (make := next((make for mark, make in _MADE_BY if hasattr(kind, mark)), None)) is not None:
        return _plain(make(value), inner)
    if (fields := record_fields(value)) is not None:
        return {name: _plain(one, inner) for name, one in fields.items()}
    if is_mapping(value):
        return _mapping(value, inner)
    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    if not is_bytes and (items := items_of(value)) is not None:
        return [_plain(one, inner) for one in items]
    return _by_pydantic(value)


def _by_pydantic(value: Any) -> Any:
    """Return a form that only pydantic knows, such as for an IP address; refuse other values."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    instead = "list(x)" if is_single_use(value) or is_keyed(value) else ""
    instead = instead or next((words for kinds, words in _INSTEAD if isinstance(value, kinds)), "")
    if not instead:
        with suppress(PydanticSerializationError):
            return to_jsonable_python(value)
    name, instead = type(value).__name__, instead or "an attribute of it"
    raise TypeError(f"a {name} cannot be written as JSON; of such an x use {instead}")


def _duration(value: Any) -> str:
    """Write a duration in ISO 8601, as pandas does."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    minutes, seconds = divmod(value.seconds, 60)
    part = f"{value.microseconds / 1e6:.6f}"[1:].rstrip("0").rstrip(".")
    return f"P{value.days}DT{minutes // 60}H{minutes % 60}M{seconds}{part}S"


def _numpy_duration(value: Any) -> str:
    import numpy as np
    import pandas as pd

    unit, count = np.datetime_data(value.dtype)
    return f"P{value.astype(int) * count}{unit}" if unit in {"Y", "M"} else pd.Timedelta(value).isoformat()


_SCALARS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (bool, bool),
    (str, str.__str__),  # its letters, as in a prompt
    (UserString, str),
    (int, int),
    (Decimals, lambda value: f"{_MARK}{value}{_MARK}"),
    (float, lambda value: float(value) if math.isfinite(value) else None),
    (Decimal, lambda value: str(value) if value.is_finite() else None),  # a number of JSON would be read as a float
    (UUID | Fraction, str),
    (datetime | date | time, lambda value: None if type(value).__name__ == "NaTType" else value.isoformat()),
    (timedelta, _duration),
)
"""The form of values of Python's own, and of their subclasses."""


_MADE_BY: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    ("model_dump", lambda value: value.model_dump()),
    ("__json_encoder__", lambda value: value.dict()),  # a model of pydantic 1
    ("__geo_interface__", lambda value: value.__geo_interface__),
)
"""Methods by which classes return themselves as plain data."""
_BY_NAME: Final[dict[str, Callable[[Any], Any]]] = {
    "NAType": lambda _: None,
    "Interval": str,
    "Period": str,
    "datetime64": str,  # these two count nanoseconds
    "timedelta64": _numpy_duration,
}
"""The form of values of pandas and numpy that are nothing of Python's."""


def key_text(key: Any) -> str:
    """Return a key of a dict, or the name of a column, as in JSON."""
    if isinstance(key, str) and not isinstance(key, enum.Enum):
        return str.__str__(key)
    if isinstance(key, tuple):
        raise TypeError("a tuple cannot be a key in JSON; use a text, or nested dicts")
    plain = as_plain(key)
    if isinstance(plain, dict | list):
        raise TypeError(f"a {type(key).__name__} cannot be a key in JSON; use a text")
    return plain if isinstance(plain, str) else json.dumps(plain)


def _object(
    keys: Iterable[Any], values: Iterable[Any], what: str, name: Callable[[Any], str] = key_text
) -> dict[str, Any]:
    """Return a JSON object, refusing keys that would become equal."""
    found: dict[str, Any] = {}
    before: dict[str, Any] = {}
    for key, one in zip(keys, values, strict=True):
        text = name(key)
        if text in found:
            raise ValueError(f"the {what}s {before[text]!r} and {key!r} would both be {text!r} in JSON; rename one")
        found[text], before[text] = one, key
    return found


# tables


def column_text(name: Any) -> str:
    """Return the name of a column as text, several levels as Python writes them."""
    return str(cast("Any", name)) if isinstance(name, tuple) else key_text(name)


def _table(table: Any, inner: tuple[int, ...]) -> Any:
    """Return the rows of a frame as objects; of a series its values by their labels."""
    if table.ndim == 1:
        cells = _cells(table, inner)
        if table.index.is_unique and table.index.nlevels == 1:
            return _object(table.index.tolist(), cells, "label")
        names, columns = [], [cells]
        values = ["value" if table.name is None else table.name]
    else:
        names, values = [], list(table.columns)
        columns = [_cells(table.iloc[:, index], inner) for index in range(table.shape[1])]
    if not is_numbered(table.index):
        levels = table.index.nlevels
        names = [
            one if one is not None else f"level_{at}" if levels > 1 else "index"
            for at, one in enumerate(table.index.names)
        ]
        columns = [*(_cells(one, inner) for one in levels_of(table.index)), *columns]
    heads = [*_object([*names, *values], [None] * len(columns), "column", column_text)]
    return [dict(zip(heads, row, strict=True)) for row in zip(*columns, strict=True)]


def _cells(column: Any, inner: tuple[int, ...]) -> list[Any]:
    return [None if one is None else _plain(one, inner) for one in column.tolist()]
