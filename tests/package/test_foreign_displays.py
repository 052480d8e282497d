"""Panel and marimo, by their real packages, show what ends a cell: with no notebook, and no formatter of IPython."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

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
SHOWN = ("run", "plan", "run.agents", "run.timeline()", "run['b']")


@pytest.fixture(scope="module")
def python(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Panel, marimo and this checkout."""
    folder = tmp_path_factory.mktemp("foreign")
    venv.create(folder / "env", with_pip=True)
    found = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(found), "-m", "pip", "install", "--quiet", str(repo), "panel", "marimo"]
    made = subprocess.run(pip, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"Panel and marimo cannot be installed here: {made.stderr.strip()[-200:]}")
    return found


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
