"""Reads server-sent events of any server.

Lines end with LF, CRLF or CR; comments keep a connection open; chunks may end anywhere, even within a character; the
last event may lack its blank line. Only those three end a line: JSON may contain other separators.

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
    """One event.

    Attributes:
        name: Its name; mostly empty.
        data: Its text.
    """

    name: str
    data: str


async def events_of(pieces: AsyncIterable[bytes]) -> AsyncIterator[Event]:
    """Yield the events of a body that have data.

    Args:
        pieces: The body, cut anywhere.
    """
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
    if data and (text := "\n".join(data)) and (text == DONE or json_of(text)):
        yield Event(name, text)  # a cut event is none


def _field(line: str, name: str, data: list[str]) -> tuple[str, list[str]]:
    """Read one line of an event."""
    field, _, value = line.partition(":")
    value = value.removeprefix(" ")
    if field == "data":
        return name, [*data, value]
    return (value, data) if field == "event" else (name, data)


def json_of(text: str) -> list[Any]:
    """Return the values of an event: one, or one per line if blank lines are missing; empty if not JSON."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip() not in {"", DONE}]
    except (ValueError, RecursionError):
        return []
