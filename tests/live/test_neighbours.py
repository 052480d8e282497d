"""Real processes on one key and one ledger: what they get together and each, and what a killed one leaves."""

# What a process prints is taken for what it should be.
# pyright: reportOptionalIterable=false, reportOptionalMemberAccess=false

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import agent_magic as am

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
PER_MINUTE = 1_200


def kernel(url, ledger, name, agents):
    """Start a process; it sends at once when it has begun."""
    command = [sys.executable, "-m", "tests.live.neighbours", url, str(ledger), name, str(agents), "on"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def told(process):
    """Wait for the end of a process, and return what it says."""
    with process:
        return json.loads(process.stdout.read().splitlines()[-1])


def test_two_kernels_share_a_limit(tmp_path):
    """Each sends about half of what may pass while both are there, next to nothing is refused, and no row is left."""
    ledger = tmp_path / "ledger.sqlite3"
    with am.Simulator(latency="fast", rpm=PER_MINUTE) as server:
        kernels = [kernel(server.url, ledger, name, 110) for name in ("a", "b")]
        results = [told(one) for one in kernels]
    assert [110, 110] == [one["succeeded"] for one in results]
    assert sum(one["refused"] for one in results) <= 0.03 * 220
    both = max(min(one["times"]) for one in results) + 3, min(max(one["times"]) for one in results)
    counts = [sum(both[0] < at <= both[1] for at in one["times"]) for one in results]
    assert sum(counts) >= 0.8 * PER_MINUTE / 60 * (both[1] - both[0])  # a busy machine is late now and then
    assert max(counts) <= 1.5 * min(counts)
    assert [] == rows(ledger)


def test_what_a_killed_kernel_had_the_other_takes(tmp_path):
    """The other is done as soon as all of the limit allows, and the row of the killed one is gone."""
    ledger = tmp_path / "ledger.sqlite3"
    with am.Simulator(latency="fast", rpm=PER_MINUTE) as server:
        dying = kernel(server.url, ledger, "dying", 2_000)
        other = kernel(server.url, ledger, "other", 60)
        while len(rows(ledger)) < 2:  # both are there
            assert other.poll() is None
        dying.kill()
        dying.communicate()
        result = told(other)
    assert 60 == result["succeeded"]
    assert [] == rows(ledger)


def rows(ledger):
    """Return the rows of kernels that are there."""
    if not ledger.exists():
        return []
    db = sqlite3.connect(ledger)
    try:
        return db.execute("SELECT session FROM presence").fetchall()
    except sqlite3.OperationalError:  # it is being made
        return []
    finally:
        db.close()
