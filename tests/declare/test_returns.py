"""What an agent returns: types as schemas the API can hold, names looked up without running anything, checks."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import pickle
import re
import sys
import types
from collections.abc import Callable
from datetime import date, datetime
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, Required, TypedDict, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model, field_validator, with_config

from agent_magic import Agent
from agent_magic.api import Plan
from agent_magic.declare import Fields, Returns, brief, look_up
from agent_magic.declare.answers.reading import as_json, plain
from agent_magic.declare.answers.returns import Check
from agent_magic.declare.answers.schema import MOST_OPTIONAL, MOST_UNIONS, narrow, schema_of, typical_chars, words_of
from agent_magic.errors import DeclarationError, InvalidAnswer
from agent_magic.simulator.tools import check_schema


class Tone(enum.Enum):
    GOOD = "Good"
    BAD = "Bad"


class Quote(BaseModel):
    text: str
    stars: int = Field(ge=1, le=5)


class Label(BaseModel):
    """What a review says."""

    tone: Tone
    topic: Annotated[str, Field(description="one word")]
    quotes: list[Quote] = []
    seen: date | None = None


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Pair(TypedDict):
    left: str
    right: bool


@with_config(ConfigDict(extra="forbid"))
class Only(TypedDict, total=False):
    left: Required[str]


class Pairs(Pair):
    more: NotRequired[list[Only]]


class Tree(BaseModel):
    name: str
    children: list[Tree]


class Place(NamedTuple):
    x: int
    y: int


def returns(kind, **more):
    """What a type asks of answers."""
    return Returns.of(kind, agent="a", **more)


def schema(kind):
    """The schema of a type, as it is sent."""
    return json.loads(returns(kind).schema)


KINDS = [
    (Label, "Label(tone, topic, quotes, seen)"),
    (Point, "Point(x, y)"),
    (Pair, "Pair(left, right)"),
    (Tone, "Good | Bad"),
    (Literal["a", 1], "a | 1"),
    (int, "int"),
    (float, "float"),
    (bool, "bool"),
    (str, "str"),
    (date, "date"),
    (list[Label], "list[Label(tone, topic, quotes, seen)]"),
    (list[str], "list[str]"),
    (int | None, "int | None"),
    (Optional[Point], "Point(x, y) | None"),  # noqa: UP045 - that is how people write it
    (Union[Point, Quote], "Point(x, y) | Quote(text, stars)"),  # noqa: UP007
    (Literal["a", "b", "c", "d", "e", "f"], "a | b | c | d | …"),
]


@pytest.mark.parametrize(("kind", "words"), KINDS, ids=[words for _, words in KINDS])
def test_a_type_becomes_a_schema_that_the_api_takes(kind, words):
    """It is an object, and a schema made of that schema is the same: a record's schema is sent as it was."""
    made = schema(kind)
    assert "object" == made["type"]
    assert words == brief(made)
    check_schema(made)
    assert returns(kind).schema == returns(made).schema
    assert typical_chars(made) > 0


def test_what_no_grammar_holds_is_told_in_the_description():
    """Bounds and hard patterns become words, beside what the class says itself; easy patterns stay."""

    class Made(BaseModel):
        stars: int = Field(ge=1, le=5, description="how many")
        code: str = Field(pattern=r"^[a-z]+$", max_length=5)
        word: str = Field(pattern=r"^\bword\b$")
        path: list[str] = Field(min_length=2)

    made = schema(Made)["properties"]
    assert {"type": "integer", "description": "how many {minimum: 1, maximum: 5}"} == made["stars"]
    assert {"type": "string", "pattern": "^[a-z]+$", "description": "{maxLength: 5}"} == made["code"]
    assert r"{pattern: ^\bword\b$}" == made["word"]["description"]
    assert {"type": "array", "items": {"type": "string"}, "description": "{minItems: 2}"} == made["path"]


