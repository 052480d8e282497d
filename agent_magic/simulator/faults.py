"""Faults of responses: a table for streams, a table for plain bodies.

A stream breaks after half of its deltas, unless the fault is at its beginning. A plain body has the nearest equivalent:
for `error_event` a 529, for `clean_end` a message without `stop_reason`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from agent_magic.simulator.directives import Overrides
from agent_magic.simulator.errors import ApiError
from agent_magic.simulator.response import Ending, Frame, Response, Result, delta, encode, event, message, whole
from agent_magic.simulator.tokens import BYTES_PER_TOKEN

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
    """At least one delta."""
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
        Frame(first.at_s + place * case.overrides.every_s, delta(character), -(-place // BYTES_PER_TOKEN))
        for place, character in enumerate(text, 1)
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
        Frame(frame.at_s + place * case.overrides.every_s, frame.data[place : place + 1], frame.tokens)
        for place in range(len(frame.data))
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
