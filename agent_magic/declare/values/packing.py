"""Values of tasks as JSON and back: plain data, frames, Series, arrays, dates.

Nothing is ever unpickled: a packed value has a kind of ours, never the name of a class, so a file from a stranger can
be wrong but not harmful.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import sys
from collections import deque
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from agent_magic.declare.content import Attachment
from agent_magic.declare.user_code import run_user_code
from agent_magic.declare.values.contents import (
    count_cells,
    is_array,
    is_lazy,
    is_numbered,
    is_table,
    levels_of,
    read_array,
    read_table,
    record_fields,
    text_size,
)
from agent_magic.errors import AgentMagicError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_CHARS: Final = 10_000_000
"""A longer value is not kept."""
MOST_ITEMS: Final = 100_000
"""Maximum cells or items of a value with a fingerprint: this many take about 20 ms."""
DIGITS: Final = 16
SCALARS: Final = (bool, int, str, type(None))
_JSON: Final = json.JSONEncoder(allow_nan=False)
_WORDS: Final = {None: "null", True: "true", False: "false"}
KIND: Final = "$"
"""The key of a packed object's kind. A user's dict with this key is packed as pairs."""


class _NoFormError(Exception): ...


def pack(value: object) -> str | None:
    """Return a value as JSON; `None` if it has no form, or is too long."""
    kind = type(value)
    if kind is str or kind is NoneType or kind is bool:  # what most tasks return that return no table
        text = _JSON.encode(value) if kind is str else _WORDS[value]  # pyright: ignore[reportArgumentType]
        return text if len(text) <= MOST_CHARS else None
    return _written(value, _refused)


def packed_key(value: object) -> Any:
    """Return the key of a row as plain data with its type; `None` without a form."""
    text = _written(value, _refused)
    return None if text is None else json.loads(text)


def fingerprint(value: object) -> str:
    """Return a text that identifies a value; empty if it is too large to read."""
    # Values that `pack` cannot restore are identified by class and contents. A query is not computed.
    found = _written(value, _known, MOST_ITEMS)
    return "" if found is None else digest(found)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _count(value: Any) -> int:
    """Return how many items or cells a value has, without computing anything."""
    if is_table(value) or is_array(value):
        return 0 if is_lazy(value) else count_cells(value)
    sized = isinstance(value, list | tuple | set | frozenset | dict | str | bytes)
    return len(cast("Any", value)) if sized else 1


def _written(value: object, other: Callable[[_Packer, Any], Any], most: float = math.inf) -> str | None:
    """Return a value as JSON; `None` if it has no form, is too long, or its own methods raise."""

    def written() -> str:
        if text_size(value) > MOST_CHARS or (most < math.inf and _count(value) > most):
            raise _NoFormError
        return _JSON.encode(_Packer(other).packed(value))

    try:
        text = run_user_code(written, lambda _: AgentMagicError())
    except AgentMagicError:
        return None
    return text if len(text) <= MOST_CHARS else None


def unpack(text: str) -> Any:
    """Read what `pack` wrote; anything else is a `ValueError`."""
    return unpacked(json.loads(text))


def unpacked(data: Any) -> Any:
    """Read plain data that `pack` or `packed_key` made; anything else is a `ValueError`."""
    try:
        return _unpacked(data)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError) as error:
        raise ValueError(f"not a packed value ({type(error).__name__})") from None


class _Packer:
    """Packs a value as plain data; `other` packs values without a form here, or raises."""

    def __init__(self, other: Callable[[_Packer, Any], Any]) -> None:
        self._other = other

    def packed(self, value: Any) -> Any:
        kind: Any = cast("type[Any]", type(value))
        if kind in SCALARS or (kind is float and math.isfinite(value)):
            return value
        if kind is list:
            return self.every(value)
        if kind is dict and KIND not in value and all(type(name) is str for name in cast("dict[Any, Any]", value)):
            return self.named(value)
        write = _WRITERS.get(kind)
        if write is not None:
            return {KIND: kind.__name__, **write(self, value)}
        if kind.__name__ == "Fields":
            return {KIND: SimpleNamespace.__name__, **_WRITERS[SimpleNamespace](self, value)}
        return self._of_a_library(value, kind.__module__.partition(".")[0], kind.__name__)

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.packed(one) for name, one in values.items()}

    def every(self, values: Iterable[Any]) -> list[Any]:
        return [self.packed(one) for one in values]

    def _of_a_library(self, value: Any, library: str, name: str) -> Any:
        dtype: Any = getattr(value, "dtype", None) if library == "numpy" else None
        if library == "pandas" and (write := _OF_PANDAS.get(name)) is not None:
            return write(self, value)
        if name == "ndarray" and dtype is not None and dtype.kind in "biufUS":
            items = self.packed(value.ravel().tolist())
            return {KIND: "array", "dtype": str(dtype), "shape": list(value.shape), "items": items}
        if dtype is not None and dtype.kind in "biufU" and isinstance(value, sys.modules["numpy"].generic):
            return {KIND: "scalar", "dtype": str(dtype), "value": self.packed(value.item())}
        return self._other(self, value)

    def frame(self, value: Any) -> dict[str, Any]:
        columns = [self._column(value.iloc[:, index]) for index in range(value.shape[1])]
        names = value.columns.names
        called = _given(column_names=any(name is not None for name in names) and self.every(names))
        heads = {"names": self._index(value.columns), **called}
        return {KIND: "frame", **heads, "columns": columns, **self._indexed(value.index)}

    def series(self, value: Any) -> dict[str, Any]:
        column = {"name": self.packed(value.name), "column": self._column(value)}
        return {KIND: "series", **column, **self._indexed(value.index)}

    def _indexed(self, index: Any) -> dict[str, Any]:
        names = self.every(index.names)
        if is_numbered(index):
            return {"range": [index.start, index.stop, index.step], "index_names": names}
        step = type(index).__name__ in {"DatetimeIndex", "TimedeltaIndex"} and index.freqstr
        return {"index": self._index(index), "index_names": names, **_given(step=step)}

    def _index(self, index: Any) -> Any:
        if type(index).__name__ == "MultiIndex":
            return {"levels": [self._column(one.to_series()) for one in levels_of(index)]}
        return self._column(index.to_series())

    def _column(self, series: Any) -> dict[str, Any]:
        dtype = str(series.dtype)
        if self._other is _refused and not _is_named(dtype):
            raise _NoFormError(dtype)
        if dtype == "category":
            categories = series.cat.categories
            return {
                "dtype": dtype,
                "codes": series.cat.codes.tolist(),
                "categories": self._column(categories.to_series()),
                "ordered": bool(series.cat.ordered),
            }
        if dtype.startswith(("datetime64", "timedelta64")):
            ticks = zip(series.astype("int64").tolist(), series.isna().tolist(), strict=True)
            return {"dtype": dtype, "ticks": [None if lost else one for one, lost in ticks]}
        found = zip(series.tolist(), series.isna().tolist(), strict=True)
        kept: tuple[type, ...] = (float,) if dtype == "object" else ()  # there it is another thing than `None`
        items = [None if lost and not isinstance(one, kept) else self.packed(one) for one, lost in found]
        return {"dtype": dtype, "items": items}


@functools.lru_cache(maxsize=256)
def _is_named(dtype: str) -> bool:
    """Return whether pandas makes a dtype of its name; of Arrow's lists, structs and dictionaries it makes none."""
    try:
        _pandas().api.types.pandas_dtype(dtype)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True


