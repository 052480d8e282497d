"""Other processes: which is buying an answer and whether it is alive, and which use the same key now.

A *lease* keeps two kernels from buying the same answer. A thread renews leases, even if user code blocks the event
loop. Clocks cannot be trusted, so a waiting process checks if the other exists, or on another machine if the lease was
renewed within `LEASE_S` of its own monotonic clock. One that ended long ago by the time written in it is free at once.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.machine import in_browser
from agent_magic.record.ledger.file import FAILURES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from agent_magic.record.ledger.database import Store

LEASE_S = 60.0
"""How long a lease holds without being renewed."""
SKEW_S = 900.0
"""Seconds by which the clocks of two machines may differ."""
BEAT_S = 5.0
"""How often a lease is renewed."""
TICK_S = 1.0
START_FIELD = 19
"""The start time among the fields of `/proc/PID/stat` after the name. Source: proc(5), field 22."""


class Owner(NamedTuple):
    """A process. Ids are used again, so `start` is its start as the system counts it, if known."""

    host: str
    pid: int
    start: str

    @classmethod
    def me(cls) -> Owner:
        return _owner(os.getpid())

    @classmethod
    def parse(cls, text: str) -> Owner:
        host, pid, start = [*text.rsplit(" ", 2), "", "", ""][:3]
        return cls(host, int(pid) if pid.isdigit() else 0, start)

    def __str__(self) -> str:
        return f"{self.host} {self.pid} {self.start}"

    def is_alive(self) -> bool | None:
        """Return whether the process lives; `None` if that cannot be known here."""
        if self.host != _host() or sys.platform == "win32":  # on Windows `os.kill` may end the process
            return True if self == Owner.me() else None
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass
        return not self.start or self.start == _start_of(self.pid)


@functools.lru_cache(maxsize=4)
def _owner(pid: int) -> Owner:
    return Owner(_host(), pid, _start_of(pid))


@functools.lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname() or "here"


def _start_of(pid: int) -> str:
    """Return when a process started; empty without `/proc`, or for a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].split()
    if len(fields) <= START_FIELD or fields[0] in {b"Z", b"X"}:
        return "ended"
    return fields[START_FIELD].decode("ascii", "replace")


class LeaseWatch:
    """Remembers when other runs' leases were last seen renewed, by this process's monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, int, int], tuple[float, float]] = {}

    def holds(self, lease: tuple[str, int, int], owner: str, until: float, now: float) -> bool:
        """Return whether a lease still holds; `until` is the time written in it, since the epoch."""
        alive = Owner.parse(owner).is_alive()
        if alive is False or (alive is None and now >= until + SKEW_S):
            self._seen.pop(lease, None)
            return False
        before = self._seen.get(lease)
        if before is None or before[0] != until:
            self._seen[lease] = until, self._clock()
            return True
        return self._clock() - before[1] < LEASE_S


class Heartbeat:
    """Calls a function of every open run once a second, on its own thread, which ends with the last run."""

    # A browser has no thread for it, and no other process that could read a lease.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: dict[int, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def add(self, name: int, work: Callable[[], None]) -> None:
        """Call `work` from now on. It must not raise."""
        with self._lock:
            self._work[name] = work
            if in_browser():
                return
            if self._thread is None or not self._thread.is_alive():  # a forked process has no thread
                self._stop = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(self._stop,), name="ledger", daemon=True)
                self._thread.start()

    def remove(self, name: int) -> None:
        """Stop calling it. One call may be under way."""
        with self._lock:
            self._work.pop(name, None)
            if not self._work:
                self._stop.set()
                self._thread = None

    def finish(self) -> None:
        """End the thread, and call every function once more on this one."""
        with self._lock:
            self._stop.set()
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.join()
        self._beat()

    def _beat(self) -> None:
        for work in list(self._work.values()):
            work()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(TICK_S):
            self._beat()


LOOKS: Final = 10
OTHERS: Final = "SELECT session, owner, beat, data FROM presence WHERE client = ? AND session != ?"


class Presence:
    """One kernel's row, while it has a run under way, among those with the same salted hash of key and address.

    It is removed when its process is gone, or after ten looks without a change: clocks may be wrong, and laptops sleep.
    """

    def __init__(self, store: Store, client: str, name: str) -> None:
        self._store, self._client, self.name = store, client, name
        self._beat = 0
        self._seen: dict[str, tuple[int, int]] = {}

    def peek(self) -> Mapping[str, Any]:
        """Read the other rows without writing; `None` if that is impossible. Thread-safe."""
        try:
            return {
                name: json.loads(data) for name, _, _, data in self._store.file.read(OTHERS, self._client, self.name)
            }
        except (*FAILURES, ValueError):
            return {}

    def look(self, decide: Callable[[Mapping[str, Any]], Any], *, beat: bool = True) -> bool:
        """Read the others' rows and write ours by `decide`, in one transaction; return False if locked."""
        try:
            with self._store.file.writing() as db:
                others = {name: json.loads(data) for name, data in self._others(db, beat=beat)}
                self._beat += 1
                row = (self._client, self.name, self._store.owner, self._beat, json.dumps(decide(others)))
                db.execute("INSERT OR REPLACE INTO presence VALUES (?, ?, ?, ?, ?)", row)
        except (*FAILURES, ValueError):  # the run itself meets the error of the file
            return False
        return True

    def _others(self, db: sqlite3.Connection, *, beat: bool) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        seen: dict[str, tuple[int, int]] = {}
        for name, owner, at, data in db.execute(OTHERS, (self._client, self.name)).fetchall():
            before, looks = self._seen.get(name, (at, -1))
            looks = looks + beat if at == before else 0
            if looks >= LOOKS or Owner.parse(owner).is_alive() is False:
                db.execute("DELETE FROM presence WHERE client = ? AND session = ?", (self._client, name))
                continue
            seen[name] = at, looks
            found.append((name, data))
        self._seen = seen
        return found

    def leave(self) -> None:
        """Remove the own row; if that is not possible now, the others forget it."""
        with suppress(*FAILURES), self._store.file.writing() as db:
            db.execute("DELETE FROM presence WHERE client = ? AND session = ?", (self._client, self.name))
