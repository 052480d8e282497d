"""Values on their way into prompts, items, JSON and keys: whole or refused, never used up, never merged."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import decimal
import email
import enum
import fractions
import io
import ipaddress
import itertools
import json
import re
import sqlite3
import sys
import types
import uuid
import warnings
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock
from xml.etree import ElementTree as ET
from zoneinfo import ZoneInfo

import attrs
import duckdb
import geopandas as gpd
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from dask.delayed import delayed
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from multidict import MultiDict
from PIL import Image
from pydantic import BaseModel, ConfigDict

import agent_magic as am
from agent_magic import Context
from agent_magic.declare import result_text
from agent_magic.declare.values import (
    as_json,
    as_text,
    fingerprint,
    holds_content,
    items_now,
    pack,
    read_items,
    same_name,
    single_use_in,
    text_size,
    unpack,
    value_notes,
)
from agent_magic.errors import AgentMagicError, DeclarationError, PlanError, UndefinedField, UndefinedVariable


class Trips(pd.DataFrame):
    """A subclass, as other libraries have them."""

    @property
    def _constructor(self):
        return Trips


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: object
    y: object = None


def prompt(text, **values):
    """The prompt of one agent with these values."""
    return am.Plan([am.Agent("a", text)], values).prompt("a", {})


# tables

CELLS = {
    "n": st.lists(st.none() | st.integers(-(2**60), 2**60), min_size=3, max_size=3),
    "x": st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=3, max_size=3),
    "t": st.lists(st.none() | st.text("ab,é\"'\n", max_size=5), min_size=3, max_size=3),
    "b": st.lists(st.none() | st.booleans(), min_size=3, max_size=3),
}
LIBRARIES = {
    "polars": lambda found: pl.DataFrame(
        found, schema={"n": pl.Int64, "x": pl.Float64, "t": pl.String, "b": pl.Boolean}
    ),
    "lazy": lambda found: LIBRARIES["polars"](found).lazy(),
    "pyarrow": lambda found: LIBRARIES["polars"](found).to_arrow(),
    "batch": lambda found: LIBRARIES["pyarrow"](found).combine_chunks().to_batches()[0],
    "duckdb": lambda found: duckdb.from_arrow(LIBRARIES["pyarrow"](found)),
    "subclass": lambda found: Trips({name: pd.Series(cells, dtype=object) for name, cells in found.items()}),
}


@given(found=st.fixed_dictionaries(CELLS), library=st.sampled_from([*LIBRARIES]))
@settings(max_examples=40, deadline=None)
def test_a_table_of_any_library_is_the_same_table(found, library):
    """Text, items, JSON: what they say is that of pandas' frame with the same cells, and nothing is lost."""
    found = {name: found[name] for name in CELLS}
    table = LIBRARIES[library](found)
    same = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in found.items()})
    assert same.to_csv(index=False) == as_text(table)
    rows = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
    assert rows == json.loads(as_json(table))
    assert list(enumerate(rows)) == read_items(table, "t", "a").found
    assert f"[{same.to_csv(index=False)}, {{'k': {same.to_csv(index=False)}}}]" == as_text([table, {"k": table}])


class Held(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    table: object = None


@attrs.define
class Kept:
    table: object = None


class Report:
    """A class with a text of its own, in which its table is."""

    def __init__(self, table):
        self.table = table

    def __repr__(self):
        return f"Report: {self.table}"


class Rows(Mapping):
    """A mapping without a text of its own."""

    def __init__(self, **found):
        self._found = found

    def __getitem__(self, name):
        return self._found[name]

    def __iter__(self):
        return iter(self._found)

    def __len__(self):
        return len(self._found)


class Sent:
    """As msgspec makes a class: its fields are in slots, and named."""

    __slots__ = __struct_fields__ = ("table",)

    def __init__(self, table):
        self.table = table

    def __repr__(self):
        return f"Sent(table={self.table!r})"


HOLDERS = {
    "pydantic": lambda one: Held(table=one),
    "attrs": Kept,
    "msgspec": Sent,
    "class": Report,
    "values": lambda one: {"a": one}.values(),
    "items": lambda one: {"a": one}.items(),
    "proxy": lambda one: types.MappingProxyType({"a": one}),
    "UserList": lambda one: UserList([one]),
    "UserDict": lambda one: UserDict(a=one),
    "ChainMap": lambda one: ChainMap({"a": one}),
    "mapping": lambda one: Rows(a=one),
    "cell": lambda one: pd.DataFrame({"a": pd.Series([one], dtype=object)}),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [{"k": one}]], ids=["itself", "nested"])
def test_a_table_in_any_object_is_whole(hold, wrap):
    """Whoever writes it does so by the text that it has alone, of which nothing is left out."""
    frame = pl.DataFrame({"n": range(100)})
    for table in (frame, frame.lazy(), frame.to_arrow(), frame["n"], frame["n"].to_arrow(), nw.from_native(frame)):
        written = prompt("{{ v }}", v=wrap(hold(table)))
        assert [*map(str, range(100))] == re.findall(r"\d+", written)[-100:]
        assert "shape" not in written


@dataclass
class Order:
    key: str = field(repr=False)
    rows: object


