"""JupyterLite beside the site: a notebook of the gallery runs live in the page, which asks no other machine."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import sync_playwright

from tests.lab import FLAGS, REPO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.browser]
PATIENCE_MS = 240_000
IDLE = """() => {
  const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
  return context?.isReady && context.session?.kernel?.status === 'idle';
}"""
RUN_ALL = "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"  # its promise ends with the cells
OUTPUTS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === 'code').map(cell => JSON.stringify(cell.model.outputs.toJSON()))"""
BACKGROUND = ("%load_ext agent_magic\n%agents connect simulator", "%%agent long\nWrite. [[ttft:600]]", "%agents start")
STOP = ("%agents stop", "run = %agents wait", "print('ended as', run['long'].status)")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site that was just built, with a notebook of the test's own."""
    if shutil.which("npm") is None:
        pytest.skip("no npm, from which Pyodide comes")
    folder: Path = tmp_path_factory.mktemp("lite") / "site"
    clean = {name: value for name, value in os.environ.items() if name != "AGENT_MAGIC_PYTHON"}
    subprocess.run([REPO / "scripts" / "lite", folder], check=True, env=clean)
    cells = [
        {"cell_type": "code", "id": f"c{place}", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
        for place, text in enumerate((*BACKGROUND, *STOP))
    ]
    kernel = {"kernelspec": {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}}
    book = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "lite" / "files" / "critic_loop.ipynb").write_text(json.dumps(book))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/lite/lab/index.html"
    server.shutdown()
    server.server_close()


def opened(browser: Any, address: str) -> tuple[Any, list[str], list[str]]:
    """Open a notebook and wait for its kernel. Returns the page, its errors, and what it asks of other machines."""
    page, errors, outside = browser.new_page(viewport={"width": 1280, "height": 6000}), [], []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    local = ("http://127.0.0.1", "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(local) else outside.append(request.url))
    page.route("**/favicon.ico", lambda route: route.fulfill(body=""))
    page.goto(address)
    page.wait_for_function(IDLE, timeout=PATIENCE_MS)
    return page, errors, outside


def test_a_notebook_runs_live_in_the_page(chromium: str, site: str) -> None:
    """`quickstart` runs up to its first frame, which says that there is no pandas; its graph is seen live."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page, errors, outside = opened(browser, f"{site}?path=quickstart.ipynb")
        page.evaluate(RUN_ALL)
        page.wait_for_selector(".am-live .n.s-r", timeout=PATIENCE_MS)
        page.wait_for_function(f"() => ({OUTPUTS})().some(said => said.includes('pandas'))", timeout=PATIENCE_MS)
        if folder := os.environ.get("AGENT_MAGIC_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/lite.png")
        said = "".join(page.evaluate(OUTPUTS))
        assert "image/svg+xml" in said
        assert "pandas cannot be loaded here" in said
        assert ([], []) == (errors, outside)
        browser.close()


def test_stop_ends_a_run_in_the_background(chromium: str, site: str) -> None:
    """A run of ten minutes that `%agents start` began is over when `%agents stop` has run."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page, errors, outside = opened(browser, f"{site}?path=critic_loop.ipynb")
        page.evaluate(RUN_ALL)
        page.wait_for_function(f"() => ({OUTPUTS})().some(said => said.includes('ended as'))", timeout=PATIENCE_MS)
        assert "ended as cancelled" in "".join(page.evaluate(OUTPUTS))
        assert ([], []) == (errors, outside)
        browser.close()
