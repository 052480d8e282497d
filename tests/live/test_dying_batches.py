"""Real processes that are killed at each step of a batch, against the mock server over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import agent_magic as am
from agent_magic.simulator import start
from tests.live import dying_batches

MANY = 10_000 if os.environ.get("AGENT_MAGIC_NIGHTLY") else 2_000
"""`AGENT_MAGIC_NIGHTLY=1` sends all of them: half a minute."""
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


def test_many() -> None:
    """Thousands of requests are one batch, and each has its own answer however results are ordered."""
    ledger = am.Ledger()
    with start(latency="none", unlimited=True, batch="takes=0.5,poll=0.2") as server:
        plan = am.Plan([am.Agent("a", "[[echo]] {{ item }}", each="rows")], {"rows": list(range(MANY))})
        client = am.Claude(base_url=server.url, api_key="x")
        run = asyncio.run(plan.run(am.Policy(batch=True), client=client, ledger=ledger))
        sent = dying_batches.sent(server.url)
    ledger.close()
    assert run.ok
    assert [MANY] == [len(names) for names in sent]
    assert all(one.text.endswith(f" {number}") for number, one in enumerate(run.record.results))


def test_two_processes_share_a_batch(tmp_path: Path) -> None:
    """Two kernels run one plan on one ledger: each request is in one batch, of either, and both have all answers."""
    with start(latency="none", unlimited=True, batch="takes=1,poll=0.1") as server:
        words = [sys.executable, "-m", "tests.live.dying_batches", server.url, str(tmp_path), "together"]
        both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)]
        said = [json.loads(one.communicate(timeout=120)[0]) for one in both]
        assert [True, True] == [one["ok"] for one in said]
        names = [name for part in dying_batches.sent(server.url) for name in part]
        assert 9 == len(names) == len({*names})  # how many each has sent, their leases decide
