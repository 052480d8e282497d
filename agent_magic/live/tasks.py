"""The tasks of a run, and their one owner; calls that may wait a moment; and interrupts of awaited work.

On Ctrl-C or the Stop button, a notebook kernel's handler does not wake a loop that waits on the network (ipykernel
issue 881), and Python's breaks the loop and leaves its tasks running. Ours cancels the work through the loop, which
wakes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import FrameType

    Calls = dict[Callable[[], None], None]
    Handler = Callable[[int, FrameType | None], Any] | int

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


SHOWN_LINES = 3
LOOK_S = 0.1
"""Seconds between wake-ups of the loop: Python handles a signal just before a system call only after that call."""
GRACE_S = 0.2
"""Seconds the second interrupt waits: Ctrl-C is often hit twice while a clean-up is under way."""


QUIET_S = 0.3
"""Seconds after the last interrupt in which another one is taken for the same: Stop is often pressed twice. Later it
would meet ipykernel on its way to reply, and the cell would never end in the page."""


def stopped() -> str:
    return "stopped"


async def interruptible(work: Coroutine[Any, Any, T], *, message: Callable[[], str] = stopped) -> T:
    """Await work so that an interrupt ends it with a `KeyboardInterrupt` of this message.

    The first interrupt cancels the work and waits for its clean-up. The second cancels again, and a moment later
    abandons a clean-up that hangs.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        return await work
    loop = asyncio.get_running_loop()
    watch = _Watch(loop, loop.create_future())
    watch.install()
    try:
        # Not before our handler is set: Python's own could raise in between and leave a task without an owner.
        watch.task = loop.create_task(work)
        await watch.finish(watch.task)
        await watch.quiet()
    finally:
        watch.restore()
    if watch.presses:
        text = message()
        lines = f"KeyboardInterrupt: {text}".splitlines()[:SHOWN_LINES]
        error = KeyboardInterrupt(text)
        # On the instance: front ends know the error by the name of its class.
        vars(error)["_render_traceback_"] = lambda: lines
        raise error from _error_of(watch.task)
    return watch.task.result()


@dataclass(slots=True, eq=False)
class _Watch:
    """A handler of SIGINT for one piece of work, done (`enough`) when the clean-up is no longer waited for.

    A closed handler that is still another's `before` passes interrupts on.
    """

    loop: asyncio.AbstractEventLoop
    enough: asyncio.Future[None]
    task: asyncio.Task[Any] | None = field(default=None, kw_only=True)
    before: Handler | None = field(default=None, kw_only=True)
    presses: int = field(default=0, kw_only=True)
    pressed_s: float = field(default=-math.inf, kw_only=True)
    is_open: bool = field(default=True, kw_only=True)

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.is_open:
            self.presses += 1
            self.pressed_s = time.monotonic()
            # Unlike `call_soon`, this wakes a loop that waits on the network.
            self.loop.call_soon_threadsafe(self._stop)
        if callable(self.before) and (isinstance(self.before, _Watch) or not self.is_open):
            self.before(signum, frame)

    def install(self) -> None:
        with contextlib.suppress(ValueError):
            self.before = signal.signal(signal.SIGINT, self)

    def restore(self) -> None:
        # Runs of one cell may end in any order. If a later one is the handler now, this one is its `before`.
        self.is_open = False
        handler = self.before
        while isinstance(handler, _Watch) and not handler.is_open:
            handler = handler.before
        if signal.getsignal(signal.SIGINT) is self and handler is not None:
            signal.signal(signal.SIGINT, handler)

    async def finish(self, task: asyncio.Task[Any]) -> None:
        """Wait until the work is done or abandoned; pass on a cancellation."""
        while not (task.done() or self.enough.done()):
            try:
                await asyncio.wait({task, self.enough}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                # As with a plain `await`, the work decides the outcome; if it is over, nothing is left to decide.
                if not task.cancel():
                    raise

    async def quiet(self) -> None:
        """Wait until `QUIET_S` have passed since the last interrupt."""
        while (left_s := self.pressed_s + QUIET_S - time.monotonic()) > 0:  # noqa: ASYNC110 - each interrupt moves it
            await asyncio.sleep(left_s)

    def _stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.presses > 1:
            self.loop.call_later(GRACE_S, self._give_up)

    def _give_up(self) -> None:
        if not self.enough.done():
            self.enough.set_result(None)


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    if not task.done():
        task.add_done_callback(_error_of)
        return None
    return None if task.cancelled() else task.exception()
