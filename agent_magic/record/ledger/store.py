"""The ledger on the disk: every answer and every run, in one SQLite file that belongs to the user alone.

What was bought is stored before it is shown, priced or passed on. Two kernels share one file: each answer is bought by
one of them, the other waits for it. Where the file fails, what was bought stays in memory and is served from there, and
nothing more is bought until the file can be written again.
"""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agent_magic.errors import LedgerError
from agent_magic.record.codec import line_of, to_json
from agent_magic.record.ledger.base import NOT_REUSED, is_reusable
from agent_magic.record.ledger.file import StoreFile, is_damage, is_ours, set_aside
from agent_magic.record.ledger.journal import DiskJournal
from agent_magic.record.ledger.lease import Heart, Pulses
from agent_magic.record.ledger.maintenance import Check, Size, export, prune, recover, size_of, verify
from agent_magic.record.ledger.past import Lost, history_rows, lost_note, lost_runs, past_runs, record_of
from agent_magic.record.ledger.rows import answer_of, answer_row
from agent_magic.record.ledger.schema import ANSWER_COLUMNS, INSERT_ANSWER
from agent_magic.record.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.record.answer import Answer
    from agent_magic.record.base import Base, Kind
    from agent_magic.record.history import Past
    from agent_magic.record.ledger.base import PastRun
    from agent_magic.record.results import RunRecord

T = TypeVar("T")
MEMORY = ":memory:"
MOST_HISTORY = 2000
"""How many earlier answers the expectations of a session stand on."""


