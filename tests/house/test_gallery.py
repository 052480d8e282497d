"""The gallery as a static viewer shows it: run from top to bottom, whole, without what only a kernel could show."""

from __future__ import annotations

import json

import pytest

from tests.house.source import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"
MOST_BYTES = 400_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_saved_notebook_is_what_a_reader_should_see(path):
    """Every cell was run, in order and without an error; nothing needs a widget, and none is kept."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if WIDGET in output.get("data", {})]
    assert "widgets" not in notebook["metadata"], "take the key out: the state of widgets that no output shows"
    assert path.stat().st_size <= MOST_BYTES
