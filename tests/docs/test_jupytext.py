"""The settings of jupytext that the documentation names: exact round trips, and scripts that are Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat")
jupytext: Any = pytest.importorskip("jupytext")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how_to" / "see_it_elsewhere.md"
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
HARD = [
    "%load_ext agent_magic\n%agents connect simulator",
    '%%agent a --max-tokens 50\n#| echo: false\nSay {{ name }}.\n# %%\nIt\'s """quoted"""\n\n# a heading\n  indented',
    "%%agents\n## one\nIt's one.\n\n## two (writer)\nAnd {{ one }}",
    "%%context docs\nLong text.\n\n%agents run",
    "%%plan\nA goal, and it's long",
    "run = %agents run\nrun.agents",
    "%agents plan",
]


def settings() -> str:
    """Return the cell magics that the page sets."""
    found = re.search(r'custom_cell_magics = "(.*)"', PAGE.read_text())
    assert found
    return found[1]


def notebook(sources):
    """Return a notebook of code cells."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in sources])
    made.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    return made


QUARTO = pytest.mark.skipif(
    not jupytext.quarto.is_quarto_available(), reason="no command quarto, or too old: its files are not tried"
)


@pytest.mark.parametrize("kind", ["py:percent", "py:light", "md", "md:myst", pytest.param("qmd", marks=QUARTO)])
def test_a_round_trip_is_exact(kind):
    """Every cell comes back as it was, and a script is Python."""
    made = notebook(HARD)
    if kind.startswith("py"):
        made.metadata["jupytext"] = {"custom_cell_magics": settings()}
    text = jupytext.writes(made, fmt=kind)
    assert HARD == [one.source for one in jupytext.reads(text, fmt=kind).cells]
    if kind.startswith("py"):
        ast.parse(text)


@pytest.mark.parametrize("name", ["quickstart", "architecture"])
def test_a_notebook_of_the_gallery_comes_back(name):
    """With outputs and prose, as a script."""
    made = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    made.metadata["jupytext"] = {"custom_cell_magics": settings()}
    text = jupytext.writes(made, fmt="py:percent")
    ast.parse(text)
    back = jupytext.reads(text, fmt="py:percent")
    assert [(one.cell_type, one.source) for one in made.cells] == [(one.cell_type, one.source) for one in back.cells]
