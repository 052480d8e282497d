"""A run in the background can be waited for on any loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError

from agent_magic.notebook.verbs import runs

_end_of: Any = runs._end_of
_wait: Any = runs._wait
"""What `%agents wait` waits by: any task is as good as a run."""


async def answer(seconds=0.05):
    """Return after a moment, as a run does."""
    await asyncio.sleep(seconds)
    return "done"


def on_a_thread(loop):
    """Turn a loop on a thread of its own."""
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    return thread


async def begun(loop, seconds=0.05):
    """Begin a run on another loop that turns."""

    async def start():
        return asyncio.get_running_loop().create_task(answer(seconds))

    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(start(), loop))


def test_a_run_of_a_loop_that_turns_elsewhere():
    """As one that a subshell began: it is waited for, and a stop here stops it there."""
    other = asyncio.new_event_loop()
    thread = on_a_thread(other)

    async def work():
        found = await _end_of(await begun(other))
        long = await begun(other, 60)
        over = threading.Event()
        other.call_soon_threadsafe(long.add_done_callback, lambda _: over.set())
        waiting = asyncio.create_task(_end_of(long))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(over.wait, 30)
        return found, long.cancelled()

    assert ("done", True) == asyncio.run(work())
    other.call_soon_threadsafe(other.stop)
    thread.join()
    other.close()


def test_a_run_of_a_loop_that_nobody_turns_any_more():
    """As one that a thread began and left: it goes on while somebody waits."""
    other = asyncio.new_event_loop()
    task = other.create_task(answer())
    assert "done" == asyncio.run(_end_of(task))
    assert "done" == asyncio.run(_end_of(task))  # it is over
    other.close()


def test_a_run_of_a_cell_on_another_loop():
    """It is waited for by what the session knows of it; one that did not begin is told of."""
    for began in (True, False):
        record = object()
        driver, run = SimpleNamespace(record=record), SimpleNamespace(record=record)
        session: Any = SimpleNamespace(background=None, running=[driver], runs=[])

        def end(session=session, run=run, began=began):
            session.runs += [run] if began else []
            session.running = []

        threading.Timer(0.05, end).start()
        if began:
            assert run is asyncio.run(_wait(SimpleNamespace(session=session), None))
        else:
            with pytest.raises(UsageError, match="did not begin"):
                asyncio.run(_wait(SimpleNamespace(session=session), None))
    with pytest.raises(UsageError, match="Nothing runs"):
        asyncio.run(_wait(SimpleNamespace(session=session), None))


def test_a_run_of_a_loop_that_is_closed():
    """It cannot go on, and that is said."""
    other = asyncio.new_event_loop()
    task = other.create_task(answer())
    other.call_soon(other.stop)
    other.run_forever()
    other.close()
    with pytest.raises(UsageError, match="resume"):
        asyncio.run(_end_of(task))
