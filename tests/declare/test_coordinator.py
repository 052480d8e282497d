"""A goal becomes a plan: what the coordinator is asked, and how its answer is read."""

# Tests take for granted what they have just checked.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import json

import pytest

from agent_magic import roles
from agent_magic.declare import Plan
from agent_magic.declare.coordinator import STRATEGIES, coordinator, read_plan
from agent_magic.errors import DeclarationError, PlanError


def row(name, prompt="x", *parents, role="researcher", returns="text"):
    """An agent as a coordinator writes it."""
    return {"name": name, "role": role, "prompt": prompt, "depends_on": [*parents], "returns": returns}


def answer(*rows):
    """An answer."""
    return {"description": "why", "agents": [*rows]}


def asked(goal="Do {{ topic }}", **options):
    """The agent that is asked."""
    return coordinator(goal, {"topic": "it", "other": 1}, Plan, **options)


def test_the_goal_is_a_template():
    """Its names have the notebook's values, and are told as names that prompts may take; others are not sent."""
    plan = asked()
    assert "Goal: Do it" == plan.prompt("coordinator", {})
    assert {"topic": "it"} == dict(plan.values)
    assert "names too, whose values are the user's: topic." in plan["coordinator"].system_text


def test_the_number_of_agents_and_the_strategy_are_told():
    """And roles are those that are known when it is asked, the user's own too."""
    assert "at most 4 agents" in asked(agents=4)["coordinator"].system_text
    assert STRATEGIES["phase"] in asked(strategy="phase")["coordinator"].system_text
    schema = json.loads(asked()["coordinator"].schema)
    assert [*roles] == schema["properties"]["agents"]["items"]["properties"]["role"]["enum"]


@pytest.mark.parametrize(
    ("goal", "options", "message"),
    [
        (" ", {}, "The goal is empty"),
        ("x", {"strategy": "files"}, "Did you mean 'file'"),
        ("x", {"agents": 0}, "agents must be an integer >= 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(goal, options, message):
    """Before anything is sent."""
    with pytest.raises(DeclarationError, match=message):
        asked(goal, **options)


def test_an_answer_is_a_plan():
    """Names or places are parents, an answer that the prompt does not take is added to it, types are looked up."""
    plan = read_plan(
        answer(row("a", returns="list[str]"), row("b", "{{ a }} {{ topic }}", "a"), row("c", "Join.", "0", "b")),
        Plan,
        {"topic": "it"},
        name="mine",
    )
    assert [("a",), ("b",), ("c",)] == [*plan.layers]
    assert ("mine", "why") == (plan.name, plan.description)
    assert "list[str]" == plan["a"].returns.written
    assert plan["b"].returns is None
    assert {"a", "b"} == set(plan["c"].uses)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a"), row("a")], "'a'"),
        ([row("a", "{{ b }}", "b"), row("b", "{{ a }}", "a")], "wait for each other"),
        ([row("a", "{{ nobody }}")], "nobody"),
        ([row("a", "{% for i in range(9) %}x{% endfor %}")], "no other template language"),
        ([row("a", "{{ topic | upper }}")], "no other template language"),
        ([row("two words")], "one word"),
        ([row("a", returns="Review")], "'Review' is not defined"),
        ([row("a"), row("b"), row("c")], "has 3 agents, and at most 2 are wanted"),
        ([], "at least one agent"),
    ],
)
def test_what_is_no_plan_is_told(rows, message):
    """The check of the coordinator's answer says what is wrong, so that it is asked once more."""
    with pytest.raises((PlanError, DeclarationError), match=message):
        read_plan(answer(*rows), Plan, {"topic": "it"}, most=2)
    assert message in asked(agents=2)["coordinator"].check.call(answer(*rows))


def test_a_plan_is_right():
    """The check has nothing to say of it."""
    assert asked()["coordinator"].check.call(answer(row("a", "{{ topic }}"), row("b", "{{ a }}", "a"))) is None
