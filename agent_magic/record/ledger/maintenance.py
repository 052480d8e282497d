"""Maintenance of a ledger's file: size, verify, prune, export, and recovery of a damaged one."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from agent_magic.declare.validation import is_number
from agent_magic.errors import LedgerError
from agent_magic.record.files import check_folder, check_regular, write_whole
from agent_magic.record.ledger.rows import (
    ANSWER_COLUMNS,
    ANSWER_OF_ID,
    ANSWERS,
    INSERT_ANSWER,
    MARK,
    TOOL_CALLS,
    answer_of,
    decode,
    is_whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_magic.record.ledger.file import LedgerFile, Row

DAY_S = 86400.0
_SHA256 = re.compile(r'"sha256": "([0-9a-f]{64})"')
TORN = (sqlite3.DatabaseError, UnicodeDecodeError)
"""SQLite quotes a damaged file in messages, which need not be UTF-8."""
RUN_TABLES = ("runs", "calls", "events", "texts", "tool_calls", "files", "batches")
STATES = ("begun", "done", "over")
_KEY = re.compile("[0-9a-f]{64}")
_CALL = re.compile(b"[0-9a-f]{64}.{0,300}?(begun|done|over)", re.DOTALL)
"""Bytes in every page with a row of `tool_calls`; pages of answers may have them too."""
PAGE = 4096
"""SQLite's default."""


class Check(NamedTuple):
    """Result of checking a file, with SQLite's messages about it."""

    answers: int
    damaged: int
    runs: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.damaged and not self.problems


class Size(NamedTuple):
    """Content of a file, dollars without simulated answers; `unknown` may have been billed when a kernel was killed."""

    bytes: int
    answers: int
    simulated: int
    runs: int
    cost_usd: float | None
    saved_usd: float | None
    unknown: int


def size_of(file: LedgerFile) -> Size:
    answers, simulated = file.read("SELECT count(*), coalesce(sum(source = 'simulated'), 0) FROM answers")[0]
    runs = file.read("SELECT count(*) FROM runs")[0][0]
    cost, saved, unknown = file.read(
        "SELECT sum(CASE WHEN c.source = 'live' THEN c.cost_usd END), "
        "sum(CASE WHEN a.source = 'live' THEN c.saved_usd END), coalesce(sum(c.state = 'unknown'), 0) "
        "FROM calls c LEFT JOIN answers a ON a.id = c.answer"
    )[0]
    return Size(file.size_bytes(), answers, simulated, runs, cost, saved, unknown)


def verify(file: LedgerFile) -> Check:
    try:
        found = [str(row[0]) for row in file.read("PRAGMA integrity_check(20)")]
        problems = tuple(text for text in found if text != "ok")
    except sqlite3.DatabaseError as error:
        problems = (str(error),)
    if problems:
        return Check(0, 0, 0, problems)
    ids = [row[0] for row in file.read("SELECT id FROM answers")]  # one by one: together they may exceed the memory
    good = sum(is_whole(row) for number in ids for row in file.read(ANSWER_OF_ID, number))
    return Check(good, len(ids) - good, file.read("SELECT count(*) FROM runs")[0][0], ())


