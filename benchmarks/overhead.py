"""What a run costs per agent when the agents do nothing: ours against hand-written asyncio.

The floor is one asyncio task per agent that awaits what its parents return, records nothing, and cannot be stopped,
retried or asked afterwards. Ours is `Plan.run` with a client in this process: prompts are rendered, every event is
recorded, every answer priced. Each agent's work is `await asyncio.sleep(0)` on both sides.

Run it with `python -m benchmarks.overhead`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from agent_magic.api import Agent, Plan, Policy, Request, Run
from agent_magic.declare.agent import DEFAULT_MODEL
from agent_magic.providers.base import EVERYTHING, Provider, Stream
from agent_magic.record.answer import Answer, Usage
from benchmarks.measuring import in_rounds, print_heading, print_table, ratio

SIZES = (10, 100, 1_000, 10_000)
LAYERS = {10: 4, 100: 8, 1_000: 16, 10_000: 32}
ROUNDS = {10: 15, 100: 15, 1_000: 9, 10_000: 7}
REPEAT = {10: 20, 100: 5}
MOST_IN_PROMPT = 3
ANSWER = Answer("x", "end_turn", usage=Usage(10, output_tokens=10), model=DEFAULT_MODEL)

Parents = Sequence[tuple[int, ...]]


class NoOp(Provider):
    """A client that answers at once."""

    capabilities = EVERYTHING
    endpoint = "noop://"
    is_limited = False

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Let the other tasks go on once, and answer."""
        del request, stream
        await asyncio.sleep(0)
        return ANSWER


def wide(count: int) -> Parents:
    """One agent, then many at once, then one that waits for them all."""
    return [(), *[(0,)] * (count - 2), tuple(range(1, count - 1))]


def chain(count: int) -> Parents:
    """Each agent waits for the one before."""
    return [(), *[(number,) for number in range(count - 1)]]


def layered(count: int) -> Parents:
    """Layers of one width; each agent has one to three parents in the layers before."""
    chance = random.Random(1)
    width = -(-count // LAYERS[count])
    parents: list[tuple[int, ...]] = []
    for number in range(count):
        earlier = range(number - number % width)
        parents.append(tuple(chance.sample(earlier, min(len(earlier), chance.randint(1, 3)))))
    return parents


def plan_of(parents: Parents) -> Plan:
    """Declare agents; up to three parents stand in the prompt, and all of them in `after`."""
    agents: list[Agent] = []
    for number, before in enumerate(parents):
        inputs = " ".join(f"{{{{ a{one} }}}}" for one in before[:MOST_IN_PROMPT])
        agents.append(Agent(f"a{number}", f"Go on from {inputs}", after=tuple(f"a{one}" for one in before)))
    return Plan(tuple(agents))


async def by_hand(parents: Parents) -> list[int]:
    """Run the agents as a task each, and hand each what its parents found. Returns each agent's depth."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[int]] = []

    async def node(before: tuple[int, ...]) -> int:
        found = [await tasks[parent] for parent in before]
        await asyncio.sleep(0)
        return 1 + max(found, default=-1)

    tasks.extend(loop.create_task(node(before)) for before in parents)
    return await asyncio.gather(*tasks)


def check(run: Run) -> None:
    """Raise unless every agent succeeded, and none began before its parents had finished."""
    results = run.record.results
    for agent, before in enumerate(run.plan.dag.parents):
        began = results[agent].started_s
        assert results[agent].status == "succeeded"
        assert began is not None
        for parent in before:
            ended = results[parent].finished_s
            assert ended is not None
            assert ended <= began


async def measure(parents: Parents) -> tuple[float, float, float]:
    """Return the least microseconds per agent by hand and of ours, and the median ratio."""
    count = len(parents)
    plan, policy, client = plan_of(parents), Policy(concurrency=count), NoOp()
    check(await plan.run(policy, client=client))
    cases = {"floor": lambda: by_hand(parents), "ours": lambda: plan.run(policy, client=client)}
    times = await in_rounds(cases, ROUNDS[count], repeat=REPEAT.get(count, 1))
    floor, ours = times["floor"], times["ours"]
    return min(floor) / count * 1e6, min(ours) / count * 1e6, ratio(ours, floor)


async def main() -> None:
    """Measure every shape at every size."""
    note = "CPU microseconds per agent, least of the rounds; the ratio is the median of the rounds. Target: 3."
    print_heading("Overhead per agent", note)
    rows: list[tuple[object, ...]] = []
    growth: list[tuple[object, ...]] = []
    for shape in (wide, chain, layered):
        found = {count: await measure(shape(count)) for count in SIZES}
        rows += [
            (shape.__name__, f"{count:,}", f"{floor:.1f}", f"{ours:.1f}", f"{times:.2f}x")
            for count, (floor, ours, times) in found.items()
        ]
        (few_floor, few_ours, _), (many_floor, many_ours, _) = found[100], found[10_000]
        growth.append((shape.__name__, f"{many_floor / few_floor:.2f}x", f"{many_ours / few_ours:.2f}x"))
    print_table(("plan", "agents", "floor us", "ours us", "ratio"), rows)
    print("Growth: an agent among 10,000 costs so many times as much as one among 100. 1 is linear.\n")
    print_table(("plan", "floor", "ours"), growth)


if __name__ == "__main__":
    asyncio.run(main())