_WRITERS: Final[dict[Any, Callable[[_Packer, Any], dict[str, Any]]]] = {
    float: lambda _, value: {"text": repr(value)},
    tuple: lambda packer, value: {"items": packer.every(value)},
    dict: lambda packer, value: {"items": [packer.every(pair) for pair in value.items()]},
    date: lambda _, value: {"text": value.isoformat()},
    datetime: lambda _, value: {
        "text": value.isoformat(),
        **_given(zone=getattr(value.tzinfo, "key", None), fold=value.fold),
    },
    bytes: lambda _, value: {"data": base64.b64encode(value).decode()},
    SimpleNamespace: lambda packer, value: {"items": packer.named(cast("dict[str, Any]", vars(value)))},
}
"""Fields written beside the name of the type."""


def _given(**fields: Any) -> dict[str, Any]:
    """Return the fields that say something; older files do not have the others."""
    return {name: one for name, one in fields.items() if one}


_OF_PANDAS: Final[dict[str, Callable[[_Packer, Any], dict[str, Any]]]] = {
    "DataFrame": _Packer.frame,
    "Series": _Packer.series,
    "Timestamp": lambda _, value: {
        KIND: "timestamp",
        "text": value.isoformat(),
        **_given(zone=None if value.tz is None else str(value.tz)),
    },
    "Period": lambda _, value: {KIND: "period", "text": str(value), "unit": value.freqstr},
    "Timedelta": lambda _, value: {KIND: "timedelta", "text": value.isoformat()},
    "Interval": lambda packer, value: {
        KIND: "interval",
        "ends": packer.every((value.left, value.right)),
        "closed": value.closed,
    },
    "NAType": lambda _, __: {KIND: "NAType"},
    "NaTType": lambda _, __: {KIND: "NaTType"},
}


