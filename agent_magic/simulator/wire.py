"""The bytes of an answer: the JSON of a message, and the server-sent events of a stream in their documented order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from agent_magic.simulator import tokens
from agent_magic.simulator.answer import Answer
from agent_magic.simulator.ask import Ask
from agent_magic.simulator.caching import InputUsage
from agent_magic.simulator.latency import Timing
from agent_magic.simulator.shapes import Json

_DELTA_HEAD = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":'
)
_DELTA_TAIL = b"}}\n\n"
# Encoders are kept: `json.dumps` with separators would build one per call.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_encode_text = json.JSONEncoder().encode


@dataclass(frozen=True, slots=True)
class Frame:
    """Some bytes of a response body.

    Attributes:
        at_s: When they leave, in seconds after the request.
        data: The bytes.
        tokens: Output tokens of the answer that are out with them.
    """

    at_s: float
    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """Everything a response is made from."""

    message_id: str
    ask: Ask
    answer: Answer
    usage: InputUsage
    timing: Timing


def encode(value: Json) -> bytes:
    """Return compact JSON."""
    return _encode(value).encode()


def event(name: str, value: Json) -> bytes:
    """Return one server-sent event."""
    return f"event: {name}\ndata: {_encode(value)}\n\n".encode()


def usage_body(usage: InputUsage, output_tokens: int) -> Json:
    """Return the `usage` of a message."""
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


def message(result: Result) -> Json:
    """Return the complete message."""
    text, answer = result.answer.text, result.answer
    return {
        **_head(result),
        "content": [*([{"type": "text", "text": text}] if text else []), *_search(result)],
        **_ending(answer),
        "usage": usage_body(result.usage, answer.output_tokens),
    }


def frames(result: Result) -> Iterator[Frame]:
    """Yield the events of a stream, each with its time."""
    timing, answer = result.timing, result.answer
    start: Json = {**_head(result), "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = usage_body(result.usage, min(1, answer.output_tokens))
    opening = event("message_start", {"type": "message_start", "message": start})
    if answer.text:
        block: Json = {"type": "text", "text": ""}
        opening += event("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block})
    yield Frame(timing.ttft_s, opening + event("ping", {"type": "ping"}))
    yield from _deltas(answer, timing)
    ending = event("content_block_stop", {"type": "content_block_stop", "index": 0}) if answer.text else b""
    ending += b"".join(_block_events(block, int(bool(answer.text))) for block in _search(result))
    ending += _message_delta(result) + event("message_stop", {"type": "message_stop"})
    yield Frame(timing.at_s(answer.output_tokens), ending, answer.output_tokens)


def delta(text: str) -> bytes:
    """Return one piece of text as an event."""
    return _DELTA_HEAD + _encode_text(text).encode() + _DELTA_TAIL


def _search(result: Result) -> tuple[Json, ...]:
    """Return what a paused turn ends with: a search that the server has begun and not finished."""
    if result.answer.stop_reason != "pause_turn":
        return ()
    query = " ".join(result.answer.text.split()[:6])
    tool = {"type": "server_tool_use", "id": f"srvtoolu_{result.message_id}", "name": "web_search"}
    return ({**tool, "input": {"query": query}},)


def _block_events(block: Json, index: int) -> bytes:
    """Return the events of a block of a server's tool."""
    start: Json = {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
    piece = {"type": "input_json_delta", "partial_json": _encode(block["input"])}
    return (
        event("content_block_start", start)
        + event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": piece})
        + event("content_block_stop", {"type": "content_block_stop", "index": index})
    )


def _deltas(answer: Answer, timing: Timing) -> Iterator[Frame]:
    size = 0
    for piece in answer.pieces:
        # The first piece is what the time to the first token is about; a later one is out when it is complete.
        at_s = timing.at_s(size // tokens.BYTES_PER_TOKEN)
        size += len(piece.encode("utf-8", "surrogatepass"))
        yield Frame(at_s, delta(piece), -(-size // tokens.BYTES_PER_TOKEN))


def _message_delta(result: Result) -> bytes:
    usage = usage_body(result.usage, result.answer.output_tokens)
    del usage["service_tier"], usage["cache_creation"]
    return event("message_delta", {"type": "message_delta", "delta": _ending(result.answer), "usage": usage})


def _head(result: Result) -> Json:
    return {"id": result.message_id, "type": "message", "role": "assistant", "model": result.ask.model.id}


def _ending(answer: Answer) -> Json:
    found: Json = {"stop_reason": answer.stop_reason, "stop_sequence": answer.stop_sequence}
    if answer.stop_reason == "refusal":
        found["stop_details"] = {"type": "refusal", "category": None, "explanation": "A simulated refusal."}
    return found
