"""What places cost that are reserved for the items of an answer, and not needed: before a run, and in it.

A planner answers with three items, and so many places are reserved for them. Milliseconds of this process's own
processor time, the least of many rounds: to make the plan, from `plan.run()` to the first request, and the rest of the
run. Beside it, a plan of as many agents for the items of a value, all of which run.

Run it with `python -m benchmarks.places [ROUNDS]`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Any

import agent_magic as am
from agent_magic.providers.base import EVERYTHING, Provider
from agent_magic.record.answer import Answer, Usage
from benchmarks.measuring import print_heading, print_table

PLACES = (3, 200, 2000)
ITEMS = '{"value": ["a", "b", "c"]}'


class AtOnce(Provider):
    """Answers at once, and keeps when it was asked first."""

    capabilities = EVERYTHING
    endpoint, credentials, is_limited, price_list = "at once", None, False, None

    def __init__(self) -> None:
        self.first_s = 0.0

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer with three items, or a word."""
        self.first_s = self.first_s or time.process_time()
        stream.replied(200)
        text = ITEMS if request.prompt == "Steps?" else "done"
        return Answer(text, "end_turn", usage=Usage(1, output_tokens=1), model=request.model)


def plan_of(places: int) -> am.Plan:
    """Reserve places for the items of an answer."""
    planner = am.Agent("planner", "Steps?", returns=list[str])
    work = am.Agent("work", "Do {{ item }}", each="planner", most=places)
    return am.Plan([planner, work, am.Agent("guide", "{{ work }}")])


def rows_of(count: int) -> am.Plan:
    """An agent for each item of a value."""
    return am.Plan([am.Agent("work", "Do {{ item }}", each="rows")], {"rows": list(range(count))})


def measure(make: Any, count: int) -> tuple[float, float, float]:
    """Return the seconds to make the plan, to its first request, and of the rest."""
    client = AtOnce()
    gc.collect()
    began_s = time.process_time()
    plan = make(count)
    made_s = time.process_time()
    asyncio.run(plan.run(client=client))
    return made_s - began_s, client.first_s - made_s, time.process_time() - client.first_s


def main(rounds: int) -> None:
    """Print a row per plan."""
    print_heading("Reserved places: milliseconds of processor time, the least of the rounds", f"{rounds} rounds")
    measure(plan_of, 3)
    kinds = [(f"{count:,} places, 3 items", plan_of, count) for count in PLACES]
    kinds += [(f"{count:,} rows, all run", rows_of, count) for count in PLACES[1:]]
    rows: list[list[str]] = []
    for name, make, count in kinds:
        least = [min(one) for one in zip(*(measure(make, count) for _ in range(rounds)), strict=True)]
        rows.append([name, *(f"{1000 * one:.2f}" for one in least)])
    print_table(["", "plan", "to the first request", "the rest"], rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
