"""Build a JupyterLite beside the site: notebooks that run live in the reader's browser, against the mock server there.

Usage: python docs/tools/lite.py PYODIDE SITE     PYODIDE is npm's package, unpacked, with the wheels of
                                                  `scripts/pyodide_wheels.py` in it
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ("quickstart", "business_plan", "critic_loop", "map_reduce")
"""Those of the gallery that run there as they are, but for frames."""
LOADED = ("agent-magic", "ipython", "ipywidgets", "anywidget", "anthropic")
WHERE = "static/pyodide"
FIRST = """\
This notebook runs in your browser: nothing is installed, nothing leaves this page, and no key is needed. Answers are
simulated by the mock server, which runs in the page too. There is no pandas here: a cell with a frame says so, which
ends Run All. Run the next cells one by one.
"""


def settings(packages: tuple[str, ...] = LOADED) -> dict[str, Any]:
    """Return what JupyterLite reads: where Python is, and what it loads before the first cell."""
    kernel = {"pyodideUrl": f"./{WHERE}/pyodide.mjs", "loadPyodideOptions": {"packages": list(packages)}}
    data = {
        "appName": "agent_magic in your browser",
        "exposeAppInBrowser": True,
        "litePluginSettings": {"@jupyterlite/pyodide-kernel-extension:kernel": kernel},
    }
    return {"jupyter-lite-schema-version": 0, "jupyter-config-data": data}


def lay_out(pyodide: Path, folder: Path) -> None:
    """Write what `jupyter lite build` takes: settings, notebooks and Python."""
    (folder / "jupyter-lite.json").write_text(json.dumps(settings()), encoding="utf-8")
    files = folder / "files"
    files.mkdir()
    for name in NOTEBOOKS:
        (files / f"{name}.ipynb").write_text(json.dumps(notebook(name)), encoding="utf-8")
    kept = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
    (folder / WHERE).mkdir(parents=True)
    for file in pyodide.iterdir():
        if file.name in kept or file.suffix == ".whl":
            shutil.copy(file, folder / WHERE)


def notebook(name: str) -> dict[str, Any]:
    """Return a notebook of the gallery without outputs, with a word of where it runs."""
    read: dict[str, Any] = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    fresh = {"outputs": [], "execution_count": None, "metadata": {}}
    cells = [one | fresh if one["cell_type"] == "code" else one for one in read["cells"]]
    first = [{"cell_type": "markdown", "id": "lite", "metadata": {}, "source": FIRST}]
    return {
        **read,
        "cells": [*first, *cells],
        "metadata": {"kernelspec": {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}},
    }


def build_lite(pyodide: Path, site: Path) -> Path:
    """Build it into `lite` of the site's folder, which it returns."""
    target = site / "lite"
    with tempfile.TemporaryDirectory() as folder:
        lay_out(pyodide, Path(folder))
        command = [sys.executable, "-m", "jupyterlite_core", "build", "--lite-dir", folder, "--contents", "files"]
        command += ["--output-dir", str(target), "--apps", "lab", "--no-sourcemaps"]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    return target


if __name__ == "__main__":
    print(build_lite(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
