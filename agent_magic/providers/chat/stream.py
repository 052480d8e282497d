"""Reads a response: the chunks of a stream, or a completion in one piece.

The server is not trusted. A response with a `finish_reason` is an answer, complete and paid for; one without is not,
even after `[DONE]`. Counts with or after the `finish_reason` are final. A proxy that reconnects may begin again half
way: earlier text is no part of the answer, and no count covers it.

Some servers send a whole completion in place of a stream, of any content type.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.answers.lenient import written
from agent_magic.declare.signature import as_input
from agent_magic.declare.values import sendable
from agent_magic.errors import CallError, Truncated, Unreadable
from agent_magic.providers.events import DONE, events_of, may_begin, values_in
from agent_magic.providers.responses import (
    DRAIN_S,
    ENDING_S,
    EVENTS,
    PAGE,
    Opening,
    count_of,
    end_of,
    excerpt,
    fields_of,
    naming_encoding,
    raised_by_transport,
    with_own_ids,
    word,
)
from agent_magic.record.answer import TOOL_USE, Answer, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from httpx2 import Response

    from agent_magic.providers.base import Stream
    from agent_magic.providers.events import Event
    from agent_magic.record.request import Request

Json = dict[str, Any]
THOUGHTS = ("reasoning_content", "reasoning")
TEXTS = frozenset({"text", "output_text", None})
"""Types of the parts of an answer that are its text."""


class ErrorInside(Exception):
    """A body, or an event, contains an error after a 200."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body


async def collect(response: Response, headers: dict[str, str], request: Request, stream: Stream) -> Answer:
    """Read to the end; raise `Truncated` without a `finish_reason`, `Unreadable` or `ErrorInside`."""
    completion = Completion(request, word(headers.get("x-request-id")))
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    with naming_encoding(headers):
        try:
            await _read(response, kind, completion, stream)
        except (ErrorInside, CallError, *raised_by_transport()):  # behind an answer, which is complete and paid for
            if stream.answer is None:
                raise
        return stream.answer or completion.answer(stream)


async def _read(response: Response, kind: str, completion: Completion, stream: Stream) -> None:
    opening = Opening()
    await _read_events(_over_at_first(opening, response), completion, stream)
    if completion.begun:
        return
    body = opening.body.decode("utf-8", "replace")
    begins = body.lstrip()[:1]
    named = "no event" if kind == EVENTS else excerpt(kind) or "no content type"
    if begins in {"{", "["}:
        for found in values_in(body):
            _take(found, body, completion, stream)
        if not completion.begun:
            raise Unreadable(f"Expected an event stream, got {named}: {excerpt(body)!r}.")
    elif begins == "<" or kind == PAGE:
        raise Unreadable("A web page came in place of an answer. Check base_url.")
    elif completion.strange:
        raise Unreadable(f"An event of the stream is not the API's: {excerpt(completion.strange)!r}.")
    elif kind != EVENTS:
        raise Unreadable(f"Expected an event stream, got {named} without events.")
    elif not may_begin(body):
        raise Unreadable(f"Expected an event stream, got {excerpt(body)!r}.")


async def _over_at_first(opening: Opening, response: Response) -> AsyncIterator[Event]:
    async for event in events_of(opening.read(response.aiter_bytes())):
        opening.over()
        yield event


async def _read_events(events: AsyncIterator[Event], completion: Completion, stream: Stream) -> None:
    if await _read_until_finished(events, completion, stream):
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S if stream.answer is not None else DRAIN_S):
                await _read_until_done(events, completion, stream)
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                async for event in events:  # some count behind the end
                    if event.data != DONE:
                        _see(event, completion, stream)


async def _read_until_finished(events: AsyncIterator[Event], completion: Completion, stream: Stream) -> bool:
    async for event in events:
        if event.data == DONE:
            return True
        _see(event, completion, stream)
        if stream.answer is not None:
            return True
    return False


async def _read_until_done(events: AsyncIterator[Event], completion: Completion, stream: Stream) -> None:
    async for event in events:
        if event.data == DONE:
            return
        _see(event, completion, stream)


def _see(event: Event, completion: Completion, stream: Stream) -> None:
    """Skip what is no JSON and no part of any, such as a sign of life."""
    chunks = values_in(event.data)
    if event.name == "error":
        raise ErrorInside(chunks[0] if chunks else event.data)
    if not chunks and event.data.lstrip()[:1] in {"{", "["}:
        raise Unreadable(f"An event of the stream is no JSON: {excerpt(event.data)!r}.")
    for chunk in chunks:
        if chunk is not None:
            _take(chunk, event.data, completion, stream)
    if not completion.begun:
        completion.strange = completion.strange or event.data


