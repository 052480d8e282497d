"""The values of tasks as JSON and back: plain data, frames, Series, arrays, dates. Nothing is ever unpickled.

A packed value says what it is by a word of ours, never by the name of a class, so a file from a stranger can be wrong
but not harmful. What has no such form is not kept: its text is, and prompts that took it whole can be written again.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from types import NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_CHARS: Final = 10_000_000
"""A longer value is not kept."""
SCALARS: Final = (bool, int, str, type(None))
_JSON: Final = json.JSONEncoder(allow_nan=False)
_WORDS: Final = {None: "null", True: "true", False: "false"}
KIND: Final = "$"
"""The key of the word that says what a packed object is. A dict of the user's that has it is packed as pairs."""


class _NoFormError(Exception):
    """The value has no form here."""


def pack(value: object) -> str | None:
    """Write a value as JSON; `None` where it has no form here, or is too long."""
    kind = type(value)
    if kind is str or kind is NoneType or kind is bool:  # what most tasks return that return no table
        text = _JSON.encode(value) if kind is str else _WORDS[value]  # pyright: ignore[reportArgumentType]
        return text if len(text) <= MOST_CHARS else None
    try:
        text = _JSON.encode(_packed(value))
    except (_NoFormError, ValueError, TypeError, RecursionError, OverflowError):
        return None
    return text if len(text) <= MOST_CHARS else None


def packed_key(value: object) -> Any:
    """Return the key of a row as plain data that keeps its type; `None` where it has no form here."""
    try:
        return _packed(value)
    except (_NoFormError, ValueError, TypeError, RecursionError, OverflowError):
        return None


def unpack(text: str) -> Any:
    """Read what `pack` wrote.

    Raises:
        ValueError: It is something else.
    """
    return unpacked(json.loads(text))


def unpacked(data: Any) -> Any:
    """Read plain data that `pack` or `packed_key` made.

    Raises:
        ValueError: It is something else.
    """
    try:
        return _unpacked(data)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError) as error:
        raise ValueError(f"not a packed value ({type(error).__name__})") from None


def _packed(value: Any) -> Any:
    """Write a value as plain data."""
    kind: Any = cast("type[Any]", type(value))
    if kind in SCALARS or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [_packed(one) for one in cast("list[Any]", value)]
    if kind is dict and KIND not in value and all(type(name) is str for name in cast("dict[Any, Any]", value)):
        return {name: _packed(one) for name, one in cast("dict[str, Any]", value).items()}
    write = _WRITERS.get(kind)
    if write is not None:
        return {KIND: kind.__name__, **write(value)}
    if kind.__name__ == "Fields":
        return {KIND: SimpleNamespace.__name__, **_fields(value)}
    return _packed_table(value, kind.__module__.partition(".")[0], kind.__name__)


def _fields(value: Any) -> dict[str, Any]:
    fields = cast("dict[str, Any]", vars(value))
    return {"items": {name: _packed(one) for name, one in fields.items()}}


_WRITERS: Final[dict[Any, Callable[[Any], dict[str, Any]]]] = {
    float: lambda value: {"text": repr(value)},
    tuple: lambda value: {"items": [_packed(one) for one in value]},
    dict: lambda value: {"items": [[_packed(name), _packed(one)] for name, one in value.items()]},
    date: lambda value: {"text": value.isoformat()},
    datetime: lambda value: {"text": value.isoformat()},
    bytes: lambda value: {"data": base64.b64encode(value).decode()},
    SimpleNamespace: _fields,
}
"""What is written beside the name of the type."""


def _packed_table(value: Any, library: str, name: str) -> Any:
    """Write what numpy and pandas make."""
    if library == "pandas" and name == "DataFrame":
        columns = [_column(value.iloc[:, place]) for place in range(value.shape[1])]
        return {KIND: "frame", "names": _packed_index(value.columns), "columns": columns, **_indexed(value.index)}
    if library == "pandas" and name == "Series":
        return {KIND: "series", "name": _packed(value.name), "column": _column(value), **_indexed(value.index)}
    if library == "pandas" and name == "Timestamp":
        zone = {} if value.tz is None else {"zone": str(value.tz)}
        return {KIND: "timestamp", "text": value.isoformat(), **zone}
    if library == "pandas" and name == "Period":
        return {KIND: "period", "text": str(value), "unit": value.freqstr}
    if library == "pandas" and name == "Timedelta":
        return {KIND: "timedelta", "text": value.isoformat()}
    if library == "pandas" and name == "Interval":
        return {KIND: "interval", "ends": [_packed(value.left), _packed(value.right)], "closed": value.closed}
    if library == "numpy" and name == "ndarray" and value.dtype.kind in "biufUS":
        items = _packed(value.ravel().tolist())
        return {KIND: "array", "dtype": str(value.dtype), "shape": list(value.shape), "items": items}
    if library == "numpy" and getattr(value, "dtype", None) is not None and value.dtype.kind in "biufU":
        return {KIND: "scalar", "dtype": str(value.dtype), "value": _packed(value.item())}
    raise _NoFormError


