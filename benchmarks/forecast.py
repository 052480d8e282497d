"""Forecasts: how fast they are, and how far off, against what really happens over HTTP with the real SDK.

`python -m benchmarks.forecast` prints both. With the word `servers` it prints only servers that share their speed, with
`drawn` only servers that are drawn, on virtual time, and with `ahead` only estimates before a run. The mock server
answers; its durations are drawn per request as always, so a run that is repeated takes the same time again, and what
differs is what the forecast has to know.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

from agent_magic.api import Agent, Claude, Plan, Policy, Run, Session
from agent_magic.forecast.calibration import calibration
from agent_magic.forecast.forecast import Scenario
from agent_magic.record.history import History
from agent_magic.simulator import start
from benchmarks.drawn_servers import print_coverage
from benchmarks.measuring import print_heading, print_table

AGENTS = 100
MOST_S = 10.0
EVERY_CONCURRENCY: dict[str, Any] = {"concurrency": list(range(1, 51)), "schedule": ["ready", "layers"]}
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("concurrency, schedule, cache, limits", {"cache": [None, "off"], "limits": [None, 300, 600, 1_200, 3_000]}),
    (
        "and limits that bind, concurrency to 10",
        {"concurrency": list(range(1, 11)), "limits": list(range(60, 560, 10))},
    ),
    (
        "other models, with low and high",
        {
            "model": [None, "claude-sonnet-5-5", "claude-opus-5-5", "claude-fable-5-2", {"a3": "claude-opus-5-5"}],
            "limits": [None, 600],
        },
    ),
)
EVERY_LIMIT = {"requests": 200, "input_tokens": 40_000, "output_tokens": 20_000}
EVERY_SIMULATED = {"rpm": 200, "itpm": 40_000, "otpm": 20_000}
FULL_MINUTE = {"input_tokens": 30_000, "burst_s": 60.0}
CONTEXT = "The service keeps accounts, moves money between them and reports on both. " * 400


@dataclass(frozen=True)
class Case:
    """One change of policy.

    Attributes:
        kind: What changes.
        policy: How the plan is really run.
        asked: The same as arguments of `whatif`.
        simulator: Options of the mock server for the real run, where they differ.
    """

    kind: str
    policy: Policy
    asked: Mapping[str, Any]
    simulator: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Study:
    """A plan that is run once as recorded, and then once for each change.

    Attributes:
        plan: The plan.
        policy: How it is recorded.
        simulator: Options of the mock server for all of its runs.
        cases: The changes.
    """

    plan: Plan
    policy: Policy
    simulator: Mapping[str, Any]
    cases: tuple[Case, ...]


def layered(count: int) -> Plan:
    """Write a plan in layers, some of whose agents share a context."""
    agents: list[Agent] = []
    for number in range(count):
        parents = [] if number < count // 4 else [number - count // 4, (number * 7) % (number - count // 8)]
        asks = " ".join(f"{{{{ a{parent} }}}}" for parent in dict.fromkeys(parents))
        size = 40 + (number * 37) % 160
        prompt = f"Part {number} of the review. {asks} [[tokens:{size}]]"
        agents.append(Agent(f"a{number}", prompt, context="service" if number % 3 == 0 else None))
    return Plan(agents, {"service": CONTEXT}, name="layered")


def wide(count: int) -> Plan:
    """Write a plan of independent agents and one that reads them all."""
    lot = Random(1)
    agents = [Agent(f"w{number}", f"Item {number}. [[tokens:{lot.randrange(20, 300)}]]") for number in range(count)]
    everything = " ".join(f"{{{{ {agent.name} }}}}" for agent in agents)
    return Plan([*agents, Agent("sum", f"Sum up. {everything} [[tokens:120]]")], name="wide")


def chains(count: int, length: int) -> Plan:
    """Write a plan of chains side by side."""
    lot, agents = Random(2), list[Agent]()
    for chain in range(count):
        for step in range(length):
            before = f"{{{{ c{chain}_{step - 1} }}}}" if step else ""
            size = lot.randrange(20, 260)
            agents.append(Agent(f"c{chain}_{step}", f"Step {step} of {chain}. {before} [[tokens:{size}]]"))
    return Plan(agents, name="chains")


def reduced(count: int) -> Plan:
    """Write a plan of agents over one context, of two models, some of which fail once; three join them, one those."""
    lot, models = Random(3), ("claude-haiku-5-5", "claude-haiku-5-5", "claude-sonnet-5-5")
    agents = [
        Agent(
            f"m{number}",
            f"Map {number}. {'[[status:529 times=1]]' if number % 5 == 2 else ''} [[tokens:{lot.randrange(20, 300)}]]",
            model=models[number % 3],
            context="service",
        )
        for number in range(count)
    ]
    for part in range(3):
        those = " ".join(f"{{{{ m{number} }}}}" for number in range(part, count, 3))
        agents.append(Agent(f"r{part}", f"Join {those} [[tokens:{lot.randrange(20, 300)}]]"))
    agents.append(Agent("all", "All {{ r0 }} {{ r1 }} {{ r2 }} [[tokens:150]]"))
    return Plan(agents, {"service": CONTEXT}, name="reduced")


STUDIES = (
    Study(
        layered(36),
        Policy(4),
        {"latency": "x0.5"},
        (
            Case("concurrency", Policy(3), {"concurrency": 3}),
            Case("concurrency", Policy(8), {"concurrency": 8}),
            Case("concurrency", Policy(16), {"concurrency": 16}),
            Case("schedule", Policy(4, schedule="layers"), {"schedule": "layers"}),
            Case("schedule", Policy(4, schedule="sequential"), {"schedule": "sequential"}),
            Case("schedule", Policy(8, schedule="layers"), {"schedule": "layers", "concurrency": 8}),
            Case("limits", Policy(4), {"limits": 150}, {"rpm": 150}),
            Case("limits", Policy(8), {"limits": 120, "concurrency": 8}, {"rpm": 120}),
            Case("limits", Policy(8), {"limits": {"output_tokens": 20_000}, "concurrency": 8}, {"otpm": 20_000}),
            Case("limits", Policy(4), {"limits": {"input_tokens": 60_000}}, {"itpm": 60_000}),
            Case("cache", Policy(4, cache="off"), {"cache": "off"}),
            Case("cache", Policy(4, cache="on"), {"cache": "on"}),
            Case("cache", Policy(8, cache="off"), {"cache": "off", "concurrency": 8}),
        ),
    ),
    Study(
        wide(40),
        Policy(6),
        {"latency": "x0.3", "seed": 1},
        (
            Case("concurrency", Policy(12), {"concurrency": 12}),
            Case("limits", Policy(6), {"limits": {"output_tokens": 30_000}}, {"otpm": 30_000}),
            Case("limits", Policy(6), {"limits": {"input_tokens": 6_000}}, {"itpm": 6_000}),
        ),
    ),
    Study(
        chains(6, 5),
        Policy(3),
        {"latency": "ttft=0.15,pace=120,spread=0.6", "seed": 2},
        (
            Case("concurrency", Policy(6), {"concurrency": 6}),
            Case("schedule", Policy(4, schedule="layers"), {"schedule": "layers", "concurrency": 4}),
            Case("limits", Policy(3), {"limits": 120}, {"rpm": 120}),
            Case("limits", Policy(6), {"limits": {"output_tokens": 15_000}, "concurrency": 6}, {"otpm": 15_000}),
        ),
    ),
    Study(
        reduced(24),
        Policy(4),
        {"latency": "x0.4", "seed": 3},
        (
            Case("concurrency", Policy(12), {"concurrency": 12, "limits": "none"}, {"unlimited": True}),
            Case("limits", Policy(4), {"limits": {"input_tokens": 60_000}}, {"itpm": 60_000}),
            Case("limits", Policy(8), {"limits": EVERY_LIMIT, "concurrency": 8}, EVERY_SIMULATED),
            Case("limits", Policy(12), {"limits": FULL_MINUTE, "concurrency": 12}, {"itpm": 30_000, "burst_s": 60.0}),
            Case("cache", Policy(4, cache="off"), {"cache": "off", "limits": 300}, {"rpm": 300}),
        ),
    ),
    Study(
        wide(40),
        Policy(8),
        {"latency": "x0.3", "seed": 1, "rpm": 300, "otpm": 40_000},
        (
            Case("learned limits", Policy(3), {"concurrency": 3}),
            Case("learned limits", Policy(16, schedule="layers"), {"concurrency": 16, "schedule": "layers"}),
        ),
    ),
)


@dataclass(frozen=True)
class Found:
    """What came of one case: errors are relative to what was measured."""

    kind: str
    row: Sequence[str]
    off: float
    cost_off: float
    calibrated: bool


async def run_really(plan: Plan, policy: Policy, simulator: Mapping[str, Any]) -> Run:
    """Run a plan over HTTP against a mock server of its own."""
    server = start(**simulator)
    try:
        return await plan.run(policy, client=Claude(base_url=server.url, api_key="simulator"))
    finally:
        server.stop()


async def study(one: Study) -> list[Found]:
    """Record a plan, forecast every change before any is made, and make them."""
    base = await run_really(one.plan, one.policy, one.simulator)
    recorded_s = float(base.totals.wall_s or "nan")
    again_s = float(base.forecast().totals.wall_s or "nan")
    off = again_s / recorded_s - 1
    row = ["as recorded", f"{again_s:.2f}", f"{recorded_s:.2f}", f"{off:+.1%}", "", "", ""]
    found = [Found("as recorded", [one.plan.name, *row], abs(off), 0.0, calibrated=True)]
    asked = [base.whatif(**case.asked).iloc[0] for case in one.cases]
    for case, guess in zip(one.cases, asked, strict=True):
        run = await run_really(one.plan, case.policy, {**one.simulator, **case.simulator})
        found.append(_beside(case, guess, base, run))
    return found


def _beside(case: Case, guess: Any, base: Run, run: Run) -> Found:
    predicted, measured = float(guess["wall_s"]), float(run.totals.wall_s or "nan")
    off, cost_off = predicted / measured - 1, float(guess["cost_usd"]) / float(run.totals.cost_usd or "nan") - 1
    refused = sum(attempt.kind == "RateLimited" for attempt in run.record.attempts)
    words = ", ".join(f"{name}={value}" for name, value in case.asked.items())
    counts = [f"{guess['rate_limited']}", f"{refused}"]
    row = [base.plan.name, words, f"{predicted:.2f}", f"{measured:.2f}", f"{off:+.1%}", f"{cost_off:+.2%}", *counts]
    return Found(case.kind, row, abs(off), abs(cost_off), calibrated=bool(len(calibration(base, run))))


async def compare() -> None:
    """Print what was forecast beside what was measured."""
    found = [each for one in STUDIES for each in await study(one)]
    columns = ["plan", "whatif", "forecast s", "measured s", "wall off", "cost off", "429s forecast", "429s"]
    print_table(columns, [each.row for each in found])
    kinds = dict.fromkeys(each.kind for each in found)
    changed = [each for each in found if each.kind != "as recorded"]
    rows = [_spread(kind, [each.off for each in found if each.kind == kind]) for kind in kinds]
    print_table(["what changes", "n", "median off", "worst"], [*rows, _spread("all", [each.off for each in changed])])
    costs = [each.cost_off for each in changed]
    print(f"Dollars: {statistics.median(costs):.2%} off in the median, {max(costs):.2%} at the worst.")
    print(f"Calibration frames hold {sum(each.calibrated for each in changed)} of {len(changed)} forecasts.\n")


SERVERS: Mapping[str, Mapping[str, Any]] = {
    "constant": {"latency": "ttft=0.1,pace=150,spread=0.25"},
    "1 slot": {"slots": 1, "shared_rate": 400, "cap": 200},
    "4 slots": {"slots": 4, "shared_rate": 400, "cap": 200},
    "16 slots": {"slots": 16, "shared_rate": 600, "cap": 200},
    "long prompts": {"slots": 4, "shared_rate": 400, "cap": 200, "prompt_rate": 4_000},
    "hosted, soft limit": {"latency": "ttft=0.1,pace=200,spread=0.1", "shared_rate": 1_600, "cap": 200},
}
"""Servers whose speed depends on their load, beside one whose speed does not."""
DRAWN = 4
CONCURRENCIES = (1, 2, 4, 8, 16)
RECORDED_AT = 4
SAMPLE = 12


def drawn_servers(count: int) -> Mapping[str, Mapping[str, Any]]:
    """Draw servers that share their speed."""
    lot, found = Random(7), dict[str, Mapping[str, Any]]()
    for number in range(count):
        slots, cap = lot.choice([1, 2, 3, 6, 12]), lot.choice([100, 200, 300])
        rate = cap * lot.choice([1.0, 1.5, 2.5, 4.0])
        first_s, spread = lot.choice([0.02, 0.1]), lot.choice([0.0, 0.1])
        found[f"drawn {number + 1}: {slots} slots, {rate:g}/s, {cap}/s each"] = {
            "latency": f"ttft={first_s},pace={cap},spread={spread}",
            "slots": slots,
            "shared_rate": rate,
            "cap": cap,
        }
    return found


def rows_of_lengths(count: int) -> Plan:
    """Write a plan of rows whose prompts and answers have different lengths."""
    lot = Random(5)
    prompts = [f"Row {number}. {'word ' * lot.choice([1, 50, 200, 600])}" for number in range(count)]
    agents = [Agent(f"r{n}", f"{each} [[tokens:{lot.randrange(20, 160)}]]") for n, each in enumerate(prompts)]
    return Plan(agents, name="rows")


@dataclass(frozen=True)
class OnServer:
    """What one run on a server says of another concurrency, alone and after a sweep of two; errors are relative."""

    row: Sequence[str]
    concurrency: int
    constant: bool
    off: float
    after: float
    inside: bool


async def on_server(name: str, options: Mapping[str, Any]) -> list[OnServer]:
    """Run a plan at every concurrency on one server, and forecast all of them from one of these."""
    plan = rows_of_lengths(24)
    server = await asyncio.to_thread(lambda: start(**{"latency": "ttft=0.02,spread=0", "unlimited": True, **options}))
    try:
        client = Claude(base_url=server.url, api_key="simulator")
        runs = {each: await plan.run(Policy(each), client=client) for each in CONCURRENCIES}
        sweep = await plan.sweep([1, 8], client=client, sample=SAMPLE)
    finally:
        server.stop()
    base, found = runs[RECORDED_AT], list[OnServer]()
    alone = base.whatif(concurrency=list(CONCURRENCIES))
    records = [base.record, *(one.record for one in sweep.runs)]
    after = Run(base.record, history=History.beside(records)).whatif(concurrency=list(CONCURRENCIES))
    for place, each in enumerate(CONCURRENCIES):
        measured = float(runs[each].totals.wall_s or "nan")
        off = [float(frame.wall_s[place]) / measured - 1 for frame in (alone, after)]
        low, high = float(alone.wall_low_s[place]), float(alone.wall_high_s[place])
        within, constant = low <= measured <= high, "shared_rate" not in options
        span = f"{low:.2f}-{high:.2f}{'' if within else ' !'}"
        row = [name, str(each), f"{measured:.2f}", f"{off[0]:+.1%}", span, str(alone.basis[place]), f"{off[1]:+.1%}"]
        found.append(OnServer(row, each, constant, abs(off[0]), abs(off[1]), within))
    return found


async def on_servers() -> None:
    """Print what one run at a middle concurrency forecasts for others, with and without a sweep of two."""
    servers = {**SERVERS, **drawn_servers(DRAWN)}
    # One after the other: a forecast would stop the clock of another server's client.
    found = [each for name, options in servers.items() for each in await on_server(name, options)]
    columns = ["server", "concurrency", "measured s", "one run off", "range s", "basis", "after a sweep off"]
    print_table(columns, [each.row for each in found])
    others = [each for each in found if each.concurrency != RECORDED_AT]
    load = [each for each in others if not each.constant]
    evidence = {
        "one run, load matters: aims 15 %, worst 40 %": [each.off for each in load],
        "after a sweep of two: aim 5 %": [each.after for each in load],
        "one run, constant server: aim 4 %": [each.off for each in others if each.constant],
    }
    print_table(["evidence", "n", "median off", "worst"], [_spread(words, each) for words, each in evidence.items()])
    inside = sum(each.inside for each in others)
    print(f"Inside the range of one run: {inside} of {len(others)}. Aim: 80 of 100.\n")


SPEEDS: Mapping[str, Mapping[str, Any]] = {
    "as usual, at a twentieth": {"latency": "x0.05"},
    "constant": {"latency": "ttft=0.03,pace=600,spread=0.25"},
    "4 slots": {"latency": "ttft=0.02,spread=0", "slots": 4, "shared_rate": 1_600, "cap": 800},
}
"""Servers of other speeds than those that are assumed before the first run."""
AHEAD = (Policy(2), Policy(4), Policy(12), Policy(6, schedule="layers"))
"""How plans are run after the first run, which has the second of these policies."""


async def ahead_of_runs() -> None:
    """Print estimates before the first run, and after one earlier run of the same prompts, beside real runs."""
    rows: list[list[str]] = []
    errors: dict[str, list[float]] = {"before the first run": [], "after one run": []}
    inside = dict.fromkeys(errors, 0)
    costs: dict[str, list[float]] = {words: [] for words in errors}
    plans = layered(12), wide(10), chains(3, 3), reduced(9), rows_of_lengths(12)
    for (name, options), plan in product(SPEEDS.items(), plans):
        with start(**{"unlimited": True, **options}) as server:
            session = Session(client=Claude(base_url=server.url, api_key="simulator"))
            before = {policy: plan.estimate(policy, session=session) for policy in AHEAD}
            await plan.run(AHEAD[1], session=session)
            after = {policy: plan.estimate(policy, session=session) for policy in AHEAD}
            alone = Claude(base_url=server.url, api_key="simulator")
            runs = {policy: await plan.run(policy, client=alone) for policy in AHEAD}
        for words, found in zip(errors, (before, after), strict=True):
            for policy, run in runs.items():
                measured, cost = float(run.totals.wall_s or "nan"), float(run.totals.cost_usd or "nan")
                guess = found[policy]
                off = guess.wall_s.likely / measured - 1
                errors[words].append(abs(off))
                costs[words].append(abs((guess.cost.likely if guess.cost else float("nan")) / cost - 1))
                inside[words] += guess.wall_s.low <= measured <= guess.wall_s.high
                span = f"{guess.wall_s.low:.2f}-{guess.wall_s.high:.2f}"
                asked = f"{policy.concurrency} {policy.schedule}"
                rows.append([words, name, plan.name, asked, f"{measured:.2f}", f"{off:+.0%}", span])
    print_table(["estimated", "server", "plan", "policy", "measured s", "likely off", "low-high s"], rows)
    print_table(["seconds", "n", "median off", "worst"], [_spread(words, each) for words, each in errors.items()])
    print_table(["dollars", "n", "median off", "worst"], [_spread(words, each) for words, each in costs.items()])
    for words, count in inside.items():
        print(f"{words}: the interval holds {count} of {len(errors[words])}.")
    print("Aims after one run: 25 % in the median, 80 of 100 inside.\n")


def _spread(words: str, errors: Sequence[float]) -> list[str]:
    return [words, str(len(errors)), f"{statistics.median(errors):.1%}", f"{max(errors):.1%}"]


async def speed() -> None:
    """Print how long a thousand scenarios of a hundred agents take."""
    run = await run_really(layered(AGENTS), Policy(8), {"latency": "x0.1"})
    rows: list[list[str]] = []
    run.whatif()
    for words, given in ASKED:
        began, cpu = time.perf_counter(), time.process_time()
        frame = run.whatif(**{**EVERY_CONCURRENCY, **given})
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        rows.append([words, *_per_thousand(len(frame), wall_s, cpu_s)])
    print_table(["what varies", "scenarios", "wall s", "CPU s", "CPU s a thousand"], rows)
    one_s = min(_timed(run) for _ in range(5))
    print(f"One forecast as a value, the best of five: {1e3 * one_s:.1f} ms. Aim: {MOST_S:g} s for a thousand.\n")


def _per_thousand(count: int, wall_s: float, cpu_s: float) -> Iterable[str]:
    return f"{count:,}", f"{wall_s:.1f}", f"{cpu_s:.1f}", f"{1e3 * cpu_s / count:.1f}"


def _timed(run: Run) -> float:
    forecaster = run.forecaster()
    began = time.perf_counter()
    forecaster.forecast(Scenario())
    return time.perf_counter() - began


def main() -> None:
    """Print all tables."""
    began = time.perf_counter()
    if sys.argv[1:] == ["servers"]:
        asyncio.run(on_servers())
        return
    if sys.argv[1:] == ["drawn"]:
        print_coverage()
        return
    if sys.argv[1:] == ["ahead"]:
        asyncio.run(ahead_of_runs())
        return
    note = "One process. CPU time beside wall time. More slots than were ever in use change nothing and are not turned."
    print_heading(f"A thousand scenarios of {AGENTS} agents", note)
    asyncio.run(speed())
    print_heading("Forecasts of one run of each plan", "Beside real runs over HTTP, with the real SDK.")
    asyncio.run(compare())
    print_heading("Servers that share their speed", f"24 rows, recorded at concurrency {RECORDED_AT}, over HTTP.")
    asyncio.run(on_servers())
    print_heading("Servers that are drawn", "On virtual time: other concurrencies from a run at 2, 4 or 8.")
    print_coverage()
    print_heading("Estimates before a run", "Beside real runs over HTTP, on servers of other speeds.")
    asyncio.run(ahead_of_runs())
    print(f"{time.perf_counter() - began:.0f} s in all.")


if __name__ == "__main__":
    main()
