"""Classes of all kinds, with answers: what is read is what pydantic alone makes of the text that the model wrote."""

from __future__ import annotations

import dataclasses
import enum
import json
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, cast

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from agent_magic.declare import Returns, brief
from agent_magic.declare.answers.reading import as_json, as_written
from agent_magic.declare.answers.schema import IN_WORDS, is_wrapper
from agent_magic.errors import DeclarationError, InvalidAnswer
from agent_magic.simulator.tools import check_schema


def returns(kind: Any) -> Returns:
    """What a type asks of answers."""
    return Returns.of(kind, agent="a")


class Tone(enum.Enum):
    GOOD = "Good"
    BAD = "bad"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5
    tags: list[str] = dataclasses.field(default_factory=list)


class Pair(TypedDict):
    left: str
    right: NotRequired[bool]


class Spot(NamedTuple):
    x: int
    title: str = "none"


Score = NewType("Score", int)


class Post(BaseModel):
    title: str
    slug: str = ""
    note: str = None  # pyright: ignore[reportAssignmentType] - people write it

    @model_validator(mode="before")
    @classmethod
    def fill(cls, given: Any) -> Any:
        """Make a slug of the title."""
        if isinstance(given, dict) and "slug" not in given and isinstance(given.get("title"), str):
            return {**given, "slug": given["title"].lower()}
        return given


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    score: float
    level: Level = Level.LOW


class Aliased(BaseModel):
    mood: Literal["Good", "bad"] = Field(alias="the mood")
    page: int = Field(default=0, ge=1)
    unit: str = Field(default="", min_length=1)

    @field_validator("mood", mode="before")
    @classmethod
    def known(cls, mood: Any) -> Any:
        """Take a word of another list."""
        return {"positive": "Good"}.get(mood, mood) if isinstance(mood, str) else mood


class Tree(BaseModel):
    title: str = "x"
    tags: list[Tree] = []
    left: Tree | None = None


SCALARS = [str, int, float, bool, Decimal, Tone, Level, Literal["Good", "bad", 3], Annotated[int, Field(ge=2, le=7)]]
CLASSES = [
    Point,
    Pair,
    Post,
    Spot,
    tuple[float, float],
    tuple[int, str],
    tuple[int, ...],
    Score,
    Strict,
    Aliased,
    RootModel[float | int],
    RootModel[list[int]],
    Tree,
    bytes,
    Any,
]
"""The last three are asked for in words."""
DEFAULTS = st.sampled_from(
    [..., None, 0, "", "x", Field(default_factory=list), Field(default=0, ge=1), Field(alias="else"), Field(None, le=3)]
)


def class_of(fields: list[tuple[Any, Any]]) -> Any:
    """A class with fields of these types, each with its default."""
    made = {f"f{number}": (kind, default) for number, (kind, default) in enumerate(fields)}
    return create_model("value", **cast("dict[str, Any]", made))


KINDS = st.recursive(
    st.sampled_from([*SCALARS, *CLASSES]),
    lambda inner: st.one_of(
        inner.map(lambda kind: list[kind]),
        inner.map(lambda kind: dict[str, kind]),
        inner.map(lambda kind: kind | None),
        st.tuples(st.sampled_from([int, bool, Tone, Point, Post, Pair]), inner).map(lambda two: two[0] | two[1]),
        st.lists(st.tuples(inner, DEFAULTS), min_size=1, max_size=4).map(class_of),
    ),
    max_leaves=5,
)
WORDS = ["Good", "GOOD", "bad", "x", "", "3", "1.50", "true", "positive"]
NUMBERS = ["0", "1", "2", "3.0", "-1", "1.50", "9007199254740993", "0.30000000000000004", "12345678901234567.89", "1e2"]
NAMES = ["f0", "f1", "f2", "x", "y", "tags", "left", "right", "title", "slug", "note", "score", "level", "the mood"]
NAMES += ["page", "unit", "else", "value"]
SIMPLE = st.sampled_from(["null", "true", "false", '{"title":"A"}', *NUMBERS, *map(json.dumps, WORDS)])


def texts_of(adapter: Any) -> st.SearchStrategy[str]:
    """JSON texts, many of which fit a type."""
    fields = list(adapter.json_schema().get("properties", {})) or NAMES
    members = st.tuples(st.sampled_from(fields), st.deferred(lambda: JSON))
    written = st.lists(members, max_size=5, unique_by=lambda one: one[0])
    return st.one_of(JSON, written.map(_object))


