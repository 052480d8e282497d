"""A response as a value: the bytes of a message or a stream, the time of each part, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from agent_magic.simulator import tokens
from agent_magic.simulator.answer import Answer, Call
from agent_magic.simulator.caching import InputUsage
from agent_magic.simulator.json_types import Json
from agent_magic.simulator.latency import Timing
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
    """A part of a body: when it is sent, in seconds after the request, and the output tokens sent by then."""

    at_s: float
    data: bytes
    tokens: int = 0


class Ending(Enum):
    """How a response ends."""

    CLEAN = "clean"
    """As HTTP requires."""
    CUT = "cut"
    """The connection is closed in the middle of the body."""
    STALL = "stall"
    """Nothing more is sent, and the connection stays open."""
    RESET = "reset"
    """The connection is reset before the first byte."""
    HANG = "hang"
    """Nothing is sent, and the connection stays open."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response.

    Attributes:
        status: The HTTP status.
        frames: The body; at least one frame.
        content_type: The media type.
        length: The `content-length`; `None` sends chunks.
        ending: How it ends.
        headers: Further headers.
    """

    status: int
    frames: tuple[Frame, ...]
    content_type: str = JSON_TYPE
    length: int | None = None
    ending: Ending = Ending.CLEAN
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The parts from which a response is built."""

    message_id: str
    request: Request
    answer: Answer
    usage: InputUsage
    timing: Timing


def whole(status: int, body: bytes, *, at_s: float = 0.0, tokens: int = 0, content_type: str = JSON_TYPE) -> Response:
    """Return a response with a plain body."""
    return Response(status, (Frame(at_s, body, tokens),), content_type, len(body))


def respond(result: Result) -> Response:
    """Return the response to a request: a message or a stream."""
    if result.request.stream:
        return Response(200, tuple(_frames(result)), SSE_TYPE)
    length = result.answer.output_tokens
    return whole(200, encode(message(result)), at_s=result.timing.at_s(length), tokens=length)


def encode(value: Json) -> bytes:
    """Return compact JSON."""
    return _encode(value).encode()


def event(name: str, **fields: object) -> bytes:
    """Return one server-sent event."""
    return f"event: {name}\ndata: {_encode({'type': name, **fields})}\n\n".encode()


def delta(text: str) -> bytes:
    """Return the event of one piece of text."""
    return _DELTA_HEAD + _encode_text(text).encode() + _DELTA_TAIL


def message(result: Result) -> Json:
    """Return the complete message."""
    answer = result.answer
    content: list[Json] = [{"type": "text", "text": answer.text}] if answer.text else []
    content += [{**_opened(call, result, place), "input": _input(call)} for place, call in enumerate(answer.calls)]
    return {**_head(result), "content": content, **_ending(answer), "usage": _usage(result.usage, answer.output_tokens)}


def _head(result: Result) -> Json:
    return {"id": result.message_id, "type": "message", "role": "assistant", "model": result.request.model.id}


def _ending(answer: Answer) -> Json:
    found: Json = {"stop_reason": answer.stop_reason, "stop_sequence": answer.stop_sequence}
    if answer.stop_reason == "refusal":
        found["stop_details"] = {"type": "refusal", "category": None, "explanation": "A simulated refusal."}
    return found


def _usage(usage: InputUsage, output_tokens: int) -> Json:
    return {
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


def _opened(call: Call, result: Result, place: int) -> Json:
    """Return the block of a tool call as it opens, with an empty input."""
    prefix = "toolu" if call.kind == "tool_use" else "srvtoolu"
    return {"type": call.kind, "id": f"{prefix}_{result.message_id}_{place}", "name": call.name, "input": {}}


def _input(call: Call) -> Json:
    try:
        return json.loads(call.input_json)
    except ValueError:  # Cut at `max_tokens`.
        return {}


def _frames(result: Result) -> Iterator[Frame]:
    """Yield the events of a stream: the opening, one frame per delta, the ending."""
    timing, answer = result.timing, result.answer
    start: Json = {**_head(result), "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = _usage(result.usage, min(1, answer.output_tokens))
    opening = event("message_start", message=start)
    if answer.text:
        opening += event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield Frame(timing.ttft_s, opening + event("ping"))
    size = 0
    for piece in answer.pieces:
        # The first piece is sent at the time to the first token, a later one when it is complete.
        at_s = timing.at_s(size // tokens.BYTES_PER_TOKEN)
        size += len(piece.encode("utf-8", "surrogatepass"))
        yield Frame(at_s, delta(piece), -(-size // tokens.BYTES_PER_TOKEN))
    ending = event("content_block_stop", index=0) if answer.text else b""
    at_s = timing.at_s(answer.output_tokens)
    for place, call in enumerate(answer.calls):
        # The API sends the input of a call when it is complete, and nothing until then.
        index = place + bool(answer.text)
        ending += event("content_block_start", index=index, content_block=_opened(call, result, place))
        piece = {"type": "input_json_delta", "partial_json": call.input_json}
        yield Frame(at_s, ending + event("content_block_delta", index=index, delta=piece), answer.output_tokens)
        ending = event("content_block_stop", index=index)
    usage = _usage(result.usage, answer.output_tokens)
    del usage["service_tier"], usage["cache_creation"]
    ending += event("message_delta", delta=_ending(answer), usage=usage) + event("message_stop")
    yield Frame(at_s, ending, answer.output_tokens)
