"""The plugin of a Dask worker: one more operation, and the actor that anchors the worker.

A request is never a Dask task: Dask runs the tasks of a lost worker again, so a request would silently be paid for
twice (20 of 20 after a kill, with `retries=0` too).
"""

from __future__ import annotations

import signal
import threading
from typing import Any

from distributed import SchedulerPlugin, Status, WorkerPlugin

from agent_magic.providers.anthropic.client import Claude
from agent_magic.providers.dask.serving import ANCHOR, OPERATION, serve


class Serves(WorkerPlugin):
    """Makes a worker serve kernels; it may ignore interrupts, which a notebook sends to all processes of its kernel."""

    name = OPERATION

    def __init__(self, *, ignores_interrupts: bool) -> None:
        self._ignores_interrupts = ignores_interrupts

    def setup(self, worker: Any) -> None:
        worker.handlers[OPERATION] = _handle
        threading.Thread(target=Claude().warm_up, daemon=True).start()  # takes a second, and the first kernel waits
        if self._ignores_interrupts and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


class Anchor:
    """An actor that does nothing."""

    # Dask stops a worker without tasks as idle, despite its streams. It does not retire one with an actor.


class Keeps(SchedulerPlugin):
    """Keeps adaptive scaling from stopping workers with an anchor."""

    name, idempotent = f"{OPERATION}-keeps", True

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        del scheduler
        return [one for one in workers if not any(str(held.key).startswith(ANCHOR) for held in one.actors)]


async def _handle(comm: Any) -> Status:
    await serve(comm)
    return Status.dont_reply