def _refused(_: _Packer, value: Any) -> Any:
    if type(value) is Decimal:  # no writer: older recordings identify one by its `repr`
        return {KIND: "Decimal", "text": str(value)}
    raise _NoFormError(type(value).__name__)


_BY_TEXT: Final = (complex, Decimal, Fraction, UUID, PurePath, time, timedelta, range, bytearray, str, int, float)
"""Types identified by their `repr`."""


def _known(packer: _Packer, value: Any) -> Any:
    """Return class and contents of a value that cannot be restored from them, but is identified."""
    kind: Any = cast("type[Any]", type(value))
    if is_lazy(value):
        raise _NoFormError(kind)
    named = {KIND: f"{kind.__module__}.{kind.__qualname__}"}
    if isinstance(value, Attachment):
        return {**named, "text": value.sha256}
    if isinstance(value, Enum):  # whose name may stand for another value today, or for none, as of a combined flag
        return {**named, "text": value.name, "value": packer.packed(value.value)}
    own: Any = kind if named[KIND] in _OF_NUMPY else next((one for one in _BY_TEXT if isinstance(value, one)), None)
    if own is not None:  # the text of a subclass may leave something out
        return {**named, "text": own.__repr__(value)}
    return {**named, "items": _parts(packer, value)}


def _parts(packer: _Packer, value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    if (table := read_table(value)) is not None:
        return [*_form(value), packer.packed(table)]
    if (items := read_array(value)) is not None:
        return [*_form(value), packer.every(items)]
    if isinstance(value, Mapping):
        return [packer.every(pair) for pair in cast("Mapping[Any, Any]", value).items()]
    if isinstance(value, set | frozenset):
        return sorted(map(_JSON.encode, packer.every(cast("set[Any]", value))))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return packer.named(kind._asdict(value))
    if isinstance(value, list | tuple | deque):
        return packer.every(cast("Iterable[Any]", value))
    if (fields := record_fields(value)) is not None:
        return packer.named(fields)
    raise _NoFormError(type(value).__name__)


def _form(value: object) -> list[str]:
    """Return what tells apart tables with the same cells, and arrays without any."""
    return [str(getattr(value, name, "")) for name in ("dtype", "schema", "shape", "dims")]


_OF_NUMPY: Final = {"numpy.datetime64", "numpy.timedelta64"}


def _unpacked(data: Any) -> Any:
    if isinstance(data, list):
        return [_unpacked(one) for one in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    named = cast("dict[str, Any]", data)
    if KIND not in named:
        return {name: _unpacked(one) for name, one in named.items()}
    read = _READERS.get(named[KIND])
    if read is None:
        raise ValueError("a packed value of an unknown kind")
    return read(named)


def _frame(data: dict[str, Any]) -> Any:
    index = _index(data)
    columns = {place: _series_of(one, index) for place, one in enumerate(data["columns"])}
    frame = _pandas().DataFrame(columns, index=index)
    frame.columns = _plain_index(data["names"])
    frame.columns.names = _unpacked(data.get("column_names", frame.columns.names))
    return frame


def _index(data: dict[str, Any]) -> Any:
    index = _pandas().RangeIndex(*data["range"]) if "range" in data else _plain_index(data["index"])
    index.names = _unpacked(data["index_names"])
    return index if "step" not in data else type(index)(index, freq=data["step"])


def _plain_index(data: dict[str, Any]) -> Any:
    if "levels" in data:
        return _pandas().MultiIndex.from_arrays([_series_of(one, None) for one in data["levels"]])
    return _pandas().Index(_series_of(data, None))


def _series_of(data: dict[str, Any], index: Any) -> Any:
    if "codes" in data:
        categories = _series_of(data["categories"], None)
        found = _pandas().Categorical.from_codes(data["codes"], categories=categories, ordered=data["ordered"])
        return _pandas().Series(found, index=index)
    if "ticks" in data:
        return _times(data["ticks"], index, data["dtype"])
    return _pandas().Series(_unpacked(data["items"]), index=index, dtype=data["dtype"])


def _times(ticks: Any, index: Any, dtype: str) -> Any:
    """Return dates from numbers in the unit of their dtype."""
    plain = f"{dtype.partition(',')[0].rstrip(']')}]"
    missing = _numpy().iinfo("int64").min  # how numpy writes a date that is missing
    numbers = _numpy().array([missing if one is None else one for one in ticks], dtype="int64")
    found = _pandas().Series(numbers.view(plain), index=index)
    return found if plain == dtype else found.dt.tz_localize("UTC").astype(dtype)


def _datetime(data: dict[str, Any]) -> Any:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - a load would wait 7 ms for it

    found = datetime.fromisoformat(data["text"]).replace(fold=data.get("fold", 0))
    return _in_zone(found, data, lambda zone: found.replace(tzinfo=ZoneInfo(zone)))


def _timestamp(data: dict[str, Any]) -> Any:
    found = _pandas().Timestamp(data["text"])
    return _in_zone(found, data, found.tz_convert)


def _in_zone(found: Any, data: dict[str, Any], convert: Callable[[str], Any]) -> Any:
    try:
        return convert(data["zone"]) if "zone" in data else found
    except (KeyError, ValueError):  # a zone that is not known here; the offset is
        return found


def _pandas() -> Any:
    import pandas as pd

    return pd


def _numpy() -> Any:
    import numpy as np

    return np


_READERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "float": lambda data: float(data["text"]),
    "tuple": lambda data: tuple(_unpacked(data["items"])),
    "dict": lambda data: {_unpacked(name): _unpacked(one) for name, one in data["items"]},
    "date": lambda data: date.fromisoformat(data["text"]),
    "datetime": _datetime,
    "SimpleNamespace": lambda data: SimpleNamespace(**_unpacked(data["items"])),
    "Decimal": lambda data: Decimal(data["text"]),
    "bytes": lambda data: base64.b64decode(data["data"], validate=True),
    "frame": _frame,
    "series": lambda data: _series_of(data["column"], _index(data)).rename(_unpacked(data["name"])),
    "array": lambda data: _numpy().array(_unpacked(data["items"]), dtype=data["dtype"]).reshape(data["shape"]),
    "scalar": lambda data: _numpy().dtype(data["dtype"]).type(_unpacked(data["value"])),
    "timestamp": _timestamp,
    "period": lambda data: _pandas().Period(data["text"], freq=data["unit"]),
    "timedelta": lambda data: _pandas().Timedelta(data["text"]),
    "interval": lambda data: _pandas().Interval(*map(_unpacked, data["ends"]), closed=data["closed"]),
    "NAType": lambda _: _pandas().NA,
    "NaTType": lambda _: _pandas().NaT,
}
