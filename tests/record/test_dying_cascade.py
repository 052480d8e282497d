"""A kill in each gap of a cascade: nothing that was kept is bought again."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.record.dying_cascade import CHEAP, DEAR

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the children are forked, to begin at once"),
]


def test_a_kill_between_the_cheap_and_the_dear_answer_buys_nothing_twice(tmp_path):
    """Wherever it was killed, the next run asks for what is missing alone, and ends with the dear answer."""
    faulthandler.cancel_dump_traceback_later()  # which would end the whole run
    command = [sys.executable, "-m", "tests.record.dying_cascade", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, check=False)
    assert 0 == done.returncode, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    models = [CHEAP, DEAR]
    assert {0, 1, 2} == {len(row["before"]["kept"]) for row in rows}, "a kill in every gap"
    for row in rows:
        kept = len(row["before"]["kept"])
        assert models[kept:] == row["after"]["sent"]
        assert ("succeeded", DEAR) == (row["status"], row["text"])
        assert ["ledger"] * kept + ["live"] * (2 - kept) == [source for _, _, source in row["asked"]]
        assert [[CHEAP, "escalated"], [DEAR, "succeeded"]] == [one[:2] for one in row["asked"]]
