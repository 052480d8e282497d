"""Reading a reply: the events of a stream, or a message in one piece, as the JSON they came as."""

from __future__ import annotations

import functools
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from agent_magic.errors import Truncated, Unreadable
from agent_magic.providers.anthropic.blocks import Blocks
from agent_magic.providers.anthropic.drain import drain, within
from agent_magic.providers.anthropic.errors import excerpt, note_response, raised_by_sdk
from agent_magic.record.answer import PAUSED, Answer, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anthropic import AsyncStream
    from httpx2 import Response

    from agent_magic.providers.base import Stream
    from agent_magic.record.request import Request

Json = dict[str, Any]

NOTHING_KNOWN = Usage()
_NO_FIELDS: Json = {}
EVENTS, PAGE = "text/event-stream", "text/html"
IN_ONE_PIECE = frozenset({"application/json", PAGE})
"""Kinds of content that are no stream. Whatever else a server calls its reply, events tell that it is one."""
MOST_TOKENS = 2**48
"""More than this is no count of tokens."""
DRAIN_S = 0.25
"""How long to wait for the end of a connection whose answer is complete."""
ENDING_S = 2.0
"""How long to wait for the last event once the `stop_reason` is here: a second count of tokens may still come."""


def plain(events: AsyncStream[Any], sdk: object) -> AsyncStream[Any]:
    """Have the events of a stream as the JSON they came as, with the decoder and the errors of the client.

    Events without a name, which the SDK would drop, take it from their data. What is not the SDK's own stays as it is:
    a stream or a client of another kind, and a stream that a tracer watches, which needs the SDK's objects.
    """
    import anthropic

    if type(events) is not anthropic.AsyncStream or not isinstance(sdk, anthropic.AsyncAnthropic):
        return events
    if getattr(events.response.stream, "stream_observer", None) is not None:
        return events
    return _named_stream()(cast_to=object, response=events.response, client=sdk)


@functools.lru_cache(maxsize=1)
def _named_stream() -> type[AsyncStream[Any]]:
    """Return the SDK's stream, but for one thing: servers that leave the `event:` lines out are read as well."""
    import anthropic

    class NamedStream(anthropic.AsyncStream[Any]):
        async def _iter_events(self) -> AsyncIterator[Any]:
            async for sse in super()._iter_events():
                yield sse if sse.event else type(sse)(event=_type_of(sse.data), data=sse.data)

    return NamedStream


def _type_of(data: str) -> str | None:
    """Return what the data of an event says that it is; `None` where it says nothing."""
    try:
        return _word(_fields(json.loads(data)).get("type"))
    except (ValueError, RecursionError):
        return None


async def collect(events: AsyncStream[Any], request: Request, stream: Stream) -> Answer:
    """Read a stream to its end.

    Raises:
        Truncated: It ended without a `stop_reason`.
        Unreadable: It is no event stream, or its events are not the API's.
    """
    response = events.response
    headers = note_response(stream, response)
    ending = _Ending(request.model, headers.get("request-id"))
    named = headers.get("content-type", "")
    kind = named.partition(";")[0].strip().lower()
    try:
        if kind in IN_ONE_PIECE or kind.endswith("+json"):
            _whole(response, kind, (await response.aread()).decode("utf-8", "replace"), ending, stream)
        else:
            await _read(events, ending, stream)
            if not ending.begun and kind != EVENTS:
                raise Unreadable(f"The reply is no event stream but {named or 'nothing'!r}.")
    except (AttributeError, TypeError) as error:  # nobody has checked the fields of an event before
        if stream.answer is None:
            raise Unreadable(f"An event of the stream is not the API's: {excerpt(error)}.") from None
    return stream.answer or ending.answer(stream)


async def _read(events: AsyncStream[Any], ending: _Ending, stream: Stream) -> None:
    """Read the events. What breaks after the `stop_reason` breaks an answer no more: it is complete and paid for."""
    reading = aiter(events)
    try:
        async for event in reading:
            if ending.see(_as_json(event), stream):
                break
            if stream.answer is not None:
                await within(ENDING_S, _read_on(reading, ending, stream))
                break
        with suppress(TimeoutError):  # a connection whose end is read can serve the next request
            await drain(reading, DRAIN_S)
    except raised_by_sdk():
        if stream.answer is None:
            raise


async def _read_on(reading: AsyncIterator[Any], ending: _Ending, stream: Stream) -> None:
    """Read what follows the `stop_reason`."""
    async for event in reading:
        if ending.see(_as_json(event), stream):
            return


def _as_json(event: Any) -> Json:
    """Return an event as it came; an object of the SDK is taken apart again."""
    return cast("Json", event) if isinstance(event, dict) else event.to_dict(mode="python", warnings=False)


