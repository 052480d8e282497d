"""The worker's side: makes each request from a kernel once, forwards the response, and keeps nothing.

A worker never ends a request because the kernel is silent: a cell may block the kernel's loop for minutes. It ends all
of them with the connection, so that a killed kernel stops spending, and each at its deadline.

Messages between a kernel and a worker:

```
down   call id request files      run id job      cancel id
up     replied id status readings simulated      opened id      began id      text id bytes
       usage id usage unseen model
       answer id answer           error id kind message facts      ended id result
```

They are sent in lists; an empty list is a sign of life. Only a job, a pickled function of the user, is called: a
process that reaches this port may run code through Dask anyway. Text is sent as bytes, since it may contain lone
surrogates.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from agent_magic import errors
from agent_magic.declare.user_code import reason_of
from agent_magic.engine.pacing.limits import Reading
from agent_magic.errors import AgentMagicError, CallError, DeclarationError, Late, NotConnected
from agent_magic.providers.anthropic.client import Claude
from agent_magic.providers.base import Provider, Stream
from agent_magic.providers.chat.client import Chat
from agent_magic.record.codec import data_of, from_json, line_of, to_json
from agent_magic.record.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.record.answer import Usage


WIRE: Final = 5
"""Raised with every change of these messages, so that both ends can compare it."""
OPERATION: Final = "agent_magic"
ANCHOR: Final = "agent_magic-anchor"
"""Prefix of the names of actors that anchor workers."""
BEAT_S: Final = 1.0
"""Between an idle worker's signs of life."""
TEXT_S: Final = 0.1
"""Between texts: at 10 Hz a stream costs its kernel half as much as at 30 Hz (measured)."""
URGENT_S: Final = 0.005
"""Other messages wait for more to send together."""
PLAIN = (str, int, float, bool, type(None))
CALL_ERRORS: Final[Mapping[str, type[CallError]]] = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CallError)
}

Message = tuple[Any, ...]


class Channel(Protocol):
    """A connection that carries messages in order. When it breaks, `read` and `write` raise `OSError`."""

    async def read(self) -> Any: ...

    async def write(self, msg: Any, /) -> Any: ...

    def abort(self) -> None: ...


def request_out(request: Request) -> tuple[str, dict[str, bytes]]:
    """Write a request and, separately, the bytes of its pictures and documents."""
    files = {one.sha256: one.data for one in request.files}
    return line_of(to_json(request)), files


def request_in(line: str, files: Mapping[str, bytes]) -> Request:
    return from_json(Request, data_of(line)).with_files(files.__getitem__)


