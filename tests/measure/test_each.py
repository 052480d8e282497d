"""Answers as typed columns beside the rows they are for: dtypes of the schema, several agents, no row lost."""

from __future__ import annotations

import enum
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest
from pydantic import BaseModel

from agent_magic.api import Agent, Plan, Run
from agent_magic.errors import PlanError, UnknownGroup
from agent_magic.measure import OF_EACH
from agent_magic.record import Answer, Request, Usage


class Tone(enum.Enum):
    GOOD = "good"
    BAD = "bad"
    UNUSED = "unused"


class Inner(BaseModel):
    text: str


class Label(BaseModel):
    tone: Tone
    stars: int | None
    sure: float
    seen: bool | None = None
    note: str | None = None
    day: date | None = None
    at: datetime | None = None
    tags: list[str] = []
    quote: Inner | None = None
    either: int | str = 1
    rank: Literal[3, 1, 2] = 1


class Known:
    """A provider that answers by the prompt."""

    endpoint = "known"
    credentials = None
    is_limited = False
    price_list = None

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers

    async def send(self, request: Request, stream: Any) -> Answer:
        """Answer what is known, else nothing that fits."""
        stream.replied(200)
        text = self._answers.get(request.prompt, "?")
        return Answer(text, "end_turn", usage=Usage(1, output_tokens=1), model=request.model)


def known(answers: dict[str, str]) -> Any:
    """A whole provider."""
    from agent_magic.providers import Provider

    return type("Whole", (Known, Provider), {})(answers)


async def run(agents: list[Agent], answers: dict[str, Any], rows: Any) -> Run:
    """Run agents over rows."""
    texts = {prompt: one if isinstance(one, str) else json.dumps(one) for prompt, one in answers.items()}
    return await Plan(agents, {"rows": rows}).run(client=known(texts))


def runs(agents: list[Agent], answers: dict[str, Any], rows: Any) -> Run:
    """The same, from a test."""
    import asyncio

    return asyncio.run(run(agents, answers, rows))


FULL = {
    "tone": "GOOD",
    "stars": 4,
    "sure": 1,
    "seen": True,
    "note": "n",
    "day": "2026-11-22",
    "at": "2026-11-22T10:00:00+02:00",
    "tags": ["a"],
    "quote": {"text": "q"},
    "either": "x",
    "rank": 2,
}
EMPTY = {"tone": "bad", "stars": None, "sure": 0.5}
DTYPES = {
    "tone": "category",
    "stars": "Int64",
    "sure": "float64",
    "seen": "boolean",
    "note": "str",
    "day": "datetime64[us, UTC]",
    "at": "datetime64[us, UTC]",
    "tags": "object",
    "quote": "object",
    "either": "object",
    "rank": "category",
}
LABEL = Agent("label", "{{ item }}", each="rows", returns=Label)


@pytest.mark.parametrize("rows", [["full", "empty"], ["empty"], ["full"], ["wrong"]], ids="+".join)
def test_dtypes_are_those_of_the_schema(rows):
    """Whatever the values are, also where there is none."""
    frame = runs([LABEL], {"full": FULL, "empty": EMPTY}, rows).each("label")
    assert DTYPES == {name: str(frame[name].dtype) for name in DTYPES}
    assert [*DTYPES, *OF_EACH] == list(frame.columns)
    assert ["good", "bad", "unused"] == list(frame["tone"].cat.categories)
    assert [3, 1, 2] == list(frame["rank"].cat.categories)
    assert rows == ["wrong"] or "run.score(...) tells how good the answers are" == frame.attrs["next"]


def test_cells_are_what_the_model_wrote():
    """Read by the schema: dates in UTC, lists and objects as plain data, defaults filled in, what is missing `NA`."""
    frame = runs([LABEL], {"full": FULL, "empty": EMPTY}, ["full", "empty"]).each("label")
    full, empty = frame.loc[0], frame.loc[1]
    assert ("good", 4, 1.0, True, "n") == tuple(full[["tone", "stars", "sure", "seen", "note"]])
    assert datetime(2026, 11, 22, tzinfo=UTC) == full["day"]
    assert datetime(2026, 11, 22, 8, tzinfo=UTC) == full["at"]
    assert (["a"], {"text": "q"}, "x", 2) == tuple(full[["tags", "quote", "either", "rank"]])
    assert [True] * 6 == list(empty[["stars", "seen", "note", "day", "at", "quote"]].isna())
    assert ([], 1, 1) == tuple(empty[["tags", "either", "rank"]])


class Bill(BaseModel):
    total: Decimal
    tax: Decimal | None = None
    size: Decimal | str = "?"


