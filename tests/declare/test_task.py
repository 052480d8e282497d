"""Tasks: functions as steps of a plan."""

from __future__ import annotations

import copy
import functools
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from agent_magic import Task, task
from agent_magic.declare import Fields, Items
from agent_magic.declare import task as tasks
from agent_magic.declare.each import groups_of
from agent_magic.declare.expansion import expand
from agent_magic.errors import DeclarationError, InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Mapping


class Label(BaseModel):
    tone: str


def clean(reviews: pd.DataFrame, limit: int = 3, label=None) -> pd.DataFrame:
    """Take some."""
    return reviews.head(limit)


def test_parameters_are_edges():
    """Their names are those of steps and values; one with a default can do without."""
    made = Task("clean", clean)
    assert ("reviews", "limit", "label") == made.uses == made.reads == made.parameters
    assert {"limit", "label"} == made.optional
    assert made.is_task


def test_a_task_for_each_item_takes_the_item():
    """`item` and `key` are its own, as in prompts; each part is a task, and the source was read once."""

    def length(item, key, prefix):
        return f"{prefix}{key}{len(item)}"

    made = Task("length", length, each="words")
    assert ("prefix",) == made.uses
    assert ("prefix", "words") == made.reads
    parts, _ = expand([made], {"words": ["a", "bb"]})  # pyright: ignore[reportArgumentType]
    assert ["length_0", "length_1"] == [one.name for one in parts]
    assert {"length": {0: 0, 1: 1}} == {name: dict(one) for name, one in groups_of(parts).items()}
    assert "bb" == parts[1].part.item  # pyright: ignore[reportOptionalMemberAccess]
    assert ("prefix",) == parts[1].uses
    assert {made.source_sha} == {one.source_sha for one in parts}  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(DeclarationError, match=r"no parameter for it. Write def clean\(item\)"):
        Task("clean", clean, each="words")


def test_partials_and_methods_are_functions_too():
    """What a partial has bound is no edge."""
    assert ("limit", "label") == Task("clean", functools.partial(clean, pd.DataFrame())).uses
    assert ("sep", "maxsplit") == Task("split", "a b".split).uses


def many(*values):
    """Take many."""


@pytest.mark.parametrize(
    ("name", "function", "options", "message"),
    [
        ("a b", clean, {}, "The name of a task must be one word"),
        ("clean", 3, {}, "must be a function, got 3"),
        ("clean", Label, {}, "got a class"),
        ("many", many, {}, "any number of arguments"),
        ("clean", clean, {"retries": -1}, "retries of task 'clean' must be an integer >= 0, got -1"),
        ("clean", clean, {"timeout_s": 0}, "timeout_s of task 'clean' must be a number > 0"),
        ("clean", clean, {"concurrency": 0}, "concurrency of task 'clean' must be an integer >= 1"),
        ("clean", clean, {"pure": "yes"}, "pure of task 'clean' must be True or False"),
        ("clean", clean, {"after": 3}, "after of task 'clean' must be names"),
        ("clean", clean, {"main": True, "process": True}, "Give one of them"),
    ],
)
def test_wrong_tasks_are_refused_when_declared(name, function, options, message):
    """The message names the task, the option and the value."""
    with pytest.raises(DeclarationError, match=message):
        Task(name, function, **options)


def test_an_async_task_needs_no_main_thread():
    """It is on the loop anyway, and would not run alone there."""

    async def wait():
        pass

    assert Task("wait", wait).is_async
    with pytest.raises(DeclarationError, match="runs on the loop anyway"):
        Task("wait", wait, main=True)


# annotations


def annotated(number: int, label: Label, many: list[Label], frame: pd.DataFrame, free, optional: int | None = None):
    """Take many kinds."""


