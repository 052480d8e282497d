"""Values at the time a plan is made: pictures are read, and queries computed. Later changes do not count."""

from __future__ import annotations

from typing import Any, cast

from agent_magic.declare.user_code import run_user_code
from agent_magic.declare.values.pictures import as_attachment, is_content, is_one
from agent_magic.declare.values.tables import is_lazy, read_table
from agent_magic.declare.values.text import TOO_DEEP, plain_reason
from agent_magic.errors import DeclarationError


def holds_content(value: object) -> bool:
    """Return whether a value is a picture or document, or a list, tuple or dict that holds one."""
    todo, seen = [value], set[int]()
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            named = cast("dict[Any, object]", one)
            todo += () if id(named) in seen else named.values()
            seen.add(id(named))
        elif type(one) in {list, tuple}:
            rows = cast("list[object] | tuple[object, ...]", one)
            if any(map(is_content, {type(row) for row in rows})):
                return True
        elif is_one(one):
            return True
    return False


def is_frozen(value: object) -> bool:
    """Return whether a value stays as it is until it is sent: it is no query, and has no picture."""
    return not (is_lazy(value) or holds_content(value))


def frozen(value: Any, title: str) -> Any:
    """Return a value as it is now: a query computed, pictures read, those in lists, tuples and dicts too.

    Raises:
        DeclarationError: A picture or a query cannot be read, or what holds pictures holds itself.
    """

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
