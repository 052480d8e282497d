"""The contents of a value: tables and arrays of any library, items, fields; its size, and whether it is single-use.

A table is recognised by narwhals or by Arrow's stream of columns, never by the name of a module. Its cells are Python's
own objects, so that whole numbers beside a missing one stay whole, and digits and zones stay. Nothing that
can be read only once is read here.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections import UserList, deque
from collections.abc import Collection, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from itertools import islice
from types import SimpleNamespace
from typing import Any, Final, cast

from agent_magic.declare.values.pictures import is_content

MOST_CHARS: Final = 32_000_000
"""The longest prompt. Source: https://platform.claude.com/docs/en/api/overview, "Request size limits": 32 MB."""
TOO_LONG: Final = f"it has more than {MOST_CHARS:,} characters, and a request has 32 MB at most"
_TABLES: Final = ("__arrow_c_stream__", "__dataframe__", "__narwhals_dataframe__", "__narwhals_series__")
_LAZY: Final = ("collect", "compute", "execute", "__narwhals_lazyframe__")
_ARRAYS: Final = ("__array__", "__arrow_c_array__", "toarray")
_LISTED: Final = ("tolist", "to_pylist", "to_list")


def check_size(size: float) -> None:
    if size > MOST_CHARS:
        raise OverflowError(TOO_LONG)


@functools.lru_cache(maxsize=512)
def _marks(kind: type[Any]) -> tuple[bool, bool]:
    """Return whether values of a class may be tables, and whether they may be arrays."""
    # A reader is read once, and pictures are no arrays of pixels.
    if kind.__module__ == "builtins" or hasattr(kind, "__next__") or is_content(kind):
        return False, False
    may_be_lazy = hasattr(kind, "columns") and any(hasattr(kind, mark) for mark in _LAZY)
    is_table = may_be_lazy or any(hasattr(kind, mark) for mark in (*_TABLES, *_LAZY[-1:]))
    return is_table, any(hasattr(kind, mark) for mark in _ARRAYS)


def _of_pandas(value: object) -> str:
    pandas: Any = sys.modules.get("pandas")  # the owner of such a value has imported it
    kinds = [name for name in ("DataFrame", "Series") if isinstance(value, getattr(pandas, name, ()))]
    return kinds[0] if kinds else ""


def _fields_of(value: Any) -> tuple[str, ...]:
    if not _marks(value.__class__)[1] or getattr(value, "ndim", 0) != 1:
        return ()
    return getattr(getattr(value, "dtype", None), "names", None) or ()


def column_names(table: Any) -> list[Any]:
    """Return the names of the columns of a frame; none of a series."""
    if fields := _fields_of(table):
        return [*fields]
    if _of_pandas(table):
        return [*getattr(table, "columns", ())]
    found = _narwhals(table)
    return found.collect_schema().names() if hasattr(found, "columns") else []


def _narwhals(value: Any) -> Any:
    import narwhals

    if isinstance(value, narwhals.DataFrame | narwhals.LazyFrame | narwhals.Series):
        return cast("Any", value)
    found = narwhals.from_native(value, pass_through=True, allow_series=True)
    if found is value and hasattr(cast("type[Any]", type(value)), "__arrow_c_stream__"):
        found = cast("Any", narwhals).from_arrow(value, backend="pyarrow")
    return None if found is value else found


def is_table(value: object) -> bool:
    """Return whether a value is a frame or a series of any library, lazy ones included."""
    return bool(_shape_of(value))


def is_lazy(value: object) -> bool:
    """Return whether a value is a query, which computes when it is read."""
    return _shape_of(value) == "LazyFrame"


def _shape_of(value: object) -> str:
    """Return `DataFrame`, `LazyFrame` or `Series` for a table; else nothing."""
    if not _marks(value.__class__)[0]:
        return "DataFrame" if _fields_of(value) else ""
    if found := _of_pandas(value):
        return found
    try:
        found = _narwhals(value)
    except Exception:  # noqa: BLE001 - such as two columns of one name: who reads the table is told, by the value's name
        return "DataFrame"
    return "" if found is None else type(found).__name__


