"""The reader behind the rules of the house: a rule that cannot fail is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.source import Import, Module, import_loops, own_imports
from tests.house.test_house import UNWANTED, uphill


def module(name: str, text: str = "", *, is_package: bool = False) -> Module:
    """Make a module that exists only as text."""
    return Module(name, Path(name + ".py"), is_package, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import pandas as pd", [Import("pandas", 1, late=False, marked=False)]),
        ("from .ledger import Ledger", [Import("agent_magic.record.ledger.Ledger", 1, late=False, marked=False)]),
        ("from ..errors import Cycle", [Import("agent_magic.errors.Cycle", 1, late=False, marked=False)]),
        ("from . import prices", [Import("agent_magic.record.prices", 1, late=False, marked=False)]),
        ("def f():\n    import anthropic", [Import("anthropic", 2, late=True, marked=False)]),
        ("def f():\n    import a  # lazy: big", [Import("a", 2, late=True, marked=True)]),
        ("class A:\n    import a", [Import("a", 2, late=False, marked=False)]),
        ("if TYPE_CHECKING:\n    import a", [Import("a", 2, late=False, marked=False, types_only=True)]),
        ("if not TYPE_CHECKING:\n    import a", [Import("a", 2, late=False, marked=False)]),
    ],
)
def test_imports_are_read(text: str, expected: list[Import]) -> None:
    """Relative names are resolved, functions make an import late, type-only ones are told apart."""
    assert expected == module("agent_magic.record.usage", text).imports


def test_a_name_in_a_module_counts_as_that_module() -> None:
    """`from agent_magic.errors import Cycle` loads agent_magic.errors."""
    errors, plan = module("agent_magic.errors"), module("agent_magic.declare.plan", "from agent_magic.errors import X")
    modules = {each.name: each for each in (errors, plan)}
    assert [errors] == [there for _, there in own_imports(plan, modules)]


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ("record.ledger", "errors", False),
        ("record.ledger", "engine.conductor", True),
        ("live.driver", "measure.frames", True),
        ("measure.frames", "live.driver", True),
        ("measure.frames", "engine.conductor", False),
        ("show.graph", "api", True),
        ("cli", "simulator.server", False),
        ("live.driver", "simulator.server", True),
        ("simulator.server", "record.usage", True),
        ("simulator.server", "errors", True),
        ("simulator.server", "simulator.models", False),
        ("record.ledger", "testing", True),
        ("testing", "cli", False),
    ],
)
def test_directions(here: str, there: str, expected: bool) -> None:
    """The stairs, the wall and the house apart, case by case."""
    assert expected is uphill(module("agent_magic." + here), module("agent_magic." + there))


def test_loops_are_found() -> None:
    """Modules that import each other are one group, however long the way round."""
    assert [["a", "b", "c"]] == import_loops({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert [] == import_loops({"a": {"b", "c"}, "b": {"c"}, "c": set()})


@pytest.mark.parametrize(
    ("what", "sample"),
    [
        ("a path of somebody's machine", "open('/" + "home/ada/notes.txt')"),
        ("a registry's host", "index-url = https://" + "pypi" + ".org/simple"),
        ("a key", "sk-" + "ant-api03-" + "A1b2C3d4" * 4),
    ],
)
def test_unwanted_words_are_recognised(what: str, sample: str) -> None:
    """The patterns match what they are named after."""
    assert re.search(UNWANTED[what], sample)
