"""An open ledger file: reads and writes that wait for other processes, and what stays in memory if the file fails."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agent_magic.errors import LedgerError
from agent_magic.record.answer import is_reusable
from agent_magic.record.codec import line_of, to_json
from agent_magic.record.files import home_of
from agent_magic.record.ledger.file import FAILURES, LedgerFile, is_damage, is_locked, is_moved, quarantine, was_ledger
from agent_magic.record.ledger.lease import Heartbeat, LeaseWatch, Owner
from agent_magic.record.ledger.maintenance import recover
from agent_magic.record.ledger.rows import ANSWER_COLUMNS, answer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.record.answer import Answer
    from agent_magic.record.ledger.file import Row
    from agent_magic.record.results import Base, Kind

T = TypeVar("T")
PATIENCE_S = 5.0
"""How long a user's command waits for another process."""
STEP_S = 0.02
UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError)
"""Errors raised by reading a value that was not written by a ledger."""


class Store:
    """The open file of a ledger, shared by its runs.

    `generation` counts replacements of a damaged file; `held` are answers that could not be written.
    """

    def __init__(self, path: Path | None, *, reuse_simulated: bool) -> None:
        self.path, self.reuse_simulated, self.home = path, reuse_simulated, home_of()
        self.held: dict[tuple[str, int], Answer] = {}
        self.under_way: set[int] = set()
        self.notes: list[str] = []
        self.generation = 0
        # From a file that was moved, while nothing else could be opened.
        self._is_parted = self._lacks_log_only = False
        self._batches: list[Row] = []
        self.owner, self.leases, self.heartbeat = str(Owner.me()), LeaseWatch(), Heartbeat()
        self.file = self._opened()
        if self.file.drive:
            self.notes.append(
                f"The ledger {self.file.name!r} is on a network drive ({self.file.drive}). It is slower there, and as "
                "safe as the drive's locks. Keep it on a disk of this machine: %config AgentMagics.ledger = 'FILE'."
            )

    def _opened(self) -> LedgerFile:
        """Quarantine a damaged file, and copy its readable content to a new one."""
        try:
            return LedgerFile(self.path)
        except sqlite3.DatabaseError as error:
            if self.path is None:
                raise
            if not was_ledger(self.path):
                raise LedgerError(f"{self.path.name!r} is no ledger ({error}). Choose another name.") from None
        aside = quarantine(self.path)
        self.file = LedgerFile(self.path)
        self._recover(aside)
        return self.file

    def _recover(self, aside: Path) -> None:
        answers = recover(aside, self.file)
        self.notes.append(
            f"The ledger was damaged. It was set aside as {aside.name!r}, and {answers:,} answers of it were recovered "
            "into a new one. %agents ledger verify checks it."
        )

    def attempt(self, do: Callable[[], T]) -> T:
        """Do something with the file. A damaged or missing one is replaced, and the new one used."""
        try:
            return do()
        except sqlite3.DatabaseError as error:
            if self.path is None or not (self._is_parted or is_damage(error) or is_moved(error)):
                raise
            if self._is_parted or is_moved(error):
                self._find_again()
            else:
                aside = self.file.replace()
                self._begin_anew()
                self._recover(aside)
            return do()

    def _begin_anew(self) -> None:
        """Let each run under way take a number in the new file."""
        self.generation += 1
        self.under_way.clear()

    def _find_again(self) -> None:
        """Open what is in the place of a file that was moved, deleted or replaced."""
        before = self.file
        if not self._is_parted:
            with suppress(*FAILURES):
                self._batches = before.read("SELECT * FROM batches WHERE state IN ('planned', 'sent')")
            self._is_parted, self._lacks_log_only = True, before.part()
        try:
            self.file = self._opened()
        except LedgerError as error:
            raise sqlite3.OperationalError(str(error).removesuffix(".")) from error
        self._is_parted = False
        self._begin_anew()
        if self._lacks_log_only:  # what stood in it is in the file
            return
        self.notes.append(
            f"The ledger {self.file.name!r} was moved, deleted or replaced while it was in use. The file there now "
            "gets what the run under way has bought and what comes. Earlier answers are bought again, unless you put "
            "the old file back while no kernel uses it."
        )
        if self._batches:  # they are paid for
            marks = ", ".join("?" * len(self._batches[0]))
            sql = f"INSERT OR IGNORE INTO batches VALUES ({marks})"  # noqa: S608 - the marks are question marks
            try:
                self.insert_many(sql, self._batches)
            except FAILURES as error:
                self.warn(error)

    def patiently(self, do: Callable[[], T]) -> T:
        """Do something that a user waits for, or raise `LedgerError`."""
        try:
            return self.in_words(lambda: self._unlocked(do))
        except OSError as error:
            raise self._unusable(error) from error

    def in_words(self, do: Callable[[], T]) -> T:
        """Raise `LedgerError` if the file's data is damaged."""
        try:
            return do()
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        except UNREADABLE as error:
            raise LedgerError(
                f"The ledger {self.file.name!r} has damaged data ({type(error).__name__}). %agents ledger verify "
                "checks it; intact answers stay in use."
            ) from error

    def _unusable(self, error: Exception) -> LedgerError:
        return LedgerError(f"The ledger {self.file.name!r} could not be read or written: {error}.")

    def _unlocked(self, do: Callable[[], T]) -> T:
        """Retry for a while if another process has the file locked."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.attempt(do)
            except sqlite3.OperationalError as error:
                if not is_locked(error) or time.monotonic() >= until:
                    raise
            time.sleep(STEP_S)

    def insert(self, sql: str, *values: object) -> int:
        """Wait until the row is on the disk, and return its number."""

        def store() -> int:
            with self.file.writing() as db:
                row = db.execute(sql, values).lastrowid or 0
            self.file.sync()
            return row

        return self._unlocked(store)

    def insert_many(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        def store() -> None:
            with self.file.writing() as db:
                db.executemany(sql, rows)
            self.file.sync()

        self._unlocked(store)

    def lookup(self, key: str, ordinal: int) -> tuple[int | None, Answer] | None:
        """Return an answer as it was bought, and its row, if on disk."""
        held = self.held.get((key, ordinal))
        if held is not None:
            return None, held
        sql = f"SELECT {ANSWER_COLUMNS} FROM answers WHERE key = ? AND ordinal = ? ORDER BY id DESC"  # noqa: S608
        for row in self.attempt(lambda: self.file.read(sql, key, ordinal)):
            with suppress(ValueError):  # a damaged answer is bought again
                answer = answer_of(row)
                if is_reusable(answer, simulated=self.reuse_simulated):
                    return row[0], answer
        return None

    def hold(self, key: str, ordinal: int, answer: Answer) -> None:
        if is_reusable(answer, simulated=self.reuse_simulated):
            self.held[key, ordinal] = answer

    def warn(self, error: Exception) -> None:
        note = (
            f"The ledger {self.file.name!r} could not be read or written ({error}). What was bought is kept in memory "
            "and shown, but it is not on the disk: keep it with %agents record FILE, or run.save(FILE)."
        )
        if note not in self.notes:
            self.notes.append(note)

    def keep_bases(self, uid: str, bases: Mapping[Kind, Base]) -> None:
        try:
            self.insert("UPDATE runs SET bases = ? WHERE uid = ?", line_of(to_json(dict(bases))), uid)
        except FAILURES as error:
            self.warn(error)

    @cached_property
    def writer(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "ledger")

    def close(self) -> None:
        if "writer" in vars(self):
            self.writer.shutdown()
        self.heartbeat.finish()
        if self.under_way:
            self._leave()
        self.file.close()

    def _leave(self) -> None:
        with suppress(*FAILURES), self.file.writing() as db:
            for run in self.under_way:
                db.execute("UPDATE calls SET state = 'unknown' WHERE run = ? AND state = 'started'", (run,))
                db.execute("UPDATE runs SET state = 'lost' WHERE id = ?", (run,))
                db.execute("DELETE FROM leases WHERE run = ?", (run,))
        self.under_way.clear()
