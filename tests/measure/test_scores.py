"""Answers held against truths and graders: metrics by hand, nothing lost, a grade belongs to the answer."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from decimal import Decimal
from typing import Literal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import agent_magic as am
from agent_magic.api import Agent, Plan, Run
from agent_magic.declare import job_of
from agent_magic.errors import AgentMagicError, DeclarationError, UnknownAgent
from agent_magic.measure.scores import SCORE, SCORES
from agent_magic.measure.truths import normalised
from agent_magic.show import frame_text
from tests.measure.test_each import known, runs


class Label(BaseModel):
    mood: Literal["good", "bad", "mixed"]
    stars: int = 3
    note: str = ""


LABEL = Agent("label", "{{ item.text }}", each="rows", returns=Label)
ROWS = pd.DataFrame(
    {
        "text": ["a", "b", "c", "d", "e"],
        "mood": ["good", "good", "bad", "bad", "good"],
        "stars": [5, 4, 1, 2, 3],
        "note": ["The end!", "x", "y", "z", "w"],
    },
    index=pd.Index(list("vwxyz"), name="id"),
)
ANSWERS = {
    "a": {"mood": "good", "stars": 5, "note": "the  end"},
    "b": {"mood": "bad", "stars": 5, "note": "x"},
    "c": {"mood": "bad", "stars": 3, "note": "no"},
    "d": {"mood": "bad", "stars": 2, "note": "no"},
}


@pytest.fixture(scope="module")
def done() -> Run:
    """Four answers and one that never came."""
    return runs([LABEL], ANSWERS, ROWS)


def rows_with(truth) -> pd.DataFrame:
    """One row with a truth, which keeps its class."""
    return pd.DataFrame({"text": ["a"], "truth": pd.Series([truth], dtype=object)})


def rows_of(frame: pd.DataFrame) -> dict[str, tuple[int, float]]:
    """Each metric with n and score."""
    scores = frame["score"].astype("float64")
    return {name: (int(n), round(score, 4)) for name, n, score in zip(frame["metric"], frame["n"], scores, strict=True)}


def test_a_choice_has_accuracy_and_precision_and_recall_per_class(done):
    """Counted by hand: three of four right; bad was said three times, twice rightly."""
    frame = done.score("label.mood", truth="mood")
    found = rows_of(frame)
    assert (4, 0.75) == found["accuracy"]
    assert ((1, 1.0), (2, 0.5)) == (found["precision good"], found["recall good"])
    assert ((3, 0.6667), (2, 1.0)) == (found["precision bad"], found["recall bad"])
    assert SCORE == {name: str(kind) for name, kind in frame.dtypes.items()}
    assert (1, "mood", "label.mood") == tuple(frame.loc[0, ["errors", "grader", "target"]])


def test_a_class_that_is_missing_has_no_score(done):
    """Nobody said mixed and no row is: unknown, not 0."""
    frame = done.score("label.mood", truth="mood").set_index("metric")
    assert frame.loc[["precision mixed", "recall mixed"], ["score", "low", "high"]].isna().all(axis=None)
    assert [0, 0] == list(frame.loc[["precision mixed", "recall mixed"], "n"])
    assert "no answer graded" == frame.loc["recall mixed", "reads"]


def test_a_class_that_only_the_truth_has_is_seen(done):
    """A recall of 0, and a precision that nobody knows."""
    truth = pd.Series(["good", "bad", "weird", "bad", "good"], index=ROWS.index, name="by hand")
    found = rows_of(done.score("label.mood", truth=truth))
    assert (1, 0.0) == found["recall weird"]
    assert "by hand" == done.scores.iloc[-1]["grader"]


def test_numbers_have_a_mean_absolute_error(done):
    """0, 1, 2 and 0 off."""
    frame = done.score("label.stars", truth="stars")
    assert {"mean absolute error": (4, 0.75)} == rows_of(frame)


def test_texts_match_exactly_or_normalised(done):
    """Small letters, no punctuation, no articles, no spare blanks."""
    found = rows_of(done.score("label.note", truth="note"))
    assert {"exact match": (4, 0.25), "normalised match": (4, 0.5)} == found
    assert "end of day" == normalised(" The end,  of a Day.")


class Bill(BaseModel):
    day: dt.date
    at: dt.datetime
    took: dt.timedelta
    total: Decimal | None


BILL = {"day": "2026-03-01", "at": "2026-03-01T10:00:00+02:00", "took": "PT90M", "total": "9007199254740993.10"}
IN_PARIS = pd.Timestamp("2026-03-01 09:00", tz="Europe/Paris")
ALIKE = {
    "day": ["2026-03-01", dt.date(2026, 3, 1), pd.Timestamp("2026-03-01"), np.datetime64("2026-03-01", "ns")],
    "at": [
        IN_PARIS,
        dt.datetime(2026, 3, 1, 8, tzinfo=dt.UTC),
        "2026-03-01T08:00:00Z",
        pd.Timestamp("2026-03-01 08:00"),
    ],
    "took": [dt.timedelta(minutes=90), pd.Timedelta("90min"), np.timedelta64(90, "m"), "PT1H30M"],
    "total": [Decimal("9007199254740993.1"), "9007199254740993.10"],
}


@pytest.mark.parametrize(("field", "truth"), [(name, one) for name, all_ in ALIKE.items() for one in all_], ids=repr)
def test_a_truth_is_compared_as_what_it_stands_for(field, truth):
    """A date, a time, a duration or a decimal is right whatever class the column has, and one beside it is wrong."""
    found = runs([Agent("bill", "{{ item.text }}", each="rows", returns=Bill)], {"a": BILL}, rows_with(truth))
    score = float(found.score(f"bill.{field}", truth="truth")["score"].iloc[0])
    assert (0.0 if field == "total" else 1.0) == score


TWICE = pd.DataFrame({"text": ["a", "b", "c"]}, index=[0, 1, 0])
GIVEN = ["good", "bad", "bad"]


@pytest.mark.filterwarnings("ignore:.* has 3 rows and 2 labels:UserWarning")  # which is what is tried
@pytest.mark.parametrize(
    "truth",
    [GIVEN, tuple(GIVEN), np.array(GIVEN), pd.Series(GIVEN, index=TWICE.index), pl.Series(GIVEN), pa.array(GIVEN)],
    ids=lambda one: type(one).__module__,
)
def test_each_row_has_the_truth_that_stands_at_its_place(truth):
    """A list, an array, a column of any library; also where two rows have one label."""
    answers = {name: {"mood": mood} for name, mood in zip("abc", GIVEN, strict=True)}
    done = runs([LABEL], answers, TWICE)
    assert 1.0 == done.score("label.mood", truth=truth)["score"].iloc[0]


@pytest.mark.filterwarnings("ignore:.* has 3 rows and 2 labels:UserWarning")  # which is what is tried
def test_labels_that_are_there_twice_are_refused_in_another_order():
    """Nobody knows which of them a row means."""
    done = runs([LABEL], {"a": {"mood": "good"}}, TWICE)
    with pytest.raises(DeclarationError, match="truth has labels twice"):
        done.score("label.mood", truth=pd.Series(GIVEN, index=[0, 0, 1]))
    with pytest.raises(DeclarationError, match="truth is a frame"):
        done.score("label.mood", truth=TWICE)


def test_a_truth_that_is_no_date_is_said_so():
    """It is an error of its row, as a truth that is no number."""
    found = runs([Agent("bill", "{{ item.text }}", each="rows", returns=Bill)], {"a": BILL}, rows_with("soon"))
    found.score("bill.day", truth="truth")
    assert "its truth 'soon' is no date or time" == found.scores["error"].iloc[0]


def test_a_score_says_what_the_answers_cost_and_what_to_do_next(done):
    """Above its rows; the answers themselves say why one failed."""
    said = " ".join(frame_text(done.score("label.mood", truth="mood")).split())
    assert said.startswith("accuracy 0.75 (0.30 to 0.95), from only 4 (95 % interval), 5 answers for <$0.0001 ")
    assert re.search(r" the run .* · .*\. run\.scores has each grade, %agents trial tries models\. target ", said)
    assert re.search(r"%agents error label_\d shows why it failed\.", frame_text(done.each("label")))


def test_a_score_is_read_with_its_interval(done):
    """The number alone means little, under thirty answers least of all."""
    assert "0.75 (0.30 to 0.95), from only 4" == done.score("label.mood", truth="mood").loc[0, "reads"]


def test_a_function_grades_by_answer_and_row(done):
    """It gets the value of the class and the row; a bool is a share, a number a mean; why is kept."""
    share = done.score("label", grader=lambda answer, row: (answer.mood == row["mood"], f"is {answer.mood}"))
    assert {"share": (4, 0.75)} == rows_of(share)
    assert ["is good", "is bad", "is bad", "is bad"] == [
        one for one in done.scores.query("target == 'label'")["why"] if one
    ]

    def close(answer, row):
        return np.float64(1 - abs(answer - row["stars"]) / 4)

    assert {"mean": (4, 0.8125)} == rows_of(done.score("label.stars", grader=close))
    assert (1, "close") == tuple(done.score("label.stars", grader=close).loc[0, ["errors", "grader"]])


def test_a_grader_that_raises_or_returns_nan_loses_no_row(done):
    """Each such answer is a row with its error, and counts in none of the numbers."""

    def odd(answer, row):
        return {"a": lambda: 1 / 0, "b": lambda: float("nan"), "c": lambda: "yes"}.get(row["text"], lambda: True)()

    frame = done.score("label", grader=odd)
    assert (1, 4) == tuple(frame.loc[0, ["n", "errors"]])
    errors = list(done.scores.query("grader == 'odd'")["error"])
    assert "ZeroDivisionError: division by zero" == errors[0]
    assert "the grader returned nan, which is neither a number nor a bool" == errors[1]
    assert "the grader returned 'yes', which is neither a number nor a bool" == errors[2]
    assert pd.isna(errors[3])
    assert "label_4" in errors[4]


def test_where_every_grade_fails_there_is_no_score(done):
    """Unknown, not 0."""
    frame = done.score("label", grader=lambda answer, row: None)
    assert frame[["score", "low", "high"]].isna().all(axis=None)
    assert (0, 5) == tuple(frame.loc[0, ["n", "errors"]])


def test_a_truth_that_is_unknown_is_no_error():
    """Rows nobody labelled do not count as wrong, and have a column of their own."""
    rows = ROWS.assign(mood=pd.Series(["good", None, float("nan"), "bad", "good"], index=ROWS.index))
    frame = runs([LABEL], ANSWERS, rows).score("label.mood", truth="mood")
    assert (2, 1, 2) == tuple(frame.loc[0, ["n", "errors", "no_label"]])


def test_a_grade_belongs_to_the_answer_whatever_the_run():
    """A run that is served the same answers has the grades; other answers, and forecasts, have none."""

    async def scene():
        ledger = am.Ledger(":memory:")
        async with am.Session(client=known({"a": '{"mood": "good"}'}), ledger=ledger) as session:
            plan = Plan([LABEL], {"rows": ROWS[:1]})
            first = await plan.run(session=session)
            first.score("label.mood", truth="mood")
            again = await plan.run(session=session)
            session.client = known({"a": '{"mood": "bad"}'})
            other = await plan.run(session=session, fresh=True)
            return first, again, other

    first, again, other = asyncio.run(scene())
    assert [1.0] == list(first.scores["score"]) == list(again.scores["score"])
    assert SCORES == {name: str(kind) for name, kind in again.scores.dtypes.items()}
    assert 0 == len(other.scores)
    forecast = first.forecast(concurrency=1)
    assert 0 == len(forecast.scores)
    with pytest.raises(AgentMagicError, match="forecast has no answers"):
        forecast.score("label.mood", truth="mood")


MOODS = pd.Series(["good", "good", "bad", None], index=list("stuv"), name="by hand")
EQUAL = pd.DataFrame({"text": ["a"] * 4, "mood": list(MOODS)}, index=MOODS.index)
ONE_ANSWER = {"a": {"mood": "good"}}


@pytest.mark.parametrize(
    "truth", ["mood", MOODS, list(MOODS), MOODS.to_dict()], ids=["column", "series", "list", "dict"]
)
@pytest.mark.parametrize("identical", ["once", "each"])
def test_rows_that_ask_the_same_have_grades_of_their_own(identical, truth):
    """One request, four rows, two truths and one that is unknown: each row keeps what it was held against."""

    async def scene():
        policy = am.Policy(identical=identical)
        return await Plan([LABEL], {"rows": EQUAL}).run(policy, client=known({"a": '{"mood": "good"}'}))

    done = asyncio.run(scene())
    assert {"once": 1, "each": 4}[identical] == sum(not one.is_shared for one in done.record.results)
    frame = done.score("label.mood", truth=truth)
    assert ("accuracy", 3, 2 / 3, 0, 1) == tuple(frame.loc[0, ["metric", "n", "score", "errors", "no_label"]])
    assert [1.0, 1.0, 0.0, None] == [None if pd.isna(one) else one for one in done.scores["score"]]
    assert ["", "", "good, truth bad", ""] == list(done.scores["why"])
    assert [None, None, None, "its truth is unknown"] == [None if pd.isna(one) else one for one in done.scores["error"]]


def test_a_function_grades_each_of_equal_rows():
    """It is given the row, so its word belongs to the row."""
    done = runs([LABEL], ONE_ANSWER, EQUAL)
    done.score("label", grader=lambda answer, row: answer.mood == row["mood"])
    assert [1.0, 1.0, 0.0, 0.0] == list(done.scores["score"])


def test_a_row_keeps_its_grade_in_another_order_and_among_others():
    """A grade goes by the row's label and content, not by its place."""

    async def scene():
        async with am.Session(client=known({"a": '{"mood": "good"}'}), ledger=am.Ledger(":memory:")) as session:
            done = await Plan([LABEL], {"rows": EQUAL}).run(session=session)
            done.score("label.mood", truth="mood")
            return await Plan([LABEL], {"rows": EQUAL[1:3][::-1]}).run(session=session)

    again = asyncio.run(scene())
    assert [("u", 0.0), ("t", 1.0)] == list(zip(again.scores["row"], again.scores["score"], strict=True))