def prune(file: LedgerFile, *, days: float | None = None, simulated: bool = False) -> int:
    """Delete runs and answers older than `days`, or simulated ones. Return the number of deleted answers."""
    if days is None and not simulated:
        raise LedgerError("Nothing was deleted. Say what to delete: days=N, simulated=True or both; days=0 is all.")
    if days is not None and not (is_number(days) and days >= 0):
        raise LedgerError(f"Nothing was deleted: days must be a number >= 0, got {days!r}; 0 is all.")
    before = time.time() - (days or 0.0) * DAY_S
    which = "('simulated')" if simulated else "('live', 'simulated')"
    with file.writing() as db:
        gone = db.execute(f"DELETE FROM answers WHERE bought_at < ? AND source IN {which}", (before,)).rowcount  # noqa: S608
        db.execute(
            "DELETE FROM runs WHERE state != 'running' AND NOT EXISTS (SELECT 1 FROM calls c JOIN answers a "
            "ON a.id = c.answer WHERE c.run = runs.id) AND (? = 0 OR EXISTS (SELECT 1 FROM calls c WHERE "
            "c.run = runs.id AND c.source = 'simulated')) AND strftime('%s', began_at) + 0 < ?",
            (simulated, before),
        )
        for table in ("calls", "events", "leases", "tool_calls"):
            db.execute(f"DELETE FROM {table} WHERE run NOT IN (SELECT id FROM runs)")  # noqa: S608 - ours
        if not simulated:
            db.execute("DELETE FROM limits WHERE at < ?", (before,))
            db.execute("DELETE FROM grades WHERE at < ?", (before,))
        used = {bytes.fromhex(name) for name in _names_of_texts(db)}
        used |= {row[0] for row in db.execute("SELECT plan FROM runs")}
        names = [row for row in db.execute("SELECT sha FROM texts").fetchall() if row[0] not in used]
        db.executemany("DELETE FROM texts WHERE sha = ?", names)
        kept = _names_of_files(db)
        files = [row for row in db.execute("SELECT sha FROM files").fetchall() if row[0].hex() not in kept]
        db.executemany("DELETE FROM files WHERE sha = ?", files)
    file.compact()
    return gone


def _names_of_texts(db: sqlite3.Connection) -> Iterator[str]:
    for (chunk,) in db.execute("SELECT data FROM events"):
        for event in json.loads(chunk):
            yield from event.get("texts", {}).values()
            yield from (name for _, name in event.get("messages", ()))


def _names_of_files(db: sqlite3.Connection) -> set[str]:
    rows = itertools.chain(db.execute("SELECT data FROM events"), db.execute("SELECT text FROM texts"))
    texts = (row[0] if isinstance(row[0], str) else decode(row[0]) for row in rows)
    return {name for text in texts for name in _SHA256.findall(text)}


def export(file: LedgerFile, path: Path) -> int:
    """Write every answer as a line of JSON, never over a file that no export wrote. Return how many."""
    check_folder(path, LedgerError)
    check_regular(path, LedgerError)
    if path == file.path or (path.exists() and path.stat().st_size and not _is_export(path)):
        raise LedgerError(f"{path.name!r} is there already and is no export of a ledger. Choose another name.")
    count = 0

    def lines() -> Iterator[str]:
        nonlocal count
        for (number,) in file.read("SELECT id FROM answers ORDER BY id"):
            row = file.read(ANSWER_OF_ID, number)[0]
            if is_whole(row):
                count += 1
                yield _line(file, row)

    write_whole(path, lines(), private=True)
    return count


