"""Tables of a ledger's file by version, and values as rows.

A released migration is never changed; a new one follows it. Long texts are kept outside of events, under their digest.
An answer's row is never changed; its mark, key and checksum let it be served from a damaged file without the rest.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agent_magic.record.answer import Answer
from agent_magic.record.codec import data_of, event_from_json, event_to_json, from_json, line_of, to_json
from agent_magic.record.events import AttemptEnded, AttemptStarted, CallEnded, Event
from agent_magic.record.request import Message

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agent_magic.declare.content import Attachment
    from agent_magic.record.request import Request

APPLICATION_ID = 0x414D4C31
"""`AML1`."""
MARK = "am:answer"
"""Begins every row of `answers`."""
SUM_BYTES = 16
TEXTS = ("prompt", "system", "context", "schema", "tools")
SELDOM = frozenset({"schema", "tools"})

ANSWERS = """CREATE TABLE answers (
    id INTEGER PRIMARY KEY, mark TEXT NOT NULL, sum BLOB NOT NULL, key TEXT NOT NULL, ordinal INTEGER NOT NULL,
    source TEXT NOT NULL, stop_reason TEXT NOT NULL, bought_at REAL NOT NULL, data TEXT NOT NULL, text BLOB NOT NULL
)"""
RUNS = """CREATE TABLE runs (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, began_at TEXT NOT NULL,
    plan_name TEXT NOT NULL, agents INTEGER NOT NULL, origin TEXT NOT NULL,
    plan BLOB NOT NULL, models TEXT NOT NULL, state TEXT NOT NULL,
    simulated INTEGER NOT NULL DEFAULT 0, succeeded INTEGER, wall_s REAL
)"""
CALLS = """CREATE TABLE calls (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, agent INTEGER NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL,
    model TEXT NOT NULL, effort TEXT, key TEXT, ordinal INTEGER, state TEXT NOT NULL, started_at REAL NOT NULL,
    reserved_input INTEGER NOT NULL, reserved_output INTEGER NOT NULL, source TEXT, stop_reason TEXT, at_s REAL,
    input_tokens INTEGER, output_tokens INTEGER, ttft_s REAL, api_s REAL, cost_usd REAL, saved_usd REAL, kind TEXT,
    answer INTEGER, UNIQUE (run, agent, number)
)"""
EVENTS = "CREATE TABLE events (run INTEGER NOT NULL, place INTEGER NOT NULL, data TEXT NOT NULL, UNIQUE (run, place))"
STORED_TEXTS = "CREATE TABLE texts (sha BLOB PRIMARY KEY, text BLOB NOT NULL)"
READ_FILE = "SELECT data FROM files WHERE sha = ?"
STORED_FILES = "CREATE TABLE files (sha BLOB PRIMARY KEY, data BLOB NOT NULL)"
LEASES = """CREATE TABLE leases (
    key TEXT NOT NULL, ordinal INTEGER NOT NULL, run INTEGER NOT NULL, owner TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (key, ordinal)
)"""
LIMITS = """CREATE TABLE limits (
    client TEXT NOT NULL, model_class TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (client, model_class)
)"""
TOOL_CALLS = """CREATE TABLE tool_calls (
    key TEXT PRIMARY KEY, run INTEGER NOT NULL, agent INTEGER NOT NULL, number INTEGER NOT NULL, tool TEXT NOT NULL,
    state TEXT NOT NULL, pure INTEGER NOT NULL, began_at REAL NOT NULL, data TEXT
)"""
PRESENCE = """CREATE TABLE presence (
    client TEXT NOT NULL, session TEXT NOT NULL, owner TEXT NOT NULL, beat INTEGER NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (client, session)
)"""

BATCHES = """CREATE TABLE batches (
    id INTEGER PRIMARY KEY, endpoint TEXT NOT NULL, batch TEXT, owner TEXT NOT NULL, planned_at REAL NOT NULL,
    state TEXT NOT NULL, took_s REAL, names TEXT NOT NULL
)"""

GRADES = """CREATE TABLE grades (
    job TEXT NOT NULL, endpoint TEXT NOT NULL, model TEXT NOT NULL, target TEXT NOT NULL, grader TEXT NOT NULL,
    answer TEXT NOT NULL, measure TEXT NOT NULL, score REAL NOT NULL, cost_usd REAL, at REAL NOT NULL,
    PRIMARY KEY (job, endpoint, model, target, grader, answer)
)"""

EDITS = """CREATE TABLE edits (
    home TEXT NOT NULL, agent TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (home, agent, key)
)"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        ANSWERS,
        "CREATE INDEX answers_by_key ON answers (key, ordinal)",
        RUNS,
        CALLS,
        "CREATE INDEX calls_by_answer ON calls (answer) WHERE answer IS NOT NULL",
        EVENTS,
        STORED_TEXTS,
        LEASES,
    ),
    ("ALTER TABLE runs ADD COLUMN terms TEXT",),
    ("ALTER TABLE runs ADD COLUMN bases TEXT",),
    (
        LIMITS,
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        "INSERT INTO settings VALUES ('salt', hex(randomblob(16)))",
    ),
    (TOOL_CALLS, "CREATE INDEX tool_calls_by_run ON tool_calls (run, agent)"),
    (STORED_FILES,),
    (PRESENCE,),
    (BATCHES,),
    (GRADES,),
    ("ALTER TABLE runs ADD COLUMN home TEXT", "ALTER TABLE batches ADD COLUMN home TEXT"),
    (EDITS,),
    ("ALTER TABLE calls ADD COLUMN prompt TEXT", "ALTER TABLE calls ADD COLUMN cascade TEXT"),
)
"""What leads from each version to the next."""
VERSION = len(MIGRATIONS)
TABLES = (
    *("answers", "runs", "calls", "events", "texts", "leases", "limits", "settings", "tool_calls", "files"),
    *("presence", "batches", "grades", "edits"),
)
ANSWER_COLUMNS = "id, mark, sum, key, ordinal, source, stop_reason, bought_at, data, text"
INSERT_ANSWER = f"INSERT INTO answers ({ANSWER_COLUMNS[4:]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
ANSWER_OF_ID = f"SELECT {ANSWER_COLUMNS} FROM answers WHERE id = ?"  # noqa: S608 - ours


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def most_input_tokens(request: Request) -> int:
    """Return the most input tokens a request can be billed for: no token is shorter than a byte."""
    return sum(len(part) if part.isascii() else len(encode(part)) for part in request.texts())


