"""Real processes that are killed at each step of a batch, against the mock server over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_magic.simulator import start

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the children are forked, to begin at once"),
]


def test_killed_at_every_step(tmp_path: Path) -> None:
    """Whatever step of a batch a kill hits, the next run has all answers, and no request is in two batches."""
    with start(latency="none", unlimited=True, batch="takes=0.3,hidden=0.1,poll=0.1") as server:
        words = [sys.executable, "-m", "tests.live.dying_batches", server.url, str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    assert 0 == done.returncode, done.stderr
    for found in json.loads(done.stdout):
        assert (True, 0, True, []) == (found["killed"], found["again"], found["ok"], found["twice"]), found
        assert [8, 1] == found["sizes"], found
