"""The registry: cells run again, out of order, renamed, deleted."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic import Agent, Context, Task
from agent_magic.errors import Cycle, DeclarationError, UnknownAgent
from agent_magic.notebook import Cell, Registry


def declare(registry, name, prompt="x", cell=None, execution=None, *, ran=(), variables=(), cycles=False, **options):
    """Declare as a cell does; each call is an execution of its own unless it is named."""
    declare.executions += 1
    run = execution or f"message {declare.executions}"
    agent = Agent(name, prompt, **options)
    return registry.declare(agent, Cell(cell, run), ran=ran, variables=variables, cycles=cycles)


declare.executions = 0


def registry_of(**prompts):
    """A registry with these agents, each from a cell of its own."""
    registry = Registry("p")
    for name, prompt in prompts.items():
        declare(registry, name, prompt, f"cell {name}")
    return registry


def names(registry):
    """The agents' names in order."""
    return [agent.name for agent in registry.agents]


def test_agents_stand_in_the_order_of_their_first_declaration():
    """Declaring again keeps the place."""
    registry = registry_of(a="1", b="2", c="3")
    assert [] == declare(registry, "a", "new", "cell a")
    assert ["a", "b", "c"] == names(registry)
    assert "new" == registry.agents[0].prompt
    assert 3 == len(registry)
    assert "a" in registry
    assert "d" not in registry


def test_a_cell_run_ten_times_declares_one_agent():
    """Nothing is noted, nothing grows, nothing becomes stale."""
    registry = registry_of(a="1", b="{{ a }}")
    for _ in range(10):
        assert [] == declare(registry, "a", "1", "cell a", ran=["a", "b"])
    assert ["a", "b"] == names(registry)


def test_a_rename_in_a_cell_drops_the_old_name():
    """The same cell, another name: the agent keeps its place, and that is said."""
    registry = registry_of(a="1", b="2")
    assert ["renamed from 'a'"] == declare(registry, "first", "1", "cell a")
    assert ["first", "b"] == names(registry)


def test_without_cell_ids_names_are_all_there_is():
    """Where the front end names no cells, a new name is a new agent; one of the same text may be the old one."""
    registry = Registry("p")
    assert [] == declare(registry, "a")
    assert ["a has the same text; if this cell was renamed: %agents drop a"] == declare(registry, "b")
    assert [] == declare(registry, "c", "other")
    assert ["a", "b", "c"] == names(registry)


def test_a_rename_onto_another_agent_replaces_it():
    """The cell that is renamed takes the place of the agent of that name; its own old one is gone."""
    registry = registry_of(a="1", b="2", c="3")
    notes = declare(registry, "c", "1", "cell a")
    assert "renamed from 'a'" in notes
    assert ["b", "c"] == names(registry)
    assert "1" == registry.agents[1].prompt


def test_another_cell_that_takes_a_name_is_told():
    """Two cells with one name: the later wins, and says so; run again it does not."""
    registry = registry_of(a="1")
    assert ["replaces the declaration of another cell"] == declare(registry, "a", "2", "another cell")
    assert [] == declare(registry, "a", "2", "another cell")


def test_a_loop_in_one_cell_declares_them_all():
    """Agents declared by one execution of one cell do not rename each other; the next execution starts anew."""
    registry = Registry("p")
    for name in ("a", "b", "c"):
        assert [] == declare(registry, name, "x", "loop", "message one")
    assert ["a", "b", "c"] == names(registry)
    for name in ("a", "b", "c"):
        declare(registry, name, "x", "loop", "message two")
    assert ["a", "b", "c"] == names(registry)


def test_a_change_makes_descendants_with_results_stale():
    """The agent and what follows from it; nobody without a result, nobody beside it."""
    registry = registry_of(a="1", b="{{ a }}", c="{{ b }}", d="x", e="{{ a }}")
    assert ["now stale: b, c"] == declare(registry, "a", "new", "cell a", ran=["a", "b", "c", "d"])


@pytest.mark.parametrize("change", [{"model": "m"}, {"max_tokens": 5}, {"after": "d"}, {"system": "s"}], ids=str)
def test_a_change_of_an_option_is_a_change(change):
    """Not only the prompt counts."""
    registry = registry_of(a="1", b="{{ a }}", d="x")
    assert ["now stale: b"] == declare(registry, "a", "1", "cell a", ran=["a", "b"], **change)


def test_order_only_edges_make_stale_too():
    """What waits without using the text is stale all the same."""
    registry = registry_of(a="1")
    declare(registry, "b", "x", after="a")
    assert ["now stale: b"] == declare(registry, "a", "2", "cell a", ran=["a", "b"])


def test_many_stale_agents_are_told_in_short():
    """Five names, and a sign that there are more."""
    registry = registry_of(a="1", **{f"b{one}": "{{ a }}" for one in range(9)})
    notes = declare(registry, "a", "2", "cell a", ran=names(registry))
    assert ["now stale: b0, b1, b2, b3, b4 …"] == notes


