"""Typed answers as values, read by their schema alone: hostile texts, hostile schemas, prompts that take fields."""

from __future__ import annotations

import json
from typing import Literal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_magic import Agent
from agent_magic.api import Plan
from agent_magic.declare import Answers, Fields, Items, Returns
from agent_magic.declare.answers.reading import read
from agent_magic.errors import InvalidAnswer, UndefinedField


class Quote(BaseModel):
    text: str


class Label(BaseModel):
    mood: Literal["good", "bad"]
    items: list[Quote]
    score: float | None = None


SCHEMA = Returns.of(Label, agent="a").schema
GOOD = '{"mood": "good", "items": [{"text": "a"}], "score": 1}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("  \n", "it is empty"),
        ("I am sorry, I cannot.", "it is not JSON: Expecting value at character 1"),
        (GOOD[:20], "it is not JSON"),
        ("[1]", r"Input should be an object, got \[1\]"),
        ("null", "Input should be an object, got None"),
        ('{"mood": "great", "items": []}', "mood: Input should be 'good' or 'bad', got 'great'"),
        ('{"mood": 1, "items": []}', "mood: Input should be 'good' or 'bad', got 1"),
        ('{"items": []}', "mood: Field required"),
        ('{"mood": "good", "items": [{"text": 1}]}', r"items\.0\.text: Input should be a valid string, got 1"),
        ('{"mood": "good", "items": {}}', "items: Input should be a valid array"),
        (
            '{"mood": "good", "items": [], "score": "x"}',
            "score.float: Input should be a valid number.* got 'x'",
        ),
        ('{"mood": "good", "items": [], "score": NaN}', "score.*: Input should be a finite number"),
        ('{"mood": "good", "items": [], "score": 1e400}', "score.*: Input should be a finite number"),
        ('{"mood": ' + "[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_what_does_not_fit_names_its_field(text, message):
    """The message is short, and says what was expected."""
    with pytest.raises(InvalidAnswer, match=message) as caught:
        read(SCHEMA, text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"\n{GOOD}\n",
        f"\ufeff{GOOD}",
        f"Sure:\n```json\n{GOOD}\n```\nAnything else?",
        f"As [1] says, {{roughly}}: {GOOD} and more",
        f"{GOOD} or, once more: {GOOD}",
        GOOD.replace("good", "GOOD"),
        GOOD.replace('"score"', '"extra": null, "score"'),
    ],
)
def test_what_fits(text):
    """JSON as it stands, and what is lenient on purpose: the list is in the module that reads it."""
    assert Fields(mood="good", items=Items([Fields(text="a")]), score=1.0) == read(SCHEMA, text)


def test_a_union_takes_the_class_that_fits_whole():
    """Of two classes, the one that has all fields, whatever their order."""

    class Small(BaseModel):
        a: int

    class Large(BaseModel):
        a: int
        b: int

    made = Returns.of(Small | Large, agent="a")
    assert Large(a=1, b=2) == made.value('{"value": {"a": 1, "b": 2}}')
    assert Small(a=1) == made.value('{"value": {"a": 1, "c": 2}}')


@given(JSON, JSON)
def test_a_hostile_record_gives_a_value_or_says_that_it_does_not(schema, data):
    """Whatever schema and text a file of a stranger holds."""
    for one in (schema, {"type": "object", "properties": {"a": schema}, "required": schema}):
        made = Returns(json.dumps(one))
        assert isinstance(str(made), str)
        made.placeholder("")
        try:
            made.value(json.dumps(data))
        except InvalidAnswer as error:
            assert len(str(error)) < 500  # noqa: PT017 - it may as well fit


# prompts


def prompt(text, value, **more):
    """A prompt that takes the value of `label`."""
    return Plan([Agent("label", "x", returns=Label), Agent("b", text)]).prompt("b", {"label": value, **more})


