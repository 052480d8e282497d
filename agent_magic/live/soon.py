"""Calls a moment later, if still needed then: one event loop timer for all of them.

A loop keeps cancelled timers and sorts new ones among them, so for many short runs they cost more than their use. Here
a run that ends within the moment sets none.
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
    """Call a function once on a loop, after a moment at most.

    Args:
        loop: The running loop.
        call: The function.
    """
    calls = _waiting.get(loop)
    if calls is None:
        calls = _waiting[loop] = {}
        loop.call_later(MOMENT_S, _call_all, loop)
    calls[call] = None


def forget(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Cancel a pending call. The timer stays: it may serve the next run.

    Args:
        loop: The loop.
        call: The function.
    """
    if (calls := _waiting.get(loop)) is not None:
        calls.pop(call, None)


def _call_all(loop: asyncio.AbstractEventLoop) -> None:
    for call in _waiting.pop(loop):
        call()
