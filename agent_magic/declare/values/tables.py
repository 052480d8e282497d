"""Tables and arrays of any library, read as pandas and as lists.

A table is recognised by narwhals or by Arrow's stream of columns, never by the name of a module. Its cells are Python's
own objects, so that whole numbers beside a missing one stay whole, and digits and zones stay.
"""

from __future__ import annotations

import functools
import math
import sys
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
    return _frame_of(found.columns, [found[:, place].to_list() for place in range(found.shape[1])])


def _frame_of(names: Any, columns: list[list[Any]]) -> Any:
    import pandas as pd

    made = pd.DataFrame({place: pd.Series(cells, dtype=object) for place, cells in enumerate(columns)})
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
    columns = [value] if kind == "Series" else [value.iloc[:, place] for place in range(value.shape[1])]
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
