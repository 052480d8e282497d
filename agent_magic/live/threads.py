"""Daemon threads for blocking functions: as many as needed, each reused for a while.

Starting a thread takes as long as five calls of an idle one. Without threads, a call runs at once.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import TYPE_CHECKING

from agent_magic.machine import in_browser

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE = "agent_magic idle"
"""The name of a waiting thread."""
IDLE_S = 20.0
"""Seconds a thread waits for its next call before it ends."""


def in_thread(work: Callable[[], object], name: str) -> None:
    """Call a function, which must not raise, in an idle or new thread; if there are no threads, call it here."""
    if in_browser():
        work()
        return
    try:
        taken = _IDLE.pop()
    except IndexError:
        taken = _Thread()
        taken.thread.start()
    taken.thread.name = name
    taken.calls.put(work)


class _Thread:
    """A thread that makes calls, one at a time."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name=IDLE, daemon=True)

    def _serve(self) -> None:
        """Make calls until the thread has been idle for a while."""
        while True:
            try:
                work = self.calls.get(timeout=IDLE_S)
            except queue.Empty:
                try:
                    _IDLE.remove(self)
                except ValueError:  # it was taken this moment: the call is on its way
                    continue
                return
            work()
            del work  # its objects would live until the next call
            self.thread.name = IDLE
            _IDLE.append(self)


_IDLE: list[_Thread] = []
"""Idle threads, the most recent last. Each operation is atomic in the interpreter, so it needs no lock."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # a fork has none of them
