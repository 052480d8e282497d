"""What a request and a streamed event cost over the bare SDK, and how late the event loop gets.

Bare is `AsyncAnthropic(max_retries=0, http_client=DefaultAioHttpClient())` with `messages.create(stream=True)`, every
event read and thrown away. Ours is `Plan.run` with as many agents, each with a prompt of its own; and the same with the
live view on, ticking ten times a second as in a notebook. There is no kernel here: the view's messages are encoded as
JSON, as a kernel does, and dropped. Making the first picture and the last one happens once a run and is left out.

The server answers at once, from another process. Run it with `python -m benchmarks.requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping
from statistics import quantiles
from typing import Any

import anthropic
import comm
from comm.base_comm import BaseComm

from agent_magic.api import Agent, Claude, Plan, Policy, Session, start
from agent_magic.live.driver import Driver
from agent_magic.show.live import LiveView, make_live_view
from benchmarks.instant_server import MODEL, instant_server
from benchmarks.measuring import Case, in_rounds, print_heading, print_table, ratio

TICK_S = 0.1
PROBE_S = 0.005
CONCURRENCY = {1: 300, 10: 300, 100: 500}
"""Requests at once, and how many in a round."""
KINDS = ("bare SDK", "ours", "ours, live view")


class JsonComm(BaseComm):
    """Encodes what a widget sends, as a kernel does before it writes it to its socket."""

    def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **_: Any) -> None:
        """Encode a message."""
        json.dumps({"type": msg_type, "data": data, "metadata": metadata}).encode()


class Bench:
    """The clients of one address, kept open over all rounds: connections are warm, and the pacer knows the limits."""

    def __init__(self, address: str) -> None:
        http = anthropic.DefaultAioHttpClient(trust_env=False)
        self._sdk = anthropic.AsyncAnthropic(api_key="x", base_url=address, max_retries=0, http_client=http)
        self._claude = Claude(base_url=address, api_key="x")
        self._session = Session(client=self._claude)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Hold the connections."""
        async with self._sdk, self._claude.open():
            yield

    def cases(self, requests: int, at_once: int) -> Mapping[str, Case]:
        """Return what to compare; each case prepares when it is called, and works when it is awaited."""
        plan = Plan(tuple(Agent(f"a{number}", f"Question number {number}.") for number in range(requests)))
        policy = Policy(concurrency=at_once)
        return dict(
            zip(
                KINDS,
                (
                    lambda: self._bare(requests, at_once),
                    lambda: checked(start(plan, policy, session=self._session)),
                    lambda: shown(start(plan, policy, session=self._session)),
                ),
                strict=True,
            )
        )

    async def _bare(self, requests: int, at_once: int) -> None:
        numbers = iter(range(requests))

        async def worker() -> None:
            for number in numbers:
                message: Any = {"role": "user", "content": f"Question number {number}."}
                events = await self._sdk.messages.create(model=MODEL, max_tokens=2048, messages=[message], stream=True)
                async for _ in events:
                    pass

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(worker())


async def checked(driver: Driver) -> None:
    """Run, and raise unless every agent succeeded."""
    await driver.drive()
    assert all(result.status == "succeeded" for result in driver.record.results)


def shown(driver: Driver) -> Coroutine[Any, Any, None]:
    """Make the live view; what is returned runs under it."""
    view = make_live_view(driver.record, lambda *_: driver.stop())

    async def run() -> None:
        ticking = asyncio.create_task(tick(driver, view))
        try:
            await checked(driver)
        finally:
            ticking.cancel()

    return run()


async def tick(driver: Driver, view: LiveView) -> None:
    """Keep a view up to date, as a notebook does."""
    while True:
        await asyncio.sleep(TICK_S)
        view.tick(driver.now(), {agent: stream.tail() for agent, stream in driver.streams.items()})


async def per_request(server: str) -> None:
    """Compare whole requests of 10 events."""
    rows: list[tuple[object, ...]] = []
    bench = Bench(f"{server}/whole/10")
    async with bench.open():
        for at_once, requests in CONCURRENCY.items():
            rows += await compared(bench, f"{at_once} at once", requests, at_once, rounds=7)
    print("Per request of 10 events. Target: 1.05.\n")
    print_table(("requests", "client", "us per request", "ratio"), rows)


async def per_event(server: str) -> None:
    """Compare long streams, by event."""
    rows: list[tuple[object, ...]] = []
    for name, path, requests, at_once, rounds in (
        ("200 events in one write, 10 at once", "whole/200", 40, 10, 7),
        ("200 events 10 ms apart, 30 at once", "drip/200/10", 30, 30, 5),
    ):
        bench = Bench(f"{server}/{path}")
        async with bench.open():
            rows += await compared(bench, name, requests, at_once, rounds=rounds, events=200)
    print("Per event. Target: 1.2 with the live view on.\n")
    print_table(("streams", "client", "us per event", "ratio"), rows)


async def compared(
    bench: Bench, name: str, requests: int, at_once: int, *, rounds: int, events: int = 1
) -> list[tuple[object, ...]]:
    """Measure the three clients in turn. Returns rows of name, client, microseconds and ratio."""
    cases = bench.cases(requests, at_once)
    for case in cases.values():
        await case()  # opens connections and fills caches
    times = await in_rounds(cases, rounds)
    bare = times[KINDS[0]]
    return [
        (name, kind, f"{min(found) / requests / events * 1e6:.1f}", f"{ratio(found, bare):.2f}x")
        for kind, found in times.items()
    ]


async def lateness(server: str) -> None:
    """Measure how late a timer fires while 100 streams arrive at 50 events a second for 10 s."""
    rows: list[tuple[object, ...]] = []
    bench = Bench(f"{server}/drip/500/20")
    async with bench.open():
        cases = bench.cases(100, 100)
        for kind in (*KINDS, *KINDS):
            late_ms, busy = await _probed(cases[kind]())
            cuts = quantiles(late_ms, n=100)
            rows.append((kind, f"{cuts[49]:.1f}", f"{cuts[98]:.1f}", f"{max(late_ms):.1f}", f"{busy:.0%}"))
    print("How late a timer fires, in ms, while 100 streams arrive at 50 events a second each. Target: p99 under 20.\n")
    print_table(("client", "p50 ms", "p99 ms", "most ms", "of a core"), sorted(rows))


async def _probed(work: Awaitable[object]) -> tuple[list[float], float]:
    """Return how late timers were meanwhile, in ms, and the share of a core that was used."""
    late_ms: list[float] = []

    async def probe() -> None:
        while True:
            due = time.monotonic() + PROBE_S
            await asyncio.sleep(PROBE_S)
            late_ms.append((time.monotonic() - due) * 1000)

    began, used = time.monotonic(), time.process_time()
    probing = asyncio.create_task(probe())
    await work
    probing.cancel()
    return late_ms, (time.process_time() - used) / (time.monotonic() - began)


async def main() -> None:
    """Measure all three."""
    comm.create_comm = JsonComm
    note = "CPU time of this process over the bare SDK's, least of the rounds; ratios are medians of the rounds."
    print_heading("Requests and streams", note)
    with instant_server() as server:
        await per_request(server)
        await per_event(server)
        await lateness(server)


if __name__ == "__main__":
    asyncio.run(main())