def test_a_description_beside_a_class_is_kept():
    """A field whose type is a class or an Enum has the field's own words."""

    class Made(BaseModel):
        tone: Tone = Field(description="of the writer")

    assert {"type": "string", "enum": ["Good", "Bad"], "description": "of the writer"} == schema(Made)["properties"][
        "tone"
    ]


def model(fields: Any, name: str = "Made") -> Any:
    """A class with these fields."""
    return create_model(name, **fields)


def field(kind):
    """A class with a field of this type."""
    return create_model("Made", field=(kind, ...))


IN_WORDS_ONLY = [
    (field(dict[str, int]), r"Made\.field is a dict, .* Write a class with a field per key", '{"field": {"a": 1}}'),
    (field(dict), r"Made\.field is a dict", '{"field": {"a": [1, {"b": null}]}}'),
    (field(Any), r"Made\.field may be anything .* Name its type", '{"field": ["x", 1]}'),
    (field(object), r"Made\.field may be anything", '{"field": "x"}'),
    (field(list), r"Made\.field is a list of anything", '{"field": [1, "x"]}'),
    (field(list[Any]), r"Made\.field is a list of anything|Made\.field\[\] may be anything", '{"field": [1, "x"]}'),
    (field(tuple[()]), r"Made\.field is a list of anything", '{"field": []}'),
    (field(bytes), r"Made\.field is bytes, .* Write str", '{"field": "x"}'),
    (field(list[dict[str, str]]), r"Made\.field\[\] is a dict", '{"field": [{"a": "x"}]}'),
    (Tree, r"Tree\.children\[\] contains Tree again", '{"name": "a", "children": [{"name": "b", "children": []}]}'),
    (list[Tree], r"contains Tree again", '[{"name": "a", "children": []}]'),
    (Tree | None, r"contains Tree again", "null"),
    (create_model("Empty"), r"Empty is a class without fields", "{}"),
    (dict, r"dict is a dict", '{"value": {"value": 1}}'),
    (dict[str, int], r"is a dict", '{"value": 1}'),
    (dict[int, list[Literal["x"]]], r"is a dict", '{"1": ["x"]}'),
]


@pytest.mark.parametrize(("kind", "why", "answer"), IN_WORDS_ONLY)
def test_what_no_schema_holds_is_asked_for_in_words(kind, why, answer):
    """The plan says why. The class alone decides about the answer, which is also read without the class."""
    plan = Plan([Agent("a", "x", returns=kind)])
    (note,) = plan.hints()
    assert re.search(why, note)
    made = returns(kind)
    assert words_of(schema_of(made.schema)) is not None
    assert TypeAdapter(kind).validate_json(answer) == made.value(answer)
    assert made.value(answer) == made.value(f"Sure:\n```json\n{answer}\n```")
    again = Plan.from_json(plan.to_json())["a"].returns
    assert again == made
    assert json.loads(answer) == plain(again.value(answer))
    assert json.loads(answer) == json.loads(str(as_json(made.as_written(answer))))
    made.placeholder("x")
    with pytest.raises(InvalidAnswer):
        made.value("no JSON")


@pytest.mark.parametrize("kind", [kind for kind, _, _ in IN_WORDS_ONLY])
def test_an_answer_that_is_not_there_yet_may_be_of_any_form(kind):
    """Prompts that take fields, keys and items of it are rendered before it exists."""
    prompt = "{{ a }} {{ a | tojson }} {% for key, value in a.items() %}{{ key }} {{ value }}{% endfor %}"
    tree = (
        "{{ a.children[0].name }} {% for one in a.children %}{{ one.name }}{% for two in one.children %}{{ two.title }}"
    )
    asked = (
        tree + "{% endfor %}{% endfor %}" if kind is Tree else prompt if kind in {dict, dict[str, int]} else "{{ a }}"
    )
    plan = Plan([Agent("a", "x", returns=kind), Agent("b", asked)])
    assert plan.estimate().agents["input_tokens"].gt(0).all()