@dataclass
class Hidden(Order):
    def __repr__(self):
        return "Hidden()"


@pytest.mark.parametrize(("kind", "written"), [(Order, "Order(rows=a\n1\n)"), (Hidden, "Hidden()")])
def test_a_field_that_a_class_hides_is_not_sent_with_a_table(kind, written):
    """Neither one with `repr=False` nor one that its own `__repr__` leaves out."""
    order = kind("not for others", pd.DataFrame({"a": [1]}))
    assert (written, f"[{written}]") == (prompt("{{ v }}", v=order), prompt("{{ v }}", v=[order]))


def test_tables_that_look_alike_when_cut_are_refused():
    """Nobody could say which of them stands where."""
    first, second = (pl.DataFrame({"n": [*range(50), between, *range(50)]}) for between in (1, 2))
    with pytest.raises(DeclarationError, match=r"v }}: it holds several of DataFrame that look alike"):
        prompt("{{ v }}", v=[Held(table=[first, second])])


NARWHALS = {
    "frame": lambda: nw.from_native(pl.DataFrame({"n": [1, 2]})),
    "lazy": lambda: nw.from_native(pl.LazyFrame({"n": [1, 2]})),
    "series": lambda: nw.from_native(pl.Series("n", [1, 2]), series_only=True),
}


@pytest.mark.parametrize("make", NARWHALS.values(), ids=NARWHALS)
def test_a_table_of_narwhals_itself_is_one(make):
    """Who writes for all libraries has such."""
    assert "n\n1\n2\n" == prompt("{{ v }}", v=make())
    assert 2 == len(am.Plan([am.Agent("a", "{{ item }}", each="v")], {"v": make()}).agents)


