"""Processes that share a ledger and a server with batches, on a virtual clock: they are stopped, killed, and go on.

The server keeps what it was sent and what it bills. A killed process does nothing more: its requests hang, and its
ledger is a file in memory from then on.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import agent_magic as am
from agent_magic.errors import CallError, Overloaded, RateLimited, Rejected, Unreachable
from agent_magic.live import Driver, buying, driver
from agent_magic.providers import EVERYTHING, Provider
from agent_magic.providers.base import BatchItem, BatchState
from agent_magic.record import Answer, LedgerFile, Owner, Prices, Usage
from agent_magic.record.ledger import database, lease
from agent_magic.record.ledger.batches import place_of
from agent_magic.record.prices import BATCH_PRICE
from tests.live.virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from agent_magic.record import Request, RunRecord

EPOCH_S = 1_700_000_000.0
DAY_S = 86_400.0
LOOK_S = 2.0
"""How often a process looks at another's lease; ten times a second for hours would take a test long."""
PROCESS: ContextVar[int] = ContextVar("PROCESS", default=0)
SKEW_S: ContextVar[float] = ContextVar("SKEW_S", default=0.0)
ON_ITS_WAY_S = 0.4
SHM = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a commit there waits for no disk
PRICES = Prices(tell=lambda _: None)


class Fate(NamedTuple):
    """What becomes of one batch.

    Attributes:
        creation: `ok`, `unsaid` (it is there, and the reply is lost), `gone` (it never came),
            or an error without a batch.
        takes_s: Seconds until it ends.
        hidden_s: Seconds in which it is unknown at first.
        ends: How each of its requests may end, drawn from these.
        torn: How many readings of its results lack lines.
        extra: What its results have besides: `twice` each line, `foreign` lines, `denied` each line by a later one.
        upload_s: Seconds until it arrives.
    """

    creation: str = "ok"
    takes_s: float = 20.0
    hidden_s: float = 0.0
    ends: tuple[str, ...] = ("succeeded",)
    torn: int = 0
    extra: str = ""
    upload_s: float = 0.4


@dataclass
class Sent:
    """A batch that the server has."""

    id: str
    by: int
    fresh: bool
    requests: dict[str, Request]
    at_s: float
    fate: Fate
    ends: dict[str, str]
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    cancelled_s: float | None = None
    read: int = 0

    @property
    def ends_s(self) -> float:
        """When it ends."""
        end_s = self.at_s + self.fate.takes_s
        return end_s if self.cancelled_s is None else min(end_s, self.cancelled_s + 1.0)

    def end_of(self, name: str) -> str:
        """How a request ended."""
        return self.ends[name]


class Bought(NamedTuple):
    """A request that was answered, and is billed."""

    by: int
    key: str
    usd: float
    batch: str
    fresh: bool


class Server:
    """Answers by the prompt; keeps what is billed."""

    def __init__(self, loop: VirtualLoop, fates: Sequence[Fate], seed: int, answer: Callable[[Request, int], Answer]):
        self.loop, self.fates, self.seed, self.answer = loop, [*fates], seed, answer
        self.sent: dict[str, Sent] = {}
        self.bought: list[Bought] = []
        self.doubtful: set[int] = set()
        self.counts: dict[str, int] = {}
        self.creations = 0
        self.busy = Counter[str]()
        """How often in a row it could not do something."""

    def answered(self, request: Request, by: int, key: str, batch: str = "", *, fresh: bool) -> Answer:
        """Answer a request, and bill it."""
        number = self.counts[key] = self.counts.get(key, 0) + 1
        answer = replace(self.answer(request, number), request_id=key)  # tells whose bill it is
        usd = PRICES.of(request.model, answer.usage).cost_usd or 0.0
        self.bought.append(Bought(by, key, usd * (BATCH_PRICE if batch else 1.0), batch, fresh))
        return answer

    def submit(self, by: int, requests: Mapping[str, Request], fate: Fate, *, fresh: bool) -> Sent:
        """Take a batch in."""
        id_ = f"msgbatch_{len(self.sent)}"
        chance = Random(f"{self.seed} {id_}")
        names = [*requests]
        ends = {name: chance.choice(fate.ends) for name in names}
        made = self.sent[id_] = Sent(id_, by, fresh, dict(requests), self.loop.now, fate, ends)
        self.loop.call_later(fate.takes_s, self._end, made)
        return made

    def _end(self, batch: Sent) -> None:
        if batch.answers or batch.cancelled_s is not None:
            return
        for name, request in batch.requests.items():
            if batch.ends[name] == "succeeded":
                batch.answers[name] = self.answered(request, batch.by, name, batch.id, fresh=batch.fresh)

    def cancel(self, batch: Sent) -> None:
        """Cancel: about half is answered by then."""
        if batch.cancelled_s is not None or self.loop.now >= batch.ends_s:
            return
        chance = Random(f"{self.seed} {batch.id} cancel")
        for name, request in batch.requests.items():
            if chance.random() < 0.5:
                batch.ends[name] = "cancelled"
            elif batch.ends[name] == "succeeded":
                batch.answers[name] = self.answered(request, batch.by, name, batch.id, fresh=batch.fresh)
        batch.cancelled_s = self.loop.now


