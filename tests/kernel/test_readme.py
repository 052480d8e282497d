"""The first session of the README, as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kernels import Kernel

pytestmark = pytest.mark.kernel
README = Path(__file__).parents[2] / "README.md"
MOST_LINES = 12


def session() -> list[str]:
    """Return the cells above the first heading: of the last two blocks each line is one, to see what it shows."""
    top = README.read_text(encoding="utf-8").partition("\n## ")[0]
    *cells, runs, asks = re.findall(r"```(?:python)?\n(.*?)\n```", top, re.DOTALL)
    return [*cells, *runs.splitlines(), *asks.splitlines()]


def test_the_first_session_runs_as_it_is_printed() -> None:
    """Comments and all, in a fresh kernel without a key: a run, its frame and what-ifs, labelled simulated."""
    cells = session()
    assert sum(len(cell.splitlines()) for cell in cells) <= MOST_LINES
    with Kernel() as kernel:
        shown = {cell: kernel.do(cell) for cell in cells}
    assert {"ok"} == {reply.status for reply in shown.values()}
    run, agents, whatif = list(shown.values())[-3:]
    assert "simulated" in run.text
    assert "succeeded" in agents.text
    assert "claude-opus-5-5" in whatif.text