def test_decimals_are_decimals_however_they_are_written():
    """As numbers or as texts, each with all its digits, so a sum is one. Among words they stay as they are."""
    answers = {
        "a": '{"total": 1.10, "tax": "0.1", "size": 0.5}',
        "b": '{"total": "9007199254740993.10", "size": "XL"}',
        "c": '{"total": 3}',
    }
    agent = Agent("bill", "{{ item }}", each="rows", returns=Bill)
    frame = runs([agent], answers, ["a", "b", "c", "wrong"]).each("bill")
    assert [Decimal("1.10"), Decimal("9007199254740993.10"), Decimal(3)] == frame["total"].tolist()[:3]
    assert Decimal("9007199254740997.20") == frame["total"].sum()
    assert (Decimal("0.1"), [True] * 3) == (frame["tax"][0], frame["tax"].isna().tolist()[1:])
    assert [0.5, "XL", "?", None] == frame["size"].tolist()
    only = runs([Agent("n", "{{ item }}", each="rows", returns=Decimal)], {"a": "1.10"}, ["a"]).each("n")
    assert "1.10" == str(only["n"][0])


class Pair(NamedTuple):
    x: int
    y: str = "d"


def test_a_named_tuple_may_be_written_as_a_list():
    """The class reads it, so its fields are the columns and what prompts take."""
    agent = Agent("pair", "{{ item }}", each="rows", returns=Pair)
    found = runs([agent], {"a": '{"x": 1, "y": "b"}', "b": '[2, "c"]', "c": "[3]"}, ["a", "b", "c"])
    assert [Pair(1, "b"), Pair(2, "c"), Pair(3)] == [found[f"pair_{number}"].value for number in range(3)]
    frame = found.each("pair")
    assert [[1, "b"], [2, "c"], [3, "d"]] == frame[["x", "y"]].to_numpy().tolist()
    assert [2, "c"] == [found["pair_1"].meaning.x, found["pair_1"].meaning.y]


def test_a_row_is_never_lost():
    """What does not fit is `NA`, and `error` says why; the index is that of the rows."""
    rows = pd.DataFrame({"a": ["full", "wrong", "empty"]}, index=pd.Index(list("xyz"), name="id"))
    agent = Agent("label", "{{ item.a }}", each="rows", returns=Label)
    frame = runs([agent], {"full": FULL, "empty": EMPTY}, rows).each("label")
    joined = rows.join(frame)
    assert list("xyz") == list(joined.index)
    assert [False, True, False] == list(joined["tone"].isna())
    assert joined["error"]["y"].startswith("InvalidAnswer: it is not JSON")
    assert ["succeeded", "failed", "succeeded"] == list(joined["status"])


INDEXES = [
    pd.Index([1, None], dtype="Int64"),
    pd.Index([True, None], dtype="boolean"),
    pd.Index(["a", None], dtype="string"),
    pd.Index([1, 2], dtype="int8"),
    pd.Index([1, 2], dtype=object),
    pd.CategoricalIndex(["lo", "hi"], categories=["lo", "mid", "hi"], ordered=True),
    pd.IntervalIndex.from_breaks([0, 1, 2], closed="both"),
    pd.DatetimeIndex(["2026-01-01", None], dtype="datetime64[s, Europe/Paris]"),
    pd.Index(["a", "b"], dtype=pd.ArrowDtype(pa.string())),
    pd.MultiIndex.from_arrays([pd.Index([1, 2], dtype="Int8"), pd.Index(["a", "b"], dtype="category")], names=["n", 0]),
    pd.MultiIndex.from_arrays([[1, 2], ["a", "b"]]),
]


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: str(index.dtype))
def test_the_index_is_that_of_the_rows_with_its_dtype(index):
    """Whatever pandas would infer from the labels alone: a frame of answers has the labels of its rows as they are."""
    rows = pd.DataFrame({"t": ["q", "w"]}, index=index)
    answers = runs([Agent("a", "{{ item.t }}", each="rows")], {"q": "1", "w": "2"}, rows).each("a")
    pd.testing.assert_index_equal(index, answers.index, check_names=index.nlevels > 1)
    if index.is_unique:
        assert ["1", "2"] == list(rows.join(answers)["answer"])


def test_an_answer_that_is_no_object_has_its_agents_name():
    """Beside the rows, `mood` says more than `value`; text is `answer`, as it was."""
    agents = [
        Agent("mood", "{{ item }}", each="rows", returns=Tone),
        Agent("text", "t {{ item }}", each="rows"),
        Agent("tags", "g {{ item }}", each="rows", returns=list[str]),
    ]
    answers = {"a": {"value": "Bad"}, "t a": "words", "g a": {"value": ["x"]}}
    done = runs(agents, answers, ["a"])
    assert ["mood", *OF_EACH] == list(done.each("mood").columns)
    assert ["answer", *OF_EACH] == list(done.each("text").columns)
    frame = done.each("mood", "text", "tags")
    assert ["mood", "answer", "tags", "status", "cost_usd", "error"] == list(frame.columns)
    assert ("bad", "words", ["x"]) == tuple(frame.loc[0][["mood", "answer", "tags"]])


