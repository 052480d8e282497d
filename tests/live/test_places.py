"""Runs with places that stay unused: the same, whether those were prepared together or one by one."""

from __future__ import annotations

import asyncio
import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

import agent_magic as am
from agent_magic.declare import plan as module
from agent_magic.providers import Provider
from agent_magic.record import Answer, RunRecord, Usage


class Plans(Provider):
    """Answers at once: a planner with so many items.

    Args:
        items: How many.
    """

    endpoint, credentials, is_limited, price_list = "plans", None, False, None

    def __init__(self, items: int) -> None:
        self.items = items

    async def send(self, request: Any, stream: Any) -> Answer:
        """Answer with items where that is asked for."""
        stream.replied(200)
        items = json.dumps({"value": [f"item {number}" for number in range(self.items)]})
        text = items if request.schema else f"done: {request.prompt}"
        return Answer(text, "end_turn", usage=Usage(1, output_tokens=1), model=request.model)


def plan_of(most: int) -> am.Plan:
    """Plan a map, and a map of a map."""
    return am.Plan(
        [
            am.Agent("planner", "Steps?", returns=list[str]),
            am.Agent("work", "Do {{ item }}", each="planner", most=most, returns=list[str]),
            am.Agent("part", "{{ item }} in short", each="work", most=4),
            am.Agent("guide", "{{ part }}"),
        ]
    )


async def history_of(plan: am.Plan, items: int) -> tuple[list[tuple[Any, ...]], list[Any], str]:
    """Run a plan; return what happened, what became of every step, and what the guide was asked."""
    run = await plan.run(am.Policy(seed=1), client=Plans(items))
    events = [
        (type(one).__name__, *(getattr(one, field, None) for field in ("agent", "number", "status", "error", "kind")))
        for one in run.record.events
    ]
    results = [(one.name, one.status, one.layer, one.model, one.error, one.kind) for one in run.record.results]
    asked = run["guide"].attempts
    return events, results, asked[0].request.prompt if asked else ""


@pytest.mark.parametrize("items", [0, 1, 3, 4, 5])
def test_a_run_is_the_same_whether_its_places_are_prepared_together_or_one_by_one(
    items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are no items, as many as places, and more, which is an error of the first place."""
    together = asyncio.run(history_of(plan_of(4), items))
    expand = module.expand
    monkeypatch.setattr(module, "expand", lambda *given: (expand(*given)[0], []))
    alone = plan_of(4)
    assert () == alone.dag.alike
    assert asyncio.run(history_of(alone, items)) == together


def test_a_map_that_is_run_again_has_the_places_of_its_new_items() -> None:
    """What was found of an answer does not count for another one."""
    planner, work = plan_of(4).agents[0], am.Agent("work", "Do {{ item }}", each="planner", most=4)
    plan = am.Plan([planner, work, am.Agent("guide", "{{ work }}")])

    async def used(items: int) -> int:
        run = await plan.run(client=Plans(items))
        return sum(one.status == "succeeded" for one in run.record.results[1:5])

    assert [1, 3, 2] == [asyncio.run(used(items)) for items in (1, 3, 2)]


@pytest.mark.parametrize("ask", [
    lambda results: results[-1],
    lambda results: next(reversed(results)),
    lambda results: list(results)[-1],
    lambda results: results[1:][-1],
    lambda results: next(one for one in results if one.name == "part_15"),
    lambda results: copy.copy(results)[-1],
])  # fmt: skip
def test_a_result_of_a_place_is_there_however_it_is_asked_for(ask: Any) -> None:
    """By number, in a loop, from the end: the results of a run that begins are a list like any other."""
    plan = am.Plan(plan_of(4).agents[:-1])
    results = RunRecord(plan, datetime.now(UTC), plan.models).results
    assert len(plan) == len(results)
    found = ask(results)
    assert ("part_15", "pending") == (found.name, found.status)
    assert found is results[len(plan) - 1]
    assert found in results
