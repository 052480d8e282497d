"""A kill in each gap of a cascade, a loop and a map: nothing that was kept is bought again."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the children are forked, to begin at once"),
]


@pytest.mark.parametrize(("plan", "counts"), [("cascade", range(3)), ("loop", range(6)), ("map", [0, 1, 4, 5])])
def test_a_kill_between_two_answers_buys_nothing_twice(plan, counts, tmp_path):
    """Wherever it was killed, the next run asks for what is missing alone, and ends as an undisturbed one."""
    faulthandler.cancel_dump_traceback_later()  # which would end the whole run
    command = [sys.executable, "-m", "tests.record.dying_flow", plan, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, check=False)
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    whole = found["whole"]
    assert counts[-1] == len(whole["sent"]) == len({*whole["sent"]})
    gaps = {len(row["kept"]) for row in found["killed"]}
    assert {*counts} == gaps, "a kill in every gap; the answers of a map come together"
    for row in found["killed"]:
        assert sorted(whole["sent"]) == sorted([*row["kept"], *row["sent_after"]])
        assert whole["ends"] == row["ends"]
