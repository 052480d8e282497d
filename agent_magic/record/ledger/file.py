"""One SQLite file: opened for its owner alone, written in whole transactions, quarantined when it is damaged.

A commit to its write-ahead log takes 0.03 ms and survives a kill of this process. `sync` survives a power failure (3.4
ms, one `fsync`); it is apart, so that a thread can do it and answers that arrive together share it. Without such a log
(network file systems) each commit is on the disk when it returns.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from agent_magic.errors import LedgerError
from agent_magic.machine import in_browser
from agent_magic.record.files import check_regular
from agent_magic.record.ledger.rows import APPLICATION_ID, MARK, MIGRATIONS, TABLES, VERSION

if TYPE_CHECKING:
    from collections.abc import Generator

ENVIRONMENT = "AGENT_MAGIC_LEDGER"
OFF = "off"
NAME = "ledger.sqlite3"
OPEN_S = 5.0
"""How long opening waits for another process."""
WAIT_S = 0.05
"""How long one statement waits for another process: the event loop may wait for it."""
FAILURES = (sqlite3.Error, OSError)
ID_AT = 68
"""Where the application id stands in the header of an SQLite file. Source: https://sqlite.org/fileformat2.html, 1.3."""
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
TRIES = 20
LONG_LOG = 4 << 20
"""From how many bytes on a thread checkpoints the log: 1,000 pages."""
MOST_PAGES = 50_000
"""The log (200 MB) that a commit checkpoints itself, and waits for the disk, if no thread has done it."""
MOST_NAME = 200
"""Bytes of a file name; files beside it have longer ones, up to the usual limit of 255."""
PARTS = ("", "-wal", "-journal", "-shm")
Row = tuple[Any, ...]
Place = tuple[int, int] | None
"""Device and number of a file; another one by the same name differs."""


def default_path(choice: str = "") -> str:
    """Return the ledger's path, `:memory:` or `off`: the choice, else `AGENT_MAGIC_LEDGER`, else `data_folder`."""
    return choice or os.environ.get(ENVIRONMENT, "") or str(data_folder() / NAME)


def data_folder() -> Path:
    """Return this system's folder for a user's data.

    Source: XDG Base Directory Specification; Apple File System Programming Guide; Windows Known Folders.
    """
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        given = os.environ.get("XDG_DATA_HOME", "")
        base = given if Path(given).is_absolute() else Path.home() / ".local" / "share"
    return Path(base) / "agent-magic"


def is_damage(error: BaseException) -> bool:
    return isinstance(error, sqlite3.DatabaseError) and _code(error) in DAMAGED


def damage(error: UnicodeDecodeError) -> sqlite3.DatabaseError:
    """Return the error for a non-UTF-8 text in the file or in SQLite's message."""
    found = sqlite3.DatabaseError(f"a text in it is damaged ({error.reason})")
    found.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return found


def is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and _code(error) == sqlite3.SQLITE_BUSY


