"""What `%load_ext agent_magic` adds to IPython: modules and CPU time, and which heavy libraries are loaded when.

Each measurement is a fresh process with an IPython shell in it, in turn without and with the extension. Run it with
`python -m benchmarks.load`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measuring import print_heading, print_table

ROUNDS = 9
LIBRARIES = ("anthropic", "pandas", "wasmtime", "numpy", "ipywidgets", "aiohttp", "jinja2", "genai_prices")
SHELL = """
import json, os, sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
stages = []
def stage(name):
    loaded = [library for library in {libraries!r} if library in sys.modules]
    stages.append((name, time.process_time(), len(sys.modules), loaded))
def cell(text):
    shown, sys.stdout = sys.stdout, open(os.devnull, "w")
    result = shell.run_cell(text)
    sys.stdout = shown
    result.raise_error()
stage("IPython")
"""
LOAD = 'cell("%load_ext agent_magic"); stage("after %load_ext")\n'
REST = """
cell("%%agent one\\nSay something.")
stage("after the first %%agent")
cell("%agents connect simulator")
stage("after %agents connect simulator")
cell("run = %agents run")
stage("after the first %agents run")
cell("frame = run.agents")
stage("after run.agents")
from agent_magic.show.live import make_live_view
make_live_view(shell.user_ns["run"].record, lambda *_: None)
stage("after the first live view, as in a notebook")
"""
TELL = "print(json.dumps(stages))\n"

Stage = tuple[str, float, int, list[str]]


def stages_of(program: str) -> list[Stage]:
    """Run a program in a fresh process and return what it says of each stage."""
    command = [sys.executable, "-c", SHELL.format(libraries=LIBRARIES) + program + TELL]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [tuple(stage) for stage in json.loads(done.stdout.splitlines()[-1])]


def print_load() -> None:
    """Compare a bare shell with one that loads the extension."""
    bare: list[Stage] = []
    loaded: list[Stage] = []
    for _ in range(ROUNDS):
        bare.append(stages_of("")[-1])
        loaded.append(stages_of(LOAD)[-1])
    rows = [row("IPython", bare), row("IPython, %load_ext agent_magic", loaded)]
    added = [after[1] - before[1] for before, after in zip(bare, loaded, strict=True)]
    shares = [after[1] / before[1] for before, after in zip(bare, loaded, strict=True)]
    rows.append(
        ("added", f"{loaded[0][2] - bare[0][2]:,}", f"{median(added):.3f}", f"{least(loaded) - least(bare):.3f}")
    )
    print_table(("process", "modules", "median s", "least s"), rows)
    print(f"With the extension a start takes {median(shares):.2f} times the CPU time (median of {ROUNDS} rounds).\n")


def row(name: str, found: Sequence[Stage]) -> tuple[object, ...]:
    """Return name, modules, and median and least CPU seconds."""
    times = [stage[1] for stage in found]
    return name, f"{found[0][2]:,}", f"{median(times):.3f}", f"{min(times):.3f}"


def least(found: Sequence[Stage]) -> float:
    """Return the least CPU seconds."""
    return min(stage[1] for stage in found)


def print_stages() -> None:
    """Print which libraries are there at which stage of a first session."""
    rows: list[tuple[Any, ...]] = []
    before = 0.0
    for name, cpu_s, modules, libraries in stages_of(LOAD + REST):
        marks = ["yes" if library in libraries else "" for library in LIBRARIES]
        rows.append((name, f"{modules:,}", f"{cpu_s - before:.2f}", *marks))
        before = cpu_s
    print("Loaded after each step of a first session; CPU seconds of the step, once.\n")
    print_table(("step", "modules", "CPU s", *LIBRARIES), rows)


def main() -> None:
    """Print both tables."""
    print_heading("Loading", f"CPU seconds of whole processes, {ROUNDS} rounds in turn. Target: under 0.3 s added.")
    print_load()
    print_stages()


if __name__ == "__main__":
    main()
