"""Reads a response: the events of a stream, or a message in one piece, as JSON.

The server is not trusted: the connection may stay open after the last event. A response with a `stop_reason` is an
answer, complete and paid for; one without is not. A proxy that reconnects may begin again half way: earlier text is no
part of the answer, and no count covers it.

Source: the vendor's pages on streaming and on stop reasons.
"""

from __future__ import annotations

import asyncio
import functools
import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.answers.lenient import written
from agent_magic.declare.signature import as_input
from agent_magic.declare.values import sendable
from agent_magic.errors import CallError, Truncated, Unreadable
from agent_magic.providers.anthropic.errors import note_response, raised_by_sdk
from agent_magic.providers.base import Stream
from agent_magic.providers.events import events_of, may_begin, values_in
from agent_magic.providers.responses import (
    DRAIN_S,
    ENDING_S,
    EVENTS,
    MOST_TOKENS,
    PAGE,
    Opening,
    count_of,
    end_of,
    excerpt,
    fields_of,
    naming_encoding,
    with_own_ids,
    word,
)
from agent_magic.record.answer import CUT, PAUSED, TOOL_USE, TURNS, Answer, Citation, Usage, total_tokens
from agent_magic.record.results import REFUSED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Generator, Iterator

    from anthropic import AsyncStream
    from httpx2 import Response

    from agent_magic.record.request import Request

Json = dict[str, Any]

NOTHING_KNOWN = Usage()
_NO_FIELDS: Json = {}
IN_ONE_PIECE = frozenset({"application/json", PAGE})
"""No stream, unless the body shows otherwise."""
BROKEN_OFF = frozenset({PAUSED, *CUT, *REFUSED})


def plain(events: AsyncStream[Any], sdk: object) -> AsyncStream[Any]:
    """Return the events as raw JSON, unless a tracer, which needs the SDK's objects, watches them."""
    import anthropic

    if type(events) is not anthropic.AsyncStream or not isinstance(sdk, anthropic.AsyncAnthropic):
        return events
    if getattr(events.response.stream, "stream_observer", None) is not None:
        return events
    return named_stream()(cast_to=object, response=events.response, client=sdk)


@functools.lru_cache(maxsize=1)
def named_stream() -> type[AsyncStream[Any]]:
    """Return a stream class of the SDK with raw JSON as events, read with three iterators fewer.

    It also reads servers that omit the `event:` lines, or the blank line behind the last one.
    """
    import anthropic

    class NamedStream(anthropic.AsyncStream[Any]):
        opening: Opening

        async def __aiter__(self) -> AsyncIterator[Any]:
            self.opening = Opening()
            async for name, data in events_of(self.opening.read(self.response.aiter_bytes())):
                self.opening.over()
                if name == "error":
                    raise _told(data, self.response)
                if name == "ping" or data.lstrip()[:1] != "{":
                    continue  # a sign of life
                for found in values_in(data) or [json.loads(data)]:
                    kind = _kind_of(found, name)
                    if kind == "error":
                        raise _told(data, self.response)
                    if kind is not None and kind != "ping":
                        yield found

    return NamedStream


def _told(data: str, response: Response) -> Exception:
    """Return the error of an event, as the SDK creates it for a response with status 200."""
    import anthropic

    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return anthropic.APIStatusError(data or f"Error code: {response.status_code}", response=response, body=data)
    return anthropic.APIStatusError(str(found), response=response, body=found)


def _kind_of(found: Any, name: str) -> str | None:
    """Return the type of an event: gateways omit it in errors, and may leave it to the name."""
    event = fields_of(found)
    kind = word(event.get("type")) or ("error" if event.get("error") else None)
    if kind is None and name and event:
        kind = event["type"] = name
    return kind