def is_moved(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class LedgerFile:
    """An open SQLite file, or a database in memory; raises `LedgerError` and stays unchanged if it is no ledger.

    If it `is_logged`, the caller must `sync`.
    """

    def __init__(self, path: Path | None, *, options: str = "") -> None:
        self.path, self.drive, self._options = path, "", options
        self._lock, self._tidying = threading.RLock(), threading.Lock()
        self._log: int | None = None
        self._beside: sqlite3.Connection | None = None
        self._place: Place = None
        self._log_place: Place = None
        self._open()

    def __del__(self) -> None:
        if hasattr(self, "_db") and self._pid == os.getpid():  # in a forked process the connection is its parent's
            self.close()

    def _open(self) -> None:
        self._pid = os.getpid()
        if self.path is not None:
            _make(self.path)
        try:
            self._db = self._connect()
            try:
                self._prepare()
            except UnicodeDecodeError as error:
                self._db.close()
                raise damage(error) from error
            except BaseException:
                self._db.close()
                raise
        except sqlite3.OperationalError as error:
            if is_damage(error):
                raise
            raise LedgerError(f"The ledger {self.name!r} cannot be opened: {error}.", unwritable=True) from None
        self._is_patient = False
        self._set_patience(patient=True)
        if self.path is not None and not in_browser():  # nobody else is there, and its files may change their numbers
            self._place, self._log_place = _place(self.path), _place(f"{self.path}-wal") if self.is_logged else None

    @property
    def name(self) -> str:
        return ":memory:" if self.path is None else self.path.name

    def _connect(self) -> sqlite3.Connection:
        where = ":memory:" if self.path is None else f"{self.path.as_uri()}?{self._options}"
        db = sqlite3.connect(
            where, uri=self.path is not None, timeout=OPEN_S, isolation_level=None, check_same_thread=False
        )
        db.execute("PRAGMA foreign_keys=OFF")
        db.execute("PRAGMA trusted_schema=OFF")
        return db

    def _prepare(self) -> None:
        version = self._version()
        if version < 0:
            raise LedgerError(
                f"The ledger {self.name!r} says that its format is {version}, which no version uses. It is damaged, or "
                "another program wrote to it. Choose another file: %config AgentMagics.ledger = 'FILE'."
            )
        if version > VERSION:
            raise LedgerError(
                f"The ledger {self.name!r} was written by a later version (format {version}; this one reads up to "
                f"{VERSION}). Update agent-magic, or choose another file: "
                "%config AgentMagics.ledger = 'FILE', in a script Ledger(FILE)."
            )
        if self.path is not None:
            _make_private(self.path)  # only now is it known to be ours
            self.drive = network_drive(self.path)
            if version == 0 or self.drive:
                self._choose_journal(self.path, tries=0 if version else TRIES)
        self.is_logged = self._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        self._db.execute(f"PRAGMA synchronous={'NORMAL' if self.is_logged else 'FULL'}")
        self._db.execute(f"PRAGMA wal_autocheckpoint={MOST_PAGES}")
        self._db.execute(f"PRAGMA journal_size_limit={LONG_LOG // 4}")  # so that the size of a log says how long it is
        if version < VERSION:
            self._migrate()
        for table in TABLES:  # reads the root of each: damage shows now, not in the middle of a run
            self._db.execute(f"SELECT max(rowid) FROM {table}").fetchone()  # noqa: S608 - a name of ours

    def _migrate(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for step in MIGRATIONS[self._version() :]:  # another process may have been quicker
                for statement in step:
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self._db.execute(f"PRAGMA user_version={VERSION}")
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _version(self) -> int:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != APPLICATION_ID and (tables or version):
            raise LedgerError(f"{self.name!r} is the file of another program, no ledger. Choose another name.")
        return version

    def _choose_journal(self, path: Path, tries: int) -> None:
        mode = "WAL" if not self.drive and carries_a_log(path, self._options) else "DELETE"
        for left in range(tries, -1, -1):
            try:
                self._db.execute(f"PRAGMA journal_mode={mode}")
                return
            except sqlite3.OperationalError:  # another process opens it in the same moment
                if not left:
                    raise
                time.sleep(0.01)

    def read(self, sql: str, *values: object) -> list[Row]:
        with self._using() as db:
            return db.execute(sql, values).fetchall()

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Write in one transaction: all of it or nothing. Thread-safe."""
        with self._using() as db:
            self._check_place()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
                self._set_patience(patient=True)
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has rolled back by itself
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _using(self) -> Generator[sqlite3.Connection]:
        # The first statement that finds the file locked waits `WAIT_S`. Until something could be written the next
        # ones do not wait at all, or the retries of hundreds of agents would stop the event loop.
        self._check_fork()
        with self._lock:
            try:
                yield self._db
            except UnicodeDecodeError as error:
                raise damage(error) from error
            except sqlite3.OperationalError as error:
                if is_locked(error):
                    self._set_patience(patient=False)
                raise

    def _check_place(self) -> None:
        """Raise SQLite's error for a moved database, which it raises itself only without a write-ahead log."""
        if self.path is None or self._place is None:
            return
        log = None if self._log_place is None else _place(f"{self.path}-wal")
        if (_place(self.path), log) == (self._place, self._log_place):
            return
        error = sqlite3.OperationalError("the file was moved, deleted or replaced")
        error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
        raise error

    def _set_patience(self, *, patient: bool) -> None:
        if patient != self._is_patient:
            self._is_patient = patient
            self._db.execute(f"PRAGMA busy_timeout={int(WAIT_S * 1000) if patient else 0}")

    def sync(self) -> None:
        """Wait until every commit so far is on the disk. Thread-safe."""
        if not self.is_logged or self.path is None:
            return
        if self._log is None:
            try:
                self._log = os.open(f"{self.path}-wal", os.O_RDWR | getattr(os, "O_BINARY", 0))
            except FileNotFoundError:  # moved or deleted: the next transaction finds that
                return
        os.fsync(self._log)

    def tidy(self) -> None:
        """Checkpoint a long log, on a thread: it waits for the disk."""
        if self.path is None or not self.is_logged or _size(f"{self.path}-wal") < LONG_LOG:
            return
        with self._tidying:
            if self._beside is None:
                self._beside = self._connect()
                self._beside.execute("PRAGMA synchronous=NORMAL")
            self._beside.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def size_bytes(self) -> int:
        if self.path is None:
            return int(self.read("PRAGMA page_count")[0][0] * self.read("PRAGMA page_size")[0][0])
        return sum(_size(f"{self.path}{end}") for end in PARTS[:3])

    def compact(self) -> None:
        with self._using() as db:
            db.execute("VACUUM")
            if self.is_logged:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._lock:
            if self._log is not None:
                os.close(self._log)
                self._log = None
            with self._tidying:
                if self._beside is not None:
                    self._beside.close()
                    self._beside = None
            self._db.close()

    def replace(self) -> Path:
        """Quarantine the file and start a new one. Return the path of the old one."""
        assert self.path is not None  # noqa: S101 - memory is not damaged
        with self._lock:
            self.close()
            aside = quarantine(self.path)
            self._open()
            return aside

    def part(self) -> bool:
        """Move the log into the file and close it; return whether only the log is no longer in its place."""
        with self._lock:
            is_there = self.path is not None and _place(self.path) == self._place
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self.close()
        return is_there

    def _check_fork(self) -> None:
        """Open a connection in a fork: two processes on one would destroy the file."""
        if self._pid != os.getpid():
            self._inherited = self._db, self._beside  # kept: closing it here could reach the parent's
            self._log = self._beside = None
            self._lock, self._tidying = threading.RLock(), threading.Lock()  # a thread that is not here may hold them
            self._open()


def _place(path: Path | str) -> Place:
    try:
        found = os.stat(path)  # noqa: PTH116 - half the time, and each transaction asks twice
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except OSError:
        return 0


def quarantine(path: Path) -> Path:
    """Rename a damaged file and its log. Return the new name."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{stamp}{f'-{n}' if n else ''}") for n in range(1000))
    aside = next(name for name in names if not name.exists())
    for end in ("-wal", "-journal", ""):
        part = Path(f"{path}{end}")
        if part.exists():
            part.rename(f"{aside}{end}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    return aside


def was_ledger(path: Path) -> bool:
    """Return whether an unreadable file was a ledger: other files may not be renamed."""
    try:
        with path.open("rb") as file:
            part = file.read(1 << 20)
            if part[ID_AT : ID_AT + 4] == APPLICATION_ID.to_bytes(4, "big"):
                return True
            while part:
                if MARK.encode() in part:
                    return True
                part = file.read(1 << 20)
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
        for end in PARTS:
            Path(f"{scratch}{end}").unlink(missing_ok=True)


def _make(path: Path) -> None:
    # An existing file is not opened here: closing it would drop the locks of another connection of this process.
    # Source: https://sqlite.org/howtocorrupt.html, 2.2.
    if len(os.fsencode(path.name)) > MOST_NAME:
        raise LedgerError(
            f"The name of the ledger has {len(path.name)} letters. Files beside it have longer names: "
            f"choose one of at most {MOST_NAME}."
        )
    check_regular(
        path, LedgerError, "For no ledger: %config AgentMagics.ledger = 'off'; in a script leave ledger= out."
    )
    try:
        if not path.parent.exists():
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        owner = path.stat().st_uid
    except OSError as error:
        message = f"The ledger {path.name!r} cannot be opened for writing: {error.strerror}."
        raise LedgerError(message, unwritable=True) from None
    if sys.platform != "win32" and owner != os.getuid():
        raise LedgerError(f"The ledger {path.name!r} belongs to another user. Choose a file of your own.")
    if not os.access(path, os.R_OK | os.W_OK):
        raise LedgerError(f"The ledger {path.name!r} cannot be opened for writing: it is read-only.", unwritable=True)


def _make_private(path: Path) -> None:
    if sys.platform == "win32":
        return
    for part in (Path(f"{path}{end}") for end in PARTS):
        with suppress(FileNotFoundError):
            if part.stat().st_mode & 0o077:
                part.chmod(0o600)


# Whether a file is on a drive of the network, as the system's table of mounts says.
#
# SQLite's write-ahead log keeps its index in memory that processes share. Two machines share none, so on a network
# drive each would overwrite the other. Trying the log out cannot show that: within one machine it works.
# Source: https://sqlite.org/wal.html, "all processes using a database must be on the same host computer".


MOUNTS = Path("/proc/self/mounts")
NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
    "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs",
})  # fmt: skip
"""File systems that several machines may have open, as Linux names them."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def network_drive(path: Path) -> str:
    """Return its kind, such as `nfs4`; empty for a local disk."""
    # Only Linux has the table; a share of Windows is known by its name. Elsewhere nothing is known.
    if path.drive.startswith("\\\\"):
        return "a share"
    try:
        table = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return kind if (kind := kind_at(path, table)) in NETWORK else ""


def kind_at(path: Path, table: str) -> str:
    found = (-1, "")
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        where = PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if path.is_relative_to(where) and len(where.parts) >= found[0]:
            found = len(where.parts), fields[2]
    return found[1]
