"""Plans: edges, layers, relations, and what is wrong with a plan before anything is spent."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
# pyright: reportIndexIssue=false

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic import Agent
from agent_magic.declare import Plan, PlanWarning, build_dag
from agent_magic.declare.edges import Edge
from agent_magic.errors import Cycle, DeclarationError, DuplicateAgent, PlanError, UndefinedVariable, UnknownAgent
from tests.declare.examples import E1, E2, E3, E5, E6

LAYERS = {
    "E1": (E1, (("a0", "a1", "a2"), ("a3",), ("a4",))),
    "E2": (E2, (("a0", "a1", "a2", "a3"), ("a4", "a5"), ("a6", "a7"), ("a8",))),
    "E3": (
        E3,
        (
            tuple(f"a{one}" for one in range(6)),
            tuple(f"a{one}" for one in range(6, 12)),
            ("a12",),
            ("a13",),
            ("a14",),
        ),
    ),
    "E5": (E5, (("a0", "a1", "a2"), ("a3", "a4"))),
    "E6": (E6, (("a0", "a3"), ("a1", "a4"), ("a2",))),
}


@pytest.mark.parametrize(("example", "layers"), LAYERS.values(), ids=LAYERS)
def test_layers_of_the_worked_examples(example, layers):
    """Agents of equal depth make a layer, in declared order."""
    assert layers == example.plan.layers
    assert len(layers) == example.plan.depth


PATHS = {
    "E1": (E1, ("a0", "a3", "a4"), 5.0, 9.0),
    "E2": (E2, ("a0", "a4", "a6", "a8"), 8.0, 18.0),
    "E3": (E3, ("a0", "a6", "a12", "a13", "a14"), 9.0, 29.0),
    "E5": (E5, ("a0", "a4"), 9.0, 21.0),
    "E6": (E6, ("a0", "a1", "a2"), 20.0, 26.0),
}


@pytest.mark.parametrize(("example", "path", "length", "total"), PATHS.values(), ids=PATHS)
def test_critical_paths_of_the_worked_examples(example, path, length, total):
    """The chain with the most work, the first declared one among equals, and its length."""
    work_s = dict(zip(example.plan.names, example.work_s, strict=True))
    assert (path, length) == example.plan.critical_path(work_s)
    assert total == sum(example.work_s)
    assert float(example.plan.depth) == example.plan.critical_path()[1]


def test_relations_of_the_business_plan():
    """Parents, children, ancestors and descendants of E2."""
    plan = E2.plan
    assert ("a0", "a1") == plan.parents("a4")
    assert ("a6", "a7") == plan.children("a4")
    assert ("a0", "a1", "a2", "a4") == plan.ancestors("a6")
    assert ("a4", "a5", "a6", "a7", "a8") == plan.descendants("a1")
    assert () == plan.parents("a0")
    assert () == plan.descendants("a8")


def test_edges_say_where_they_come_from():
    """An edge is of kind `prompt` where the text is used, `after` where only the order counts; both is `prompt`."""
    plan = Plan((Agent("a", "x"), Agent("b", "x"), Agent("c", "{{ b }} {{ v }}", after="a,b")), {"v": 1})
    assert (Edge("b", "c", "prompt"), Edge("a", "c", "after")) == plan.edges
    assert ("b", "a") == plan.parents("c")
    assert (("b",)) == plan.inputs[2]


def test_only_the_values_in_use_are_kept():
    """A plan holds what its prompts read and nothing else of the notebook."""
    plan = Plan((Agent("a", "{{ v.x }}"),), {"v": {"x": 1}, "secret": 2, "a": 3})
    assert {"v": {"x": 1}} == dict(plan.values)


def test_an_agent_goes_before_a_value_of_its_name():
    """`{{ name }}` is the agent where there is one; in its own prompt it is the value of that name."""
    plan = Plan((Agent("a", "{{ a }}"), Agent("b", "{{ a }}")), {"a": "value"})
    assert (Edge("a", "b", "prompt"),) == plan.edges
    assert "value" == plan.prompt("a", {})
    assert "answer" == plan.prompt("b", {"a": "answer"})


def test_selected_agents_come_with_their_ancestors():
    """`select` keeps the named agents, what they wait for, and the values they use."""
    plan = E2.plan.select(["a7"])
    assert ("a0", "a1", "a3", "a4", "a7") == plan.names
    with pytest.raises(UnknownAgent, match="Did you mean 'a7'"):
        E2.plan.select(["a77"])


def test_unknown_names_are_found_by_every_relation():
    """Asking for an agent that is not there names the nearest one, and carries all."""
    plan = Plan((Agent("researcher", "x"),))
    for ask in (plan.parents, plan.children, plan.ancestors, plan.descendants, plan.number, plan.__getitem__):
        with pytest.raises(UnknownAgent, match="Did you mean 'researcher'") as caught:
            ask("reseacher")
        assert ("reseacher", ("researcher",)) == (caught.value.agent, caught.value.known)


def test_two_agents_of_one_name_are_refused():
    """Names are keys."""
    with pytest.raises(DuplicateAgent, match="'a'") as caught:
        Plan((Agent("a", "x"), Agent("b", "x"), Agent("a", "y")))
    assert "a" == caught.value.agent


def test_an_unknown_parent_is_refused():
    """`after` names an agent that nobody declared: who wants it, and whom it may mean."""
    with pytest.raises(UnknownAgent, match=r"'b' waits for 'resercher'.*Did you mean 'researcher'") as caught:
        Plan((Agent("researcher", "x"), Agent("b", "x", after="resercher")))
    assert ("resercher", "b") == (caught.value.agent, caught.value.wanted_by)


def test_an_undefined_name_is_refused():
    """A prompt uses a name that is neither an agent nor a value; both are offered."""
    for known, values in (("topics", {"topics": 1}), ("topic_agent", {})):
        agents = (Agent("topic_agent", "x"), Agent("b", "{{ topic }}" if values else "{{ topic_agnt }}"))
        with pytest.raises(UndefinedVariable, match=f"Did you mean '{known}'") as caught:
            Plan(agents, values)
        assert "b" == caught.value.agent


def test_the_wrong_word_for_an_option_is_refused():
    """`on_cycle` and `on_missing` take their words."""
    with pytest.raises(PlanError, match="Did you mean 'sequential'"):
        Plan((Agent("a", "x"),), on_cycle="seqential")
    with pytest.raises(PlanError, match="on_missing must be one of error, drop, got True"):
        Plan((Agent("a", "x"),), on_missing=True)


def ring(size, start=0):
    """Agents that wait for each other in a ring, named n0, n1, ..."""
    names = [f"n{one}" for one in range(size)]
    return tuple(Agent(name, f"{{{{ {names[place - 1]} }}}}") for place, name in enumerate(names))


@pytest.mark.parametrize("size", [1, 2, 3, 9, 10, 11, 1000, 10_000])
def test_a_cycle_is_named_in_full(size):
    """The error carries the cycle in the direction of the work, its first agent at both ends; the text is short."""
    with pytest.raises(Cycle) as caught:
        Plan(ring(size))
    assert (*(f"n{one}" for one in range(size)), "n0") == caught.value.cycle
    text = str(caught.value)
    assert text.startswith("These agents wait for each other: n0 -> ")
    shown = text.partition(": ")[2].partition(". ")[0].split(" -> ")
    assert min(size + 1, 10) == len(shown)
    assert "n0" == shown[0] == shown[-1]
    assert (f"({size + 1 - 9} more)" in shown) == (size + 1 > 10)


def test_a_cycle_far_from_the_roots_is_found():
    """What leads to a cycle, and what hangs on it, is not part of it."""
    agents = (
        Agent("root", "x"),
        Agent("a", "{{ root }}{{ c }}"),
        Agent("b", "{{ a }}"),
        Agent("c", "{{ b }}"),
        Agent("leaf", "{{ c }}"),
    )
    with pytest.raises(Cycle) as caught:
        Plan(agents)
    assert ("a", "b", "c", "a") == caught.value.cycle


def test_a_cycle_by_order_counts_too():
    """`after` and prompts make cycles together."""
    with pytest.raises(Cycle):
        Plan((Agent("a", "x", after="b"), Agent("b", "{{ a }}")))
    with pytest.raises(Cycle) as caught:
        Plan((Agent("a", "x", after="a"),))
    assert ("a", "a") == caught.value.cycle


def test_on_cycle_sequential_runs_in_declared_order():
    """Edges that point back are dropped with a warning each, the others kept, and all agents chained."""
    agents = (Agent("a", "[{{ c }}]"), Agent("b", "x"), Agent("c", "{{ a }}{{ b }}"), Agent("d", "{{ d }}{{ a }}"))
    with pytest.warns(PlanWarning) as caught:
        plan = Plan(agents, on_cycle="sequential")
    assert [
        "Edge dropped: 'a' no longer waits for 'c'.",
        "Edge dropped: 'd' no longer waits for 'd'.",
    ] == [str(one.message) for one in caught]
    assert (("a",), ("b",), ("c",), ("d",)) == plan.layers
    assert {("a", "c"), ("d", "d")} == plan.dropped
    assert {
        Edge("a", "b", "after"),
        Edge("a", "c", "prompt"),
        Edge("b", "c", "prompt"),
        Edge("a", "d", "prompt"),
        Edge("c", "d", "after"),
    } == set(plan.edges)
    assert "[]" == plan.prompt("a", {})


def test_on_cycle_sequential_changes_nothing_without_a_cycle():
    """A plan without a cycle stays as concurrent as it was, with no warning."""
    assert E2.plan.layers == Plan(E2.plan.agents, on_cycle="sequential").layers


def test_on_missing_drop_warns_once_per_edge():
    """Edges to what is not there, and to oneself, go with a warning each; their names become empty."""
    agents = (Agent("a", "<{{ gone }}>", after="lost,b"), Agent("b", "x", after="b"))
    with pytest.warns(PlanWarning) as caught:
        plan = Plan(agents, on_missing="drop")
    assert [
        "Edge dropped: 'a' no longer waits for 'gone'.",
        "Edge dropped: 'a' no longer waits for 'lost'.",
        "Edge dropped: 'b' no longer waits for 'b'.",
    ] == [str(one.message) for one in caught]
    assert (Edge("b", "a", "after"),) == plan.edges
    assert "<>" == plan.prompt("a", {})
    assert {("a", "gone"), ("a", "lost"), ("b", "b")} == plan.dropped


def test_on_missing_drop_keeps_cycles_wrong():
    """Dropping what is missing mends no cycle of two."""
    with pytest.raises(Cycle):
        Plan((Agent("a", "{{ b }}"), Agent("b", "{{ a }}")), on_missing="drop")


def test_prompts_are_checked_before_any_spend():
    """An expression that cannot work fails in `check_prompts`, whatever the answers will be."""
    Plan((Agent("a", "x"), Agent("b", "{{ a|upper }}{% if a %}{% endif %}"))).check_prompts()
    with pytest.raises(DeclarationError):
        Plan((Agent("b", "{{ v.nope.nope }}"),), {"v": 1}).check_prompts()
    with pytest.raises(DeclarationError):
        Plan((Agent("a", "x"), Agent("b", "{% if a %}{{ a }}{% endif %}{{ v.nope.nope }}")), {"v": 1}).check_prompts()


TAKES_APART = [
    "{{ a.splitlines()[1] }}",
    "{{ a.split('|')[2] | upper }}",
    "{% for line in a.splitlines() %}{{ line.split(':')[1] }}{% endfor %}",
    "{{ prices[a] }}",
    "{% set parts = a.split(',') %}{{ parts[3] }}",
    "{{ 10 // (a | int) }}",
]


@pytest.mark.parametrize("text", TAKES_APART)
def test_what_an_answer_lacks_is_known_when_it_is_there(text):
    """A prompt that takes an answer apart is not refused because a stand-in has no such part."""
    plan = Plan((Agent("a", "x"), Agent("b", text)), {"prices": {"cheap": 1}})
    plan.check_prompts()
    assert text == plan.prompt_ahead(1, {"a": "(answer)"}).text
    with pytest.raises(DeclarationError):
        plan.prompt_of(1, {"a": "(answer)"})


def test_a_plan_is_frozen():
    """Neither its fields nor its values can be changed."""
    plan = Plan([Agent("a", "{{ v }}")], {"v": 1})
    assert isinstance(plan.agents, tuple)
    with pytest.raises(AttributeError):
        plan.name = "x"
    with pytest.raises(TypeError):
        plan.values["v"] = 2
    with pytest.raises(TypeError):
        plan.index["b"] = 1


def test_the_critical_path_needs_everybody_s_work():
    """Unknown is never 0: work that leaves an agent out is refused by name."""
    with pytest.raises(PlanError, match="'a1'"):
        E1.plan.critical_path({"a0": 1.0})


def test_no_agents_are_a_plan():
    """An empty plan has no layers and no path."""
    assert (0, (), ((), 0.0)) == (Plan(()).depth, Plan(()).edges, Plan(()).critical_path())


dags = st.integers(0, 12).flatmap(
    lambda count: st.tuples(
        *[st.sets(st.integers(0, max(0, one - 1)), max_size=4) if one else st.just(set()) for one in range(count)]
    )
)


@given(dags, st.randoms(use_true_random=False))
def test_relations_agree_with_the_edges(parents, random):
    """Order, layers, ancestors and descendants are what the edges say, however the agents were declared."""
    count = len(parents)
    place = list(range(count))
    random.shuffle(place)
    rows = [()] * count
    for agent, before in enumerate(parents):
        rows[place[agent]] = tuple(place[one] for one in sorted(before))
    dag = build_dag(rows)
    assert sorted(dag.order) == list(range(count))
    position = {agent: where for where, agent in enumerate(dag.order)}
    above = [set() for _ in range(count)]
    for agent in dag.order:
        for parent in rows[agent]:
            assert position[parent] < position[agent]
            assert agent in dag.children[parent]
            above[agent] |= {parent} | above[parent]
        assert dag.layer[agent] == 1 + max((dag.layer[one] for one in rows[agent]), default=-1)
        assert above[agent] == dag.ancestors([agent])
    for agent in range(count):
        assert {one for one in range(count) if agent in above[one]} == dag.descendants([agent])
    assert sum(map(len, rows)) == sum(map(len, dag.children))


@given(
    st.integers(1, 10).flatmap(lambda n: st.lists(st.lists(st.integers(0, n - 1), unique=True), min_size=n, max_size=n))
)
def test_a_graph_has_an_order_or_a_cycle(parents):
    """Where there is no order there is a cycle, each of its steps is an edge, and no agent comes twice."""
    try:
        order = build_dag(parents).order
    except Cycle as error:
        cycle = [int(name) for name in error.cycle]
        assert cycle[0] == cycle[-1] == min(cycle)
        assert len(set(cycle)) == len(cycle) - 1
        for parent, child in itertools.pairwise(cycle):
            assert parent in parents[child]
    else:
        assert all(order.index(parent) < order.index(child) for child in order for parent in parents[child])


def test_a_chain_of_ten_thousand_plans():
    """Nothing recurses: a chain is as good as a layer, and its path has every agent."""
    agents = [Agent("n0", "x"), *(Agent(f"n{one}", f"{{{{ n{one - 1} }}}}") for one in range(1, 10_000))]
    plan = Plan(tuple(agents))
    assert 10_000 == plan.depth
    assert 9_999 == len(plan.descendants("n0"))
    assert plan.names == plan.critical_path()[0]


def test_ten_thousand_agents_with_half_a_million_edges_plan():
    """A large plan is made, with every edge in it."""
    random = Random(1)
    agents = [
        Agent(
            f"n{one}",
            "x",
            after=[f"n{parent}" for parent in random.sample(range(max(0, one - 400), one), min(one, 51))],
        )
        for one in range(10_000)
    ]
    plan = Plan(tuple(agents))
    assert sum(min(one, 51) for one in range(10_000)) == sum(map(len, plan.dag.parents))
    assert 500_000 < sum(map(len, plan.dag.parents))


def test_making_a_plan_warns_of_nothing():
    """Warnings are for mended plans only."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert E3.plan


