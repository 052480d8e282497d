"""Plans as JSON, and back."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic import Agent, roles
from agent_magic.declare import Plan, PlanWarning, plan_from_dict, plan_to_dict
from agent_magic.declare.plan_json import plan_from_json
from agent_magic.errors import AgentMagicError, Cycle, PlanError, UnknownAgent
from tests.declare.examples import E2


def back(plan):
    """Write a plan as JSON and read it again."""
    return plan_from_json(json.dumps(plan_to_dict(plan)), Plan)


def test_what_a_plan_looks_like_as_json():
    """Name, description, depth, agents with `depends_on` by name, and the values in use."""
    plan = Plan(
        (Agent("a", "x", model="m"), Agent("b", "{{ a }} {{ v }}", after="a", max_tokens=5)),
        {"v": [1], "w": 2},
        name="n",
        description="d",
    )
    assert {
        "name": "n",
        "description": "d",
        "depth": 2,
        "on_cycle": "error",
        "on_missing": "error",
        "values": {"v": [1]},
    } == {key: value for key, value in plan_to_dict(plan).items() if key != "agents"}
    first, second = plan_to_dict(plan)["agents"]
    assert {"name": "a", "prompt": "x", "model": "m", "depends_on": []}.items() <= first.items()
    assert {
        "name": "b",
        "prompt": "{{ a }} {{ v }}",
        "max_tokens": 5,
        "after": ["a"],
        "depends_on": ["a"],
    }.items() <= second.items()


names = st.lists(
    st.from_regex(r"[a-z][a-z0-9_é]{0,6}", fullmatch=True).map(lambda name: f"n_{name}"),
    unique=True,
    max_size=6,
    min_size=1,
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def plans(draw):
    """Any plan."""
    known = draw(names)
    values = draw(st.dictionaries(st.sampled_from(["v1", "v2"]), plain))
    agents = []
    for place, name in enumerate(known):
        uses = draw(st.sets(st.sampled_from([*known[:place], *values]))) if place or values else set()
        after = draw(st.lists(st.sampled_from(known[:place]), unique=True)) if place else []
        text = draw(st.text(max_size=5).filter(lambda one: "{" not in one and "}" not in one))
        options = {
            "model": draw(st.none() | st.just("m")),
            "max_tokens": draw(st.none() | st.integers(1, 9)),
            "timeout_s": draw(st.none() | st.floats(0.5, 9)),
            "effort": draw(st.sampled_from([None, "low"])),
            **draw(st.sampled_from([{}, {"system": ""}, {"system": "s"}, {"role": min(roles)}])),
        }
        prompt = f"p{text}" + "".join(f"{{{{ {use} }}}}" for use in sorted(uses))
        agents.append(Agent(name, prompt, after=tuple(after), **options))
    return Plan(
        tuple(agents), values, name=draw(st.text(min_size=1, max_size=4)), description=draw(st.text(max_size=4))
    )


@given(plans())
def test_a_plan_comes_back_as_it_was(plan):
    """Agents, options, edges with their kinds, values and titles survive JSON."""
    again = back(plan)
    assert plan == again
    assert plan.edges == again.edges
    assert plan.dag == again.dag
    assert plan_to_dict(plan) == plan_to_dict(again)


def test_depends_on_takes_names_and_places():
    """Parents are named or numbered, in either direction; those that the prompt uses need not be in the list."""
    rows = [
        {"name": "a", "prompt": "x", "depends_on": [2]},
        {"name": "b", "prompt": "{{ a }}", "depends_on": ["a", "2"]},
        {"name": "c", "prompt": "x"},
    ]
    plan = plan_from_dict({"agents": rows}, Plan)
    assert (("c",), ("a", "c"), ()) == tuple(plan.parents(name) for name in "abc")
    assert {"prompt"} == {edge.kind for edge in plan.edges}


def test_the_answers_of_depends_on_reach_the_prompt():
    """As `previous_outputs`, once each, in the place the prompt has for them or at its end. A note says so."""
    rows = [
        {"name": "a", "prompt": "x"},
        {"name": "b", "prompt": "y {{ a }}", "depends_on": ["a", "c", "c"]},
        {"name": "c", "prompt": "x"},
        {"name": "d", "prompt": "Of this:\n{{previous_outputs}}\nwrite.", "depends_on": [0, 2]},
        {"name": "e", "prompt": "First of all.{{ previous_outputs }}"},
        {"name": "f", "prompt": "x", "after": ["a"], "depends_on": ["a"]},
    ]
    plan = plan_from_dict({"agents": rows}, Plan)
    answers = {"a": "one", "c": "three"}
    assert "y one\n\nPrevious outputs:\n\n## c\nthree" == plan.prompt("b", answers)
    assert "Of this:\n## a\none\n\n## c\nthree\nwrite." == plan.prompt("d", answers)
    assert ("First of all.", "x") == (plan.prompt("e", {}), plan.prompt("f", {}))
    assert ("depends_on adds the answers of their parents to the prompts of b, d, e",) == plan.notes
    assert plan == back(plan)
    assert () == back(plan).notes


def test_roles_in_capitals():
    """Models write roles in capitals."""
    row = {"role": "RESEARCHER", "task": "x"}
    assert "researcher" == plan_from_dict({"agents": [row]}, Plan).agents[0].role
    with pytest.raises(AgentMagicError, match=r"role of agent 'agent_0' must be one of .*Did you mean 'researcher'"):
        plan_from_dict({"agents": [{**row, "role": "RESERCHER"}]}, Plan)


@pytest.mark.parametrize("far", [7, -1, "7"])
def test_a_place_that_is_not_there_can_be_dropped(far):
    """With `on_missing: drop` an edge to nowhere is dropped with a warning, and its answer is not asked for."""
    rows = [{"task": "x"}, {"task": "y", "depends_on": [far, 0, 1]}]
    with pytest.warns(PlanWarning) as caught:
        plan = plan_from_dict({"agents": rows, "on_missing": "drop"}, Plan)
    assert [f"agent_{far}", "agent_1"] == [str(one.message).split("'")[3] for one in caught]
    assert "y\n\nPrevious outputs:\n\n## agent_0\none" == plan.prompt("agent_1", {"agent_0": "one"})


def test_agents_without_names_are_numbered():
    """The form of the sources, `task` and places, is read too."""
    plan = plan_from_dict({"agents": [{"task": "x"}, {"task": "y", "depends_on": [0]}]}, Plan)
    assert (("agent_0",), ("agent_1",)) == plan.layers


def test_missing_edges_survive():
    """A plan that drops what is missing drops it again when it is read, with the same warnings."""
    with pytest.warns(PlanWarning):
        plan = Plan((Agent("a", "{{ gone }}", after="lost"),), on_missing="drop")
    with pytest.warns(PlanWarning):
        again = back(plan)
    assert (plan, plan.dropped) == (again, again.dropped)


def test_a_sequential_plan_survives():
    """A plan whose cycle was mended is mended again when it is read, and is the same plan."""
    agents = (Agent("a", "{{ c }}"), Agent("b", "x"), Agent("c", "{{ a }}"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanWarning)
        plan = Plan(agents, on_cycle="sequential")
        again = back(plan)
    assert plan == again
    assert plan.edges == again.edges


ODD_VALUES = {"a tuple": (1, 2), "numbers as keys": {1: 2}, "nested": [(1,)]}


@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
def test_a_value_that_json_would_change_keeps_its_text(value):
    """The prompt of a plan that was read is the prompt that was written."""
    plan = Plan((Agent("a", "{{ v }}"),), {"v": value})
    assert plan.prompt("a", {}) == back(plan).prompt("a", {})


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), float("inf"), 1j, b"x"], ids=repr)
def test_a_value_json_cannot_hold_is_written_as_its_text(value):
    """What has no JSON is written the way a prompt shows it."""
    plan = Plan((Agent("a", "{{ v }}"),), {"v": value})
    json.dumps(plan_to_dict(plan), allow_nan=False)
    assert plan.prompt("a", {}) == back(plan).prompt("a", {})


def test_the_business_plan_survives():
    """E2 comes back with its layers."""
    assert E2.plan.layers == back(E2.plan).layers


WRONG = {
    "no JSON": ("{", "not JSON"),
    "a list": ("[]", "The plan must be an object"),
    "no agents": ("{}", "at least one agent"),
    "empty": ('{"agents": []}', "at least one agent"),
    "agents by name": ('{"agents": {"a": "x"}}', "at least one agent"),
    "no object": ('{"agents": ["a"]}', r"agents\[0\]"),
    "no prompt": ('{"agents": [{"name": "a"}]}', r"prompt of agents\[0\] \('a'\) must be a str"),
    "a number as prompt": ('{"agents": [{"name": "a", "prompt": 5}]}', "must be a str, got 5"),
    "a place too far": ('{"agents": [{"name": "a", "prompt": "x", "depends_on": [1]}]}', "from 0 to 0"),
    "a place below 0": ('{"agents": [{"name": "a", "prompt": "x", "depends_on": [-1]}]}', "from 0 to 0"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_is_no_plan_is_refused_with_the_place(text, said):
    """The message says what is wrong and where."""
    with pytest.raises(PlanError, match=said):
        plan_from_json(text, Plan)


WRONG_TYPES = {
    "values": '{"agents": [{"name": "a", "prompt": "x"}], "values": [1]}',
    "depends_on": '{"agents": [{"name": "a", "prompt": "x", "depends_on": 5}]}',
    "max_tokens": '{"agents": [{"name": "a", "prompt": "x", "max_tokens": "5"}]}',
    "timeout_s": '{"agents": [{"name": "a", "prompt": "x", "timeout_s": "5"}]}',
    "after": '{"agents": [{"name": "a", "prompt": "x", "after": 5}]}',
}


@pytest.mark.parametrize("text", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_field_of_the_wrong_type_is_refused(text):
    """Whatever a file has in a field, the error is one of ours."""
    with pytest.raises(AgentMagicError):
        plan_from_json(text, Plan)


@pytest.mark.parametrize("key", ["after", "depends_on"])
def test_one_name_in_place_of_a_list_is_one_name(key):
    """`"depends_on": "ab"` is the agent ab, not the agents a and b."""
    rows = [{"name": "a", "prompt": "x"}, {"name": "ab", "prompt": "x"}, {"name": "c", "prompt": "x", key: "ab"}]
    assert ("ab",) == plan_from_dict({"agents": rows}, Plan).parents("c")


def test_graph_errors_come_through():
    """Cycles and unknown parents of a file are the plan's own errors."""
    with pytest.raises(Cycle):
        plan_from_dict({"agents": [{"task": "x", "depends_on": [1]}, {"task": "x", "depends_on": [0]}]}, Plan)
    with pytest.raises(UnknownAgent):
        plan_from_dict({"agents": [{"task": "x", "depends_on": ["b"]}]}, Plan)


def test_a_plan_with_a_function_is_kept_too():
    """A ledger keeps the plan of every run: what has no text is written as its kind, the same each time."""
    values = {"double": lambda text: text * 2, "one": object()}
    plan = Plan([Agent("a", "{{ double('x') }}{{ one is defined }}")], values)
    assert {"double": "<function>", "one": "<object>"} == plan_to_dict(plan)["values"]
