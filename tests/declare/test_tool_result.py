"""What a model reads of what a tool returned."""

from __future__ import annotations

import dataclasses
import enum
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from pydantic import BaseModel

from agent_magic.declare import result_text
from agent_magic.declare.tool import MOST_CHARS


class Kind(enum.Enum):
    GOOD = "good"


class Model(BaseModel):
    x: int


@dataclasses.dataclass
class Point:
    x: int


def around() -> list[Any]:
    """Return a list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ("", ""),
        (None, "(done; there is no result)"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ([Point(1), Model(x=2), Kind.GOOD.value], '[{"x": 1}, {"x": 2}, "good"]'),
        (Kind.GOOD, '"good"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (b"bytes", "bytes"),
        (pd.DataFrame({"a": [1, 2]}), "a\n1\n2\n"),
        (pd.DataFrame({"a": [1]}, index=["x"]), ",a\nx,1\n"),
        (pd.DataFrame(), "\n"),
        (around(), "[[...]]"),
        (np.arange(3), "[0, 1, 2]"),
        (np.float64(2.5), "2.5"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_results_are_text_csv_or_json(value, expected):
    """A text as it is, frames as CSV, the rest as JSON where that has a form for it."""
    found = result_text(value)
    assert (expected, False, len(expected)) == (found.content, found.is_error, found.chars)


class Exits:
    def __str__(self):
        raise SystemExit(1)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (iter([1]), "can be read only once, and has no text; use list"),
        (print, "has no text"),
        (b"\xff\xfe", "2 bytes that are no text"),
        (Exits(), "SystemExit: 1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_text_is_an_error_that_says_why(value, why):
    """The model is told that the tool ran: it may have had an effect."""
    found = result_text(value)
    assert found.is_error
    assert found.content.startswith("The tool ran, but what it returned cannot be sent: ")
    assert why in found.content


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * 1_000_000, "900,000 more characters left out."),
        (pd.DataFrame({"a": range(1_000_000)}), "the rest left out. There are 1,000,000 rows."),
        (pd.Series(range(1_000_000)), "the rest left out. There are 1,000,000 rows."),
        (np.zeros((1000, 1000)), "the rest left out. There are 1,000,000 values."),
        (scipy.sparse.eye(1000).tocsr(), "the rest left out. There are 1,000,000 values."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_long_result_is_cut_and_says_so(value, said):
    """It goes out again in each later turn."""
    found = result_text(value)
    assert found.content.endswith(f"[Cut here: {said} Ask for less, such as a selection or a sum.]")
    assert MOST_CHARS <= len(found.content) < MOST_CHARS + 200
    assert found.chars > MOST_CHARS
    assert not found.is_error


def test_the_cap_is_a_number():
    """Who calls may want less, and what just fits is whole."""
    assert "abc" == result_text("abc", 3).content
    assert "ab\n[Cut here: 1 more characters" in result_text("abc", 2).content
    frame = pd.DataFrame({"a": [1, 2]})
    assert "a\n1\n2\n" == result_text(frame, 6).content
