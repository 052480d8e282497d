"""The usage of a request, as far as it is known: a final count, a marked estimate, or unknown.

Without a final count the engine keeps its reservation against the budget, since all of it may be billed, and shows an
estimate from what arrived: at least the running count, at most the requested tokens; without any count, nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent_magic.declare.content import tokens_of
from agent_magic.engine.requests import OVERHEAD_TOKENS
from agent_magic.errors import LedgerError, NotConnected, NotInBatch, Rejected, Unreachable
from agent_magic.record.answer import CHARS_PER_TOKEN, NOTHING_USED, Usage, estimated_tokens, utf8_length

if TYPE_CHECKING:
    from agent_magic.declare.content import TokenRule
    from agent_magic.providers.base import Stream
    from agent_magic.record.answer import Answer, Source
    from agent_magic.record.request import Request

HTTP_ERROR = 400
PASSED_ON = frozenset({408, 499, 502, 504, 520, 524, 598, 599})
"""Statuses of a gateway that passed the request on and got no answer in time; 503 and 521 to 523 did not."""
MOST_INPUT_TOKENS = 10_000_000
"""A larger input is not credible: ten times the longest context."""
LONGEST_TOKEN = 64
"""Bytes: fewer tokens than an answer's bytes divided by this are not credible. Rows of blanks have the most."""


def settled(answer: Answer, request: Request, stream: Stream, rule: TokenRule | None, most_searches: int) -> Answer:
    """Return an answer with a credible usage: as reported, or else estimated."""
    # A server may count nothing although it wrote something, or more than was requested. Such a count is not final.
    usage, text = answer.usage, answer.text
    made, taken = usage.output_tokens, usage.total_input_tokens
    if made is None and taken is None:
        return answer
    if usage.searches > most_searches:
        answer = replace(answer, usage=(usage := replace(usage, searches=most_searches)))
    streamed = stream.produced_bytes
    least = max(utf8_length(text), streamed) // LONGEST_TOKEN + (1 if text or answer.content else 0)
    fits = made is not None and least <= made <= request.most_output_tokens
    if fits and not usage.estimated and taken is not None and 0 < taken <= MOST_INPUT_TOKENS:
        return answer
    if not fits:
        usage = replace(usage, output_tokens=None)
    arrived = estimated_tokens(streamed or utf8_length(text if answer.content is None else answer.content))
    return replace(answer, usage=_estimate(usage, request, arrived, rule))


def partial_usage(stream: Stream, error: Exception | None, request: Request, rule: TokenRule | None) -> Usage | None:
    """Return the usage of an attempt without a complete response: zero, an estimate, or None if unknown.

    A cut stream is billed for its output, but the count comes last. If a connection broke before the answer
    began, or a gateway lost it, the model may have worked: it is unknown if that is billed.
    """
    if stream.status_code is not None and stream.status_code >= HTTP_ERROR:
        return None if stream.status_code in PASSED_ON else NOTHING_USED
    so_far = stream.usage_so_far
    if so_far is not None:
        return _estimate(so_far, request, stream.produced_tokens, rule)
    return NOTHING_USED if stream.usage is None and _is_free(error) else None


def _is_free(error: Exception | None) -> bool:
    """Return whether nothing can be billed: nothing was sent, or the batch did not process it."""
    if isinstance(error, NotInBatch):
        return not error.billed
    if isinstance(error, Rejected):
        return error.status is None
    return isinstance(error, NotConnected | LedgerError) or (isinstance(error, Unreachable) and not error.sent)


def _estimate(usage: Usage, request: Request, arrived: int, rule: TokenRule | None) -> Usage:
    made = min(max(usage.output_tokens or 0, arrived), request.most_output_tokens)
    if 0 < (usage.total_input_tokens or 0) <= MOST_INPUT_TOKENS:
        return replace(usage, output_tokens=made, estimated=True)
    size = sum(map(len, request.texts())) // CHARS_PER_TOKEN + OVERHEAD_TOKENS
    size += tokens_of(request.files, rule)[0] if request.files else 0
    return Usage(size, output_tokens=made, searches=usage.searches, estimated=True)


def source_of(stream: Stream) -> Source | None:
    if stream.simulated:
        return "simulated"
    return None if stream.status_code is None else "live"
