"""`run.explore()` in JupyterLab: a slider is moved, and the number and the picture follow."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.lab import PATIENCE_S, lab

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.slow]
CELLS = (
    "%load_ext agent_magic\n%agents connect simulator --latency fast",
    *(f"%%agent part_{number}\nHello. [[tokens:60]]" for number in range(4)),
    "%%agent whole\n{{ part_0 }} {{ part_1 }} {{ part_2 }} {{ part_3 }} [[tokens:60]]",
    "run = %agents run",
    "run.explore()",
)
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def test_a_slider_moves_the_forecast(tmp_path: Path, chromium: str):
    """The line says other seconds, the picture is another one, and what is saved is the picture that was shown last.

    Opened again, with another kernel, the notebook has that picture and no broken controls.
    """
    cells = [new_code_cell(source) for source in CELLS]
    nbformat.write(new_notebook(cells=cells, metadata=KERNEL), tmp_path / "explore.ipynb")
    with lab(tmp_path, chromium) as jupyter:
        jupyter.open("explore.ipynb")
        jupyter.run_all()
        page = jupyter.page
        line = page.locator(".am-explore-line")
        line.wait_for(timeout=PATIENCE_S * 1000)
        picture = page.locator(".jp-OutputArea-output img").last
        picture.wait_for(timeout=PATIENCE_S * 1000)
        before, drawn = line.inner_text(), picture.get_attribute("src")
        assert before.startswith("forecast ")
        handle = page.locator(".widget-hslider .noUi-handle, .widget-slider .ui-slider-handle").first
        handle.focus()
        for _ in range(7):
            handle.press("ArrowLeft")
        page.wait_for_function(
            "before => document.querySelector('.am-explore-line').innerText !== before", arg=before, timeout=20_000
        )
        page.wait_for_function(
            "drawn => [...document.querySelectorAll('.jp-OutputArea-output img')].at(-1).src !== drawn",
            arg=drawn,
            timeout=20_000,
        )
        page.wait_for_function("document.querySelector('.am-explore-line').innerText.includes('limited by slot')")
        page.screenshot(path=str(tmp_path / "explore.png"), full_page=True)
        jupyter.save()
        page.goto("about:blank")
        jupyter.end_kernels()
        jupyter.open("explore.ipynb", kernel=False)
        page.get_by_text("Run this cell again to change").wait_for()
        page.locator(".jp-OutputArea-output img").last.wait_for()
        jupyter.wait_idle()
        assert 0 == page.get_by_text("Error displaying widget").count()
        assert [] == jupyter.errors
        assert [] == jupyter.outside
    saved = json.loads((tmp_path / "explore.ipynb").read_text())
    outputs = saved["cells"][-1]["outputs"]
    svg = [output["data"]["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert "1 at once" in "".join(svg[-1])
