"""The reply to one request, its usage, and whether two names are of one model."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent_magic.record.request import Message

Source = Literal["live", "ledger", "replay", "simulated", "forecast", "shared", "edited"]
"""`forecast` answers do not exist; `shared` is another step's, `edited` the user's."""

SOURCES: Final = frozenset(get_args(Source))

Status = Literal["pending", "queued", "running", "succeeded", "failed", "skipped", "unused", "cancelled", "capped"]
"""`unused`: a reserved place or round that was not needed. `capped`: a cap on its turns cut it, text kept."""
WITH_ANSWER = frozenset({"succeeded", "capped"})
"""Steps that ended so pass an answer on."""
WITHOUT_ANSWER = frozenset({"failed", "skipped", "cancelled"})


PAUSED = "pause_turn"
TOOL_USE = "tool_use"
"""A turn that asks for tools, never an answer."""
TURNS = frozenset({PAUSED, TOOL_USE})
"""A conversation goes on after these."""
CUT = {
    "max_tokens": "Give it more with --max-tokens.",
    "model_context_window_exceeded": "Give it a shorter prompt.",
}
"""Stop reasons of truncated answers, and remedies."""
TIMED = frozenset({"live", "simulated", "replay", "forecast"})
"""With seconds of a model's work."""
NOT_REUSED = frozenset({"refusal", PAUSED})
"""Bought again. An answer cut at `max_tokens` is served: a new one would be cut too."""
ESCALATED = "Escalated"
"""The cascade rejected the answer and asks the next model."""
CHARS_PER_TOKEN = 4
"""The usual rule of thumb for English, for texts that were not counted."""


BYTES_PER_TOKEN = 4
"""Of output: letters of other scripts take several bytes, and more tokens."""


def utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimated_tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the API bills them. `None` means unknown, never 0.

    Only a *final* count, the server's last word, settles a reserve of the budget.

    Attributes:
        input_tokens: Uncached input.
        cache_write_tokens: For 5 minutes and 1 hour together.
        output_tokens: Output, thinking included.
        searches: Web searches by the provider, which are billed one by one.
    """

    input_tokens: int | None = None
    cache_read_tokens: int | None = field(default=None, kw_only=True)
    cache_write_tokens: int | None = field(default=None, kw_only=True)
    output_tokens: int | None = field(default=None, kw_only=True)
    cache_write_1h_tokens: int = field(default=0, kw_only=True)
    searches: int = field(default=0, kw_only=True)
    estimated: bool = field(default=False, kw_only=True)

    @property
    def total_input_tokens(self) -> int | None:
        """Uncached, read and written."""
        if self.input_tokens is None:
            return None
        return self.input_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)

    @property
    def is_unknown(self) -> bool:
        return self.total_input_tokens is None and self.output_tokens is None

    @property
    def is_final(self) -> bool:
        return not self.estimated and self.input_tokens is not None and self.output_tokens is not None

    @property
    def limited_input_tokens(self) -> int | None:
        """What counts against a rate limit: uncached and written input, not read."""
        return None if self.input_tokens is None else self.input_tokens + (self.cache_write_tokens or 0)


NOTHING_USED = Usage(0, cache_read_tokens=0, cache_write_tokens=0, output_tokens=0)
"""A rejected request is not billed."""


class Citation(NamedTuple):
    """A quote from a document for a part of the answer; `where` is such as `page 3`."""

    text: str
    title: str
    where: str
    cited_text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete reply.

    Attributes:
        stop_reason: The API's reason, such as `end_turn` or `max_tokens`.
        refusal: Category of a refusal, if it is one.
        content: Content blocks as JSON, if the conversation continues from them.
        batch: The vendor's batch id.
        original: The model's text of an edited answer.
        turns: Calls of tools before this answer, if taken over from an earlier run.
    """

    text: str
    stop_reason: str
    usage: Usage = field(kw_only=True)
    model: str = field(kw_only=True)
    source: Source = field(default="live", kw_only=True)
    request_id: str | None = field(default=None, kw_only=True)
    refusal: str | None = field(default=None, kw_only=True)
    content: str | None = field(default=None, kw_only=True)
    citations: tuple[Citation, ...] = field(default=(), kw_only=True)
    batch: str = field(default="", kw_only=True)
    edited: bool = field(default=False, kw_only=True)
    original: str = field(default="", kw_only=True)
    turns: tuple[Message, ...] = field(default=(), kw_only=True)


class Price(NamedTuple):
    """`basis` is the source of the price, such as `genai-prices 0.2.3` or `given`."""

    cost_usd: float | None
    basis: str


PAID_BEFORE = Price(0.0, "paid before")
SHARED = Price(0.0, "shared")
NOT_BILLED = Price(0.0, "not billed")


def add_usage(parts: Iterable[Usage]) -> Usage:
    parts = list(parts)
    return Usage(
        total_tokens(one.input_tokens for one in parts),
        cache_read_tokens=total_tokens(one.cache_read_tokens for one in parts),
        cache_write_tokens=total_tokens(one.cache_write_tokens for one in parts),
        output_tokens=total_tokens(one.output_tokens for one in parts),
        cache_write_1h_tokens=sum(one.cache_write_1h_tokens for one in parts),
        searches=sum(one.searches for one in parts),
        estimated=any(one.estimated for one in parts),
    )


def total_tokens(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def total_usd(costs: Iterable[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None


def is_reusable(answer: Answer, *, simulated: bool = False) -> bool:
    """Return whether an answer is bought (or simulated, if wanted), complete and no refusal."""
    # A paused answer is not complete, but its continuation is bought only once if the pause is served again.
    bought = answer.source == "live" or (simulated and answer.source == "simulated")
    continues = answer.stop_reason == PAUSED and answer.content is not None
    return bought and (continues or answer.stop_reason not in NOT_REUSED)


_FORM = re.compile(
    r"(?:-v\d+)?[-@](?:20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|20\d\d-\d\d-\d\d|latest|default)$"
    r"|-v1$|-v\d+:\d+$"
)
"""A date, `-latest`, and the versions that clouds add.

Source: the vendor's pages on model names, and on Amazon Bedrock and Google's Vertex.
"""
_DATE = re.compile(r"(?<!\d)20\d\d-?\d\d-?\d\d(?!\d)")


def undated(name: str) -> str:
    return _FORM.sub("", name)


def plain_name(name: str) -> str:
    short = undated(name.lower().rstrip("@"))
    return short if short == name.lower() else plain_name(short)


def is_same_model(asked: str, answered: str) -> bool:
    """Return whether two names mean one model, dated or not, with a seller's prefix or not."""
    if asked == answered:
        return True
    dates = [_DATE.findall(one)[-1:] for one in (asked, answered)]
    if all(dates) and dates[0] != dates[1]:
        return False
    plain, other = sorted(map(plain_name, (asked, answered)), key=len)
    return ends_with(other, plain)


def ends_with(name: str, part: str) -> bool:
    """Return whether a name ends with another, after nothing or a seller's prefix: `eu.anthropic.`, `anthropic/`."""
    return name == part or name.endswith((f".{part}", f"/{part}"))