class Client(Provider):
    """A client of the server, of one process; a killed one hangs."""

    capabilities = EVERYTHING
    endpoint, credentials, is_limited = "bank", None, False

    def __init__(self, server: Server, process: int, *, fresh: bool) -> None:
        self.server, self.process, self.fresh = server, process, fresh
        self.dead = False
        self.ledger: Any = None
        self.batches = Batches(self)
        self.trouble: list[str] = []

    async def hop(self, s: float) -> None:
        """Take some time; for ever in a dead process."""
        await asyncio.sleep(s)
        if self.dead:
            await asyncio.Event().wait()

    async def send(self, request: Request, stream: Any) -> Answer:
        """Answer a request live."""
        self.look(request, None)
        try:
            await asyncio.sleep(0.5)
            if not self.dead:
                stream.replied(200)
            await self.hop(0.5)
        except asyncio.CancelledError:
            self.server.doubtful.add(self.process)
            raise
        key = request.key(self.endpoint)
        answer = self.server.answered(request, self.process, key, fresh=self.fresh)
        if answer.text == "busy":
            self.server.bought.pop()
            stream.replied(529)
            raise Overloaded("busy", status=529)
        return answer

    def look(self, request: Request, name: str | None) -> None:
        """Note what is bought although the ledger has it, or another batch will."""
        if self.dead or self.fresh:
            return
        key, ordinal = (request.key(self.endpoint), None) if name is None else place_of(name)
        if ordinal is not None and self.ledger.find(key, ordinal) is not None:
            self.trouble.append(f"{request.prompt!r} is in the ledger")
        for one in self.server.sent.values():
            there = name is not None and not one.fresh and one.ends.get(name)
            if there == "succeeded" and self.ledger.find(key, ordinal) is None:
                self.trouble.append(f"{request.prompt!r} is in the batch {one.id}")


def hidden(batch: Sent, now: float) -> bool:
    """Whether the server does not say that it has a batch."""
    return now < batch.at_s + batch.fate.hidden_s