def test_a_cycle_is_refused_and_the_registry_stays():
    """The error names the cycle; what was declared before is as it was."""
    registry = registry_of(a="{{ b }}", b="{{ c }}")
    before = registry.agents
    with pytest.raises(Cycle) as caught:
        declare(registry, "c", "{{ a }}", "cell c")
    assert ("a", "c", "b", "a") == caught.value.cycle
    assert before == registry.agents
    assert [] == declare(registry, "c", "{{ a }}", "cell c", cycles=True)


def test_a_rename_that_closes_a_cycle_is_refused():
    """The name that is gone is not part of the graph any more, and the old agent stays."""
    registry = registry_of(a="{{ b }}", b="x")
    with pytest.raises(Cycle):
        declare(registry, "c", "{{ a }}{{ c }}", "cell b")
    assert ["a", "b"] == names(registry)
    assert ["renamed from 'b'"] == declare(registry, "d", "{{ a }}", "cell b")


def test_an_agent_may_use_the_variable_of_its_own_name():
    """`{{ a }}` in agent a is the notebook's variable, where there is one, else a cycle."""
    registry = Registry("p")
    assert [] == declare(registry, "a", "{{ a }}", variables=["a"])
    with pytest.raises(Cycle):
        declare(registry, "b", "{{ b }}")


def test_parents_and_what_is_undefined():
    """Edges so far with where each comes from, and the names nothing stands behind yet."""
    registry = registry_of(a="1", b="2")
    agent = Agent("c", "{{ a }} {{ topic }} {{ later }}", after="b,a,lost")
    assert (("a", "prompt"), ("b", "after")) == registry.parents(agent)
    assert ("later", "lost") == registry.undefined(agent, {"topic": 1})


def test_only_names_in_use_are_read():
    """The namespace is asked for the names that prompts use, and for no other."""
    asked = set()

    class Spy(dict):
        def __contains__(self, name):
            asked.add(name)
            return super().__contains__(name)

    namespace = Spy(topic=1, secret=2)
    assert {"topic": 1} == registry_of(a="{{ topic }}", b="{{ a }}").values(namespace)
    assert {"topic", "a"} == asked


def test_dropping():
    """Dropped agents are gone; an unknown name drops nobody."""
    registry = registry_of(alpha="1", b="2")
    with pytest.raises(UnknownAgent, match="Did you mean 'alpha'"):
        registry.drop(["b", "alhpa"])
    assert ["alpha", "b"] == names(registry)
    registry.drop(["b"])
    assert ["alpha"] == names(registry)
    registry.clear()
    assert [] == names(registry)


def test_agents_of_deleted_cells_are_found():
    """The agents that these cells declared."""
    registry = registry_of(a="1", b="2", c="3")
    assert ("a", "c") == registry.of_cells({"cell c", "cell a", "other"})
    assert () == registry.of_cells(())


def test_descendants_of_a_cycle_end():
    """With cycles allowed the walk ends too."""
    registry = registry_of(a="x")
    declare(registry, "b", "{{ a }}{{ c }}", cycles=True)
    declare(registry, "c", "{{ b }}", cycles=True)
    assert ("b", "c") == registry.descendants("a")


steps = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.sampled_from(["x", "{{ a }}", "{{ b }}", "{{ c }}{{ a }}"]), st.integers(1, 3)
    ),
    max_size=12,
)


@given(steps)
def test_whatever_order_cells_run_in(todo):
    """One agent per name, at most one per cell, never a cycle; a cell's last declaration is the one that stands."""
    registry, last = Registry("p"), {}
    for name, prompt, cell in todo:
        before = registry.agents
        try:
            declare(registry, name, prompt, f"cell {cell}", ran=["a", "b"])
        except Cycle:
            assert before == registry.agents
            continue
        last = {key: value for key, value in last.items() if value[0] != name}
        last[cell] = (name, prompt)
        assert {value[0]: value[1] for value in last.values()} == {one.name: one.prompt for one in registry.agents}
        for number, value in last.items():
            assert (value[0],) == registry.of_cells([f"cell {number}"])


def declare_context(registry, name, text="text", cell=None, *, ran=()):
    """Declare as a cell does; each call is an execution of its own."""
    declare.executions += 1
    return registry.declare_context(Context(name, text), Cell(cell, f"message {declare.executions}"), ran=ran)


def test_a_context_that_changed_makes_who_used_it_stale():
    """Those who share it, those whose prompt names it, and what waits for them; others stay."""
    registry = Registry("p")
    declare(registry, "a", context="rules")
    declare(registry, "b", "{{ a }}")
    declare(registry, "c", "{{ rules }}")
    declare(registry, "d")
    ran = ["a", "b", "c", "d", "rules"]
    assert [] == declare_context(registry, "rules", cell="one", ran=ran)
    assert [] == declare_context(registry, "rules", cell="one", ran=ran)
    assert ["now stale: a, b, c"] == declare_context(registry, "rules", "new", "one", ran=ran)
    assert ["a"] == [agent.name for agent in registry.sharing("rules")]