class DiskLedger:
    """A ledger in a file.

    Args:
        path: The file; made where it is missing. `:memory:` is one that ends with the process.
        reuse_simulated: Serve made-up answers again too, labelled as simulated. For demonstrations and tests.

    Attributes:
        notes: What the user should know: a damaged file that was set aside, a disk that is full. Read and clear it.
        held: Answers that could not be written, by key and ordinal: in memory only.

    Raises:
        LedgerError: The file cannot be opened, or was written by a later version; or that is no path.
    """

    def __init__(self, path: str | Path = MEMORY, *, reuse_simulated: bool = False) -> None:
        if not isinstance(path, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LedgerError(f"{path!r} is no path of a ledger. Give Ledger('FILE'), or Ledger() for one in memory.")
        self.path = None if str(path) == MEMORY else Path(path).expanduser().absolute()
        self.reuse_simulated = reuse_simulated
        self.owner = str(Owner.me())
        self.notes: list[str] = []
        self.held: dict[tuple[str, int], Answer] = {}
        self.generation = 0
        self.pulses, self.heart = Pulses(), Heart()
        self._aside: ThreadPoolExecutor | None = None
        self.file = self._opened()

    def __repr__(self) -> str:
        return f"Ledger({self.file.name!r}: {len(self):,} answers)"

    def __len__(self) -> int:
        marks = ", ".join("?" * len(NOT_REUSED))
        sql = (  # the marks are question marks
            f"SELECT count(*) FROM (SELECT 1 FROM answers WHERE stop_reason NOT IN ({marks}) "  # noqa: S608
            "AND source IN (?, ?) GROUP BY key, ordinal)"
        )
        rows = self.attempt(lambda: self.file.read(sql, *NOT_REUSED, *self._sources))
        return int(rows[0][0]) + len(self.held)

    def find(self, key: str, ordinal: int) -> Answer | None:
        """Return the answer to the `ordinal`-th request (from 0) with this key, marked as from the ledger."""
        found = self.lookup(key, ordinal)
        return replace(found[1], source="ledger") if found else None

    def lookup(self, key: str, ordinal: int) -> tuple[int | None, Answer] | None:
        """Return an answer that may be served again, as it was bought, and its row; `None` for the row in memory."""
        held = self.held.get((key, ordinal))
        if held is not None:
            return None, held
        sql = f"SELECT {ANSWER_COLUMNS} FROM answers WHERE key = ? AND ordinal = ? ORDER BY id DESC"  # noqa: S608
        try:
            rows = self.attempt(lambda: self.file.read(sql, key, ordinal))
        except (sqlite3.Error, OSError) as error:  # asked at any moment of a run: as good as not there
            self.warn(error)
            return None
        for row in rows:
            try:
                answer = answer_of(row)
            except ValueError:  # damaged: as good as not there
                continue
            if is_reusable(answer, simulated=self.reuse_simulated):
                return row[0], answer
        return None

    def keep(self, key: str, ordinal: int, answer: Answer) -> None:
        """Store a complete answer that belongs to no run. It is on the disk when this returns."""
        row = answer_row(key, ordinal, answer, time.time())

        def store() -> None:
            with self.file.writing() as db:
                db.execute(INSERT_ANSWER, row)
            self.file.sync()

        try:
            self.attempt(store)
        except (sqlite3.Error, OSError) as error:
            self.hold(key, ordinal, answer, error)

    def hold(self, key: str, ordinal: int, answer: Answer, error: Exception) -> None:
        """Keep in memory what could not be written."""
        self.warn(error)
        if is_reusable(answer, simulated=self.reuse_simulated):
            self.held[key, ordinal] = answer

    def warn(self, error: Exception) -> None:
        """Say that the file could not be written."""
        note = (
            f"The ledger {self.file.name!r} could not be read or written ({error}). What was bought is kept in memory "
            "and shown, but it is not on the disk: keep it with %agents record FILE, or run.save(FILE)."
        )
        if note not in self.notes:
            self.notes.append(note)

    def begin(self, record: RunRecord) -> DiskJournal:
        """Take in a run that is about to begin. Runs that a kill cut are found now, and noted."""
        with suppress(sqlite3.Error, OSError):  # a file that fails will say so with the first request
            self.notes += [note for lost in self.lost_runs() if (note := lost_note(lost))]
        return DiskJournal(self, record)

    def past_runs(self) -> list[PastRun]:
        """Return every run, the newest first."""
        return self.attempt(lambda: past_runs(self.file))

    def newest(self) -> int:
        """Return the number of the newest run; 0 where there is none."""
        return int(self.attempt(lambda: self.file.read("SELECT coalesce(max(id), 0) FROM runs"))[0][0])

    def record_of(self, run: int) -> RunRecord:
        """Bring a run back, as its events tell it.

        Raises:
            LedgerError: There is none of this number.
        """
        found, uid = self.attempt(lambda: record_of(self.file, run))
        found.keeper = partial(self.keep_bases, uid)
        return found

    def keep_bases(self, uid: str, bases: Mapping[Kind, Base]) -> None:
        """Write down what a run is measured against. One that is not in the file any more has nothing to keep.

        Args:
            uid: The run's.
            bases: That.
        """
        data = line_of(to_json(dict(bases)))

        def store() -> None:
            with self.file.writing() as db:
                db.execute("UPDATE runs SET bases = ? WHERE uid = ?", (data, uid))
            self.file.sync()

        try:
            self.attempt(store)
        except (sqlite3.Error, OSError) as error:
            self.warn(error)

    def history(self, most: int = MOST_HISTORY) -> list[Past]:
        """Return what the latest answers took, oldest first."""
        return self.attempt(lambda: history_rows(self.file, most))

    def lost_runs(self) -> list[Lost]:
        """Find the runs whose process was killed since the last look, and count what was under way."""
        return self.attempt(lambda: lost_runs(self.file))

    def size(self) -> Size:
        """Count what the ledger holds."""
        return self.attempt(lambda: size_of(self.file))

    def verify(self) -> Check:
        """Read every page and every answer, and say what is damaged. Nothing is changed."""
        return verify(self.file)

    def prune(self, *, days: float | None = None, simulated: bool = False) -> int:
        """Forget runs and answers, and give their room back. Returns the number of answers forgotten.

        Args:
            days: Those that are older than this; `None` is any age.
            simulated: Only those that the stand-in made up.

        Raises:
            LedgerError: Neither was said, or the days are no number from 0; nothing was forgotten.
        """
        return self.attempt(lambda: prune(self.file, days=days, simulated=simulated))

    def export(self, path: str | Path) -> int:
        """Write every answer as a line of JSON. Returns how many.

        Raises:
            LedgerError: There is a file of that name that no export wrote, and it is as before.
            OSError: The file cannot be written; an older one is as before.
        """
        return export(self.file, Path(path))

    def salvage(self) -> int:
        """Take over what can be read of damaged files that were set aside. Returns the number of answers found."""
        if self.path is None:
            return 0
        aside = sorted(self.path.parent.glob(f"{self.path.name}.damaged-*"))
        return sum(recover(one, self.file) for one in aside if not one.name.endswith(("-wal", "-journal", "-shm")))

    def close(self) -> None:
        """Close the file."""
        if self._aside is not None:
            self._aside.shutdown()
        self.file.close()

    @property
    def aside(self) -> ThreadPoolExecutor:
        """The thread that writes what is large."""
        if self._aside is None:
            self._aside = ThreadPoolExecutor(1, "ledger")
        return self._aside

    @property
    def _sources(self) -> tuple[str, str]:
        return "live", "simulated" if self.reuse_simulated else "live"

    def attempt(self, do: Callable[[], T]) -> T:
        """Do something with the file. A file that turns out damaged is set aside, and it is done with a new one."""
        try:
            return do()
        except sqlite3.DatabaseError as error:
            if not is_damage(error) or self.path is None:
                raise
            aside = self.file.set_aside()
            self.generation += 1
            self._recover(aside)
            return do()

    def _opened(self) -> StoreFile:
        """Open the file. A damaged one is set aside, and what can be read of it goes into the new one."""
        try:
            return StoreFile(self.path)
        except sqlite3.DatabaseError as error:
            if self.path is None:
                raise
            if not is_ours(self.path):
                raise LedgerError(f"{self.path.name!r} is no ledger ({error}). Choose another name.") from None
        aside = set_aside(self.path)
        self.file = StoreFile(self.path)
        self._recover(aside)
        return self.file

    def _recover(self, aside: Path) -> None:
        answers = recover(aside, self.file)
        self.notes.append(
            f"The ledger was damaged. It was set aside as {aside.name!r}, and {answers:,} answers of it were recovered "
            "into a new one. %agents ledger verify checks it."
        )
