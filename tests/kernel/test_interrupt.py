"""What an interrupt does to awaited work, in this process and without a kernel."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from agent_magic.live import interruptible
from agent_magic.notebook import run_sync


def interrupt():
    """Press Ctrl-C, for the handler of this process."""
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _handler():
    """A handler that would tell if an interrupt got past ours, the same after the test as before."""

    def handler(*_):
        pytest.fail("the interrupt reached the handler that was there before")

    before = signal.signal(signal.SIGINT, handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert handler is after


async def returns(value):
    """Return a value after a turn of the loop."""
    await asyncio.sleep(0)
    return value


async def hangs(log, *, interrupted=True):
    """Wait for ever, with an interrupt on the way, and log the clean-up."""
    if interrupted:
        asyncio.get_running_loop().call_soon(interrupt)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        log.append("cleaned up")


async def others():
    """Return the tasks of the loop but this one."""
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_what_the_work_returns_comes_through():
    """Without an interrupt the work's value and its error come through unchanged."""

    async def main():
        assert 3 == await interruptible(returns(3))
        with pytest.raises(ZeroDivisionError):
            await interruptible(asyncio.wait_for(fails(), 1))
        return await others()

    async def fails():
        return 1 / 0

    assert set() == asyncio.run(main())


def test_first_interrupt_cancels_and_waits_for_the_cleanup():
    """The first interrupt cancels the work, waits for its clean-up and is a `KeyboardInterrupt` with the message."""
    log = []

    async def main():
        with pytest.raises(KeyboardInterrupt, match="after clean-up: 1") as caught:
            await interruptible(hangs(log), message=lambda: f"after clean-up: {len(log)}\n2\n3\n4")
        assert KeyboardInterrupt is caught.type
        assert ["KeyboardInterrupt: after clean-up: 1", "2", "3"] == vars(caught.value)["_render_traceback_"]()
        return await others()

    assert set() == asyncio.run(main())
    assert ["cleaned up"] == log


def test_second_interrupt_ends_the_wait():
    """The second interrupt ends the wait for a clean-up that hangs; the clean-up is cancelled once more."""
    log = []

    async def stubborn(release):
        try:
            await hangs(log)
        finally:
            asyncio.get_running_loop().call_soon(interrupt)
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    log.append("cancelled again")

    async def main():
        release = asyncio.Event()
        with pytest.raises(KeyboardInterrupt):
            await interruptible(stubborn(release))
        assert ["cleaned up", "cancelled again"] == log
        release.set()
        await asyncio.wait(await others())

    asyncio.run(main())


def test_an_interrupt_right_after_the_end_is_the_same_one():
    """Stop that is pressed twice is one Stop, also if the work has ended in between."""

    async def ends(again):
        asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_later(0.02, lambda: (again.set(), interrupt()))

    async def main():
        again, wrong = asyncio.Event(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: wrong.append(told))
        with pytest.raises(KeyboardInterrupt):
            await interruptible(ends(again))
        await again.wait()
        await asyncio.sleep(0)
        return wrong

    assert [] == asyncio.run(main())


def test_an_error_of_the_cleanup_is_the_cause():
    """An error raised while stopping is kept as the cause of the `KeyboardInterrupt`."""

    async def fails():
        try:
            await hangs([])
        finally:
            raise ValueError("clean-up")

    async def main():
        with pytest.raises(KeyboardInterrupt) as caught:
            await interruptible(fails())
        assert "clean-up" == str(caught.value.__cause__)
        assert caught.value.__context__ is None

    asyncio.run(main())


def test_an_interrupt_in_the_moment_the_work_ends_is_not_lost():
    """An interrupt counts until the old handler is back, even if the work has finished."""

    async def ends():
        interrupt()
        return 3

    async def main():
        with pytest.raises(KeyboardInterrupt):
            await interruptible(ends())

    asyncio.run(main())


def test_cancellation_by_others_stays_one():
    """A cancellation of the caller reaches the work, waits for its clean-up and comes back as a cancellation."""
    log = []

    async def main():
        task = asyncio.create_task(interruptible(hangs(log, interrupted=False)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        return await others()

    assert set() == asyncio.run(main())
    assert ["cleaned up"] == log


def test_work_that_survives_a_cancellation_keeps_its_value():
    """As with a plain `await`, work that catches the cancellation decides what comes of it."""

    async def survives():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 3

    async def main():
        task = asyncio.create_task(interruptible(survives()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert 3 == asyncio.run(main())


@pytest.mark.parametrize("first_ends", [True, False], ids=["first in, first out", "last in, first out"])
def test_two_at_once_leave_the_old_handler(first_ends):
    """Work that overlaps may end in any order: the handler from before is back, and none of theirs stays."""

    async def main():
        gates = [asyncio.Event(), asyncio.Event()]
        tasks = [asyncio.create_task(interruptible(gate.wait())) for gate in gates]
        await asyncio.sleep(0)
        for number in (0, 1) if first_ends else (1, 0):
            gates[number].set()
            await tasks[number]

    asyncio.run(main())


def test_one_interrupt_stops_all_work_of_the_moment():
    """An interrupt stops what was started earlier too, not only the latest work."""

    async def main():
        logs = [[], []]
        works = [interruptible(hangs(log, interrupted=log is logs[1])) for log in logs]
        results = await asyncio.gather(*[guarded(work) for work in works])
        return logs, results

    async def guarded(work):
        try:
            await work
        except KeyboardInterrupt:
            return "stopped"

    assert ([["cleaned up"], ["cleaned up"]], ["stopped", "stopped"]) == asyncio.run(main())


def test_outside_the_main_thread_it_only_awaits():
    """Where no signal arrives, the work is awaited and no handler is touched."""
    results = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(interruptible(returns(3)))))
    thread.start()
    thread.join()
    assert [3] == results


def test_blocking_call_without_a_loop():
    """Without a running loop a blocking call runs on IPython's own and gives the value, the error, the interrupt."""
    log = []
    assert 3 == run_sync(returns(3))
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        run_sync(hangs(log))
    assert ["cleaned up"] == log
    assert 1 == len(run_sync(others()))  # the task that runs `others` for the blocking call