class Batches:
    """The batches of a server, as a provider tells of them."""

    most_requests, most_bytes = 4, 10_000_000

    def __init__(self, client: Client) -> None:
        self.client, self.server = client, client.server

    def _state(self, one: Sent) -> BatchState:
        loop, at_s = self.server.loop, EPOCH_S + one.at_s
        ended = EPOCH_S + one.ends_s if loop.now >= one.ends_s else None
        return BatchState(one.id, len(one.requests), at_s, ended, one.cancelled_s is not None, 2.0)

    async def create(self, requests: Mapping[str, Request]) -> BatchState:
        """Create a batch."""
        server, client = self.server, self.client
        for name, request in requests.items():
            client.look(request, name)
        number = server.creations
        server.creations += 1
        fate = server.fates[number] if number < len(server.fates) else Fate()
        found: list[Sent] = []

        def arrive() -> None:
            if fate.creation in {"ok", "unsaid"}:
                found.append(server.submit(client.process, requests, fate, fresh=client.fresh))

        await client.hop(fate.upload_s - ON_ITS_WAY_S)
        server.loop.call_later(ON_ITS_WAY_S, arrive)  # a kill does not call it back
        await client.hop(2 * ON_ITS_WAY_S)
        errors: dict[str, CallError] = {
            "unsaid": Unreachable("reset", sent=True),
            "gone": Overloaded("gateway", status=504),
            "refused": Rejected("no", status=400),
            "limited": RateLimited("wait"),
            "busy": Overloaded("busy", status=529),
            "away": Unreachable("no server", sent=False),
        }
        if fate.creation in errors:
            raise errors[fate.creation]
        return self._state(found[0])

    async def state(self, batch: str) -> BatchState | None:
        """Tell how a batch is."""
        await self.client.hop(0.1)
        self._may_fail(f"state {batch}")
        one = self.server.sent[batch]
        return None if hidden(one, self.server.loop.now) else self._state(one)

    def _may_fail(self, what: str) -> None:
        busy = self.server.busy
        if busy[what] < 2 and Random(f"{self.server.seed} {what} {self.server.loop.now}").random() < 0.15:
            busy[what] += 1
            raise Overloaded("busy", status=529)
        busy[what] = 0

    async def recent(self, since: float) -> list[BatchState]:
        """List them."""
        await self.client.hop(0.1)
        now = self.server.loop.now
        found = [self._state(one) for one in self.server.sent.values() if not hidden(one, now)]
        return [one for one in reversed(found) if one.created_at >= since]

    async def items(self, batch: str) -> AsyncIterator[BatchItem]:
        """Yield results, shuffled, torn, twice, with others among them."""
        await self.client.hop(0.1)
        self._may_fail(f"items {batch}")
        one = self.server.sent[batch]
        names = [*one.requests]
        Random(f"{self.server.seed} {one.read}").shuffle(names)
        one.read += 1
        if one.fate.extra == "twice":
            names += names
        is_torn = one.read <= one.fate.torn
        for name in names[: len(names) // 2] if is_torn else names:
            yield self._item(one, name)
        if is_torn and one.fate.extra == "denied":
            raise Unreachable("reset", sent=True)
        if one.fate.extra == "denied":
            for name in names:
                yield BatchItem(name, error=Overloaded("busy", status=529), status=529)
        if one.fate.extra == "foreign" and one.read > one.fate.torn:
            yield BatchItem("somebody-elses", Answer("x", "end_turn", usage=Usage(1, output_tokens=1), model="m"))

    def _item(self, one: Sent, name: str) -> BatchItem:
        match one.end_of(name):
            case "succeeded":
                return BatchItem(name, replace(one.answers[name], batch=one.id))
            case "wrong":
                return BatchItem(name, error=Rejected("no (400, in a batch)", status=400), status=400)
            case "busy":
                return BatchItem(name, error=Overloaded("busy", status=529), status=529)
            case "cancelled":
                return BatchItem(name, cancelled=True)
            case _:
                return BatchItem(name)

    async def cancel(self, batch: str) -> None:
        """Cancel one."""
        await self.client.hop(0.1)
        self._may_fail(f"cancel {batch}")
        self.server.cancel(self.server.sent[batch])


class Process(NamedTuple):
    """One run of a plan in a process of its own.

    Attributes:
        at_s: When it begins.
        policy: How it runs.
        fresh: Whether it buys anew.
        ends: (`stop` or `kill`, seconds after it began), or None.
        skew_s: How far its clock is ahead.
    """

    at_s: float = 0.0
    policy: am.Policy = am.Policy(batch=True, seed=1)
    fresh: bool = False
    ends: tuple[str, float] | None = None
    skew_s: float = 0.0
    controls: tuple[tuple[float, str, Any], ...] = ()


PATIENT = Process()


class Loop(VirtualLoop):
    """A virtual loop that does at once what others give to a thread."""

    def run_in_executor(self, executor, func, *args):
        """Do it now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done


class _Beats:
    """Renews leases in virtual time."""

    def __init__(self) -> None:
        self._work: dict[int, Any] = {}

    def add(self, name: int, work: Any) -> None:
        if name not in self._work:
            self._work[name] = asyncio.get_running_loop().call_later(lease.LEASE_S / 3, self._beat, name, work)

    def _beat(self, name: int, work: Any) -> None:
        self._work.pop(name, None)
        self.add(name, work)
        for _ in range(int(lease.BEAT_S / lease.TICK_S)):
            work()

    def remove(self, name: int) -> None:
        if (timer := self._work.pop(name, None)) is not None:
            timer.cancel()

    def finish(self) -> None:
        for name in [*self._work]:
            self.remove(name)


class Ended(NamedTuple):
    """What is left of a run."""

    process: Process
    number: int
    record: RunRecord
    client: Client
    killed: bool


class World(NamedTuple):
    """What is left at the end."""

    server: Server
    ended: list[Ended]
    rows: list[tuple[Any, ...]]
    answers: set[tuple[str, int]]
    open: int


@contextmanager
def processes(loop: Loop, *, known: bool) -> Iterator[set[int]]:
    """Give each context a process, a clock and a life of its own."""
    living: set[int] = set()

    def me(_: Any = None) -> Owner:
        return Owner("here", PROCESS.get(), "")

    def is_alive(owner: Owner) -> bool | None:
        return True if owner == me() else (owner.pid in living) if known else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Owner, "me", classmethod(lambda _: me()))
        patch.setattr(Owner, "is_alive", is_alive)
        patch.setattr(time, "time", lambda: EPOCH_S + loop.now + SKEW_S.get())
        patch.setattr(database, "Heartbeat", _Beats)
        patch.setattr(lease.LeaseWatch.__init__, "__defaults__", (loop.time,))
        patch.setattr(LedgerFile, "sync", lambda _: None)
        patch.setattr(driver, "LOOK_S", LOOK_S)
        patch.setattr(buying, "LOOK_S", LOOK_S)
        yield living


async def _live(
    loop: Loop, server: Server, path: Path, plan: am.Plan, number: int, process: Process, living: set[int]
) -> Ended:
    PROCESS.set(number)
    SKEW_S.set(process.skew_s)
    await asyncio.sleep(process.at_s)
    living.add(number)
    ledger = am.Ledger(path)
    client = Client(server, number, fresh=process.fresh)
    client.ledger = ledger
    run = Driver(plan, process.policy, client, ledger=ledger, fresh=process.fresh, clock=loop.time)
    task = loop.create_task(run.drive())
    killed = False

    def kill() -> None:
        nonlocal killed
        if task.done():
            return
        killed = client.dead = True
        living.discard(number)
        file, ledger._store.file = ledger._store.file, LedgerFile(None)
        ledger._store.heartbeat.finish()
        file.close()
        task.cancel()

    timers = []
    for at_s, what, names in process.controls:
        timers.append(loop.call_later(at_s, getattr(run, what), *([] if names is None else [names])))
    if process.ends is not None:
        how, at_s = process.ends
        timers.append(loop.call_later(at_s, kill if how == "kill" else run.stop))
    await asyncio.wait({task})
    for timer in timers:
        timer.cancel()
    if not task.cancelled() and not killed:
        task.result()
    with suppress(asyncio.CancelledError):
        task.exception()
    if not killed:
        ledger.close()
        living.discard(number)
    return Ended(process, number, run.record, client, killed)


def play(
    plan: am.Plan,
    rounds: Sequence[Sequence[Process]],
    fates: Sequence[Fate],
    answer: Callable[[Request, int], Answer],
    *,
    seed: int = 0,
    known: bool = True,
    last: Process | None = PATIENT,
) -> World:
    """Run the processes of each round beside one another, one round after another, and at last one more."""
    loop = Loop()

    async def work() -> World:
        server = Server(loop, fates, seed, answer)
        with TemporaryDirectory(dir=SHM) as folder, processes(loop, known=known) as living:
            path, ended = Path(folder) / "l.sqlite3", list[Ended]()
            number = 0
            for round_ in rounds:
                tasks = []
                for one in round_:
                    number += 1
                    tasks.append(loop.create_task(_live(loop, server, path, plan, number, one, living)))
                ended += await asyncio.gather(*tasks)
            if last is not None:
                server.fates = server.fates[: server.creations]  # no more trouble
                ended += [await loop.create_task(_live(loop, server, path, plan, 99, last, living))]
            file = LedgerFile(path)
            rows = file.read("SELECT id, batch, state, names FROM batches")
            answers = {(key, ordinal) for key, ordinal in file.read("SELECT key, ordinal FROM answers")}
            open_ = len(file.read("SELECT 1 FROM leases"))
            file.close()
        return World(server, ended, rows, answers, open_)

    try:
        task = loop.create_task(work())
        loop.call_later(90 * DAY_S, task.cancel)
        found = loop.run_until_complete(task)
        assert not loop.complaints, loop.complaints
        return found
    finally:
        loop.close()


def lost(world: World) -> list[str]:
    """Return what was paid for and is neither in the ledger nor will be read by the next run."""
    rows = {batch: (state, names) for _, batch, state, names in world.rows}
    planned = [{*json.loads(names)} for _, batch, state, names in world.rows if state == "planned"]
    found: list[str] = []
    for one in world.server.sent.values():
        state, _ = rows.get(one.id, ("planned" if {*one.requests} in planned else "unknown", ""))
        if state in {"planned", "sent", "lost"}:
            continue
        missing = [name for name in one.answers if place_of(name) not in world.answers]
        found += [f"{one.id} {state}: {one.requests[name].prompt!r}" for name in missing]
    return found


def shown_usd(world: World) -> dict[tuple[str, str], float]:
    """Return the dollars of all runs' frames, by batch and the request's key; of a batch with its ordinal."""
    found: dict[tuple[str, str], float] = {}
    for one in world.ended:
        for result in one.record.results:
            for attempt in result.attempts:
                if attempt.answer is None:
                    continue
                place = attempt.answer.batch, attempt.answer.request_id or ""
                if attempt.is_served or attempt.is_shared:
                    assert not attempt.cost_usd
                    continue
                found[place] = found.get(place, 0.0) + (attempt.cost_usd or 0.0)
    return found
