"""The quickstart in a real JupyterLab, as a newcomer opens it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.lab import lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
RUN_MS = 120_000


def fresh_copy(folder: Path) -> Path:
    """Copy the notebook without its outputs."""
    path = folder / "quickstart.ipynb"
    shutil.copy(NOTEBOOKS / "quickstart.ipynb", path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def test_the_quickstart_runs_and_keeps_its_pictures(tmp_path: Path, chromium: str) -> None:
    """All cells run, the live graph shows, and the saved file holds the pictures and no widget."""
    path = fresh_copy(tmp_path)
    shots = Path(os.environ.get("AGENT_MAGIC_SCREENSHOTS", tmp_path))
    with lab(tmp_path, chromium) as jupyter:
        page = jupyter.page
        jupyter.open(path.name)
        jupyter.run_all()
        page.wait_for_selector(".am-live .n.s-r", timeout=RUN_MS)
        page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-s').length > 1", timeout=RUN_MS)
        page.locator(".am-live").first.scroll_into_view_if_needed()
        page.screenshot(path=shots / "quickstart-live.png")
        page.locator(".jp-OutputArea-output pre", has_text="the same frame: True").wait_for(timeout=RUN_MS)
        jupyter.wait_idle()
        jupyter.save()
        page.locator(".am-live.am-over").last.scroll_into_view_if_needed()
        page.screenshot(path=shots / "quickstart-done.png")
        assert [] == jupyter.errors
        assert set() == set(jupyter.outside)
    saved = json.loads(path.read_text(encoding="utf-8"))
    outputs = [output for cell in saved["cells"] for output in cell.get("outputs", [])]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert [] == [output for output in outputs if output["output_type"] == "error"]
    assert 3 == kinds.count("image/svg+xml")
    assert 0 == kinds.count("application/vnd.jupyter.widget-view+json")
