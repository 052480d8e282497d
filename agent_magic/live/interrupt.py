"""What Ctrl-C, or the Stop button, does to work that is being awaited.

The handler of a notebook kernel does not wake a loop that waits on the network (ipykernel issue 881), and Python's own
would break the loop open and leave its tasks running. Ours cancels the work through the loop, which wakes it.
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
"""How often the loop wakes by itself: Python handles a signal that comes just before a system call after that call."""
GRACE_S = 0.2
"""How long the second interrupt waits. Ctrl-C is often hit twice in a row, while a clean-up that works is under way."""


def stopped() -> str:
    """Say that the work was stopped."""
    return "stopped"


async def interruptible(work: Coroutine[Any, Any, T], *, message: Callable[[], str] = stopped) -> T:
    """Await work so that an interrupt ends it, whatever it waits for.

    The first interrupt cancels the work and waits for its clean-up. The second cancels it once more and ends the wait
    after a moment: what hangs in its clean-up is left to itself. Outside the main thread, where no signal arrives, and
    where the handler belongs to a C program, the work is awaited as it is.

    Args:
        work: What to await. It runs as a task of its own, in the caller's context.
        message: Asked after an interrupt for the text of the `KeyboardInterrupt`. IPython shows three lines of it.

    Returns:
        What the work returns.

    Raises:
        KeyboardInterrupt: An interrupt came, even if the work finished in the same moment. An error of the clean-up is
            its `__cause__`.
        asyncio.CancelledError: Somebody else cancelled the work or the caller.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        return await work
    loop = asyncio.get_running_loop()
    watch = _Watch(loop, loop.create_future())
    watch.install()
    try:
        # Not before our handler is there: Python's own could raise in between and leave a task that nobody awaits.
        watch.task = loop.create_task(work)
        await watch.finish(watch.task)
    finally:
        watch.restore()
    if watch.presses:
        raise _interruption(message()) from _error_of(watch.task)
    return watch.task.result()


@dataclass(slots=True, eq=False)
class _Watch:
    """A handler of SIGINT for one piece of work.

    Attributes:
        loop: Where the work runs.
        enough: Done as soon as nobody wants to wait for the clean-up.
        task: The work, once it has been started.
        before: The handler that was there before this one.
        presses: How many interrupts came.
        is_open: Whether the work is still awaited. A closed one that others still hold as their `before` passes on.
    """

    loop: asyncio.AbstractEventLoop
    enough: asyncio.Future[None]
    task: asyncio.Task[Any] | None = field(default=None, kw_only=True)
    before: Handler | None = field(default=None, kw_only=True)
    presses: int = field(default=0, kw_only=True)
    is_open: bool = field(default=True, kw_only=True)

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Take an interrupt, and pass it on to work of the same cell that was started earlier."""
        if self.is_open:
            self.presses += 1
            # Unlike `call_soon`, this wakes a loop that waits on the network.
            self.loop.call_soon_threadsafe(self._stop)
        if callable(self.before) and (isinstance(self.before, _Watch) or not self.is_open):
            self.before(signum, frame)

    def install(self) -> None:
        """Become the handler, if this interpreter may have one."""
        with contextlib.suppress(ValueError):
            self.before = signal.signal(signal.SIGINT, self)

    def restore(self) -> None:
        """Put back the handler that was there before, or the nearest one that is still of use.

        Runs of one cell may end in any order. Where a later one is the handler now, it has this one as its `before`.
        """
        self.is_open = False
        handler = self.before
        while isinstance(handler, _Watch) and not handler.is_open:
            handler = handler.before
        if signal.getsignal(signal.SIGINT) is self and handler is not None:
            signal.signal(signal.SIGINT, handler)

    async def finish(self, task: asyncio.Task[Any]) -> None:
        """Wait until the work is done or it is enough; a cancellation of the caller goes on to the work."""
        while not (task.done() or self.enough.done()):
            try:
                await asyncio.wait({task, self.enough}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                # As with a plain `await`, the work decides what comes of it; if it is over, nobody is left to decide.
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
    """Return the error a task ended with, `None` if it was cancelled or is left to itself."""
    if not task.done():
        task.add_done_callback(_error_of)
        return None
    return None if task.cancelled() else task.exception()


def _interruption(text: str) -> KeyboardInterrupt:
    """Return a `KeyboardInterrupt` of which IPython shows the text only, without the frames of a loop."""
    lines = f"KeyboardInterrupt: {text}".splitlines()[:SHOWN_LINES]
    error = KeyboardInterrupt(text)
    # On the instance: front ends know the error by the name of its class.
    vars(error)["_render_traceback_"] = lambda: lines
    return error