class Unfinished(BaseModel):
    """Of a notebook in which a later cell defines the class."""

    one: Later  # noqa: F821 # pyright: ignore[reportUndefinedVariable]


REFUSED = [
    (3, r"3 is no type\. Give a pydantic model, dataclass"),
    (None, r"None is no type"),
    ("Label", r"'Label' is no type"),
    (Label(tone=Tone.BAD, topic="t"), r"is no type"),
    (types.SimpleNamespace, r"SimpleNamespace is no type of answers"),
    (json, r"is no type"),
    (Callable[[], int], r"is no type of answers"),
    (Unfinished, r"Unfinished has a type in it that is not defined yet\. Define that one first"),
]


@pytest.mark.parametrize(("kind", "message"), REFUSED)
def test_what_is_no_type_is_refused(kind, message):
    """When declared, with what to write instead."""
    if kind is None:
        with pytest.raises(DeclarationError, match="None is no type"):
            returns(kind)
        return
    with pytest.raises(DeclarationError, match=message) as caught:
        Agent("a", "x", returns=kind)
    assert str(caught.value).startswith("Agent 'a' cannot return this: ")


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({f"f{n}": (int, 0) for n in range(MOST_OPTIONAL)}, True),
        ({f"f{n}": (int, 0) for n in range(MOST_OPTIONAL + 1)}, False),
        ({f"f{n}": (int | str, ...) for n in range(MOST_UNIONS)}, True),
        ({f"f{n}": (int | None, ...) for n in range(MOST_UNIONS + 1)}, False),
    ],
)
def test_the_limits_of_a_request(fields, fits):
    """24 fields that may be left out, 16 of several types; one more is asked for in words."""
    kind = model(fields, "Wide")
    if fits:
        check_schema(schema(kind))
    else:
        assert re.match(rf"Wide has {len(fields)} .* holds \d+\. .* Wide\.f\d+", returns(kind).in_words)


def test_values_are_of_the_class():
    """A typed answer is an instance; words of a choice may come in another case, and defaults are filled in."""
    text = json.dumps({"tone": "GOOD", "topic": "t", "quotes": [{"text": "x", "stars": 2}], "seen": "2026-11-22"})
    assert Label(tone=Tone.GOOD, topic="t", quotes=[Quote(text="x", stars=2)], seen=date(2026, 11, 22)) == returns(
        Label
    ).value(text)
    assert Label(tone=Tone.BAD, topic="") == returns(Label).value('{"tone": "bad", "topic": ""}')
    assert Point(1, 2.0) == returns(Point).value('{"x": 1, "y": 2}')
    assert {"left": "a", "right": True} == returns(Pair).value('{"left": "a", "right": true}')
    assert {"left": "a", "right": True} == returns(Pairs).value('{"left": "a", "right": true}')
    for more in ({"left": "b", "top": 1}, {}):
        with pytest.raises(InvalidAnswer, match=r"more\.0\.(top: Extra|left: Field required)"):
            returns(Pairs).value(json.dumps({"left": "a", "right": True, "more": [more]}))
    assert Tone.BAD is returns(Tone).value('{"value": "bad"}')
    assert 3 == returns(int).value('{"value": 3}')
    assert returns(int | None).value('{"value": null}') is None
    assert [Point(1, 1.5)] == returns(list[Point]).value('{"value": [{"x": 1, "y": 1.5}]}')


def test_a_strict_class_reads_json():
    """A model that takes no texts for dates still takes those of JSON."""

    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        when: datetime

    assert 2026 == returns(Strict).value('{"when": "2026-11-22T10:00:00Z"}').when.year


