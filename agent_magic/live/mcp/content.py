"""Content blocks of a server of the Model Context Protocol, as a model gets them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.values import PDF, pdf, picture_of
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.declare.content import Attachment


def part_of(block: Mapping[str, Any]) -> str | Attachment:
    """Return a content block as a text, a picture or a PDF, or the name of another type."""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    found: Any = block.get("resource") or block
    held = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if isinstance(held.get("text"), str):
        return str(held["text"])
    media_type = str(held.get("mimeType") or "")
    why = media_type or held.get("uri") or "no text"
    title = str(held.get("uri") or "").rpartition("/")[2] or f"of {media_type}"
    data = held.get("blob") or (held.get("data") if block.get("type") == "image" else None)
    try:
        if isinstance(data, str) and media_type.startswith("image/"):
            return picture_of(base64.b64decode(data, validate=True), title)
        if isinstance(data, str) and media_type == PDF:
            return pdf(base64.b64decode(data, validate=True), title=title)
    except (ValueError, DeclarationError) as error:
        why = f"{media_type}; {error if isinstance(error, DeclarationError) else 'its data is no base64'}"
    return f"({block.get('type', 'something')} left out: {why})"
