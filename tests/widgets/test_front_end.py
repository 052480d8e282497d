"""The front end's sources: built, tested without a browser, and of one mind with the kernel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_magic.show.graph.groups import LABEL_W, PAD, Band, CellGrid, cell_paths


def test_built_files_are_current(repo: Path) -> None:
    """What the package carries is what the sources make."""
    done = subprocess.run(
        [sys.executable, str(repo / "widgets" / "build.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert "current" == done.stdout.strip()


@pytest.fixture
def node() -> str:
    """The path of node; without it the test is skipped."""
    found = shutil.which("node")
    if not found:
        pytest.skip("no node")
    return found


def test_front_end_tests_pass(repo: Path, node: str) -> None:
    """The pure parts hold their rules."""
    tests = sorted(map(str, (repo / "widgets" / "test").glob("*.test.js")))
    done = subprocess.run([node, "--test", *tests], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout


def test_kernel_and_front_end_draw_the_same_cells(repo: Path, node: str) -> None:
    """A cell does not move when the live picture becomes the still one."""
    states = "ssssfprrrqqssssssssp" * 7
    grid = CellGrid(10.0, 7.8, 13, bands=(Band("layer 1", tuple(range(len(states))), y=20.0, h=200.0),))
    cells = {"x": LABEL_W, "pitch": 10.0, "size": 7.8, "columns": 13, "bands": []}
    code = f"""
        import {{ cellPaths }} from {json.dumps(str(repo / "widgets" / "src" / "pure.js"))};
        console.log(JSON.stringify(cellPaths({json.dumps(states)}, {json.dumps(cells)}, {20 + PAD})));
    """
    done = subprocess.run([node, "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    assert cell_paths(states, grid, 20.0) == json.loads(done.stdout)
