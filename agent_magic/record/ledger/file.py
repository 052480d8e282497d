"""One SQLite file: opened in private, probed, written in whole transactions, set aside where it is damaged.

The file has a write-ahead log where the file system can carry one. A commit is then in the hands of the system within
0.03 ms and outlives a kill of this process; `sync` makes it outlive a failure of power (3.4 ms on the disk this was
measured on, the time of one `fsync`), apart from the commit, so that a thread can do it and answers that arrive
together share it. Together that is `synchronous=FULL`. A thread moves the log into the file too: no commit waits for
that. Where there is no write-ahead log (network file systems; SQLite
may say there is one and fail at the first write) the rollback journal is used, and each commit is on the disk when it
returns.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magic.errors import LedgerError
from agent_magic.record.ledger.schema import APPLICATION_ID, MARK, MIGRATIONS, SCHEMA, VERSION

if TYPE_CHECKING:
    from collections.abc import Generator

BUSY_S = 5.0
"""How long a write waits for another process. One write takes milliseconds."""
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
TRIES = 20
ENOUGH_PAGES = 1000
"""From how many pages on the log is moved into the file."""
MOST_PAGES = 50_000
"""From how many pages on a commit does that itself and waits for the disk: 200 MB, if no thread has come to it."""
Row = tuple[Any, ...]


def is_damage(error: BaseException) -> bool:
    """Tell whether an error says that the file itself is damaged."""
    return isinstance(error, sqlite3.DatabaseError) and (getattr(error, "sqlite_errorcode", 0) & 0xFF) in DAMAGED


class StoreFile:
    """An open file, or one in memory.

    Args:
        path: Where; `None` is in memory.
        options: Added to the URI under which SQLite opens it.

    Attributes:
        is_logged: Whether it has a write-ahead log, so that `sync` is for the caller to do.

    Raises:
        LedgerError: It cannot be opened, is of a later version, or is no ledger.
        sqlite3.DatabaseError: It is damaged; see `is_damage`.
    """

    def __init__(self, path: Path | None, *, options: str = "") -> None:
        self.path, self._options = path, options
        self._lock, self._tidying = threading.RLock(), threading.Lock()
        self._log: int | None = None
        self._beside: sqlite3.Connection | None = None
        if path is not None:
            _make_private(path)
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        try:
            self._db = self._connect()
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.OperationalError as error:
            if is_damage(error):
                raise
            raise LedgerError(f"The ledger {self.name!r} cannot be opened: {error}.", unwritable=True) from None

    def __del__(self) -> None:
        if hasattr(self, "_db") and self._pid == os.getpid():  # the connection of a forked process is its parent's
            self.close()

    @property
    def name(self) -> str:
        """Its file's name, `:memory:` without one."""
        return ":memory:" if self.path is None else self.path.name

    def _connect(self) -> sqlite3.Connection:
        where = ":memory:" if self.path is None else f"{self.path.absolute().as_uri()}?{self._options}"
        db = sqlite3.connect(
            where, uri=self.path is not None, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        db.execute("PRAGMA foreign_keys=OFF")
        db.execute("PRAGMA trusted_schema=OFF")
        return db

    def _prepare(self) -> None:
        """Make the tables of a new file, bring an old one up to date, and settle how it is written."""
        version = self._version()
        if version > VERSION:
            raise LedgerError(
                f"The ledger {self.name!r} was written by a later version (format {version}; this one reads up to "
                f"{VERSION}). Update agent-magic, or choose another file: "
                "%config AgentMagics.ledger = 'FILE', in a script Ledger(FILE)."
            )
        if version == 0 and self.path is not None:
            self._choose_journal(self.path)
        self.is_logged = self._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        self._db.execute(f"PRAGMA synchronous={'NORMAL' if self.is_logged else 'FULL'}")
        self._db.execute(f"PRAGMA wal_autocheckpoint={MOST_PAGES}")
        if version < VERSION:
            with self.writing() as db:
                for step in MIGRATIONS[self._version() :]:  # another process may have been quicker
                    for statement in step:
                        db.execute(statement)
                db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                db.execute(f"PRAGMA user_version={VERSION}")
        for table in SCHEMA:  # reads the root of each: damage shows now, not in the middle of a run
            self._db.execute(f"SELECT max(rowid) FROM {table}").fetchone()  # noqa: S608 - a name of ours

    def _version(self) -> int:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != APPLICATION_ID and (tables or version):
            raise LedgerError(f"{self.name!r} is the file of another program, no ledger. Choose another name.")
        return version

    def _choose_journal(self, path: Path) -> None:
        mode = "WAL" if carries_a_log(path, self._options) else "DELETE"
        for left in range(TRIES, -1, -1):
            try:
                self._db.execute(f"PRAGMA journal_mode={mode}")
                return
            except sqlite3.OperationalError:  # another process opens it in the same moment
                if not left:
                    raise
                time.sleep(0.01)

    def read(self, sql: str, *values: object) -> list[Row]:
        """Return all rows of a query."""
        self._check_fork()
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Write in one transaction: all of it or nothing. May be called on any thread."""
        self._check_fork()
        with self._lock:
            db = self._db
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has rolled back by itself
                    db.execute("ROLLBACK")
                raise

    def sync(self) -> None:
        """Wait until every commit so far is on the disk. May be called on any thread."""
        if not self.is_logged or self.path is None:
            return
        if self._log is None:
            self._log = os.open(f"{self.path}-wal", os.O_RDWR | getattr(os, "O_BINARY", 0))
        os.fsync(self._log)

    def tidy(self) -> None:
        """Move what is in a long log into the file. It waits for the disk, so call it on a thread; nobody waits for it.

        Raises:
            sqlite3.Error: That cannot be done now. Nothing is lost.
        """
        if self.path is None or not self.is_logged or _pages_in_log(self.path) < ENOUGH_PAGES:
            return
        with self._tidying:
            if self._beside is None:
                self._beside = self._connect()
                self._beside.execute("PRAGMA synchronous=NORMAL")
            self._beside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def size_bytes(self) -> int:
        """Return what it takes on the disk, its log with it."""
        if self.path is None:
            pages = self.read("PRAGMA page_count")[0][0] * self.read("PRAGMA page_size")[0][0]
            return int(pages)
        parts = [Path(f"{self.path}{end}") for end in ("", "-wal", "-journal")]
        return sum(part.stat().st_size for part in parts if part.exists())

    def compact(self) -> None:
        """Give back the room of what was deleted."""
        with self._lock:
            self._db.execute("VACUUM")
            if self.is_logged:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with self._lock:
            if self._log is not None:
                os.close(self._log)
                self._log = None
            with self._tidying:
                if self._beside is not None:
                    self._beside.close()
                    self._beside = None
            self._db.close()

    def set_aside(self) -> Path:
        """Rename the damaged file and begin a new one in its place. Returns where the old one is."""
        assert self.path is not None  # noqa: S101 - memory is not damaged
        with self._lock:
            self.close()
            aside = set_aside(self.path)
            _make_private(self.path)
            self._open()
            return aside

    def _check_fork(self) -> None:
        """Take a connection of one's own in a forked process: one of two processes would destroy the file."""
        if self._pid != os.getpid():
            self._inherited = self._db, self._beside  # kept, because closing it here could reach the parent's
            self._log = self._beside = None
            self._lock, self._tidying = threading.RLock(), threading.Lock()  # a thread that is not here may hold them
            self._open()


def _pages_in_log(path: Path) -> int:
    """Return how many pages of the log are not in the file yet.

    Source: https://sqlite.org/walformat.html, the WAL-index header: `mxFrame` at 16, `nBackfill` at 96.
    """
    try:
        with Path(f"{path}-shm").open("rb") as file:
            head = file.read(100)
    except OSError:
        return 0
    if len(head) < 100:
        return 0
    return int.from_bytes(head[16:20], sys.byteorder) - int.from_bytes(head[96:100], sys.byteorder)


def set_aside(path: Path) -> Path:
    """Rename a damaged file, its log with it, to a name that says so. Returns the new name."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{stamp}{f'-{n}' if n else ''}") for n in range(1000))
    aside = next(name for name in names if not name.exists())
    for end in ("-wal", "-journal", ""):
        part = Path(f"{path}{end}")
        if part.exists():
            part.rename(f"{aside}{end}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    return aside


def is_ours(path: Path) -> bool:
    """Tell whether a file that SQLite cannot read was a ledger: nobody else's file may be renamed."""
    try:
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                if MARK.encode() in part:
                    return True
    except OSError:
        return False
    return False


def carries_a_log(path: Path, options: str = "") -> bool:
    """Try in the same folder whether SQLite's write-ahead log works there, for two connections."""
    scratch = path.with_name(f".{path.name}.probe-{os.getpid()}")
    where = f"{scratch.absolute().as_uri()}?{options}"
    links: list[sqlite3.Connection] = []
    try:
        links.extend(sqlite3.connect(where, uri=True, isolation_level=None) for _ in range(2))
        if links[0].execute("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
            return False
        links[0].execute("CREATE TABLE probe (x)")
        links[1].execute("INSERT INTO probe VALUES (1)")
        return links[0].execute("SELECT count(*) FROM probe").fetchone()[0] == 1
    except sqlite3.Error:
        return False
    finally:
        for link in links:
            link.close()
        for end in ("", "-wal", "-shm", "-journal"):
            Path(f"{scratch}{end}").unlink(missing_ok=True)


def _make_private(path: Path) -> None:
    """Make the folder and the file where they are missing, for nobody else to read.

    Raises:
        LedgerError: That is not possible, or the file is somebody else's.
    """
    try:
        if not path.parent.exists():
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600))
        if sys.platform != "win32":
            status = path.stat()
            if status.st_uid != os.getuid():
                raise LedgerError(f"The ledger {path.name!r} belongs to another user. Choose a file of your own.")
            if status.st_mode & 0o077:
                path.chmod(0o600)
    except ValueError:  # a NUL in the name
        raise LedgerError(f"{path.name!r} is no file name. Choose another.") from None
    except OSError as error:
        message = f"The ledger {path.name!r} cannot be opened for writing: {error.strerror}."
        raise LedgerError(message, unwritable=True) from None