def test_a_context_may_stand_behind_its_agents():
    """Until then its name is undefined."""
    registry = Registry("p")
    declare(registry, "a", "{{ x }}", context="rules")
    assert ("x", "rules") == registry.undefined(registry.agents[0], {})
    declare_context(registry, "rules", "{{ y }}")
    assert ("x",) == registry.undefined(registry.agents[0], {})
    assert {"y": 2} == registry.values({"y": 2, "z": 3})


def test_a_context_is_renamed_and_replaced_like_an_agent():
    """By its cell, or by its name."""
    registry = Registry("p")
    declare_context(registry, "rules", cell="one")
    assert ["renamed from 'rules'"] == declare_context(registry, "laws", cell="one")
    assert ["replaces the declaration of another cell"] == declare_context(registry, "laws", "x", "two")
    assert ["laws"] == [one.name for one in registry.contexts]
    assert ("laws",) == registry.of_cells({"two"})


def test_a_name_that_a_context_uses_is_a_variables():
    """Whichever of the two cells is run first, the second one is refused; the first can be run again."""
    registry = Registry("p")
    declare_context(registry, "rules", "Of {{ topic }}.", cell="one")
    with pytest.raises(DeclarationError, match="'rules' uses the answer of agent 'topic'"):
        declare(registry, "topic", cell="two")
    with pytest.raises(DeclarationError, match="'rules' uses the answer of agent 'topic'"):
        registry.declare_all([Agent("topic", "x")], Cell("two", "m"), ran=(), variables=(), cycles=False)
    with pytest.raises(DeclarationError, match="'rules' uses the context 'topic'"):
        declare_context(registry, "topic", cell="two")
    assert [] == [*registry.agents]
    assert [] == declare_context(registry, "rules", "Of {{ topic }}.", cell="one")


def test_a_name_is_an_agents_or_a_contexts():
    """Not both, unless the cell itself became the other."""
    registry = Registry("p")
    declare(registry, "a", cell="one")
    declare_context(registry, "rules", cell="two")
    with pytest.raises(DeclarationError, match=r"'a' is an agent already.*%agents drop a"):
        declare_context(registry, "a", cell="two")
    with pytest.raises(DeclarationError, match="'rules' is a context already"):
        declare(registry, "rules", cell="three")
    assert ["in place of the agent a"] == declare_context(registry, "a", cell="one")
    assert ["in place of the context rules"] == declare(registry, "rules", cell="two")
    assert (["rules"], ["a"]) == (names(registry), [one.name for one in registry.contexts])


@pytest.mark.parametrize(
    ("text", "words"), [("{{ a }}", "the answer of agent 'a'"), ("{{ laws }}", "the context 'laws'")]
)
def test_a_context_takes_no_answers(text, words):
    """It is said at its declaration, where that is known."""
    registry = Registry("p")
    declare(registry, "a")
    declare_context(registry, "laws")
    with pytest.raises(DeclarationError, match=f"'rules' uses {words}"):
        declare_context(registry, "rules", text)


def test_contexts_are_forgotten():
    """By name, or all."""
    registry = Registry("p")
    for name in ("rules", "laws"):
        declare_context(registry, name)
    registry.drop(["rules"])
    assert ["laws"] == [one.name for one in registry.contexts]
    with pytest.raises(UnknownAgent, match="Did you mean 'laws'"):
        registry.drop(["lawss"])
    registry.clear()
    assert () == registry.contexts


def test_a_step_in_a_variable_counts_where_it_is_named():
    """`clean = am.Task("clean", tidy)` and `{{ clean }}`: no text, but a step, and those that it takes too."""
    space = {"clean": Task("clean", lambda rows: rows), "rows": Task("rows", lambda: 1)}
    space["other"] = Task("other", lambda: 1)
    registry = registry_of(a="{{ clean }}", b="{{ misnamed }}")
    space["misnamed"] = Agent("helper", "x")
    assert ["{{ misnamed }} is the step 'helper': give both one name, helper = ..."] == registry.adopt(space)
    assert ["a", "b", "clean", "rows"] == names(registry)
    assert (("clean", "prompt"),) == registry.parents(registry.agents[0])
    registry.adopt(space)
    assert ["a", "b", "clean", "rows"] == names(registry)
    newer = Task("clean", lambda: 1)
    registry.adopt({**space, "clean": newer})
    assert newer is registry.agents[-1]
    registry.adopt({"clean": "a text"})
    assert ["a", "b"] == names(registry)
    registry.adopt(space)
    declare(registry, "clean", "an agent of that name", "cell 9")
    registry.adopt({})
    assert ["a", "b", "clean"] == names(registry)


def test_a_task_in_a_variable_that_takes_what_is_declared_counts_too():
    """Nobody has to name it; one that has to do with nothing here, or has another name, is for a plan in Python."""
    space = {
        "up": Task("up", lambda a: a),
        "upper": Task("upper", lambda up, rows: up),
        "rows": Task("rows", lambda: 1),
        "far": Task("far", lambda z: z),
        "x": Task("y", lambda a: a),
    }
    registry = registry_of(a="x")
    assert [] == registry.adopt(space)
    assert {"a", "up", "upper", "rows"} == set(names(registry))
