"""What a plan is given, looked over: a wrong kind of thing is answered before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from agent_magic.errors import PlanError, shown_value

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan

T = TypeVar("T")


def check_given(plan: Plan) -> None:
    """Raise `PlanError` for values, a name or a description that are none."""
    values: object = plan.values
    if not isinstance(values, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"values={shown_value(values)} gives no name a value. Give {{'name': value, ...}}.")
    for option in ("name", "description"):
        text: object = getattr(plan, option)
        if not isinstance(text, str):
            raise PlanError(f"{option}={shown_value(text)} of a plan cannot work. Give text.")


def each_of(option: str, given: object, kind: type[T]) -> tuple[T, ...]:
    """Return what was given, all of one kind.

    Raises:
        PlanError: Something of it is not.
    """
    way = f"Give {kind.__name__}('name', '...') for each."
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise PlanError(f"{option}={shown_value(given)} is no list. {way}")
    found = tuple(cast("Iterable[object]", given))
    for place, one in enumerate(found):
        if not isinstance(one, kind):
            raise PlanError(f"{option}[{place}] is {shown_value(one)}, no {kind.__name__}. {way}")
    return cast("tuple[T, ...]", found)


def listed(names: object) -> list[str]:
    """Return names as a list; a text is one name, not its letters.

    Raises:
        PlanError: They are neither.
    """
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable):
        raise PlanError(f"{shown_value(names)} names no agents. Give a name, or a list of them.")
    return list(cast("Iterable[str]", names))