def test_a_ledger_keeps_the_grade_of_each_of_equal_rows():
    """Three graded rows are three grades by which a later session chooses, though one request was bought."""

    async def scene():
        ledger = am.Ledger(":memory:")
        async with am.Session(client=known({"a": '{"mood": "good"}'}), ledger=ledger) as session:
            done = await Plan([LABEL], {"rows": EQUAL}).run(session=session)
            for _ in range(2):
                done.score("label.mood", truth="mood")
            return ledger.grades.of(job_of(LABEL), done.record.origin)

    assert [0.0, 1.0, 1.0] == sorted(one.score for one in asyncio.run(scene()))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["good", "bad", None])), min_size=1, max_size=12))
@settings(max_examples=15, deadline=None)
def test_whatever_rows_are_equal_the_scores_add_up(rows):
    """The rows of `run.scores` are those that `run.score` counts, one per row, in plan order."""
    assume(any(mood is not None for _, mood in rows))
    done = runs([LABEL], ANSWERS, [{"text": text, "mood": mood} for text, mood in rows])
    frame = done.score("label.mood", truth="mood")
    right = [None if mood is None else float(ANSWERS[text]["mood"] == mood) for text, mood in rows]
    assert right == [None if pd.isna(one) else one for one in done.scores["score"]]
    graded = [one for one in right if one is not None]
    assert (len(graded), len(right) - len(graded)) == tuple(frame.loc[0, ["n", "no_label"]])
    assert sum(graded) == pytest.approx(rows_of(frame)["accuracy"][1] * len(graded), abs=1e-3)


