"""The job of a plan as one agent."""

from __future__ import annotations

import pytest
from hypothesis import given

import agent_magic as am
from agent_magic import roles
from agent_magic.declare import DEFAULT_MAX_TOKENS
from agent_magic.errors import PlanError
from tests.declare.examples import E2
from tests.record.histories import random_plans


def test_every_prompt_once_parents_first():
    """Each task under its name with its system prompt; a parent's answer is referred to, not repeated."""
    plan = am.Plan(
        [
            am.Agent("end", "Compare {{ b }} with {{ a }}.", role="critic", max_tokens=100),
            am.Agent("a", "About {{ topic }}.", system="Be brief.", max_tokens=300, model="claude-opus-5-5"),
            am.Agent("b", "Braces {x} and {% raw %}{{ y }}{% endraw %}.", max_tokens=200),
        ],
        {"topic": "bees"},
    )
    one = plan.baseline()
    assert isinstance(one, am.Plan)
    text = one.prompt("baseline", {})
    parts = ["## a\nBe brief.\nAbout bees.", "## b\nBraces {x} and {{ y }}."]
    end = f"## end\n{roles['critic']}\nCompare (your answer to b) with (your answer to a)."
    assert text.index(parts[0]) < text.index(parts[1]) < text.index(end)
    assert 600 == one["baseline"].max_tokens


def test_the_model_is_that_of_the_final_answer():
    """The last agent's, unless another is named; the cap can be named too."""
    plan = am.Plan([am.Agent("a", "x", model="one"), am.Agent("b", "{{ a }}", model="two")])
    assert ("two", 2 * DEFAULT_MAX_TOKENS, 600.0) == (
        plan.baseline()["baseline"].model,
        plan.baseline()["baseline"].max_tokens,
        plan.baseline()["baseline"].timeout_s,
    )
    assert ("three", 5) == (
        plan.baseline(model="three", max_tokens=5)["baseline"].model,
        plan.baseline(max_tokens=5)["baseline"].max_tokens,
    )


def test_one_agent_asks_for_no_more_than_its_model_gives():
    """The sum of many agents is more than any model may answer with; what is named goes out as it is."""
    many = am.Plan([am.Agent("row", "Say {{ item }}", each="rows")], {"rows": range(80)})
    assert 128_000 < 80 * DEFAULT_MAX_TOKENS
    assert 128_000 == many.baseline()["baseline"].max_tokens
    assert 64_000 == many.baseline(model="claude-haiku-4-5-20251001")["baseline"].max_tokens
    assert 150_000 == many.baseline(max_tokens=150_000)["baseline"].max_tokens


def test_a_shared_context_goes_out_once():
    """One context is the baseline's own; of several each stands in the text once, named where it is used."""
    shared = am.Plan(
        [am.Agent("a", "x", context="doc"), am.Agent("b", "y", context="doc"), am.Agent("c", "{{ a }}{{ b }}")],
        {"doc": "the text"},
    ).baseline()
    assert "the text" == shared.context_of(0)
    assert "the text" not in shared.prompt("baseline", {})
    assert 2 == shared.prompt("baseline", {}).count("Material: doc")
    several = am.Plan(
        [am.Agent("a", "x", context="doc"), am.Agent("b", "y", context="other"), am.Agent("c", "z", context="doc")],
        {"doc": "the text", "other": "the rest"},
    ).baseline()
    assert several.context_of(0) is None
    assert 1 == several.prompt("baseline", {}).count("the text") == several.prompt("baseline", {}).count("the rest")


@given(random_plans())
def test_every_plan_has_a_baseline(plan):
    """Any plan gives one agent that holds each task once; the baseline's own baseline is one agent too."""
    one = am.Plan(plan.agents, plan.values).baseline()
    assert ("baseline",) == one.names
    text = one.prompt("baseline", {})
    assert [1] * len(plan) == [text.count(f"## {name}\n") for name in plan.names]
    assert ("baseline",) == one.baseline().names


def test_nothing_has_no_baseline():
    """A plan without agents is an error: no model has anything to do."""
    for steps in ([], [am.Task("one", lambda: 1)]):
        with pytest.raises(PlanError, match="no baseline"):
            am.Plan(steps).baseline()


def test_it_is_a_plan_like_any_other():
    """It can be written as JSON and read again."""
    one = am.Plan(E2.plan.agents).baseline()
    assert one == am.Plan.from_json(one.to_json())
