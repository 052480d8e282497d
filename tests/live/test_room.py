"""Budgets, deadlines, shared contexts and rate limits over real HTTP, against the stand-in API."""

from __future__ import annotations

import asyncio
import json
import math
import urllib.request
from collections.abc import Iterator

import pytest

from agent_magic.api import Agent, Claude, Ledger, Plan, Policy
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
    return Claude(base_url=server.url, api_key="test")


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
    run = asyncio.run(Plan(agents).run(Policy(deadline_s=4.0), client=client(server)))  # `quick` has its answer by then
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


def test_the_frame_of_contexts_adds_up(server):
    """Read and written tokens at list prices: 2.5 and 0.1 dollars a million in place of 2, to the last bit."""
    run = asyncio.run(reviews("c").run(client=client(server)))
    [row] = run.contexts.to_dict("records")
    attempts = run.attempts
    assert ("spec", MODEL, 4, 4, True, "5m", 0) == tuple(
        row[name] for name in ("context", "model", "agents", "requests", "cached", "ttl", "uncounted")
    )
    assert attempts.loc[attempts["cache_write_tokens"] > 0, "agent"].item() == row["leader"]
    prefix = row["prefix_tokens"]
    assert (prefix, 3 * prefix) == (row["cache_write_tokens"], row["cache_read_tokens"])
    assert row["cost_usd"] == pytest.approx(prefix * (2.5 + 3 * 0.1) / 1e6)
    assert row["uncached_usd"] == pytest.approx(4 * prefix * 2 / 1e6)
    assert row["uncached_usd"] - row["cost_usd"] == row["saved_usd"]
    followers = run.agents[attempts["held_by"].eq("leader").fillna(False).to_numpy(bool)]
    assert 3 == len(followers)
    assert row["waited_s"] == pytest.approx(followers["queued_s"].sum())


@pytest.mark.parametrize(("ttl", "write"), [("5m", 2.5), ("1h", 4.0)])
def test_a_life_is_asked_for_and_billed(server, ttl, write):
    """Five minutes are written at 1.25 times the input, an hour at twice; one agent alone loses by it."""
    plan = Plan([Agent("a", "x [[tokens:5]]", model=MODEL, context="spec")], {"spec": f"{ttl}{write}" + SPEC[:9000]})
    run = asyncio.run(plan.run(Policy(cache="on", cache_ttl=ttl), client=client(server)))
    [row] = run.contexts.to_dict("records")
    usage = run["a"].usage
    assert (ttl, usage.cache_write_tokens) == (row["ttl"], row["cache_write_tokens"])
    assert (usage.cache_write_tokens if ttl == "1h" else 0) == usage.cache_write_1h_tokens
    assert row["cost_usd"] == pytest.approx(row["cache_write_tokens"] * write / 1e6)
    assert row["saved_usd"] == pytest.approx(row["cache_write_tokens"] * (2 - write) / 1e6)
    own = ((usage.input_tokens or 0) * 2 + (usage.output_tokens or 0) * 10) / 1e6
    assert run["a"].cost_usd == pytest.approx(row["cost_usd"] + own)


def test_without_the_cache_nothing_was_saved_and_nothing_is_invented(server):
    """The length of a context that was neither read nor written is unknown."""
    run = asyncio.run(reviews("d").run(Policy(cache="off"), client=client(server)))
    [row] = run.contexts.to_dict("records")
    assert (False, 4, 0.0) == (row["cached"], row["requests"], row["saved_usd"])
    assert run.contexts[["prefix_tokens", "cost_usd", "uncached_usd", "ttl", "leader"]].isna().all(axis=None)
    assert run.contexts.attrs["simulated"]
    assert 0 == len(asyncio.run(Plan([Agent("a", "x")]).run(client=client(server))).contexts)


def test_answers_bought_before_are_no_requests(server):
    """They read no cache and saved nothing by it."""
    ledger = Ledger(":memory:", reuse_simulated=True)
    for requests in (4, 0):
        run = asyncio.run(reviews("e").run(client=client(server), ledger=ledger))
        assert requests == run.contexts["requests"].item()
    assert run.contexts[["cache_write_tokens", "saved_usd"]].isna().all(axis=None)
    ledger.close()
