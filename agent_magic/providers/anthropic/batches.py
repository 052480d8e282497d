"""Batches of the Messages API.

Counts of a batch are 0 until all of it has ended. A new batch may be unknown (404) for a moment. A broken download may
end between two lines, so readers must count. Source: the vendor's pages on message batches, and the SDK.
"""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent_magic.errors import CallError, Overloaded, RateLimited, Rejected, Unreadable
from agent_magic.providers.anthropic.errors import STATUS_OF_TYPE, AsCallErrors
from agent_magic.providers.anthropic.stream import answer_of, named_stream
from agent_magic.providers.base import BatchItem, BatchState
from agent_magic.providers.responses import (
    SIMULATED_HEADER,
    TOO_MANY,
    count_of,
    excerpt,
    fields_of,
    is_worth_repeating,
    retry_after_s,
)
from agent_magic.providers.transport import bounding_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence

    from anthropic import AsyncAnthropic
    from anthropic.types.messages import MessageBatch

    from agent_magic.record.request import Request

NOT_FOUND = 404
UNANSWERED = frozenset({"canceled", "expired"})
PAGE = 100
TIMEOUT_S = 600.0


class MessageBatches:
    """See `agent_magic.providers.base.Batches`."""

    most_requests = 100_000
    most_bytes = 200_000_000
    """The vendor accepts 256 MB; the rest is for JSON around the texts."""

    def __init__(self, sdk: Callable[[], AsyncAnthropic], body: Callable[[Request], dict[str, Any]]) -> None:
        self._sdk, self._body = sdk, body

    async def create(self, requests: Mapping[str, Request]) -> BatchState:
        asked: Any = [{"custom_id": name, "params": self._body(one)} for name, one in requests.items()]
        sdk = self._sdk()
        with _asking(sdk):
            raw = await sdk.messages.batches.with_raw_response.create(requests=asked, timeout=TIMEOUT_S)
            return _state(await raw.parse())._replace(ask_again_s=retry_after_s(raw.headers))

    async def state(self, batch: str) -> BatchState | None:
        sdk = self._sdk()
        try:
            with _asking(sdk):
                raw = await sdk.messages.batches.with_raw_response.retrieve(batch)
                return _state(await raw.parse())._replace(ask_again_s=retry_after_s(raw.headers))
        except Rejected as error:
            if error.status != NOT_FOUND:
                raise
            return None

    async def recent(self, since: float) -> Sequence[BatchState]:
        sdk, found = self._sdk(), dict[str, BatchState]()
        with _asking(sdk):
            async for one in sdk.messages.batches.list(limit=PAGE):  # the newest first
                state = _state(one)
                if state.created_at < since or state.id in found:  # some servers have no second page
                    break
                found[state.id] = state
        return [*found.values()]

    async def items(self, batch: str) -> AsyncIterator[BatchItem]:
        sdk = self._sdk()
        with _asking(sdk):
            where = _results_of(await sdk.messages.batches.retrieve(batch), batch, str(sdk.base_url))
            options: Any = {"headers": {"Accept": "application/binary"}}
            read = await sdk.get(where, cast_to=object, options=options, stream=True, stream_cls=named_stream())
        with AsCallErrors(None, sdk):
            simulated = SIMULATED_HEADER in read.response.headers
            try:
                async for line in _lines(read.response.aiter_bytes()):
                    yield _item(line, batch, simulated=simulated)._replace(simulated=simulated)
            finally:
                await read.close()

    async def cancel(self, batch: str) -> None:
        sdk = self._sdk()
        with _asking(sdk):
            await sdk.messages.batches.cancel(batch)


@contextmanager
def _asking(sdk: AsyncAnthropic) -> Generator[None]:
    with AsCallErrors(None, sdk), bounding_errors(sdk):
        try:
            yield
        except (AttributeError, TypeError):  # the SDK does not check what it reads
            raise Unreadable("The reply is not the API's. Check base_url (ANTHROPIC_BASE_URL).") from None


def _results_of(said: MessageBatch, batch: str, base_url: str) -> str:
    """Return the address of results, at the server that was asked.

    A gateway may pass on the address of the server behind it, or none. The key belongs to neither.
    """
    told: Any = said.results_url
    parts = urlsplit(told if isinstance(told, str) else "")
    is_here = parts.path != "" and parts[:2] in {("", ""), urlsplit(base_url)[:2]}
    return told if is_here else f"/v1/messages/batches/{batch}/results"


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Skip invalid or torn lines: the SDK would stop at them."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for found in map(_read, whole):
            if found:
                yield found
    if found := _read(rest):
        yield found


def _read(line: bytes) -> dict[str, Any]:
    try:
        return fields_of(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def _state(said: MessageBatch) -> BatchState:
    """Read a batch: one with an id can be found again, whatever else is missing."""
    id_: Any = getattr(said, "id", None)
    if not isinstance(id_, str) or not id_:
        raise Unreadable("The server's batch has no id. Check base_url (ANTHROPIC_BASE_URL).")
    ended = said.processing_status == "ended"
    counts = fields_of(said.to_dict(mode="json", warnings=False).get("request_counts")).values()
    created_at = _seconds_of(said.created_at, math.nan)
    return BatchState(
        id_,
        sum(count_of(one) or 0 for one in counts),
        created_at,
        _seconds_of(said.ended_at, created_at) if ended else None,
        said.cancel_initiated_at is not None or said.processing_status == "canceling",
    )


def _seconds_of(said: Any, otherwise: float) -> float:
    return said.timestamp() if isinstance(said, datetime) else otherwise


def _item(line: dict[str, Any], batch: str, *, simulated: bool) -> BatchItem:
    name, result = str(line.get("custom_id")), fields_of(line.get("result"))
    kind = result.get("type")
    if kind == "succeeded":
        try:
            return BatchItem(
                name, replace(answer_of(fields_of(result.get("message")), simulated=simulated), batch=batch)
            )
        except CallError as error:
            return BatchItem(name, error=error)
    if kind == "errored":
        return _errored(name, fields_of(result.get("error")))
    if kind not in UNANSWERED:  # it may be billed
        shown = excerpt(json.dumps(line.get("result"), ensure_ascii=False))
        return BatchItem(name, error=Unreadable(f"A result of the batch is not the API's: {shown}."))
    return BatchItem(name, cancelled=kind == "canceled")


def _errored(name: str, error: dict[str, Any]) -> BatchItem:
    inner = fields_of(error.get("error")) or error
    status = STATUS_OF_TYPE.get(str(inner.get("type")), 500)
    message = f"{excerpt(inner.get('message') or 'The server gave no reason')} ({status}, in a batch)"
    if status == TOO_MANY:
        return BatchItem(name, error=RateLimited(message), status=status)
    if is_worth_repeating(status, {}):
        return BatchItem(name, error=Overloaded(message, status=status), status=status)
    return BatchItem(name, error=Rejected(message, status=status), status=status)