@pytest.mark.parametrize(
    ("value", "text", "written"),
    [
        (np.array(["2026-01-02T03:04:05.000000006"], "M8[ns]"), "2026-01-02T03:04:05.000000006", None),
        (
            np.array([["2026-01-02"], ["NaT"]], "M8[D]"),
            "[datetime.date(2026, 1, 2)], [N",
            '[["2026-01-02"], [null]]',
        ),
        (np.array([1], "m8[ns]"), "1,'ns'", None),
        ({"mean": np.float64(0.5), 3: {np.int8(1)}}, "{'mean': 0.5, 3: {1}}", '{"mean": 0.5, "3": [1]}'),
        ([np.array(5), pa.scalar(5), np.bool_(1)], "[5, 5, True]", "[5, 5, true]"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "a\n0\n1\n", '[{"a": 0}, {"a": 1}]'),
        (UserString("hi"), "hi", '"hi"'),
        ([np.ma.masked, np.ma.array(2)], "[None, 2]", "[null, 2]"),
        (Rows(a=1), "{'a': 1}", '{"a": 1}'),
        (ipaddress.ip_address("::1"), "::1", '"::1"'),
        (Held(table=dt.timedelta(1)), "table=datetime", '{"table": "P1DT0H0M0S"}'),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_of_a_library_is_what_python_has_for_it(value, text, written):
    """Alone, in a list and in JSON: numbers, dates, texts; and dates of nanoseconds are no numbers."""
    assert text in prompt("{{ v }}", v=value)
    assert written is None or written == prompt("{{ v | tojson }}", v=value)


def test_a_row_of_sqlite_is_a_row():
    """By the names of its columns, in text, JSON and `each`."""
    DATABASE.row_factory = sqlite3.Row
    rows = DATABASE.execute("select 1 as a, 'x' as b").fetchall()
    DATABASE.row_factory = None
    assert "[{'a': 1, 'b': 'x'}]" == prompt("{{ v }}", v=rows)
    assert '[{"a": 1, "b": "x"}]' == prompt("{{ v | tojson }}", v=rows)
    plan = am.Plan([am.Agent("a", "{{ item.b }} {{ item }}", each="v")], {"v": rows})
    assert "x a: 1\nb: x" == plan.prompt("a_0", {})


def test_what_holds_more_than_its_keys_is_no_mapping():
    """An element of XML with its attributes alone, or an e-mail without its body, is no JSON."""
    element = ET.fromstring("<a><b>1</b></a>")
    for value in (element, email.message_from_string("Subject: hi\n\nbody")):
        with pytest.raises(DeclarationError, match="cannot be written as JSON"):
            prompt("{{ v | tojson }}", v=value)
        with pytest.raises(DeclarationError, match="cannot be run for each of 'v', whose type is"):
            am.Plan([am.Agent("a", "{{ item }}", each="v")], {"v": value})


class Bag:
    """A collection with a length whose items never end."""

    def __len__(self):
        return 3

    def __iter__(self):
        return itertools.count()

    def __contains__(self, _):
        return True


def test_a_collection_that_gives_more_than_its_length_is_refused():
    """It may have no end: nothing waits for it, and no part of it stands for the whole."""
    for agent in (am.Agent("a", "{{ v | tojson }}"), am.Agent("a", "{{ item }}", each="v")):
        with pytest.raises(DeclarationError, match="a Bag gives more items than its length says"):
            am.Plan([agent], {"v": Bag()}).prompt("a", {})


def test_a_collection_that_holds_more_than_its_items_is_not_written_as_a_list():
    """The edges of a graph would be lost, alone as in a list."""
    for value in (Graph(), [Graph()]):
        with pytest.raises(DeclarationError, match=r"Graph.* is an address in memory"):
            prompt("{{ v }}", v=value)


PIXELS = Image.new("RGB", (2, 2))
PANELS = Figure().subplots(1, 2)


@pytest.mark.parametrize(
    "value",
    [types.SimpleNamespace(p=PIXELS), pd.DataFrame({"p": [PIXELS]}), {"p": {PIXELS.size: Point(PIXELS)}}, PANELS],
    ids=["namespace", "frame", "object", "array"],
)
def test_a_picture_in_another_object_is_refused(value):
    """Neither its numbers nor the name of its class say what it shows. Lists and dicts of pictures are sent."""
    with pytest.raises(DeclarationError, match=r"v }}: it has a picture, .*, in it; write it by itself"):
        prompt("{{ v }}", v=value)
    assert result_text(value).is_error
    assert "[[[image v 1 1]], {'p': [[image v 2 p 1]]}]" == prompt("{{ v }}", v=[[PIXELS], {"p": [PIXELS]}])


def test_a_picture_has_no_items():
    """An agent for each row of pixels is meant by nobody."""
    with pytest.raises(DeclarationError, match="each of 'v', whose type is Image"):
        am.Plan([am.Agent("a", "{{ item }}", each="v")], {"v": PIXELS})


def test_a_structured_array_is_a_table():
    """By the names of its columns, in text, JSON, `each` and the fields of a prompt; what is masked is missing."""
    array = np.array([(1, "x"), (2, "y")], dtype=[("a", "i4"), ("b", "U1")])
    for value in (array, array.view(np.recarray)):
        assert "a,b\n1,x\n2,y\n" == prompt("{{ v }}", v=value)
        assert '[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]' == prompt("{{ v | tojson }}", v=value)
        assert "xy" == prompt("{{ v.b | join }}", v=value)
        assert [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}] == [one for _, one in read_items(value, "v", "a").found]
    masked = np.ma.array(array, mask=[(False, True), (False, False)])[:1]
    assert '[{"a": 1, "b": null}]' == prompt("{{ v | tojson }}", v=masked)


class Lazy:
    """Stands for a value, as lazy objects of web frameworks do."""

    def __init__(self, value):
        self.__dict__["_value"] = value

    __class__ = property(lambda self: type(self._value))  # pyright: ignore[reportAssignmentType]

    def __getattr__(self, name):
        return getattr(self._value, name)

    def __str__(self):
        return str(self._value)

    def __next__(self):
        return next(self._value)


def test_a_lazy_object_is_what_it_stands_for():
    """A text, a table, an iterator."""
    assert "hi HI" == prompt("{{ v }} {{ v | upper }}", v=Lazy("hi"))
    assert "hi" == prompt("{{ v }}", v=Lazy("hi"))
    assert "n\n7\n" == prompt("{{ v }}", v=Lazy(pd.DataFrame({"n": [7]})))
    with pytest.raises(DeclarationError, match="read only once"):
        prompt("{{ v }}", v=Lazy(iter("ab")))


class Refusing:
    """Raises whatever is asked."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{% set up = v | map('upper') %}{{ up | join }}{{ up | join }}", "ABAB"),
        (
            "{% set few = v | select('eq', 'a') %}{{ few | list | length }}{% for one in few %}{{ one }}{% endfor %}",
            "1a",
        ),
        ("{% set rows = v.each() %}{{ rows | join }}{{ rows | join }}", "abab"),
        ("{{ v | reverse }}", "['b', 'a']"),
    ],
)
def test_what_an_expression_makes_can_be_read_twice(text, found):
    """Filters and methods give iterators, and a name may be set to one."""

    class Letters(UserList):
        def each(self):
            return iter(self.data)

    assert found == prompt(text, v=Letters("ab"))


def test_an_iterator_that_an_object_holds_is_refused():
    """So is one that its method returns: the next rendering finds it empty. One that is made each time is read."""

    class Holder:
        made = property(lambda self: iter("ab"))

        def __init__(self):
            self.rows, self.name = iter("ab"), "n"

    with pytest.raises(DeclarationError, match=r"v.rows .*: this str_ascii_iterator can be read only once; put list"):
        prompt("{{ v.rows | join }}", v=Holder())
    held = iter("ab")
    for _ in range(2):
        with pytest.raises(DeclarationError, match=r"str_ascii_iterator can be read only once; put list"):
            prompt("{{ v.rows() | join }}", v=types.SimpleNamespace(rows=lambda: held))
    assert "n abab" == prompt("{{ v.name }} {% set made = v.made %}{{ made | join }}{{ made | join }}", v=Holder())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (deque("ab"), "{{ v.popleft() }}"),
        (Counter("ab"), "{{ v.subtract('a') }}"),
        (OrderedDict(a=1, b=2), "{{ v.move_to_end('a') }}"),
        (defaultdict(list, a=[1]), "{{ v.c }} {{ v['d'] }}"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_prompt_changes_no_container(value, text):
    """Each rendering would send another text. What a `defaultdict` has for a missing key is read, not kept."""
    before = repr(value)
    with contextlib.suppress(DeclarationError):
        assert "[] []" == prompt(text, v=value)
    assert before == repr(value)


def test_an_iterator_without_an_end_is_refused():
    """It would fill the memory."""
    with pytest.raises(DeclarationError, match="more than 1,000,000 items; take the first ones in a cell"):
        prompt("{{ v.count() | first }}", v=types.SimpleNamespace(count=itertools.count))


@pytest.mark.parametrize("text", ["{{ v.n }}", "{{ v['n'] }}"])
@pytest.mark.parametrize("make", [lambda: pl.LazyFrame({"n": [7]}), lambda: pa.table({"n": [7]})])
def test_a_column_is_read_by_its_name(make, text):
    """Of tables too that have another way; and one that is not there is answered with those that are."""
    assert prompt(text, v=make()).endswith("\n7\n")
    with pytest.raises(DeclarationError, match="has no column 'm'; it has n"):
        prompt(text.replace("n", "m"), v=make())


class Owner:
    """Has a text of its own, and slots."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Owner({self.value!r})"


def test_a_joined_part_has_the_text_that_it_has_alone():
    """In any kind of list, and where a field of each is joined."""
    held = Held(table=pd.DataFrame({"a": range(99)}))
    alone = prompt("{{ v }}", v=held)
    for several in ([held, held], (held, held), deque([held, held]), {1: held, 2: held}.values()):
        assert f"{alone};{alone}" == prompt("{{ v | join(';') }}", v=several)
    table = prompt("{{ v.table }}", v=held)
    assert f"{table}, {table}" == prompt("{{ v | join(', ', attribute='table') }}", v=[held, held])
    with pytest.raises(DeclarationError, match="is an address in memory"):
        prompt("{{ v | join }}", v=[object()])


@pytest.mark.parametrize("make", [object, lambda: prompt, lambda: pd.DataFrame({"a": [1]}).groupby("a"), Future, Mock])
def test_an_address_in_memory_is_no_text(make):
    """It is another one in each session. A text of the user's that looks like one is sent as it stands."""
    for value in ([make()], {"a": (1, make())}, Held(table=make()), Owner(Owner(make())), pd.Series([[make()]])):
        with pytest.raises(DeclarationError, match=r"v }}: the text of the .* is an address in memory"):
            prompt("{{ v }}", v=value)
    with pytest.raises(DeclarationError, match="the text of this Buffer is an address in memory"):
        prompt("{{ v }}", v=pa.py_buffer(b"ab"))
    assert "['<f at 0x7f>']" == prompt("{{ v }}", v=["<f at 0x7f>"])


class Tensor:
    """Can be read by numpy, and nothing else."""

    def __array__(self, *_: object, **__: object) -> Any:
        return np.arange(200)


SERIES = {
    "polars": pl.Series("n", range(200)),
    "pyarrow": pa.chunked_array([range(200)]),
    "pandas": pd.Series(range(200), name="n"),
    "array": pa.array(range(200)),
    "numpy": np.arange(200),
    "index": pd.Index(range(200)),
    "sparse": scipy.sparse.coo_array(np.arange(200)),
    "protocol": Tensor(),
}


@pytest.mark.parametrize("value", SERIES.values(), ids=SERIES)
@pytest.mark.parametrize(
    "text",
    [
        "{{ v }}",
        "{{ v | upper }}",
        "{{ '%s' | format(v) }}",
        "{{ '%s' % v }}",
        "{{ [v] }}",
        "{{ '{}'.format(v) }}",
        "{{ v | pprint }}",
    ],
)
def test_a_series_or_an_array_of_any_library_is_whole(value, text):
    """On every way into a prompt, filters and formats of texts among them; and it is an item each."""
    found = prompt(text, v=value)
    assert [*map(str, range(200))] == re.findall(r"\d+", found.removeprefix("0\n"))[-200:]
    assert "..." not in found
    assert "…" not in found
    assert [(one, one) for one in range(200)] == read_items(value, "v", "a").found


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(["x", "y"], name="k"),
        pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["k", None]),
        pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=[1, 0]),
        pd.period_range("2026-01", periods=2, freq="M"),
        pd.CategoricalIndex(["lo", "hi"]),
        pd.date_range("2026-03-29", periods=2, tz="Europe/Paris"),
    ],
    ids=lambda index: type(index).__name__,
)
def test_rows_keep_the_index_of_their_own(index):
    """Of pandas' frames and of their subclasses: there is an agent per row, never one per column."""
    geo = gpd.GeoDataFrame({"n": [1, 2]}, geometry=gpd.points_from_xy([1, 2], [3, 4]), index=index)
    for table in (pd.DataFrame({"n": [1, 2]}, index=index), Trips({"n": [1, 2]}, index=index), geo):
        plan = am.Plan([am.Agent("a", "{{ item.n }}", each="rows")], {"rows": table})
        parts = [one.part for one in plan.agents]
        assert index.tolist() == [one.key for one in parts if one is not None]
        assert "POINT (1 3)" in as_text(geo)
        levels = json.loads(as_json(table))[0]
        assert index.nlevels + len(table.columns) == len(levels)
        assert 0 not in index.names or {"1": "a", "0": 1} == {name: levels[name] for name in "10"}


