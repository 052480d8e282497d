"""A response as a value: the bytes of a message or a stream, the time of each part, and its ending."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from agent_magic.simulator import tokens
from agent_magic.simulator.answer import Answer
from agent_magic.simulator.blocks import Block
from agent_magic.simulator.caching import InputUsage
from agent_magic.simulator.json_types import Json
from agent_magic.simulator.latency import Timing
from agent_magic.simulator.request import Request
from agent_magic.simulator.thinking import BLOCKS

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
        if thought := sum(block.tokens for block in answer.blocks if block.kind in BLOCKS):
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
    """As first block: nearly all events of most streams."""
    size = 0
    for piece in block.pieces:
        # The first piece is sent at the time to the first token, a later one when it is complete.
        at_s = timing.at_s(size // tokens.BYTES_PER_TOKEN)
        size += len(piece.encode("utf-8", "surrogatepass"))
        yield Frame(at_s, delta(piece), -(-size // tokens.BYTES_PER_TOKEN))
    for each in block.late:
        yield Frame(timing.at_s(block.tokens), event("content_block_delta", index=0, delta=each), block.tokens)


def _deltas(block: Block, index: int, sent: int, timing: Timing) -> Iterator[Frame]:
    """A call argument is sent only when complete."""
    total, size = len(block.text), 0
    for each, length in block.deltas():
        size += length
        done = sent + (block.tokens * size // total if total else block.tokens)
        yield Frame(timing.at_s(done), event("content_block_delta", index=index, delta=each), done)