def _object(members: list[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{json.dumps(name)}: {text}' for name, text in members)}}}"


JSON: st.SearchStrategy[str] = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda found: f"[{', '.join(found)}]"),
        st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=5, unique_by=lambda one: one[0]).map(_object),
    ),
    max_leaves=6,
)


@given(KINDS, st.data())
@example(Post, None)
def test_pydantic_alone_says_what_an_answer_is(kind: Any, data: Any):
    """What it takes is the value, with the fields that were set; what it refuses is refused or read leniently."""
    try:
        made = returns(kind)
    except DeclarationError:
        assume(False)
        return
    if IN_WORDS not in made.schema:
        check_schema(json.loads(made.schema))
    text = '{"title": "ABC"}' if data is None else data.draw(texts_of(made.adapter))
    sent = f'{{"value": {text}}}' if is_wrapper(json.loads(made.schema)) else text
    alone: Any
    try:
        alone = made.adapter.validate_json(text)
    except (ValidationError, TypeError):  # a bound of a number on a text
        with suppress(InvalidAnswer):  # or read leniently
            made.value(sent)
        return
    found = made.value(sent)
    assert str(_rounded(alone)) == str(_rounded(found))
    assert _set_fields(alone) == _set_fields(found)
    as_json(as_written(made.schema, sent))  # what prompts and frames take is there, whatever the class has let through


def _rounded(value: Any) -> Any:
    """A value with its decimals as pydantic reads them, by way of a float."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, BaseModel):
        return type(value).__name__, {name: _rounded(one) for name, one in dict(value).items()}
    if dataclasses.is_dataclass(value):
        return type(value).__name__, _rounded(vars(value))
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in cast("dict[str, Any]", value).items()}
    return [_rounded(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _set_fields(value: Any) -> Any:
    """The fields that were set, wherever there are models."""
    if isinstance(value, BaseModel):
        return value.model_fields_set, [_set_fields(one) for one in dict(value).values()]
    return [_set_fields(one) for one in cast("list[Any]", value)] if isinstance(value, list) else None


class Bill(BaseModel):
    total: Decimal
    parts: list[Decimal | None] = []


BIG = ["9007199254740993", "10000000000000000.01", "0.10", "1e-30", "-0.1000000000000000055"]


@pytest.mark.parametrize("number", BIG)
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Decimal, "{}"),
        (list[Decimal], "[1, {}]"),
        (Decimal | None, "{}"),
        (Bill, '{{"total": {}}}'),
        (list[Bill], '[{{"total": 1, "parts": [null, {}]}}]'),
        (Point | Bill, '{{"total": {}}}'),
    ],
)
def test_a_decimal_has_every_digit(number: str, kind: Any, text: str):
    """Whatever it stands in; and where a float would lose some, prompts and frames have them too."""
    made, text = returns(kind), text.format(number)
    assert f'"{Decimal(number)}"' in made.adapter.dump_json(made.value(text)).decode()
    shown = as_json(as_written(made.schema, text))
    assert number in shown or str(float(number)) in shown


def test_what_is_left_out_stays_left_out():
    """Defaults, factories, validators and `NotRequired` are the class's business."""
    assert Point(1, 0.5, []) == returns(Point).value('{"x": 1}')
    assert {"left": "a"} == returns(Pair).value('{"left": "a"}')
    post = returns(Post).value('{"title": "ABC"}')
    assert ("abc", None, {"title", "slug"}) == (post.slug, post.note, post.model_fields_set)
    aliased = returns(Aliased).value('{"the mood": "positive"}')
    assert (0, "", {"mood"}) == (aliased.page, aliased.unit, aliased.model_fields_set)


def test_a_tuple_is_sent_as_a_list_and_a_named_one_by_its_names():
    """The order of other types is told, since no grammar holds it; the class checks it."""
    assert Spot(1, "none") == returns(Spot).value('{"x": 1}')
    assert Spot(1, "a") == returns(Spot).value('[1, "a"]')
    schema = json.loads(returns(Spot).schema)
    assert (["x"], "Spot") == (schema["required"], schema["title"])
    assert (1.5, 2.0) == returns(tuple[float, float]).value("[1.5, 2]")
    sent = json.loads(returns(tuple[int, str]).schema)["properties"]["value"]
    assert [{"type": "integer"}, {"type": "string"}] == sent["items"]["anyOf"]
    assert "{in this order: int, str} {minItems: 2, maxItems: 2}" == sent["description"]
    with pytest.raises(InvalidAnswer, match="1: Input should be a valid string"):
        returns(tuple[int, str]).value("[1, 2]")