def _take(chunk: Any, said: str, completion: Completion, stream: Stream) -> None:
    if _error_in(chunk):
        raise ErrorInside(chunk)
    try:
        completion.see(chunk, stream)
    except (AttributeError, TypeError, KeyError):  # its fields were not checked before
        raise Unreadable(f"A chunk of the stream is not the API's: {excerpt(said)!r}.") from None


def _error_in(chunk: Any) -> bool:
    if isinstance(chunk, list):
        return _error_in(next(iter(cast("list[Any]", chunk)), None))
    found = fields_of(chunk)
    if found.get("error"):  # also beside a choice that ends with it
        return True
    return not found.get("choices") and bool(found.get("object") == "error" or found.get("detail"))


class Completion:
    """The parts of a response besides its text."""

    def __init__(self, request: Request, request_id: str | None) -> None:
        self.begun, self.strange = False, ""
        self._model, self._request_id, self._most = request.model, request_id, request.most_output_tokens
        self._reason: str | None = None
        self._refused = False
        self._calls: dict[Any, _Call] = {}
        self._is_final = self._goes_on = self._restarted = self._has_deltas = False
        self._at: Any = None
        self._id: Any = None
        self._opening: Json | None = None

    def see(self, chunk: Json, stream: Stream) -> None:
        """Read a chunk, or a whole completion; raise `Overloaded` if the server gave the answer up."""
        choices = cast("list[Json]", chunk.get("choices") or ())
        if not self.begun and (choices or chunk.get("usage")):
            self.begun = True
            stream.opened()
        if isinstance(name := chunk.get("model"), str) and (said := word(name)):
            self._model = stream.model = said
        self._request_id = self._request_id or word(chunk.get("id"))
        for choice in choices:
            if self._at is None:  # of several answers the first
                self._at = choice.get("index")
            if choice.get("index") in (self._at, None):
                self._restart_if_new(chunk.get("id"), choice, stream)
                self._choose(choice, stream)
        # Groq and Moonshot have places of their own.
        places: list[Json] = [chunk, chunk.get("x_groq") or {}, *choices]
        if usage := next(filter(None, (one.get("usage") for one in places)), None):
            self._count(usage, stream)
        if self._reason is not None:
            stream.answer = self.answer(stream)

    def _restart_if_new(self, id_: Any, choice: Json, stream: Stream) -> None:
        """Drop the content so far if another answer begins: its first chunk has a role and a new id."""
        # Some servers write a role or a new id into every chunk. That begins no answer. So after a first chunk another
        # one with both is known to begin an answer once a chunk without a role goes on with its id.
        id_ = id_ or self._id  # Azure's notes on filters have none
        delta: Json = choice.get("delta") or {}
        has_role, ends = bool(delta.get("role")), bool(choice.get("finish_reason"))
        begins = has_role and not ends and id_ != self._id
        if begins and self._goes_on:
            self._restart(stream)
        elif self._opening is not None and not (has_role or ends) and id_ == self._id:
            self._restart(stream)
            self._choose(self._opening, stream)
        self._opening = choice if begins and self._id and not self._goes_on else None
        self._id, self._goes_on = id_, not has_role

    def _restart(self, stream: Stream) -> None:
        if self._reason is not None:
            raise Unreadable("Another answer follows in the same stream.")
        self._restarted, self._refused = True, False
        self._calls.clear()
        stream.restart()

    def _choose(self, choice: Json, stream: Stream) -> None:
        if choice.get("error"):
            raise ErrorInside({"error": choice["error"]})
        delta: Json = choice.get("delta") or {}
        self._has_deltas = self._has_deltas or bool(delta)
        if not self._has_deltas:  # else the whole message is repeated at the end
            delta = choice.get("message") or {}
        for name in THOUGHTS:
            if isinstance(thought := delta.get(name), str) and thought:
                stream.began()
                stream.add_unseen(thought)
                break
        for text, is_answer in _texts(delta.get("content")):
            if is_answer:
                stream.add(text)
            else:
                stream.began()
                stream.add_unseen(text)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            stream.add(refusal)
        for call in cast("list[Json]", delta.get("tool_calls") or ()):
            self._call(call, stream)
        if reason := end_of(choice.get("finish_reason")):
            end_of(choice.get("native_finish_reason"))  # a router's, of the server behind it, may be an error
            self._reason = reason

    def _call(self, told: Json, stream: Stream) -> None:
        # A piece names its call by `index`; servers that send calls whole may number all of them 0, or not at
        # all.
        function: Json = told.get("function") or {}
        at, id_, name = told.get("index"), told.get("id") or "", function.get("name") or ""
        known = self._calls.get(at) if at is not None else next(reversed(self._calls.values()), None)
        if known is None or (name and known.name and ((id_ and id_ != known.id) or (at is None and not id_))):
            if at in self._calls:
                self._calls[object()] = self._calls.pop(at)
            known = self._calls[object() if at is None else at] = _Call(str(id_))
        known.name = known.name or str(name)
        piece = function.get("arguments")
        text = piece if isinstance(piece, str) else "" if piece is None else json.dumps(piece)
        known.pieces.append(text)
        stream.began()
        stream.add_unseen(text)

    def _count(self, told: Any, stream: Stream) -> None:
        """A falling or impossible count is ignored, and is not final."""
        before = stream.usage or Usage()
        found = _usage(told, self._most)
        fell = (found.output_tokens or 0) < (before.output_tokens or 0)
        whole = found.input_tokens is not None and found.output_tokens is not None
        if whole and not fell:
            stream.usage = found
        self._is_final = self._reason is not None and whole and not fell and not self._restarted

    def answer(self, stream: Stream) -> Answer:
        if self._reason is None:
            raise Truncated("The stream ended before the answer did (no finish_reason).")
        reason = self._reason
        calls = [one for one in self._calls.values() if one.name]
        if calls and reason not in {"max_tokens", "refusal"}:
            reason = TOOL_USE  # some servers say `stop`
        refusal = "content_filter" if reason == "refusal" else "unnamed" if self._refused else None
        usage = stream.usage if self._is_final else stream.usage_so_far
        return Answer(
            stream.text,
            "refusal" if refusal else reason,
            usage=usage or Usage(),
            model=self._model,
            source="simulated" if stream.simulated else "live",
            request_id=self._request_id,
            refusal=refusal,
            content=sendable(written(with_own_ids([*_as_blocks(stream.text, calls)]))) if reason == TOOL_USE else None,
        )


