"""The pacer over real HTTP with the real SDK, against the mock server: beside what people write without one.

All clients send the same requests to a server of their own, one client after the other, about 25 seconds each. The
figures are the server's: its journal says what came when and how it was answered.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import anthropic

from agent_magic.api import Agent, Plan, Policy, Session
from agent_magic.engine.admission.pool import Key
from agent_magic.engine.contract import Hold
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.errors import CallError, RateLimited
from agent_magic.providers.anthropic.client import Claude, body
from agent_magic.providers.base import Stream
from agent_magic.record.request import Request
from agent_magic.simulator import start
from benchmarks.measuring import print_heading, print_table

MODEL = "claude-sonnet-5-5"
ATTEMPTS = 3
REFUSED = 429
AT_ONCE = 100
CHARS_PER_TOKEN = 4
PROSE = "Think of the system and say what it needs. "


@dataclass(frozen=True)
class Load:
    """Requests that one limit holds for about 25 seconds."""

    name: str
    limits: dict[str, float]
    column: str | None
    count: int
    words: float
    tokens: float

    def requests(self, seed: int) -> list[Request]:
        """Write the requests. Each asks for an answer of a length of its own, and comes after a time of its own."""
        random = Random(seed)
        found: list[Request] = []
        for number in range(self.count):
            size = int(self.words * math.exp(random.gauss(0, 0.4)))
            made = max(1, int(self.tokens * math.exp(random.gauss(0, 0.6))))
            seconds = 0.8 * math.exp(random.gauss(0, 0.6))
            asked = f"[[tokens:{made}]] [[ttft:{0.3 * seconds:.3f}]] [[pace:{made / (0.7 * seconds):.1f}]]"
            found.append(Request(MODEL, f"{number} {PROSE * size}{asked}", 4_000))
        return found


LOADS = (
    Load("requests: 3,000 a minute", {"rpm": 3_000}, None, 1_200, 1, 20),
    Load("input: 2.4 M a minute", {"itpm": 2.4e6}, "input_tokens", 900, 95, 20),
    Load("output: 600 k a minute", {"otpm": 6e5}, "output_tokens", 720, 1, 280),
)
Client = Callable[[str, list[Request]], Awaitable[int]]


async def gathered(url: str, requests: list[Request], slots: int | None = None) -> int:
    """Send all at once, or so many at once, with the SDK's own retries. Return how many failed."""
    gate = asyncio.Semaphore(slots or len(requests))
    http = anthropic.DefaultAioHttpClient(trust_env=False)
    async with anthropic.AsyncAnthropic(api_key="x", base_url=url, max_retries=2, http_client=http) as sdk:

        async def one(request: Request) -> bool:
            async with gate:
                try:
                    await sdk.messages.create(**body(request))
                except anthropic.APIError:
                    return False
                return True

        return (await asyncio.gather(*map(one, requests))).count(False)


async def fifty(url: str, requests: list[Request]) -> int:
    """Send at most fifty at once: the rate times the latency, which nobody knows beforehand."""
    return await gathered(url, requests, 50)


class _Heard:
    """Tells the pacer what the headers of a reply say."""

    def __init__(self, pacer: Pacer, key: Key, ticket: Any, changed: asyncio.Event) -> None:
        self._pacer, self._key, self._ticket, self._changed = pacer, key, ticket, changed

    def replied(self, stream: Stream) -> None:
        """Hand the readings on; those of a refusal come again."""
        self._key.replied(stream.status_code)
        if stream.status_code != REFUSED:
            self._pacer.heard(self._ticket, stream.readings, time.monotonic())
        self._changed.set()

    def opened(self, stream: Stream) -> None:
        """An answer that has begun changes nothing here."""

    def first_token(self, stream: Stream) -> None:
        """Nor does its first token."""


