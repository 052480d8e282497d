"""Workers that fall silent and are heard again at any moment of a run, drawn at random on a virtual clock."""

# An attempt that has succeeded has ended, so its times and its answer are known.
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace

import pytest

import agent_magic as am
from agent_magic import Autoscale, Policy
from agent_magic.declare import DEFAULT_MODEL
from agent_magic.engine import Key, Pacer
from agent_magic.errors import Overloaded
from agent_magic.live import Driver
from agent_magic.providers import Fleet, Provider, limit_class
from agent_magic.providers.dask import fleet as fleets
from agent_magic.providers.dask import serving
from agent_magic.record import Answer, Usage
from tests.live.virtual import run_virtually
from tests.providers.memory import Hub

SCENES = 5000 if os.environ.get("AGENT_MAGIC_NIGHTLY") else 300
QUIET_S = 60.0
"""From then on nothing more happens to the workers."""
STILL_S = 15.0
"""No longer may a run stand still while a worker is free: the longest pause between two attempts takes 10 s."""
SOON_S = 1.0
"""No longer may a request wait for a worker where one is free."""


class Slow(Provider):
    """The server: every answer takes its time and says which one it is; some requests are refused.

    Attributes:
        asked: How often each prompt came.
        running: How many requests are being answered.
    """

    endpoint = "http://slow"

    def __init__(self, seed):
        self.seed, self.asked, self.running = seed, Counter(), 0

    async def send(self, request, stream):
        """Answer in two pieces."""
        number = self.asked[request.prompt] = self.asked[request.prompt] + 1
        draw = Random(f"{self.seed} {request.prompt} {number}")
        takes_s = draw.choice([0.2, 2.0, 6.0, 11.0, draw.uniform(0.1, 15.0)])
        self.running += 1
        try:
            await asyncio.sleep(0.05)
            if draw.random() < 0.1:
                stream.replied(529)
                raise Overloaded("Overloaded (529).", status=529, retry_after_s=draw.choice([None, 2.0]))
            stream.replied(200)
            stream.opened()
            stream.usage = Usage(7)
            stream.add(f"{request.prompt} ")
            await asyncio.sleep(takes_s)
            text = f"{request.prompt} {number}"
            stream.add(f"{number}")
            return Answer(text, "end_turn", usage=Usage(7, output_tokens=5), model=request.model)
        finally:
            self.running -= 1


class Over(Provider):
    """Makes requests on the workers of a hub.

    Attributes:
        sent: The prompts that were given to the workers, each with the time.
    """

    endpoint = "http://slow"
    limit_class = staticmethod(limit_class)

    def __init__(self, fleet, loop):
        self.fleet, self.loop, self.sent = fleet, loop, []
        self.credentials = Key()

    @asynccontextmanager
    async def open(self):
        """Connect to the workers."""
        await self.fleet.start()
        try:
            yield
        finally:
            await self.fleet.close()

    async def send(self, request, stream):
        """Give a request to a worker."""
        self.sent.append((self.loop.time(), request.prompt))
        return await self.fleet.send(request, stream)