async def collect(events: AsyncStream[Any], request: Request, stream: Stream) -> Answer:
    """Read to the end; raise `Truncated` without a `stop_reason`."""
    response = events.response
    headers = note_response(stream, response)
    most = request.most_output_tokens
    message = _Message(request.model, word(headers.get("request-id")), most, keeps=bool(request.schema))
    named = headers.get("content-type", "")
    kind = named.partition(";")[0].strip().lower()
    try:
        with naming_encoding(headers):
            await _read(events, response, (named, kind), message, stream)
            return stream.answer or message.answer(stream)
    except (AttributeError, TypeError):  # the fields of a message in one piece were not checked before
        raise Unreadable("The message is not the API's.") from None


async def _read(
    events: AsyncStream[Any], response: Response, named: tuple[str, str], message: _Message, stream: Stream
) -> None:
    is_own = isinstance(events, named_stream())
    if not is_own and (named[1] in IN_ONE_PIECE or named[1].endswith("+json")):
        whole = await response.aread()
    else:
        await _read_events(events, message, stream)
        whole = cast("Any", events).opening.body if is_own else b""
    if not message.begun and stream.answer is None:
        _read_whole(response, *named, whole.decode("utf-8-sig", "replace"), message, stream)


async def _read_events(events: AsyncStream[Any], message: _Message, stream: Stream) -> None:
    """Ignore an error after the `stop_reason`: the answer is complete and paid for."""
    reading = aiter(events)
    try:
        async for event in reading:
            if _see(event, message, stream):
                break
            if stream.answer is not None:
                await within(ENDING_S, _read_on(reading, message, stream))
                break
        with suppress(TimeoutError):  # a connection read to its end can serve the next request
            await drain(reading, DRAIN_S)
    except (CallError, *raised_by_sdk()):
        if stream.answer is None:
            raise


async def _read_on(reading: AsyncIterator[Any], message: _Message, stream: Stream) -> None:
    async for event in reading:
        if _see(event, message, stream):
            return


def _see(event: Any, message: _Message, stream: Stream) -> bool:
    found = cast("Json", event) if isinstance(event, dict) else event.to_dict(mode="python", warnings=False)
    try:
        return message.see(found, stream)
    except (AttributeError, TypeError):  # its fields were not checked before
        shown = json.dumps(found, ensure_ascii=False, default=str)
        raise Unreadable(f"An event of the stream is not the API's: {excerpt(shown)}.") from None


def _read_whole(response: Response, named: str, kind: str, body: str, message: _Message, stream: Stream) -> None:
    import anthropic

    begins = body.lstrip()[:1]
    if kind not in IN_ONE_PIECE and not kind.endswith("+json") and begins != "{":
        if kind == EVENTS and may_begin(body):
            return  # a stream that ended before its first event
        if begins == "<":
            raise Unreadable("Expected an event stream, got a web page. Check base_url (ANTHROPIC_BASE_URL).")
        what = repr(excerpt(body)) if kind == EVENTS else excerpt(named) or "no content type"
        raise Unreadable(f"Expected an event stream, got {what}.")
    found = fields_of(None if kind == PAGE and begins != "{" else json.loads(body))
    if found.get("type") == "error":
        raise anthropic.APIStatusError(excerpt(body), response=response, body=found)
    if found.get("type") != "message":
        named = "no event" if kind == EVENTS else kind or "no content type"
        raise Unreadable(f"Expected an event stream, got {named}: {excerpt(body)!r}.")
    _read_message(found, message, stream)


def answer_of(found: Json, *, simulated: bool) -> Answer:
    """Read a message that came in one piece, such as those of a batch; raise as `collect` does."""
    message, stream = _Message("", None, MOST_TOKENS, keeps=True), Stream()
    stream.replied(200, simulated=simulated)
    try:
        _read_message(found, message, stream)
    except (AttributeError, TypeError):
        shown = json.dumps(found, ensure_ascii=False)
        raise Unreadable(f"A message of the batch is not the API's: {excerpt(shown)}.") from None
    return message.answer(stream)


def _read_message(found: Json, message: _Message, stream: Stream) -> None:
    message.fill(found.get("content"), stream)
    message.name(found.get("model"), stream)
    message.end(found)
    message.count(found.get("usage"), stream)


