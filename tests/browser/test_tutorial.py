"""Pages of the tutorial typed into a real JupyterLab, with what only works there: a nod in the picture, sharing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.house.source import ROOT
from tests.lab import PATIENCE_S, Lab, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TUTORIAL = ROOT / "docs" / "tutorial"
RUN = """async (cell) => {
  window.jupyterapp.shell.currentWidget.content.activeCellIndex = cell;
  window.jupyterapp.commands.execute('notebook:run-cell');
  await new Promise((done) => setTimeout(done, 0));
}"""
DONE = """(cell) => {
  const model = window.jupyterapp.shell.currentWidget.content.widgets[cell].model;
  return model.executionCount !== null && model.executionState !== 'running';
}"""


def cells_of(page: str) -> list[str]:
    """Return the cells of a page of the tutorial, those of JupyterLab too."""
    return [block.code for block in blocks_of((TUTORIAL / page).read_text(encoding="utf-8"), lab=True)]


def run_cell(jupyter: Lab, number: int, *, agree: bool = False) -> None:
    """Run one cell, press Approve where it asks, and wait for its end."""
    jupyter.page.evaluate(RUN, number)
    if agree:
        jupyter.page.locator(".am-ask .am-agree:enabled").first.click()
    jupyter.page.wait_for_function(DONE, arg=number, timeout=PATIENCE_S * 1000)
    jupyter.wait_idle()


def problems(path: Path) -> list[str]:
    """Return the errors of a saved notebook's cells."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [one.get("evalue", "") for cell in cells for one in cell["outputs"] if one["output_type"] == "error"]


def test_tools_and_tasks(jupyter: Lab, book: str) -> None:
    """The page about tools, cell by cell: approved by a click, then in the background by a command."""
    cells = cells_of("3_tools_and_tasks.md")
    write_notebook(jupyter.root / book, cells)
    jupyter.open(book)
    for number, cell in enumerate(cells):
        if cell.startswith("%agents pending"):
            jupyter.page.locator(".am-ask .am-agree:enabled").first.wait_for()
        run_cell(jupyter, number, agree=cell.startswith("%agents run --plan letters"))
    jupyter.save()
    assert [] == problems(jupyter.root / book)
    saved = json.loads((jupyter.root / book).read_text(encoding="utf-8"))["cells"]
    waited = next(cell for cell in saved if "".join(cell["source"]).startswith("run = %agents wait"))
    assert "succeeded" in json.dumps(waited["outputs"][-1])


def test_sharing(jupyter: Lab) -> None:
    """The page about sharing, saved where it says so; then a colleague's shell, with the lines of the page."""
    cells, book = cells_of("5_sharing.md"), jupyter.root / "analysis.ipynb"
    write_notebook(book, cells)
    jupyter.open(book.name)
    for number, cell in enumerate(cells):
        if cell.startswith("%agents share"):
            jupyter.save()
        run_cell(jupyter, number)
    jupyter.save()
    assert [] == problems(book)
    assert {"analysis.cassette.jsonl", "advert.html"} <= {path.name for path in jupyter.root.iterdir()}
    text = (TUTORIAL / "5_sharing.md").read_text(encoding="utf-8")
    _, _, shell = text.partition("```sh\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    lines = shell.partition("```")[0]
    env = {**os.environ, "PATH": path}
    command = ["bash", "-euc", lines]
    done = subprocess.run(command, cwd=jupyter.root, env=env, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout[-1500:] + done.stderr[-1500:]
