"""The tasks of a run, and their one owner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")

BESIDE = -1
"""In place of an agent, in the key of a task that belongs to none."""
Key = int | tuple[int, int]
"""An agent, or an agent and the number of a call, negative for the question whether to make it. The complement of an
agent is the count of its input."""


class Tasks:
    """Owns the tasks of one run, at most one per key: a request of an agent, or one of its calls.

    What the loop calls on behalf of the run stands inside `with tasks:`, and a task hands what would leave it to
    `broke`. An error that comes there is a bug: it breaks the run off, and `finish` raises it. When `finish` is over,
    no task is left. The likes of `KeyboardInterrupt` break the run off too, and go on to the loop.

    A task group holds the same, at two microseconds a task: here a task that ends well tells nobody.

    Args:
        on_break: Called when the run breaks off.

    Attributes:
        broken: Whether the run has broken off.
    """

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
        """Take in what has left a task, or a call on behalf of the run. Tells whether it goes no further."""
        if isinstance(bug, asyncio.CancelledError):
            return False
        self.broken = True
        self._on_break()
        if isinstance(bug, Exception):
            self._bugs.append(bug)
            return True
        if (task := asyncio.current_task()) is not None:  # the loop raises it: nobody has to be told of it later
            task.add_done_callback(asyncio.Task[None].exception)
        return False

    def begin(self, key: Key, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        """Make this the task of a key. Once the run is finishing nothing begins.

        Args:
            key: The key.
            work: Does it.
            name: What asyncio calls the task; to number it takes as long as to begin it in the loop.
        """
        if self._finishing:
            work.close()
        else:
            self._tasks[key] = (self._loop or self._running_loop()).create_task(work, name=name)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop, and keep it: to ask for it takes a call of the system."""
        loop = self._loop = asyncio.get_running_loop()
        return loop

    def own(
        self,
        key: Key,
        work: Callable[[], Awaitable[T]],
        over: Callable[[T], object],
        cut: Callable[[], object] | None = None,
    ) -> None:
        """Begin the task of a key that does something, and reports it when the key is free again.

        Args:
            key: The key.
            work: Does it.
            over: Reports what came of it.
            cut: Reports that it was cancelled; `None` reports nothing.
        """
        self.begin(key, self._owned(key, work, over, cut))

    def beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin a task that belongs to no agent."""
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
        """Record that a task takes its last step: it will not wait for anything any more."""
        del self._tasks[key]

    def cancel(self, key: Key, never_ran: Callable[[], None]) -> None:
        """Stop a task, if it has not ended. Without its first step taken, `never_ran` is called."""
        if (task := self._tasks.get(key)) is not None:
            task.add_done_callback(lambda _: self._gone(key, task, never_ran))
            task.cancel()

    def drop(self, agent: int) -> None:
        """Stop the questions about an agent: nobody needs an answer any more."""
        for key in [one for one in self._tasks if isinstance(one, tuple) and one[0] == agent and one[1] <= 0]:
            self._tasks[key].cancel()

    def _gone(self, key: Key, task: asyncio.Task[None], never_ran: Callable[[], None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
            with self:
                never_ran()

    async def finish(self) -> None:
        """Stop what is left, and wait until it has ended, however often this is cancelled meanwhile.

        Raises:
            ExceptionGroup: The bugs that showed themselves.
            asyncio.CancelledError: This was cancelled.
        """
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
            raise ExceptionGroup("a bug broke the run off", self._bugs)
        if cancelled is not None:
            raise cancelled
