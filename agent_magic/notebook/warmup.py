"""Loads the modules of a run while the user is still writing prompts: they take one to three seconds.

* One thread, in order of need: two would only take turns at the interpreter's lock.
* Between any two modules it sleeps for an instant, which releases the lock: a timer of the loop is late by the rest of
  one module, about a millisecond.
* Full garbage collections are postponed: with three thousand modules each takes a tenth of a second under the lock.
* The thread has normal priority: a low-priority thread that is not scheduled would keep the lock and block all others.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from agent_magic import api, forecast, show
from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.machine import in_browser

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

NAP_S = 0.0001
NEVER = 1_000_000_000
EXPECTED = (ImportError, OSError, RuntimeError, ValueError)
"""Errors of a broken installation. The next import raises them again, visible to the user."""


def _run() -> None:
    _ = api.start, api.Run, api.Plan, api.Ledger, forecast.estimate_plan, show.make_live_view


def _widgets() -> None:
    importlib.import_module("ipywidgets")
    importlib.import_module("anywidget")


LOADERS: Sequence[Callable[[], object]] = (
    _run,
    lambda: api.Prices().tariff_of(DEFAULT_MODEL),
    _widgets,
    lambda: show.warm_layout(),  # noqa: PLW0108 - `show` loads it only when asked for it
    lambda: importlib.import_module("pandas"),
)


class WarmUp:
    """Runs loaders in a thread, once, in order of need."""

    def __init__(self, loaders: Sequence[Callable[[], object]] = LOADERS) -> None:
        self._loaders = loaders
        self._nap_s = NAP_S
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start once. In a browser's Python, without threads, the first run loads its modules."""
        if self._thread is None and not in_browser():
            self._thread = threading.Thread(target=self._run, name="agent_magic warm-up", daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Load without breaks from now on, since a run waits."""
        self._nap_s = 0.0

    def find_spec(self, *_: object) -> None:
        """Sleep for an instant before each module of this thread. Python asks every finder of `sys.meta_path`."""
        if self._nap_s and threading.current_thread() is self._thread:
            time.sleep(self._nap_s)

    def _run(self) -> None:
        finders: list[object] = sys.meta_path  # pyright: ignore[reportAssignmentType] - typed for finders with loaders
        finders.insert(0, self)
        try:
            with _no_full_collections():
                for load in self._loaders:
                    with contextlib.suppress(*EXPECTED):
                        load()
        finally:
            finders.remove(self)


@contextlib.contextmanager
def _no_full_collections() -> Generator[None]:
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
