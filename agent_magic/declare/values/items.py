"""Items of a value, for `--each`: rows of a table with its index, elements of a list, dict or array."""

from __future__ import annotations

from collections import UserString
from typing import Any, NamedTuple

from agent_magic.declare.user_code import run_user_code
from agent_magic.declare.validation import find_name
from agent_magic.declare.values.contents import (
    index_of,
    is_lazy,
    is_mapping,
    is_table,
    items_of,
    levels_of,
    pairs_of,
    read_array,
    read_table,
)
from agent_magic.declare.values.text import check_values, plain_reason, whole
from agent_magic.errors import DeclarationError, did_you_mean

_NO_ITEMS = (str, UserString, bytes, bytearray, set, frozenset)
"""A text is one thing, and a set has no order."""
_HINT = "Give it a list, a dict, a Series or a DataFrame."


class Row(dict[str, Any]):
    """A row of a table. As text it has a line per column; `item.column` and `item["column"]` are one cell."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            meant = did_you_mean(name, self) or f" It has {', '.join(self)}."
            raise AttributeError(f"the row has no column {name!r}.{meant}") from None

    def __missing__(self, name: object) -> Any:
        """Return a column by its number, for a frame without names, or by an equally written name."""
        if type(name) is int and str(name) in self:
            return self[str(name)]
        if isinstance(name, str) and (known := find_name(name, self)) is not None:
            return self[known]
        raise KeyError(name)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {whole(value)}" for name, value in self.items())


class Items(NamedTuple):
    """The items of a value.

    Attributes:
        levels, dtypes: Of a table's index; see `agent_magic.declare.each.Part`.
        labels: Number of distinct labels of a table's rows.
    """

    found: list[tuple[Any, Any]]
    levels: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    labels: int


def read_items(value: object, name: str, agent: str, *, may_be_empty: bool = False) -> Items:

    def failed(error: BaseException) -> DeclarationError:
        message = f"Agent {agent!r} cannot be run for each of {name!r}: reading it raised {plain_reason(error)}."
        return DeclarationError(message, agent=agent, hint=_HINT)

    found = run_user_code(lambda: _read(value, name, agent), failed)
    if not found.found and not may_be_empty:
        message = f"Agent {agent!r} is declared for each of {name!r}, which is empty."
        raise DeclarationError(message, agent=agent, hint="Fill it, or take the agent out.")
    return found


def _read(value: Any, name: str, agent: str) -> Items:
    table = read_table(value)
    check_values([name], {name: value if table is None else table}, f"Agent {agent!r}")
    if table is not None:
        index, rows = table.index, table.tolist() if table.ndim == 1 else _rows(table, name, agent)
        levels = tuple(index.names) if index.nlevels > 1 else ()
        labels = len(rows) if index.is_unique else index.nunique(dropna=False)
        found = [(key, as_item(one)) for key, one in zip(index.tolist(), rows, strict=True)]
        dtypes = tuple(one.dtype for one in levels_of(index))
        by_keys = tuple(index_of(one.tolist()).dtype for one in levels_of(index))
        return Items(found, levels, () if dtypes == by_keys else dtypes, labels)
    listed: Any = read_array(value)
    given: Any = value if listed is None else listed
    if is_mapping(given):
        found = pairs_of(given)
    elif not isinstance(given, _NO_ITEMS) and (items := items_of(given)) is not None:
        found = list(enumerate(items))
    else:
        message = f"Agent {agent!r} cannot be run for each of {name!r}, whose type is {type(value).__name__}."
        raise DeclarationError(message, agent=agent, hint=_HINT)
    return Items([(key, _item_at(key, one, name, agent)) for key, one in found], (), (), len(found))


def _item_at(key: Any, item: Any, name: str, agent: str) -> Any:
    try:
        return as_item(item)
    except (TypeError, ValueError) as error:
        message = f"Agent {agent!r} cannot be run for each of {name!r}: of its item {key!r} {error}."
        raise DeclarationError(message, agent=agent) from None


def _rows(table: Any, name: str, agent: str) -> list[dict[str, Any]]:
    """Return the rows of a frame, by name: no two columns may have one."""
    columns = [_column(one) for one in table.columns]
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        message = f"Agent {agent!r} is declared for each of {name!r}, which has the column {twice!r} more than once."
        raise DeclarationError(message, agent=agent, hint="Rename one, or leave it out.")
    return table.set_axis(columns, axis=1).to_dict("records")


def items_now(value: object) -> list[Any] | None:
    """Return the items that a value has for `each`; `None` without any, and for a query."""
    try:
        if run_user_code(lambda: is_lazy(value), lambda _: DeclarationError("")):
            return None
        return [item for _, item in read_items(value, "", "").found]
    except DeclarationError:
        return None


def as_item(value: Any) -> Any:
    """Return a dict as a `Row`; two keys that are one as text are a `ValueError`."""
    if isinstance(value, Row) or is_table(value) or not is_mapping(value):
        return value
    pairs = pairs_of(value)
    found = Row((_column(name), cell) for name, cell in pairs)
    if len(found) < len(pairs):
        names = [_column(name) for name, _ in pairs]
        twice = next(one for one in names if names.count(one) > 1)
        raise ValueError(f"two keys are {twice!r} as text: {[one for one, _ in pairs if _column(one) == twice]}")
    return found


def _column(name: Any) -> str:
    return name if type(name) is str else str(name)
