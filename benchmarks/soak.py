"""A hundred agents at once for minutes, with faults: is every row there, is memory flat, is the event loop free?

The mock server refuses some requests (429), is overloaded for some (529), cuts some streams and answers some slowly.
Every agent is to succeed all the same, with one row, and each of its requests is to be one at the server. Run it with
`python -m benchmarks.soak [SECONDS]`; ten minutes by default.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import agent_magic as am
from benchmarks.measuring import print_heading, print_table

SECONDS = 600.0
AT_ONCE = 100
RETRY_AFTER_S = 1
FAULTS = {
    25: f"[[status:429 retry_after={RETRY_AFTER_S} times=1]]",
    6: "[[status:529 times=1]]",
    7: "[[fault:cut times=1]]",
    11: "[[pace:12]]",
}
"""What every so many-th agent meets. A 429 says nothing of limits, so the pacer takes it for no limit after a pause."""
LIMITS: dict[str, Any] = {"rpm": 3000.0, "itpm": 5e6, "otpm": 5e6, "burst_s": 10.0}
ALERTS = am.Alerts("p95 > 30", "errors > 60%")


@dataclass
class Soak:
    """What a soak found.

    Attributes:
        rounds: Runs of `AT_ONCE` agents.
        agents: Rows.
        lost: Agents without a row, or not at their end.
        succeeded: Agents that succeeded.
        requests: Requests that the runs know of.
        served: Requests that the server counted.
        errors: Failed requests by category.
        seconds: How long it took.
        took_s: `total_s` of the agents.
        overhead_s: By round: its wall time less the requests and backoff of its longest agent, and less what the server
            had told all to wait before that agent's first request.
        shut_s: By round: how long the server had told all to wait.
        lags_s: How late the event loop was, each quarter of a second.
        rss_mb: Memory at the end of each round.
        alerts: Alerts raised.
    """

    rounds: int = 0
    agents: int = 0
    lost: int = 0
    succeeded: int = 0
    requests: int = 0
    served: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    took_s: list[float] = field(default_factory=list)
    overhead_s: list[float] = field(default_factory=list)
    shut_s: list[float] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)
    alerts: int = 0

    @property
    def growth_mb(self) -> float:
        """Memory at the end over that after a third, when caches are full."""
        return self.rss_mb[-1] - self.rss_mb[len(self.rss_mb) // 3]


def plan_of(number: int) -> am.Plan:
    """Return a hundred agents that nobody has asked before."""
    agents: list[am.Agent] = []
    for one in range(AT_ONCE):
        faults = " ".join(words for every, words in FAULTS.items() if one % every == every - 1)
        agents.append(am.Agent(f"a{one}", f"Round {number}, review {one}. [[tokens:{60 + one % 90}]] {faults}"))
    return am.Plan(agents, name=f"round {number}")


async def soak(seconds: float, latency: str = "ttft=0.5,pace=25,spread=0.4") -> Soak:
    """Run rounds of a hundred agents until the time is over."""
    found, began = Soak(), time.monotonic()
    with am.Simulator(latency=latency, **LIMITS) as server:
        client = am.Claude(base_url=server.url, api_key="none")
        async with am.Session(client=client, ledger=am.Ledger(":memory:"), alerts=ALERTS) as session:
            while time.monotonic() - began < seconds:
                found.rounds += 1
                add(found, await plan_of(found.rounds).run(am.Policy(AT_ONCE, max_attempts=6), session=session))
        found.served = await asyncio.to_thread(served, server.url)
    found.seconds = time.monotonic() - began
    return found


def served(url: str) -> int:
    """Ask the server how many requests for answers it had."""
    with urllib.request.urlopen(f"{url}/simulator/log") as reply:
        return sum("messages" in one["route"] for one in json.load(reply)["requests"])


def add(found: Soak, run: am.Run) -> None:
    """Add a run to what was found."""
    agents, attempts, kernel = run.agents, run.attempts, run.kernel
    found.agents += len(agents)
    found.lost += len(run.plan) - int(agents["total_s"].notna().sum())
    found.succeeded += int((agents["status"] == "succeeded").sum())
    found.requests += len(attempts)
    for kind, count in attempts["error_class"].value_counts().items():
        found.errors[str(kind)] = found.errors.get(str(kind), 0) + int(count)
    found.took_s += list(agents["total_s"])
    shut = shut_times(sorted(attempts.loc[attempts["error_class"] == "RateLimited", "finished_s"]))
    found.shut_s.append(sum(until_s - from_s for from_s, until_s in shut))
    sent_s: dict[str, float] = {}
    for name, began_s in _columns(attempts, "agent", "started_s"):
        sent_s[name] = min(began_s, sent_s.get(name, began_s))
    busy_s = [
        api_s + backoff_s + sum(max(0.0, min(until_s, sent_s[name]) - from_s) for from_s, until_s in shut)
        for name, api_s, backoff_s in _columns(agents, "agent", "api_s", "backoff_s")
    ]
    found.overhead_s.append((run.totals.wall_s or 0.0) - max(busy_s))
    found.lags_s += list(kernel["lag_s"])
    found.rss_mb.append(float(kernel["rss_mb"].iloc[-1]))
    found.alerts += len(run.alerts)


def _columns(frame: Any, *names: str) -> list[tuple[Any, ...]]:
    """Return the rows of some columns."""
    return list(zip(*(frame[name] for name in names), strict=True))


def shut_times(refused_s: list[float]) -> list[tuple[float, float]]:
    """Return when nothing might leave: for the second that each refusal names, counted once where they overlap."""
    found: list[tuple[float, float]] = []
    for at_s in refused_s:
        if found and at_s <= found[-1][1]:
            found[-1] = found[-1][0], at_s + RETRY_AFTER_S
        else:
            found.append((at_s, at_s + RETRY_AFTER_S))
    return found


def share(values: list[float], percent: float) -> float:
    """Return a percentile by nearest rank."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def main() -> None:
    """Print what a soak found beside its targets."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    print_heading("A soak", f"{AT_ONCE} agents at once for {seconds:.0f} s, with faults, over HTTP.")
    found = asyncio.run(soak(seconds))
    lag_ms, overhead_s = 1000 * share(found.lags_s, 99), max(found.overhead_s)
    errors = ", ".join(f"{kind} {count:,}" for kind, count in found.errors.items())
    rows = [
        (
            "agents",
            f"{found.agents:,} in {found.rounds} rounds, {found.agents / found.seconds:.1f} a second",
            "5 to 10",
        ),
        ("succeeded", f"{found.succeeded / found.agents:.2%}", "99.5 %"),
        ("rows lost", f"{found.lost:,}", "0"),
        ("requests, here and at the server", f"{found.requests:,} and {found.served:,}", "equal"),
        ("failed requests, all mended", errors, "as injected"),
        ("p50, p95 of an agent", f"{share(found.took_s, 50):.1f} s, {share(found.took_s, 95):.1f} s", "2 to 15 s"),
        ("overhead of a round, at most", f"{overhead_s:.2f} s", "under 2 s"),
        ("429s told all to wait, of a round", f"{min(found.shut_s):.1f} to {max(found.shut_s):.1f} s", "as injected"),
        ("loop lag p99", f"{lag_ms:.1f} ms of {len(found.lags_s):,} samples", "under 50 ms"),
        (
            "memory",
            f"{found.rss_mb[0]:.0f} MB first, {found.rss_mb[-1]:.0f} MB last, {found.growth_mb:+.1f} MB",
            "flat",
        ),
        ("alerts", f"{found.alerts:,}", ""),
    ]
    print_table(("what", "measured", "target"), rows)


if __name__ == "__main__":
    main()
