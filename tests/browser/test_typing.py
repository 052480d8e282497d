"""What a person types into JupyterLab, key by key: its editor indents behind a line magic."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.lab import write_notebook

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab import Lab

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_lines_behind_a_magic_run_as_they_are_typed(jupyter: Lab, book: str, repo: Path) -> None:
    """The README's first cell, and then lines that the editor indents behind a magic: none is an `IndentationError`."""
    first = re.findall(r"^```python\n(.*?)```", (repo / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    cells = (
        first.strip(),
        "%agents limits\n%agents connect simulator --latency none\nprint(topic.upper())",
        "%%agent a\nAbout {{ topic }}",
        "run = %agents run\nif run.ok:\nprint('all', 'well')",
    )
    write_notebook(jupyter.root / book, [""] * len(cells))
    jupyter.open(book)
    page = jupyter.page
    for number, cell in enumerate(cells):
        page.locator(".jp-Cell .cm-content").nth(number).click()
        for line in cell.split("\n"):
            page.keyboard.type(line)
            if not cell.endswith(line):
                page.keyboard.press("Enter")
        page.keyboard.press("Shift+Enter")
        jupyter.wait_idle()
    page.locator(".jp-RenderedText", has_text=re.compile("A PUBLIC WEB API")).wait_for()
    page.locator(".jp-RenderedText", has_text="all well").wait_for()
    assert 0 == page.locator(".jp-OutputArea-output", has_text="Error").count()
    jupyter.save()
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
    sources = ["".join(cell["source"]) for cell in json.loads((jupyter.root / book).read_text())["cells"]]
    assert "\n    print(topic" in sources[1], "the editor indented a line"
    assert [] == jupyter.errors