def test_a_query_is_computed_once_when_the_plan_is_made():
    """What it would give later does not count; a task takes the query itself."""
    con = duckdb.connect()
    con.execute("create table t as select 1 as n")
    query = con.table("t")
    plan = am.Plan([am.Agent("a", "{{ query }}"), am.Task("t", lambda query: query)], {"query": query})
    con.execute("insert into t values (2)")
    assert "n\n1\n" == plan.prompt("a", {})
    assert plan.values["query"] is query


def test_a_table_with_more_cells_than_a_request_is_refused():
    """Before it is written."""
    with pytest.raises(DeclarationError, match=r"v \}\}: it has more than 32,000,000 characters"):
        am.Plan([am.Agent("a", "{{ v }}")], {"v": pl.select(pl.int_range(33_000_000))}).check_prompts()


# what can be read only once


DATABASE = sqlite3.connect(":memory:")  # one for all: Python warns of each that is not closed


ONCE = {
    "generator": lambda: (one for one in "ab"),
    "zip": lambda: zip("ab", "cd", strict=True),
    "map": lambda: map(str, [1]),
    "finditer": lambda: re.finditer("a", "banana"),
    "chain": lambda: itertools.chain("ab"),
    "text file": lambda: io.StringIO("a\n"),
    "bytes": lambda: io.BytesIO(b"a"),
    "csv": lambda: csv.DictReader(io.StringIO("a\n1")),
    "cursor": lambda: DATABASE.execute("select 1"),
    "reader": lambda: pa.table({"a": [1]}).to_reader(),
    "chunks": lambda: pd.read_csv(io.StringIO("a\n1"), chunksize=1),
}
WRAPS = {
    "itself": lambda one: one,
    "list": lambda one: ["x", one],
    "dict": lambda one: {"a": {"b": one}},
    "dataclass": lambda one: Point(1, [one]),
    "namespace": lambda one: types.SimpleNamespace(a=one),
    "cell": lambda one: pd.DataFrame({"a": pd.Series([one], dtype=object)}),
}


