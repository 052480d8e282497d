"""Agents declared for each item of a value: what they become, who waits for whom, what their prompts say."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import agent_magic as am
from agent_magic import Context
from agent_magic.declare.each import Part, notes_on_missing, one_of
from agent_magic.declare.values import as_item
from agent_magic.errors import DeclarationError, DuplicateAgent, PlanError, UndefinedVariable, UnknownAgent
from tests.live.virtual import Reply, drive

FRAME = pd.DataFrame({"text": ["good", "bad"], "stars": [5, 1]}, index=["x", "y"])


def plan_of(*agents, **values):
    """Make a plan."""
    return am.Plan(agents, values)


def test_rows_of_a_frame():
    """An agent per row, named by number, whose prompt takes the row's cells; its key is the row's label."""
    plan = plan_of(am.Agent("label", "{{ key }}: {{ item.text }}, {{ item['stars'] }}", each="rows"), rows=FRAME)
    assert ("label_0", "label_1") == plan.names
    assert ["x: good, 5", "y: bad, 1"] == [plan.prompt(name, {}) for name in plan.names]
    assert {} == plan.values  # the frame itself goes nowhere


@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        (["a", "b"], ["0 a", "1 b"]),
        (("a",), ["0 a"]),
        (range(2), ["0 0", "1 1"]),
        ({"k": "a", "l": "b"}, ["k a", "l b"]),
        (pd.Series(["a", "b"], index=[7, 9]), ["7 a", "9 b"]),
        (pd.Index(["a"]), ["0 a"]),
        (FRAME[["text"]].to_numpy()[:, 0], ["0 good", "1 bad"]),
        ([{"text": "a"}], ["0 text: a"]),
        (["{{ key }}"], ["0 {{ key }}"]),
    ],
)
def test_kinds_of_collections(value, prompts):
    """Lists, dicts, Series, arrays: keys and items as one expects; a text is never read as a template again."""
    plan = plan_of(am.Agent("one", "{{ key }} {{ item }}", each="them"), them=value)
    assert prompts == [plan.prompt(name, {}) for name in plan.names]


def test_a_row_as_text_has_a_line_per_column():
    """Column, colon, value."""
    plan = plan_of(am.Agent("one", "{{ item }}", each="rows"), rows=FRAME)
    assert plan.prompt("one_0", {}) == "text: good\nstars: 5"


def test_groups_over_one_value_go_side_by_side():
    """Over the same value the name of another group is its answer for the same item, and only that is waited for."""
    plan = plan_of(
        am.Agent("label", "{{ item.text }}", each="rows"),
        am.Agent("check", "{{ label }} for {{ item.text }}", each="rows", after="label"),
        rows=FRAME,
    )
    assert [("label_0",), ("label_1",)] == [plan.parents(f"check_{number}") for number in range(2)]
    assert plan.prompt("check_1", {"label_1": "no"}) == "no for bad"


def test_others_take_all_answers():
    """Outside the group its name is all answers: one below the other as text, and one by one in a loop."""
    plan = plan_of(
        am.Agent("label", "{{ item }}", each="rows"),
        am.Agent("all", "{{ label }}"),
        am.Agent("listed", "{% for one in label %}<{{ one }}>{% endfor %}{{ label | length }}"),
        am.Agent("later", "x", after=("label",)),
        am.Agent("other", "{{ label }} {{ item }}", each="others"),
        rows=["a", "b"],
        others=["c"],
    )
    answers = {"label_0": "A", "label_1": "B"}
    assert plan.prompt("all", answers) == "A\n\nB"
    assert plan.prompt("listed", answers) == "<A><B>2"
    assert plan.prompt("other_0", answers) == "A\n\nB c"
    for name in ("all", "listed", "later", "other_0"):
        assert plan.parents(name) == ("label_0", "label_1")


def test_a_group_of_one_is_still_a_group():
    """Elsewhere its name is a sequence of one answer, so that a loop does not go over letters."""
    plan = plan_of(
        am.Agent("label", "{{ item }}", each="rows"),
        am.Agent("listed", "{% for one in label %}<{{ one }}>{% endfor %}"),
        rows=["a"],
    )
    assert plan.prompt("listed", {"label_0": "word"}) == "<word>"


def test_a_group_s_name_stands_for_all_of_it():
    """Wherever names of agents are given."""
    plan = plan_of(
        am.Agent("label", "{{ item }}", each="rows"),
        am.Agent("end", "{{ label }}"),
        am.Agent("x", "y"),
        rows=["a", "b"],
    )
    assert plan.numbers(["label", "x", "label_1"]) == [0, 1, 3]
    assert plan.select(["label"]).names == ("label_0", "label_1")
    with pytest.raises(UnknownAgent, match="label"):
        plan.numbers(["labell"])


def test_part_of_a_group_can_be_chosen():
    """A plan of chosen agents has the answers there are."""
    plan = plan_of(
        am.Agent("label", "{{ item }}", each="rows"),
        am.Agent("check", "{{ label }}", each="rows"),
        rows=["a", "b"],
    ).select(["check_1"])
    assert plan.names == ("label_1", "check_1")
    assert plan.prompt("check_1", {"label_1": "B"}) == "B"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("text", "whose type is str"),
        (3, "whose type is int"),
        ({1, 2}, "whose type is set"),
        ((one for one in "ab"), "'them', a generator, which can be read only once"),
        ([], "which is empty"),
        (FRAME.iloc[:0], "which is empty"),
        (pd.concat([FRAME, FRAME], axis=1), "which has the column 'text' more than once"),
        (FRAME.rename(columns={"text": 1, "stars": "1"}), "which has the column '1' more than once"),
    ],
)
def test_what_there_cannot_be_an_agent_for_each_of(value, words):
    """The message says what the value is."""
    with pytest.raises(DeclarationError, match=words):
        plan_of(am.Agent("one", "{{ item }}", each="them"), them=value)


def test_mistakes_in_names():
    """A value that is not there, an agent in its place, a name that is taken."""
    one = am.Agent("one", "{{ item }}", each="them")
    with pytest.raises(UndefinedVariable, match="'them'"):
        plan_of(one)
    with pytest.raises(PlanError, match="Say how many items"):
        plan_of(one, am.Agent("them", "x"))
    with pytest.raises(DuplicateAgent, match="one_0"):
        plan_of(one, am.Agent("one_0", "x"), them=[1])
    with pytest.raises(DuplicateAgent, match="'one'"):
        plan_of(*plan_of(one, them=[1]).agents, am.Agent("one", "x"))


def test_a_context_cannot_have_a_group_s_name():
    """Nor take a group's answers; what its agents share is the same for all of them."""
    one = am.Agent("one", "{{ item }}", each="them", context="shared")
    with pytest.raises(PlanError, match="both an agent and a context"):
        am.Plan([one], {"them": [1]}, contexts=[Context("one", "x"), Context("shared", "x")])
    with pytest.raises(PlanError, match="uses the answer of agent 'one'"):
        am.Plan([one], {"them": [1]}, contexts=[Context("shared", "{{ one }}")])
    plan = am.Plan([one], {"them": [1, 2], "v": "V"}, contexts=[Context("shared", "all {{ v }}")])
    assert ["all V", "all V"] == [plan.context_of(number) for number in range(2)]


def test_item_and_key_are_ordinary_names_elsewhere():
    """Only agents that go over something have them."""
    plan = plan_of(am.Agent("item", "x"), am.Agent("b", "{{ item }} {{ key }}"), key="k")
    assert plan.parents("b") == ("item",)
    assert plan.prompt("b", {"item": "I"}) == "I k"


def test_json_round_trip():
    """A plan comes back with its items; rows keep their columns, and what JSON cannot hold becomes text."""
    frame = pd.DataFrame({"when": pd.to_datetime(["2026-01-02"]), "x": [float("nan")]})
    plan = plan_of(
        am.Agent("one", "{{ item.when }} {{ item.x }} {{ key }}", each="rows"), am.Agent("end", "{{ one }}"), rows=frame
    )
    again = am.Plan.from_json(plan.to_json())
    assert again.prompt("one_0", {}) == plan.prompt("one_0", {}) == "2026-01-02 00:00:00 nan 0"
    assert again.prompt("end", {"one_0": "A"}) == "A"
    assert list(again.groups) == ["one"]
    declared = am.Plan.from_dict(
        {"agents": [{"name": "one", "prompt": "{{ item }}", "each": "rows"}], "values": {"rows": ["a", "b"]}}
    )
    assert declared.names == ("one_0", "one_1")
    with pytest.raises(PlanError, match="'part'"):
        am.Plan.from_dict({"agents": [{"name": "one", "prompt": "x", "part": {"group": "a"}}]})


def test_many_are_planned_quickly():
    """Twenty thousand agents over ten thousand rows: nothing is quadratic in them."""
    rows = [{"text": f"row {number}"} for number in range(10_000)]
    began = time.process_time()
    plan = plan_of(
        am.Agent("label", "Rate {{ item.text }}", each="rows"),
        am.Agent("check", "{{ label }} for {{ item.text }}", each="rows"),
        am.Agent("end", "{{ check }}"),
        rows=rows,
    )
    answers = dict.fromkeys(plan.names, "x")
    assert len(plan.prompt("end", answers)) == 3 * 10_000 - 2
    assert len(plan) == 20_001
    assert time.process_time() - began < 20  # quadratic, it took minutes


