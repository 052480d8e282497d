"""Cells that do not begin with what they declare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.notebook import load, unload


@pytest.fixture
def shell() -> Iterator[Any]:
    """A shell with the extension loaded."""
    InteractiveShell.clear_instance()
    made: Any = InteractiveShell.instance()
    load(made)
    yield made
    unload(made)
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    "cell",
    [
        "x = 3\n%%agent a\nHello",
        "# said first\n%%agent a\nHello there, what's up?",
        "x = 3\n%%context a\nSome words of a text",
    ],
)
def test_a_declaration_behind_other_lines_is_answered(shell: Any, cell: str) -> None:
    """Before IPython takes it for a line, or its prompt for Python."""
    with pytest.raises(UsageError, match=r"%%(agent|context) must be the first line of its cell"):
        shell.transform_cell(cell)


@pytest.mark.parametrize(
    "cell",
    [
        "%%agent a\nHello",
        "\n\n%%agent a\nHello",
        "%%time\n%%agent a\nHello",
        '''s = """\n%%agent a\nHello\n"""''',
        "x = (agent\n%context)",
        "def f(:",
    ],
)
def test_other_cells_stay_as_they_are(shell: Any, cell: str) -> None:
    """A text that holds such a line, another magic above it, a mistake of another kind."""
    load(shell)
    assert shell.transform_cell(cell)


@pytest.mark.parametrize("cell", ["%agents;", "x = 3\n%agents ; \ny = 4", "plan = %agents;"])
def test_a_semicolon_behind_the_bare_magic_is_none_of_its_name(shell: Any, cell: str) -> None:
    """As behind any other line of a notebook, it keeps the cell from showing what it returns."""
    made = shell.transform_cell(cell)
    assert "run_line_magic('agents', ';')" in made or "run_line_magic('agents', '; ')" in made


def test_a_declaration_within_a_prompt_is_told(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """It goes out as text, so the card says so."""
    shell.run_cell_magic("agent", "a", "Hello\n%%agent b\nWorld\n")
    assert "'%%agent b' is sent as text: each %%agent needs its own cell" in capsys.readouterr().out


def test_quotes_and_words_too_many(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Quotes are no part of a value, and a name is one word."""
    shell.run_cell_magic("agent", """a --model "m-1" --after 'b, c' """, "Hello\n")
    assert "m-1 · at most" in capsys.readouterr().out
    with pytest.raises(UsageError, match="unexpected 'words'"):
        shell.run_cell_magic("agent", "two words", "Hello\n")
