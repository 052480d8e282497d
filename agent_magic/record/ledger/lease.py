"""Leases: which process is buying an answer, and if it is still alive, so that two kernels do not buy the same one.

A thread renews the leases, even if user code blocks the event loop. Clocks cannot be trusted, so a waiting process
checks if the other exists (known at once on the same machine), if the lease was renewed within `LEASE_S` of its own
monotonic clock, and, of a process on another machine, the time written in the lease.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.machine import in_browser

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE_S = 60.0
"""How long a lease holds without being renewed."""
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
        """Return `None` if that cannot be known here."""
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
    """Empty without `/proc`, or for a zombie."""
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
        """Return whether a lease still holds; `until` is the time written in it, in seconds of the epoch."""
        alive = Owner.parse(owner).is_alive()
        if alive is False or (alive is None and now >= until):
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
