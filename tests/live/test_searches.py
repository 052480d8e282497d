"""Searches of the web, which the provider bills one by one beside the tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import agent_magic as am
from agent_magic.record.prices import SEARCH_USD
from agent_magic.simulator import Simulator, start


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    """Serve at once."""
    with start(latency="none", unlimited=True) as running:
        yield running


def plan(**options: int) -> am.Plan:
    """An agent that searches."""
    return am.Plan([am.Agent("a", "Search the news on tea.", tools=[am.ServerTool("web_search", **options)])])


def run(server: Simulator, made: am.Plan, **policy: float) -> am.Run:
    """Run it."""
    client = am.Claude(base_url=server.url, api_key="any")
    return asyncio.run(made.run(am.Policy(**policy), client=client))  # pyright: ignore[reportArgumentType]


def test_they_are_counted_and_paid_for(server):
    """In the run, its forecast, and that of another model; the tokens alone cost far less."""
    done = run(server, plan())
    (attempt,) = done.record.attempts
    assert attempt.usage is not None
    assert 1 == attempt.usage.searches
    assert SEARCH_USD < (cost := done.totals.cost_usd or 0) < 1.1 * SEARCH_USD
    assert cost == done.forecast().totals.cost_usd
    assert all(SEARCH_USD < one for one in done.whatif(model=["claude-haiku-5-5", "claude-opus-5-5"]).cost_usd)


def test_a_budget_reserves_as_many_as_there_may_be(server):
    """Ten where nobody says; `max_uses` where somebody does. An estimate's most has them too."""
    assert "it may cost $0.10" in str(run(server, plan(), budget_usd=0.05)["a"].error)
    assert run(server, plan(max_uses=2), budget_usd=0.05).ok
    most = plan(max_uses=2).estimate(client=am.Claude(base_url=server.url, api_key="any")).expected[0].most_usd
    assert 2 * SEARCH_USD < (most or 0) < 2.5 * SEARCH_USD