class _Ending:
    """Collects what a reply says besides its text."""

    def __init__(self, model: str, request_id: str | None) -> None:
        self.model, self.request_id = model, request_id
        self.begun = False
        self.stop_reason: str | None = None
        self.refusal: str | None = None
        self.blocks = Blocks()

    def see(self, event: Json, stream: Stream) -> bool:
        """Take an event of a stream in; tell whether it was the last."""
        kind = event.get("type")
        self.begun = True
        if kind == "content_block_delta":
            delta: Any = event.get("delta")
            if delta.get("type") == "text_delta":
                stream.add(delta.get("text"))
            else:
                self.blocks.add(delta)
                stream.began()
        elif kind == "content_block_start":
            self._open(event.get("content_block"), stream)
        elif kind == "message_start":
            message: Any = event.get("message")
            self.model = _word(message.get("model")) or self.model
            stream.usage = _usage(message.get("usage"), None)
            stream.opened()
        elif kind == "message_delta":
            self.take(event.get("delta"))
            stream.usage = _usage(event.get("usage"), stream.usage)
            if self.stop_reason is not None:
                stream.answer = self.answer(stream)
        return kind == "message_stop"

    def take(self, ending: Any) -> None:
        """Read `stop_reason` and `stop_details` of a message, or of its last delta."""
        self.stop_reason = _word(ending.get("stop_reason")) or self.stop_reason
        if self.stop_reason == "refusal":
            self.refusal = _word(_fields(ending.get("stop_details")).get("category")) or "unnamed"

    def _open(self, block: Any, stream: Stream) -> None:
        """Take in that a block begins. The API's begin empty, those of other servers may bring text along."""
        self.blocks.open(block, stream)
        fields = _fields(block)
        if fields.get("type") == "text" and fields.get("text"):
            stream.add(fields["text"])

    def answer(self, stream: Stream) -> Answer:
        """Make the answer of what has arrived.

        Raises:
            Truncated: There was no `stop_reason`.
        """
        if self.stop_reason is None:
            raise Truncated("The stream ended before the answer did (no stop_reason).")
        return Answer(
            stream.text,
            self.stop_reason,
            usage=stream.usage or Usage(),
            model=self.model,
            source="simulated" if stream.simulated else "live",
            request_id=self.request_id,
            refusal=self.refusal,
            content=self.blocks.as_json(stream) if self.stop_reason == PAUSED else None,
        )


def _whole(response: Response, kind: str, body: str, ending: _Ending, stream: Stream) -> None:
    """Read a reply that came in one piece although a stream was asked for."""
    import anthropic

    message = _fields(None if kind == PAGE else json.loads(body))
    if message.get("type") == "error":
        raise anthropic.APIStatusError(excerpt(body), response=response, body=message)
    if message.get("type") != "message":
        raise Unreadable(f"The reply is no event stream but {kind or 'nothing'!r}: {excerpt(body)!r}.")
    for block in message.get("content") or ():
        ending.blocks.open(block, stream)
        if block.get("type") == "text":
            stream.add(block.get("text"))
    stream.usage = _usage(message.get("usage"), None)
    ending.model = _word(message.get("model")) or ending.model
    ending.take(message)


def counted(said: Any) -> int:
    """Read what the count endpoint says.

    Raises:
        Unreadable: It is no number of tokens.
    """
    count = _count(said, None)
    if count is None:
        raise Unreadable("The server's count of tokens is none. Check ANTHROPIC_BASE_URL if you set it.")
    return count


def _count(said: Any, before: int | None) -> int | None:
    """Read a number of tokens; what cannot be one says nothing."""
    return said if type(said) is int and 0 <= said <= MOST_TOKENS else before


def _usage(now: Any, before: Usage | None) -> Usage | None:
    """Read the token counts of an event. Counts are cumulative, and those left out keep their value."""
    if now is None:
        return before
    before = before or NOTHING_KNOWN
    known = _fields(now).get
    long = _fields(known("cache_creation")).get("ephemeral_1h_input_tokens")
    taken, read = known("input_tokens"), known("cache_read_input_tokens")
    written, made = known("cache_creation_input_tokens"), known("output_tokens")
    return Usage(
        _count(taken, before.input_tokens),
        cache_read_tokens=_count(read, before.cache_read_tokens),
        cache_write_tokens=_count(written, before.cache_write_tokens),
        output_tokens=_count(made, before.output_tokens),
        cache_write_1h_tokens=_count(long, before.cache_write_1h_tokens) or 0,
    )


def _word(said: Any) -> str | None:
    """Read a word of the API's; what is none is written as one."""
    return said if said is None or isinstance(said, str) else str(said)


def _fields(value: Any) -> Json:
    """Return the fields of a JSON object; of what is none, no fields."""
    return cast("Json", value) if isinstance(value, dict) else _NO_FIELDS