class _Message:
    def __init__(self, model: str, request_id: str | None, most_output: int, *, keeps: bool = False) -> None:
        self.model, self.request_id, self._keeps = model, request_id, keeps
        self._most_output, self._is_final = most_output, False
        self._may_restart = self._restarted = False
        self.begun = False
        self.stop_reason: str | None = None
        self.refusal: str | None = None
        self._blocks: dict[Any, _Block] = {}
        self._before: list[str] = []

    def see(self, event: Json, stream: Stream) -> bool:
        """Return whether it was the last."""
        kind = event.get("type")
        self.begun = True
        if kind == "content_block_delta":
            delta: Any = event.get("delta") or _NO_FIELDS
            if delta.get("type") == "text_delta":
                self.add(event.get("index"), delta.get("text") or "", stream)
            else:
                if event.get("index") in self._blocks:
                    self._blocks[event["index"]].deltas.append(delta)
                stream.add_unseen("".join(_written(delta)))
                stream.began()
        elif kind == "content_block_start":
            self.open(event.get("index"), event.get("content_block"), stream)
        elif kind == "message_start":
            if self.stop_reason is not None:
                return True  # of another message: this one is complete
            self._may_restart = bool(self._blocks or self._before)
            start: Any = event.get("message") or _NO_FIELDS
            self.name(start.get("model"), stream)
            self.count(start.get("usage"), stream)
            stream.opened()
            self.fill(start.get("content"), stream)  # the API's begin empty, other servers' may not
            self._may_restart = bool(self._blocks or self._before)
        elif kind == "message_delta" or (kind == "message_stop" and event.get("usage")):  # gateways count there
            self.end(fields_of(event.get("delta")))
            self.count(event.get("usage"), stream)
        else:
            return kind == "message_stop"
        if self.stop_reason is not None:  # a block may come behind it
            stream.answer = self.answer(stream)
        return kind == "message_stop"

    def name(self, model: Any, stream: Stream) -> None:
        if isinstance(model, str) and (said := word(model)):
            self.model = stream.model = said

    def count(self, told: Any, stream: Stream) -> None:
        """Read token counts: final with the `stop_reason`."""
        # An impossible or falling count is ignored: the last one stays, and is not final.
        if told is None:
            return
        stream.usage = usage = _usage(told, stream.usage or NOTHING_KNOWN, self._most_output)
        made = fields_of(told).get("output_tokens")
        if made is not None:
            is_last = self.stop_reason is not None and not self._restarted
            fell = count_of(fields_of(told).get("input_tokens")) not in {None, 0, usage.input_tokens}
            self._is_final = is_last and not fell and count_of(made) == usage.output_tokens is not None

    def fill(self, content: Any, stream: Stream) -> None:
        blocks: list[Any] = content or []
        for index, block in enumerate(blocks):
            if not isinstance(block, dict):
                raise TypeError(f"a block is {block!r}")
            self.open(index, block, stream)

    def open(self, index: Any, block: Any, stream: Stream) -> None:
        """Begin a block. One that was there before a second `message_start` restarts the message."""
        fields = fields_of(block)
        if self._may_restart and (index in self._blocks or self._before):
            self._restart(stream)
        if index in self._blocks:  # servers that translate for other models may number all of them 0
            self._blocks[object()] = self._blocks.pop(index)
        self._blocks[index] = _Block(fields)
        if fields.get("type") != "text":  # the API's begin empty, other servers' may not
            given = fields.get("input")
            stream.add_unseen("".join([*_written(fields), json.dumps(given) if given else ""]))
        elif fields.get("text"):
            self.add(index, fields["text"], stream)

    def _restart(self, stream: Stream) -> None:
        self._may_restart, self._restarted = False, True
        self._blocks, self._before = {}, []
        stream.restart()

    def add(self, index: Any, text: str, stream: Stream) -> None:
        """Append to a block, or to the last one if a server does not name it."""
        if self._may_restart and not self._blocks:
            self._restart(stream)
        stream.add(text)
        if index not in self._blocks:
            index = next(reversed(self._blocks), None)
        if index is not None:
            self._blocks[index].texts.append(text)
        else:
            self._before.append(text)

    def end(self, ending: Any) -> None:
        self.stop_reason = end_of(ending.get("stop_reason")) or self.stop_reason
        runs = self.stop_reason is not None and self.stop_reason not in BROKEN_OFF
        if runs and any(one.fields.get("type") == TOOL_USE for one in self._blocks.values()):
            self.stop_reason = TOOL_USE  # servers that translate for other models use other words for it
        if self.stop_reason == "refusal":
            self.refusal = word(fields_of(ending.get("stop_details")).get("category")) or "unnamed"

    def answer(self, stream: Stream) -> Answer:
        if self.stop_reason is None:
            raise Truncated("The stream ended before the answer did (no stop_reason).")
        return Answer(
            sendable("".join([*self._before, *(text for block in self._blocks.values() for text in block.texts)])),
            self.stop_reason,
            usage=(stream.usage if self._is_final else stream.usage_so_far) or NOTHING_KNOWN,
            model=self.model,
            source="simulated" if stream.simulated else "live",
            request_id=self.request_id,
            refusal=self.refusal,
            content=self._content() if self._goes_back else None,
            citations=tuple(self._citations()),
        )

    @property
    def _goes_back(self) -> bool:
        """True if the conversation continues from its blocks; from a single plain text it continues by the text.

        Source: the vendor's page on thinking: its blocks go back whole, or the next request is refused.
        """
        if self.stop_reason in TURNS:
            return True
        if any(block.fields.get("type") != "text" for block in self._blocks.values()):
            return True
        return not self._keeps and (len(self._blocks) > 1 or any(block.is_cited for block in self._blocks.values()))

    def _content(self) -> str | None:
        """Write the content blocks as JSON, to send them back unchanged."""
        found = [block.whole() for block in self._blocks.values()]
        kept = [one for one in found if one and (one.get("type") != "text" or one["text"].strip())]  # no blank text
        text = written(with_own_ids(kept)) if kept else None
        if text is not None and "\\ud" in text:  # there may be half a character, which could not be sent
            return written(json.loads(sendable(json.dumps(json.loads(text), ensure_ascii=False))))
        return text

    def _citations(self) -> Iterator[Citation]:
        if not any(block.is_cited for block in self._blocks.values()):
            return
        for block in self._blocks.values():
            if block.is_cited:
                yield from (citation(block.text, fields_of(one)) for one in block.whole().get("citations") or ())


