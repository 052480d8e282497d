"""Workers in this process: connections in memory that can be cut, and a provider that counts what it is asked."""

from __future__ import annotations

import asyncio
from collections import Counter

from agent_magic.errors import Overloaded, Unreachable
from agent_magic.providers import EVERYTHING, Provider, serve
from agent_magic.record import Answer, Request, Usage

PIECES = ("One, ", "two, ", "three \ud83d", "four.")


def asked(number, **options):
    """Return a request of this number."""
    return Request(options.pop("model", "m"), f"request {number}", 100, **options)


class End:
    """One end of a connection in memory.

    Attributes:
        log: The kinds of the messages that were written here.
        cut_after: After so many messages written the connection is cut; `None` is never.
        heard: What is written here arrives while it is set.
        awake: What has arrived is read while it is set.
    """

    def __init__(self):
        self.heard, self.awake = asyncio.Event(), asyncio.Event()
        self.heard.set()
        self.awake.set()
        self.inbox, self.log, self.cut_after, self.closed = asyncio.Queue(), [], None, False
        self.other: End = self

    async def read(self):
        """Return the next message."""
        message = None if self.closed else await self.inbox.get()
        await self.awake.wait()
        if message is None:
            raise OSError("closed")
        return message

    async def write(self, message):
        """Send a message, or break where it is to be cut."""
        await asyncio.sleep(0)
        await self.heard.wait()
        if self.closed:
            raise OSError("closed")
        if not isinstance(message, list):
            self.other.inbox.put_nowait(message)
            return
        for at, one in enumerate(message):
            self.log.append(one[0])
            if len(self.log) == self.cut_after:
                self.other.inbox.put_nowait(message[: at + 1])
                self.abort()
                raise OSError("cut")
        self.other.inbox.put_nowait(message)

    def abort(self):
        """Close both ends."""
        for end in (self, self.other):
            end.heard.set()
            end.awake.set()
            if not end.closed:
                end.closed = True
                end.inbox.put_nowait(None)


def pair():
    """Return the two ends of a connection."""
    kernel, worker = End(), End()
    kernel.other, worker.other = worker, kernel
    return kernel, worker


class Counting(Provider):
    """Answers in pieces, and counts by prompt what it was asked.

    Attributes:
        asked: How often each prompt came.
        running: The prompts that are being answered.
        hold: Answers wait for it; set at first.
    """

    capabilities = EVERYTHING
    endpoint = "http://counting"

    def __init__(self, pieces=PIECES, fail=()):
        self.asked, self.running, self.pieces, self.fail = Counter(), set(), pieces, fail
        self.hold = asyncio.Event()
        self.hold.set()

    async def send(self, request, stream):
        """Answer in pieces."""
        self.asked[request.prompt] += 1
        self.running.add(request.prompt)
        try:
            await asyncio.sleep(0)
            if request.prompt in self.fail:
                stream.replied(529)
                raise Overloaded("Overloaded (529).", status=529, retry_after_s=2.0)
            stream.replied(200)
            stream.opened()
            stream.usage = Usage(7)
            for piece in self.pieces:
                stream.add(piece)
                await asyncio.sleep(0.002)
            await self.hold.wait()
            return Answer("".join(self.pieces), "end_turn", usage=Usage(7, output_tokens=5), model=request.model)
        finally:
            self.running.discard(request.prompt)


class Hub:
    """Workers in memory: those that are named here can be connected to.

    Attributes:
        workers: The names of the workers there are, by address.
        ends: Both ends of every connection that was made, in order.
        served: The tasks of the workers.
        on_connect: Called with both ends of each new connection.
        looks: Is set when somebody looks who is there.
    """

    is_own = is_started = True

    def __init__(self, provider, count=2, on_connect=lambda kernel, worker: None):
        self.provider, self.on_connect = provider, on_connect
        self.workers = {f"mem://{one}": f"worker-{one}" for one in range(count)}
        self.ends, self.served, self.released, self.number = [], [], [], count
        self.looks = asyncio.Event()

    async def start(self):
        """Do nothing."""

    async def names(self):
        """Return the workers there are."""
        self.looks.set()
        return dict(self.workers)

    async def connect(self, address):
        """Start a worker that serves this connection."""
        if address not in self.workers:
            raise OSError("gone")
        kernel, worker = pair()
        self.ends.append((kernel, worker))
        self.on_connect(kernel, worker)
        self.served.append(asyncio.ensure_future(serve(worker, lambda **_: self.provider)))
        return kernel

    async def release(self, address):
        """Note it."""
        self.released.append(address)

    async def retire(self, address):
        """Stop a worker."""
        del self.workers[address]

    async def grow(self, workers):
        """Start workers until there are so many."""
        while len(self.workers) < workers:
            self.number += 1
            self.workers[f"mem://{self.number}"] = f"worker-{self.number}"


async def outcome(fleet, number, stream):
    """Have a request made; return its answer, or its error."""
    try:
        return await fleet.send(asked(number), stream)
    except (Unreachable, Overloaded) as error:
        return error
