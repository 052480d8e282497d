"""Panel, marimo and Voila, by their real packages, show what JupyterLab shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.test_scrolling import scrolled
from tests.foreign import python_with
from tests.lab import FLAGS, HIDDEN, PATIENCE_S, answers, end_server, free_port, write_notebook

pytestmark = pytest.mark.slow

RUN = """
import agent_magic as am
server = am.Simulator(latency="none")
server.__enter__()
plan = am.Plan([am.Agent("a", "One?"), am.Agent("b", "Two {{ a }}")])
"""
PANEL = f"""
import asyncio
import panel
{RUN}
run = asyncio.run(plan.run(client=am.Claude(base_url=server.url, api_key="any")))
for value in (run, plan, run.dashboard(), run.agents, run["a"], run.advise(), plan.estimate()):
    print(type(panel.panel(value)).__name__)
panel.Column(run, run.agents).save("panel.html")
server.__exit__(None, None, None)
"""
MARIMO = """
import marimo

app = marimo.App()

@app.cell
async def _():
    import agent_magic as am
    plan = am.Plan([am.Agent("a", "One?"), am.Agent("b", "Two {{ a }}")])
    with am.Simulator(latency="none") as server:
        run = await plan.run(client=am.Claude(base_url=server.url, api_key="any"))
    return plan, run
"""
VOILA = (
    "%load_ext agent_magic\n%agents connect simulator --latency fast",
    "%%agents\n## a\nOne?\n## b\nTwo {{ a }}",
    "run = %agents run",
    (
        "import ipywidgets\n"
        "again, out = ipywidgets.Button(description='Again'), ipywidgets.Output()\n"
        "def press(_):\n"
        "    with out:\n"
        "        get_ipython().run_line_magic('agents', 'run --fresh')\n"
        "again.on_click(press)\n"
        "display(again, out)"
    ),
    "run.explore()",
)
SHOWN = ("run", "plan", "run.agents", "run.timeline()", "run['b']")


@pytest.fixture(scope="module")
def python(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Panel, marimo, Voila and this checkout."""
    return python_with(tmp_path_factory.mktemp("foreign"), str(repo), "panel", "marimo", "voila", "ipykernel")


def said(python: Path, folder: Path, *arguments: str) -> str:
    """Run Python in a folder, with none of this checkout's settings; return what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    env |= {"HOME": str(folder), "AGENT_MAGIC_LEDGER": "off"}
    done = subprocess.run(
        [str(python), *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_panel_shows_pictures_and_html(python: Path, tmp_path: Path) -> None:
    """A value is a picture or HTML there, and never its text; a page of them can be saved."""
    (tmp_path / "app.py").write_text(PANEL)
    kinds = said(python, tmp_path, "app.py").split()
    assert ["SVG", "SVG", "SVG", "HTML", "HTML", "HTML", "HTML"] == kinds, sys.version
    assert "image/svg+xml" in (tmp_path / "panel.html").read_text()


def test_marimo_shows_pictures_and_tables(python: Path, tmp_path: Path) -> None:
    """A run that a cell awaits, a plan and a chart are pictures, frames marimo's own table, an answer is HTML."""
    cells = [f"\n@app.cell\ndef _(plan, run):\n    {shown}\n    return\n" for shown in SHOWN]
    (tmp_path / "app.py").write_text("".join([MARIMO, *cells]))
    said(python, tmp_path, "-m", "marimo", "export", "session", "app.py")
    session = json.loads((tmp_path / "__marimo__" / "session" / "app.py.json").read_text())
    shown = [str(cell["outputs"]) for cell in session["cells"][1:]]
    signs = ("image/svg+xml", "image/svg+xml", "<marimo-table", "image/svg+xml", "text/html")
    assert [True] * len(SHOWN) == [sign in text for sign, text in zip(signs, shown, strict=True)]
    assert "2 of 2 done" in shown[0]
    assert "simulated" in shown[2]


def test_voila_shows_pictures_and_its_buttons_work(python: Path, tmp_path: Path, chromium: str) -> None:
    """A run, one that a button started, and the controls of what-ifs, whose forecast follows them."""
    write_notebook(tmp_path / "app.ipynb", VOILA)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    env |= {"HOME": str(tmp_path), "AGENT_MAGIC_LEDGER": "off"}
    options = ("--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1", "app.ipynb")
    with (tmp_path / "voila.log").open("wb") as log:
        server = subprocess.Popen(
            [python, "-m", "voila", *options], cwd=tmp_path, env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        assert answers(f"{url}/nothing", server), (tmp_path / "voila.log").read_text()
        with sync_playwright() as pw:
            browser = pw.chromium.launch(
                executable_path=chromium, headless=True, args=list(FLAGS), ignore_default_args=HIDDEN
            )
            page = browser.new_page(viewport={"width": 1200, "height": 1000})
            page.set_default_timeout(PATIENCE_S * 1000)
            page.goto(url)
            page.locator(".am-explore img").first.wait_for()
            found = scrolled(page)
            assert {name: [] for name in found} == found
            assert 1 == page.locator("img[src*='2%20of%202%20done']").count()
            page.get_by_role("button", name="Again").click()
            page.locator("svg.am-fig", has_text="2 of 2 done").wait_for()
            page.locator(".am-explore").get_by_label("schedule").select_option("sequential")
            page.locator(".am-explore img[src*='sequential']").first.wait_for()
            browser.close()
    finally:
        end_server(server)