class _Block:
    __slots__ = ("deltas", "fields", "texts")

    def __init__(self, fields: Json) -> None:
        self.fields = fields
        self.deltas: list[Json] = []
        self.texts: list[str] = []

    @property
    def text(self) -> str:
        return sendable("".join(self.texts))

    @property
    def is_cited(self) -> bool:
        return bool(self.fields.get("citations")) or any(one.get("type") == "citations_delta" for one in self.deltas)

    def whole(self) -> Json:
        found = {**self.fields, "text": self.text} if self.fields.get("type") == "text" else dict(self.fields)
        partial_json = ""
        for delta in self.deltas:
            match delta.get("type"):
                case "input_json_delta":
                    partial_json += delta.get("partial_json") or ""
                case "thinking_delta":
                    found["thinking"] = (found.get("thinking") or "") + (delta.get("thinking") or "")
                case "signature_delta":
                    found["signature"] = delta.get("signature")
                    found.setdefault("thinking", "")
                case "citations_delta":
                    found["citations"] = [*(found.get("citations") or ()), delta.get("citation")]
                case _:
                    pass
        if partial_json:
            return {**found, "input": as_input(partial_json)}
        if found.get("type") == TOOL_USE and not isinstance(found.get("input"), dict):  # it came in one piece
            return {**found, "input": as_input(json.dumps(found.get("input", {})))}
        return found