@pytest.mark.parametrize("make", ONCE.values(), ids=ONCE)
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_what_can_be_read_only_once_is_refused_by_the_plan(make, wrap):
    """By name and by what to write instead, whoever uses it; and nothing of it is read."""
    one = make()
    value = wrap(one)
    steps = [
        [am.Agent("a", "{% for x in rows %}{{ x }}{% endfor %}")],
        [am.Agent("a", "{{ 1 }} {{ rows | length }}")],
        [am.Agent("a", "x", attach="rows")],
        [am.Agent("a", "x", when="rows")],
        [am.Task("t", lambda rows: rows)],
    ]
    for each in steps:
        with pytest.raises(DeclarationError, match=r"(?s)'rows'.*list\("):
            am.Plan(each, {"rows": value})
    assert single_use_in(value) is one
    if not hasattr(one, "get_chunk"):  # pandas reads ahead
        assert next(iter(one)) is not None


@pytest.mark.parametrize("make", ONCE.values(), ids=ONCE)
def test_no_agent_for_each_of_what_can_be_read_only_once(make):
    """Nor for each of a list that has it inside."""
    for value in (make(), [make()]):
        with pytest.raises(DeclarationError, match=r"(?s)'rows'.*list\("):
            am.Plan([am.Agent("a", "{{ item }}", each="rows")], {"rows": value})
    with pytest.raises(DeclarationError, match=r"'rows'.*list\("):
        am.Plan(
            [am.Agent("a", "{{ c }}")], {"rows": make()}, contexts=[Context("c", "{% for x in rows %}{% endfor %}")]
        )


@pytest.mark.parametrize(
    "value",
    [
        "text",
        b"bytes",
        range(2),
        {1: 2}.keys(),
        deque([1]),
        defaultdict(list),
        pd.DataFrame(),
        DATABASE,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_can_be_read_again_is_taken(value):
    """A connection too: it makes as many cursors as one likes."""
    assert single_use_in([value]) is None
    am.Plan([am.Task("t", lambda v: v)], {"v": value})


def test_a_file_that_is_written_is_no_reader(tmp_path):
    """A task may be given the file for its notes."""
    with (tmp_path / "notes.txt").open("w") as notes:
        am.Plan([am.Task("t", lambda notes: None)], {"notes": notes})


# any value

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=3)
    | st.decimals()
    | st.fractions()
    | st.complex_numbers()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from(
        [
            Colour.RED,
            Path("a"),
            pd.NA,
            pd.NaT,
            pd.Timestamp("2026-07-01", tz="Europe/Paris"),
            pd.Period("2026-01"),
            pd.Interval(0, 1),
            pd.Timedelta("1h"),
            np.int64(3),
            np.float32("nan"),
            np.datetime64("2026-01-01"),
            np.timedelta64(1, "D"),
            np.str_("a"),
            range(3),
            fractions.Fraction(1, 3),
            object(),
            len,
        ]
    )
    | st.builds(lambda: np.arange(3))
    | st.builds(lambda: pl.DataFrame({"a": [1]}))
    | st.builds(lambda: pd.DataFrame({"a": [1], 2: [None]}, index=["x"]))
    | st.builds(lambda: iter("ab"))
)
KEYS = (
    st.text(max_size=2)
    | st.integers(0, 3)
    | st.booleans()
    | st.none()
    | st.dates()
    | st.sampled_from([Colour.RED, (1, 2)])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=2).map(OrderedDict)
        | st.builds(Point, inner, inner)
        | st.lists(inner, max_size=2).map(deque)
    ),
    max_leaves=8,
)


