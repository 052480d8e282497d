"""Places that are alike: prepared once for all, and the same in everything as if each had been."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

import agent_magic as am
from agent_magic import Agent, Policy
from agent_magic.declare import plan as module
from agent_magic.declare.each import firsts, for_all
from agent_magic.declare.flow import Flow
from agent_magic.engine import kinds_of
from agent_magic.engine.requests import timeouts_of


@dataclass
class Steps:
    """What a planner answers with."""

    steps: list[str]
    parts: list[list[str]]


PLANNER = Agent("planner", "Which steps?", returns=Steps)
WORK = Agent("work", "Do {{ item }} of {{ topic }}", each="planner.steps", most=7)
OTHER = Agent("other", "Or {{ item }}?", each="planner.steps", most=7, returns=list[str], max_tokens=50)
MAYBE = Agent("maybe", "y", when="planner.steps")


def mapped(name: str, prompt: str = "{{ item }}", over: str = "planner.steps", most: int = 4, **more: Any) -> Agent:
    """Return an agent for each item of an answer."""
    return Agent(name, prompt, each=over, most=most, **more)


PLANS = {
    "a map": [PLANNER, WORK, Agent("guide", "{{ work }}")],
    "a map of a map": [PLANNER, OTHER, mapped("inner", over="other", most=3), Agent("end", "{{ inner }}")],
    "beside a map": [PLANNER, OTHER, mapped("pair", "{{ item }} {{ other }}", most=7)],
    "a place by name": [PLANNER, WORK, Agent("one", "{{ work_3 }}"), Agent("rest", "{{ work }}", after="work_5")],
    "a condition": [PLANNER, Agent("check", "x"), WORK, mapped("c", "y", when="check != 'a'")],
    "what can be missed": [PLANNER, MAYBE, mapped("c", '{{ item }} {{ maybe | default("") }}')],
    "files": [PLANNER, mapped("s", save="{{ name }}.md", writes="db")],
    "resources": [PLANNER, mapped("s", uses_resources="db", priority=2)],
    "other models": [PLANNER, mapped("s", fallback="claude-haiku-5-5", timeout_s=3.0)],
}


def made(steps: list[Agent]) -> am.Plan:
    """Plan these steps."""
    return am.Plan(steps, {"topic": "tea"})


def told(plan: am.Plan) -> dict[str, Any]:
    """Return all that runs and forecasts take of a plan."""
    flow = plan.flow or Flow(plan)
    work = [float(len(name)) for name in plan.names]
    return {
        "agents": plan.agents,
        "parts": [one.part for one in plan.agents],
        "dag": plan.dag,
        "remaining": plan.dag.remaining(work),
        "turns": plan.dag.turns,
        "groups": {name: dict(one) for name, one in plan.groups.items()},
        "inputs": plan.inputs,
        "holds": plan.holds,
        "saves": plan.saves,
        "notes": plan.notes,
        "models": plan.models,
        "special": plan.special,
        "flow": (flow.decides, flow.optional, flow.races, flow.ahead_of),
        "kinds": kinds_of(plan),
        "timeouts": timeouts_of(plan, Policy()),
        "json": plan.to_json(),
    }


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_the_same_whether_its_places_are_made_together_or_one_by_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a run or a forecast takes of a plan does not depend on which places are alike."""
    together = told(made(PLANS[name]))
    expand = module.expand
    monkeypatch.setattr(module, "expand", lambda *given: (expand(*given)[0], []))
    alone = made(PLANS[name])
    assert () == alone.dag.alike
    assert told(alone) == together


@pytest.mark.parametrize(("name", "alike"), [
    ("a map", [range(1, 8)]),
    ("a map of a map", [range(one, one + 3) for one in range(8, 29, 3)]),
    ("beside a map", []),
    ("a place by name", []),
])  # fmt: skip
def test_places_are_alike_that_wait_for_the_same_and_for_which_the_same_wait(name: str, alike: list[range]) -> None:
    """One that another step names, or pairs with, is not like those beside it."""
    assert alike == [*made(PLANS[name]).dag.alike]


def test_places_of_a_plan_that_was_read_or_selected_are_alike_too() -> None:
    """A plan from JSON, and a selected one, has its places in a row again; one that was changed is not among them."""
    plan = made(PLANS["a map"])
    assert plan.dag.alike == am.Plan.from_json(plan.to_json()).dag.alike
    assert plan.dag.alike == plan.select("guide").dag.alike
    changed = plan["work_3"].with_defaults(effort="low")  # pyright: ignore[reportAttributeAccessIssue]
    steps = [changed if one.name == "work_3" else one for one in plan.agents]
    assert (range(1, 4), range(5, 8)) == made(steps).dag.alike  # pyright: ignore[reportArgumentType]


def test_a_place_has_its_fields_when_they_are_asked_for() -> None:
    """Planning two thousand places fills in the first one only; a place is like any agent to whoever asks."""
    plan = made(
        [PLANNER, Agent("work", "Do {{ item }}", each="planner.steps", most=2000), Agent("guide", "{{ work }}")]
    )
    read: Any = vars(Agent)["template"].__get__
    for place in plan.agents[2:2001]:
        with pytest.raises(AttributeError):
            read(place)
    place = plan["work_7"]
    assert (7, 7, 7) == (
        place.part and place.part.number,
        place.part and place.part.key,
        place.part and place.part.place,
    )
    assert plan["work_0"].template is place.template
    assert place == copy.deepcopy(place) == pickle.loads(pickle.dumps(plan))["work_7"]
    with pytest.raises(AttributeError, match="'Agent' object has no attribute 'tempalte'"):
        place.tempalte  # type: ignore[attr-defined]  # noqa: B018


def test_the_first_of_those_that_are_alike_stand_for_all() -> None:
    """`for_all` puts back what `firsts` left out."""
    alike = [range(1, 4), range(4, 6), range(7, 9)]
    some = firsts("abbbccdee", alike)
    assert [*"abcde"] == some
    assert [*"abbbccdee"] == for_all(some, alike)
