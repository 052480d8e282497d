"""Waiting for the end of a stream, without an alarm where the end is here already.

A connection whose end was read can serve the next request. Mostly the end came along with the last event; a timeout
that is set and lifted for it costs more than reading it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Generator


async def drain(events: AsyncIterator[object], within_s: float) -> None:
    """Read to the end and throw it away.

    Raises:
        TimeoutError: The end did not come in time.
    """
    await within(within_s, _read(events))


async def within(limit_s: float, work: Coroutine[Any, Any, None]) -> None:
    """Await something that is mostly done at its first step, for so many seconds.

    Raises:
        TimeoutError: It was not done in time.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return
    async with asyncio.timeout(limit_s):
        await _Begun(work, awaited)


async def _read(events: AsyncIterator[object]) -> None:
    async for _ in events:
        pass


class _Begun:
    """A coroutine that has taken its first step already, and what it waits for: to be awaited on."""

    def __init__(self, steps: Coroutine[Any, Any, None], awaited: object) -> None:
        self._steps, self._awaited = steps, awaited

    def __await__(self) -> Generator[object, Any, None]:
        awaited = self._awaited
        try:
            while True:
                try:
                    got = yield awaited
                except BaseException as error:  # noqa: BLE001 - handed on to the coroutine, which is where it belongs
                    awaited = self._steps.throw(error)
                else:
                    awaited = self._steps.send(got)
        except StopIteration:
            return