class Driver:
    """The least that drives a pacer: one line of requests, a task each, the first alone until its reply begins."""

    def __init__(self, url: str, requests: list[Request]) -> None:
        self._claude, self._pacer, self._key = Claude(base_url=url, api_key="x"), Pacer(), Key()
        self._waiting = list(reversed([(request, 1) for request in requests]))
        self._under_way = self.failed = 0
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Send all, in order. Return how many failed."""
        async with self._claude.open(), asyncio.TaskGroup() as group:
            while self._waiting or self._under_way:
                self._changed.clear()
                wait_s = self._send(group)
                try:
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                except TimeoutError:
                    pass
        return self.failed

    def _send(self, group: asyncio.TaskGroup) -> float | None:
        """Send what may go. Return the seconds until more may."""
        while self._waiting:
            request, number = self._waiting[-1]
            now = time.monotonic()
            if not self._key.accepted and (until_s := self._key.wait_until_s(now)) is not None:
                return until_s - now
            got = self._pacer.ask(MODEL, len(request.prompt) // CHARS_PER_TOKEN, 500, now)
            if isinstance(got, Hold):
                return got.until_s - now
            self._key.left(now)
            self._waiting.pop()
            self._under_way += 1
            group.create_task(self._one(request, number, got))
        return None

    async def _one(self, request: Request, number: int, ticket: Any) -> None:
        stream = Stream(_Heard(self._pacer, self._key, ticket, self._changed))
        try:
            answer = await self._claude.send(request, stream)
            usage = answer.usage
            self._pacer.finished(ticket, usage.input_tokens, usage.output_tokens, time.monotonic())
        except RateLimited as error:
            self._pacer.refused(ticket, error.retry_after_s, error.limit, time.monotonic(), stream.readings)
            self._again(request, number)
        except CallError:
            self._pacer.finished(ticket, None, None, time.monotonic())
            self._again(request, number)
        finally:
            self._under_way -= 1
            self._changed.set()

    def _again(self, request: Request, number: int) -> None:
        if number < ATTEMPTS:
            self._waiting.append((request, number + 1))
        else:
            self.failed += 1


async def paced(url: str, requests: list[Request]) -> int:
    """Send through a pacer that is told nothing."""
    return await Driver(url, requests).run()


CLIENTS: dict[str, Client] = {"gather, max_retries=2": gathered, "semaphore(50)": fifty, "pacer": paced}


async def over_http() -> None:
    """Print a table: every load, every client."""
    note = "Each client has a server of its own, whose bucket holds one second's worth. About 25 seconds each."
    print_heading("Over HTTP, limits and capacity unknown, nothing set", note)
    rows: list[tuple[object, ...]] = []
    for load in LOADS:
        for name, client in CLIENTS.items():
            with start(**load.limits) as server:  # pyright: ignore[reportArgumentType]
                began, cpu = time.monotonic(), time.process_time()
                failed = await client(server.url, load.requests(1))
                wall_s, cpu_ms = time.monotonic() - began, 1000 * (time.process_time() - cpu) / load.count
                entries = await asyncio.to_thread(journal, server.url)
            share, refused = judge(load, entries)
            limit = load.name.partition(":")[0]
            part = "all at once" if share is None else f"{share:.3f}"
            rows.append((limit, name, part, f"{refused:.2f}", failed, f"{wall_s:.1f}", f"{cpu_ms:.1f}"))
    print_table(("limit", "client", "share", "refused %", "failed", "wall s", "CPU ms/request"), rows)


async def at_once() -> None:
    """Print how long agents of one second take where nothing limits them and nobody says so."""
    print_heading("Nothing announced", f"{AT_ONCE} agents of one second, concurrency {AT_ONCE}; one session.")
    rows: list[tuple[object, ...]] = []
    for first_s in (0.3, 0.95):
        answer = f"[[tokens:20]] [[ttft:{first_s}]] [[pace:{20 / (1 - first_s):.1f}]]"
        plan = Plan([Agent(f"a{number}", f"{number} {answer}") for number in range(AT_ONCE)])
        with start(unlimited=True) as server:
            session, took_s = Session(client=Claude(base_url=server.url, api_key="x")), list[float]()
            for _ in range(3):
                run = await plan.run(Policy(AT_ONCE), session=session)
                took_s.append(run.totals.wall_s or math.nan)
        rows.append((f"begin after {first_s} s", *(f"{one:.2f}" for one in took_s)))
    print_table(("answers", "first run, s", "second", "third"), rows)


def journal(url: str) -> list[dict[str, Any]]:
    """Return what the server noted of every message request."""
    with urllib.request.urlopen(f"{url}/simulator/log") as reply:
        return [entry for entry in json.load(reply)["requests"] if entry["route"] == "/v1/messages"]


def judge(load: Load, entries: list[dict[str, Any]]) -> tuple[float | None, float]:
    """Return the share of the permitted rate after the first answer, and the percentage refused.

    The share is `None` if nothing was let in after it.
    """
    let_in = [entry for entry in entries if entry["status"] == 200]
    first = min(entry["first_byte_s"] for entry in let_in)
    last = max(entry["started_s"] for entry in let_in)
    rate = next(iter(load.limits.values())) / 60
    if load.column == "output_tokens":  # counted as it is produced, so that the first of it comes a second later
        first += 1.0
        got = sum(_produced(entry, first, last) for entry in let_in)
    else:
        got = sum(entry[load.column] if load.column else 1 for entry in let_in if first < entry["started_s"] <= last)
    share = got / (rate * (last - first)) if last > first else None
    return share, 100 * (1 - len(let_in) / len(entries))


def _produced(entry: dict[str, Any], first: float, last: float) -> float:
    """Return the tokens of an answer that were produced between two times."""
    begin, end = entry["first_byte_s"], entry["finished_s"]
    inside = max(0.0, min(end, last) - max(begin, first))
    return entry["output_tokens"] * (inside / (end - begin) if end > begin else float(first < end <= last))
