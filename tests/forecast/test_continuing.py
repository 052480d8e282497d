"""Estimates of agents that continue a conversation, held against runs on the mock server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import agent_magic as am
from agent_magic.simulator import Simulator, start

HAIKU, SONNET = "claude-haiku-5-5", "claude-sonnet-5-5"
CLOSE = 0.25
LONG = "Long. " * 1500


@pytest.fixture
def server() -> Iterator[Simulator]:
    """Serve at once."""
    with start(latency="none", unlimited=True) as running:
        yield running


@pytest.fixture
def session(server: Simulator) -> am.Session:
    """A session that knows nothing."""
    return am.Session(client=am.Claude(base_url=server.url, api_key="any"), ledger=am.Ledger(":memory:"))


def losses(region: str) -> str:
    """Return the losses of a region."""
    return f"{region}: " + ", ".join(f"month {month}: {month}" for month in range(200))


def agent(name: str, prompt: str, **more: Any) -> am.Agent:
    """An agent whose answer fills its `max_tokens`."""
    return am.Agent(name, prompt, max_tokens=300, **{"model": None if "continues" in more else HAIKU, **more})


def chain() -> am.Plan:
    """A conversation of four agents."""
    names = ["first", "second", "third", "fourth"]
    more = [agent(name, f"And {name}?", continues=before) for before, name in itertools.pairwise(names)]
    return am.Plan([agent("first", LONG), *more])


def pool() -> am.Plan:
    """A conversation per row, and a message more in each."""
    more = agent("more", "And {{ item }}?", each="rows", continues="begin")
    return am.Plan(
        [agent("begin", LONG + "{{ item }}", each="rows"), more, agent("most", "Now?", each="rows", continues="more")],
        {"rows": ["x", "y"]},
    )


def loop() -> am.Plan:
    """A loop in which each draft is asked about in its own conversation, and its last one goes on."""
    doubts = agent("doubts", "What is wrong here?", continues="draft")
    return am.Plan(
        [
            agent("draft", LONG + "{% if doubts %}{{ doubts }}{% endif %}", until="'never' in doubts", rounds=2),
            doubts,
            agent("after", "What was decided?", continues="doubts"),
        ]
    )


def looking() -> am.Plan:
    """An agent with tools, whose conversation two others continue."""
    asks = '[[tool@1:losses {"region": "north"}]] [[tool@2:losses {"region": "south"}]]'
    first = agent("first", "Look. " * 300 + asks, tools=[losses])
    return am.Plan([first, agent("second", "Why?", continues="first"), agent("third", "So?", continues="first")])


def tokens(run: am.Run) -> dict[str, tuple[int, int]]:
    """Return what each agent sent, and what of that came from the cache."""
    rows = run.attempts.fillna({"cache_read_tokens": 0, "cache_write_tokens": 0}).groupby("agent")
    sums = rows[["input_tokens", "cache_read_tokens", "cache_write_tokens"]].sum()
    return {str(name): (int(row.sum()), int(row["cache_read_tokens"])) for name, row in sums.iterrows()}


def is_close(run: am.Run, estimate: Any) -> bool:
    """Return whether each agent's tokens and dollars are near the likely ones."""
    expected = {one.agent: one for one in estimate.expected}
    given = {name: sent for name, (sent, _) in tokens(run).items()}
    assert given == pytest.approx({name: expected[name].input.likely for name in given}, rel=CLOSE)
    costs = {str(row.agent): row.cost_usd for row in run.agents.itertuples() if row.agent in given}
    return costs == pytest.approx({name: expected[name].cost.likely for name in costs}, rel=CLOSE)


@pytest.mark.parametrize("plan", [chain(), pool(), loop()], ids=["chain", "pool", "loop"])
def test_a_conversation_is_estimated_as_it_grows(plan: am.Plan, session: am.Session) -> None:
    """Each agent sends all before it, and pays for what the cache does not have."""
    estimate = plan.estimate(session=session)
    run = asyncio.run(plan.run(session=session))
    assert is_close(run, estimate)
    ahead = plan.whatif(session=session).cost_usd.iloc[0]
    assert run.summary.cost_usd.iloc[0] == pytest.approx(ahead, rel=CLOSE)


def test_a_conversation_with_calls_is_estimated_by_earlier_ones(session: am.Session) -> None:
    """What calls returned is in all that follows, and its length is known from the last time."""
    run = asyncio.run(looking().run(session=session))
    assert is_close(run, looking().estimate(session=session))


def test_without_a_cache_all_of_a_conversation_is_paid(session: am.Session) -> None:
    """The policy turns the cache off, in the estimate as in the run."""
    policy = am.Policy(cache="off")
    estimate = chain().estimate(session=session, policy=policy)
    run = asyncio.run(chain().run(session=session, policy=policy))
    assert is_close(run, estimate)
    assert 0 == sum(read for _, read in tokens(run).values())


def test_a_recorded_conversation_costs_the_same_again(session: am.Session) -> None:
    """What its requests read from the cache, they read in a what-if that changes nothing of it."""
    run = asyncio.run(looking().run(session=session))
    assert run.summary.cost_usd.iloc[0] == pytest.approx(run.whatif().cost_usd.iloc[0])


def test_another_model_reads_nothing_of_a_conversation(session: am.Session) -> None:
    """Asked of the run before, the last agent's price by another model is what it then costs."""
    run = asyncio.run(chain().run(session=session))
    asked = run.whatif(model=[{"fourth": SONNET}]).cost_usd.iloc[0]
    *others, last = chain().agents
    other = am.Plan([*others, replace(last, model=SONNET)])
    then = asyncio.run(other.run(session=session)).agents.set_index("agent").cost_usd
    before = run.agents.set_index("agent").cost_usd
    assert then["fourth"] + before[["first", "second", "third"]].sum() == pytest.approx(asked, rel=0.05)


def test_what_is_in_the_ledger_is_counted_once(server: Simulator) -> None:
    """The request of an agent has answers that are there; a what-if by another model adds them no second time."""
    kept = am.Session(
        client=am.Claude(base_url=server.url, api_key="any"), ledger=am.Ledger(":memory:", reuse_simulated=True)
    )
    *first, last = chain().agents
    asyncio.run(am.Plan(first).run(session=kept))
    plan = am.Plan([*first, replace(last, max_tokens=10)])
    ahead = plan.whatif(model=[{"fourth": SONNET}], session=kept).iloc[0]
    run = asyncio.run(am.Plan([*first, replace(last, model=SONNET, max_tokens=10)]).run(session=kept))
    assert run["fourth"].cost_usd == pytest.approx(ahead.cost_usd, rel=0.05)
