"""Values of tasks as JSON and back."""

# pandas' stubs know no lists with missing dates, and `pack` may return `None`.
# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.declare.values import MOST_CHARS, fingerprint, pack, unpack

FRAME = pd.DataFrame(
    {
        "number": [1, 2, None],
        "text": ["x", None, "y"],
        "day": pd.to_datetime(["2020-01-01", None, "2020-02-02"]),
        "moment": pd.to_datetime(["2020-01-01", None, "2020-02-02"], utc=True),
        "kind": pd.Categorical(["u", "v", "u"]),
        "count": pd.array([1, None, 3], dtype="Int64"),
        "is_so": pd.array([True, None, False], dtype="boolean"),
        "took": pd.to_timedelta([1, 2, None], unit="s"),
    },
    index=["k", "l", "m"],
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text() | st.dates(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(max_size=3), inner) | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME.set_index(["text", "number"]),
        pd.DataFrame(),
        FRAME.groupby("kind", observed=True).agg({"number": ["sum", "mean"]}),
        FRAME.pivot_table(index="text", columns="kind", values="number", observed=True),
        pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2026-03-29", periods=2, freq="h", tz="Europe/Paris")),
        pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", 1)], names=["p", None])),
        pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([("u", 2)], names=[1, 0])),
    ],
)
def test_frames_come_back_with_their_dtypes_and_indexes(frame):
    """Missing values, categories, dates with and without a zone, several levels, names of levels, steps of dates."""
    pd.testing.assert_frame_equal(frame, unpack(pack(frame)))


def test_series_and_arrays_come_back():
    """Names, dtypes and shapes too."""
    counts = FRAME["kind"].value_counts()
    pd.testing.assert_series_equal(counts, unpack(pack(counts)))
    array = np.arange(6, dtype="float32").reshape(2, 3)
    found = unpack(pack(array))
    np.testing.assert_array_equal(array, found)
    assert array.dtype == found.dtype


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value):
    """The same value of the same type."""
    found = unpack(pack(value))
    assert (value, type(value)) == (found, type(found))


@pytest.mark.parametrize(
    "value",
    [dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=fold) for fold in (0, 1)],
)
def test_a_moment_keeps_its_zone_and_which_of_two_hours_it_is(value):
    """Two days later the clock may differ by another offset."""
    found = unpack(pack(value))
    assert (value, value.tzinfo, value.fold) == (found, found.tzinfo, found.fold)


@pytest.mark.parametrize(
    "value", [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), b"\x00a", np.int64(3), {"$": 1}, {1: (2,)}, Decimal("1.10")]
)
def test_other_values_come_back_as_they_were(value):
    """What JSON has no form for is marked with a word of ours."""
    found = unpack(pack(value))
    assert (value, type(value)) == (found, type(found))


class Unsized(list):
    def __len__(self):
        raise RuntimeError


NO_FORM = [
    object(),
    FRAME.groupby("kind", observed=True),
    "x" * MOST_CHARS,
    [lambda: 0],
    np.ma.masked,
    np.ma.array([5]),
    pd.DataFrame({"a": pd.array([[1], []], dtype=pd.ArrowDtype(pa.list_(pa.int64())))}),
    pd.Series(["x"], dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
]


@pytest.mark.parametrize("value", NO_FORM)
def test_what_has_no_form_is_not_kept(value):
    """Nothing is pickled."""
    assert pack(value) is None


@pytest.mark.parametrize("text", ['{"$": "os"}', '{"$": "frame"}', "{", '{"$": "series", "column": 1}', '{"$": []}'])
def test_a_file_from_a_stranger_can_be_wrong_but_not_harmful(text):
    """Whatever stands there, it is a `ValueError`."""
    with pytest.raises(ValueError):  # noqa: PT011 - of json too
        unpack(text)


def test_what_cannot_be_counted_has_no_fingerprint():
    """Whatever the user's own method raises."""
    assert not fingerprint(Unsized())


def test_a_value_that_contains_itself_is_not_kept():
    """There is no end to it."""
    value = []
    value.append(value)
    assert pack(value) is None
    assert json.loads(pack([1])) == [1]