def test_a_class_may_refuse_an_answer():
    """Its bounds and validators count; the message names the field."""

    class Made(BaseModel):
        stars: int = Field(ge=1, le=5)

        @field_validator("stars")
        @classmethod
        def odd(cls, value: int) -> int:
            if value == 3:
                raise KeyError("no three")
            if value % 2 == 0:
                raise ValueError("must be odd")
            return value

    made = returns(Made)
    with pytest.raises(InvalidAnswer, match="stars: Input should be less than or equal to 5") as caught:
        made.value('{"stars": 9}')
    assert caught.value.mendable
    with pytest.raises(InvalidAnswer, match="stars: Value error, must be odd"):
        made.value('{"stars": 2}')
    with pytest.raises(InvalidAnswer, match=r"its class raised KeyError") as caught:
        made.value('{"stars": 3}')
    assert not caught.value.mendable


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), RecursionError("deep")])
def test_validators_may_raise_anything(error):
    """Whatever a validator raises is a failed answer, never an end of the kernel."""

    class Made(BaseModel):
        stars: int

        @field_validator("stars")
        @classmethod
        def fail(cls, value: int) -> int:
            raise error

    with pytest.raises(InvalidAnswer, match=f"its class raised {type(error).__name__}"):
        returns(Made).value('{"stars": 3}')


def test_a_copy_without_the_class_reads_what_the_schema_says():
    """As a record does that was sent elsewhere: fields, lists and plain values."""
    sent = pickle.loads(pickle.dumps(Agent("a", "x", returns=Label, check=lambda _: None)))
    assert returns(Label) == sent.returns
    value = sent.returns.value('{"tone": "bad", "topic": "t", "quotes": [{"text": "x", "stars": 2}]}')
    assert "Bad" == value.tone
    assert 2 == value["quotes"][0].stars
    assert value.seen is None
    assert copy.deepcopy(returns(Label)).adapter is not None


# looking up

NAMES = {
    "print": print,
    "Label": Label,
    "Tone": Tone,
    "json": json,
    "Scores": list[int],
    "here": sys.modules[__name__],
    "number": 3,
}


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("Label", Label),
        ("list[Label]", list[Label]),
        ("List[Tone]", list[Tone]),
        ("Label | None", Label | None),
        ("Optional[int]", int | None),
        ("Union[int, str]", int | str),
        ("int|str|None", int | str | None),
        ('Literal["a", "b"]', Literal["a", "b"]),
        ("Literal[-1, 2]", Literal[-1, 2]),
        ("Scores", list[int]),
        ("here.Point", Point),
        ("float", float),
        ("date", date),
    ],
)
def test_types_are_looked_up(written, same):
    """By name, or made of names; what it was is kept, to be looked up again."""
    found = look_up("a", written, None, NAMES)["returns"]
    assert returns(same).schema == found.schema
    assert written == found.written


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("Prinz", r"'Prinz' is not defined\. Define it"),
        ("Lable", "'Lable' is not defined. Did you mean 'Label'"),
        ("number", "3 is no type"),
        ("print('x')", "not a type that can be read"),
        ("__import__('os')", "not a type that can be read"),
        ("[int for _ in (1,)]", "not a type that can be read"),
        ("(lambda: int)()", "not a type that can be read"),
        ("json.loads('1')", "not a type that can be read"),
        ("number.real", "not a type that can be read"),
        ("Label[int]", "not a type that can be read"),
        ("list[", "not a type that can be read"),
        ("Literal[print()]", "not a type that can be read"),
        ("'Label'", "not a type that can be read"),
        ("", "not a type that can be read"),
        ("(" * 500, "not a type that can be read"),
    ],
)
def test_nothing_is_evaluated(written, message):
    """What is no name is refused; calls never run."""
    with pytest.raises(DeclarationError, match=message):
        look_up("a", written, None, NAMES)


def test_properties_of_objects_are_not_read():
    """Only modules and classes are looked into: a property is code."""

    class Trap:
        @property
        def inner(self):
            raise AssertionError

    with pytest.raises(DeclarationError, match="not a type that can be read"):
        look_up("a", "trap.inner", None, {"trap": Trap()})