class Scene:
    """One run and what happens to its workers.

    Args:
        seed: Everything is drawn from it.
        loop: The virtual loop.
    """

    def __init__(self, seed, loop):
        draw = self.draw = Random(seed)
        self.loop, self.told = loop, []
        self.server = Slow(seed)
        self.hub = Named(self.server, draw.choice([1, 2, 2, 3]), self.connected)
        self.addresses = [*self.hub.workers]
        self.stopped, self.ends = set(), defaultdict(list)
        scale = None
        if draw.random() < 0.2:
            pool = draw.choice([1, 2, 3])
            count = pool * len(self.addresses)
            scale = Autoscale(count, count, pool_size=pool, interval_s=1e6)
        self.fleet = Fleet(self.hub, {}, dict, scale)
        self.provider = Over(self.fleet, loop)
        count = draw.choice([1, 2, 4, 8])
        agents = [am.Agent(f"a{one}", f"request {one}") for one in range(count)]
        if draw.random() < 0.3:
            agents.append(am.Agent("last", "last {{ a0 }}"))
        policy = Policy(draw.choice([2, 4, 100]), max_attempts=draw.choice([1, 2, 3]), seed=seed)
        kept = limit_class(DEFAULT_MODEL)
        limits = {kept: am.Limits(requests=draw.choice([20, 60]))} if draw.random() < 0.3 else {}
        pacer = Pacer(limits, seed) if limits or draw.random() < 0.5 else None
        self.ledger = am.Ledger(":memory:") if draw.random() < 0.3 else None
        self.driver = Driver(am.Plan(agents), policy, self.provider, clock=loop.time, pacer=pacer, ledger=self.ledger)
        for _ in range(draw.choice([1, 1, 2, 3, 5])):
            self.draw_fault(draw.choice(self.addresses))
        if draw.random() < 0.2:  # all at once: who is asked again has nobody to go to
            for address in self.addresses:
                self.draw_fault(address)
        if draw.random() < 0.15:
            self.at(draw.uniform(0.1, 40.0), "stop the run", self.driver.stop)
        if draw.random() < 0.3:
            self.at(draw.uniform(0.1, 30.0), "hold up the loop", self.hold_up, draw.choice([0.4, 1.5, 4.0, 20.0]))

    def connected(self, kernel, worker):
        """Note the ends of a new connection: a stopped worker does not serve it."""
        address = self.hub.last
        self.ends[address].append((kernel, worker))
        if address in self.stopped:
            worker.awake.clear()
            worker.heard.clear()

    def at(self, at_s, what, do, *args):
        """Have something happen."""

        def now():
            self.told.append(f"{self.loop.time() - 1000:.2f} {what}")
            do(*args)

        self.loop.call_later(at_s, now)

    def draw_fault(self, address):
        """Draw what happens to a worker, and when it is well again."""
        draw = self.draw
        begin_s = draw.choice([0.3, 1.0, draw.uniform(0.0, 25.0)])
        takes_s = draw.choice([2.9, 3.2, 9.9, 10.2, 10.6, 10.9, 11.2, 12.0, draw.uniform(0.1, 30.0)])
        kind = draw.random()
        if kind < 0.75:
            self.at(begin_s, f"stop {address}", self.stop, address)
            if draw.random() < 0.2:
                self.at(begin_s + takes_s, f"kill {address}", self.kill, address)
                takes_s += draw.choice([0.1, 5.0])
            self.at(min(begin_s + takes_s, QUIET_S), f"resume {address}", self.resume, address)
        else:
            self.at(begin_s, f"kill {address}", self.kill, address)
            if draw.random() < 0.5:
                name = self.hub.workers[address]
                self.at(begin_s, f"gone {address}", self.hub.workers.pop, address, None)
                self.at(begin_s + takes_s, f"back {address}", self.hub.workers.__setitem__, address, name)

    def hold_up(self, held_s):
        """Hold up the kernel's loop, and with it in this process all others."""
        self.loop.now += held_s

    def stop(self, address):
        """Stop the process of a worker."""
        self.stopped.add(address)
        for _, worker in self.ends[address]:
            if not worker.closed:
                worker.awake.clear()
                worker.heard.clear()

    def resume(self, address):
        """Let it go on."""
        self.stopped.discard(address)
        for _, worker in self.ends[address]:
            worker.awake.set()
            worker.heard.set()

    def kill(self, address):
        """Kill it; it is there again at once."""
        self.stopped.discard(address)
        for kernel, _ in self.ends[address]:
            kernel.abort()

    async def watch(self):
        """Fail where the run stands still, or a request waits, although a worker is free."""
        still_s = waits_s = 0.0
        while True:
            await asyncio.sleep(0.1)
            free = self.fleet._free()
            is_free = free is not None and not self.stopped
            waits_s = waits_s + 0.1 if is_free and self.fleet.waiting else 0.0
            still_s = still_s + 0.1 if is_free and not self.server.running else 0.0
            assert waits_s < SOON_S, ("a request waits, and a worker is free", self.story())
            assert still_s < STILL_S, ("the run stands still, and a worker is free", self.story())
            assert self.loop.time() < 1000 + 600, ("no end", self.story())

    def story(self):
        """Return what has happened."""
        found = self.driver.record.results
        results = [(one.name, one.status, [(two.status, two.error) for two in one.attempts]) for one in found]
        return "\n".join([*self.told, *map(str, results), str(self.provider.sent)])

    async def play(self):
        """Run to the end, and look what has become of each request."""
        watching = asyncio.ensure_future(self.watch())
        running = asyncio.ensure_future(self.driver.drive())
        await asyncio.wait([watching, running], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            running.cancel()
            await asyncio.wait([running])
            watching.result()
        watching.cancel()
        await asyncio.wait([watching])
        for address in self.addresses:
            self.resume(address)
        running.result()
        await asyncio.gather(*self.hub.served)
        assert not self.server.running
        assert not self.fleet.waiting
        record = self.driver.record
        used = Counter[str]()
        for result in record.results:
            good = [one for one in result.attempts if one.status == "succeeded"]
            assert len(good) <= 1, self.story()
            assert result.status in {"succeeded", "failed", "skipped", "cancelled"}, self.story()
            assert (result.status == "succeeded") == bool(good), self.story()
            for one in good:
                prompt = one.begun.request.prompt
                used[one.ended.answer.text] += 1
                later = [at for at, sent in self.provider.sent if sent == prompt and at - 1000 > one.ended_s + 1e-3]
                assert not later, self.story()
        assert set(used.values()) <= {1}, self.story()
        if self.ledger is not None:
            self.ledger.close()
        return record


class Named(Hub):
    """A hub that knows whom it connects."""

    async def connect(self, address):
        """Note whom."""
        self.last = address
        return await super().connect(address)


def play(seed, monkeypatch):
    """Play the scene of a seed."""

    async def work(loop):
        clock = SimpleNamespace(monotonic=loop.time)
        monkeypatch.setattr(fleets, "time", clock)
        monkeypatch.setattr(serving, "time", clock)
        return await Scene(seed, loop).play()

    return run_virtually(work)


@pytest.mark.parametrize("first", range(0, SCENES, 50))
def test_whatever_workers_do_each_request_ends_and_no_answer_is_used_twice(first, monkeypatch):
    """In whichever order they fall silent, are given up, heard again or killed: the run ends, and nobody waits."""
    for seed in range(first, first + 50):
        try:
            play(seed, monkeypatch)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