def test_a_value_that_has_no_text_is_named_with_its_agent():
    """A mistake of one name in a large plan is found at once; what only has its attributes read is none."""

    class Thing:
        name = "x"

    with pytest.raises(DeclarationError, match="the text of this Thing is an address in memory"):
        Plan([Agent("a", "Use {{ thing }}")], {"thing": Thing()}).check_prompts()
    with pytest.raises(DeclarationError, match="the text of this Thing is an address in memory"):
        Plan([Agent("a", "Use it", context="thing")], {"thing": Thing()}).check_prompts()
    Plan([Agent("a", "Use {{ thing.name }}")], {"thing": Thing()}).check_prompts()


EMPTY = {
    "a condition": "{% if chosen %}Write about it.{% endif %}",
    "an empty value": "{{ chosen }}",
    "blanks": " {{ chosen }}\n",
}


@pytest.mark.parametrize("text", EMPTY.values(), ids=EMPTY)
def test_a_prompt_that_renders_empty_is_refused(text):
    """Before anything is sent: the API answers an empty prompt by a 400, which says less."""
    plan = Plan([Agent("a", text)], {"chosen": ""})
    for ask in (plan.check_prompts, lambda: plan.prompt("a", {})):
        with pytest.raises(DeclarationError, match=r"^The prompt of agent 'a' is empty when rendered.*Check .*chosen"):
            ask()