def read_table(value: Any) -> Any:
    """Return a table as `DataFrame` or `Series` of pandas, at most `MOST_CHARS` cells."""
    if not _marks(value.__class__)[0]:
        names = _fields_of(value)
        return _frame_of(names, [value[name].tolist() for name in names]) if names else None
    if kind := _of_pandas(value):
        exact = getattr(sys.modules["pandas"], kind)
        return value if type(value) is exact else exact(value)
    found = _narwhals(value)
    return None if found is None else _as_pandas(found)


def _as_pandas(found: Any) -> Any:
    import narwhals
    import pandas as pd

    if found.implementation.is_pandas_like():
        return found.to_pandas()  # with its index
    if isinstance(found, narwhals.Series):
        series = cast("Any", found)
        check_size(len(series))
        return pd.Series(series.to_list(), dtype=object, name=series.name or None)
    if isinstance(found, narwhals.LazyFrame):
        found = _collected(found.head(MOST_CHARS + 1))
    check_size(math.prod(found.shape))
    return _frame_of(found.columns, [found[:, index].to_list() for index in range(found.shape[1])])


def _frame_of(names: Any, columns: list[list[Any]]) -> Any:
    import pandas as pd

    made = pd.DataFrame({index: pd.Series(cells, dtype=object) for index, cells in enumerate(columns)})
    return made.set_axis(pd.Index([*names], dtype=object), axis=1)


def _collected(query: Any) -> Any:
    try:
        return query.collect()
    except ImportError:  # without pyarrow
        return query.collect(backend="pandas")


def count_cells(value: Any) -> int:
    """Return how many cells or items a table, no query, or an array has; 0 if unknown."""
    shape: Any = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return math.prod(cast("tuple[int, ...]", shape))
    return len(value) if hasattr(cast("type[Any]", type(value)), "__len__") else 0


def is_array(value: object) -> bool:
    """Return whether a value is an array, an index or a tensor of any library; one number of such is none."""
    is_table, is_array = _marks(value.__class__)
    return is_array and not is_table and getattr(value, "ndim", 1) != 0


def read_array(value: Any) -> list[Any] | None:
    """Return all items of an array, index or tensor of any library."""
    if not is_array(value):
        return None
    kind = cast("type[Any]", type(value))
    check_size(count_cells(value))
    if hasattr(kind, "toarray"):  # of a sparse matrix, whose text leaves its middle out
        return value.toarray().tolist()
    name = next((name for name in _LISTED if hasattr(kind, name)), "")
    if not name:
        import numpy as np

        name, value = "tolist", np.asarray(value)
    if getattr(value, "ndim", 0) and getattr(getattr(value, "dtype", None), "kind", "") in {"M", "m"}:
        return [read_array(one) if is_array(one) else plain_scalar(one) for one in value]
    return list(getattr(value, name)())


def plain_scalar(value: Any) -> Any:
    """Return one number, text or date of a library, such as `np.float64(1)`, as Python has it."""
    kind = cast("type[Any]", type(value))
    if hasattr(kind, "as_py"):  # of pyarrow
        return value.as_py()
    if not hasattr(kind, "item") or getattr(value, "ndim", None) != 0:
        return value
    found = getattr(value, "tolist", value.item)()  # `item` of what numpy has masked is 0.0
    is_count = type(found) is int and getattr(value.dtype, "kind", "") in {"M", "m"}  # of nanoseconds
    return value if is_count or type(found) is kind else found


def cells_of(value: Any) -> list[Any]:
    """Return the cells of a frame or a series of pandas that are objects."""
    if not _marks(value.__class__)[0] or not (kind := _of_pandas(value)):
        return []
    columns = [value] if kind == "Series" else [value.iloc[:, index] for index in range(value.shape[1])]
    return [cell for column in columns if column.dtype == object for cell in column.array]


def index_of(keys: list[Any], dtype: Any = None, name: Any = None) -> Any:
    """Return keys as an index of pandas; without the dtype if they do not fit it."""
    import pandas as pd

    try:
        return pd.Index(keys, dtype=dtype, name=name, tupleize_cols=False)
    except (TypeError, ValueError):  # a record has the dtype by its name
        return pd.Index(keys, name=name, tupleize_cols=False)


def levels_of(index: Any) -> list[Any]:
    """Return the levels of an index of pandas by their places, which may be the names of other levels."""
    bare = index.set_names([None] * index.nlevels)
    return [bare.get_level_values(place) for place in range(index.nlevels)]


def is_numbered(index: Any) -> bool:
    return type(index).__name__ == "RangeIndex"


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
