"""A whole response as a value: what is sent, when, and how the connection ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agent_magic.simulator.wire import Frame, Result, encode, frames, message

JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream; charset=utf-8"


class Ending(Enum):
    """How a response ends."""

    CLEAN = "clean"
    """As HTTP asks for."""
    CUT = "cut"
    """The connection is closed in the middle of the body."""
    STALL = "stall"
    """Nothing more comes, and the connection stays open."""
    RESET = "reset"
    """The connection is reset before the first byte."""
    HANG = "hang"
    """No byte is sent, and the connection stays open."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response.

    Attributes:
        status: The HTTP status.
        frames: The body; at least one frame.
        content_type: The media type.
        length: The announced length; `None` sends chunks.
        ending: How it ends.
        headers: Further headers.
    """

    status: int
    frames: tuple[Frame, ...]
    content_type: str = JSON_TYPE
    length: int | None = None
    ending: Ending = Ending.CLEAN
    headers: tuple[tuple[str, str], ...] = ()


def whole(status: int, body: bytes, *, at_s: float = 0.0, tokens: int = 0, content_type: str = JSON_TYPE) -> Reply:
    """Return a response that is sent in one piece."""
    return Reply(status, (Frame(at_s, body, tokens),), content_type, len(body))


def reply_to(result: Result) -> Reply:
    """Return the response to a request: a message, or a stream of events."""
    if result.ask.stream:
        return Reply(200, tuple(frames(result)), SSE_TYPE)
    length = result.answer.output_tokens
    return whole(200, encode(message(result)), at_s=result.timing.at_s(length), tokens=length)
