"""Panel, by its real package, shows what ends a cell: with no notebook, and no formatter of IPython."""

from __future__ import annotations

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


@pytest.fixture(scope="module")
def python(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Panel and this checkout."""
    folder = tmp_path_factory.mktemp("foreign")
    venv.create(folder / "env", with_pip=True)
    found = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(found), "-m", "pip", "install", "--quiet", str(repo), "panel"]
    made = subprocess.run(pip, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"Panel cannot be installed here: {made.stderr.strip()[-200:]}")
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
