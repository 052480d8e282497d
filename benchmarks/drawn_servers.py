"""Servers that are drawn, on virtual time: what a run on one of them forecasts, beside what it then takes.

Some are of the family that is fitted (`agent_magic.measure.server`): constant, or shared with 1 to 32 slots. Others are
its neighbours: batches that gain a little with each request, answers that slow down with all the text that is read,
limits that are soft. What requests need differs from one to the other, and is the same in every run.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

from agent_magic.api import Agent, Plan, Policy, Run
from agent_magic.live.driver import Driver
from agent_magic.providers.base import EVERYTHING, Provider, Stream
from agent_magic.record.answer import Answer, Usage
from agent_magic.record.request import Request
from agent_magic.record.results import RunRecord
from benchmarks.measuring import print_table
from tests.live.virtual import run_virtually

CONCURRENCIES = (1, 2, 4, 8, 16, 32)
RECORDED_AT = (2, 4, 8)
DONE = 1e-9
"""Seconds of work that are nothing."""


@dataclass(eq=False)
class Asked:
    """A request at a drawn server.

    Attributes:
        before_s: Seconds alone until its first token that are left.
        after_s: The same after it.
        context: Tokens of its prompt.
        going: Set when it has a slot; then when it begins, and when it ends.
    """

    before_s: float
    after_s: float
    context: int
    going: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])


Speed = Callable[[Asked, Sequence[Asked]], float]
"""The speed of a request, of one that is alone, beside all that are under way."""


@dataclass(frozen=True)
class Drawn:
    """A server.

    Attributes:
        kind: What it is one of.
        words: Its numbers.
        slots: The most at once.
        speed: How fast each goes.
        first_s: Seconds alone until the first token; `read_s` is added for each token of the prompt.
        pace: Tokens a second alone.
        spread: How much requests differ in both, the sigma of a lognormal.
        again: True if the same request needs another time in another run.
        late_s: Events are seen up to so much later, by lot.
        stalls: When the client's loop stands still, in seconds of the run, and until when.
    """

    kind: str
    words: str
    slots: float
    speed: Speed
    first_s: float
    read_s: float
    pace: float
    spread: float
    seed: int
    again: bool = False
    late_s: float = 0.0
    stalls: tuple[tuple[float, float], ...] = ()


class Serving(Provider):
    """A drawn server at work, on the time of the loop.

    Args:
        drawn: The server.
        run: Number of the run, where requests need another time in each.
    """

    capabilities = EVERYTHING
    endpoint = "drawn"

    def __init__(self, drawn: Drawn, run: int, *, stalled: bool = False) -> None:
        self._drawn, self._run = drawn, run if drawn.again else 0
        self._queue, self._inside = deque[Asked](), list[Asked]()
        self._at_s, self._alarm = 0.0, None
        self._began_s = 0.0
        self._stalls = drawn.stalls if stalled else ()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Begin idle."""
        self._began_s = asyncio.get_running_loop().time()
        yield

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Serve one request beside the others."""
        drawn, words = self._drawn, request.prompt.split()
        given, made = len(words), int(words[1])
        lot = Random(f"{drawn.seed} {words[0]} {self._run}")
        loop = asyncio.get_running_loop()
        first, slower = (lot.lognormvariate(0.0, drawn.spread) for _ in range(2))
        before_s = (drawn.first_s + given * drawn.read_s) * first
        asked = Asked(before_s, made / drawn.pace * slower, given, [loop.create_future() for _ in range(2)])
        self._turn()
        self._queue.append(asked)
        self._go_on()
        await self._seen(asked.going[0], lot)
        stream.replied(200)
        stream.usage = Usage(given, output_tokens=1)
        stream.add("so ")
        await self._seen(asked.going[1], lot)
        stream.add("it is")
        return Answer(
            "so it is", "end_turn", usage=Usage(given, output_tokens=made), model=request.model, source="live"
        )

    async def _seen(self, what: asyncio.Future[None], lot: Random) -> None:
        """Wait until the client sees something."""
        await what
        await asyncio.sleep(lot.random() * self._drawn.late_s)
        for begin_s, end_s in self._stalls:
            now_s = asyncio.get_running_loop().time() - self._began_s
            if begin_s <= now_s < end_s:
                await asyncio.sleep(end_s - now_s)

    def _turn(self) -> None:
        """Let the time that is gone go on."""
        now = asyncio.get_running_loop().time()
        speeds = [self._drawn.speed(one, self._inside) for one in self._inside]
        for one, speed in zip(self._inside, speeds, strict=True):
            done_s = (now - self._at_s) * speed
            over_s = max(0.0, done_s - one.before_s)
            one.before_s, one.after_s = one.before_s - min(done_s, one.before_s), one.after_s - over_s
        self._at_s = now
        for one in self._inside:
            for place, left_s in enumerate((one.before_s, one.before_s + one.after_s)):
                if left_s <= DONE and not one.going[place].done():
                    one.going[place].set_result(None)
        self._inside = [one for one in self._inside if not one.going[1].done()]

    def _go_on(self) -> None:
        """Fill the slots, and wait for what is next."""
        while self._queue and len(self._inside) < self._drawn.slots:
            self._inside.append(self._queue.popleft())
        if self._alarm is not None:
            self._alarm.cancel()
        waits_s = [
            (one.before_s if one.before_s > DONE else one.after_s) / self._drawn.speed(one, self._inside)
            for one in self._inside
        ]
        self._alarm = asyncio.get_running_loop().call_later(min(waits_s), self._ring) if waits_s else None

    def _ring(self) -> None:
        self._turn()
        self._go_on()


def constant(lot: Random) -> tuple[str, float, Speed]:
    """Draw a server whose speed no load changes."""
    del lot
    return "", math.inf, lambda one, beside: 1.0


def shared(lot: Random) -> tuple[str, float, Speed]:
    """Draw slots that share one speed."""
    slots = lot.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 32])
    full = slots ** lot.uniform(0.0, 1.0)
    return f"{slots} slots, full for {full:.1f}", slots, lambda one, beside: min(1.0, full / len(beside))


def reads_apart(lot: Random) -> tuple[str, float, Speed]:
    """Draw slots that share the speed of writing, and read prompts in their own time."""
    slots = lot.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 32])
    full = slots ** lot.uniform(0.0, 1.0)

    def speed(one: Asked, beside: Sequence[Asked]) -> float:
        return 1.0 if one.before_s > DONE else min(1.0, full / sum(each.before_s <= DONE for each in beside))

    return f"{slots} slots, full for {full:.1f}, reads apart", slots, speed


def batched(lot: Random) -> tuple[str, float, Speed]:
    """Draw a server that slows each a little with every other: batches on one card."""
    slots, by = lot.choice([4, 8, 16, 32, 256]), lot.choice([0.02, 0.05, 0.1, 0.2, 0.4])
    return f"{slots} slots, {by:.0%} slower by each", slots, lambda one, beside: 1 / (1 + by * (len(beside) - 1))


def long_prompts(lot: Random) -> tuple[str, float, Speed]:
    """Draw slots that share a speed which falls with all the text that is read."""
    slots, half = lot.choice([2, 4, 8, 16]), lot.choice([500, 2_000, 8_000])
    full = slots ** lot.uniform(0.3, 1.0)

    def speed(one: Asked, beside: Sequence[Asked]) -> float:
        return min(1.0, full / len(beside)) / (1 + sum(each.context for each in beside) / half)

    return f"{slots} slots, full for {full:.1f}, half at {half} tokens", slots, speed


def soft_limit(lot: Random) -> tuple[str, float, Speed]:
    """Draw a hosted service that slows down beyond some requests at once."""
    full = lot.choice([3, 5, 6, 8, 12, 16])
    return f"full for {full}", math.inf, lambda one, beside: min(1.0, full / len(beside))


def soft_first(lot: Random) -> tuple[str, float, Speed]:
    """Draw a hosted service whose first tokens come later beyond some requests at once."""
    full = lot.choice([2, 4, 8])

    def speed(one: Asked, beside: Sequence[Asked]) -> float:
        return 1.0 if one.before_s <= DONE else min(1.0, full / sum(each.before_s > DONE for each in beside))

    return f"reads {full}", math.inf, speed


Kind = Callable[[Random], tuple[str, float, Speed]]
"""Draws a server: its numbers in words, its slots, and how fast each request goes."""
KINDS: tuple[Kind, ...] = (
    constant,
    shared,
    reads_apart,
    batched,
    long_prompts,
    soft_limit,
    soft_first,
)


def draw(seed: int, kind: Kind) -> Drawn:
    """Draw a server of a kind."""
    lot = Random(f"{seed} {kind.__name__}")
    words, slots, speed = kind(lot)
    first_s, read_s = lot.choice([0.02, 0.1, 0.4]), lot.choice([0.0, 0.0, 0.000_3])
    pace, spread = lot.choice([50.0, 100.0, 200.0]), lot.choice([0.0, 0.05, 0.1, 0.25])
    name = kind.__name__.replace("_", " ")
    late_s, told = lot.choice([0.0, 0.002, 0.01]), f"{words} ({spread:.0%})"
    return Drawn(name, told, slots, speed, first_s, read_s, pace, spread, seed, late_s=late_s)


def rows(lot: Random) -> Plan:
    """Write a plan of rows whose prompts and answers differ in length: some wide, some in chains."""
    count, chained = lot.choice([16, 24, 40, 60]), lot.random() < 0.25
    agents: list[Agent] = []
    for number in range(count):
        made, size = lot.randrange(20, 300), lot.choice([1, 50, 200, 600])
        before = f"{{{{ r{number - count // 3} }}}}" if chained and number >= count // 3 else ""
        agents.append(Agent(f"r{number}", f"n{number} {made} {'word ' * size}{before}"))
    return Plan(agents, name="rows")


def run_drawn(drawn: Drawn, plan: Plan, concurrency: int, *, stalled: bool = False) -> RunRecord:
    """Run a plan on a drawn server."""

    async def work(loop: asyncio.AbstractEventLoop) -> RunRecord:
        driver = Driver(plan, Policy(concurrency), Serving(drawn, concurrency, stalled=stalled), clock=loop.time)
        await driver.drive()
        return driver.record

    return run_virtually(work)


@dataclass(frozen=True)
class Guess:
    """One forecast beside the truth."""

    kind: str
    words: str
    basis: str
    recorded_at: int
    concurrency: int
    truth_s: float
    wall_s: float
    low_s: float
    high_s: float

    @property
    def off(self) -> float:
        """How far off, relative to the truth."""
        return self.wall_s / self.truth_s - 1

    @property
    def inside(self) -> bool:
        """True if the truth is in the range."""
        return self.low_s <= self.truth_s <= self.high_s


def guesses(drawn: Drawn) -> list[Guess]:
    """Forecast other concurrencies from a run at one."""
    lot = Random(f"{drawn.seed} {drawn.words}")
    plan, recorded_at = rows(lot), lot.choice(RECORDED_AT)
    runs = {each: run_drawn(drawn, plan, each, stalled=each == recorded_at) for each in CONCURRENCIES}
    others = [each for each in CONCURRENCIES if each != recorded_at]
    frame = Run(runs[recorded_at]).whatif(concurrency=others)
    found: list[Guess] = []
    for place, each in enumerate(others):
        truth_s = Run(runs[each]).totals.wall_s or math.nan
        walls_s = (float(one[place]) for one in (frame.wall_s, frame.wall_low_s, frame.wall_high_s))
        found.append(Guess(drawn.kind, drawn.words, str(frame.basis[place]), recorded_at, each, truth_s, *walls_s))
    return found


def stalled(drawn: Drawn) -> Drawn:
    """Return the server with a client that stands still for a while in the run that is recorded."""
    lot = Random(f"{drawn.seed} {drawn.words} stalled")
    begin_s, takes_s = lot.uniform(0.5, 3.0), lot.choice([0.3, 1.0, 3.0])
    return replace(drawn, kind="client stalled", stalls=((begin_s, begin_s + takes_s),))


def print_coverage(count: int = 20) -> None:
    """Print how often the truth is in the range, by kind of server and basis.

    Args:
        count: Servers of each kind.
    """
    drawn = [draw(seed, kind) for kind in KINDS for seed in range(count)]
    drawn += [stalled(draw(seed, kind)) for kind in (constant, soft_limit, shared) for seed in range(count)]
    print_guesses([one for each in drawn for one in guesses(each)])


def print_guesses(found: Sequence[Guess]) -> None:
    """Print them, by kind of server and basis."""
    table: list[Sequence[str]] = []
    for kind, basis in product(("all", *dict.fromkeys(one.kind for one in found)), ("measured", "assumed")):
        some = [one for one in found if one.basis == basis and kind in {"all", one.kind}]
        if some:
            off, width = sorted(abs(one.off) for one in some), sorted(one.high_s / one.low_s for one in some)
            inside = sum(one.inside for one in some) / len(some)
            middle = f"{off[len(off) // 2]:.1%}", f"{off[int(0.9 * len(off))]:.0%}", f"{off[-1]:.0%}"
            table.append([kind, basis, str(len(some)), f"{inside:.0%}", *middle, f"{width[len(width) // 2]:.2f}"])
    print_table(["server", "basis", "n", "inside", "median off", "9 in 10", "worst", "high / low"], table)
    print("Aim: 80 of 100 inside.\n")
