"""Options of an agent that pass through to the body of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Mapping


def with_options(found: dict[str, Any], options: dict[str, Any], called: Mapping[str, str]) -> dict[str, Any]:
    """Add pass-through options to a body.

    Args:
        found: The body without them.
        options: The options by name.
        called: The API's names of options, if they differ.

    Raises:
        DeclarationError: A field of `extra` belongs to another option.
    """
    extra = options.pop("extra", {})
    found |= {called.get(name, name): value for name, value in options.items()}
    for name in extra:
        if name in found:
            message = f"extra has {name!r}, and the request has that field by another option."
            raise DeclarationError(message, hint="Take it out of extra.")
    return found | extra
