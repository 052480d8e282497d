"""What Shift+Tab shows at a place of a cell."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.notebook import VERBS, load, unload
from agent_magic.notebook.completion import tooltip


@pytest.fixture
def kernel() -> Iterator[Any]:
    """A kernel whose shell has the extension, and whose own help says its name."""
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance()
    made = SimpleNamespace(do_inspect=lambda code, cursor_pos, detail_level=0: {"data": {"text/plain": "IPython"}})
    shell.kernel = made
    load(shell)
    made.shell = shell
    yield made
    unload(shell)
    InteractiveShell.clear_instance()


def at(marked: str) -> str | None:
    """Return what is shown at the place that a | marks."""
    return tooltip(marked.replace("|", ""), marked.index("|"))


@pytest.mark.parametrize("command", VERBS)
def test_each_command_shows_its_own_help(command):
    """Whatever magic, or command of IPython, has the same name."""
    assert (at(f"%agents {command}|") or "").startswith(f"%agents {command}: ")
    assert (at(f"x = 1\nrun = %agents {command[:2]}|{command[2:]} a\ny = 2") or "").startswith(f"%agents {command}: ")


@pytest.mark.parametrize("command", VERBS)
def test_each_option_shows_its_help(command):
    """At its name, and at its value."""
    for told, said in VERBS.parser(command).told():
        option = told.split()[0].rstrip(",")
        if option.startswith("--"):
            assert f"{told}\n    {said}" == at(f"%agents {command} {option[:4]}|{option[4:]} 5")
            assert f"{told}\n    {said}" == at(f"%agents {command} {option} 5|")


@pytest.mark.parametrize(
    ("place", "begins"),
    [
        ("%%ag|ent a --model x\nHi", "Declare an agent"),
        ("\n%%agent a|\nHi", "Declare an agent"),
        ("%%agent a --mo|del x --returns T\nHi", "--model M\n"),
        ("%%agent a --model x --returns T|\nHi", "--returns TYPE\n"),
        ("%%agents|\n## a\nHi", "Declare several agents"),
        ("%%agents\n## a (critic) --max-|tokens 5\nHi", "--max-tokens N\n"),
        ("%%context big|\nHi", "Declare text"),
        ("%%plan --agents| 5\nHi", "--agents N\n"),
        ("%agents|", "to "),
        ("%agents nothing|", "to "),
    ],
)
def test_a_magic_shows_its_help(place, begins):
    """The cell magics, headings, and `%agents` alone."""
    assert (at(place) or "").startswith(begins)


@pytest.mark.parametrize(
    "place",
    ["%%agent a --model x\n--max|-tokens", "%%agents\n## a --model x\nlen|(x)", "print|(x)", "agents.x|", "%run x|"],
)
def test_another_place_is_left_to_ipython(place):
    """Prompts, Python, other magics."""
    assert at(place) is None


def test_the_kernel_has_its_own_help_back(kernel):
    """While the extension is loaded ours comes first."""
    assert kernel.do_inspect("%agents run", 9)["data"]["text/plain"].startswith("%agents run: ")
    assert "IPython" == kernel.do_inspect("print", 3, detail_level=1)["data"]["text/plain"]
    unload(kernel.shell)
    assert "IPython" == kernel.do_inspect("%agents run", 9)["data"]["text/plain"]