def text_out(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text_in(data: bytes) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")


def readings_out(readings: Readings) -> dict[str, tuple[float, float | None]]:
    return {name: (one.limit, one.remaining) for name, one in readings.items()}


def readings_in(data: Mapping[Any, Any]) -> Readings:
    return {name: Reading(*one) for name, one in data.items()}


def error_out(error: Exception) -> Message:
    if not isinstance(error, CallError):  # not of the provider's: its message may be anything
        return "", reason_of(error), {}
    facts = {name: value for name, value in vars(error).items() if isinstance(value, PLAIN)}
    return type(error).__name__, str(error), {**facts, "partial": text_out(error.partial)}


def error_in(kind: str, message: str, facts: Mapping[str, Any]) -> Exception:
    """Return the error of a message; of an unknown kind only the text is kept."""
    if kind not in CALL_ERRORS:
        return AgentMagicError(message)
    error = CALL_ERRORS[kind].__new__(CALL_ERRORS[kind], message)
    error.__setstate__({**facts, "partial": text_in(facts["partial"])})
    return error


NO_KEY = "has no API key. Set ANTHROPIC_API_KEY where it runs, or give the key: am.Dask(client=am.Claude(api_key=...))"


KINDS: Final[Mapping[str, type[Claude | Chat]]] = {"Claude": Claude, "Chat": Chat}
"""A message names one of them, and never a class to load."""


def settings_of(client: Provider) -> dict[str, Any]:
    """Return a worker's arguments for the same provider, or raise `DeclarationError`."""
    kind = type(client).__name__
    if not isinstance(client, Claude | Chat) or type(client) is not KINDS.get(kind):
        hint = "Workers ask by am.Claude or am.Chat: %agents connect api, or connect chat ADDRESS."
        raise DeclarationError(f"{kind} cannot be made on a worker.", hint=hint)
    return {"kind": kind, **client.settings()}


def provider_of(kind: str, **settings: Any) -> Provider:
    return KINDS[kind](**settings)


async def serve(channel: Channel, make: Callable[..., Provider] = provider_of) -> None:
    """Serve one kernel, which first sends the arguments of the provider."""
    with suppress(OSError):
        hello = await channel.read()
        if hello.get("wire") != WIRE:
            await channel.write({"wire": WIRE, "error": "speaks another version of agent_magic"})
            return
        os.environ.update(hello["environ"])
        try:
            provider = make(**hello["settings"])
            async with provider.open():
                await channel.write({"wire": WIRE, "error": ""})
                await Serving(channel, provider).serve()
        except NotConnected:
            await channel.write({"wire": WIRE, "error": NO_KEY})
        except AgentMagicError as error:
            await channel.write({"wire": WIRE, "error": f"cannot answer: {error}"})


class Serving:
    """Makes the requests of one kernel."""

    def __init__(self, channel: Channel, provider: Provider) -> None:
        self.provider = provider
        self._channel = channel
        self._calls: dict[int, _Call | _Job] = {}
        self._pending: list[Message] = []
        self._urgent = asyncio.Event()

    async def serve(self) -> None:
        """Serve until the connection ends. Then no request is left."""
        ends = [asyncio.ensure_future(one) for one in (self._read(), self._write())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._channel.abort()
            await end([*ends, *(one.task for one in self._calls.values())])

    def say(self, *message: Any) -> None:
        self._pending.append(message)
        self._urgent.set()

    async def _read(self) -> None:
        while True:
            for kind, number, *rest in await self._channel.read():
                if kind in {"call", "run"}:
                    call = self._calls[number] = (_Call if kind == "call" else _Job)(self, number, *rest)
                    call.task.add_done_callback(partial(self._over, number))
                elif number in self._calls:
                    self._calls[number].task.cancel()

    def _over(self, number: int, _: object) -> None:
        del self._calls[number]

    async def _write(self) -> None:
        wrote_s = texts_s = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TEXT_S if self._calls else BEAT_S):
                    await self._urgent.wait()
                await asyncio.sleep(URGENT_S)
            self._urgent.clear()
            now = time.monotonic()
            if now - texts_s >= TEXT_S:
                texts_s = now
                for call in self._calls.values():
                    self._pending += call.news()
            batch, self._pending = self._pending, []
            if batch or now - wrote_s >= BEAT_S:
                wrote_s = now
                await self._channel.write(batch)


class _Call:
    """One request; as the listener of its response, it reports to the kernel."""

    def __init__(self, serving: Serving, number: int, line: str, files: dict[str, bytes]) -> None:
        self._serving, self._number = serving, number
        self._stream = Stream(self)
        self._parts, self._told = self._stream.parts, 0
        self._usage: tuple[Usage, int, str] | None = None
        self.task = asyncio.ensure_future(self._make(line, files))

    async def _make(self, line: str, files: dict[str, bytes]) -> None:
        serving, stream, number = self._serving, self._stream, self._number
        try:
            request = request_in(line, files)
            try:
                async with asyncio.timeout(request.timeout_s):
                    answer = await serving.provider.send(request, stream)
            except TimeoutError:
                if stream.answer is None:
                    raise Late(request.timeout_s, partial=stream.text) from None
                answer = stream.answer  # complete, and only its connection was open
            last: Message = "answer", number, line_of(to_json(answer))
        except Exception as error:  # noqa: BLE001 - as in the driver, an attempt's failure becomes its result
            last = "error", number, *error_out(error)
        for message in self.news():
            serving.say(*message)
        for note in serving.provider.take_notes():
            serving.say("note", number, note)
        serving.say(*last)

    def news(self) -> Iterable[Message]:
        stream, parts = self._stream, self._stream.parts
        if parts is not self._parts:
            self._parts, self._told = parts, 0
            yield "restarted", self._number
        if stream.usage is not None and (told := (stream.usage, stream.unseen, stream.model)) != self._usage:
            self._usage = told
            yield "usage", self._number, line_of(to_json(stream.usage)), stream.unseen, stream.model
        if len(parts) > self._told:
            text = "".join(parts[self._told :])
            self._told = len(parts)
            yield "text", self._number, text_out(text)

    def replied(self, stream: Stream) -> None:
        status, readings = stream.status_code, readings_out(stream.readings)
        self._serving.say("replied", self._number, status, readings, stream.simulated)

    def opened(self, stream: Stream) -> None:
        del stream
        self._serving.say("opened", self._number)

    def first_token(self, stream: Stream) -> None:
        del stream
        self._serving.say("began", self._number)


class _Job:
    def __init__(self, serving: Serving, number: int, job: bytes) -> None:
        self._serving, self._number = serving, number
        self._prints: list[str] = []
        self.task = asyncio.ensure_future(self._run(job))

    async def _run(self, job: bytes) -> None:
        serving, number = self._serving, self._number
        loop = asyncio.get_running_loop()

        def tell(text: str) -> None:
            loop.call_soon_threadsafe(self._prints.append, text)

        try:
            run = cast("Any", ForkingPickler).loads(job)  # between our own processes, as a `multiprocessing` one
            last: Message = "ended", number, await run(tell)
        except Exception as error:  # noqa: BLE001 - a job that cannot be read here
            last = "error", number, *error_out(error)
        for message in self.news():
            serving.say(*message)
        serving.say(*last)

    def news(self) -> Iterable[Message]:
        if self._prints:
            prints, self._prints = self._prints, []
            yield "text", self._number, text_out("".join(prints))


async def end(tasks: Iterable[asyncio.Future[None]]) -> None:
    """Cancel tasks, and raise their unexpected errors. A broken connection is expected."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)
    for task in waiting:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):
            raise error