class _Call:
    __slots__ = ("id", "name", "pieces")

    def __init__(self, id_: str) -> None:
        self.id, self.name = id_, ""
        self.pieces: list[str] = []


def _as_blocks(text: str, calls: list[_Call]) -> Iterator[Json]:
    """Yield the content blocks of a turn."""
    if text.strip():
        yield {"type": "text", "text": text}
    for one in calls:
        arguments = "".join(one.pieces)
        given = as_input(arguments) if arguments.strip() else {}
        yield {"type": TOOL_USE, "id": one.id, "name": one.name, "input": given}


def _texts(content: Any) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a delta, and whether each is of the answer."""
    if isinstance(content, str):
        if content:
            yield content, True
        return
    parts: list[Any] = cast("list[Any]", content) if isinstance(content, list) else [content]
    if isinstance(content, dict) and not {"text", "type"} & cast("Json", content).keys():
        yield json.dumps(content, ensure_ascii=False), True  # a typed answer that a server has parsed
        return
    for part in parts:
        fields = cast("Json", part) if isinstance(part, dict) else {"text": part}
        if isinstance(text := fields.get("text"), str):
            yield text, fields.get("type") in TEXTS
        elif isinstance(part, dict):
            yield json.dumps(fields, ensure_ascii=False), False


def _usage(told: Any, most_output: int) -> Usage:
    """Read usage; thoughts that are not in the answer's count are in its total."""
    known = fields_of(told)
    taken, made, total = (count_of(known.get(f"{one}_tokens")) for one in ("prompt", "completion", "total"))
    if taken is None or made is None:
        return Usage(taken, output_tokens=made)
    made = count_of(max(made, (total or 0) - taken), most_output)
    details: Any = known.get("prompt_tokens_details")
    cached = cast("Json", details).get("cached_tokens") if isinstance(details, dict) else None
    # More than the whole prompt is no count.
    read = count_of(cached, taken) or count_of(known.get("prompt_cache_hit_tokens"), taken) or 0
    return replace(Usage(taken - read, output_tokens=made), cache_read_tokens=read)
