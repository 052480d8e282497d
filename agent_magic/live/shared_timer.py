"""Calls a moment later, by one timer of the loop for all: a loop keeps and sorts even cancelled timers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    Calls = dict[Callable[[], None], None]

MOMENT_S: Final = 0.25
_waiting: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Calls]] = WeakKeyDictionary()
"""The pending calls of each loop."""


def in_a_moment(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
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
