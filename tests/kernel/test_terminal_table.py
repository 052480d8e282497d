"""A run in a real terminal IPython: the table while it runs, at its end, and after Ctrl-C; and a run in a log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.terminal import CONTROL, PATH, Terminal

pytestmark = pytest.mark.kernel
pyte: Any = pytest.importorskip("pyte")
COLUMNS, LINES = 100, 30
AGENTS = {
    "market": "[[tokens:40]] [[pace:200]] How large?",
    "broken": "[[status:400 times=9]] x",
    "slow": "[[tokens:4000]] [[pace:40]] {{ market }}",
    "late": "{{ broken }}",
}

SCRIPT = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "agent_magic")
shell.run_line_magic("agents", "connect simulator --latency none")
shell.run_cell_magic("agent", "a", "Hello.")
print("--")
shell.run_line_magic("agents", "run")
"""


@pytest.fixture(scope="module")
def terminal():
    """A terminal with colours, the stand-in API in it, and four agents declared."""
    with Terminal(COLUMNS, LINES, TERM="xterm-256color") as started:
        started.do("%load_ext agent_magic")
        started.do("%agents connect simulator --latency fast")
        started.do("import anthropic, rich.live")
        for name, prompt in AGENTS.items():
            started.do(f"%%agent {name}\n{prompt}")
        yield started


def screen(terminal: Terminal, since: int) -> list[str]:
    """Return the lines that stand in the terminal of what was written since a place."""
    shown = pyte.HistoryScreen(COLUMNS, LINES, history=1000)
    pyte.Stream(shown).feed(terminal.written.getvalue()[since:])
    return [line.rstrip() for line in shown.display if line.strip()]


def test_ctrl_c_leaves_a_clean_terminal(terminal):
    """After Ctrl-C there is one table with what became of each agent, one line, the message, and a working prompt."""
    since = len(terminal.written.getvalue())
    terminal.start("run = %agents run")
    terminal.until("1 of 4 done · 1 running")
    terminal.interrupt()
    terminal.wait()
    lines = screen(terminal, since)
    assert 1 == sum("layer 0" in line for line in lines)
    assert [line for line in lines if line.startswith("  ■ slow")]
    assert [line for line in lines if "1 failed" in line and "1 cancelled" in line]
    assert [line for line in lines if "KeyboardInterrupt: stopped: 1 of 4 agents had finished" in line]
    assert "42" in terminal.do("6 * 7")
    assert terminal.written.getvalue().rfind("\x1b[?25h") > terminal.written.getvalue().rfind("\x1b[?25l")


def test_a_second_ctrl_c_leaves_the_output_alone(terminal):
    """However a run is cut, what is printed afterwards goes out as it is, below the table."""
    terminal.start("run = %agents run --fresh")
    terminal.until("1 of 4 done · 1 running")
    terminal.interrupt()
    terminal.interrupt()
    terminal.wait()
    since = len(terminal.written.getvalue())
    terminal.do("import sys")
    terminal.do("print('first\\nsecond')")
    assert "\x1b[1A" not in terminal.written.getvalue()[since:]
    assert "True" in terminal.do("sys.stdout is sys.__stdout__ or 'rich' not in type(sys.stdout).__module__")


def test_the_table_stays_when_it_is_over(terminal):
    """A finished run leaves its table and the honest line; the seconds, tokens and dollars are those of the run."""
    since = len(terminal.written.getvalue())
    terminal.do("run = %agents run market late")
    lines = screen(terminal, since)
    assert [line for line in lines if re.match(r"  ✓ market +[\d.]+ s +\d+ tok +\$[\d.]+", line)]
    assert [line for line in lines if line.startswith("  - late") and "needs broken" in line]
    assert [line for line in lines if line.startswith("3 agents in 2 layers · 1 failed · 1 skipped · ")]
    assert not [line for line in lines if "━" in line]


def test_a_script_logs_two_lines(tmp_path):
    """In a log, or piped, a run is one line when it begins and one when it has ended; no control sequences."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=_env(),
        cwd=tmp_path,
    )
    shown = done.stdout.partition("--\n")[2]
    assert "\x1b" not in shown
    first, last = shown.splitlines()
    assert "agents: 1 agent in 1 layer, running" == first
    assert re.fullmatch(r"1 agent in 1 layer · [\d.]+ s · .* tokens · \$[\d.]+ · simulated", last)
    assert CONTROL.sub("", shown) == shown


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": PATH}
