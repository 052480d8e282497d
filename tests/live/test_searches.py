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
    with start(latency="none", unlimited=True, batch="takes=0.3,hidden=0.05,poll=0.05") as running:
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


def test_a_column_says_how_many(server):
    """Per request; none where none were made."""
    made = am.Plan([*plan().agents, am.Agent("b", "Say hello.")])
    counts = run(server, made).attempts.set_index("agent").searches
    assert ("Int64", 1, 0) == (str(counts.dtype), counts["a"], counts["b"])


def test_an_estimate_counts_them_before_a_first_run(server):
    """None to as many as a request may make, one likely; then as many as were made."""
    client = am.Claude(base_url=server.url, api_key="any")
    few = am.Plan([am.Agent("a", "x", tools=[am.ServerTool("web_search", max_uses=3)])])
    cost = few.estimate(client=client).expected[0].cost
    assert cost is not None
    assert cost.low < SEARCH_USD < cost.likely < 2 * SEARCH_USD
    assert 3 * SEARCH_USD < cost.high < 3.5 * SEARCH_USD
    assert "searches of the web: 1 assumed (0–3), $0.01 each" in few.estimate(client=client).expected[0].stands_on
    session = am.Session(client=client)
    made = am.Plan([am.Agent("a", "Say hello.", tools=[am.ServerTool("web_search")])])
    asyncio.run(made.run(session=session))
    again = made.estimate(session=session, simulated=True).expected[0]
    assert again.cost is not None
    assert again.cost.high < SEARCH_USD
    assert "searches of the web: 0 by its 1 earlier answer" in again.stands_on


def test_a_forecast_reserves_them_as_the_run_does(server):
    """Ten searches of one agent leave no room for those of the next: it waits, in the run and in its forecast."""
    tools = [am.ServerTool("web_search")]
    made = am.Plan([am.Agent(name, f"Search the news on {name}.", tools=tools) for name in ("tea", "jam", "rye")])
    done = run(server, made, budget_usd=0.15, concurrency=3)
    for attempts in (done.attempts, done.forecast().attempts):
        assert all(attempts.started_s[1:].to_numpy() >= attempts.finished_s[:-1].to_numpy())


def test_a_batch_halves_tokens_alone(server, tmp_path):
    """A search costs as much by batch as live: in the run, in its forecast, in what was estimated and reserved."""
    client = am.Claude(base_url=server.url, api_key="any")
    session = am.Session(client=client, ledger=am.Ledger(tmp_path / "ledger.sqlite"))

    def by_batch(**policy: float) -> am.Run:
        return asyncio.run(plan().run(am.Policy(batch=True, **policy), session=session))  # pyright: ignore[reportArgumentType]

    assert "it may cost $0.10" in str(by_batch(budget_usd=0.06)["a"].error)
    batch, live = by_batch(), run(server, plan())
    tokens = (live.totals.cost_usd or 0) - SEARCH_USD
    assert [1, 1] == [int(one.attempts.searches.sum()) for one in (live, batch)]
    assert batch.totals.cost_usd == pytest.approx(tokens / 2 + SEARCH_USD)
    assert live.whatif(batch=[True]).cost_usd[0] == pytest.approx(tokens / 2 + SEARCH_USD)
    most = plan(max_uses=2).estimate(am.Policy(batch=True), client=client).expected[0].most_usd
    assert 2 * SEARCH_USD < (most or 0) < 2.25 * SEARCH_USD
