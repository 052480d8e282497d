"""The workers as one event loop sees them: who is there, who is free, who has gone silent."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from agent_magic.errors import AgentMagicError, Unreachable
from agent_magic.providers.dask.link import Link, greet
from agent_magic.providers.dask.serving import end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent_magic.providers.base import Stream
    from agent_magic.providers.dask.wire import Channel
    from agent_magic.record.answer import Answer
    from agent_magic.record.request import Request

LOG = logging.getLogger("agent_magic")
TICK_S = 0.5
"""How often to look whether workers are alive."""
LOOK_S = 2.0
"""How often to look whether workers have come."""
GREET_S = 10.0
PATIENCE_S = 15.0
"""How long a request waits for a worker where there is none: one that was killed is started again meanwhile."""


class Hub(Protocol):
    """Whoever has the workers. All but `start` raise `OSError` where it does not answer."""

    async def start(self) -> None:
        """Start it, or find it."""
        ...

    async def names(self) -> dict[str, str]:
        """Return the names of the workers there are, by address."""
        ...

    async def connect(self, address: str) -> Channel:
        """Connect to a worker, and hold it in its place."""
        ...

    async def release(self, address: str) -> None:
        """Hold a worker no longer."""
        ...


class Fleet:
    """The workers of one event loop, from the first run that uses them to the end of the last.

    Args:
        hub: Has the workers.
        settings: How a worker makes its provider.
        environ: Returns variables of the environment for the workers.

    Attributes:
        links: The workers that are connected, by address.
        users: How many runs use them.
        lock: Held while they are connected, or left.
    """

    def __init__(self, hub: Hub, settings: Mapping[str, Any], environ: Callable[[], Mapping[str, str]]) -> None:
        self.links: dict[str, Link] = {}
        self.users = 0
        self.lock = asyncio.Lock()
        self._hub, self._settings, self._environ = hub, settings, environ
        self._refused: dict[str, AgentMagicError] = {}
        self._changed, self._look = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Future[None]] = []

    async def start(self) -> None:
        """Connect to the workers.

        Raises:
            AgentMagicError: There is none that can answer.
        """
        await self._hub.start()
        try:
            await self._follow_once()
        except OSError as error:
            raise AgentMagicError(f"{error}. Connect again: %agents connect dask") from None
        if not self.links:
            why = next(iter(self._refused.values()), AgentMagicError("There are no Dask workers. Start some first."))
            raise why
        self._tasks = [asyncio.ensure_future(one) for one in (self._watch(), self._follow())]

    async def close(self) -> None:
        """End all connections."""
        await end(self._tasks)
        links, self.links = self.links, {}
        for address, link in links.items():
            await link.close()
            with suppress(OSError):
                await self._hub.release(address)

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Have the worker with the fewest streams make a request.

        Raises:
            CallError: The attempt failed.
        """
        link = self._free()
        if link is None:
            link = await self._wait()
        return await link.send(request, stream)

    def _free(self) -> Link | None:
        return min((one for one in self.links.values() if one.is_free), key=_streams, default=None)

    async def _wait(self) -> Link:
        """Wait for a worker."""
        self._look.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (link := self._free()) is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            why = f"No worker has come for {PATIENCE_S:g} s. %agents workers shows which there are."
            raise Unreachable(why, sent=False) from None
        return link

    def _lost(self, link: Link) -> None:
        """Forget a worker that is lost."""
        self.links = {address: one for address, one in self.links.items() if one is not link}
        self._look.set()

    async def _watch(self) -> None:
        """Look whether workers are alive. Time in which the loop was held up does not count: nobody was heard in it."""
        then = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for link in [*self.links.values()]:
                was_free = link.is_free
                link.tick(min(now - then, 2 * TICK_S))
                if was_free and not link.is_free:
                    LOG.warning("Worker %r has given no sign of life for %.0f s.", link.name, link.silent_s)
            then = now

    async def _follow(self) -> None:
        """Connect to workers that come."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
                await asyncio.sleep(TICK_S)
            self._look.clear()
            with suppress(OSError):
                await self._follow_once()

    async def _follow_once(self) -> None:
        names = await self._hub.names()
        new = {address: name for address, name in names.items() if address not in self.links}
        await _all(self._join(address, name) for address, name in new.items())

    async def _join(self, address: str, name: str) -> None:
        """Connect to one worker. One that cannot be reached is tried again later."""
        try:
            async with asyncio.timeout(GREET_S):
                channel = await self._hub.connect(address)
                try:
                    await greet(channel, name, self._settings, self._environ())
                except BaseException:
                    channel.abort()
                    raise
        except AgentMagicError as error:
            self._refused[name] = error
        except OSError as error:
            LOG.debug("Worker %r cannot be reached: %s", name, error)
        else:
            self._refused.pop(name, None)
            self.links[address] = Link(name, channel, self._lost)
            self._changed.set()


def _streams(link: Link) -> int:
    return link.streams


async def _all(work: Iterable[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