# checks


def test_a_check_says_what_is_wrong():
    """`None` is right, a text is wrong; `ValueError` and `assert` say it too."""
    Check.of(lambda _: None, agent="a").run(1)
    Check.of(lambda _: " ", agent="a").run(1)
    with pytest.raises(InvalidAnswer, match=r"^too short$") as caught:
        Check.of(lambda _: "too short", agent="a").run(1)
    assert caught.value.mendable

    def low(value):
        if value < 3:
            raise ValueError("too low")

    with pytest.raises(InvalidAnswer, match=r"^too low$"):
        Check.of(low, agent="a").run(1)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda value: value > 3, "returned False; it must return None, or what is wrong as text"),
        (lambda value: value.missing, "raised AttributeError"),
        (lambda _: sys.exit(1), "raised SystemExit"),
        (lambda: None, "raised TypeError"),
    ],
)
def test_a_check_that_fails_itself_is_no_reason_to_ask_again(check, message):
    """The step fails, and the message says whose fault it is."""
    with pytest.raises(InvalidAnswer, match=message) as caught:
        Check.of(check, agent="a").run(1)
    assert not caught.value.mendable


async def waits(_):
    """A check that would have to be awaited."""


@pytest.mark.parametrize("check", [3, "name", waits, int])
def test_a_check_is_a_plain_function(check):
    """Anything else is refused when declared."""
    with pytest.raises(DeclarationError, match="check of agent 'a' must be a function that is not async"):
        Agent("a", "x", check=check)


# round trips

SCALARS = st.sampled_from([int, float, bool, str, date, Tone, Literal["x", "y", 3]])
INNER = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        inner.map(lambda kind: list[kind]),
        inner.map(lambda kind: kind | None),
        st.lists(inner, min_size=1, max_size=4).map(
            lambda kinds: model({f"f{n}": (kind, ...) for n, kind in enumerate(kinds)})
        ),
    ),
    max_leaves=6,
)


@given(INNER, st.data())
def test_every_value_comes_back(kind, data):
    """A value, written as JSON and read by schema and class, is the value; and by the schema alone its JSON."""
    made = returns(kind)
    check_schema(json.loads(made.schema))
    value = data.draw(values(kind))
    whole = made.adapter.dump_python(value, mode="json")
    wrapped = whole if json.loads(made.schema).get("title") != "value" else {"value": whole}
    assert value == made.value(json.dumps(wrapped))
    read = Returns(made.schema).value(json.dumps(wrapped))
    assert whole == json.loads(as_json(read))


def values(kind):
    """Values of a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        parts = {name: values(field.annotation) for name, field in kind.model_fields.items()}
        return st.fixed_dictionaries(parts).map(lambda fields: kind(**fields))
    if getattr(kind, "__origin__", None) is list:
        return st.lists(values(kind.__args__[0]), max_size=3)
    if hasattr(kind, "__args__") and type(None) in kind.__args__:
        rest = [one for one in kind.__args__ if one is not type(None)]
        return st.one_of(st.none(), *map(values, rest))
    simple = {int: st.integers(-(10**9), 10**9), float: st.floats(-1e9, 1e9), bool: st.booleans(), date: st.dates()}
    if kind in simple:
        return simple[kind]
    if kind is str:
        return st.text(st.characters(blacklist_categories=["Cs"]))
    return st.sampled_from([*Tone] if kind is Tone else ["x", "y", 3])


def test_a_schema_of_ones_own():
    """JSON Schema may be given as it is, and is held to the same rules."""
    own = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 2}}, "required": ["a"]}
    agent = Agent("a", "x", returns=own)
    assert Fields(a=1) == agent.returns.value('{"a": 1}')
    assert not json.loads(agent.schema)["additionalProperties"]
    with pytest.raises(DeclarationError, match="may be anything"):
        narrow({}, "The schema")