def test_several_agents_side_by_side():
    """Names that meet have the agent's before them; the first failure of a row is its status, all are its error."""

    class One(BaseModel):
        topic: str
        status: str

    class Two(BaseModel):
        topic: str
        own: int

    agents = [
        Agent("one", "1 {{ item }}", each="rows", returns=One),
        Agent("two", "2 {{ item }}", each="rows", returns=Two),
    ]
    answers = {
        "1 a": {"topic": "x", "status": "s"},
        "2 a": {"topic": "y", "own": 1},
        "1 b": {"topic": "z", "status": "t"},
    }
    done = runs(agents, answers, {"k": "a", "l": "b", "m": "c"})
    frame = done.each("one", "two")
    assert ["one_topic", "one_status", "two_topic", "own", "status", "cost_usd", "error"] == list(frame.columns)
    assert ["k", "l", "m"] == list(frame.index)
    assert ["succeeded", "failed", "failed"] == list(frame["status"])
    assert ["x", "z"] == list(frame["one_topic"].dropna())
    assert frame["error"]["l"].startswith("two: InvalidAnswer")
    assert frame["error"]["m"].count("InvalidAnswer") == 2
    assert "one_status" in done.each("one").columns


def test_agents_of_different_values_are_not_put_side_by_side():
    """There is no row that they share; one that does not exist is named."""
    agents = [Agent("a", "{{ item }}", each="rows"), Agent("b", "{{ item }}", each="more")]
    import asyncio

    done = asyncio.run(Plan(agents, {"rows": ["x"], "more": ["y"]}).run(client=known({})))
    with pytest.raises(PlanError, match="declared for each of rows and of more"):
        done.each("a", "b")
    with pytest.raises(PlanError, match="Ask for one at a time"):
        done.each()
    with pytest.raises(UnknownGroup, match=r"Did you mean 'a'|has no agent"):
        done.each("a", "c")


def test_a_part_of_a_group_keeps_its_rows():
    """A selected plan has some of one group and all of another: rows of both, `NA` where one has none."""
    agents = [Agent("a", "{{ item }}", each="rows", returns=Tone), Agent("b", "b {{ item }}", each="rows", returns=int)]
    import asyncio

    plan = Plan(agents, {"rows": ["x", "y"]}).select(["a", "b_1"])
    texts = dict.fromkeys("xy", '{"value": "good"}') | {"b y": '{"value": 3}'}
    frame = asyncio.run(plan.run(client=known(texts))).each("a", "b")
    assert [0, 1] == list(frame.index)
    assert [pd.NA, 3] == list(frame["b"])
    assert ["succeeded"] * 2 == list(frame["status"])


def test_a_row_with_a_hedge_is_what_answered_first_and_costs_both():
    """Typed columns as without a hedge, and the tokens and seconds of whoever was asked for the row."""
    agents = [Agent("a", "{{ item }}", each="rows", returns=Label, hedge=20), Agent("b", "b {{ item }}", each="rows")]
    first = {"tone": "good", "stars": 3, "sure": 0.5, "rank": 1}
    frame = runs(agents, {"x": first, "y": "no value", "b x": "B", "b y": "B"}, ["x", "y"]).each("a")
    assert ["category", "Int64", "float64", "boolean"] == [str(one) for one in frame.dtypes[:4]]
    assert ["good", 3] == list(frame.loc[0, ["tone", "stars"]])
    assert [False, True] == list(frame["tone"].isna())
    assert (["succeeded", "failed"], ["a_0", "a_1"]) == (list(frame["status"]), list(frame["agent"]))
    assert ("end_turn", 1, 2) == (
        frame.loc[0, "stop_reason"],
        frame.loc[0, "input_tokens"],
        frame.loc[1, "input_tokens"],
    )
    plain = runs([Agent("a", "{{ item }}", each="rows", hedge=20)], {"x": "X", "y": "Y"}, ["x", "y"]).each("a")
    assert ["X", "Y"] == list(plain["answer"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-22", datetime(2026, 11, 22, tzinfo=UTC)),
        ("9999-12-31", datetime(9999, 12, 31, tzinfo=UTC)),
        ("0001-01-01", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_dates_of_all_times(text, expected):
    """As the schema takes them, whatever pandas would guess."""
    done = runs([Agent("d", "{{ item }}", each="rows", returns=date)], {"a": {"value": text}}, ["a", "b"])
    column = done.each("d")["d"]
    assert (expected, True) == (column[0], column.isna()[1])


def test_a_moment_before_all_times_stays_a_text():
    """In UTC it would be in the year 0."""
    rows = {"a": {"value": "0001-01-01T00:00:00+05:00"}}
    done = runs([Agent("d", "{{ item }}", each="rows", returns=datetime)], rows, ["a"])
    assert len(done.each("d")) == 1


def test_integers_beyond_pandas_are_kept():
    """As objects, not as an error."""
    done = runs([Agent("n", "{{ item }}", each="rows", returns=int)], {"a": {"value": 1 << 70}}, ["a"])
    assert 1 << 70 == done.each("n")["n"][0]
