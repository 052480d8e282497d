"""Looking after a ledger's file: checked, thinned out, written out as text, recovered from a damaged one."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from agent_magic.declare.agent import is_number
from agent_magic.errors import LedgerError
from agent_magic.record.ledger.pages import answers_in
from agent_magic.record.ledger.rows import answer_of
from agent_magic.record.ledger.schema import ANSWER_COLUMNS, INSERT_ANSWER, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.record.ledger.file import Row, StoreFile

DAY_S = 86400.0
MOST_GAPS = 10_000
"""How many rows in a row may be unreadable before the rest of a table is given up."""


class Check(NamedTuple):
    """What a check of a file found.

    Attributes:
        answers: How many answers are whole.
        damaged: How many are not; they are never served.
        runs: How many runs there are.
        problems: What SQLite says of the file itself; empty where it is sound.
    """

    answers: int
    damaged: int
    runs: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all of it is sound."""
        return not self.damaged and not self.problems


class Size(NamedTuple):
    """What a file holds.

    Attributes:
        bytes: What it takes on the disk.
        answers: How many answers.
        simulated: How many of them the stand-in made up.
        runs: How many runs.
        cost_usd: Dollars of all requests whose price is known, made-up ones left out; `None` where there is none.
        saved_usd: What answers that were served again would have cost at list price, made-up ones left out.
        unknown: Requests that were under way when a kernel was killed.
    """

    bytes: int
    answers: int
    simulated: int
    runs: int
    cost_usd: float | None
    saved_usd: float | None
    unknown: int


def size_of(file: StoreFile) -> Size:
    """Count what a file holds."""
    answers, simulated = file.read("SELECT count(*), coalesce(sum(source = 'simulated'), 0) FROM answers")[0]
    runs = file.read("SELECT count(*) FROM runs")[0][0]
    cost, saved, unknown = file.read(
        "SELECT sum(CASE WHEN c.source = 'live' THEN c.cost_usd END), "
        "sum(CASE WHEN a.source = 'live' THEN c.saved_usd END), coalesce(sum(c.state = 'unknown'), 0) "
        "FROM calls c LEFT JOIN answers a ON a.id = c.answer"
    )[0]
    return Size(file.size_bytes(), answers, simulated, runs, cost, saved, unknown)


def verify(file: StoreFile) -> Check:
    """Read every page and every answer."""
    good = bad = 0
    problems: tuple[str, ...] = ()
    try:
        found = [str(row[0]) for row in file.read("PRAGMA integrity_check(20)")]
        problems = tuple(text for text in found if text != "ok")
    except sqlite3.DatabaseError as error:
        problems = (str(error),)
    ids = [row[0] for row in file.read("SELECT id FROM answers")] if not problems else []
    for number in ids:  # one by one: together they may be larger than the memory
        for row in file.read(f"SELECT {ANSWER_COLUMNS} FROM answers WHERE id = ?", number):  # noqa: S608 - ours
            whole = _is_whole(row)
            good, bad = good + whole, bad + (not whole)
    runs = file.read("SELECT count(*) FROM runs")[0][0] if not problems else 0
    return Check(good, bad, runs, problems)


def prune(file: StoreFile, *, days: float | None = None, simulated: bool = False) -> int:
    """Forget runs and answers, and give the room back. Returns the number of answers forgotten.

    Args:
        file: The file.
        days: Those that are older than this; `None` is any age.
        simulated: Only those that the stand-in made up.

    Raises:
        LedgerError: Neither was said, or the days are no number from 0; nothing was forgotten.
    """
    if days is None and not simulated:
        raise LedgerError("Nothing was forgotten. Say what for good: days=N, simulated=True or both; days=0 is all.")
    if days is not None and not (is_number(days) and days >= 0):
        raise LedgerError(f"Nothing was forgotten: days={days!r} cannot work. Give a number from 0; 0 is all.")
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
        for table in ("calls", "events", "leases"):
            db.execute(f"DELETE FROM {table} WHERE run NOT IN (SELECT id FROM runs)")  # noqa: S608 - ours
        used = {bytes.fromhex(name) for name in _names_of_texts(db)}
        used |= {row[0] for row in db.execute("SELECT plan FROM runs")}
        names = [row for row in db.execute("SELECT sha FROM texts").fetchall() if row[0] not in used]
        db.executemany("DELETE FROM texts WHERE sha = ?", names)
    file.compact()
    return gone


def _names_of_texts(db: sqlite3.Connection) -> Iterator[str]:
    """Yield the digests of the texts that events use."""
    for (chunk,) in db.execute("SELECT data FROM events"):
        for event in json.loads(chunk):
            yield from event.get("texts", {}).values()


