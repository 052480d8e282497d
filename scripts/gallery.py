"""Run notebooks of the gallery again and save what a reader sees, without the state of widgets and times of cells.

Usage: python scripts/gallery.py [NOTEBOOK.ipynb ...]    all of notebooks/ where none is named

A machine that does nothing else gives the times that a reader should see. Look at the differences before you keep them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

GALLERY = Path(__file__).resolve().parent.parent / "notebooks"
CELL_TIMEOUT_S = 180


def run(path: Path) -> None:
    """Execute a notebook in its folder and save it over itself; the original stays where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        iopub_timeout=CELL_TIMEOUT_S,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    nbformat.write(notebook, path)
    print(path.name)


def main(names: list[str]) -> None:
    """Run what is named, each with a ledger of its own and without a key."""
    os.environ["AGENT_MAGIC_LEDGER"] = ":memory:"
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        del os.environ[name]
    for path in [*map(Path, names)] or sorted(GALLERY.glob("*.ipynb")):
        run(path.resolve())


if __name__ == "__main__":
    main(sys.argv[1:])
