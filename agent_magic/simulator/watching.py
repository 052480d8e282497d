"""Noticing that the simulator is no longer wanted: a signal, the end of standard input, the death of its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

POLL_S = 0.5


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on the running loop at SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()

    def handle(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        if sys.platform == "win32":
            signal.signal(number, handle)
        else:
            loop.add_signal_handler(number, stop)


def on_stdin_end(stop: Callable[[], None]) -> None:
    """Call `stop` on the running loop when standard input ends.

    A thread reads, because pipes, terminals, files and Windows have no other way in common. It reads the descriptor
    itself: a thread that sits in `sys.stdin` would hold its lock when the interpreter ends.
    """
    loop = asyncio.get_running_loop()

    def read() -> None:
        while _some_input():
            pass
        _call(loop, stop)

    threading.Thread(target=read, name="stdin", daemon=True).start()


def _some_input() -> bool:
    try:
        return bool(os.read(0, 4096))
    except OSError:  # Closed or never opened: nobody holds the other end.
        return False


def _call(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(stop)
    except RuntimeError:  # The loop is closed: what was to be stopped has stopped.
        return


async def parent_gone(pid: int) -> None:
    """Return when a process is gone, noticed at once on Linux and within half a second elsewhere."""
    if sys.platform == "linux":
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except OSError:  # An old kernel, or a sandbox that forbids the call.
            pass
        else:
            await _readable(descriptor)
            return
    # A system without process descriptors has nothing better than asking again.
    while _alive(pid):  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


async def _readable(descriptor: int) -> None:
    """Wait until a descriptor can be read, then close it."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # Signal 0 would end the process there; standard input tells on Windows.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
