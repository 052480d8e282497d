"""Reading a stream to its end."""

from __future__ import annotations

import asyncio

import pytest

from agent_magic.providers.anthropic.stream import drain


class Loop:
    """Counts the timers that are set on the running loop."""

    def __init__(self, monkeypatch):
        self.timers = 0
        loop = asyncio.get_running_loop()
        call_at = loop.call_at

        def counted(*args, **named):
            self.timers += 1
            return call_at(*args, **named)

        monkeypatch.setattr(loop, "call_at", counted)


def test_what_is_here_already_is_read_without_an_alarm(monkeypatch):
    """No timer is set where the end needs no waiting."""

    async def scene():
        seen = []

        async def events():
            for number in range(3):
                seen.append(number)
                yield number

        loop = Loop(monkeypatch)
        await drain(events(), 5.0)
        assert [0, 1, 2] == seen
        assert loop.timers == 0

    asyncio.run(scene())


def test_an_end_that_is_still_to_come_is_waited_for():
    """A stream that suspends several times is read to its end, and what it awaits gives it its values."""

    async def scene():
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        seen = []

        async def events():
            for future in futures:
                seen.append(await future)
                yield None

        async def answer():
            for number, future in enumerate(futures):
                future.set_result(number)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(drain(events(), 5.0))
            group.create_task(answer())
        assert [0, 1, 2] == seen

    asyncio.run(scene())


def test_an_end_that_never_comes_is_given_up():
    """After the time the stream is closed, by the timeout that its reader sees."""

    async def scene():
        ended = []

        async def events():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)
            yield None

        with pytest.raises(TimeoutError):
            await drain(events(), 0.01)
        assert [True] == ended

    asyncio.run(scene())


def test_an_error_on_the_way_comes_out():
    """What breaks the stream is raised, before and after its first wait."""

    async def scene():
        async def events(*, late):
            if late:
                await asyncio.sleep(0)
            yield None
            raise ConnectionResetError

        for late in (False, True):
            with pytest.raises(ConnectionResetError):
                await drain(events(late=late), 5.0)

    asyncio.run(scene())


def test_a_cancelled_reader_stops_the_stream():
    """A cancellation reaches what the stream waits for, and is not swallowed."""

    async def scene():
        waiting = asyncio.Event()
        stopped = []

        async def events():
            waiting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append(True)
                raise
            yield None

        task = asyncio.create_task(drain(events(), 5.0))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [True] == stopped

    asyncio.run(scene())
