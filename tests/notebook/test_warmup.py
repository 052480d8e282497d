"""Loading what a run needs, beside the user's cells."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from agent_magic import machine
from agent_magic.notebook.warmup import WarmUp


def run(*loaders):
    """Warm up to the end."""
    warm = WarmUp(loaders)
    warm.start()
    warm._thread.join()  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    return warm


def test_loaders_run_once_in_order_in_one_thread_of_their_own():
    """However often it is started."""
    ran = []
    warm = run(lambda: ran.append("a"), lambda: ran.append(threading.current_thread().name))
    warm.start()
    assert ["a", "agent_magic warm-up"] == ran


@pytest.mark.parametrize("error", [ImportError("x"), OSError("x"), RuntimeError("x"), ValueError("x")], ids=repr)
def test_what_cannot_be_loaded_stops_nothing(error):
    """Whoever needs it next says so."""
    ran = []

    def broken():
        raise error

    run(broken, lambda: ran.append("next"))
    assert ["next"] == ran


def test_full_collections_wait():
    """And come back as the user had them; young garbage is collected all the time."""
    before, seen = gc.get_threshold(), []
    run(lambda: seen.append(gc.get_threshold()))
    assert before == gc.get_threshold()
    assert before[:2] == seen[0][:2]
    assert seen[0][2] > 1_000_000


def test_nothing_of_it_stays():
    """The finder that makes pauses is gone."""
    before = list(sys.meta_path)
    run(lambda: None)
    assert before == sys.meta_path


def test_a_python_without_threads_is_not_asked_for_one(monkeypatch):
    """In a browser the first `%%agent` cell would be an error."""
    monkeypatch.setattr(machine, "_IN_BROWSER", True)
    warm = WarmUp([])
    warm.start()
    assert warm._thread is None  # pyright: ignore[reportPrivateUsage]
