"""How much of a rate limit the pacer uses, and how often it is refused, with nothing told and nothing set.

On a virtual clock: thousands of requests in seconds, many seeds, servers of several kinds. The server's bucket holds
one second's worth of its limits, ten, or a whole minute's; the client is told neither capacities nor limits.

*Share* is what was let in (of output: produced) from the first answer (of output: a second later) to the last request
let in, per time, of the announced rate. What the bucket held at the beginning comes on top, so it can be more than 1.
*Refused* is the part of all requests sent that was answered 429. An agent fails when it was refused three times.

Run it with `python -m benchmarks.rates`; `python -m benchmarks.rates http` does the same over real HTTP with the real
SDK against the mock server, in three minutes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from random import Random
from statistics import median

from agent_magic.engine.pacing.pacer import Pacer
from benchmarks.measuring import print_heading, print_table
from benchmarks.rate_http import at_once, over_http
from benchmarks.rate_oracle import Oracle
from benchmarks.rate_world import Job, Kind, Naive, Paced, Receiver, Result, Secret, Server, World, draw

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


if __name__ == "__main__":
    if "http" in sys.argv[1:]:
        asyncio.run(over_http())
        asyncio.run(at_once())
    else:
        capacities()
        conditions()
        oracles()
        starvation()
        colleagues()
