"""Execute a copy of a notebook and print what its cells showed, as text.

Usage: execute_notebook.py NOTEBOOK RESULT.ipynb

The original stays as it is: the copy runs in a temporary folder beside copies of the files around it, so files that
the notebook writes land there too.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

CELL_TIMEOUT_S = 120


def text_of(output: Any) -> str:
    """Return what one output of a cell shows in a terminal, without surrounding blank lines; '' for nothing."""
    if output.output_type == "stream":
        return output.text.strip("\n")
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return str(output.data.get("text/plain", "")).strip("\n")


def print_cells(notebook: Any) -> None:
    """Print every code cell's first lines and all it showed."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        print("\n" + "\n".join(f">>> {line}" for line in cell.source.strip().splitlines()))
        for text in filter(None, map(text_of, cell.outputs)):
            print(text)


def execute(source: Path, result: Path) -> int:
    """Run a copy of the notebook, save it as `result`, print its outputs; 1 when a cell failed."""
    notebook = nbformat.read(source, as_version=4)
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source.parent, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            iopub_timeout=CELL_TIMEOUT_S,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # its warnings about transport are no part of the result
        )
        try:
            client.execute()
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            status = 1
    result.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, result)
    print_cells(notebook)
    return status


if __name__ == "__main__":
    sys.exit(execute(Path(sys.argv[1]), Path(sys.argv[2])))