def export(file: StoreFile, path: Path) -> int:
    """Write every answer as a line of JSON, whole or not at all. Returns how many.

    Raises:
        LedgerError: There is a file of that name that no export wrote, and it is as before.
        OSError: The file cannot be written.
    """
    if path.is_file() and path.stat().st_size and not _is_export(path):
        raise LedgerError(f"{path.name!r} is there already and is no export of a ledger. Choose another name.")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    count = 0
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            for (number,) in file.read("SELECT id FROM answers ORDER BY id"):
                row = file.read(f"SELECT {ANSWER_COLUMNS} FROM answers WHERE id = ?", number)[0]  # noqa: S608 - ours
                if _is_whole(row):
                    out.write(_line(file, row) + "\n")
                    count += 1
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return count


def _is_export(path: Path) -> bool:
    """Tell whether a file begins with a line of an export: no other is written over, the ledger least of all."""
    with path.open("rb") as file:
        first = file.readline()
    try:
        line: Any = json.loads(first)
    except ValueError:  # a text that is no UTF-8, too
        return False
    return isinstance(line, dict) and {"key", "ordinal", "bought_at"} <= {*cast("dict[str, Any]", line)}


def _line(file: StoreFile, row: Row) -> str:
    """Write an answer with what it was for."""
    calls = file.read("SELECT run, name, model, cost_usd FROM calls WHERE answer = ? ORDER BY id LIMIT 1", row[0])
    run, agent, model, cost = calls[0] if calls else (None, None, None, None)
    head = {"key": row[3], "ordinal": row[4], "bought_at": row[7], "run": run, "agent": agent, "asked": model}
    return json.dumps({**head, "cost_usd": cost, **asdict(answer_of(row))}, sort_keys=True)


def recover(damaged: Path, into: StoreFile) -> int:
    """Copy what can be read of a damaged file into another. Returns the number of answers that came over.

    The damaged file stays as it is. An empty file gets the runs too; into any other only answers go that it has not.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "damaged"
        for end in ("", "-wal"):
            if Path(f"{damaged}{end}").exists():
                shutil.copyfile(f"{damaged}{end}", f"{copy}{end}")
        empty = not into.read("SELECT 1 FROM runs UNION SELECT 1 FROM answers LIMIT 1")
        pages = answers_in(Path(f"{copy}"))  # before SQLite touches the copy
        tables = _tables_in(copy)
        known = {row[0] for row in into.read("SELECT sum FROM answers")}
        count = 0
        with into.writing() as db:
            for row in [*tables.pop("answers", []), *pages]:
                if _is_whole(row) and row[2] not in known:
                    known.add(row[2])
                    count += 1
                    _put_answer(db, row, keep_id=empty)
            if empty:
                for table, rows in tables.items():
                    marks = ", ".join("?" * SCHEMA[table])
                    db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)  # noqa: S608 - ours
    return count


def _put_answer(db: sqlite3.Connection, row: Row, *, keep_id: bool) -> None:
    if keep_id:
        try:
            db.execute(INSERT_ANSWER.replace("(mark", "(id, mark").replace("(?", "(?, ?"), row)
            return
        except sqlite3.IntegrityError:  # a page of the past had the same number
            pass
    db.execute(INSERT_ANSWER, row[1:])


def _tables_in(path: Path) -> dict[str, list[Row]]:
    """Read all rows that can be read."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            return {table: _rows_in(db, table) for table in SCHEMA if table != "leases"}
    except sqlite3.DatabaseError:
        return {}


def _rows_in(db: sqlite3.Connection, table: str) -> list[Row]:
    """Read a table from its begin to the first damage, from its end back to the last, and row by row in between."""
    found: dict[int, Row] = {}
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            for row in db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid {order}"):  # noqa: S608 - ours
                if row[0] in found:
                    break
                found[row[0]] = row[1:]
    if not found:
        return []
    misses = 0
    for number in range(1, max(found) + MOST_GAPS):
        if number not in found:
            try:
                one: Any = db.execute(f"SELECT * FROM {table} WHERE rowid = ?", (number,)).fetchone()  # noqa: S608
            except sqlite3.DatabaseError:
                one = None
            misses = 0 if one else misses + 1
            if one:
                found[number] = one
        if misses > MOST_GAPS:
            break
    wide = SCHEMA[table]  # a file of an older version has fewer columns
    return [(*row, *[None] * (wide - len(row))) for _, row in sorted(found.items()) if len(row) <= wide]


def _is_whole(row: Row) -> bool:
    try:
        answer_of(row)
    except (ValueError, TypeError, KeyError):
        return False
    return True