def with_cycles(value):
    """Return the value with itself inside, where it can have that."""
    if isinstance(value, list):
        value.append(value)
    elif isinstance(value, dict):
        value["itself"] = value
    elif isinstance(value, Point):
        value.y = value
    return value


@given(VALUES, st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_value_has_its_form_or_is_refused_in_words(value, cycle):
    """A plan with it is made or refused by an error of ours; a tool that returns it has a result; JSON is JSON."""
    value, said = with_cycles(value) if cycle else value, list[str]()
    for steps in ([am.Agent("a", "{{ v }}|{{ v | tojson }}")], [am.Agent("a", "x {{ item }}", each="v")]):
        try:
            plan = am.Plan(steps, {"v": value})
            for name in plan.names:
                plan.prompt(name, {})
        except AgentMagicError as error:
            said.append(str(error))
    assert "RecursionError" not in "".join(said)
    assert isinstance(result_text(value).content, str)
    assert isinstance(fingerprint(value), str)
    assert text_size(value) >= 0
    assert holds_content(value) in {True, False}
    try:
        written = as_json(value)
    except (TypeError, ValueError):
        return
    json.loads(written, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


NOON = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)


class Rounded(float):
    """A number whose text leaves digits out."""

    def __repr__(self):
        return f"{float(self):.2f}"


@given(VALUES, VALUES)
@settings(max_examples=150, deadline=None)
def test_values_that_differ_have_different_fingerprints(one, other):
    """Where each has one; and equal ones the same."""
    known = fingerprint(one), fingerprint(other)
    if all(known) and known[0] == known[1]:
        assert repr(one) == repr(other)
    packed = pack(one)
    assert packed is None or pack(unpack(packed)) == packed


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({1: "a"}, {"1": "a"}),
        (float("nan"), None),
        (float("inf"), float("nan")),
        ([1], (1,)),
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
        (pl.DataFrame({"a": [1]}), pl.DataFrame({"a": ["1"]})),
        (pl.DataFrame({"a": [1]}), pa.table({"a": [1]})),
        (pd.DataFrame({"a": [None]}, dtype=object), pd.DataFrame({"a": [float("nan")]}, dtype=object)),
        (pd.DataFrame({1: [0]}), pd.DataFrame({"1": [0]})),
        (Colour.RED, "red"),
        (Point(1), Point(1, 0)),
        (Rounded(1.001), Rounded(1.002)),
        (enum.Enum("Size", {"A": 1}).A, enum.Enum("Size", {"A": 2}).A),
        (enum.IntFlag("Bits", "X")(8), enum.IntFlag("Bits", "X")(16)),
        (NamedTuple("Pair", [("a", int)])(1), NamedTuple("Pair", [("b", int)])(1)),
        (
            dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Paris")),
            dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        ),
        (pl.Series([1], dtype=pl.Int8), pl.Series([1])),
        (pa.array([], pa.int8()), pa.array([], pa.string())),
        (np.ma.zeros((0, 2)), np.ma.zeros((0, 3))),
    ],
)
def test_what_looks_alike_has_another_fingerprint(one, other):
    """Two keys, two kinds of nothing, two classes with the same cells, a `repr` that leaves something out."""
    assert fingerprint(one)
    assert fingerprint(one) != fingerprint(other)


def test_two_keys_or_columns_never_become_one():
    """In JSON, in the items of `each`, in the values of a plan."""
    with pytest.raises(DeclarationError, match=r"the keys 1 and '1' would both be '1'"):
        prompt("{{ v | tojson }}", v={1: "a", "1": "b"})
    with pytest.raises(DeclarationError, match=r"the columns 1 and '1' would both be '1'"):
        prompt("{{ v | tojson }}", v=pd.DataFrame([[0, 1]], columns=[1, "1"]))
    with pytest.raises(DeclarationError, match=r"'v'.*item 0 two keys are '1' as text"):
        am.Plan([am.Agent("a", "{{ item }}", each="v")], {"v": [{1: "a", "1": "b"}]})
    with pytest.raises(DeclarationError, match=r"'v'.*item 0 two keys are 'a' as text"):
        am.Plan([am.Agent("a", "{{ item }}", each="v")], {"v": [MultiDict([("a", 1), ("a", 2)])]})
    with pytest.raises(PlanError, match="Two values have the name 'μ'"):
        am.Plan([am.Agent("a", "{{ μ }}")], {"\u00b5": 1, "\u03bc": 2})