@pytest.mark.parametrize("value", [FRAME.set_axis(["x", "x"]), FRAME["text"].set_axis(["x", "x"])])
def test_labels_that_stand_for_several_rows_are_told(value):
    """Before anything is paid: answers joined by them would repeat rows."""
    with pytest.warns(UserWarning, match="'them' has 2 rows and 1 labels"):
        plan_of(
            am.Agent("one", "{{ key }} {{ item }}", each="them"), am.Agent("two", "{{ item }}", each="them"), them=value
        )


def test_a_cell_that_is_not_there_is_named():
    """In the words of frames."""
    plan = plan_of(am.Agent("one", "{{ item.txt }}", each="rows"), rows=FRAME)
    with pytest.raises(DeclarationError, match="the row has no column 'txt'"):
        plan.prompt("one_0", {})


def test_a_group_asked_for_as_one_agent_says_what_it_is():
    """No other agent is suggested: the name is right, and stands for several."""
    plan = am.Plan([am.Agent("label", "{{ item }}", each="rows")], {"rows": [1, 2]})
    with pytest.raises(UnknownAgent, match=r"'label' is a group of agents, such as 'label_0'\.$"):
        plan.parents("label")
    run = am.Run(drive(plan, lambda *_: Reply())[0])
    with pytest.raises(UnknownAgent, match=r"run\.each\('label'\) has all answers"):
        run["label"]


@pytest.mark.parametrize(
    "step",
    [
        am.Agent("ask", "Is {{ item }} good?", each="rows", returns=bool, effort="low", tools=["web_search"]),
        am.Agent("ask", "Say a number.", repeat=3, role="critic", after=["other"]),
        am.Task("ask", lambda item: item, each="rows", retries=2),
    ],
    ids=["rows", "repeated", "task"],
)
def test_one_of_a_group_is_what_its_checks_would_make_of_it(step):
    """It is copied, not checked again: the copy has all that a step made by its options has."""
    part = Part("ask", "rows", 7, "key", "value", ())
    without = {"repeat" if step.repeat else "each": None}
    made, checked = one_of(step, part, **without), replace(step, name="ask_7", part=part, **without)
    for name in step.__slots__:
        one, other = getattr(checked, name), getattr(made, name)
        assert one == other or (name == "template" and one.text == other.text and one.names == other.names), name
    assert step.name == "ask", "the declaration stays"


def test_a_row_has_its_cells_as_attributes_too():
    """A task may write `item.price`, as prompts do; a column that is not there is named, with the nearest."""
    row: Any = as_item({"price": 1.5})
    assert 1.5 == row.price == row["price"]
    with pytest.raises(AttributeError, match=r"no column 'prise'\. Did you mean 'price'"):
        _ = row.prise
    assert row == copy.deepcopy(row)


def test_cells_without_a_value_are_told():
    """A prompt writes `nan` for them. Columns that it does not take, and other kinds of values, say nothing."""
    frame = pd.DataFrame({"when": ["today", None, None], "stars": [1.0, 2.0, None], "full": [1, 2, 3]})
    paths = [("item", "when"), ("item", "full"), ("item", "nothing"), ("item",), ("other", "stars")]
    (said,) = notes_on_missing("rows", frame, paths)
    assert said.startswith("no value, where the prompt says nan or None: item.when (2 of 3 rows). ")
    assert said.endswith("rows.astype(object).fillna('unknown') replaces that")
    assert 2 == (frame.astype(object).fillna("unknown")["when"] == "unknown").sum()
    assert [] == notes_on_missing("rows", [None], paths) == notes_on_missing("rows", frame["when"], paths)


INDEXES = [
    pd.date_range("2026-01-01", periods=2, name="day"),
    pd.date_range("2026-01-01", periods=2, tz="Europe/Berlin"),
    pd.period_range("2026-01", periods=2, freq="M"),
    pd.to_timedelta([1, 2], unit="h"),
    pd.interval_range(0, 2),
    pd.MultiIndex.from_tuples([("a", pd.Timestamp("2026-01-01")), ("b", pd.Timestamp("2026-01-02"))], names=["x", "d"]),
    pd.Index([1.5, float("inf")]),
    pd.Index([None, 1], dtype="Int64"),
    pd.DatetimeIndex([None, "2026-01-01"]),
    pd.Index([("a", 1), ("b", 2)], tupleize_cols=False),
]


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: type(index[0]).__name__)
def test_keys_keep_their_types_in_a_stored_plan(index):
    """What was opened again is joined to its rows as on the day: days are days, levels have their names."""
    rows = pd.DataFrame({"x": [1, 2]}, index=index)
    plan = plan_of(am.Agent("one", "{{ item.x }} {{ key }}", each="rows"), rows=rows)
    again = am.Plan.from_json(plan.to_json())
    parts = [[one.part for one in each.agents if one.part is not None] for each in (plan, again)]
    before, after = (
        [(repr(one.key), type(one.key), one.levels, [*map(str, one.dtypes)]) for one in each] for each in parts
    )
    assert before == after
    assert again.prompt("one_1", {}) == plan.prompt("one_1", {})
