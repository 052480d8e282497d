"""Forecasts: how fast they are, and how far off, against what really happens over HTTP with the real SDK.

`python -m benchmarks.forecast` prints both. The stand-in API answers; its durations are drawn per request as always, so
a run that is repeated takes the same time again, and what differs is what the forecast has to know.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_magic.api import Agent, Claude, Plan, Policy, Run
from agent_magic.measure.calibration import calibration
from agent_magic.simulator import start
from benchmarks.measuring import print_heading, print_table

AGENTS = 100
SCENARIOS: dict[str, Any] = {"concurrency": list(range(1, 51)), "schedule": ["ready", "layers"]}
MODELS = (None, "claude-sonnet-5-5", "claude-opus-5-5", {"a3": "claude-opus-5-5"}, "claude-fable-5-2")
CONTEXT = "The service keeps accounts, moves money between them and reports on both. " * 400


@dataclass(frozen=True)
class Case:
    """One change of policy.

    Attributes:
        kind: What changes.
        policy: How the plan is really run.
        asked: The same as arguments of `whatif`.
        simulator: Options of the stand-in API for the real run, where they differ.
    """

    kind: str
    policy: Policy
    asked: Mapping[str, Any]
    simulator: Mapping[str, Any] = field(default_factory=dict[str, Any])


CASES = (
    Case("nothing", Policy(4), {}),
    Case("concurrency", Policy(1), {"concurrency": 1}),
    Case("concurrency", Policy(2), {"concurrency": 2}),
    Case("concurrency", Policy(8), {"concurrency": 8}),
    Case("concurrency", Policy(16), {"concurrency": 16}),
    Case("schedule", Policy(4, schedule="layers"), {"schedule": "layers"}),
    Case("schedule", Policy(4, schedule="sequential"), {"schedule": "sequential"}),
    Case("schedule", Policy(8, schedule="layers"), {"schedule": "layers", "concurrency": 8}),
    Case("limits", Policy(4), {"limits": 60}, {"rpm": 60}),
    Case("limits", Policy(8), {"limits": 120, "concurrency": 8}, {"rpm": 120}),
    Case("limits", Policy(8), {"limits": {"output_tokens": 20_000}, "concurrency": 8}, {"otpm": 20_000}),
    Case("cache", Policy(4, cache="off"), {"cache": "off"}),
    Case("cache", Policy(4, cache="on"), {"cache": "on"}),
    Case("cache", Policy(8, cache="off"), {"cache": "off", "concurrency": 8}),
)


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


async def run_really(plan: Plan, policy: Policy, simulator: Mapping[str, Any]) -> Run:
    """Run a plan over HTTP against a stand-in API of its own."""
    server = start(**{"latency": "x0.5", **simulator})
    try:
        return await plan.run(policy, client=Claude(base_url=server.url, credential="simulator"))
    finally:
        server.stop()


async def compare() -> None:
    """Print what was forecast beside what was measured."""
    plan = layered(36)
    base = await run_really(plan, Policy(4), {})
    for case in CASES:
        base.whatif(**case.asked)
    frames: dict[str, Any] = {}
    rows: list[list[str]] = []
    errors: dict[str, list[float]] = {}
    costs: list[float] = []
    for case in CASES:
        run = await run_really(plan, case.policy, case.simulator)
        asked = base.whatif(**case.asked).iloc[0]
        predicted, measured = float(asked["wall_s"]), float(run.totals.wall_s or "nan")
        off = predicted / measured - 1
        cost_off = float(asked["cost_usd"]) / float(run.totals.cost_usd or "nan") - 1
        refused = sum(attempt.kind == "RateLimited" for attempt in run.record.attempts)
        errors.setdefault(case.kind, []).append(abs(off))
        costs.append(abs(cost_off))
        words = ", ".join(f"{name}={value}" for name, value in case.asked.items()) or "as recorded"
        rows.append(
            [
                words,
                f"{predicted:.2f}",
                f"{measured:.2f}",
                f"{off:+.1%}",
                f"{cost_off:+.2%}",
                f"{asked['n_429']}",
                f"{refused}",
            ]
        )
        frames[words] = calibration(base, run)
    print_table(["whatif", "forecast s", "measured s", "wall off", "cost off", "429s forecast", "429s"], rows)
    for kind, each in errors.items():
        print(f"{kind}: median {statistics.median(each):.1%} off, worst {max(each):.1%}, n = {len(each)}")
    everything = [each for kind, found in errors.items() if kind != "nothing" for each in found]
    print(
        f"all changes: median {statistics.median(everything):.1%}, worst {max(everything):.1%}, n = {len(everything)}"
    )
    print(f"cost: median {statistics.median(costs):.2%} off, worst {max(costs):.2%}")
    matched = sum(len(frame) for frame in frames.values())
    print(f"calibration frames matched {matched} of {len(CASES)} forecasts with the run that followed")


async def speed() -> None:
    """Print how long a thousand scenarios of a hundred agents take."""
    run = await run_really(layered(AGENTS), Policy(8), {"latency": "x0.1"})
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("concurrency, schedule, cache", {**SCENARIOS, "cache": [None, "off"] * 5}),
        ("and rate limits", {**SCENARIOS, "limits": [None, 300, 600, 1_200, 3_000] * 2}),
        (
            "other models, with low and high",
            {
                **SCENARIOS,
                "model": [None, "claude-sonnet-5-5", "claude-opus-5-5", {"a3": "claude-opus-5-5"}] * 2 + [None] * 2,
            },
        ),
    )
    rows: list[list[str]] = []
    run.whatif()
    for words, given in asked:
        began, cpu = time.perf_counter(), time.process_time()
        frame = run.whatif(**given)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        rows.append([words, f"{len(frame):,}", f"{wall_s:.1f}", f"{cpu_s:.1f}", f"{1e3 * cpu_s / len(frame):.1f}"])
    print_table(["what varies", "scenarios", "wall s", "CPU s", "CPU ms each"], rows)
    one = min(_timed(run) for _ in range(5))
    print(f"one forecast as a value, the best of five: {1e3 * one:.1f} ms")


def _timed(run: Run) -> float:
    forecaster = run.forecaster()
    began = time.perf_counter()
    forecaster.forecast(run.forecast().scenario)
    return time.perf_counter() - began


def main() -> None:
    """Print both tables."""
    print_heading(f"A thousand scenarios of {AGENTS} agents", "One process. CPU time beside wall time.")
    asyncio.run(speed())
    print_heading("Forecasts of one run of 36 agents", "Beside real runs over HTTP, with the real SDK.")
    asyncio.run(compare())


if __name__ == "__main__":
    main()