def test_deep_and_circular_values_are_named():
    """As text with `...` where Python writes that; else the error has the name."""
    deep: list[object] = []
    for _ in range(100_000):  # Python 3.12 and later write thousands
        deep = [deep]
    loop: dict[str, object] = {}
    loop["me"] = loop
    assert "{'me': {...}}" == prompt("{{ loop }}", loop=loop)
    loop["t"] = pl.DataFrame({"a": [1]})
    assert "{'me': ..., 't': a\n1\n}" == prompt("{{ loop }}", loop=loop)
    for text in ("{{ x }} {{ v | tojson }}", "{{ v | string }}", "{{ v }}"):
        with pytest.raises(DeclarationError, match=r"v( }}: it)? holds itself, or is nested too deeply"):
            prompt(text, v=deep, x=1)
    shared: object = [0]
    for _ in range(40):
        shared = [shared, shared]
    for value in (shared, _shared_points(40)):
        for text in ("{{ v }}", "{{ v | tojson }}"):
            with pytest.raises(DeclarationError, match="more than 32,000,000 characters"):
                prompt(text, v=value)
        assert ("", None) == (fingerprint(value), pack(value))
        assert result_text(value).is_error


def _shared_points(depth):
    """Return few objects that are many as text."""
    found = Point(0)
    for _ in range(depth):
        found = Point(found, found)
    return found


# JSON as the documentation has it

PAGE = Path(__file__).parents[2] / "docs/how_to/use_values_in_prompts.md"
ROWS = re.findall(r"^\| `([^`]+)` \| (`[^`]+`|refused) \|$", PAGE.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("value", "written"), ROWS, ids=[one for one, _ in ROWS])
def test_the_table_of_json_is_true(value, written):
    """Each row of the documentation is computed."""
    names = {
        "pd": pd,
        "np": np,
        "pl": pl,
        "dt": dt,
        "UUID": uuid.UUID,
        "Decimal": decimal.Decimal,
        "Fraction": fractions.Fraction,
        "ip_address": ipaddress.ip_address,
    }
    made = eval(value, {**names, "Colour": Colour, "Point": Point, "nan": float("nan"), "inf": float("inf")})
    if written == "refused":
        with pytest.raises((TypeError, ValueError)):
            as_json(made)
    else:
        assert written.strip("`") == as_json(made)


def test_the_table_of_json_is_there():
    """A page without rows would pass all tests."""
    assert len(ROWS) > 25


# names and messages


def test_names_are_compared_as_python_compares_them():
    """In declarations, prompts, options, rows and values: the micro sign is the Greek letter."""
    plan = am.Plan(
        [
            am.Agent("µ", "{{ ﬁ }} {{ row.ﬁ }} {% if ﬁ %}{{ ﬁ }}{% endif %}"),
            am.Agent("b", "{{ μ }}", after="µ", when="µ == 'x'"),
            am.Agent("c", "{{ item.µ }} {{ item['ﬁ'] }}", each="ﬂ"),
        ],
        {"ﬁ": 1, "row": {"fi": 2}, "fl": [{"μ": 3, "fi": 4}]},
    )
    assert ("μ", "b", "c_0") == plan.names
    assert ("μ",) == plan.parents("b")
    assert plan["µ"] is plan["μ"]
    assert "1 2 1" == plan.prompt("µ", {})
    assert "3 4" == plan.prompt("c_0", {})
    assert plan.select("µ").names == ("μ",)


def test_so_it_is_with_the_fields_of_an_answer():
    """The class has the Greek letter, as Python made it; a prompt, a condition and an index may have the micro sign."""
    schema = {"type": "object", "properties": {"μ": {"type": "integer"}, "ﬁ": {"type": "string"}}, "required": ["μ"]}
    label = am.Agent("label", "x", returns=schema)
    plan = am.Plan([label, am.Agent("b", "{{ label.µ }} {{ label['µ'] }} {{ label.fi }}", when="label.µ > 1")])
    assert "3 3 x" == plan.prompt("b", {"label": plan.meaning_of(0, '{"μ": 3, "ﬁ": "x"}')})
    with pytest.raises(UndefinedField, match="label has no field 'λ'"):
        am.Plan([label, am.Agent("b", "{{ label.λ }}")])


@given(st.text(max_size=5))
def test_a_name_in_that_form_stays(name):
    """Twice is once."""
    assert same_name(name) == same_name(same_name(name))


def imported(word):
    """A function of another module."""
    return word


am.task(imported)


class Graph:
    """Gives its nodes as items, and their neighbours by name."""

    def __getitem__(self, node):
        return {}

    def __iter__(self):
        return iter("ab")

    def __len__(self):
        return 2

    def __contains__(self, node):
        return node in "ab"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ order.itms }}", r"the dict has no key 'itms'; it has items. Did you mean 'items'\?$"),
        ("{{ order.get }}", "has no text; call it"),
        ("{{ table.pric }}", "the DataFrame has no column 'pric'; it has price"),
        ("{{ other.pric }}", "the DataFrame has no column 'pric'; it has price"),
        ("{{ shout }}", r'am.Task\("imported", imported\)'),
        ("{% macro m() %}{% endmacro %}{{ m }}", "a Macro has no text"),
        ("{{ graph | tojson }}", r"a Graph cannot be written as JSON; of such an x use list\(x\)"),
        ("{{ z | tojson }}", r"a complex cannot be written as JSON; of such an x use \[x.real, x.imag\]"),
    ],
)
def test_a_message_says_what_works(text, said):
    """With the name of the value, or the expression."""
    values = {"order": {"items": "tea"}, "table": pd.DataFrame({"price": [1]}), "other": pl.DataFrame({"price": [1]})}
    with pytest.raises(DeclarationError, match=said):
        prompt(text, shout=imported, z=1j, graph=Graph(), **values)


