"""The tasks of a run, and their one owner; and calls that may wait a moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    Calls = dict[Callable[[], None], None]

T = TypeVar("T")

BESIDE = -1
"""Stands for the agent in the key of a task without one."""
Key = int | tuple[int, int]
"""An agent, or an agent and a call's number, negative for the question whether to make it; `~agent` counts its input.
"""


class Tasks:
    """Owns the tasks of one run, at most one per key: a request of an agent, or one of its calls.

    The run's callbacks are wrapped in `with tasks:`. An error that escapes a task or callback is a bug: it ends the
    run, and `finish` raises it.
    """

    # A task group gives the same guarantees, at two microseconds per task: here a task that ends well notifies
    # nothing.

    def __init__(self, on_break: Callable[[], None]) -> None:
        self._on_break = on_break
        self.broken = False
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._bugs: list[Exception] = []
        self._finishing = False
        self._beside = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, bug: BaseException | None, trace: object) -> bool:
        return bug is not None and self.broke(bug)

    def broke(self, bug: BaseException) -> bool:
        """Handle an error that escaped a task or callback; return whether it goes no further."""
        if isinstance(bug, asyncio.CancelledError):
            return False
        self.broken = True
        self._on_break()
        if isinstance(bug, Exception):
            self._bugs.append(bug)
            return True
        if (task := asyncio.current_task()) is not None:  # the loop raises it: it need not be reported later
            task.add_done_callback(asyncio.Task[None].exception)
        return False

    def begin(self, key: Key, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        # It has a name, since automatic numbering takes as long as starting it in the loop.
        if self._finishing:
            work.close()
        else:
            self._tasks[key] = (self._loop or self._running_loop()).create_task(work, name=name)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop, looked up once: that takes a system call."""
        loop = self._loop = asyncio.get_running_loop()
        return loop

    def own(
        self,
        key: Key,
        work: Callable[[], Awaitable[T]],
        over: Callable[[T], object],
        cut: Callable[[], object] | None = None,
    ) -> None:
        self.begin(key, self._owned(key, work, over, cut))

    def beside(self, work: Callable[[], Awaitable[None]]) -> None:
        self._beside += 1
        self.own((BESIDE, self._beside), work, bool)

    async def _owned(
        self,
        key: Key,
        work: Callable[[], Awaitable[T]],
        over: Callable[[T], object],
        cut: Callable[[], object] | None,
    ) -> None:
        try:
            try:
                found = await work()
            except asyncio.CancelledError:
                self.left(key)
                if cut is not None:
                    cut()
                raise
            except BaseException:
                self.left(key)
                raise
            self.left(key)
            over(found)
        except BaseException as bug:
            if not self.broke(bug):
                raise

    def left(self, key: Key) -> None:
        """Record that a task is on its last step: it will not wait again."""
        del self._tasks[key]

    def cancel(self, key: Key, never_ran: Callable[[], None]) -> None:
        """Stop a task; if it has not started, call `never_ran`."""
        if (task := self._tasks.get(key)) is not None:
            task.add_done_callback(lambda _: self._gone(key, task, never_ran))
            task.cancel()

    def drop(self, agent: int) -> None:
        for key in [one for one in self._tasks if isinstance(one, tuple) and one[0] == agent and one[1] <= 0]:
            self._tasks[key].cancel()

    def _gone(self, key: Key, task: asyncio.Task[None], never_ran: Callable[[], None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
            with self:
                never_ran()

    async def finish(self) -> None:
        """Stop the remaining tasks and wait for their end, even if cancelled; raise their bugs."""
        self._finishing = True
        cancelled: asyncio.CancelledError | None = None
        for task in self._tasks.values():
            task.cancel()
        while waiting := [task for task in self._tasks.values() if not task.done()]:
            try:
                await asyncio.wait(waiting)
            except asyncio.CancelledError as error:
                cancelled = error
        if self._bugs:
            raise ExceptionGroup("a bug ended the run", self._bugs)
        if cancelled is not None:
            raise cancelled


MOMENT_S: Final = 0.25
_waiting: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Calls]] = WeakKeyDictionary()
"""The pending calls of each loop."""


def in_a_moment(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call it by one timer of the loop for all, since a loop keeps cancelled timers."""
    calls = _waiting.get(loop)
    if calls is None:
        calls = _waiting[loop] = {}
        loop.call_later(MOMENT_S, _call_all, loop)
    calls[call] = None


def forget(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Cancel a pending call; the timer stays for the next run."""
    if (calls := _waiting.get(loop)) is not None:
        calls.pop(call, None)


def _call_all(loop: asyncio.AbstractEventLoop) -> None:
    for call in _waiting.pop(loop):
        call()
