"""Token counts by arithmetic: a token is four bytes of UTF-8, in counting, billing and cutting."""

from __future__ import annotations

from random import Random

BYTES_PER_TOKEN = 4


def _bytes(text: str) -> bytes:
    # A JSON body may have lone surrogates, which count like other characters.
    return text.encode("utf-8", "surrogatepass")


def count(text: str) -> int:
    size = len(text) if text.isascii() else len(_bytes(text))
    return -(-size // BYTES_PER_TOKEN)


def cut(text: str, tokens: int) -> str:
    if text.isascii():
        return text[: tokens * BYTES_PER_TOKEN]
    return _bytes(text)[: tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")


def pieces(text: str, rng: Random) -> list[str]:
    """Three to eight tokens each, split at spaces if possible."""
    found: list[str] = []
    start = 0
    while start < len(text):
        size = int(12 + 20 * rng.random())
        space = text.find(" ", start + size, start + size + 12)
        end = space if space > 0 else start + size
        found.append(text[start:end])
        start = end
    return found
