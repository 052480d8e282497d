"""Plans in plans: what their steps are called, what names mean, and what is refused."""

from __future__ import annotations

import asyncio
import pickle

import pytest

import agent_magic as am
from agent_magic.declare.subplan import box_of
from agent_magic.errors import PlanError

RESEARCH = am.Plan(
    [am.Agent("sources", "Name some of {{ topic }}."), am.Agent("notes", "Sum up: {{ sources }}")], {"topic": "x"}
)


def prompts(plan: am.Plan) -> dict[str, str]:
    """The prompts by name."""
    return {one.name: one.prompt for one in plan.agents}


def joined(prompt: str, inner: am.Plan = RESEARCH, **options) -> am.Plan:
    """A plan of one agent that uses another plan."""
    return am.Plan([am.Agent("letter", prompt, **options)], {"research": inner, "topic": "other"})


def test_the_steps_of_a_plan_join_under_its_name():
    """Its name is the answer of its last step, and its values stay its own."""
    plan = joined("Write of {{ topic }}: {{ research }}")
    assert {
        "research__sources": "Name some of {{ research__topic }}.",
        "research__notes": "Sum up: {{ research__sources }}",
        "letter": "Write of {{ topic }}: {{ research__notes }}",
    } == prompts(plan)
    assert {"research__topic": "x", "topic": "other"} == plan.values
    assert ("research__notes",) == plan.parents("letter")


def test_a_plan_that_nobody_uses_does_not_join():
    """Nor one whose name an agent has."""
    assert ("letter",) == joined("{{ topic }}").names
    plan = am.Plan([am.Agent("research", "a"), am.Agent("b", "{{ research }}")], {"research": RESEARCH})
    assert ("research", "b") == plan.names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ research | upper }}", "{{ research__notes | upper }}"),
        ("{% if research %}research{% endif %}", "{% if research__notes %}research{% endif %}"),
        ("{{ research.research }}", "{{ research__notes.research }}"),
        ("{{ topic | default(value=research) }}", "{{ topic | default(value=research__notes) }}"),
        ("{{ research }}{{ dict(research=1) }}", "{{ research__notes }}{{ dict(research=1) }}"),
        ("{% raw %}{{ research }}{% endraw %}{{research}}", "{% raw %}{{ research }}{% endraw %}{{research__notes}}"),
        ("{{ 'research' ~ research }}", "{{ 'research' ~ research__notes }}"),
        ("{{- research -}} \r\n{%d} {{ research[0] }}", "{{- research__notes -}} \r\n{%d} {{ research__notes[0] }}"),
    ],
)  # fmt: skip
def test_only_variables_are_renamed(text: str, said: str):
    """Not fields, filters, arguments, words in texts, and what is sent as it is."""
    assert said == joined(text)["letter"].prompt


def test_conditions_maps_and_orders_are_edges_too():
    """A plan's name stands wherever the name of a step may."""
    inner = am.Plan([am.Agent("found", "list it", returns=list[str])])
    plan = am.Plan(
        [
            am.Agent("each_one", "do {{ item }}", each="research", most=2),
            am.Agent("only", "go", when="research | length > 1"),
            am.Agent("after", "go", after="research"),
            am.Task("count", lambda research: [*research]),
        ],
        {"research": inner},
    )
    names = ("each_one_0", "each_one_1", "only", "after", "count")
    assert [("research__found",)] * 5 == [plan.parents(name) for name in names]
    assert "research__found | length > 1" == plan["only"].when


def test_loops_and_maps_inside_keep_their_groups():
    """They are called by their box, and mean the same item and round as before."""
    inner = am.Plan(
        [
            am.Agent("plan", "list", returns=list[str]),
            am.Agent("work", "do {{ item }} of {{ plan }}", each="plan", most=2),
            am.Agent("draft", "write {{ work }}", until="critic > 3", rounds=2),
            am.Agent("critic", "rate {{ draft }}", returns=int),
        ]
    )
    plan = joined("{{ research }}", inner)
    assert ["research__work", "research__draft", "research__critic"] == list(plan.groups)
    assert ("research__critic_1",) == plan.parents("research__draft_2")[-1:]
    assert "research__critic > 3" == plan["research__draft_2"].until


def test_a_task_inside_is_called_by_its_own_parameters():
    """Async or not, and where it can be pickled it still can be."""

    async def later(sources: str) -> str:
        return sources + "!"

    inner = am.Plan([am.Agent("sources", "a"), am.Task("size", len_of), am.Task("late", later)])
    plan = joined("{{ research }}", inner)
    size, late = plan["research__size"], plan["research__late"]
    assert isinstance(size, am.Task)
    assert isinstance(late, am.Task)
    assert ("research__sources",) == size.parameters
    assert 3 == size.function(research__sources="abc")
    assert 3 == pickle.loads(pickle.dumps(size.function))(research__sources="abc")
    assert late.is_async
    assert "a!" == asyncio.run(late.function(research__sources="a"))


def len_of(sources: str) -> int:
    """A function that can be imported."""
    return len(sources)


def test_plans_are_nested_three_deep():
    """Not deeper, and no plan holds an earlier version of itself."""
    plan = RESEARCH
    for name in ("one", "two", "three"):
        before, plan = plan, am.Plan([am.Agent("end", f"{{{{ {name} }}}}")], {name: plan})
    assert "three__two__one__sources" == plan.names[0]
    with pytest.raises(PlanError, match="4 plans deep, and 3 are the most"):
        am.Plan([am.Agent("end", "{{ four }}")], {"four": plan})
    with pytest.raises(PlanError, match="holds an earlier version of itself"):
        am.Plan([am.Agent("end", "{{ two }}")], {"two": before})


def test_a_name_says_its_box():
    """The outermost; names that begin with underscores have none."""
    assert ["a", "a", "", ""] == [box_of(name) for name in ("a__b", "a__b__c", "ab", "__b")]


def test_a_joined_plan_is_written_and_read_as_any():
    """A reader of the file sees the same boxes."""
    plan = joined("{{ research }}")
    assert plan.names == am.Plan.from_json(plan.to_json()).names
