"""Pictures and documents as thumbnails, or as a line: `[image fig: 640x480, about 414 tokens]`."""

from __future__ import annotations

import base64
import importlib
import io
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agent_magic.declare.content import PLAIN_TEXT
from agent_magic.declare.units import plural
from agent_magic.record.answer import CHARS_PER_TOKEN
from agent_magic.record.display import single_line
from agent_magic.show.markup import escape
from agent_magic.show.theme import SOFT, box

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.declare.content import Attachment, Prompt, TokenRule

MOST_BYTES = 24_000
"""A smaller picture is its own thumbnail."""
MOST_PX = (240, 160)
MOST_SHOWN = 6
_SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def words(one: Attachment, rule: TokenRule | None) -> str:
    if one.media_type == PLAIN_TEXT:
        tokens = f", about {one.size // CHARS_PER_TOKEN + 1:,} tokens"
    else:
        known = None if rule is None else rule.tokens(one)
        tokens = "" if known is None else f", about {known[0]:,} tokens"
    return f"[{one.kind} {single_line(one.title)}: {one.facts}{tokens}]"


def prompt_words(prompt: Prompt, rule: TokenRule | None) -> str:
    text, end = "", 0
    for at, one in prompt.attachments:
        text += prompt.text[end:at] + words(one, rule)
        end = at + len(one.label)
    return text + prompt.text[end:]


def thumbnail(one: Attachment) -> str:
    return _uri(one, one.data) if one.kind == "image" and one.data and one.media_type in _SHOWN else ""


@lru_cache(maxsize=64)
def _uri(one: Attachment, data: bytes) -> str:
    media_type = one.media_type
    if len(data) > MOST_BYTES:
        media_type, data = "image/png", _smaller(data)
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}" if 0 < len(data) <= MOST_BYTES else ""


def _smaller(data: bytes) -> bytes:
    """Shrink a picture only if PIL is already loaded, since the data is not trusted."""
    if "PIL" not in sys.modules:
        return b""
    try:
        picture: Any = importlib.import_module("PIL.Image").open(io.BytesIO(data))
        for by in (1, 2, 4):  # a noisy one takes more bytes
            drawn = io.BytesIO()
            picture.thumbnail((MOST_PX[0] // by, MOST_PX[1] // by))
            picture.convert("RGB").quantize(64).save(drawn, "PNG")
            if drawn.tell() <= MOST_BYTES:
                return drawn.getvalue()
    except (OSError, ValueError, SyntaxError, ArithmeticError):
        pass
    return b""


def thumbnails(attachments: Iterable[Attachment]) -> list[dict[str, str]]:
    shown = [{"src": src, "label": f"{one.label} {one.facts}"} for one in attachments if (src := thumbnail(one))]
    return shown[:MOST_SHOWN]


def attachments_card(attachments: Iterable[Attachment], rule: TokenRule | None) -> dict[str, str]:
    """Return each attachment of a plan once: thumbnails with captions."""
    once = list({one.sha256: one for one in attachments}.values())
    more = f"and {plural(len(once) - MOST_SHOWN, 'more attachment')}" if len(once) > MOST_SHOWN else ""
    lines = [words(one, rule) for one in once[:MOST_SHOWN]]
    figures = [_figure(one, line) for one, line in zip(once[:MOST_SHOWN], lines, strict=True)]
    rest = f'<span style="{SOFT}">{escape(more)}</span>' if more else ""
    return {
        "text/html": f"{box()}{''.join(figures)}{rest}</div>",
        "text/plain": "\n".join([*lines, *([more] if more else [])]),
    }


def _figure(one: Attachment, line: str) -> str:
    src = thumbnail(one)
    size = f"max-width:{MOST_PX[0]}px;max-height:{MOST_PX[1]}px"
    picture = f'<img src="{escape(src)}" alt="{escape(one.label)}" style="{size};display:block">' if src else ""
    return (
        f'<span style="display:inline-block;vertical-align:top;margin:0 12px 6px 0">{picture}'
        f'<span style="{SOFT}">{escape(line.strip("[]"))}</span></span>'
    )
