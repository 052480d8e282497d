"""A response as a value: the bytes of a message or a stream, the time of each part, its ending, and its faults.

A plain body has the nearest equivalent of a stream's fault: for `error_event` a 529, for `clean_end` a message without
`stop_reason`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from agent_magic.simulator.answer import Answer, Block
from agent_magic.simulator.api import BYTES_PER_TOKEN, ApiError, Json
from agent_magic.simulator.content import THINKING_BLOCKS
from agent_magic.simulator.directives import Overrides
from agent_magic.simulator.models import Timing
from agent_magic.simulator.request import Request

JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream; charset=utf-8"
# Thousands of text deltas are built per second, so their frame and the encoders are built once. `json.dumps` with
# separators would build an encoder per call.
_DELTA_HEAD = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":'
)
_DELTA_TAIL = b"}}\n\n"
_encode = json.JSONEncoder(separators=(",", ":")).encode
_encode_text = json.JSONEncoder().encode


@dataclass(frozen=True, slots=True)
class Frame:
    """A part of a body, the seconds after the request, and the output tokens sent by then."""

    at_s: float
    data: bytes
    tokens: int = 0


class Ending(Enum):
    """How a response ends."""

    CLEAN = "clean"
    CUT = "cut"
    """Inside the body."""
    STALL = "stall"
    """The connection stays open."""
    RESET = "reset"
    """Before the first byte."""
    HANG = "hang"
    """Nothing is sent, and the connection stays open."""


@dataclass(frozen=True, slots=True)
class Response:
    """Without a `length` (the `content-length`) it is chunked."""

    status: int
    frames: tuple[Frame, ...]
    content_type: str = JSON_TYPE
    length: int | None = None
    ending: Ending = Ending.CLEAN
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class InputUsage:
    """Billed input tokens; the four numbers add up to the prompt."""

    uncached: int
    read: int = 0
    written_5m: int = 0
    written_1h: int = 0

    @property
    def written(self) -> int:
        """`cache_creation_input_tokens` of the API."""
        return self.written_5m + self.written_1h

    @property
    def limited(self) -> int:
        """What counts against the input limit: all except cache reads."""
        return self.uncached + self.written


@dataclass(frozen=True, slots=True)
class Result:
    """The parts of a response."""

    message_id: str
    request: Request
    answer: Answer
    usage: InputUsage
    timing: Timing


def whole(status: int, body: bytes, *, at_s: float = 0.0, tokens: int = 0, content_type: str = JSON_TYPE) -> Response:
    return Response(status, (Frame(at_s, body, tokens),), content_type, len(body))


def respond(result: Result) -> Response:
    if result.request.stream:
        return Response(200, tuple(_frames(result)), SSE_TYPE)
    length = result.answer.output_tokens
    return whole(200, encode(message(result)), at_s=result.timing.at_s(length), tokens=length)


def encode(value: Json) -> bytes:
    return _encode(value).encode()


def event(name: str, **fields: object) -> bytes:
    return f"event: {name}\ndata: {_encode({'type': name, **fields})}\n\n".encode()


def delta(text: str) -> bytes:
    return _DELTA_HEAD + _encode_text(text).encode() + _DELTA_TAIL


def message(result: Result) -> Json:
    answer = result.answer
    content = [block.whole() for block in answer.blocks]
    return {**_head(result), "content": content, **_ending(answer), "usage": _usage(result, answer.output_tokens)}


def _head(result: Result) -> Json:
    return {"id": result.message_id, "type": "message", "role": "assistant", "model": result.request.model.id}


def _ending(answer: Answer) -> Json:
    found: Json = {"stop_reason": answer.stop_reason, "stop_sequence": answer.stop_sequence}
    if answer.stop_reason == "refusal":
        found["stop_details"] = {"type": "refusal", "category": None, "explanation": "A simulated refusal."}
    return found


def _usage(result: Result, output_tokens: int) -> Json:
    usage, answer = result.usage, result.answer
    found: Json = {
        "input_tokens": usage.uncached,
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.written_5m,
            "ephemeral_1h_input_tokens": usage.written_1h,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }
    if len(answer.blocks) > 1:  # A text alone has no part that is counted on its own.
        counted = {f"{name}_requests": _results(answer, name) for name in ("web_search", "web_fetch")}
        if any(counted.values()):
            found["server_tool_use"] = counted
        if thought := sum(block.tokens for block in answer.blocks if block.kind in THINKING_BLOCKS):
            found["output_tokens_details"] = {"thinking_tokens": thought}
    return found


def _results(answer: Answer, name: str) -> int:
    found = [block.fields["content"] for block in answer.blocks if block.kind == f"{name}_tool_result"]
    return sum(isinstance(each, list) or not each["type"].endswith("_error") for each in found)


def _frames(result: Result) -> Iterator[Frame]:
    timing, answer = result.timing, result.answer
    start: Json = {**_head(result), "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = _usage(result, min(1, answer.output_tokens))
    opening = event("message_start", message=start)
    if answer.blocks:
        opening += event("content_block_start", index=0, content_block=answer.blocks[0].opened())
    yield Frame(timing.ttft_s, opening + event("ping"))
    ahead, sent = b"", 0
    for index, block in enumerate(answer.blocks):
        if index:
            ahead += event("content_block_start", index=index, content_block=block.opened())
        first_text = block.kind == "text" and not index
        for frame in _texts(block, timing) if first_text else _deltas(block, index, sent, timing):
            yield replace(frame, data=ahead + frame.data) if ahead else frame
            ahead = b""
        ahead += event("content_block_stop", index=index)
        sent += block.tokens
    usage = _usage(result, answer.output_tokens)
    del usage["service_tier"], usage["cache_creation"]
    ahead += event("message_delta", delta=_ending(answer), usage=usage) + event("message_stop")
    yield Frame(timing.at_s(answer.output_tokens), ahead, answer.output_tokens)


def _texts(block: Block, timing: Timing) -> Iterator[Frame]:
    """Yield the events of a text that is the first block: nearly all events of most streams."""
    size = 0
    for piece in block.pieces:
        # The first piece is sent at the time to the first token, a later one when it is complete.
        at_s = timing.at_s(size // BYTES_PER_TOKEN)
        size += len(piece.encode("utf-8", "surrogatepass"))
        yield Frame(at_s, delta(piece), -(-size // BYTES_PER_TOKEN))
    for each in block.late:
        yield Frame(timing.at_s(block.tokens), event("content_block_delta", index=0, delta=each), block.tokens)


def _deltas(block: Block, index: int, sent: int, timing: Timing) -> Iterator[Frame]:
    """A call argument is sent only when complete."""
    total, size = len(block.text), 0
    for each, length in block.deltas():
        size += length
        done = sent + (block.tokens * size // total if total else block.tokens)
        yield Frame(timing.at_s(done), event("content_block_delta", index=index, delta=each), done)


HTML_TYPE = "text/html; charset=utf-8"
_TITLE = b"502 Bad Gateway"
PAGE = b"<html>\n<head><title>%b</title></head>\n<body><h1>%b</h1></body>\n</html>\n" % (_TITLE, _TITLE)
BAD_BYTES = b"\xff\xfe\xc3("


@dataclass(frozen=True, slots=True)
class Case:
    """A response on its way to a fault."""

    usual: Response
    result: Result
    overrides: Overrides


Fault: TypeAlias = Callable[[Case], Response]


def with_fault(case: Case) -> Response:
    """Return the response with the requested fault; raise `ApiError` if the fault is one."""
    if case.overrides.fault is None:
        return case.usual
    table = _STREAM if case.result.request.stream else _BODY
    return table[case.overrides.fault](case)


def _silent(ending: Ending) -> Fault:
    return lambda case: replace(case.usual, frames=case.usual.frames[:1], ending=ending)


def _page(case: Case) -> Response:
    return whole(case.overrides.status or 502, PAGE, at_s=case.overrides.ttft_s or 0.0, content_type=HTML_TYPE)


# Streams.


def _half(usual: Response) -> tuple[Frame, ...]:
    """Return half of the events, at least one delta."""
    opening, *deltas, _ = usual.frames
    return (opening, *deltas[: max(1, len(deltas) // 2)])


def _half_then(ending: Ending) -> Fault:
    return lambda case: replace(case.usual, frames=_half(case.usual), ending=ending)


def _half_and(data: bytes) -> Fault:
    def fault(case: Case) -> Response:
        half = _half(case.usual)
        return replace(case.usual, frames=(*half, replace(half[-1], data=data)))

    return fault


def _error_event(case: Case) -> Response:
    error = {"type": case.overrides.error or "overloaded_error", "message": case.overrides.message or "Overloaded"}
    return _half_and(event("error", error=error))(case)


def _empty_stream(case: Case) -> Response:
    return replace(case.usual, frames=(replace(case.usual.frames[0], data=b""),))


def _dripping_stream(case: Case) -> Response:
    first, text = case.usual.frames[0], case.result.answer.text
    drops = [
        Frame(first.at_s + index * case.overrides.every_s, delta(character), -(-index // BYTES_PER_TOKEN))
        for index, character in enumerate(text, 1)
    ]
    late_s = first.at_s + (len(text) + 1) * case.overrides.every_s
    rest = [replace(frame, at_s=late_s) for frame in case.usual.frames[1:] if b"text_delta" not in frame.data]
    return replace(case.usual, frames=(first, *drops, *rest))


def _null_content_stream(case: Case) -> Response:
    first = case.usual.frames[0]
    changed = replace(first, data=first.data.replace(b'"content":[]', b'"content":null', 1))
    return replace(case.usual, frames=(changed, *case.usual.frames[1:]))


# Plain bodies.


def _without(key: str, *, null: bool) -> Fault:

    def fault(case: Case) -> Response:
        body = message(case.result)
        del body[key]
        return _with_body(case.usual, encode({**body, key: None} if null else body))

    return fault


def _with_body(usual: Response, body: bytes) -> Response:
    return replace(usual, frames=(replace(usual.frames[0], data=body),), length=len(body))


def _half_body(ending: Ending) -> Fault:
    def fault(case: Case) -> Response:
        frame = case.usual.frames[0]
        return replace(case.usual, frames=(replace(frame, data=frame.data[: len(frame.data) // 2]),), ending=ending)

    return fault


def _overloaded(case: Case) -> Response:
    raise ApiError(529, case.overrides.message or "Overloaded", kind=case.overrides.error)


def _broken_body(case: Case) -> Response:
    body = case.usual.frames[0].data
    return _with_body(case.usual, body[: len(body) // 2])


def _wrong_bytes_body(case: Case) -> Response:
    return _with_body(case.usual, case.usual.frames[0].data.replace(b'"text":"', b'"text":"' + BAD_BYTES, 1))


def _dripping_body(case: Case) -> Response:
    frame = case.usual.frames[0]
    drops = [
        Frame(frame.at_s + index * case.overrides.every_s, frame.data[index : index + 1], frame.tokens)
        for index in range(len(frame.data))
    ]
    return replace(case.usual, frames=tuple(drops))


_ANY: dict[str, Fault] = {"hang": _silent(Ending.HANG), "reset": _silent(Ending.RESET), "html": _page}
_STREAM: dict[str, Fault] = {
    **_ANY,
    "stall": _half_then(Ending.STALL),
    "cut": _half_then(Ending.CUT),
    "clean_end": _half_then(Ending.CLEAN),
    "empty": _empty_stream,
    "drip": _dripping_stream,
    "error_event": _error_event,
    "broken_json": _half_and(b'event: content_block_delta\ndata: {"type":"content_bl\n\n'),
    "wrong_bytes": _half_and(delta("x").replace(b'"x"', b'"' + BAD_BYTES + b'"')),
    "null_content": _null_content_stream,
    "no_usage": lambda case: case.usual,
}
_BODY: dict[str, Fault] = {
    **_ANY,
    "stall": _half_body(Ending.STALL),
    "cut": _half_body(Ending.CUT),
    "clean_end": _without("stop_reason", null=True),
    "empty": lambda case: _with_body(case.usual, b""),
    "drip": _dripping_body,
    "error_event": _overloaded,
    "broken_json": _broken_body,
    "wrong_bytes": _wrong_bytes_body,
    "null_content": _without("content", null=True),
    "no_usage": _without("usage", null=False),
}
