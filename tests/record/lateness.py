"""How late the machine is by itself: what a timer that does nothing else shows of it."""

from __future__ import annotations

import threading
import time

STEP_S = 0.005


class Timer:
    """Sleeps in a thread, again and again, and notes by how much each sleep was too long."""

    def __init__(self) -> None:
        self._late_s: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.is_set():
            began_s = time.monotonic()
            time.sleep(STEP_S)
            now = time.monotonic()
            self._late_s.append((now, now - began_s - STEP_S))

    def end(self) -> None:
        """Stop."""
        self._done.set()
        self._thread.join()

    def late_s(self, until_s: float) -> float:
        """Add up by how much it was late until then."""
        return sum(late_s for at_s, late_s in self._late_s if at_s - late_s <= until_s)
