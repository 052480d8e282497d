"""A kill in each gap of a tool loop: between two steps of the ledger, the network and the functions."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.record.dying_tools import TURNS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the children are forked, to begin at once"),
]


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    """Per way to settle a doubt, what was done before and after each kill, until the agent had its answer."""
    faulthandler.cancel_dump_traceback_later()  # which would end the whole run
    words = [sys.executable, "-m", "tests.record.dying_tools", str(tmp_path_factory.mktemp("kills"))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1500, cwd=ROOT, check=False)
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {way: [one for one in rows if str(TURNS) not in one["before"]["kept"]] for way, rows in found.items()}


def doubts(row):
    """The calls of a run that were not made because nobody knew whether they had been."""
    return [one for one in row["calls"] if one[1] == "failed" and "nobody knows whether it has finished" in one[3]]


@pytest.mark.parametrize("way", ["ask", "again", "error"])
def test_no_finished_turn_is_bought_twice(kills, way):
    """Whatever the moment: what was stored is served."""
    assert len(kills[way]) > 10 * TURNS
    for row in kills[way]:
        assert not set(row["before"]["kept"]) & set(row["after"]["sent"]), row["step"]


@pytest.mark.parametrize("way", ["ask", "error"])
def test_no_call_is_repeated_that_may_have_happened(kills, way):
    """It is a doubt, which is shown; and there is no doubt where nothing was begun, or its end is known."""
    in_doubt = 0
    for row in kills[way]:
        charged = Counter([*row["before"]["charged"], *row["after"]["charged"]])
        assert max(charged.values(), default=0) <= 1, row["step"]
        in_doubt += bool(doubts(row))
        if way == "ask":
            expected = ("failed", "CallInDoubt") if doubts(row) else ("succeeded", None)
            assert expected == (row["status"], row["kind"]), row["step"]
        else:  # the model was told, and went on
            assert ("succeeded", len(doubts(row)) <= 1) == (row["status"], True), row["step"]
        if not doubts(row) and row["status"] == "succeeded":
            assert TURNS == len(charged), row["step"]
    assert in_doubt >= 2 * TURNS, "before and after what it does"


def test_a_user_may_have_them_repeated(kills):
    """Then each is made at least once, and the run ends well."""
    repeated = 0
    for row in kills["again"]:
        charged = Counter([*row["before"]["charged"], *row["after"]["charged"]])
        assert ("succeeded", TURNS) == (row["status"], len(charged)), row["step"]
        repeated += max(charged.values()) > 1
    assert repeated >= TURNS