def answer_row(key: str, ordinal: int, answer: Answer, bought_at: float) -> tuple[object, ...]:
    text, data = encode(answer.text), line_of(to_json(answer) | {"text": ""})
    ends = (key, ordinal, answer.source, answer.stop_reason, bought_at, data)
    return (MARK, _checksum(*ends, text), *ends, text)


def answer_of(row: tuple[Any, ...]) -> Answer:
    """Raise `ValueError` if the row is damaged."""
    _, mark, checksum, key, ordinal, source, stop_reason, bought_at, data, text = row
    if mark != MARK or checksum != _checksum(key, ordinal, source, stop_reason, bought_at, data, text):
        raise ValueError("the checksum of an answer is wrong")
    return from_json(Answer, data_of(data) | {"text": decode(text)})


def is_whole(row: tuple[Any, ...]) -> bool:
    try:
        answer_of(row)
    except (ValueError, TypeError, KeyError):
        return False
    return True


def _checksum(*parts: object) -> bytes:
    sealed = (part if isinstance(part, bytes) else encode(repr(part)) for part in parts)
    return hashlib.sha256(b"\x1f".join((*sealed, b""))).digest()[:SUM_BYTES]


def file_in(rows: Sequence[tuple[Any, ...]], name: str) -> bytes:
    """Return the bytes of a file; empty if they are lost or damaged."""
    return rows[0][0] if rows and hashlib.sha256(rows[0][0]).hexdigest() == name else b""