def test_a_list_that_is_left_out_is_an_empty_one_for_who_comes_next():
    """A factory of Python's own makes the same each time, so prompts and frames know it; others are not called."""
    assert '{"x": 1, "y": 0.5, "tags": []}' == as_json(as_written(returns(Point).schema, '{"x": 1}'))
    made = create_model("Made", id=(str, Field(default_factory=lambda: pytest.fail("called"))))
    assert '{"id": null}' == as_json(as_written(returns(made).schema, "{}"))


def test_a_null_that_stands_for_nothing_is_left_out():
    """Where a field may be left out and cannot be `null`; where `null` is a value, it stays."""
    assert [] == returns(Point).value('{"x": 1, "tags": null}').tags
    with pytest.raises(InvalidAnswer, match="x: Input should be a valid integer, got None"):
        returns(Point).value('{"x": null}')
    assert returns(int | None).value('{"value": null}') is None


@pytest.mark.parametrize("name", ["value", "answers_by_item", "item", "answer", "Answers"])
def test_a_name_of_the_user_s_is_never_one_of_ours(name: str):
    """A class may be called as the object that answers are wrapped in, and have its fields."""
    for fields in (["value"], ["answers"], ["item", "answer"], ["value", "other"]):
        kind: Any = create_model(name, **cast("dict[str, Any]", dict.fromkeys(fields, (int, ...))))
        text = json.dumps(dict.fromkeys(fields, 3))
        assert dict.fromkeys(fields, 3) == returns(kind).value(text).model_dump()
        assert json.loads(text) == json.loads(as_json(as_written(returns(kind).schema, text)))
        assert [kind(**json.loads(text))] == returns(list[kind]).value(f'{{"value": [{text}]}}')
        assert 3 == returns(kind.model_json_schema()).value(text)[fields[0]]
        several = returns(kind).of_several
        assert f"{brief(json.loads(returns(kind).schema))} per item" == str(several)


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (Any, "3", 3),
        (Any, "-1.5e3", -1500.0),
        (Any, '"a \\"word\\""', 'a "word"'),
        (Any, "null", None),
        (bool | dict[str, int], "true", True),
        (dict[str, int] | int, "7", 7),
        (float, "2.50", 2.5),
    ],
)
def test_a_scalar_that_fills_a_fence_is_the_answer(kind, written, value):
    """A number, text, `true`, `false` or `null` between fences is read as JSON, as a list or an object is."""
    for around in ("```json\n{}\n```", "```\r\n{}\r\n```", "Here it is:\n\n```JSON\n  {}\n```\nAnything else?"):
        assert value == returns(kind).value(around.format(written))


@pytest.mark.parametrize(
    "text", ["```python\n3\n```", "```\n3 apples\n```", "```\n03\n```", "```\n'a'\n```", "it is `3`", "```\n3\n"]
)
def test_other_scalars_in_prose_are_no_answer(text):
    """Program code, words, and a fence that is not closed hold no JSON."""
    with pytest.raises(InvalidAnswer, match="it is not JSON"):
        returns(Any).value(text)


def test_scalars_in_fences_that_differ_are_no_answer():
    """Of two that differ none is taken; beside an object that fits, a scalar is not read."""
    with pytest.raises(InvalidAnswer, match="it holds 2 different answers"):
        returns(Any).value("```\n3\n```\nor\n```\n4\n```")
    assert {"a": 1} == returns(dict[str, Any]).value('```\n3\n```\n{"a": 1}')


def test_texts_that_differ_are_no_answer():
    """Of two objects in prose that both fit none is taken; one that fits beside one that does not is the answer."""
    with pytest.raises(InvalidAnswer, match="it holds 2 different answers"):
        returns(Point).value('First {"x": 1}, no, {"x": 2}')
    assert Point(2) == returns(Point).value('Not {"y": 1} but {"x": 2}, {"x": 2}')
    assert [4, 5] == returns(list[int]).value("As [1] says:\n```json\n[4, 5]\n```")
    with pytest.raises(InvalidAnswer, match="it is not JSON"):
        returns(list[int]).value("As [1] says, I cannot.")
    with pytest.raises(InvalidAnswer, match="it is not JSON"):
        returns(create_model("All", x=(int, 0))).value('{"inner": {"x": 1}, "cut')
