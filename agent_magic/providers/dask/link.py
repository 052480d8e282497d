"""The kernel's side of one worker: it sends requests, and forwards responses to their streams."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_magic.errors import AgentMagicError, Unreachable, Unreadable
from agent_magic.providers.dask.serving import end
from agent_magic.providers.dask.wire import (
    WIRE,
    answer_in,
    error_in,
    readings_in,
    request_out,
    text_in,
    usage_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.providers.base import Stream
    from agent_magic.providers.dask.wire import Channel, Message
    from agent_magic.record.answer import Answer
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
            stream.taker.take_late(stream, request, answer_in(line))

    def hear(self, kind: str, rest: tuple[Any, ...]) -> None:
        if self.stream is not None:
            _tell(self.stream, kind, rest)
        elif self.tell is not None and kind == "text":
            self.tell(text_in(rest[0]))


class Link:
    """One worker, as the kernel sees it.

    A worker given up for its silence (`lost`) may only be disconnected or blocked. Its requests have failed, but they
    are paid for: the connection is kept (not `over`) while an answer could still be useful.
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
        """Fail all requests of the worker. A paid answer is taken if it arrives while the run can use it."""
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
        """End the connection; the worker aborts its requests."""
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
        """Errors of the stream are raised to the task awaiting its answer."""
        try:
            flight.hear(kind, rest)
            if kind == "answer" and flight.stream is not None:
                flight.stream.answer = answer = answer_in(rest[0])
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
            stream.usage = usage_in(line)
        case _:
            pass


async def greet(channel: Channel, name: str, settings: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Send a worker the arguments of its provider; raise `AgentMagicError` if it cannot answer."""
    await channel.write({"wire": WIRE, "settings": settings, "environ": environ})
    reply = await channel.read()
    why = reply.get("error") or ("" if reply.get("wire") == WIRE else "speaks another version of agent_magic")
    if why:
        raise AgentMagicError(f"Worker {name!r} {why}.")