class Texts:
    """The long texts, pictures and documents of one run on their way into the file, each stored once."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}
        self._new: list[tuple[bytes, bytes]] = []
        self._files: set[str] = set()
        self._new_files: list[tuple[bytes, bytes]] = []

    def name(self, text: str) -> bytes:
        """The next `store` stores the text."""
        found = self._known.get(text)
        if found is None:
            data = encode(text)
            found = self._known[text] = hashlib.sha256(data).digest()
            self._new.append((found, data))
        return found

    def attach(self, attachment: Attachment) -> None:
        if attachment.data and attachment.sha256 not in self._files:
            self._files.add(attachment.sha256)
            self._new_files.append((bytes.fromhex(attachment.sha256), attachment.data))

    def store(self, db: sqlite3.Connection) -> None:
        if self._new:
            db.executemany("INSERT OR IGNORE INTO texts (sha, text) VALUES (?, ?)", self._new)
        if self._new_files:
            db.executemany("INSERT OR IGNORE INTO files (sha, data) VALUES (?, ?)", self._new_files)

    def stored(self) -> None:
        """Record that the transaction is committed."""
        self._new.clear()
        self._new_files.clear()

    def forget(self, text: str) -> None:
        """Forget a text: prompts are sent once, and together they may be long."""
        self._known.pop(text, None)


def chunk_of(events: Iterable[Event], texts: Texts, kept: Mapping[tuple[int, int], int]) -> str:
    """Write events as one text, storing the long texts apart."""
    return line_of([_event_data(event, texts, kept) for event in events])


def _event_data(event: Event, texts: Texts, kept: Mapping[tuple[int, int], int]) -> dict[str, Any]:
    if isinstance(event, AttemptStarted):
        request = event.request
        found = {field: getattr(request, field) for field in TEXTS}
        bare = request._replace(prompt="", system=None, context=None, schema="", tools="", messages=())
        data = event_to_json(event._replace(request=bare))
        if request.messages:  # each turn repeats those before it, so their texts are kept once
            data["messages"] = [[one.role, texts.name(one.content).hex()] for one in request.messages]
        data["texts"] = {
            field: texts.name(text).hex()
            for field, text in found.items()
            if text is not None and (text or field not in SELDOM)
        }
        for one in request.files:
            texts.attach(one)
        texts.forget(request.prompt)
        return data
    if isinstance(event, AttemptEnded) and event.answer is not None:
        row = kept.get((event.agent, event.number))
        if row is not None:
            return event_to_json(event._replace(answer=None)) | {"kept": row}
    if isinstance(event, CallEnded):
        for one in event.files:
            texts.attach(one)
    return event_to_json(event)


def events_of(
    chunk: str,
    text_of: Callable[[bytes], str],
    answer_at: Callable[[int], Answer | None],
    file_of: Callable[[str], bytes],
) -> Iterator[Event]:
    """Skip kinds of events unknown to this version."""
    for row in cast("list[dict[str, Any]]", json.loads(chunk)):
        try:
            event = event_from_json(row)
        except ValueError:
            continue
        if isinstance(event, AttemptStarted):
            found: dict[str, Any] = {
                field: text_of(bytes.fromhex(name)) for field, name in row.get("texts", {}).items()
            }
            if said := row.get("messages"):
                found["messages"] = tuple(Message(role, text_of(bytes.fromhex(name))) for role, name in said)
            event = event._replace(request=event.request._replace(**found).with_files(file_of))
        if isinstance(event, CallEnded):
            event = event.with_files(file_of)
        if isinstance(event, AttemptEnded) and row.get("kept") is not None:
            answer = answer_at(row["kept"])
            event = event._replace(answer=replace(answer, source=event.source or answer.source) if answer else None)
        yield event
