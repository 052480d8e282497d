"""What is known of a request without a complete response: what it used, and who had begun to answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent_magic.errors import LedgerError, NotConnected, NotInBatch, Unreachable
from agent_magic.record.answer import CHARS_PER_TOKEN, NOTHING_USED

if TYPE_CHECKING:
    from agent_magic.providers.base import Stream
    from agent_magic.record.answer import Source, Usage

HTTP_ERROR = 400
PASSED_ON = frozenset({502, 504, 520, 524})
"""What a gateway says when it had passed the request on and got no answer back, or none in time. 503, and 521 to 523,
say that it could not pass it on."""


def partial_usage(stream: Stream, error: Exception | None) -> Usage | None:
    """Say what an attempt without a complete reply has used: nothing, an estimate, or `None` for unknown.

    The API bills nothing for a request that it turned away with an error status, and nobody does for one that never
    left. It bills what a stream had produced before it was cut, but its count comes last: so that is estimated from
    the text. Where a connection broke before the answer began, or a gateway lost the answer or waited too long for it,
    the model may have worked: that may have been billed, and nobody can know.
    """
    if stream.status_code is not None and stream.status_code >= HTTP_ERROR:
        return None if stream.status_code in PASSED_ON else NOTHING_USED
    if stream.usage is None:
        unsent = isinstance(error, NotConnected | LedgerError | NotInBatch) or (
            isinstance(error, Unreachable) and not error.sent
        )
        return NOTHING_USED if unsent else None
    produced = max(stream.usage.output_tokens or 0, -(-len(stream.text) // CHARS_PER_TOKEN))
    return replace(stream.usage, output_tokens=produced, estimated=True)


def source_of(stream: Stream) -> Source | None:
    """Say who had begun to answer."""
    if stream.simulated:
        return "simulated"
    return None if stream.status_code is None else "live"
