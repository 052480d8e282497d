"""What requests on workers cost the kernel, beside requests of its own, and how soon it notices that a worker is gone.

The streams of workers come from a process that makes up text ten times a second on each of them, over the connection
that Dask would make: only the kernel's side is measured. Its own streams are read over HTTP, 50 events a second each.

    python -m benchmarks.workers
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from agent_magic.errors import Unreachable
from agent_magic.providers.anthropic.client import Claude
from agent_magic.providers.base import EVERYTHING, Provider, Stream
from agent_magic.providers.dask.fleet import Fleet
from agent_magic.providers.dask.serving import serve
from agent_magic.record.answer import Answer, Usage
from agent_magic.record.request import Request
from benchmarks.instant_server import MODEL, PIECE, instant_server
from benchmarks.measuring import print_heading, print_table

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from multiprocessing.connection import Connection

EVENTS_PER_S = 50
SECONDS = 4.0
ROUNDS = 3
CALLS = 500
AT_ONCE = 40


class MadeUp(Provider):
    """Answers with made-up text: so many pieces, ten a second."""

    capabilities = EVERYTHING
    endpoint = "made up"

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Write the pieces."""
        stream.replied(200)
        stream.opened()
        for number in range(request.max_tokens):
            if number:
                await asyncio.sleep(0.1)
            stream.add(PIECE * 5)
        return Answer(stream.text, "end_turn", usage=Usage(10, output_tokens=10), model=MODEL)


def worker(pipe: Connection) -> None:
    """Be a worker, in a process of its own."""
    import distributed.comm.core as comms

    core: Any = comms

    async def listen() -> None:
        listener = await core.listen("tcp://127.0.0.1:0", partial(serve, make=lambda **_: MadeUp()))
        pipe.send(listener.contact_address)
        await asyncio.Event().wait()

    asyncio.run(listen())


class Hub:
    """One worker that is there."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def start(self) -> None:
        """Do nothing: it runs."""

    async def names(self) -> dict[str, str]:
        """Return its name."""
        return {self._address: "worker"}

    async def connect(self, address: str) -> Any:
        """Connect to it."""
        import distributed.comm.core as comms

        core: Any = comms
        return await core.connect(address)

    async def release(self, address: str) -> None:
        """Do nothing."""

    async def retire(self, address: str) -> None:
        """Do nothing."""

    async def grow(self, workers: int) -> None:
        """Do nothing."""


@asynccontextmanager
async def a_fleet() -> AsyncGenerator[tuple[Fleet, Any]]:
    """Start a worker and connect to it; yields both."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=worker, args=(there,), daemon=True)
    process.start()
    fleet = Fleet(Hub(await asyncio.to_thread(here.recv)), {}, dict)
    await fleet.start()
    try:
        yield fleet, process
    finally:
        await fleet.close()
        process.kill()


def request(pieces: int) -> Request:
    """Return a request for so many pieces."""
    return Request(MODEL, "Say something.", pieces)


async def _send(way: Fleet | Provider, pieces: int) -> Answer:
    return await way.send(request(pieces), Stream())


async def _streams(send: Any, count: int, seconds: float) -> float:
    """Return the kernel's CPU, in microseconds per stream and second, while so many streams flow."""
    tasks = [asyncio.ensure_future(send()) for _ in range(count)]
    await asyncio.sleep(1.5)  # all have begun
    before = time.process_time()
    await asyncio.sleep(seconds)
    used = time.process_time() - before
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return used / count / seconds * 1e6


async def _calls(send: Any) -> float:
    """Return the kernel's CPU, in microseconds per call of a few events."""
    await asyncio.gather(*(send() for _ in range(AT_ONCE)))
    before = time.process_time()
    for _ in range(CALLS // AT_ONCE):
        await asyncio.gather(*(send() for _ in range(AT_ONCE)))
    return (time.process_time() - before) / (CALLS // AT_ONCE * AT_ONCE) * 1e6


async def _detection(fleet: Fleet, process: Any) -> float:
    """Return how long after a kill the last of forty requests knows, in milliseconds."""
    tasks = [asyncio.ensure_future(fleet.send(request(1000), Stream())) for _ in range(AT_ONCE)]
    await asyncio.sleep(1.0)
    then = time.monotonic()
    os.kill(process.pid, signal.SIGKILL)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, Unreachable) for one in found)
    return (time.monotonic() - then) * 1000


async def main() -> None:
    """Print both tables."""
    many = int((SECONDS + 3) * EVENTS_PER_S)
    rows: list[tuple[object, ...]] = []
    calls: list[tuple[float, float]] = []
    found: dict[str, list[float]] = {name: [] for name in ("100 direct", "100", "1,000", "2,000")}
    with instant_server() as url:
        for _ in range(ROUNDS):
            dripping = Claude(base_url=f"{url}/drip/{many}/{1000 // EVENTS_PER_S}", api_key="k")
            async with dripping.open():
                found["100 direct"].append(await _streams(partial(_send, dripping, 9), 100, SECONDS))
            quick = Claude(base_url=f"{url}/whole/5", api_key="k")
            async with quick.open(), a_fleet() as (fleet, _):
                direct = await _calls(partial(_send, quick, 9))
                calls.append((direct, await _calls(partial(_send, fleet, 1))))
                for count in (100, 1000, 2000):
                    used = await _streams(partial(_send, fleet, 10_000), count, SECONDS)
                    found[f"{count:,}"].append(used)
    base = median(found["100 direct"])
    targets = {"100": 200, "1,000": 30, "2,000": 20}
    for name, used in found.items():
        each = ", ".join(f"{one:,.0f}" for one in used)
        rows.append((name, f"{median(used):,.0f}", f"{base / median(used):,.0f}", targets.get(name, ""), each))
    print_heading("Streams", "CPU of the kernel, in microseconds per stream and second.")
    print_table(("streams", "median", "times less", "target", "rounds"), rows)
    direct, over = (median(column) for column in zip(*calls, strict=True))
    print_heading("Calls", "CPU of the kernel, in microseconds per call of a few events.")
    print_table(
        ("way", "median", "times less", "target"),
        [("direct", f"{direct:,.0f}", 1, ""), ("worker", f"{over:,.0f}", f"{direct / over:,.1f}", 200)],
    )
    noticed: list[float] = []
    for _ in range(ROUNDS):
        async with a_fleet() as (fleet, process):
            noticed.append(await _detection(fleet, process))
    print_heading("A killed worker", "Milliseconds until the last of 40 requests has failed.")
    print_table(("", "median", "worst"), [("kill -9", f"{median(noticed):,.0f}", f"{max(noticed):,.0f}")])


if __name__ == "__main__":
    asyncio.run(main())
