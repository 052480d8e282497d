"""Which process is meant, and whether it is still there: who holds a lease, whose run was cut by a kill."""

from __future__ import annotations

import functools
import os
import socket
import sys
from pathlib import Path
from typing import NamedTuple

PLACE_OF_START = 19
"""The time of start among the fields of `/proc/PID/stat` behind the name. Source: proc(5), field 22."""


class Owner(NamedTuple):
    """A process.

    Attributes:
        host: The name of its machine.
        pid: Its number there.
        start: When it began, in the machine's own count; empty where that is not known. Numbers come again.
    """

    host: str
    pid: int
    start: str

    @classmethod
    def me(cls) -> Owner:
        """Return this process."""
        return _owner(os.getpid())

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Read what `str` wrote."""
        host, pid, start = [*text.rsplit(" ", 2), "", "", ""][:3]
        return cls(host, int(pid) if pid.isdigit() else 0, start)

    def __str__(self) -> str:
        return f"{self.host} {self.pid} {self.start}"

    def is_alive(self) -> bool | None:
        """Tell whether the process is there; `None` where nobody here can know."""
        if self.host != _host() or sys.platform == "win32":  # where asking for a process may end it
            return True if self == Owner.me() else None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        except OverflowError:
            return False
        return not self.start or self.start == _start(self.pid)


@functools.lru_cache(maxsize=4)
def _owner(pid: int) -> Owner:
    return Owner(_host(), pid, _start(pid))


@functools.lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname() or "here"


def _start(pid: int) -> str:
    """Return when a process began, an empty string where the system has no `/proc`. A zombie has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].split()
    if len(fields) <= PLACE_OF_START or fields[0] in {b"Z", b"X"}:
        return "ended"
    return fields[PLACE_OF_START].decode("ascii", "replace")
