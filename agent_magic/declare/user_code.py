"""The user's code that runs while a plan is created or a prompt is rendered: methods of values, functions in prompts.

It often runs in a task on the kernel's own loop. A `SystemExit` or `KeyboardInterrupt` that leaves a task ends the
kernel, and an interrupt handler that cancels tasks does nothing while a loop over 10^10 items in a prompt blocks the
loop. So all such code runs in `run_user_code`.
"""

from __future__ import annotations

import asyncio
import importlib
import linecache
import math
import os
import signal
import sysconfig
import threading
import time
import traceback
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_magic.errors import AgentMagicError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

T = TypeVar("T")

AT_ONCE_S: Final = 0.5
"""Seconds after an interrupt in which another does not raise: it would interrupt the clean-up of the first."""

_SIGNALS: Final[Any] = importlib.import_module("_signal")
"""The C part of `signal`: with the handler of `asyncio.run` the Python part took 15 us a call (2026-11-25)."""


def run_user_code(work: Callable[[], T], failed: Callable[[BaseException], AgentMagicError]) -> T:
    """Run the user's code, stopped at once by an interrupt, with its exceptions converted by `failed`.

    An interrupt is a `CancelledError` in a task, else a `KeyboardInterrupt`.
    """
    stop = _Stop()
    try:
        stop.install()
        found = work()
        stop.raises = False
    except BaseException as error:
        stop.raises = False
        if stop.pressed:
            raise stop.error() from None
        if isinstance(error, AgentMagicError):
            raise
        raise failed(error) from None
    finally:
        stop.restore()
    if stop.pressed:  # the code has caught the interrupt
        raise stop.error()
    return found


class _Stop:
    """A handler of SIGINT that raises in the code that runs, after the earlier handler has heard of the interrupt.

    `pressed` tells Stop from a `KeyboardInterrupt` of the code.
    """

    def __init__(self) -> None:
        self.pressed, self.raises = False, True
        self._before: Any = None
        self._raised_s = -math.inf

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.pressed = True
        if callable(self._before):
            self._before(signum, frame)
        now = time.monotonic()
        if self.raises and now - self._raised_s > AT_ONCE_S:
            self._raised_s = now
            raise KeyboardInterrupt

    def install(self) -> None:
        """Install this as the main thread's handler, unless a C program has one."""
        if threading.current_thread() is threading.main_thread() and _SIGNALS.getsignal(signal.SIGINT) is not None:
            self._before = _SIGNALS.signal(signal.SIGINT, self)

    def restore(self) -> None:
        """Put back the earlier handler, unless the code has set another."""
        if self._before is not None and _SIGNALS.getsignal(signal.SIGINT) is self:
            _SIGNALS.signal(signal.SIGINT, self._before)

    def error(self) -> BaseException:
        if self._before is signal.default_int_handler or not _in_task():
            return KeyboardInterrupt()
        return asyncio.CancelledError()


def _in_task() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


_MOST_FRAMES = 12
_HERE = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen")
_INSTALLED = ("site-packages", "dist-packages")


def trace_of(error: BaseException) -> str:
    """Write a traceback of the user's lines, without the private folders of files."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    frames = [one for one in frames if not one[0].co_filename.startswith(_HERE)]
    files = [code.co_filename for code, _ in frames]
    is_own = [not (name.startswith(_LIBRARIES) or any(one in name for one in _INSTALLED)) for name in files]
    own = [*compress(frames, is_own)] or frames[-1:]
    lines = [_frame_line(code, line) for code, line in own]
    if len(lines) > _MOST_FRAMES:
        half = _MOST_FRAMES // 2
        lines = [*lines[:half], f"… {len(lines) - 2 * half} more …", *lines[-half:]]
    before = [] if error.__cause__ is None else [trace_of(error.__cause__), "which was the cause of"]
    return "\n".join([*before, *lines, reason_of(error), *getattr(error, "__notes__", ())])


def _frame_line(code: CodeType, line: int) -> str:
    name, text = code.co_filename, linecache.getline(code.co_filename, line).strip()
    where = Path(name).name if Path(name).exists() else "a cell"  # a kernel names cells by files that it never writes
    return f"{where}, line {line}, in {code.co_name}: {text}".rstrip(": ")


def reason_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a class of the user's
        text = ""
    return f"{type(error).__name__}: {text}".rstrip(".: ")


def hint_of(error: str) -> str:
    """Return a remedy for an error in a function's own thread; empty if none is known."""
    if "same thread" in error:  # sqlite3's own words
        return "main=True in @am.tool or @am.task calls it on the main thread, where the connection was opened."
    return ""
