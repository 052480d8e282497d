"""Jupyter Notebook 7 shows the same as JupyterLab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.playing import PLAYER, STORY
from tests.browser.test_live_view import alive_then_still, said
from tests.browser.test_scrolling import CELLS, SCROLLED, scrolled
from tests.lab import lab, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_notebook_7_shows_a_run_live_and_still(tmp_path: Path, chromium: str) -> None:
    """The view comes, its buttons work while the cell awaits, it stays when the run is over, and is saved still."""
    pytest.importorskip("notebook")
    write_notebook(tmp_path / "seven.ipynb", [PLAYER, STORY, "print(pressed)"])
    with lab(tmp_path, chromium, app="notebook") as jupyter:
        jupyter.open("seven.ipynb")
        jupyter.errors.clear()  # the front end's own, from its start
        jupyter.run_all()
        page = jupyter.page
        page.wait_for_function("() => document.querySelectorAll('.am-live .n.s-s').length === 3")
        page.locator(".am-live .n").nth(3).click()
        page.locator(".am-detail table").wait_for()
        page.get_by_role("button", name="Skip operations").click()
        page.get_by_role("button", name="Pause").click()
        page.locator(".am-stop").click()
        assert "[('skip', 'operations'), ('pause', None), ('stop', None)]" == said(page, "('stop', None)").strip()
        alive_then_still(jupyter, "seven.ipynb")
        assert [] == jupyter.outside


def test_no_output_scrolls_in_notebook_7(tmp_path: Path, chromium: str) -> None:
    """Neither while the run goes on nor after it, at three sizes of a page with visible scroll bars."""
    pytest.importorskip("notebook")
    write_notebook(tmp_path / "seven.ipynb", CELLS)
    with lab(tmp_path, chromium, app="notebook") as jupyter:
        jupyter.open("seven.ipynb")
        jupyter.run_all()
        jupyter.page.wait_for_selector(".am-live .n.s-s")
        while_it_runs = jupyter.page.evaluate(SCROLLED)
        jupyter.page.locator(".am-explore img").wait_for()
        jupyter.wait_idle()
        found = {"running": while_it_runs, **scrolled(jupyter.page)}
    assert {name: [] for name in found} == found
