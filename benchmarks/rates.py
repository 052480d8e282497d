"""How much of a rate limit the pacer uses, and how often it is refused, with nothing told and nothing set.

On a virtual clock: thousands of requests in seconds, many seeds, servers of several kinds. The server's bucket holds
one second's worth of its limits, ten, or a whole minute's; the client is told neither capacities nor limits.

*Share* is what was let in (of output: produced) from the first answer (of output: a second later) to the last request
let in, per time, of the announced rate. What the bucket held at the beginning comes on top, so it can be more than 1.
*Refused* is the part of all requests sent that was answered 429. An agent fails when it was refused three times.

Run it with `python -m benchmarks.rates`; `python -m benchmarks.rates http` does the same over real HTTP with the real
SDK against the mock server, in three minutes. Names of tables print those alone: `python -m benchmarks.rates silent`.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from random import Random
from statistics import median
from typing import Literal

from agent_magic.engine.pacing.pacer import Pacer
from benchmarks.measuring import print_heading, print_table
from benchmarks.rate_http import at_once, over_http
from benchmarks.rate_oracle import Oracle
from benchmarks.rate_world import Job, Kind, Naive, Paced, Receiver, Result, Secret, Server, World, draw

Wait = Literal["true"] | float | None
"""What a refusal says as `retry-after`, as `Server.wait`."""
SEEDS = 10
TOLD = tuple(product(("response", "admission"), (False, True)))
"""When headers are computed, and whether output is counted as it is produced."""
COLUMNS = ("share, median", "worst", "refused %, median", "worst", "failed", "last let in, s")


@dataclass(frozen=True)
class Load:
    """A number of requests and the limit that holds them."""

    name: str
    kind: Kind
    per_minute: float
    count: int
    jobs: Mapping[str, object] = field(default_factory=dict)

    def server(self, **options: object) -> Server:
        """Return a server with this limit."""
        name = {"requests": "rpm", "input": "itpm", "output": "otpm"}[self.kind]
        return Server(**{name: self.per_minute, **options})  # pyright: ignore[reportArgumentType]

    def draw(self, seed: int) -> list[Job]:
        """Draw the requests."""
        return draw(self.count, Random(seed), **self.jobs)  # pyright: ignore[reportArgumentType]


REQUESTS = Load("requests: 3,000 a minute, 1,000 of them", "requests", 3_000, 1_000)
INPUT = Load("input: 2.4 M a minute, 600 of about 1,100", "input", 2.4e6, 600, {"inputs": (1000, 0.5)})
OUTPUT = Load("output: 600 k a minute, 900 of about 335", "output", 6e5, 900)
MIXED = Load(
    "input, mixed: 5 % of about 20,000",
    "input",
    2.4e6,
    600,
    {"inputs": (500, 0.5), "large": 0.05, "large_input": 20_000},
)
SLOW = {"outputs": (1000, 0.6), "latency": (10, 0.5)}
HUGE = {"inputs": (500, 0.5), "large": 0.1, "large_input": 70_000}


Make = Callable[[World, list[Job], int], Receiver]


def pacer(world: World, jobs: list[Job], seed: int) -> Receiver:
    """Let a pacer that knows nothing send them."""
    return Paced(world, jobs, Pacer(seed=seed))


def oracle(world: World, jobs: list[Job], seed: int) -> Receiver:
    """Let somebody send them who sees the output bucket."""
    return Oracle(world, jobs)


def once(load: Load, server: Server, seed: int, make: Make = pacer) -> Result:
    """Run a load to its end."""
    world = World(server, seed)
    client = make(world, load.draw(seed), seed)
    world.run()
    return client.result


def row(
    name: str, load: Load, servers: list[Server], per_minute: float | None = None, make: Make = pacer
) -> tuple[object, ...]:
    """Measure a load on some servers, all seeds."""
    results = [once(load, server, seed, make) for server in servers for seed in range(SEEDS)]
    shares = [result.share(load.kind, per_minute or load.per_minute) for result in results]
    refused = [100 * result.refused_share() for result in results]
    failed = sum(result.failed for result in results)
    last = median(max(at for at, _ in result.admitted) for result in results)
    numbers = f"{median(shares):.3f}", f"{min(shares):.3f}", f"{median(refused):.2f}", f"{max(refused):.2f}"
    return name, *numbers, failed, f"{last:.1f}"


def told(load: Load, capacity_s: float) -> list[Server]:
    """Return servers of one capacity that tell and count in each way."""
    return [load.server(capacity_s=capacity_s, headers=when, streamed=streamed) for when, streamed in TOLD]


def capacities() -> None:
    """Print the table of the targets."""
    print_heading("Limits and capacity unknown, nothing set", f"{SEEDS} seeds on four kinds of server each.")
    loads = product((1, 10, 60), (REQUESTS, INPUT, OUTPUT, MIXED))
    rows = [row(f"{load.name}; capacity {held} s", load, told(load, held)) for held, load in loads]
    print_table(("load", *COLUMNS), rows)


def conditions() -> None:
    """Print what is harder."""
    print_heading("Harder", f"{SEEDS} seeds; the bucket holds one second's worth unless another time is named.")
    long = {
        "requests, three minutes": Load("", "requests", 3_000, 9_000),
        "input, three minutes": Load("", "input", 2.4e6, 6_000, INPUT.jobs),
        "output, three minutes": Load("", "output", 6e5, 6_000),
        "60 requests a minute, one at a time": Load("", "requests", 60, 100),
        "50 requests a minute, replies begin after 1 s": Load("", "requests", 50, 100, {"latency": (3.3, 0.5)}),
        "50 requests a minute, replies begin after 3 s": Load("", "requests", 50, 100, {"latency": (10, 0.5)}),
        "answers take 10 s, requests": Load("", "requests", 1_000, 1_000, {"latency": (10, 0.5)}),
        "answers take 10 s, output": Load("", "output", 6e5, 2_000, SLOW),
        "10 % larger than the bucket": Load("", "input", 2.4e6, 300, HUGE),
        "believed output 4 times too low": BELIEVED,
    }
    rows = [row(name, load, told(load, 1)) for name, load in long.items()]
    rows.append(row("answers take 10 s, output, capacity 10 s", OUTPUT_SLOW, told(OUTPUT_SLOW, 10)))
    slow_wire = REQUESTS.server(wire_s=(0.02, 0.3))
    rows.append(row("requests 20 to 300 ms under way", REQUESTS, [slow_wire]))
    hidden = REQUESTS.server(capacity_s=60, secret=Secret(3_000))
    rows.append(row("announced for 60 s, enforced over 1 s", REQUESTS, [hidden]))
    half = Server(rpm=3_000, secret=Secret(1_500))
    rows.append(row("half of what is announced", REQUESTS, [half], 1_500))
    rows.append(row("no headers, requests", REQUESTS, [REQUESTS.server(headers="none")]))
    rows.append(row("no headers, input", INPUT, [INPUT.server(headers="none")]))
    rows.append(row("no headers, output", OUTPUT, [OUTPUT.server(headers="none")]))
    for part in (0.01, 0.04):
        for said, words in ((False, ""), (True, ", with headers")):
            stray = REQUESTS.server(capacity_s=10, stray=part, stray_told=said)
            rows.append(row(f"{part:.0%} refused for no reason{words}, capacity 10 s", STRAY, [stray]))
    rows.append(row("no headers, 1% refused for no reason", STRAY, [REQUESTS.server(headers="none", stray=0.01)]))
    print_table(("condition", *COLUMNS), rows)
    places()


def places() -> None:
    """Print what is used of a server that lets so many requests run at once, and says nothing of it."""
    print_heading("Requests at once", f"{SEEDS} seeds; share of the places' time, to the last request let in.")
    rows: list[tuple[object, ...]] = []
    for slots, latency_s, count in ((1, 0.8, 200), (4, 0.8, 400), (16, 2, 1_200), (50, 1, 3_000), (8, 10, 300)):
        load = Load("", "requests", 1, count, {"latency": (latency_s, 0.6)})
        results = [once(load, Server(headers="none", slots=slots, wait=1.0), seed) for seed in range(SEEDS)]
        shares = [result.busy(slots) for result in results]
        refused = [100 * result.refused_share() for result in results]
        numbers = f"{median(shares):.3f}", f"{min(shares):.3f}", f"{median(refused):.2f}", f"{max(refused):.2f}"
        rows.append((f"{slots} at once, answers of {latency_s} s", *numbers, sum(each.failed for each in results)))
    print_table(("condition", *COLUMNS[:-1]), rows)


@dataclass(frozen=True)
class Silent:
    """A server that refuses and announces nothing, and how long it is asked.

    Attributes:
        name: What it does.
        server: The server.
        per_minute: What it could do a minute: the limit, or what so many places or so many at once bring.
        until_s: When the row ends.
        most: The client's own number of requests at once; 0 is any number.
        latency: Median and sigma of answers' seconds.
    """

    name: str
    server: Server
    per_minute: float
    until_s: float = 300.0
    most: int = 0
    latency: tuple[float, float] = (0.8, 0.6)

    def once(self, seed: int) -> tuple[float, float, float, float]:
        """Return the share of what could be done, the parts refused in all and after a minute, the longest wait."""
        world = World(self.server, seed)
        jobs = draw(int(2 * self.per_minute * self.until_s / 60) + 50, Random(seed), latency=self.latency)
        result = Paced(world, jobs, Pacer(seed=seed), attempts=FOREVER, most=self.most).result
        world.run(self.until_s)
        share = result.share("requests", self.per_minute, result.first_s, self.until_s)
        return share, 100 * result.refused_share(), 100 * result.refused_share(60.0), result.longest_s


FOREVER = 10**9
MEAN = math.exp(0.6**2 / 2)
"""A mean answer takes so much longer than the median one."""


def silent_rate(rpm: float, wait: Wait, held_s: float = 0.0, *, stray: float = 0.0) -> Silent:
    """Return a limit by the minute, whose bucket holds so many seconds' worth; 0: windows of the clock's minutes."""
    said = "says when" if wait == "true" else "says nothing" if wait is None else f"says {wait:.0f} s"
    held = f"capacity {held_s:.0f} s" if held_s else "windows"
    server = Server(rpm, capacity_s=held_s or 60.0, headers="none", wait=wait, windows=not held_s, stray=stray)
    strays = f", {stray:.0%} stray" if stray else ""
    return Silent(f"{rpm:,.0f} a minute, {held}, {said}{strays}", server, rpm, 120.0 if rpm > BUSY else 300.0)


BUSY = 500
LIMITS: tuple[tuple[float, Wait, float], ...] = (
    (3, None, 0), (3, None, 60), (10, "true", 1), (10, 1.0, 1), (10, None, 60),
    (60, "true", 1), (60, None, 1), (60, 1.0, 1), (60, "true", 60), (60, 1.0, 60), (60, "true", 0), (60, None, 0),
    (300, "true", 1), (300, None, 10), (300, 1.0, 60), (1_000, "true", 10), (3_000, 1.0, 1), (3_000, None, 60),
)  # fmt: skip
STRAYS: tuple[tuple[float, Wait, float, float], ...] = (
    (60, "true", 1, 0.04), (300, "true", 10, 0.04), (3_000, "true", 1, 0.01), (3_000, "true", 1, 0.04),
    (3_000, "true", 10, 0.04), (3_000, None, 10, 0.04), (3_000, "true", 10, 0.1),
)  # fmt: skip
AT_WILL: tuple[tuple[int, float, Wait], ...] = (
    (8, 0.04, 1.0), (20, 0.04, 1.0), (20, 0.04, None), (20, 0.1, 1.0), (100, 0.04, 1.0), (20, 0.01, None),
)  # fmt: skip
PLACES: tuple[tuple[int, float, Wait, float], ...] = (
    (4, 0.8, 1.0, 0.6), (4, 0.8, None, 0.6), (16, 2, 1.0, 0.6), (8, 10, 1.0, 0.2), (50, 1, None, 0.6),
    (8, 0.05, 1.0, 0.3), (8, 0.05, None, 0.3), (30, 0.1, 1.0, 0.3), (16, 0.3, None, 0.3),
)  # fmt: skip


def silent_rows() -> list[Silent]:
    """Return the servers that announce nothing: limits of a rate, refusals by chance, places."""
    rows = [silent_rate(*each) for each in LIMITS]
    rows += [silent_rate(rpm, wait, held_s, stray=part) for rpm, wait, held_s, part in STRAYS]
    for most, part, wait in AT_WILL:
        name = f"no limit, {part:.0%} stray, {most} at once, {'says nothing' if wait is None else 'says 1 s'}"
        server = Server(headers="none", stray=part, wait=wait)
        rows.append(Silent(name, server, 60 * most / (0.8 * MEAN), 120.0, most))
    for slots, latency_s, wait, sigma in PLACES:
        name = f"{slots} places, answers of {latency_s} s, {'says nothing' if wait is None else 'says 1 s'}"
        server = Server(headers="none", slots=slots, wait=wait)
        per_minute = 60 * slots / (latency_s * math.exp(sigma**2 / 2) + sum(server.wire_s))  # the wire there and back
        rows.append(Silent(name, server, per_minute, 600.0 if latency_s >= SLOW_S else 120.0, 0, (latency_s, sigma)))
    return rows


SLOW_S = 10


def silent() -> None:
    """Print what becomes of limits, places and chance where the server announces nothing."""
    print_heading("Nothing announced", f"{SEEDS} seeds; share of what the server could do, from the first answer.")
    rows: list[tuple[object, ...]] = []
    for each in silent_rows():
        shares, refused, late, longest = zip(*(each.once(seed) for seed in range(SEEDS)), strict=True)
        numbers = f"{median(shares):.3f}", f"{min(shares):.3f}", f"{median(refused):.2f}"
        rows.append((each.name, *numbers, f"{median(late):.2f}", f"{max(late):.2f}", f"{max(longest):.0f}"))
    columns = ("share, median", "worst", "refused %", "after a minute %", "worst", "longest, s")
    print_table(("server", *columns), rows)
    few()


FEW: tuple[tuple[float, float, int], ...] = ((10, 1, 4), (60, 1, 4), (60, 1, 20), (60, 10, 20), (300, 1, 60))


def few() -> None:
    """Print how long a few agents take where refusals say `retry-after: 1` and nothing else."""
    print_heading("A few agents, every refusal says 1 s", f"{SEEDS} seeds; seconds, and where headers tell the limit.")
    rows: list[tuple[object, ...]] = []
    for rpm, held_s, count in FEW:
        servers = Server(rpm, capacity_s=held_s, headers="none", wait=1.0), Server(rpm, capacity_s=held_s)
        took = [[_took_s(server, count, seed) for seed in range(SEEDS)] for server in servers]
        untold, told = (median(each) for each in took)
        row = (
            f"{untold:.1f}",
            f"{told:.1f}",
            f"{untold / told:.2f}",
            f"{max(a / b for a, b in zip(*took, strict=True)):.2f}",
        )
        rows.append((f"{count} agents, {rpm:.0f} a minute, capacity {held_s:.0f} s", *row))
    print_table(("agents", "untold, s", "told, s", "times", "worst"), rows)


def _took_s(server: Server, count: int, seed: int) -> float:
    world = World(server, seed)
    Paced(world, draw(count, Random(seed)), Pacer(seed=seed), attempts=FOREVER)
    world.run()
    return world.now


STRAY = Load("", "requests", 3_000, 3_000)
OUTPUT_SLOW = Load("", "output", 6e5, 2_000, SLOW)
BELIEVED = Load("", "output", 6e5, 900, {"believed_output": 70})


def oracles() -> None:
    """Print what can be had of an output limit by whoever sees the bucket."""
    note = "The oracle sees the bucket and knows all but how long each answer is."
    print_heading("Output limits, and the best anybody could do", note)
    loads = {
        "answers of 1 s": OUTPUT,
        "answers of 1 s, believed 4 times too low": BELIEVED,
        "answers take 10 s": OUTPUT_SLOW,
    }
    rows: list[tuple[object, ...]] = []
    for (name, load), streamed, make in product(loads.items(), (True, False), (pacer, oracle)):
        servers = [load.server(headers=when, streamed=streamed) for when in ("response", "admission")]
        counted = "as produced" if streamed else "at the end"
        rows.append(row(f"{name}; {counted}; {make.__name__}", load, servers, make=make))
    print_table(("condition", *COLUMNS), rows)


def starvation() -> None:
    """Print how many that were queued later go before a large one."""
    print_heading("Large among small", "The most that were queued behind a large request and let in before it.")
    rows: list[tuple[object, ...]] = []
    for name, make in (("pacer", _paced), ("semaphore(50), 3 attempts", partial(_naive, 50))):
        found: list[Result] = []
        for seed in range(SEEDS):
            world = World(MIXED.server(), seed)
            client = make(world, MIXED.draw(seed))
            world.run()
            found.append(client.result)
        refused = median(100 * each.refused_share() for each in found)
        rows.append(
            (name, max(each.overtaken(10_000) for each in found), f"{refused:.2f}", sum(each.failed for each in found))
        )
    print_table(("client", "overtaken by", "refused %", "failed"), rows)


def _paced(world: World, jobs: list[Job]) -> Receiver:
    return Paced(world, jobs, Pacer(seed=1))


def _naive(slots: int, world: World, jobs: list[Job]) -> Receiver:
    return Naive(world, jobs, slots=slots)


def _greedy(slots: int, world: World, jobs: list[Job]) -> Receiver:
    return Naive(world, jobs, slots=slots, attempts=10**9)


def _second(world: World, jobs: list[Job]) -> Receiver:
    return Paced(world, jobs, Pacer(seed=2), attempts=10**9)


def _steady(world: World, jobs: list[Job]) -> Receiver:
    client = Naive(world, [], slots=0)
    at_s = 5.0
    for job in jobs[:1_200]:
        at_s += world.random.expovariate(20)
        world.later(at_s, partial(client.send, job))
    return client


COLLEAGUES: dict[str, Callable[[World, list[Job]], Receiver]] = {
    "20 requests a second, whatever happens": _steady,
    "another pacer": _second,
    "semaphore(25), retries for ever": partial(_greedy, 25),
    "semaphore(100), retries for ever": partial(_greedy, 100),
}


def colleagues() -> None:
    """Print what becomes of two on one key."""
    print_heading("A colleague on the same key", "50 requests a second for both, second 10 to 60, five seeds.")
    rows: list[tuple[object, ...]] = []
    for (name, make), capacity_s in product(COLLEAGUES.items(), (1, 10)):
        mine: list[float] = []
        theirs: list[float] = []
        refused: list[float] = []
        for seed in range(5):
            world = World(REQUESTS.server(capacity_s=capacity_s), seed)
            jobs = draw(5_000, Random(seed))
            ours = Paced(world, jobs, Pacer(seed=seed), attempts=10**9)
            other = make(world, draw(5_000, Random(seed + 100)))
            world.run(60)
            mine.append(ours.result.share("requests", 3_000, 10, 60))
            theirs.append(other.result.share("requests", 3_000, 10, 60))
            refused.append(100 * ours.result.refused_share())
        both = median(a + b for a, b in zip(mine, theirs, strict=True))
        numbers = (f"{median(mine):.2f}", f"{median(theirs):.2f}", f"{both:.3f}", f"{median(refused):.2f}")
        rows.append((f"{name}; capacity {capacity_s} s", *numbers))
    print_table(("colleague", "our share", "theirs", "both", "ours refused %"), rows)


TABLES: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (capacities, conditions, silent, oracles, starvation, colleagues)
}

if __name__ == "__main__":
    if "http" in sys.argv[1:]:
        asyncio.run(over_http())
        asyncio.run(at_once())
    else:
        for name in sys.argv[1:] or TABLES:
            TABLES[name]()
