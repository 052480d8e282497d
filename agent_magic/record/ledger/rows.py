"""Values as rows of a ledger's file, and back.

Long texts stand outside the events: prompts, system prompts and contexts once each under their digest, answers in rows
of their own. Texts are UTF-8 that lets lone surrogates and NUL pass, so every text comes back as it was.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.plan_json import plan_to_dict
from agent_magic.record.answer import Answer
from agent_magic.record.codec import data_of, event_from_json, event_to_json, from_json, line_of, to_json
from agent_magic.record.events import AttemptEnded, AttemptStarted, Event
from agent_magic.record.ledger.schema import MARK

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from agent_magic.declare.plan import Plan
    from agent_magic.record.request import Request

TEXTS = ("prompt", "system", "context")
SUM_BYTES = 16


def encoded(text: str) -> bytes:
    """Write a text, whatever is in it."""
    return text.encode("utf-8", "surrogatepass")


def decoded(data: bytes) -> str:
    """Read what `encoded` wrote."""
    return data.decode("utf-8", "surrogatepass")


def digest(data: bytes) -> bytes:
    """Return the name under which a text is kept."""
    return hashlib.sha256(data).digest()


def plan_text(plan: Plan) -> str:
    """Write a plan."""
    return line_of(plan_to_dict(plan))


def reserved(request: Request) -> int:
    """Return the most input tokens a request can be billed for: no token is shorter than a byte."""
    parts = (request.prompt, request.system or "", request.context or "", request.so_far)
    return sum(len(part) if part.isascii() else len(encoded(part)) for part in parts)


def answer_row(key: str, ordinal: int, answer: Answer, bought_at: float) -> tuple[object, ...]:
    """Write an answer as the columns of `answers`, its id left out."""
    text, data = encoded(answer.text), line_of(to_json(replace(answer, text="")))
    ends = (key, ordinal, answer.source, answer.stop_reason, bought_at, data)
    return (MARK, _checksum(*ends, text), *ends, text)


def answer_of(row: tuple[Any, ...]) -> Answer:
    """Read a row of `answers`, all of its columns.

    Raises:
        ValueError: It is damaged.
    """
    _, mark, checksum, key, ordinal, source, stop_reason, bought_at, data, text = row
    if mark != MARK or checksum != _checksum(key, ordinal, source, stop_reason, bought_at, data, text):
        raise ValueError("the checksum of an answer is wrong")
    return replace(from_json(Answer, data_of(data)), text=decoded(text))


def _checksum(*parts: object) -> bytes:
    """Sign a row: a flipped bit anywhere in it shows."""
    seal = hashlib.sha256()
    for part in parts:
        seal.update(part if isinstance(part, bytes) else repr(part).encode("utf-8", "surrogatepass"))
        seal.update(b"\x1f")
    return seal.digest()[:SUM_BYTES]


class Texts:
    """The texts of one run on their way into the file, each once."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}
        self._new: list[tuple[bytes, bytes]] = []

    def name(self, text: str) -> bytes:
        """Return the digest of a text, which is stored with the next `store`."""
        found = self._known.get(text)
        if found is None:
            data = encoded(text)
            found = self._known[text] = digest(data)
            self._new.append((found, data))
        return found

    def store(self, db: sqlite3.Connection) -> None:
        """Store those that are new."""
        db.executemany("INSERT OR IGNORE INTO texts (sha, text) VALUES (?, ?)", self._new)

    def stored(self) -> None:
        """Take in that they are stored. Prompts are forgotten: each is sent once, and together they may be long."""
        self._new.clear()

    def forget(self, text: str) -> None:
        """Let go of a text that will hardly come again."""
        self._known.pop(text, None)


def chunk_of(events: Iterable[Event], texts: Texts, kept: Mapping[tuple[int, int], int]) -> str:
    """Write events as one text.

    Args:
        events: What happened.
        texts: Takes the long texts in.
        kept: The rows of `answers`, by agent and number of the attempt.
    """
    return line_of([_event_data(event, texts, kept) for event in events])


def _event_data(event: Event, texts: Texts, kept: Mapping[tuple[int, int], int]) -> dict[str, Any]:
    if isinstance(event, AttemptStarted):
        request = event.request
        found = {field: getattr(request, field) for field in TEXTS}
        bare = request._replace(prompt="", system=None, context=None)
        data = event_to_json(event._replace(request=bare))
        data["texts"] = {field: texts.name(text).hex() for field, text in found.items() if text is not None}
        texts.forget(request.prompt)
        return data
    if isinstance(event, AttemptEnded) and event.answer is not None:
        row = kept.get((event.agent, event.number))
        if row is not None:
            return event_to_json(event._replace(answer=None)) | {"kept": row}
    return event_to_json(event)


def events_of(
    chunk: str, text_of: Callable[[bytes], str], answer_at: Callable[[int], Answer | None]
) -> Iterator[Event]:
    """Read what `chunk_of` wrote. Events of kinds this version does not know are left out.

    Args:
        chunk: The text.
        text_of: Returns a text by its digest.
        answer_at: Returns an answer by its row.
    """
    rows: Any = json.loads(chunk)
    for row in cast("list[dict[str, Any]]", rows):
        try:
            event = event_from_json(row)
        except ValueError:
            continue
        if isinstance(event, AttemptStarted):
            found = {field: text_of(bytes.fromhex(name)) for field, name in row.get("texts", {}).items()}
            event = event._replace(request=event.request._replace(**found))
        if isinstance(event, AttemptEnded) and row.get("kept") is not None:
            answer = answer_at(row["kept"])
            event = event._replace(answer=replace(answer, source=event.source or answer.source) if answer else None)
        yield event
