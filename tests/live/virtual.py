"""Runs on a virtual clock: the real driver on a loop whose time jumps to the next thing that happens."""

from __future__ import annotations

import asyncio
import selectors
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from threading import enumerate as enumerate_threads
from typing import Any

from agent_magic import Policy
from agent_magic.declare import DEFAULT_MODEL
from agent_magic.live import Driver
from agent_magic.live.functions import IDLE
from agent_magic.providers import EVERYTHING, Provider, limit_class, min_cacheable_tokens
from agent_magic.record import Answer, Usage


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: where others would sleep, its clock jumps. A deadlock is an error."""

    def __init__(self):
        super().__init__(_Jumping(self))
        self.now = 1000.0
        self.complaints = []
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    def time(self):
        """The virtual time."""
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop):
        super().__init__()
        self._loop = loop

    def select(self, timeout=None):
        if timeout != 0 and any(
            one.name.startswith("agent_magic ") and one.name != IDLE for one in enumerate_threads()
        ):
            # A function takes no time here, however long its thread takes to begin. One that has said its result says
            # that it is idle a moment later, which wakes nobody.
            return super().select(0.002)
        if timeout is None:
            raise AssertionError("nothing will ever happen again on this loop")
        if timeout > 0:
            self._loop.now += timeout
        return super().select(0)


def run_virtually(work):
    """Run `await work(loop)` on a virtual loop; fail if a task or a complaint is left."""
    loop = VirtualLoop()
    try:
        result = loop.run_until_complete(work(loop))
        left = asyncio.all_tasks(loop)
        assert not left, f"tasks are left: {left}"
        assert not loop.complaints, f"the loop complained: {loop.complaints}"
        return result
    finally:
        loop.close()


@dataclass(frozen=True)
class Reply:
    """What comes of one request.

    Attributes:
        takes_s: Seconds to the end.
        error: Raised at the end; `None` answers.
        first_s: Seconds to the first token; `None` sends no text before the end.
        tokens: (input, output, read, written), or `None` for unknown.
        lingers_s: Seconds the connection stays open behind the complete answer.
    """

    takes_s: float = 1.0
    error: Exception | None = None
    first_s: float | None = None
    text: str = "answer"
    tokens: tuple[int | None, int | None, int | None, int | None] | None = (10, 5, 0, 0)
    stop_reason: str = "end_turn"
    source: str = "live"
    lingers_s: float = 0.0
    status: int | None = 200


@dataclass
class Scripted(Provider):
    """A client whose answers are known beforehand.

    Attributes:
        script: Returns the reply to a request, by its prompt and the count of requests with that prompt so far.
    """

    capabilities = EVERYTHING
    script: Any
    endpoint: str = "scripted"
    credentials: Any = None
    is_limited: bool = False
    asked: list = field(default_factory=list)
    running: int = 0
    peak: int = 0
    cancelled: int = 0
    opened: int = 0
    counts: dict = field(default_factory=dict)

    @asynccontextmanager
    async def open(self):
        """Hold connections."""
        self.opened += 1
        try:
            yield
        finally:
            self.opened -= 1

    def limit_class(self, model):
        """Share limits as the vendor's models do."""
        return limit_class(model)

    def min_cacheable_tokens(self, model):
        """Cache as the vendor does."""
        return min_cacheable_tokens(model)

    async def count_tokens(self, request):
        """Count roughly."""
        return len(request.prompt) // 4

    async def send(self, request, stream):
        """Answer a request."""
        assert self.opened
        number = self.counts[request.prompt] = self.counts.get(request.prompt, 0) + 1
        self.asked.append(request)
        reply = self.script(request.prompt, number)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await self._play(reply, request, stream)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _play(self, reply, request, stream):
        spent = 0.0
        usage = None
        if reply.tokens is not None:
            given, produced, read, written = reply.tokens
            long = (written or 0) if request.cached and request.ttl == "1h" else 0
            counts = {"cache_read_tokens": read, "cache_write_tokens": written, "cache_write_1h_tokens": long}
            usage = Usage(given, output_tokens=produced, **counts)
        if reply.first_s is not None:
            await asyncio.sleep(reply.first_s)
            spent = reply.first_s
            self._replied(reply, stream)
            if usage is not None:
                stream.usage = Usage(usage.input_tokens, output_tokens=1)
            stream.add(reply.text[: len(reply.text) // 2])
        await asyncio.sleep(max(0.0, reply.takes_s - spent))
        if reply.first_s is None:
            self._replied(reply, stream)
        if reply.error is not None:
            raise reply.error
        stream.add(reply.text[len("".join(stream.parts)) :])
        answer = Answer(
            reply.text,
            reply.stop_reason,
            usage=usage or Usage(),
            model=request.model,
            source=reply.source,
            request_id=f"req_{len(self.asked)}",
            refusal="cyber" if reply.stop_reason == "refusal" else None,
        )
        if reply.lingers_s:
            stream.usage, stream.answer = usage, answer
            await asyncio.sleep(reply.lingers_s)
        return answer

    @staticmethod
    def _replied(reply, stream):
        """Say that the reply begins, unless there is none."""
        if reply.status is not None:
            stream.replied(reply.status)


def drive(plan, script, policy=None, *, stops=(), controls=(), cancel_at=None, **more):
    """Run a plan on a virtual clock.

    Args:
        plan: The plan.
        script: See `Scripted`, or a `Scripted`.
        policy: How.
        stops: (time, names or None): who is stopped when.
        controls: (time, what, names): who is retried, skipped, paused, ... when. `look` is called with the driver.
        cancel_at: When the task of the run is cancelled.
        **more: For the driver.

    Returns:
        The record, and the client.
    """
    client = script if isinstance(script, Scripted) else Scripted(script)

    async def work(loop):
        driver = Driver(plan, policy or Policy(seed=1), client, clock=loop.time, **more)
        task = loop.create_task(driver.drive())
        for at_s, names in stops:
            loop.call_later(at_s, driver.stop, names)
        for at_s, what, names in controls:
            if what == "look":
                loop.call_later(at_s, names, driver)
            else:
                loop.call_later(at_s, getattr(driver, what), *([] if names is None else [names]))
        if cancel_at is not None:
            loop.call_later(cancel_at, task.cancel)
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
        assert not driver.streams
        assert not client.running
        assert not client.opened
        return driver.record

    return run_virtually(work), client


MODEL = DEFAULT_MODEL
