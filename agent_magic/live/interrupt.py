"""Ctrl-C, or the Stop button, during awaited work.

A notebook kernel's handler does not wake a loop that waits on the network (ipykernel issue 881), and Python's breaks
the loop and leaves its tasks running. Ours cancels the work through the loop, which wakes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeAlias, TypeVar

__all__ = ["interruptible", "stopped"]

T = TypeVar("T")
Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int

SHOWN_LINES = 3
LOOK_S = 0.1
"""Seconds between wake-ups of the loop: Python handles a signal just before a system call only after that call."""
GRACE_S = 0.2
"""Seconds the second interrupt waits: Ctrl-C is often hit twice while a clean-up is under way."""


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
    finally:
        watch.restore()
    if watch.presses:
        raise _interruption(message()) from _error_of(watch.task)
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
    is_open: bool = field(default=True, kw_only=True)

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.is_open:
            self.presses += 1
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


def _interruption(text: str) -> KeyboardInterrupt:
    lines = f"KeyboardInterrupt: {text}".splitlines()[:SHOWN_LINES]
    error = KeyboardInterrupt(text)
    # On the instance: front ends know the error by the name of its class.
    vars(error)["_render_traceback_"] = lambda: lines
    return error
