"""How long it takes to declare and plan 10,000 agents with 500,000 edges.

Edges are declared by `after` or by `{{ parent }}` in the prompt. The floor is what no planner can leave out: the edges
as numbers, put in order by hand-written counters. Run it with `python -m benchmarks.plans`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

from agent_magic.api import Agent, Plan
from benchmarks.measuring import print_heading, print_table, ratio, timed

AGENTS = 10_000
EDGES = 500_000
ROUNDS = 5

Parents = Sequence[tuple[int, ...]]


def parents_of(agents: int, edges: int) -> Parents:
    """Draw about `edges` edges, each from an earlier agent to a later one."""
    chance = random.Random(1)
    each = round(edges / (agents - edges / agents / 2))
    return [tuple(chance.sample(range(number), min(number, each))) for number in range(agents)]


def by_after(parents: Parents) -> tuple[Agent, ...]:
    """Declare the agents; parents stand in `after`."""
    names = [f"agent_{number}" for number in range(len(parents))]
    return tuple(
        Agent(name, "Go on.", after=tuple(names[one] for one in before))
        for name, before in zip(names, parents, strict=True)
    )


def by_prompt(parents: Parents) -> tuple[Agent, ...]:
    """Declare the agents; parents stand in the prompt."""
    names = [f"agent_{number}" for number in range(len(parents))]
    return tuple(
        Agent(name, "Go on from " + " ".join(f"{{{{ {names[one]} }}}}" for one in before))
        for name, before in zip(names, parents, strict=True)
    )


def ordered(parents: Parents) -> list[int]:
    """Put the agents in order by counting parents down."""
    children: list[list[int]] = [[] for _ in parents]
    for number, before in enumerate(parents):
        for parent in before:
            children[parent].append(number)
    waiting = [len(before) for before in parents]
    order = [number for number, count in enumerate(waiting) if not count]
    for number in order:
        for child in children[number]:
            waiting[child] -= 1
            if not waiting[child]:
                order.append(child)
    return order


def measure(parents: Parents) -> dict[str, list[float]]:
    """Measure each step in turn. Returns CPU seconds by step, one per round."""
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        seconds, _ = timed(lambda: ordered(parents))
        found.setdefault("order by hand", []).append(seconds)
        for name, declare in (("after", by_after), ("{{ }}", by_prompt)):
            declaring_s, agents = timed(lambda declare=declare: declare(parents))
            planning_s, plan = timed(lambda agents=agents: Plan(agents))
            assert all(set(ours) == set(theirs) for ours, theirs in zip(plan.dag.parents, parents, strict=True))
            found.setdefault(f"declare, {name}", []).append(declaring_s)
            found.setdefault(f"plan, {name}", []).append(planning_s)
            found.setdefault(f"declare and plan, {name}", []).append(declaring_s + planning_s)
    return found


def main() -> None:
    """Print the table."""
    parents = parents_of(AGENTS, EDGES)
    found = measure(parents)
    edges = sum(map(len, parents))
    note = f"{AGENTS:,} agents, {edges:,} edges. CPU seconds, {ROUNDS} rounds. Target: declare and plan in about 1 s."
    print_heading("Plans", note)
    floor = found["order by hand"]
    rows = [
        (step, f"{min(times):.2f}", f"{median(times):.2f}", f"{ratio(times, floor):.1f}x")
        for step, times in found.items()
    ]
    print_table(("step", "least s", "median s", "over the floor"), rows)


if __name__ == "__main__":
    main()