def test_prompts_take_fields():
    """By name, in loops and conditions, and whole as JSON; a field may have the name of a method."""
    value = read(SCHEMA, GOOD)
    assert "good a 1.0" == prompt("{{ label.mood }} {{ label.items[0].text }} {{ label.score }}", value)
    assert "a" == prompt("{% for one in label.items %}{{ one.text }}{% endfor %}", value)
    assert "yes" == prompt("{% if label.mood == 'good' %}yes{% endif %}", value)
    assert json.loads(GOOD) == json.loads(prompt("{{ label }}", value))
    assert json.loads(GOOD) == json.loads(prompt("{{ label | tojson }}", value))
    assert [{"text": "a"}] == json.loads(prompt("{{ label.items }}", value))


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("{{ label.mod }}", "mod", "uses {{ label.mod }}, but label has no field 'mod'. Did you mean 'mood'?"),
        ("{{ label['sentiment'] }}", "sentiment", "It has mood, items, score."),
        ("{{ label.items[0].txt }}", "txt", "but label.items[0] has no field 'txt'. Did you mean 'text'?"),
        ("{% for one in label.items %}{{ one.txt }}{% endfor %}", "txt", "label.items[0] has no field 'txt'"),
        ("{% if label.moody %}x{% endif %}", "moody", "Did you mean 'mood'?"),
        ("{{ label.mod | upper }}", "mod", "label has no field"),
    ],
)
def test_a_field_that_is_not_there_is_named_before_anything_is_spent(text, field, message):
    """When the plan is made, wherever in the prompt it stands."""
    with pytest.raises(UndefinedField) as caught:
        Plan([Agent("label", "x", returns=Label), Agent("b", text)])
    assert (field, "b") == (caught.value.field, caught.value.agent)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{{ label.mood.upper() }}",
        "{{ label.items | length }}",
        "{{ (label.items | first).text }}",
        "{% set label2 = label %}{{ label2.anything }}",
        "{% for one in label.items %}{% endfor %}{% for one in [1] %}{{ one.real }}{% endfor %}",
    ],
)
def test_what_nobody_can_know_is_let_through(text):
    """Methods of texts, filters and names of the prompt's own are not second-guessed."""
    Plan([Agent("label", "x", returns=Label), Agent("b", text)])


ROWS = {"rows": pd.DataFrame({"text": ["a", "b"]})}


def test_fields_of_a_group():
    """Beside the row its own; in a report all of them, by number or in a loop."""
    label = Agent("label", "{{ item.text }}", each="rows", returns=Label)
    Plan([label, Agent("b", "{{ label.mood }}", each="rows")], ROWS)
    Plan([label, Agent("b", "{% for one in label %}{{ one.mood }}{% endfor %}{{ label[0].mood }}")], ROWS)
    with pytest.raises(UndefinedField, match="label has no field 'mod'"):
        Plan([label, Agent("b", "{{ label.mod }}", each="rows")], ROWS)
    with pytest.raises(UndefinedField, match="label has no field 'mod'"):
        Plan([label, Agent("b", "{% for one in label %}{{ one.mod }}{% endfor %}")], ROWS)


def test_a_prompt_of_a_group_is_rendered():
    """The value of the own row, or all of them."""
    label = Agent("label", "{{ item.text }}", each="rows", returns=Literal["x", "y"])
    plan = Plan([label, Agent("b", "{{ label }}", each="rows"), Agent("c", "{{ label }}")], ROWS)
    assert "y" == plan.prompt("b_1", {"label_1": "y"})
    assert "x\n\ny" == plan.prompt("c", {"label_0": "x", "label_1": "y"})
    assert "1\n\nNone" == str(Answers([1, None]))


def test_a_prompt_ahead_has_the_fields():
    """Before the answer is there, its texts are the placeholder, so that the prompt can be shown and counted."""
    plan = Plan([Agent("label", "x", returns=Label), Agent("b", "Is {{ label.items[0].text }} {{ label.mood }}?")])
    assert "Is <it> <it>?" == plan.prompt_ahead(1, {"label": "<it>"}).text
    plan.check_prompts()


def test_a_plan_as_json_keeps_the_schema():
    """And reads it back: the same is sent, and values come without the class."""
    plan = Plan([Agent("label", "x", returns=Label, check=lambda _: None)])
    again = Plan.from_json(plan.to_json())
    assert plan.agents[0].schema == again.agents[0].schema
    assert "good" == again["label"].returns.value(GOOD).mood  # pyright: ignore[reportOptionalMemberAccess]
