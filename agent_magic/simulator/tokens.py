"""A tokenizer that is only arithmetic: a token is four bytes of UTF-8.

It is used for counting, for billing and for cutting alike, so the numbers of one simulated run always agree.
"""

from __future__ import annotations

from random import Random

BYTES_PER_TOKEN = 4


def _bytes(text: str) -> bytes:
    # A JSON body may hold lone surrogates; they are counted like any other character.
    return text.encode("utf-8", "surrogatepass")


def count(text: str) -> int:
    """Count the tokens of a text; an empty text has none."""
    size = len(text) if text.isascii() else len(_bytes(text))
    return -(-size // BYTES_PER_TOKEN)


def cut(text: str, tokens: int) -> str:
    """Return the longest beginning of a text that has at most so many tokens."""
    if text.isascii():
        return text[: tokens * BYTES_PER_TOKEN]
    return _bytes(text)[: tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")


def pieces(text: str, rng: Random) -> list[str]:
    """Split a text into groups of three to eight tokens, at a space where one is near.

    Args:
        text: The whole answer.
        rng: Decides the sizes; one draw per piece.

    Returns:
        Pieces that joined give the text again. An empty text has no pieces.
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