def _indexed(index: Any) -> dict[str, Any]:
    if type(index).__name__ == "RangeIndex":
        return {"range": [index.start, index.stop, index.step], "index_names": _packed(list(index.names))}
    return {"index": _packed_index(index), "index_names": _packed(list(index.names))}


def _packed_index(index: Any) -> Any:
    if type(index).__name__ == "MultiIndex":
        return {"levels": [_column(index.get_level_values(place).to_series()) for place in range(index.nlevels)]}
    return _column(index.to_series())


def _column(series: Any) -> dict[str, Any]:
    """Write a column: its dtype, and its values as plain data."""
    dtype = str(series.dtype)
    if dtype == "category":
        categories = series.cat.categories
        return {
            "dtype": dtype,
            "codes": series.cat.codes.tolist(),
            "categories": _column(categories.to_series()),
            "ordered": bool(series.cat.ordered),
        }
    if dtype.startswith(("datetime64", "timedelta64")):
        ticks = zip(series.astype("int64").tolist(), series.isna().tolist(), strict=True)
        return {"dtype": dtype, "ticks": [None if lost else one for one, lost in ticks]}
    found = zip(series.tolist(), series.isna().tolist(), strict=True)
    items = [None if lost else _packed(one) for one, lost in found]
    return {"dtype": dtype, "items": items}


def _unpacked(data: Any) -> Any:
    """Read plain data."""
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
    import pandas as pd

    index = _index(data)
    columns = {place: _series_of(one, index) for place, one in enumerate(data["columns"])}
    frame = pd.DataFrame(columns, index=index)
    frame.columns = _plain_index(data["names"])
    return frame


def _series(data: dict[str, Any]) -> Any:
    return _series_of(data["column"], _index(data)).rename(_unpacked(data["name"]))


def _index(data: dict[str, Any]) -> Any:
    import pandas as pd

    index = pd.RangeIndex(*data["range"]) if "range" in data else _plain_index(data["index"])
    index.names = _unpacked(data["index_names"])
    return index


def _plain_index(data: dict[str, Any]) -> Any:
    import pandas as pd

    if "levels" in data:
        return pd.MultiIndex.from_arrays([_series_of(one, None) for one in data["levels"]])
    return pd.Index(_series_of(data, None))


def _series_of(data: dict[str, Any], index: Any) -> Any:
    """Read a column."""
    import pandas as pd

    if "codes" in data:
        categories = _series_of(data["categories"], None)
        made = pd.Categorical.from_codes(data["codes"], categories=categories, ordered=data["ordered"])
        return pd.Series(made, index=index)
    if "ticks" in data:
        return _times(data["ticks"], index, data["dtype"])
    return pd.Series(_unpacked(data["items"]), index=index, dtype=data["dtype"])


def _times(ticks: Any, index: Any, dtype: str) -> Any:
    """Read dates, whose numbers count the unit of their dtype."""
    import numpy as np
    import pandas as pd

    plain = f"{dtype.partition(',')[0].rstrip(']')}]"
    missing = np.iinfo("int64").min  # how numpy writes a date that is missing
    numbers = np.array([missing if one is None else one for one in ticks], dtype="int64")
    found: Any = pd.Series(numbers.view(plain), index=index)
    return found if plain == dtype else found.dt.tz_localize("UTC").astype(dtype)


def _array(data: dict[str, Any]) -> Any:
    import numpy as np

    return np.array(_unpacked(data["items"]), dtype=data["dtype"]).reshape(data["shape"])


def _scalar(data: dict[str, Any]) -> Any:
    import numpy as np

    return np.dtype(data["dtype"]).type(_unpacked(data["value"]))


def _timestamp(data: dict[str, Any]) -> Any:
    import pandas as pd

    found = pd.Timestamp(data["text"])
    try:
        return found.tz_convert(data["zone"]) if "zone" in data else found
    except (KeyError, ValueError):  # a zone that is not known here; the offset is
        return found


def _period(data: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.Period(data["text"], freq=data["unit"])


def _timedelta(data: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.Timedelta(data["text"])


def _interval(data: dict[str, Any]) -> Any:
    import pandas as pd

    left, right = map(_unpacked, data["ends"])
    return pd.Interval(left, right, closed=data["closed"])


_READERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "float": lambda data: float(data["text"]),
    "tuple": lambda data: tuple(_unpacked(data["items"])),
    "dict": lambda data: {_unpacked(name): _unpacked(one) for name, one in data["items"]},
    "date": lambda data: date.fromisoformat(data["text"]),
    "datetime": lambda data: datetime.fromisoformat(data["text"]),
    "SimpleNamespace": lambda data: SimpleNamespace(**_unpacked(data["items"])),
    "bytes": lambda data: base64.b64decode(data["data"], validate=True),
    "frame": _frame,
    "series": _series,
    "array": _array,
    "scalar": _scalar,
    "timestamp": _timestamp,
    "period": _period,
    "timedelta": _timedelta,
    "interval": _interval,
}
