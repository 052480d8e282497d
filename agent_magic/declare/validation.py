"""What names, options and lists may be. A wrong kind of value is answered here, before anything is made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from agent_magic.errors import DeclarationError, PlanError, shown_value

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan

T = TypeVar("T")

RESERVED = frozenset(
    "and or not in is if elif else for true false none True False None loop self super varargs kwargs caller range "
    "recursive ignore missing with without context import include extends block macro call filter set dict".split()
)
"""Words the template language reads as its own, so nothing that prompts name can be called so."""


def check_name(name: str, what: str = "an agent") -> None:
    """Raise `DeclarationError` unless `name` can be the name of an agent, or of what else prompts name.

    It stands in prompts as `{{ name }}`, so it has to be an identifier and none of the template language's own words.
    Python keywords such as `class` are fine.
    """
    kind = what.rsplit(maxsplit=1)[-1]
    if not isinstance(name, str) or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
        better = re.sub(r"\W+", "_", str(name)).strip("_")
        better = better if better.isidentifier() else f"{kind}_{better}" if better else f"my_{kind}"
        message = f"{name!r} cannot be {what}'s name: it has to be one word of letters, digits and underscores."
        raise DeclarationError(message, agent=str(name), hint=f"Try {better!r}.")
    if name in RESERVED:
        message = f"{name!r} cannot be {what}'s name: prompts read it as a word of the template language."
        raise DeclarationError(message, agent=name, hint=f"Try '{name}_{kind}'.")


def is_number(value: object) -> bool:
    """Tell whether a value is a number; `True` and `False` are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_word(value: object, words: Iterable[str]) -> bool:
    """Tell whether a value is one of these words; a frame is none, and cannot be asked."""
    return isinstance(value, str) and value in words


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
