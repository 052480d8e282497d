"""Checks of names, options and lists: a value of a wrong type or size is refused before it is used.

Python normalises names to NFKC: `µ` typed by a keyboard and `μ` of a Greek text are one variable, here too. Source:
https://docs.python.org/3/reference/lexical_analysis.html#identifiers.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, Final, TypeVar, cast

from agent_magic.errors import DeclarationError, PlanError, did_you_mean, shown_value

T = TypeVar("T")

RESERVED = frozenset(
    "and or not in is if elif else for true false none True False None loop self super varargs kwargs caller range "
    "recursive ignore missing with without context import include extends block macro call filter set dict".split()
)
"""Words of the template language, which cannot be names."""


def check_name(name: str, what: str = "an agent") -> None:
    """Refuse what cannot be a name in prompts."""
    # Prompts use it as `{{ name }}`, so it must be an identifier and no word of the template language. Python
    # keywords such as `class` are fine.
    kind = what.rsplit(maxsplit=1)[-1]
    if not isinstance(name, str) or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
        better = re.sub(r"\W+", "_", str(name)).strip("_")
        better = better if better.isidentifier() else f"{kind}_{better}" if better else f"my_{kind}"
        message = f"The name of {what} must be one word of letters, digits and underscores, got {shown_value(name)}."
        raise DeclarationError(message, agent=str(name), hint=f"Try {better!r}.")
    if name in RESERVED:
        message = f"{name!r} cannot be the name of {what}: it is a word of the template language."
        raise DeclarationError(message, agent=name, hint=f"Try '{name}_{kind}'.")


NAMING = ("name", "each", "context", "continues", "after", "attach")


def compare_names(step: Any) -> None:
    for option in NAMING:
        given = getattr(step, option, None)
        same = tuple(map(same_name, cast("tuple[str, ...]", given))) if isinstance(given, tuple) else given
        same = same_name(same) if isinstance(same, str) else same
        if same != given:
            object.__setattr__(step, option, same)


BUILTIN: Final = frozenset({str, int, float, bool, tuple, list, NoneType})


def as_builtin(value: Any) -> Any:
    """Return a text or number of a class of its own, such as an enum's or numpy's, as Python's."""
    if isinstance(value, str):
        return str.__str__(value)
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 else value


def make_builtin(given: Any) -> None:
    """Make the texts and numbers in a frozen dataclass Python's own."""
    for one in fields(given):
        if type(value := getattr(given, one.name)) not in BUILTIN:
            object.__setattr__(given, one.name, as_builtin(value))


def is_number(value: object) -> bool:
    """Return False for `True` and `False` too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_word(value: object, words: Iterable[str]) -> bool:
    """Return whether a value is one of these words; comparing a frame with them would raise."""
    return isinstance(value, str) and value in words


def must_be(
    option: str, what: str, value: object, hint: str = "", *, error: Callable[[str], Exception] = DeclarationError
) -> Exception:
    return error(f"{option} must be {what}, got {shown_value(value)}.{hint}")


def check_integer(option: str, value: object, least: float = 1, **more: Any) -> None:
    """Raise unless a value is an integer, and at least this; see `must_be` for `more`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise must_be(option, "an integer" if least == -math.inf else f"an integer >= {least}", value, **more)


def check_positive(option: str, value: object, most: float = math.inf, **more: Any) -> None:
    if not (is_number(value) and 0 < cast("float", value) <= most and value != math.inf):
        raise must_be(option, "a number > 0" if most == math.inf else f"a number > 0 and <= {most:g}", value, **more)


def check_word(option: str, value: object, words: Iterable[str], **more: Any) -> None:
    words = list(words)
    if not is_word(value, words):
        raise must_be(option, f"one of {', '.join(words)}", value, did_you_mean(value, words), **more)


def check_text(option: str, value: object, **more: Any) -> None:
    if not isinstance(value, str):
        raise must_be(option, "a str", value, **more)


def check_mapping(option: str, value: object, hint: str = " Give {'name': value, ...}.") -> None:
    if not isinstance(value, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise must_be(option, "a mapping", value, hint, error=PlanError)


def instances_of(option: str, given: object, kind: type[T], *others: type) -> tuple[T, ...]:
    what, hint = f"a list of {kind.__name__}", f" Give [{kind.__name__}('name', '...'), ...]."
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise must_be(option, what, given, hint, error=PlanError)
    found = tuple(cast("Iterable[object]", given))
    for index, one in enumerate(found):
        if not isinstance(one, (kind, *others)):
            raise must_be(f"{option}[{index}]", f"of type {kind.__name__}", one, hint, error=PlanError)
    return cast("tuple[T, ...]", found)


def names_of(names: object) -> list[str]:
    """Return names as a list; a `str` is one name, not its letters."""
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable):
        raise must_be("names", "a name, or a list of names", names, error=PlanError)
    return list(cast("Iterable[str]", names))


def listed(names: str | Iterable[object] | None) -> tuple[str, ...]:
    """Split `a,b`, or a list; each name once."""
    parts = names.split(",") if isinstance(names, str) else () if names is None else names
    return tuple(dict.fromkeys(text for part in parts if (text := str(as_builtin(part)).strip())))


def same_name(name: str) -> str:
    """Normalise a name as Python does."""
    is_plain = not isinstance(name, str) or name.isascii()  # pyright: ignore[reportUnnecessaryIsInstance]
    return name if is_plain else unicodedata.normalize("NFKC", name)


def find_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name equal to this one; `None` for none or several."""
    if name in (names := list(known)):
        return name
    wanted = same_name(name)
    found = [one for one in names if isinstance(one, str) and same_name(one) == wanted]  # pyright: ignore[reportUnnecessaryIsInstance]
    return found[0] if len(found) == 1 else None


def with_same_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Normalise the names of values; refuse two that are one name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        same = same_name(name) if isinstance(name, str) else name  # pyright: ignore[reportUnnecessaryIsInstance]
        if same in found:
            raise PlanError(f"Two values have the name {same!r}, which Python compares as one. Rename one of them.")
        found[same] = value
    return found
