"""Input tokens of uncounted requests, from their characters and from counted ones.

More than the text is billed: typed answers and tools add instructions known only to the provider, and characters per
token depend on the model. Requests of one kind differ in their text alone, so a few counts estimate the others.
"""

from __future__ import annotations

from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.record.answer import CHARS_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.record.request import Kind, Request

WIDE: Final = 400
"""Minimum difference in characters of counted requests to estimate tokens per character, because of rounding."""


class Rule(NamedTuple):
    """The tokens of a request of one kind.

    Attributes:
        per_character: Tokens per character of its text.
        more: Tokens beside that.
    """

    per_character: float = 1 / CHARS_PER_TOKEN
    more: float = 1.0

    def tokens(self, request: Request) -> int:
        """Return the tokens of a request, its pictures and PDFs left out."""
        return max(1, int(self.per_character * characters(request) + self.more))


BY_CHARACTERS: Final = Rule()
"""The rule of a kind without counts."""


def characters(request: Request) -> int:
    """Return the characters of all text of a request."""
    return sum(map(len, request.texts()))


def rules_of(requests: Sequence[Request], counted: Sequence[int | None], attached: Sequence[int]) -> dict[Kind, Rule]:
    """Return the rules for each kind of request from the counted ones.

    Args:
        requests: All requests.
        counted: Input tokens per request, if counted.
        attached: Tokens of each request's pictures and PDFs.
    """
    known: dict[Kind, list[tuple[int, int]]] = {}
    for request, tokens, files in zip(requests, counted, attached, strict=True):
        if tokens is not None:
            known.setdefault(request.kind, []).append((characters(request), tokens - files))
    return {kind: _rule(pairs) for kind, pairs in known.items()}


def _rule(pairs: Sequence[tuple[int, int]]) -> Rule:
    lengths, tokens = zip(*pairs, strict=True)
    if max(lengths) - min(lengths) >= WIDE:
        line = linear_regression(lengths, tokens)
        if line.slope > 0:
            return Rule(line.slope, line.intercept + 0.5)
    more = fmean(size - length / CHARS_PER_TOKEN for length, size in pairs)
    return Rule(more=more + 0.5)
