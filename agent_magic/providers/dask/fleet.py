"""The workers of one event loop as the kernel sees them: connected, free, silent or lost."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from agent_magic.errors import AgentMagicError, Overloaded, Unreachable, Unreadable
from agent_magic.providers.dask.serving import (
    WIRE,
    end,
    error_in,
    readings_in,
    request_out,
    text_in,
)
from agent_magic.record.answer import Answer, Usage
from agent_magic.record.codec import data_of, from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from agent_magic.providers.base import Stream
    from agent_magic.providers.dask.cluster import Autoscale
    from agent_magic.providers.dask.serving import Channel, Message
    from agent_magic.record.request import Request


LOG = logging.getLogger("agent_magic")
SILENT_S = 3.0
"""Without a sign of life, before a worker gets no new requests."""
LOST_S = 10.0
"""Before it is given up. Only time in which the kernel's loop was awake counts."""


ENDS = frozenset({"answer", "error", "ended"})


class _Flight:
    """A request or job on a worker; `sent` if the worker may have received it."""

    __slots__ = "answer", "request", "sent", "stream", "tell"

    def __init__(
        self,
        stream: Stream | None = None,
        request: Request | None = None,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        self.stream, self.request, self.tell = stream, request, tell
        self.sent = False
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def is_awaited(self) -> bool:
        """True if its answer would still be useful after its worker was given up."""
        stream, request = self.stream, self.request
        if not self.sent or stream is None or request is None or stream.taker is None:
            return False
        return stream.taker.awaits(stream, request)

    def take_late(self, worker: str, line: str) -> None:
        stream, request = self.stream, self.request
        if stream is not None and request is not None and stream.taker is not None:
            stream.worker = worker
            stream.taker.take_late(stream, request, from_json(Answer, data_of(line)))

    def hear(self, kind: str, rest: tuple[Any, ...]) -> None:
        if self.stream is not None:
            _tell(self.stream, kind, rest)
        elif self.tell is not None and kind == "text":
            self.tell(text_in(rest[0]))


class Link:
    """One worker, as the kernel sees it.

    A worker given up for its silence (`lost`) may only be disconnected: the connection is kept (not `over`) while an
    answer, which is paid for, could still be useful.
    """

    def __init__(
        self, name: str, channel: Channel, on_lost: Callable[[Link], None], on_note: Callable[[str], object]
    ) -> None:
        self.name, self._channel, self._on_lost, self._on_note = name, channel, on_lost, on_note
        self.draining = self.lost = self.over = False
        self.silent_s, self.answered, self.failed = 0.0, 0, 0
        self._flights: dict[int, _Flight] = {}
        self._late: dict[int, _Flight] = {}
        self._number = 0
        self._pending: list[Message] = []
        self._wake = asyncio.Event()
        self._tasks = [asyncio.ensure_future(one) for one in (self._read(), self._write())]

    @property
    def streams(self) -> int:
        return len(self._flights)

    @property
    def jobs(self) -> int:
        return sum(one.stream is None for one in self._flights.values())

    @property
    def is_free(self) -> bool:
        return not self.draining and not self.lost and self.silent_s < SILENT_S

    async def send(self, request: Request, stream: Stream) -> Answer:
        """A lost worker is a broken connection: `Unreachable`."""
        stream.worker = self.name
        return await self._awaited(_Flight(stream, request), "call", *request_out(request))

    async def run(self, job: bytes, tell: Callable[[str], object]) -> tuple[bytes, str]:
        """See `agent_magic.providers.base.Remote`."""
        return await self._awaited(_Flight(tell=tell), "run", job), self.name

    async def _awaited(self, flight: _Flight, kind: str, *what: Any) -> Any:
        if self.lost:
            raise Unreachable(f"Worker {self.name!r} was lost.", sent=False)
        self._number += 1
        number = self._number
        self._flights[number] = flight
        self._say(kind, number, *what)
        try:
            return await flight.answer
        finally:
            if self._flights.pop(number, None) is not None and not self.lost:  # it was cancelled here
                self._say("cancel", number)

    def tick(self, awake_s: float) -> None:
        """The kernel's loop was awake for this long, which counts as silence of the worker."""
        self.silent_s += awake_s
        if self.silent_s >= LOST_S and not self.lost:
            self._give_up(f"has given no sign of life for {LOST_S:g} s")

    def end_unless_awaited(self) -> None:
        for number, flight in [*self._late.items()]:
            if not flight.is_awaited:
                del self._late[number]
                self._say("cancel", number)
        if not self._late:
            self.lose("was lost")

    def lose(self, why: str) -> None:
        """End the connection. The outcome of requests that had reached the worker is unknown."""
        if not self.over:
            self.over = True
            self._channel.abort()
            self._late.clear()
            self._fail(why)
            self._wake.set()

    def _give_up(self, why: str) -> None:
        """Fail all requests of the worker; a late answer is still taken."""
        self._late = {number: one for number, one in self._flights.items() if one.is_awaited}
        unneeded = [("cancel", number) for number in self._flights if number not in self._late]
        self._pending = [one for one in self._pending if one[0] == "cancel"] + unneeded
        self._fail(why)
        self._wake.set()
        if not self._late:
            self.lose(why)

    def _fail(self, why: str) -> None:
        if self.lost:
            return
        self.lost = True
        flights, self._flights = self._flights, {}
        self.failed += len(flights)
        if flights:
            told = "Worker %r %s. %d under way there failed; the retry policy decides what is sent again."
            LOG.warning(told, self.name, why, len(flights))
        for flight in flights.values():
            if not flight.answer.done():
                text = "" if flight.stream is None else flight.stream.text
                error = Unreachable(f"Worker {self.name!r} {why}.", sent=flight.sent, partial=text)
                flight.answer.set_exception(error)
        self._on_lost(self)

    async def close(self) -> None:
        self.lose("was let go")
        await end(self._tasks)

    def _say(self, *message: Any) -> None:
        self._pending.append(message)
        self._wake.set()

    async def _write(self) -> None:
        try:
            while not self.over:
                await self._wake.wait()
                self._wake.clear()
                batch, self._pending = self._pending, []
                for kind, number, *_ in batch:  # from here on the worker may have it
                    if kind != "cancel" and number in self._flights:
                        self._flights[number].sent = True
                if batch:
                    await self._channel.write(batch)
                    LOG.debug("Worker %r was told: %s.", self.name, ", ".join(f"{one[0]} {one[1]}" for one in batch))
        except OSError:
            self.lose("was lost")

    async def _read(self) -> None:
        try:
            while not self.over:
                batch = await self._channel.read()
                self.silent_s = 0.0
                for message in batch:
                    if (flight := self._flights.get(message[1])) is not None:
                        self._take(flight, *message)
                    elif self._late and message[0] in ENDS and (late := self._late.pop(message[1], None)) is not None:
                        self._take_late(late, *message)
        except OSError:
            self.lose("was lost")

    def _take(self, flight: _Flight, kind: str, number: int, *rest: Any) -> None:
        """Take events from a worker; errors are raised in the task that awaits the answer."""
        try:
            flight.hear(kind, rest)
            if kind == "answer" and flight.stream is not None:
                flight.stream.answer = answer = from_json(Answer, data_of(rest[0]))
                _settle(flight.answer, answer)
            elif kind == "note":
                self._on_note(rest[0])
            elif kind == "ended":
                _settle(flight.answer, bytes(rest[0]))
        except ValueError as error:
            _settle(flight.answer, Unreadable(f"Worker {self.name!r} sent an unreadable message: {error}."))
            kind = "error"
        except Exception as error:  # noqa: BLE001 - a listener's bug must not end the other streams
            _settle(flight.answer, error)
            kind = "error"
        else:
            if kind == "error":
                _settle(flight.answer, error_in(*rest))
        if kind in ENDS:
            self.answered += kind == "answer"
            self.failed += kind == "error"
            del self._flights[number]

    def _take_late(self, flight: _Flight, kind: str, number: int, *rest: Any) -> None:
        LOG.debug("Worker %r, which was given up, says: %s %d.", self.name, kind, number)
        if kind == "answer":
            with suppress(ValueError):
                flight.take_late(self.name, rest[0])


def _settle(future: asyncio.Future[Any], found: Answer | bytes | Exception) -> None:
    if future.done():
        return
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)


