"""Calls that come a moment later, if they are needed then: one timer of the event loop for all of them.

Whatever watches a run sets a timer when it begins and takes it back at the end. A loop keeps such timers and sorts the
next ones among them, so for many short runs they cost more than what they are for. Here a run that is over within the
moment has set none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    Calls = dict[Callable[[], None], None]

MOMENT_S: Final = 0.25
_waiting: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Calls]] = WeakKeyDictionary()
"""The calls of each loop that has a timer."""


def in_a_moment(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have a function called on a loop after a moment at most, and once only.

    Args:
        loop: The loop, which runs here.
        call: The function.
    """
    calls = _waiting.get(loop)
    if calls is None:
        calls = _waiting[loop] = {}
        loop.call_later(MOMENT_S, _call_all, loop)
    calls[call] = None


def forget(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Take a call back, if it has not been made. The timer stays: it may serve the next run.

    Args:
        loop: The loop.
        call: The function.
    """
    if (calls := _waiting.get(loop)) is not None:
        calls.pop(call, None)


def _call_all(loop: asyncio.AbstractEventLoop) -> None:
    for call in _waiting.pop(loop):
        call()