@pytest.mark.parametrize("text", ["{{ a }}", "{% if 'no' in a %}Write.{% endif %}"])
def test_a_prompt_that_an_answer_makes_empty_is_refused_then(text):
    """What an answer makes of a prompt is not known before: checks say nothing, the agent fails when it is known."""
    plan = Plan([Agent("a", "x"), Agent("b", text)])
    plan.check_prompts()
    assert text == plan.prompt_ahead(1, {"a": " "}).text
    with pytest.raises(DeclarationError, match="The prompt of agent 'b' is empty when rendered"):
        plan.prompt("b", {"a": " "})


def test_an_empty_context_is_refused():
    """Neither can a request hold one."""
    with pytest.raises(DeclarationError, match="The context 'rules' of agent 'a' is empty"):
        Plan([Agent("a", "x", context="rules")], {"rules": " "}).check_prompts()


def test_a_prompt_without_names_names_its_agent():
    """An expression that fails by itself is found like any other."""
    with pytest.raises(DeclarationError, match=r"prompt of agent 'b' cannot be rendered: .*unsafe") as caught:
        Plan([Agent("a", "x"), Agent("b", "{{ ''.__class__ }}")]).check_prompts()
    assert "b" == caught.value.agent


def test_a_value_too_long_for_a_request_is_refused_with_its_agent():
    """Before anything is sent, by its name."""
    plan = Plan([Agent("a", "Read: {{ book }}")], {"book": "x" * 32_000_001})
    with pytest.raises(
        DeclarationError, match=r"agent 'a' cannot be rendered: \{\{ book \}\}: it has more than 32,000,000"
    ):
        plan.check_prompts()


def test_hints_name_each_value_once():
    """What few people mean is said before it is sent: Python's form of a dict, the name of a file."""
    values = {"image": Path("x.png"), "facts": {"a": 1}, "text": "x"}
    plan = Plan([Agent("a", "{{ image }}{{ facts }}{{ text }}"), Agent("b", "{{ facts }}{{ a }}")], values)
    assert ["image is a path:", "facts is a dict"] == [" ".join(hint.split()[:4]) for hint in plan.hints()]
