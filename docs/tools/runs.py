"""Write the recorded runs of `docs/runs` as pages that answer what-ifs in the reader's browser; one stands in front."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from agent_magic import Plan
from agent_magic.machine import PYODIDE
from agent_magic.show.run_page import Asking, needs_templates, pack_engine, pack_run
from agent_magic.show.theme import built, variables

if TYPE_CHECKING:
    from pathlib import Path

    from agent_magic import Run

MORE = ".cassette.jsonl"
CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
"""What a page loads of npm's `pyodide`."""
FRONT = "business_plan"
"""The run that the front page shows, and lets be asked."""
PLACE = re.compile(r'<div id="am-ask">.*?</div>', re.DOTALL)


def recorded(runs: Path) -> list[str]:
    """Return the names of the recorded runs: those of the notebooks that made them."""
    return sorted(file.name.removesuffix(MORE) for file in runs.glob(f"*{MORE}"))


def write_runs(runs: Path, site: Path) -> None:
    """Write a page for each recorded run, and let the front page answer for one.

    Pyodide is copied beside them from the folder that `AGENT_MAGIC_PYODIDE` names; without it they address its
    distribution.

    Args:
        runs: Where a plan and a cassette of each are.
        site: The built site.
    """
    found = os.environ.get("AGENT_MAGIC_PYODIDE")
    if found:
        (site / "pyodide").mkdir()
        for name in CORE:
            shutil.copy(os.path.join(found, name), site / "pyodide" / name)  # noqa: PTH118 - a text of the user's
    for name in recorded(runs):
        run = read_run(runs, name)
        run.to_page(site / "gallery" / f"{name}_run.html", python="../pyodide/" if found else PYODIDE)
        if name == FRONT:
            page = site / "index.html"
            asked = with_run(page.read_text(encoding="utf-8"), run, "pyodide/" if found else PYODIDE)
            page.write_text(asked, encoding="utf-8")


def read_run(runs: Path, name: str) -> Run:
    """Replay a recorded run."""
    plan = Plan.from_json((runs / f"{name}.plan.json").read_text(encoding="utf-8"))
    return plan.replay(runs / f"{name}{MORE}")


def with_run(page: str, run: Run, python: str) -> str:
    """Return a page of the site with a run in the place it has for one.

    Raises:
        ValueError: The page has no such place, or several.
    """
    record = run.record
    asking = Asking(python, pack_run(record, run.prices), pack_engine(templates=needs_templates(record.plan)))
    # The panel follows the theme of a notebook; here the page's own switch decides.
    themes = "".join(f'body[data-theme="{ground}"] .am-live{{{variables(ground)}}}' for ground in ("light", "dark"))
    panel = asking.markup.partition("</h2>")[2]
    page, places = PLACE.subn(lambda _: f"<style>{built('explore.css')}{themes}</style>{panel}", page)
    if places != 1:
        raise ValueError(f"The page has {places} places for a run: it needs one <div id='am-ask'>.")
    return page.replace("</body>", f"{asking.scripts}</body>")
