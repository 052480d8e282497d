"""How much of a rate limit several kernels with one key use together, and how evenly, with shares and without.

On the virtual clock of `rate_world`: each kernel has a pacer of its own, and a row on a board that the others read
every half a second, as in the ledger's file. Without shares each of them only reads the headers of its own responses.

Run it with `python -m benchmarks.rate_kernels`; it takes three minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from random import Random
from statistics import median
from typing import Any

from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.pacing.share import Claims, beat_s, claims, limits_of, row_of, shares_of
from benchmarks.measuring import print_heading, print_table
from benchmarks.rate_world import MODEL, Kind, Paced, Result, Server, World, draw

SEEDS = 5
FROM_S, UNTIL_S = 10.0, 60.0
"""The time that is measured: all of them are under way by then."""
FEW, LONG_S = 60, 310.0
"""Of a limit of so few a minute until when: less would be counted too roughly."""


@dataclass
class Board:
    """The rows of the kernels, as the ledger's file has them."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    told: dict[str, Claims] = field(default_factory=dict)

    def beat(self, world: World, name: str, client: Paced, until_s: float = math.inf) -> None:
        """Tell what a kernel wants, and have it keep to what there is for it; again soon, until it is killed."""
        if world.now >= until_s:
            self.rows.pop(name, None)
            return
        others = {other: row for other, row in self.rows.items() if other != name}
        demands = client.pacer.demands((MODEL,), world.now)
        told = self.told[name] = claims(demands, self.told.get(name, {}), name, others, world.now)
        self.rows[name] = row_of(told)
        client.pacer.recall(limits_of(others, demands), {}, world.now)
        if client.pacer.set_shares(shares_of(told), world.now):
            client.pump()
        world.later(world.now + beat_s(told), partial(self.beat, world, name, client, until_s))


@dataclass(frozen=True)
class Kernel:
    """One kernel: its requests, and when it begins."""

    jobs: dict[str, Any] = field(default_factory=dict)
    count: int = 6_000
    from_s: float = 0.0
    per_s: float | None = None
    """How many requests it has to send in a second; `None` has all at once."""


def together(
    server: Server, kernels: list[Kernel], seed: int, *, shared: bool = True, until_s: float = UNTIL_S
) -> list[Result]:
    """Let kernels send for a minute, or longer."""
    world, board = World(server, seed), Board()
    results: list[Result] = []
    for number, kernel in enumerate(kernels):
        jobs = draw(kernel.count, Random(seed * 100 + number), **kernel.jobs)
        client = Paced(world, [], Pacer(seed=seed + number), attempts=10**9)
        results.append(client.result)
        if shared:
            world.later(kernel.from_s + 0.13 * number, partial(board.beat, world, str(number), client))
        arrive_s = kernel.from_s + 0.13 * number + 0.001
        for job in jobs if kernel.per_s else ():
            arrive_s += world.random.expovariate(kernel.per_s or 1.0)
            world.later(arrive_s, partial(client.add, [job]))
        if not kernel.per_s:
            world.later(arrive_s, partial(client.add, jobs))
    world.run(until_s)
    return results


SMALL: dict[str, Any] = {"inputs": (250, 0.3)}
LARGE: dict[str, Any] = {"inputs": (5_000, 0.1)}
MIXED: dict[str, Any] = {"inputs": (500, 0.5), "large": 0.05, "large_input": 20_000}
LOADS: tuple[tuple[str, Kind, float, dict[str, Any]], ...] = (
    ("requests", "requests", 3_000, {}),
    ("requests of a small limit", "requests", 60, {}),
    ("input", "input", 2.4e6, {"inputs": (1000, 0.5)}),
    ("output", "output", 6e5, {}),
    ("input, 5 % of them large", "input", 2.4e6, MIXED),
)
SCENES: dict[str, tuple[Kind, float, list[Kernel]]] = {
    f"{name}, {count} kernels": (kind, per_minute, [Kernel(jobs)] * count)
    for (name, kind, per_minute, jobs), count in product(LOADS, (1, 2, 4))
}
SCENES |= {
    "input, 250 beside 5,000 tokens": ("input", 6e5, [Kernel(SMALL), Kernel(LARGE)]),
    "input, 3 of 250 beside 5,000": ("input", 6e5, [Kernel(LARGE), *[Kernel(SMALL)] * 3]),
    **{
        f"input, 70 % of the bucket each, {count} kernels": ("input", 6e5, [Kernel({"inputs": (7_000, 0.05)})] * count)
        for count in (1, 2, 4)
    },
    "requests, the second after 10 s": ("requests", 3_000, [Kernel(), Kernel(from_s=10.0)]),
    "requests, one needs only 20 %": ("requests", 3_000, [Kernel(), Kernel(per_s=10.0, count=2_000)]),
    "output, one needs only 20 %": ("output", 6e5, [Kernel(), Kernel(per_s=6.0, count=2_000)]),
}


def of_scene(name: str, capacity_s: float, *, shared: bool, seeds: int = SEEDS) -> tuple[list[list[float]], float]:
    """Return each kernel's part of the limit for each seed, and the worst part of requests that was refused."""
    kind, per_minute, kernels = SCENES[name]
    limit = {"requests": "rpm", "input": "itpm", "output": "otpm"}[kind]
    parts: list[list[float]] = []
    refused: list[float] = []
    until_s = LONG_S if per_minute <= FEW else UNTIL_S
    for seed in range(seeds):
        server = Server(**{limit: per_minute}, capacity_s=capacity_s)  # pyright: ignore[reportArgumentType]
        results = together(server, kernels, seed, shared=shared, until_s=until_s)
        since_s = max(FROM_S, *(kernel.from_s + 2.0 for kernel in kernels))
        parts.append([result.share(kind, per_minute, since_s, until_s) for result in results])
        refused.append(sum(len(one.refused) for one in results) / sum(len(one.sent) for one in results))
    return parts, max(refused)


def main() -> None:
    """Print the table."""
    print_heading("Kernels on one key", f"Second {FROM_S:g} to {UNTIL_S:g}, of few requests {LONG_S:g}; {SEEDS} seeds.")
    rows: list[tuple[object, ...]] = []
    for name, capacity_s in product(SCENES, (1, 10)):
        row: list[object] = [name, capacity_s]
        for shared in (True, False):
            parts, refused = of_scene(name, capacity_s, shared=shared)
            sums = [sum(each) for each in parts]
            split = "/".join(f"{100 * median(column) / median(sums):.0f}" for column in zip(*parts, strict=True))
            row += [f"{median(sums):.3f}", f"{min(sums):.3f}", split, f"{100 * refused:.2f}"]
        rows.append(tuple(row))
    columns = ("of limit", "worst", "split", "refused %")
    print_table(("kernels", "capacity, s", *columns, *(f"headers: {one}" for one in columns)), rows)


if __name__ == "__main__":
    main()
