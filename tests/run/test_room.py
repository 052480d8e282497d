"""Budgets, deadlines, shared contexts and rate limits over real HTTP, against the stand-in API."""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from collections.abc import Iterator

import pytest

from agent_magic.api import Agent, Claude, Plan, Policy
from agent_magic.simulator import Simulator, start

SPEC = "This clause is about the system. " * 3_600
REVIEWS = ("code", "architecture", "security", "perspectives")
MODEL = "claude-sonnet-5-5"


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    """Serve quick answers."""
    with start(latency="x0.05") as running:
        yield running


def client(server: Simulator) -> Claude:
    """Connect to it."""
    return Claude(base_url=server.url, credential="test")


def reviews(mark: str) -> Plan:
    """Four reviewers over one context of about 30,000 tokens, each with its own words behind it."""
    text = "Review it for {}. [[tokens:1500]] " + "detail " * 280
    agents = [Agent(name, text.format(name), model=MODEL, max_tokens=2000, context="spec") for name in REVIEWS]
    return Plan(agents, {"spec": mark + SPEC})


def test_four_reviewers_cost_little_more_than_one(server):
    """E4: at most 1.3 times one agent that does all four jobs; without the cache it is 2.45 times."""
    text = "{{ spec }} All four reviews. [[tokens:6000]] " + "detail " * 1_120
    alone = Plan([Agent("all", text, model=MODEL, max_tokens=8000)], {"spec": SPEC})
    base = asyncio.run(alone.run(client=client(server))).totals.cost_usd
    cold = asyncio.run(reviews("a").run(Policy(cache="off"), client=client(server))).totals.cost_usd
    warm = asyncio.run(reviews("b").run(client=client(server)))
    assert base is not None
    assert cold == pytest.approx(2.45 * base, rel=0.02)
    assert (warm.totals.cost_usd or math.inf) <= 1.3 * base
    written = warm.agents["cache_write_tokens"]
    assert 1 == (written > 0).sum()
    assert 3 == (warm.agents["cache_read_tokens"] > 20_000).sum()


def test_a_budget_is_never_crossed(server):
    """Twenty agents under half of what they cost: what was spent stays under the cap, and the rest says why."""
    agents = [Agent(f"a{number}", f"Question {number}", max_tokens=300) for number in range(20)]
    free = asyncio.run(Plan(agents).run(client=client(server))).totals.cost_usd
    assert free is not None
    run = asyncio.run(Plan(agents).run(Policy(budget_usd=free / 2), client=client(server)))
    assert 0 < (run.totals.cost_usd or 0) <= free / 2
    assert run.totals.succeeded + run.totals.cancelled == 20
    stopped = run.agents.query("status == 'cancelled'")
    assert stopped["error"].str.startswith("BudgetExceeded").all()
    assert (stopped["attempts"] == 0).all()


def test_a_budget_in_tokens_is_never_crossed(server):
    """The same, counted in tokens."""
    agents = [Agent(f"a{number}", f"Question {number}", max_tokens=300) for number in range(20)]
    run = asyncio.run(Plan(agents).run(Policy(budget_tokens=3_000), client=client(server)))
    assert 0 < (run.totals.tokens or 0) <= 3_000


def test_a_run_ends_at_its_deadline(server):
    """What runs is cut as late, what waits is cancelled, what finished is kept."""
    agents = [
        Agent("quick", "x [[ttft:0]]", max_tokens=20),
        Agent("hangs", "[[fault:hang]]"),
        Agent("after", "{{ hangs }}"),
    ]
    run = asyncio.run(Plan(agents).run(Policy(deadline_s=1.0), client=client(server)))
    assert ["succeeded", "failed", "cancelled"] == list(run.agents["status"])
    assert "the run's" in str(run["hangs"].error)
    assert run.record.cut


def test_a_limit_is_kept_without_being_told():
    """120 requests against 1,200 a minute with a bucket of one second: none fails, hardly one is refused."""
    with start(latency="x0.1", rpm=1_200) as limited:
        agents = [Agent(f"a{number}", f"Question {number}", max_tokens=50) for number in range(120)]
        run = asyncio.run(Plan(agents).run(Policy(concurrency=60), client=client(limited)))
        with urllib.request.urlopen(f"{limited.url}/simulator/log") as reply:
            log = json.load(reply)
    assert 120 == run.totals.succeeded
    assert sum(entry["status"] == 429 for entry in log["requests"]) <= 2
    assert "requests" in set(run.attempts["held_by"].dropna())
