"""The gallery's notebooks run again: in the same kernel, and in another on the same ledger. They say the same.

Measured seconds differ, and a plan knows more after a run. What must not: an answer that was simulated is not from the
ledger the second time, no cell fails, and the cells that nbval compares show the same.
"""

from __future__ import annotations

import configparser
import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kernels import ROOT, Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

# Three runs of all take half an hour. These are what a reader opens first, and those that edit or go on.
FIRST = ("quickstart", "every_row", "conversations", "edit_and_go_on")
NIGHTLY = bool(os.environ.get("AGENT_MAGIC_NIGHTLY"))
NOTEBOOKS = [one for one in sorted((ROOT / "notebooks").glob("*.ipynb")) if NIGHTLY or one.stem in FIRST]
CELL_TIMEOUT_S = 300
SOURCES = re.compile(r"(?<!\()\b(?:simulated|ledger|live|replay|edited)\b(?!\))")
"""Where answers come from; in brackets it is a price."""


FORECASTS = re.compile(r"%agents (?:plan|ledger|runs|whatif|advise|doctor)\b|\.(?:estimate|forecast|whatif)\(")
"""What tells of everything there is, or learns from it: the second time that is more."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_the_same_again(path, tmp_path):
    """Twice in one kernel, then once more in another on that ledger."""
    work = tmp_path / "work"
    shutil.copytree(path.parent, work)
    once: Any = nbformat.read(path, as_version=4)
    twice = copy.deepcopy(once)
    for cell in twice.cells:
        cell["id"] = f"{cell['id']}-2"
    both, later, first = copy.deepcopy(once), copy.deepcopy(once), len(once.cells)
    both.cells = [*both.cells, *twice.cells]
    for notebook in (both, later):
        execute(notebook, work, tmp_path)
    for again in (both.cells[first:], later.cells):
        pairs = zip(both.cells[:first], again, strict=True)
        assert [] == [(one.source, told(one), told(other)) for one, other in pairs if told(one) != told(other)]


def execute(notebook: Any, work: Path, home: Path) -> None:
    """Run a notebook in a kernel without a key, on the ledger of its home."""
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        iopub_timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(work)}},
    )
    client.execute(env=Kernel.environment(home, AGENT_MAGIC_LEDGER=str(home / "ledger.sqlite")))


def told(cell: Any) -> Any:
    """Return what must be the same again: all that nbval compares, or else where the answers come from."""
    if cell.cell_type != "code" or FORECASTS.search(cell.source):
        return None
    text = "\n".join(str(one.get("text", one.get("data", {}).get("text/plain", ""))) for one in cell.outputs)
    if "NBVAL_CHECK_OUTPUT" not in cell.source:  # nbval compares these
        return set(SOURCES.findall(text))  # a slow kernel shows a line of progress more
    for pattern, same in SANITIZED:
        text = re.sub(pattern, same, text)
    return text.split()


def _sanitized() -> list[tuple[str, str]]:
    rules = configparser.ConfigParser(interpolation=None)
    rules.read(ROOT / "scripts" / "nbval-sanitize.cfg")
    return [(rules[name]["regex"], rules[name]["replace"]) for name in rules.sections()]


SANITIZED = _sanitized()


NAMED = sorted({*re.findall(r"notebooks/(\w+)\.ipynb", (ROOT / "README.md").read_text(encoding="utf-8"))})


@pytest.mark.parametrize("name", NAMED)
def test_what_the_readme_names_passes_plain_nbval(name, tmp_path):
    """Without rules of ours: outputs that change are marked so in the notebook."""
    call = [sys.executable, "-m", "pytest", "-q", "--nbval", "-p", "no:cacheprovider", f"notebooks/{name}.ipynb"]
    environment = Kernel.environment(tmp_path, AGENT_MAGIC_LEDGER=":memory:")
    done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout
