"""The tables of a ledger's file, by version. A step that was released is never changed: a new one follows it.

Rows of `answers` stand for themselves: each carries its mark, its key and a checksum, so that it can be told from
anything else in a damaged file and served without the rest. They are written once and never changed.
"""

from __future__ import annotations

APPLICATION_ID = 0x414D4C31
"""Says in the header of the file that it is a ledger: `AML1`."""
MARK = "am:answer"
"""Begins every row of `answers`."""

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
TEXTS = "CREATE TABLE texts (sha BLOB PRIMARY KEY, text BLOB NOT NULL)"
LEASES = """CREATE TABLE leases (
    key TEXT NOT NULL, ordinal INTEGER NOT NULL, run INTEGER NOT NULL, owner TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (key, ordinal)
)"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        ANSWERS,
        "CREATE INDEX answers_by_key ON answers (key, ordinal)",
        RUNS,
        CALLS,
        "CREATE INDEX calls_by_answer ON calls (answer) WHERE answer IS NOT NULL",
        EVENTS,
        TEXTS,
        LEASES,
    ),
    ("ALTER TABLE runs ADD COLUMN terms TEXT",),
    ("ALTER TABLE runs ADD COLUMN bases TEXT",),
)
"""What leads from each version to the next."""
VERSION = len(MIGRATIONS)
SCHEMA: dict[str, int] = {"answers": 10, "runs": 15, "calls": 24, "events": 3, "texts": 2, "leases": 5}
"""The tables, and how many columns each has."""
ANSWER_COLUMNS = "id, mark, sum, key, ordinal, source, stop_reason, bought_at, data, text"
INSERT_ANSWER = f"INSERT INTO answers ({ANSWER_COLUMNS[4:]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - ours
