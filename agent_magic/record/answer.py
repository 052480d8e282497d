"""What came back from one request, and what it used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

Source = Literal["live", "ledger", "replay", "simulated", "forecast"]
"""Where a result came from: bought now, bought earlier, a cassette, the mock server, or nowhere: it is a forecast."""

Status = Literal["pending", "queued", "running", "succeeded", "failed", "skipped", "unused", "cancelled", "capped"]
"""The state of an agent. `skipped`: an ancestor did not succeed, or a condition is false. `unused`: a place or a round
that was reserved and not needed. `capped`: a cap on its turns cut it, text kept."""


PAUSED = "pause_turn"
"""The stop reason of an answer that is to go on from where it stopped."""
TOOL_USE = "tool_use"
"""The stop reason of a response that asks for tools: a turn, never an answer."""
TURNS = frozenset({PAUSED, TOOL_USE})
"""The stop reasons after which a conversation goes on."""
ESCALATED = "Escalated"
"""The kind of an attempt whose answer was not sure enough, so that the next model of its cascade was asked."""
CHARS_PER_TOKEN = 4
"""The usual rule of thumb for English, for texts nobody has counted yet."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the API bills them. `None` is unknown, never 0.

    Attributes:
        input_tokens: Input that neither came from the cache nor went into it.
        cache_read_tokens: Input read from the prompt cache.
        cache_write_tokens: Input written to the prompt cache, for 5 minutes and for 1 hour together.
        output_tokens: Output, thinking included.
        cache_write_1h_tokens: The part of `cache_write_tokens` that was written for 1 hour.
        searches: Searches of the web that the provider made, which it bills one by one.
        estimated: Whether the output was counted by us from the text that had arrived, because the stream was cut.
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
        """All input: uncached, read and written. `None` where nothing is known."""
        if self.input_tokens is None:
            return None
        return self.input_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)

    @property
    def limited_input_tokens(self) -> int | None:
        """What counts against a limit of input: uncached and written, not read. `None` where nothing is known."""
        return None if self.input_tokens is None else self.input_tokens + (self.cache_write_tokens or 0)


NOTHING_USED = Usage(0, cache_read_tokens=0, cache_write_tokens=0, output_tokens=0)
"""The usage of a request that the API turned away: it bills nothing for those."""


class Citation(NamedTuple):
    """A place of a document that an answer quotes.

    Attributes:
        text: The part of the answer that rests on it.
        title: What the document is called.
        where: The place in it, such as `page 3` or `characters 10-52`.
        cited_text: What stands there.
    """

    text: str
    title: str
    where: str
    cited_text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete reply: it has a `stop_reason`.

    Attributes:
        text: The text blocks, joined.
        stop_reason: As the API names it, such as `end_turn` or `max_tokens`.
        usage: Tokens.
        model: The model that answered, as the reply names it.
        source: Where it came from.
        request_id: The server's id of the request.
        refusal: The category of a refusal, `None` otherwise.
        content: The content blocks as JSON, of an answer that the API paused, to go on from; `None` otherwise.
        citations: The places of documents that it quotes, in the order of the text.
        batch: The vendor's id of the batch it came with; empty where it was asked live.
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


class Price(NamedTuple):
    """What an attempt cost.

    Attributes:
        cost_usd: Dollars; `None` where the price is unknown.
        basis: Where the price is from, such as `genai-prices 0.2.3` or `given`.
    """

    cost_usd: float | None
    basis: str


PAID_BEFORE = Price(0.0, "paid before")
"""Of an answer that was there already: from the ledger, or taken over from an earlier run."""
NOT_BILLED = Price(0.0, "not billed")
"""Of a request that was never sent, or that the provider refused."""


def add_usage(parts: Iterable[Usage]) -> Usage:
    """Add token counts up. A count is `None` where no part knows it."""
    parts = list(parts)

    def total(values: list[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return Usage(
        total([one.input_tokens for one in parts]),
        cache_read_tokens=total([one.cache_read_tokens for one in parts]),
        cache_write_tokens=total([one.cache_write_tokens for one in parts]),
        output_tokens=total([one.output_tokens for one in parts]),
        cache_write_1h_tokens=sum(one.cache_write_1h_tokens for one in parts),
        searches=sum(one.searches for one in parts),
        estimated=any(one.estimated for one in parts),
    )
