"""Bodies of requests and responses of any API: pass-through options, and complete JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


def with_options(found: dict[str, Any], options: dict[str, Any], called: Mapping[str, str]) -> dict[str, Any]:
    """Add pass-through options to a body, by the API's names if they differ.

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


def is_json(body: bytes) -> bool:
    """Return whether the bytes are a complete JSON object."""
    if not (body.lstrip().startswith(b"{") and body.rstrip().endswith(b"}")):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


async def read_json(chunks: AsyncIterator[bytes]) -> bytes:
    """Return a body up to the end of its JSON object: some servers never end the response."""
    body = b""
    async for chunk in chunks:
        body += chunk
        if is_json(body):
            break
    return body
