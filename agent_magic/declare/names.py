"""Names as Python compares them.

Python normalises names to NFKC: `µ` typed by a keyboard and `μ` of a Greek text are one variable. Names in prompts,
options and rows are compared in that form too.
Source: https://docs.python.org/3/reference/lexical_analysis.html#identifiers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from agent_magic.errors import PlanError


def same_name(name: str) -> str:
    """Return a name in the form in which Python compares it."""
    is_plain = not isinstance(name, str) or name.isascii()  # pyright: ignore[reportUnnecessaryIsInstance]
    return name if is_plain else unicodedata.normalize("NFKC", name)


def find_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name equal to this one; `None` if there is none or several."""
    if name in (names := list(known)):
        return name
    wanted = same_name(name)
    found = [one for one in names if isinstance(one, str) and same_name(one) == wanted]  # pyright: ignore[reportUnnecessaryIsInstance]
    return found[0] if len(found) == 1 else None


def with_same_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by their names in the form in which Python compares them.

    Raises:
        PlanError: Two of them are one name.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        same = same_name(name) if isinstance(name, str) else name  # pyright: ignore[reportUnnecessaryIsInstance]
        if same in found:
            raise PlanError(f"Two values have the name {same!r}, which Python compares as one. Rename one of them.")
        found[same] = value
    return found