def test_a_grader_is_asked_anew_in_place_of_what_it_said(done):
    """One row per answer and grader."""
    done.score("label.mood", truth="mood")
    before = len(done.scores)
    done.score("label.mood", truth="mood")
    assert before == len(done.scores)


@pytest.mark.parametrize(
    ("target", "how", "message"),
    [
        ("label.moood", {"truth": "mood"}, "no field 'moood'.*mood"),
        ("label.mood", {"truth": "moood"}, "no column 'moood'.*Did you mean 'mood'"),
        ("label", {"truth": "mood"}, "no single value.*label.mood"),
        ("label.mood", {}, "one of truth= and grader="),
        ("label.mood", {"truth": "mood", "grader": len}, "one of truth= and grader="),
        ("label.mood", {"grader": 3}, "grader must be a function, got 3"),
        ("label.mood", {"truth": "mood", "grader": am.judge("Right?")}, "a judge and its policy"),
        ("label.mood", {"grader": lambda answer: answer}, r"cannot be called with .answer, row.: .*Write def right"),
        (
            "label.mood",
            {"truth": ["GOOD"] * 5},
            "No truth fits.*'GOOD' is spelled otherwise than 'good'.*one of 'good'",
        ),
        ("label.mood", {"truth": [None] * 5}, "Every truth of label.mood is unknown"),
        ("label.mood", {"truth": [1, 2]}, "2 values for 5 rows. Give one"),
        ("label.mood", {"truth": 3}, "truth=3 does not fit 5 answers"),
        (3, {"truth": "mood"}, "target must be an agent"),
    ],
)
def test_what_cannot_be_graded_is_said(done, target, how, message):
    """With the names there are, and the next step."""
    with pytest.raises(DeclarationError, match=message) as caught:
        done.score(target, **how)
    assert len(str(caught.value).splitlines()) <= 15
    with pytest.raises(UnknownAgent):
        done.score("nobody", truth="mood")


def test_one_agent_has_one_truth():
    """Without rows the truth is the value itself."""
    done = runs([Agent("capital", "Of France?")], {"Of France?": "paris."}, [])
    assert (1, 1.0) == rows_of(done.score("capital", truth="Paris"))["normalised match"]


def test_rows_that_an_answer_brought_are_graded():
    """Each item of the answer is a row; places that were reserved and not needed are none."""
    agents = [
        Agent("list", "List", returns=list[str]),
        Agent("label", "{{ item }}", each="list", returns=Literal["good", "bad"], most=5),
    ]
    done = runs(agents, {"List": {"value": ["a", "b"]}, "a": {"value": "good"}, "b": {"value": "good"}}, [])
    frame = done.score("label", grader=lambda answer, row: (answer == "good") == (row == "a"))
    assert (2, 0.5, 0) == tuple(frame.loc[0, ["n", "score", "errors"]])