def _tell(stream: Stream, kind: str, rest: tuple[Any, ...]) -> None:
    match kind:
        case "text":
            stream.add(text_in(rest[0]))
        case "restarted":
            stream.restart()
        case "replied":
            status, readings, simulated = rest
            stream.replied(status, readings_in(readings), simulated=simulated)
        case "opened":
            stream.opened()
        case "began":
            stream.began()
        case "usage":
            line, stream.unseen, stream.model = rest
            stream.usage = from_json(Usage, data_of(line))
        case _:
            pass


async def greet(channel: Channel, name: str, settings: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Send a worker the arguments of its provider."""
    await channel.write({"wire": WIRE, "settings": settings, "environ": environ})
    reply = await channel.read()
    why = reply.get("error") or ("" if reply.get("wire") == WIRE else "speaks another version of agent_magic")
    if why:
        raise AgentMagicError(f"Worker {name!r} {why}.")


NO_WORKERS = "There are no Dask workers. Start some: %agents workers scale 2, or where the cluster runs."
TICK_S = 0.5
LOOK_S = 2.0
GREET_S = 60.0
"""For a worker's imports on a busy machine."""
TOGETHER_S = 1.0
"""How long a run waits for other workers after the first, which would get all first requests."""
PATIENCE_S = 60.0
"""How long a run waits for a worker if none is left; a killed one is restarted meanwhile."""
UNANSWERED_S = 10.0
"""How long if the scheduler does not answer either, as long as Dask looks for it."""


def _streams(link: Link) -> int:
    return link.streams


def _state(link: Link) -> str:
    why = "draining" if link.draining else f"silent for {link.silent_s:.1f} s"
    return f"{link.name} has {link.streams}, {why}"


class Hub(Protocol):
    """The source of workers. Its methods raise `OSError` if it does not answer."""

    async def start(self) -> None: ...

    async def names(self) -> dict[str, str]: ...

    async def connect(self, address: str) -> Channel: ...

    async def release(self, address: str) -> None:
        """Remove a worker's anchor: Dask may stop it."""
        ...

    async def retire(self, address: str) -> None: ...

    async def grow(self, workers: int) -> None:
        """Start workers up to this number, if they are ours."""
        ...


class Fleet:
    """The workers of one event loop, from its first run to the end of its last."""

    def __init__(
        self,
        hub: Hub,
        settings: Mapping[str, Any],
        environ: Callable[[], Mapping[str, str]],
        autoscale: Autoscale | None = None,
        tally: dict[str, tuple[int, int]] | None = None,
        on_note: Callable[[str], object] = LOG.info,
    ) -> None:
        self.links: dict[str, Link] = {}
        self.users = 0
        self.lock = asyncio.Lock()
        self.waiting = 0
        self._hub, self._settings, self._environ, self._autoscale = hub, settings, environ, autoscale
        self._agents = 0
        self._wanted: int | None = None
        self._tally, self._on_note = {} if tally is None else tally, on_note
        self._gone: set[str] = set()
        self._given_up: list[Link] = []
        self._alone_s: float | None = None
        self._answers = True
        self._refused: dict[str, AgentMagicError] = {}
        self._changed, self._look = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Future[None]] = []
        self._joining: dict[str, asyncio.Future[None]] = {}

    async def start(self) -> None:
        """Raise `AgentMagicError` if no worker can answer."""
        self._gone.clear()
        self._tally.clear()
        try:
            await self._begin()
        except BaseException:  # an interrupt too: nothing is left behind
            await self.close()
            raise

    async def _begin(self) -> None:
        try:
            await self._hub.start()
            await self._follow_once()
        except OSError as error:
            raise AgentMagicError(f"{error}. Connect again: %agents connect dask") from None
        while self._joining and not self.links:  # with one of them there is enough to begin
            await asyncio.wait([*self._joining.values()], return_when=asyncio.FIRST_COMPLETED)
        if self._joining:
            await asyncio.wait([*self._joining.values()], timeout=TOGETHER_S)
        if not self.links:
            why = next(iter(self._refused.values()), AgentMagicError(NO_WORKERS))
            raise why
        work = [self._watch(), self._follow(), *([self._scale(self._autoscale)] if self._autoscale else [])]
        self._tasks = [asyncio.ensure_future(one) for one in work]

    async def close(self) -> None:
        await end([*self._tasks, *self._joining.values()])
        for link in self._given_up:
            await link.close()
        self._given_up.clear()
        links, self.links = self.links, {}
        for address, link in links.items():
            await link.close()
            with suppress(OSError):
                await self._hub.release(address)
                if link.draining:  # its last stream ended with the run
                    await self._hub.retire(address)
        if self._wanted is not None:
            with suppress(OSError):
                await self._hub.grow(self._wanted)
            self._wanted = None

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Send a request by the worker with the fewest streams."""
        link = self._free() or await self._wait()
        try:
            return await link.send(request, stream)
        finally:
            if self.waiting:
                self._changed.set()

    async def run(self, job: bytes, tell: Callable[[str], object]) -> tuple[bytes, str]:
        link = self._free(lambda link: (link.jobs, link.streams)) or await self._wait()
        try:
            return await link.run(job, tell)
        finally:
            if self.waiting:
                self._changed.set()

    def _free(self, load: Callable[[Link], Any] = _streams) -> Link | None:
        link = min((one for one in self.links.values() if one.is_free), key=load, default=None)
        full = link is not None and self._autoscale is not None and link.streams >= self._autoscale.pool_size
        return None if full else link

    async def _wait(self) -> Link:
        most = math.inf if self._autoscale is None else self._autoscale.queue_size
        if self.waiting >= most:
            raise Overloaded(f"{self.waiting:,} requests wait for room at a worker already.")
        self._look.set()
        self.waiting += 1
        LOG.debug(
            "%d wait for room at a worker: %s.", self.waiting, ", ".join(map(_state, self.links.values())) or "none"
        )
        try:
            while (link := self._free()) is None:
                self._changed.clear()
                async with asyncio.timeout(self._patience_s()):
                    await self._changed.wait()
        except TimeoutError:
            raise self._nobody() from None
        finally:
            self.waiting -= 1
        return link

    def _patience_s(self) -> float | None:
        """Return how long a request may wait for room; if workers are only full, until its deadline."""
        if any(one.is_free for one in self.links.values()):
            return None
        if self.links:
            return PATIENCE_S
        now = time.monotonic()
        if self._alone_s is None:
            self._alone_s = now
            LOG.warning("No worker is left. The run waits %.0f s for one to come; nothing is sent.", PATIENCE_S)
        return max(0.0, self._alone_s + (PATIENCE_S if self._answers else UNANSWERED_S) - now)

    def _nobody(self) -> Unreachable:
        """Return why there is no worker."""
        if self.links:
            return Unreachable(f"No worker has given a sign of life for {PATIENCE_S:g} s.", sent=False)
        why = f"No worker has come for {PATIENCE_S:g} s. Start workers, and run again: %agents workers shows them."
        if not self._answers:
            why = "The Dask scheduler and its workers are gone. %agents connect dask connects again; then run again."
        return Unreachable(why, sent=False, final=True)

    # how many there are

    def scale(self, workers: int) -> None:
        """Set the number of workers, from which automatic scaling continues.

        Removed ones finish their streams first.
        """
        if self._autoscale is not None:
            self._agents = self._autoscale.within(workers * self._autoscale.pool_size)
        self._resize(workers)

    def _resize(self, workers: int) -> None:
        active = sorted((one for one in self.links.values() if not one.draining), key=_streams)
        spare = [one for one in self.links.values() if one.draining]
        for link in active[: max(0, len(active) - workers)]:
            link.draining = True
        for link in spare[: max(0, workers - len(active))]:
            link.draining = False
        self._wanted = workers
        self._gone.clear()
        self._changed.set()
        self._look.set()

    def drain(self, names: Container[str] | None = None) -> None:
        """Drain these workers, or all: finish open streams, accept no new requests."""
        for link in self.links.values():
            link.draining = link.draining or names is None or link.name in names
        self._look.set()

    async def _settle_size(self) -> None:
        for address, link in [*self.links.items()]:
            if link.draining and not link.streams:
                self._gone.add(address)
                await link.close()
                await self._hub.release(address)
                await self._hub.retire(address)
        if (wanted := self._wanted) is not None:  # beside those that still finish
            await self._hub.grow(wanted + sum(one.draining for one in self.links.values()))
            self._wanted = None if self._wanted == wanted else self._wanted

    async def _scale(self, options: Autoscale) -> None:
        """Decide repeatedly on the number of workers, beginning with the present ones."""
        self._agents = options.within((len(self.links) + len(self._joining)) * options.pool_size)
        while True:
            self._resize(options.workers(self._agents))
            await asyncio.sleep(options.interval_s)
            streams = sum(one.streams for one in self.links.values())
            self._agents = options.decide(self._agents, streams, self.waiting)

    # present workers

    def _lost(self, link: Link) -> None:
        answered, failed = self._tally.get(link.name, (0, 0))
        self._tally[link.name] = answered + link.answered, failed + link.failed
        self.links = {address: one for address, one in self.links.items() if one is not link}
        if not link.over:
            self._given_up.append(link)
        self._look.set()

    async def _watch(self) -> None:
        """Check that workers are alive, while the loop was not blocked."""
        then = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for link in [*self.links.values()]:
                was_free = link.is_free
                link.tick(min(now - then, 2 * TICK_S))
                if was_free and not link.is_free:
                    LOG.warning("Worker %r has given no sign of life for %.0f s.", link.name, link.silent_s)
            for link in self._given_up:
                link.end_unless_awaited()
            self._given_up = [one for one in self._given_up if not one.over]
            if self.waiting:  # a worker that was silent may be heard again
                self._changed.set()
            then = now

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
                await asyncio.sleep(TICK_S)
            self._look.clear()
            answered, self._answers = self._answers, True
            try:
                await self._settle_size()
                await self._follow_once()
            except OSError:
                self._answers = False
            if answered != self._answers:
                self._changed.set()

    async def _follow_once(self) -> None:
        names = await self._hub.names()
        for address, name in names.items():
            if address not in self.links and address not in self._gone and address not in self._joining:
                task = self._joining[address] = asyncio.ensure_future(self._join(address, name))
                task.add_done_callback(partial(self._joined, address))

    def _joined(self, address: str, _: object) -> None:
        del self._joining[address]

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
            self.links[address] = Link(name, channel, self._lost, self._on_note)
            self._alone_s = None
            self._changed.set()
