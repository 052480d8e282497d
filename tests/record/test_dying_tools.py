"""A kill in each gap of a tool loop: between two steps of the ledger, the network and the functions."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.record.dying_tools import TURNS

STORIES = 40
PAYMENTS = {"several": 2, "loop": 2, "map": 3, "each": 3, "parallel": 6}
TASKS = {"several": 1, "loop": 1, "map": 3, "each": 3, "parallel": 1}
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
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Lives of agents that pay, killed up to four times in a row, at moments that are drawn."""
    faulthandler.cancel_dump_traceback_later()
    folder, seed = tmp_path_factory.mktemp("stories"), os.environ.get("AGENT_MAGIC_STORIES_SEED", "7")
    words = [sys.executable, "-m", "tests.record.dying_payments", str(folder), str(STORIES), seed]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1500, cwd=ROOT, check=False)
    assert 0 == done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def doubts(row):
    """The calls of a run that were not made because nobody knew whether they had been."""
    return [one for one in row["calls"] if one[1] == "failed" and "may have finished" in one[3]]


@pytest.mark.parametrize("way", ["ask", "again", "error"])
def test_no_finished_turn_is_bought_twice(kills, way):
    """Whatever the moment: what was stored is served."""
    assert len(kills[way]) > 10 * TURNS
    for row in kills[way]:
        assert not set(row["before"]["kept"]) & set(row["after"]["sent"]), row["step"]


@pytest.mark.parametrize("way", ["ask", "error"])
def test_no_call_is_repeated_that_may_have_happened(kills, way):
    """It is a doubt, which is shown; and there is no doubt where nothing was begun, or its end is known.

    A run that was killed behind its end is complete: the one after it calls again.
    """
    in_doubt = 0
    for row in kills[way]:
        charged = Counter([*row["before"]["charged"], *row["after"]["charged"]])
        assert max(charged.values(), default=0) <= 1 + row["was_over"], row["step"]
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


def test_no_payment_is_made_twice_however_often_the_run_is_cut(stories):
    """By agents that had finished as well, in rows, loops and maps: until the run is complete each pays once."""
    finished = 0
    for story in stories:
        *cut, ended, _ = story["lives"]
        paid = Counter(ended["charged"])
        assert max(paid.values(), default=0) <= 1, story
        ok, in_doubt = ended["end"] or (True, True)  # killed with its end behind it, it did not say
        if not in_doubt:
            assert ok, story
            versions = {one["version"] for one in story["lives"]}
            assert (len(versions) == 1) <= (PAYMENTS[story["plan"]] == len(paid)), story
        finished += any(len(one["charged"]) > 1 and one["killed"] for one in cut)
    assert finished >= STORIES // 8, "killed with a payment that was over: fewer would prove little"


def test_a_task_that_had_finished_is_not_run_again(stories):
    """What the ledger has of it is used; one that was cut runs again, and that is said."""
    for story in stories:
        lives = story["lives"][:-1]
        if len({one["version"] for one in lives}) == 1 and max(Counter(lives[-1]["booked"]).values(), default=0) > 1:
            assert "book runs again: a run that was cut had begun it" in lives[-1]["log"], story
        for before, after in pairwise(lives):
            kept = before["done"] if before["version"] == after["version"] else 0
            assert len(after["booked"]) - len(before["booked"]) <= TASKS[story["plan"]] - kept, story


def test_a_complete_run_that_is_started_again_pays_again_and_says_so_before(stories):
    """A person wants it again: nothing else makes a payment a second time."""
    repeated = 0
    for story in stories:
        *_, ended, again = story["lives"]
        if ended["end"] is None or len({one["version"] for one in story["lives"]}) > 1:
            continue
        complete, in_doubt = ended["end"]
        if in_doubt:  # a doubt stays one, and the other calls of a run that was told so are over
            continue
        assert (2 if complete else 1) == max(Counter(again["charged"]).values(), default=1), story
        assert complete == ("charge is called again" in again["log"]), story
        repeated += complete
    assert repeated
