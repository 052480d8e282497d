"""`import agent_magic` is the front door: it names what is public, and opens at once."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import agent_magic
from agent_magic.record import AgentResult
from tests.house.source import heavy_libraries

BORROWED = {"__future__", "typing"}
"""Where the names come from that a module needs for its own annotations."""


def test_every_public_name_is_there() -> None:
    """Each name in `__all__` can be imported."""
    assert [] == [name for name in agent_magic.__all__ if not hasattr(agent_magic, name)]


def test_all_is_the_truth() -> None:
    """A public name that is not a module stands in `__all__`, sorted without repeats, and `dir()` shows it."""
    present = {
        name
        for name, value in vars(agent_magic).items()
        if not (name.startswith("_") or inspect.ismodule(value) or getattr(value, "__module__", "") in BORROWED)
    }
    assert set() == present - {*agent_magic.__all__, "TYPE_CHECKING"}
    assert sorted(set(agent_magic.__all__)) == sorted(agent_magic.__all__)
    assert set(agent_magic.__all__) <= set(dir(agent_magic))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A typo behaves as in any module, so `hasattr` and `from agent_magic import ...` work."""
    with pytest.raises(AttributeError, match="no_such_name"):
        agent_magic.no_such_name  # noqa: B018 the look-up is the test


def public_functions() -> dict[str, object]:
    """Return every function that a user calls, and every method of every public class but errors."""
    found: dict[str, object] = {}
    for name in agent_magic.__all__:
        value = getattr(agent_magic, name)
        if inspect.isfunction(value):
            found[name] = value
        elif inspect.isclass(value) and not issubclass(value, BaseException):
            methods = inspect.getmembers(value, lambda one: inspect.isfunction(one) or inspect.ismethod(one))
            found |= {f"{name}.{method}": one for method, one in methods if not method.startswith("_")}
    return found


def test_what_help_points_to_can_be_found() -> None:
    """A docstring of the front door names a module in full, and says what a constant of the package holds."""
    rooms = {one.name for one in Path(agent_magic.__file__).parent.iterdir() if one.is_dir()}
    lost: list[str] = []
    for name in agent_magic.__all__:
        value = getattr(agent_magic, name)
        members = dict(inspect.getmembers(value)) if inspect.isclass(value) else {}
        home = vars(sys.modules[getattr(value, "__module__", "agent_magic")])
        for member, one in {"": value, **members}.items():
            for word in re.findall(r"`([\w.]+)`", inspect.getdoc(one) or "") if member[:1] != "_" else ():
                room, dot, _ = word.partition(".")
                if (dot and room in rooms) or (word.isupper() and word in home):
                    lost.append(f"{name}.{member}: {word}")
    assert [] == lost


def test_every_public_function_and_property_has_a_docstring() -> None:
    """What a user can call, read or make is described by `help`."""
    values = {name: getattr(agent_magic, name) for name in agent_magic.__all__}
    classes = {
        name: value
        for name, value in values.items()
        if inspect.isclass(value) and "agent_magic" in (value.__module__ or "")
    }
    described = public_functions() | classes
    for name, value in {**classes, "run[...]": AgentResult}.items():
        described |= {
            f"{name}.{member}": one
            for member, one in inspect.getmembers(value, lambda one: isinstance(one, property))
            if not member.startswith("_")
        }
    assert [] == [name for name, one in described.items() if not (one.__doc__ or "").strip()]


def test_every_public_argument_is_told() -> None:
    """What a user may give is in the docstring, by its name."""
    untold = [
        f"{name}({argument})"
        for name, function in public_functions().items()
        for argument in inspect.signature(function).parameters  # pyright: ignore[reportArgumentType]
        if argument not in {"self", "cls"}
        and not re.search(rf"Args:.*\n\s+(\w+, )*\**{argument}(, \w+)*: ", inspect.getdoc(function) or "", re.DOTALL)
    ]
    assert [] == untold


def test_the_version_is_a_version() -> None:
    """`__version__` is written once, in the front door, and the package's metadata takes it from there."""
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", agent_magic.__version__)


def test_a_page_says_which_name_is_for_what(repo: Path) -> None:
    """Each name in `__all__` stands on a page that people write, most in the table of names."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in (repo / "docs").rglob("*.md"))
    hooks = {"__version__", "load_ipython_extension", "unload_ipython_extension"}
    assert [] == [name for name in agent_magic.__all__ if name not in hooks and f"am.{name}" not in text]


def test_the_readme_is_short_and_leads_to_pages_that_are_there(repo: Path) -> None:
    """At most 700 words and one picture; every file that it names by a link is in the repository."""
    text = (repo / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    assert 1 == len(re.findall(r"!\[", text))
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert links
    assert [] == [link for link in links if not (repo / link).exists()]


@pytest.mark.parametrize("module", ["agent_magic", "agent_magic.api", "agent_magic.notebook.extension"])
def test_a_door_opens_without_heavy_libraries(module: str) -> None:
    """In a fresh interpreter, importing a door leaves every heavy library unloaded."""
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "" == child.stderr
    assert [] == sorted(heavy_libraries() & set(json.loads(child.stdout)))
