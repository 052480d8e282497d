"""Server-sent events.

Lines end with LF, CRLF or CR, and with nothing else that JSON may contain; a byte that is no UTF-8 spoils its character
alone. Servers leave out what the standard demands: the blank line behind the last event, or all of them.
Source: the WHATWG's HTML standard, "Server-sent events".
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

DONE = "[DONE]"
_LINE_END = re.compile(r"\r\n|\n|\r(?=[^\n])")
"""A CR at the end of a piece may be half of a line end, so it waits for the next piece."""


class Event(NamedTuple):
    """One event; its name is mostly empty."""

    name: str
    data: str


async def events_of(pieces: AsyncIterable[bytes]) -> AsyncIterator[Event]:
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    rest, name, data = "", "", list[str]()
    async for piece in pieces:
        *lines, rest = _LINE_END.split(rest + decode(piece))
        for line in lines:
            if line:
                name, data = _field(line, name, data)
            elif data:
                yield Event(name, "\n".join(data))
                name, data = "", []
            else:
                name = ""
    name, data = _field(rest.rstrip("\r"), name, data)
    if data and (text := "\n".join(data)) and (text == DONE or values_in(text)):
        yield Event(name, text)  # a cut event is none


def _field(line: str, name: str, data: list[str]) -> tuple[str, list[str]]:
    field, _, value = line.partition(":")
    value = value.removeprefix(" ")
    if field == "data":
        return name, [*data, value]
    return (value, data) if field == "event" else (name, data)


def may_begin(body: str) -> bool:
    """Return whether a body may be the beginning of an event that was cut."""
    text = body.lstrip()
    return any(text.startswith(one) or one.startswith(text) for one in ("event:", "data:", "id:", "retry:", ":"))


def values_in(data: str) -> list[Any]:
    """Return one value, or one per line if blank lines are missing; empty if not JSON."""
    try:
        return [json.loads(data)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in data.splitlines() if line.strip() not in {"", DONE}]
    except (ValueError, RecursionError):
        return []
