"""Write the recorded runs of `docs/runs` as pages that answer what-ifs in the reader's browser."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from agent_magic import Plan
from agent_magic.show.run_page import PYODIDE

if TYPE_CHECKING:
    from pathlib import Path

MORE = ".cassette.jsonl"
CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
"""What a page loads of npm's `pyodide`."""


def recorded(runs: Path) -> list[str]:
    """Return the names of the recorded runs: those of the notebooks that made them."""
    return sorted(file.name.removesuffix(MORE) for file in runs.glob(f"*{MORE}"))


def write_runs(runs: Path, site: Path) -> None:
    """Write a page for each recorded run.

    Pyodide is copied beside them from the folder that `AGENT_MAGIC_PYODIDE` names; without it they address its
    distribution.

    Args:
        runs: Where a plan and a cassette of each are.
        site: The built site.
    """
    python, found = PYODIDE, os.environ.get("AGENT_MAGIC_PYODIDE")
    if found:
        python = "../pyodide/"
        (site / "pyodide").mkdir()
        for name in CORE:
            shutil.copy(os.path.join(found, name), site / "pyodide" / name)  # noqa: PTH118 - a text of the user's
    for name in recorded(runs):
        plan = Plan.from_json((runs / f"{name}.plan.json").read_text(encoding="utf-8"))
        plan.replay(runs / f"{name}{MORE}").to_page(site / "gallery" / f"{name}_run.html", python=python)
