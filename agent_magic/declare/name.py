"""Which names prompts can name."""

from __future__ import annotations

import re

from agent_magic.errors import DeclarationError

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
