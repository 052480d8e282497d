"""Token counts by arithmetic: a token is four bytes of UTF-8.

Counting, billing and cutting use the same rule, so the numbers of a simulated run agree.
"""

from __future__ import annotations

import base64
import math
from random import Random

BYTES_PER_TOKEN = 4
PNG_HEADER = b"\x89PNG\r\n\x1a\n"
PATCH = 28
"""A picture costs one token for every patch of 28 x 28 pixels. Source: the vendor's page on vision."""


def _bytes(text: str) -> bytes:
    # A JSON body may have lone surrogates, which count like other characters.
    return text.encode("utf-8", "surrogatepass")


def count(text: str) -> int:
    """Count the tokens of a text."""
    size = len(text) if text.isascii() else len(_bytes(text))
    return -(-size // BYTES_PER_TOKEN)


def cut(text: str, tokens: int) -> str:
    """Cut a text to at most so many tokens."""
    if text.isascii():
        return text[: tokens * BYTES_PER_TOKEN]
    return _bytes(text)[: tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")


def pieces(text: str, rng: Random) -> list[str]:
    """Split a text into pieces of three to eight tokens, at spaces if possible.

    Args:
        text: The whole text.
        rng: Draws the sizes, one draw per piece.

    Returns:
        The pieces, whose join is the text. An empty text has none.
    """
    found: list[str] = []
    start = 0
    while start < len(text):
        size = int(12 + 20 * rng.random())
        space = text.find(" ", start + size, start + size + 12)
        end = space if space > 0 else start + size
        found.append(text[start:end])
        start = end
    return found


def png_size(data: str) -> tuple[int, int] | None:
    """Return width and height of a base64 PNG, or `None` if it is something else."""
    try:
        header = base64.b64decode(data[:32])
    except ValueError:
        return None
    if not header.startswith(PNG_HEADER) or len(header) < 24:
        return None
    size = int.from_bytes(header[16:20]), int.from_bytes(header[20:24])
    return size if all(size) else None


def of_picture(size: tuple[int, int], longest: int, most: int) -> int:
    """Count the tokens of a picture.

    Args:
        size: Width and height in pixels.
        longest: A longer side is scaled down to this.
        most: A picture of more tokens is scaled down until it has no more than these.
    """
    scale = min(1.0, longest / max(size))
    while True:
        # Minus 1e-9, so that a side of a whole number of patches is not rounded up.
        columns, rows = (max(1, math.ceil(side * scale / PATCH - 1e-9)) for side in size)
        if columns * rows <= most:
            return columns * rows
        scale = max((columns - 1) * PATCH / size[0], (rows - 1) * PATCH / size[1])
