"""Several items in one request: what is declared, what a reply says of each item, and what is refused."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import agent_magic as am
from agent_magic.declare.cells import declared, to_cell
from agent_magic.declare.grouping import taken_apart
from agent_magic.declare.task import Task
from agent_magic.errors import DeclarationError, InvalidAnswer, PlanError, UndefinedField
from agent_magic.notebook.declaring import read_agents

ROWS = ["red", "green", "blue", "grey", "pink"]


class Label(BaseModel):
    mood: Literal["good", "bad"]


def grouped(**more: Any) -> am.Agent:
    """An agent that is asked for two rows at once."""
    return am.Agent("label", "Rate {{ item }} ({{ key }})", **{"each": "rows", "group": 2, "returns": int, **more})


def plan_of(*agents: am.Agent) -> am.Plan:
    """A plan over five rows."""
    return am.Plan(list(agents), {"rows": ROWS})


def test_requests_and_rows_are_steps():
    """There is a request for each group of rows, the last one smaller, and a step for each row."""
    plan = plan_of(grouped())
    assert list(plan.groups["label_request"]) == [0, 1, 2]
    assert list(plan.groups["label"]) == [0, 1, 2, 3, 4]
    assert plan.parents("label_2") == ("label_request_1",)
    text = plan.prompt("label_request_1", {})
    assert '<item number="1">\nRate blue (2)\n</item>' in text
    assert '<item number="2">\nRate grey (3)\n</item>' in text
    assert "red" not in text


@pytest.mark.parametrize(
    ("rows", "more", "requests"),
    [
        (5, {}, 1),
        (45, {}, 3),  # at most 20, and about as many in each
        (45, {"expect_out": 90}, 5),  # 10 of them fill half of 2048 tokens
        (45, {"expect_out": 90, "max_tokens": 256}, 45),
        (10, {"prompt": "x" * 4000 + "{{ item }}"}, 4),  # three such prompts are long enough
    ],
)
def test_as_many_as_fit(rows: int, more: dict[str, Any], requests: int):
    """`auto` goes by what an answer takes, by the length of the prompts, and by a most."""
    given = {"prompt": "Rate {{ item }}", "each": "rows", "group": "auto", "returns": int, **more}
    plan = am.Plan([am.Agent("label", **given)], {"rows": [f"row {number}" for number in range(rows)]})
    assert requests == len(plan.groups.get("label_request", ()))
    sizes = [len(plan.agents[one].part.item) for one in plan.groups.get("label_request", {}).values()]  # pyright: ignore[reportOptionalMemberAccess]
    assert rows == sum(sizes)
    assert max(sizes, default=0) - min(sizes, default=0) < max(requests, 1)


def test_what_one_answer_takes_is_of_each():
    """`expect_out` is what an answer for one item takes: a request for several takes as often that."""
    plan = plan_of(grouped(expect_out=100))
    assert [200, 200, 100] == [plan.agents[one].expect_out for one in plan.groups["label_request"].values()]
    assert 100 == next(iter(declared(plan))).expect_out


def test_a_field_that_a_row_has_not_is_an_error_when_it_is_declared():
    """A row's answer has the declared type, and what takes it is checked against that."""
    with pytest.raises(UndefinedField, match="mod"):
        plan_of(grouped(returns=Label), am.Agent("check", "{{ label.mod }}", each="rows"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"returns": None}, "--returns"),
        ({"each": None}, "--each"),
        ({"group": 0}, ">= 1"),
        ({"group": "all"}, "'auto'"),
        ({"when": "other"}, "when"),
        ({"save": "{{ key }}.txt"}, "save"),
        ({"attach": "item"}, "attach"),
    ],
)
def test_what_is_about_one_answer_is_refused(more: dict[str, Any], said: str):
    """A group needs rows and a type, and no option that is about one answer."""
    with pytest.raises(DeclarationError) as error:
        grouped(**more)
    assert said in str(error.value)


def test_items_of_an_answer_and_answers_per_row_are_refused():
    """The items have to be known, and a prompt for several has no answer of another agent for each."""
    with pytest.raises(PlanError, match="items of an answer"):
        am.Plan([am.Agent("rows", "?", returns=list[str]), grouped(most=5)])
    with pytest.raises(PlanError, match="answer per item"):
        plan_of(am.Agent("first", "{{ item }}", each="rows"), _second())


def _second() -> am.Agent:
    return am.Agent("second", "{{ first }}", each="rows", group=2, returns=int)


def test_a_plan_as_json_has_the_same_requests_and_rows():
    """Written and read, prompts and rows are the same; as declared it is one agent with its group."""
    plan = plan_of(grouped())
    again = am.Plan.from_json(plan.to_json())
    assert again.names == plan.names
    assert again.prompt("label_request_2", {}) == plan.prompt("label_request_2", {})
    for one in (plan, again):
        (agent,) = declared(one)
        assert isinstance(agent, am.Agent)
        assert (agent.name, agent.each, agent.group, agent.prompt) == (
            "label",
            "rows",
            2,
            "Rate {{ item }} ({{ key }})",
        )
    data = {
        "agents": [{"name": "a", "prompt": "{{ item }}", "each": "rows", "group": 5, "returns": {"type": "string"}}]
    }
    assert am.Plan.from_dict({**data, "values": {"rows": ROWS}}).names[0] == "a_request_0"


def test_rows_put_together_need_no_note():
    """The items of a request are written one by one, so no list goes out as Python text."""
    plan = am.Plan([am.Agent("label", "{{ item }}", each="rows", returns=int, group=2)], {"rows": [{"a": 1}, {"a": 2}]})
    assert [] == plan.hints()
    assert "a: 1" in plan.prompt("label_request_0", {})


def test_a_heading_says_it_too():
    """`%%agents` headings have `--group`, and an agent is written with it."""
    (agent,), _ = read_agents("", "## label --each rows --returns int --group 3\nRate {{ item }}")
    assert agent.group == 3
    assert "--group 3" in to_cell([agent])


def answer(number: Any, value: Any) -> dict[str, Any]:
    """The answer for an item as a reply has it."""
    return {"item": number, "answer": value}


answers = st.lists(
    st.builds(answer, st.sampled_from([0, 1, 2, 3, True, "1", None, -1]), st.sampled_from(["wrong", None, 7, 8, 9])),
    max_size=8,
)


@given(st.lists(st.one_of(answers, st.just("cut {"), st.just(["no", {"item": 1}])), min_size=1, max_size=2))
def test_no_reply_loses_or_swaps_a_row(turns: list[Any]):
    """Whatever is missing, doubled, out of order, extra or of another type: a row has its own first answer, or none."""
    text = "".join(one if isinstance(one, str) else json.dumps({"answers": one}) for one in turns)
    rows = [row for one in turns if not isinstance(one, str) for row in one if isinstance(row, dict)]
    wanted = {
        number: next(
            (row["answer"] for row in rows if row["item"] is number and isinstance(row.get("answer"), int)), None
        )
        for number in (1, 2)
    }
    plan = plan_of(grouped())
    request = plan["label_request_0"]
    assert isinstance(request, am.Agent)
    read = request.returns.value(text)
    good, fault = taken_apart(request, text)
    assert good == sum(value is not None for value in wanted.values())
    assert (fault is None) == (good == 2)
    for number, value in wanted.items():
        row = plan[f"label_{number - 1}"]
        assert isinstance(row, Task)
        take = row.function
        if value is None:
            assert f"item {number}:" in str(fault)
            with pytest.raises(InvalidAnswer):
                take(label_request_0=read)
        else:
            assert take(label_request_0=read) == value
