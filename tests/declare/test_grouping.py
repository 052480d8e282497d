"""Several items in one request: what is declared, what a reply says of each item, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import agent_magic as am
from agent_magic import Task
from agent_magic.declare import asked_apart, to_cell
from agent_magic.declare.declared import declared
from agent_magic.declare.grouping import taken_apart
from agent_magic.errors import DeclarationError, InvalidAnswer, PlanError, UndefinedField
from agent_magic.notebook import read_agents

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


def rows(*answers: tuple[Any, Any]) -> str:
    """A reply as the model writes it."""
    return json.dumps({"answers": [{"item": number, "answer": value} for number, value in answers]})


NUMBERS = st.sampled_from([0, 1, 2, 3, 4, True, "1", "2", None, -1, 1.5, 10**400])
ANSWERS = st.sampled_from(["wrong", None, 7, 8, 9])
REPLIES = st.one_of(
    st.lists(st.tuples(NUMBERS, ANSWERS), max_size=6).map(lambda found: rows(*found)),
    st.permutations([1, 2, 3]).map(lambda found: rows(*((number, 6 + number) for number in found))),
    st.sampled_from(['cut {"answers": [{"item": 1, "answer": 7}', "Sorry, [see] above.", '[1, {"item": 1}]']),
)


def expected(replies: list[str]) -> dict[int, Any]:
    """Return the answer that each row may show, by the rule of what replies are asked for and may say."""
    kept, asked, vain, count = dict[int, Any](), {1, 2, 3}, set[int](), 0
    for text in replies:
        try:
            data = json.loads(text)
        except ValueError:
            continue
        count += 1
        found: Any = data["answers"] if isinstance(data, dict) else [{"item": None, "answer": None}] * len(data)
        given = [int(row["item"]) if isinstance(row["item"], str) else row["item"] for row in found]
        ints = all(isinstance(one, int) and not isinstance(one, bool) for one in given)
        trusted = ints and (set(given) <= asked or set(given) == {1, 2, 3})
        trusted = trusted and (len(set(given)) == len(given) or set(given) >= asked)
        fits = {number: row["answer"] for number, row in zip(given, found, strict=True)} if trusted else {}
        if not {1, 2, 3} - kept.keys():  # nothing was to be asked any more: two answers that differ are none
            kept = {number: value for number, value in kept.items() if value == fits.get(number, value)}
            asked, new = {min({1, 2, 3} - kept.keys(), default=0)} - {0} if kept else set[int](), {}
            continue
        new = {one: value for one, value in fits.items() if one not in kept and isinstance(value, int)}
        new = {one: value for one, value in new.items() if given.count(one) == 1}
        kept |= new
        if not new and len(asked) == 1 and count > 1:
            vain |= asked
        left = {1, 2, 3} - kept.keys() - vain
        alone = set(sorted(left)[:1]) if kept or not vain else set[int]()
        asked = left if new or count == 1 else alone
    return kept


@given(st.lists(REPLIES, min_size=1, max_size=3))
@example([rows((0, 7), (1, 8), (2, 9))])  # numbered from 0
@example([rows((1, 7), (2, 8), (2, 8), (3, 9))])  # a number twice, with the same answer
@example([rows((1, 7), (2, 8), (3, 9), (4, 9))])  # a row that nobody asked for
@example([rows((1, 7)), rows((1, 8), (2, 9))])  # what was missing, numbered anew
@example([rows((1, 7)), rows((2, 8), (3, 9))])
@example([rows((1, 7), (2, 8), (3, 9)), rows((1, 7), (2, 0), (3, 9))])  # two answers for one row
def test_no_reply_loses_or_swaps_a_row(replies: list[str]):
    """Whatever a model numbers: a row shows its own answer, or none."""
    plan = plan_of(grouped(group=3))
    request, text = plan["label_request_0"], "".join(replies)
    assert isinstance(request, am.Agent)
    kept = expected(replies)
    try:
        good, fault = taken_apart(request, text)
        read = request.returns.value(text)
    except InvalidAnswer:  # there is no JSON in it
        assert not kept
        return
    assert good == len(kept)
    assert (fault is None) == (good == 3)
    for number in (1, 2, 3):
        row = plan[f"label_{number - 1}"]
        assert isinstance(row, Task)
        if number in kept:
            assert kept[number] == json.loads(row.function(label_request_0=read))
        else:
            with pytest.raises(InvalidAnswer, match=r"asked for|two different answers"):
                row.function(label_request_0=read)


def test_a_reply_that_has_lost_count_says_what_was_asked():
    """The model is told which numbers it was asked for, and which it gave."""
    request = plan_of(grouped(group=3))["label_request_0"]
    assert isinstance(request, am.Agent)
    _, fault = taken_apart(request, rows((0, 7), (1, 8), (2, 9)))
    assert "items 1, 2, 3: asked for 1, 2, 3, the reply numbers its answers 0, 1, 2" in str(fault)


def test_digits_and_defaults_of_a_row_are_those_of_the_class():
    """An answer of a row is read as any other: by the class, from what the model wrote."""

    class Bill(BaseModel):
        total: Decimal
        tags: list[str] = Field(default_factory=list)
        page: int = Field(default=0, ge=1)

    plan = plan_of(grouped(returns=Bill))
    request = plan["label_request_0"]
    assert isinstance(request, am.Agent)
    text = '{"answers": [{"item": 2, "answer": {"total": 1}}, {"item": 1, "answer": {"total": 10000000000000000.01}}]}'
    assert (2, None) == taken_apart(request, text)
    row = plan["label_0"]
    assert isinstance(row, Task)
    written = row.function(label_request_0=request.returns.value(text))
    assert '{"total":10000000000000000.01}' == written
    assert Bill(total=Decimal("10000000000000000.01")) == row.returns.of_row(written)


class Node(BaseModel):
    """A class that no schema of the API can hold: it refers to itself."""

    name: str
    parts: list[Node] = []


@pytest.mark.parametrize("kind", [int, Label, dict, list[dict], Node], ids=str)
def test_rows_that_are_asked_apart_are_the_same_of_a_plan_that_was_read(kind: Any):
    """Also of a type that is asked for in words."""
    plan = am.Plan([grouped(returns=kind)], {"rows": ["x", "y", "x"]})
    read = am.Plan.from_json(plan.to_json())
    schemas, others = ([one.schema for one in asked_apart(am.Plan, each).agents] for each in (plan, read))
    assert schemas == others