def test_values_fit_their_annotations():
    """A text becomes the number that is wanted, a typed answer the class; a frame stays the very same frame."""
    frame = pd.DataFrame({"a": [1]})
    given = {
        "number": "3",
        "label": Fields(tone="good"),
        "many": Items([Fields(tone="bad"), Fields(tone="good")]),
        "frame": frame,
        "free": Fields(tone="as it is"),
        "optional": None,
    }
    found = Task("annotated", annotated).checked(given)
    assert (3, Label(tone="good"), [Label(tone="bad"), Label(tone="good")]) == (
        found["number"],
        found["label"],
        found["many"],
    )
    assert found["frame"] is frame
    assert found["free"] is given["free"]
    assert 4 == Task("annotated", annotated).checked({"number": np.int64(4)})["number"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"number": "many"}, "number: Input should be a valid integer.*, got 'many'"),
        ({"label": Fields(tune="good")}, "label: tone: Field required"),
        ({"frame": [1]}, r"frame: must be of type DataFrame, got \[1\]"),
    ],
)
def test_a_value_of_another_type_is_named(given, message):
    """Before the function sees it."""
    with pytest.raises(InvalidArguments, match=message):
        Task("annotated", annotated).checked(given)


def absent(a: NoSuchType, b: int) -> NoSuchType:  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    """Be annotated for type checkers only."""


def test_annotations_that_are_not_there_are_none():
    """A type may be imported for type checkers only; the others still count."""
    made = Task("absent", absent)
    assert {"a": "x", "b": 1} == made.checked({"a": "x", "b": "1"})


# the decorator


@pytest.fixture
def told(monkeypatch) -> list[tuple[Task, Mapping[str, Any]]]:
    """What a notebook would be told."""
    found: list[tuple[Task, Mapping[str, Any]]] = []
    monkeypatch.setattr(tasks, "LISTENERS", [lambda *one: found.append(one)])
    return found


def test_the_decorator_returns_the_function_itself(told):
    """With its task behind it; whoever listens is told, with the variables of the module that declares it."""

    def double(x: int) -> int:
        return 2 * x

    assert task(double) is double
    assert 4 == double(2)
    assert Task("double", double) == Task.declared(double)
    assert task(name="twice", timeout=3, retries=2, uses="db", writes="a,b", after=["x"], pure=True)(double) is double
    made = Task.declared(double)
    assert made is not None
    assert ("twice", 3, 2, ("db",), ("a", "b"), ("x",), True) == (
        made.name, made.timeout_s, made.retries, made.uses_resources, made.writes, made.after, made.pure,
    )  # fmt: skip
    assert ["double", "twice"] == [one.name for one, _ in told]
    assert all(variables is globals() for _, variables in told)
    assert Task.declared(clean) is None
    assert Task.declared(3) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeouts": 1}, "no option 'timeouts'. Did you mean 'timeout'"),
        ({"part": 1}, "no option 'part'"),
        ({"retries": True}, "retries of task 'clean'"),
    ],
)
def test_wrong_options_are_refused_where_they_stand(options, message, told):
    """Nobody is told of such a task."""
    with pytest.raises(DeclarationError, match=message):
        task(**options)(clean)
    assert not told


def test_a_task_goes_into_a_record_without_its_function():
    """It is equal, has the same edges, and says why it cannot run."""
    made = Task("clean", clean, after="x", retries=1)
    kept = pickle.loads(pickle.dumps(made))
    assert made == kept
    assert (made.uses, made.optional, made.source_sha) == (kept.uses, kept.optional, kept.source_sha)
    with pytest.raises(DeclarationError, match="declare it again to run it"):
        kept.function(reviews=1)
    assert copy.deepcopy(made).function is clean


def test_another_body_is_another_task():
    """What was made by older code is stale."""

    def one(x):
        return x

    def two(x):
        return x + 1

    assert Task("f", one) != Task("f", two)
    assert Task("f", one) == replace(Task("f", one))


def test_a_union_is_read_in_its_own_order():
    """What reads a type is made once for each type, and two unions are equal whatever their order."""

    def first(x: bool | int) -> None:
        """Take a bool before a number."""

    def second(x: int | bool) -> None:
        """Take a number before a bool."""

    for _ in range(2):
        found = [Task("a", one).checked({"x": "1"})["x"] for one in (first, second)]
        assert [bool, int] == [type(one) for one in found]


def test_a_function_that_yields_is_no_task():
    """Two that take what it makes would have a part each."""

    def numbers():
        yield 1

    with pytest.raises(DeclarationError, match="yields"):
        Task("numbers", numbers)