def _is_export(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline()
    try:
        line: Any = json.loads(first)
    except ValueError:  # also if it is not UTF-8
        return False
    return isinstance(line, dict) and {"key", "ordinal", "bought_at"} <= {*cast("dict[str, Any]", line)}


def _line(file: LedgerFile, row: Row) -> str:
    calls = file.read("SELECT run, name, model, cost_usd FROM calls WHERE answer = ? ORDER BY id LIMIT 1", row[0])
    run, agent, model, cost = calls[0] if calls else (None, None, None, None)
    head = {"key": row[3], "ordinal": row[4], "bought_at": row[7], "run": run, "agent": agent, "asked": model}
    return json.dumps({**head, "cost_usd": cost, **asdict(answer_of(row))}, sort_keys=True)


def recover(damaged: Path, into: LedgerFile) -> int:
    """Copy what SQLite can read of a damaged file, which stays, into another; return the number of answers copied.

    Only an empty file gets the runs too.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "damaged"
        for end in ("", "-wal"):
            if Path(f"{damaged}{end}").exists():
                shutil.copyfile(f"{damaged}{end}", f"{copy}{end}")
        tables = _tables_in(copy)
        empty = not into.read("SELECT 1 FROM runs UNION SELECT 1 FROM answers LIMIT 1")
        known = {row[0] for row in into.read("SELECT sum FROM answers")}
        count = 0
        with into.writing() as db:
            for row in _answers_in(copy):
                if row[2] not in known:
                    known.add(row[2])
                    count += 1
                    _put_answer(db, row, keep_id=empty)
            calls = [*tables.get("tool_calls", ()), *_calls_in(copy)]  # no number may be used again
            if not (empty and tables.get("runs")):  # it belongs to no run that is here
                calls = [(key, 0, *row) for key, _, *row in calls]
            tables = {**(tables if empty else {}), "tool_calls": calls}
            for table, rows in tables.items():
                columns = len(db.execute(f"PRAGMA table_info({table})").fetchall())
                marks = ", ".join("?" * columns)
                padded = [(*row, *[None] * (columns - len(row))) for row in rows if len(row) <= columns]  # an old one
                db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", padded)  # noqa: S608 - ours
    return count


def _put_answer(db: sqlite3.Connection, row: Row, *, keep_id: bool) -> None:
    if keep_id:
        with suppress(sqlite3.IntegrityError):  # an old page may have the same number
            db.execute(INSERT_ANSWER.replace("(mark", "(id, mark").replace("(?", "(?, ?"), row)
            return
    db.execute(INSERT_ANSWER, row[1:])


def _tables_in(path: Path) -> dict[str, list[Row]]:
    """Read tables as far as SQLite gets from the beginning and from the end."""
    found: dict[str, list[Row]] = {}
    with suppress(*TORN), closing(sqlite3.connect(path, isolation_level=None)) as db:
        for table in RUN_TABLES:
            found[table] = [row[1:] for row in _rows_of(db, f"SELECT rowid, * FROM {table}")]  # noqa: S608 - ours
    return found


def _rows_of(db: sqlite3.Connection, sql: str) -> list[Row]:
    """Read up to the first damage, and back to the last."""
    found: dict[int, Row] = {}
    for order in ("ASC", "DESC"):
        with suppress(*TORN):
            for row in db.execute(f"{sql} ORDER BY rowid {order}"):
                if row[0] in found:
                    break
                found[row[0]] = row
    return [row for _, row in sorted(found.items())]


def _answers_in(path: Path) -> Iterator[Row]:
    """Read the undamaged answers of a copy, which this overwrites."""
    sql = f"SELECT {ANSWER_COLUMNS} FROM answers"  # noqa: S608 - ours
    return filter(is_whole, _rows_by_page(path, ANSWERS, sql, lambda page: MARK.encode() in page))


def _calls_in(path: Path) -> list[Row]:
    sql = "SELECT rowid, * FROM tool_calls"
    rows = [row[1:] for row in _rows_by_page(path, TOOL_CALLS, sql, lambda page: bool(_CALL.search(page)))]
    found = [row for row in rows if _is_call(row)]
    return list({row[0]: row for row in sorted(found, key=lambda row: (row[7], STATES.index(row[5])))}.values())


def _is_call(row: Row) -> bool:
    key, run, agent, number, tool, state, pure, began_at, data = row
    numbers = all(isinstance(one, int) for one in (run, agent, number, pure)) and isinstance(began_at, float)
    texts = isinstance(key, str) and isinstance(tool, str) and isinstance(data, str | None)
    return numbers and texts and state in STATES and _KEY.fullmatch(key) is not None


def _rows_by_page(path: Path, table: str, sql: str, holds: Callable[[bytes], bool]) -> Iterator[Row]:
    """Read the rows of a table page by page, even if the tree above the pages is lost, overwriting `path`.

    A leaf page can also be a table's root: each is copied to the root of a file with this table only, which SQLite
    reads.
    """
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(table)
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE type = 'table'").fetchone()
        page = db.serialize()[:PAGE]
    # Its two counters differ, so SQLite uses the file's size, not the header's.
    head = page[:24] + bytes([1] * 4) + page[28:92] + bytes(4) + page[96:]
    with path.open("r+b") as file:
        _put_page(file, 1, head)
        with suppress(*TORN), closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # moves the log's content into the file
        Path(f"{path}-wal").unlink(missing_ok=True)
        _put_page(file, 1, head)
        for number in range(2, path.stat().st_size // PAGE + 1):
            file.seek((number - 1) * PAGE)
            page = file.read(PAGE)
            if holds(page):
                _put_page(file, root, page)
                with suppress(*TORN), closing(sqlite3.connect(path, isolation_level=None)) as db:
                    yield from _rows_of(db, sql)


def _put_page(file: BinaryIO, number: int, page: bytes) -> None:
    file.seek((number - 1) * PAGE)
    file.write(page)
    file.flush()
