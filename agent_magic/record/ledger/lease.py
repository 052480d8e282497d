"""Leases: who is buying an answer, as long as its process lives, however long the call takes and whatever clocks do.

A lease is renewed every few seconds by a thread, so a loop that user code holds up does not lose it. Whoever waits for
it goes by three things: whether the process that holds it is there (on this machine that is known at once), whether it
was renewed lately by the waiter's own monotonic clock, and, for another machine's process, the time written in it.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from agent_magic.record.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE_S = 60.0
"""How long a lease holds that nobody renews."""
BEAT_S = 5.0
"""How often a lease is renewed."""
TICK_S = 1.0


class Pulses:
    """When each lease of others was seen to be renewed, by this process's own clock.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, int, int], tuple[float, float]] = {}

    def hold(self, lease: tuple[str, int, int], owner: str, until: float, now: float) -> bool:
        """Tell whether a lease holds.

        Args:
            lease: Its key, ordinal and run.
            owner: The process that holds it.
            until: The time that stands in it, in seconds of the epoch.
            now: The time, likewise.
        """
        alive = Owner.parse(owner).is_alive()
        if alive is False or (alive is None and now >= until):
            self._seen.pop(lease, None)
            return False
        before = self._seen.get(lease)
        if before is None or before[0] != until:
            self._seen[lease] = until, self._clock()
            return True
        return self._clock() - before[1] < LEASE_S


class Heart:
    """Calls the work of every run under way once a second, on a thread of its own. Without runs it stops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: dict[int, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def add(self, name: int, work: Callable[[], None]) -> None:
        """Call this from now on. It must not raise."""
        with self._lock:
            self._work[name] = work
            if self._thread is None or not self._thread.is_alive():  # a forked process has none
                self._stop = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(self._stop,), name="ledger", daemon=True)
                self._thread.start()

    def remove(self, name: int) -> None:
        """Call it no more. One call may be under way."""
        with self._lock:
            self._work.pop(name, None)
            if not self._work:
                self._stop.set()
                self._thread = None

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(TICK_S):
            for work in list(self._work.values()):
                work()