def citation(text: str, said: Json) -> Citation:
    """Read a citation: characters count from 0, pages from 1, ends are exclusive. Source: the page on citations."""

    def number(name: str) -> int:
        return _count(said.get(name), None, 2**48) or 0

    def span(what: str, begin: int, end: int) -> str:
        return f"{what} {begin}" if end <= begin else f"{what}s {begin}-{end}"

    match said.get("type"):
        case "page_location":
            where = span("page", number("start_page_number"), number("end_page_number") - 1)
        case "char_location":
            where = span("character", number("start_char_index"), number("end_char_index"))
        case "content_block_location" | "search_result_location":
            where = span("block", number("start_block_index"), number("end_block_index") - 1)
        case _:
            where = str(said.get("url") or "")
    title = said.get("document_title") or said.get("title") or said.get("source") or ""
    return Citation(text, sendable(str(title)), sendable(where), sendable(str(said.get("cited_text") or "")))


def counted(said: Any) -> int:
    """Read the result of the count endpoint, or raise `Unreadable`."""
    count = count_of(said)
    if not count:  # no prompt has 0
        raise Unreadable("The server's token count is no number above 0. Check base_url (ANTHROPIC_BASE_URL).")
    return count


def _count(said: Any, before: int | None, most: int = MOST_TOKENS) -> int | None:
    """Read a count; missing and impossible values change nothing."""
    found = count_of(said, most)
    return before if found is None else found


def _usage(now: Any, before: Usage, most_output: int) -> Usage:
    """Read cumulative counts; omitted ones keep their value."""
    known = fields_of(now).get
    parts = [fields_of(known("cache_creation")).get(f"ephemeral_{ttl}_input_tokens") for ttl in ("5m", "1h")]
    long = parts[1]
    searches = fields_of(known("server_tool_use")).get("web_search_requests")
    whole = total_tokens(map(count_of, parts))  # some servers tell the parts alone
    written = _count(known("cache_creation_input_tokens"), _count(whole, before.cache_write_tokens))
    made = _count(known("output_tokens"), before.output_tokens, most_output)
    found = Usage(
        _count(known("input_tokens"), before.input_tokens),
        cache_read_tokens=_count(known("cache_read_input_tokens"), before.cache_read_tokens),
        cache_write_tokens=written,
        output_tokens=made if made is None else max(made, before.output_tokens or 0),
        cache_write_1h_tokens=min(_count(long, before.cache_write_1h_tokens) or 0, written or 0),
        searches=_count(searches, before.searches) or 0,
    )
    if (found.total_input_tokens or 0) >= (before.total_input_tokens or 0):
        return found
    return replace(before, output_tokens=found.output_tokens, searches=found.searches)


def _written(fields: Json) -> Iterator[str]:
    for name in ("thinking", "partial_json", "data"):
        if isinstance(text := fields.get(name), str):
            yield text


async def drain(events: AsyncIterator[object], within_s: float) -> None:
    """A connection read to its end can serve the next request."""

    async def exhaust() -> None:
        async for _ in events:
            pass

    await within(within_s, exhaust())


async def within(limit_s: float, work: Coroutine[Any, Any, None]) -> None:
    """Wait with a timeout for something that is mostly done at its first step."""
    # The end of a stream mostly comes along with its last event; setting and lifting a timeout for it would cost
    # more than reading it.
    try:
        awaited = work.send(None)
    except StopIteration:
        return
    async with asyncio.timeout(limit_s):
        await _Begun(work, awaited)


class _Begun:
    def __init__(self, steps: Coroutine[Any, Any, None], awaited: object) -> None:
        self._steps, self._awaited = steps, awaited

    def __await__(self) -> Generator[object, Any, None]:
        awaited = self._awaited
        try:
            while True:
                try:
                    got = yield awaited
                except BaseException as error:  # noqa: BLE001 - handed on to the coroutine, its owner
                    awaited = self._steps.throw(error)
                else:
                    awaited = self._steps.send(got)
        except StopIteration:
            return