def test_self_is_a_name_like_any_other():
    """It is not defined, unless it is."""
    with pytest.raises(UndefinedVariable, match="self"):
        prompt("Hi {{ self }}")
    assert "Hi you you" == prompt("Hi {{ self }} {% if self %}{{ self }}{% endif %}", self="you")


def test_a_key_wins_over_a_method_that_is_not_called():
    """Of every dict, on every way; a call is the method's."""
    order = {"items": "tea", "get": 1}
    assert "tea TEA items=tea,get=1," == prompt(
        "{{ o.items }} {{ o.items | upper }} {% for k, v in o.items() %}{{ k }}={{ v }},{% endfor %}", o=order
    )


def test_a_value_is_asked_for_nothing_that_its_class_lacks():
    """Its `__getattr__` may raise anything."""

    class Guarded:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __str__(self):
            return "guarded"

    assert "guarded yes" == prompt("{{ v }} {% if v %}yes{% endif %}", v=Guarded())


@pytest.mark.parametrize(
    "make",
    [lambda: Lazy(pd.DataFrame({"a": [1]})), lambda: delayed(int)(1), lambda: weakref.proxy(UserDict()), Refusing],
)
def test_a_value_that_cannot_be_read_has_no_note(make):
    """Notes are read beside the cell, before anything is used; who uses the value is told."""
    value = make()
    assert [] == value_notes(["v"], {"v": value})
    assert items_now(value) in (None, [{"a": 1}])


def test_the_module_of_a_class_may_be_anything():
    """As in classes that are made by a program."""
    assert "odd" == prompt("{{ v }}", v=type("Odd", (), {"__module__": None, "__str__": lambda _: "odd"})())


def test_the_letters_of_a_text_are_its_own():
    """In prompts and in JSON, as values and as keys, whatever the class writes."""
    loud = type("Loud", (str,), {"__str__": lambda _: "LOUD"})("quiet")
    assert ("quiet", '"quiet"', '{"quiet": 1}') == (as_text(loud), as_json(loud), as_json({loud: 1}))


def test_a_result_without_a_length_is_read():
    """As numpy reads it, and a duration of numpy keeps its nanoseconds."""
    assert ('"P0DT0H0M0.000000001S"', '"P5Y"') == (as_json(np.timedelta64(1, "ns")), as_json(np.timedelta64(5, "Y")))
    assert str([*range(200)]) == result_text(Tensor()).content


class Raises:
    """A value whose text raises."""

    def __init__(self, error):
        self.error = error

    def __repr__(self):
        raise self.error


@pytest.mark.parametrize(
    "error", [SystemExit(1), RecursionError(), DeclarationError("mine"), MemoryError(), KeyError("x")]
)
def test_whatever_the_text_of_a_result_raises_is_told_to_the_model(error):
    """As the failure of that call."""
    for value in (Raises(error), {"a": [Raises(error)]}, pd.DataFrame({"a": [Raises(error)]})):
        found = result_text(value)
        assert found.is_error, found


def test_a_library_that_another_thread_imports_is_not_asked_yet(monkeypatch):
    """A kernel loads pandas beside its first cells: its options may not be there while its functions are."""

    class Mine:
        def __str__(self):
            return "mine"

    def refused(*_):
        raise KeyError("No such keys(s): 'display.max_rows'")

    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(option_context=refused))
    assert "mine" == prompt("{{ v }}", v=Mine())


def test_a_struct_of_pyarrow_is_a_dict():
    """Alone as in a list, a dict, and an array."""
    one = pa.scalar({"a": 1, "b": [1, 2]})
    assert ["{'a': 1, 'b': [1, 2]}", "[{'a': 1, 'b': [1, 2]}]"] == [as_text(one), as_text([one])]


def test_a_weak_proxy_is_what_it_stands_for():
    """A dict is one, and an iterator is refused."""
    held = UserDict(a=1)
    proxy = weakref.proxy(held)
    assert ("{'a': 1}", '{"a": 1}') == (as_text(proxy), as_json(proxy))
    rows = (row for row in (1, 2))
    with pytest.raises(DeclarationError, match="read only once"):
        am.Plan([am.Agent("a", "{{ rows }}")], {"rows": weakref.proxy(rows)})


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="pydantic 1 does not work on Python 3.14")
@pytest.mark.filterwarnings("ignore:Mixing V1 models and V2 models")
def test_a_model_of_pydantic_1_has_json():
    """Its fields; as a type of answers it is refused in these words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pydantic import v1

    class Place(v1.BaseModel):
        name: str
        heights: list[int] = []

    assert '[{"name": "Bern", "heights": []}]' == as_json([Place(name="Bern")])
    with pytest.raises(DeclarationError, match=r"Place is no type of answers\..*Models of pydantic 1 are none"):
        am.Agent("a", "Go", returns=Place)
