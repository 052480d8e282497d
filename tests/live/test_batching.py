"""Runs that go by batch, against the mock server: gathered, found again, retried, cancelled."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any

import pytest

import agent_magic as am
from agent_magic.errors import PlanError
from agent_magic.live.ahead import waiting_in_batches
from agent_magic.providers import MessageBatches
from agent_magic.record import Prices, saved_usd
from agent_magic.record.prices import AT_BATCH_PRICE, asking_usd
from agent_magic.show import closing
from agent_magic.simulator import start

HALF = 0.5


@pytest.fixture(scope="module")
def server():
    """A mock server whose batches take 0.3 s, and are unknown for the first 0.05 s."""
    with start(latency="none", unlimited=True, batch="takes=0.3,hidden=0.05,poll=0.05") as running:
        yield running


@pytest.fixture
def slow():
    """A mock server whose batches take a minute."""
    with start(latency="none", unlimited=True, batch="takes=60,poll=0.05") as running:
        yield running


@pytest.fixture
def ledger():
    """A ledger that serves simulated answers again."""
    found = am.Ledger(reuse_simulated=True)
    yield found
    found.close()


def log(server):
    """What a mock server was sent."""
    with urllib.request.urlopen(f"{server.url}/simulator/log") as page:
        return json.loads(page.read())


def batches(server, since=0):
    """The names in each batch that a mock server has got, after the first few."""
    return [one["custom_ids"] for one in log(server)["batches"][since:]]


def drive(plan, server, ledger, *, resume=None, **policy):
    """Run a plan by batch."""
    client = am.Claude(base_url=server.url, api_key="x")
    return asyncio.run(plan.run(am.Policy(**{"batch": True, **policy}), client=client, ledger=ledger, resume=resume))


def rows(count, text="Say {{ item }}."):
    """A plan of equal agents."""
    return am.Plan([am.Agent("a", text, each="rows")], {"rows": [f"{text} {number}" for number in range(count)]})


def test_what_asking_costs_is_told_of_a_kept_answer_too(server, ledger):
    """By its tokens: half of them for one that went by batch, and all for one that went live, where 0 was paid."""
    for policy in ({"batch": True}, {"batch": False}):
        plan = am.Plan([am.Agent("a", f"Say it with batch={policy['batch']}.")])
        first, second = (drive(plan, server, ledger, **policy) for _ in range(2))
        bought, kept = first.record.results[0], second.record.results[0]
        assert kept.is_served
        saved = [saved_usd(second.record), ledger.past()[0].saved_usd]
        assert [bought.cost_usd] * 2 == pytest.approx(saved), "what asking costs again is what was saved"
        assert 0.0 == kept.cost_usd
        assert bought.cost_usd == pytest.approx(asking_usd(kept, Prices()))
        assert bought.cost_usd == asking_usd(bought, Prices())


def test_a_ready_set_is_one_batch(server, ledger):
    """What is ready together is one batch however low the concurrency is, and each layer is another."""
    before = len(batches(server))
    plan = am.Plan([*rows(20).agents, am.Agent("sum", "Sum up {{ a }}")], {"rows": [str(one) for one in range(20)]})
    run = drive(plan, server, ledger, concurrency=2)
    assert run.ok
    assert [20, 1] == [len(names) for names in batches(server, before)]
    assert 21 == len(run.record.attempts), "an answer is one attempt"


def test_half_price_labelled(server, ledger):
    """An answer of a batch costs half of the list price, says so, and names its batch."""
    run = drive(rows(1, "Price {{ item }}"), server, ledger)
    attempt = run.record.results[0].attempts[0]
    assert attempt.price.basis.endswith(AT_BATCH_PRICE)
    assert attempt.price.cost_usd == pytest.approx(HALF * run.prices.of(attempt.model, attempt.usage).cost_usd)
    assert attempt.answer.batch.startswith("msgbatch_")
    assert attempt.answer.batch == run.attempts["batch"].iloc[0]
    assert "(1 by batch, half price)" in closing(run.record).text()


def test_bought_before(server, ledger):
    """A second run sends no batch: its answers are in the ledger."""
    plan = rows(3, "Twice {{ item }}")
    drive(plan, server, ledger)
    before = len(batches(server))
    run = drive(plan, server, ledger)
    assert run.ok
    assert [] == batches(server, before)
    assert [] == ledger.batches.open()


def test_a_batch_of_one_is_told_of_as_one(ledger):
    """Its note is in the singular."""
    plan = rows(1, "Alone {{ item }}")
    with start(latency="none", unlimited=True, batch="takes=1.5,poll=0.05") as server:
        asyncio.run(stopped(plan, server, ledger))
    assert ledger.notes[-1].startswith("A batch of 1 request goes on")


def test_a_stopped_run_finds_its_batch(ledger):
    """A stop leaves the batch at the provider and says so. The next run waits for it, and buys nothing."""
    plan = rows(5, "Later {{ item }}")
    with start(latency="none", unlimited=True, batch="takes=1.5,poll=0.05") as server:
        record = asyncio.run(stopped(plan, server, ledger))
        assert {"cancelled"} == {one.status for one in record.results}
        assert [5] == [len(one.names) for one in ledger.batches.open()]
        assert ledger.notes[-1].startswith("A batch of 5 requests goes on")
        client = am.Claude(base_url=server.url, api_key="x")
        assert (5, 0) == tuple(waiting_in_batches(one, client, ledger) for one in (plan, rows(5, "Else {{ item }}")))
        run = drive(plan, server, ledger)
        assert run.ok
        assert [5] == [len(names) for names in batches(server)]
        assert [] == ledger.batches.open()


async def stopped(plan, server, ledger, *, fresh=False):
    """Run a plan until its batch has an id, and stop it."""
    client = am.Claude(base_url=server.url, api_key="x")
    driver = am.start(plan, am.Policy(batch=True), client=client, ledger=ledger, fresh=fresh)
    running = asyncio.create_task(driver.drive())
    while not ledger.batches.open() or ledger.batches.open()[0].id is None:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    driver.stop()
    return await running


def test_errors_are_attempts(server, ledger):
    """An overloaded item is asked again with the next batch; a wrong one has failed; an expired one is not billed."""
    plan = am.Plan(
        [
            am.Agent("again", "x [[status:529 times=1]]"),
            am.Agent("wrong", "x [[status:400]]"),
            am.Agent("late", "x [[expire]]"),
        ]
    )
    run = drive(plan, server, ledger, max_attempts=2)
    again, wrong, late = run.record.results
    assert ("succeeded", ["Overloaded", None]) == (again.status, [one.kind for one in again.attempts])
    assert ("failed", ["Rejected"]) == (wrong.status, [one.kind for one in wrong.attempts])
    assert {"simulated"} == {one.source for one in wrong.attempts}
    assert ("failed", ["NotInBatch", "NotInBatch"]) == (late.status, [one.kind for one in late.attempts])
    assert 0.0 == late.attempts[0].price.cost_usd


def test_fallback_live(server, ledger):
    """With `batch_fallback="live"` what a batch did not answer is asked live, at the full price."""
    run = drive(am.Plan([am.Agent("a", "y [[expire]]")]), server, ledger, batch_fallback="live")
    first, second = run.record.results[0].attempts
    assert ("NotInBatch", "") == (first.kind, second.answer.batch)
    assert not second.price.basis.endswith(AT_BATCH_PRICE)


def test_a_deadline_gives_up_the_batch(slow, ledger):
    """With `live` and a deadline, a batch that takes too long is cancelled, and its rest asked live in time."""
    run = drive(rows(4, "Hurry {{ item }}"), slow, ledger, batch_fallback="live", deadline_s=8.0)
    assert run.ok
    assert [True] == [one["cancelled"] for one in log(slow)["batches"]]
    assert all(one.answer.batch == "" for one in run.record.results)


def test_auto_goes_live_where_the_deadline_is_near(slow, ledger):
    """`batch="auto"` sends nothing by batch that a batch is not expected to answer before the deadline."""
    run = drive(rows(3, "Soon {{ item }}"), slow, ledger, batch="auto", deadline_s=600.0)
    assert run.ok
    assert [] == batches(slow)


def test_agents_decide(server, ledger):
    """An agent's own `batch` counts before the policy's."""
    before = len(batches(server))
    plan = am.Plan([am.Agent("a", "live", batch=False), am.Agent("b", "by batch"), am.Agent("c", "also")])
    run = drive(plan, server, ledger)
    assert [False, True, True] == [bool(one.answer.batch) for one in run.record.results]
    run = drive(am.Plan([am.Agent("d", "by its own", batch=True), am.Agent("e", "live")]), server, ledger, batch=False)
    assert [True, False] == [bool(one.answer.batch) for one in run.record.results]
    assert [2, 1] == [len(names) for names in batches(server, before)]


def test_tools_are_refused(server, ledger):
    """An agent with tools of the user's goes by batch only if it says so itself: each turn would wait for one."""

    def look(word: str) -> str:
        """Look a word up."""
        return word

    with pytest.raises(PlanError, match="a batch in each of its turns"):
        drive(am.Plan([am.Agent("a", "Look up", tools=[look])]), server, ledger)
    asks = am.Agent("a", 'Look up [[tool:look {"word": "x"}]]', tools=[look], batch=True)
    run = drive(am.Plan([asks]), server, ledger)
    assert run.ok
    assert 2 == len([one for one in run.record.results[0].attempts if one.answer.batch])


def test_where_there_are_none(ledger):
    """A cloud, a server without batches and a run without a ledger say so before anything is sent."""
    from anthropic import AsyncAnthropicBedrock  # pyright: ignore[reportPrivateImportUsage]

    plan = rows(1)
    bedrock: Any = AsyncAnthropicBedrock(aws_region="x", aws_access_key="x", aws_secret_key="x")
    cloud = am.Claude(client=bedrock)
    with pytest.raises(PlanError, match="has no batches"):
        asyncio.run(plan.run(am.Policy(batch=True), client=cloud, ledger=ledger))
    with pytest.raises(PlanError, match="needs a ledger"):
        asyncio.run(plan.run(am.Policy(batch=True), client=am.Claude(api_key="x")))


def test_the_budget_counts_batches(server, ledger):
    """What the budget has room for goes with one batch, at half the price; the rest when that is settled."""
    before = len(batches(server))
    run = drive(rows(10, "Dear {{ item }}"), server, ledger, budget_usd=0.0015)
    assert 0 < (run.totals.cost_usd or 0) <= 0.0015
    sent = [name for names in batches(server, before) for name in names]
    assert len(sent) == len(set(sent)) == sum(bool(one.attempts) for one in run.record.results)


def test_an_estimate_by_batch(server, ledger):
    """An estimate of batches costs half. It assumes an hour, until five batches were measured."""
    plan, client = rows(3, "How much {{ item }}"), am.Claude(base_url=server.url, api_key="x")
    live, batched = (plan.estimate(am.Policy(batch=one), client=client, ledger=ledger) for one in (False, True))
    assert batched.cost is not None
    assert live.cost is not None
    assert batched.cost.likely == pytest.approx(HALF * live.cost.likely)
    assert 3600.0 == pytest.approx(batched.wall_s.likely, rel=0.01)
    for number in range(5):
        drive(rows(1, f"Measure {number} {{{{ item }}}}"), server, ledger)
    measured = plan.estimate(am.Policy(batch=True), client=client, ledger=ledger)
    assert measured.wall_s.likely < 1.0
    assert "5 earlier batches" in measured.expected[0].stands_on


def test_a_what_if_of_a_batch(server, ledger):
    """A what-if of a run that went by batch stays one. What it had taken live is told by the models' speed."""
    run = drive(rows(4, "What if {{ item }}"), server, ledger)
    frame = run.whatif(concurrency=[1, 4])
    assert 1 == frame["wall_s"].round(3).nunique(), "no concurrency holds a batch"
    live = run.whatif(batch=False).iloc[0]
    assert HALF * live["cost_usd"] == pytest.approx(run.totals.cost_usd)
    assert "measured" != live["basis"]


def test_history_leaves_batches_out(server, ledger):
    """The seconds of a batch are no evidence of how fast a model answers."""
    assert drive(rows(2, "Not measured {{ item }}"), server, ledger).ok
    assert [] == ledger.history()


def test_a_fresh_batch_replaces_what_was_there(ledger):
    """What a stop has left of a run that asked anew is collected without a run, and serves the next one."""
    plan = rows(3, "Anew {{ item }}")
    with start(latency="none", unlimited=True, batch="takes=0.5,poll=0.05") as server:
        session = am.Session(client=am.Claude(base_url=server.url, api_key="x"), ledger=ledger)
        first = drive(plan, server, ledger)
        asyncio.run(stopped(plan, server, ledger, fresh=True))
        assert "%agents batches collect gets the answers" in ledger.notes[-1]
        assert [(None, False)] == [one[1:] for one in asyncio.run(session.collect_batches())]
        again = drive(plan, server, ledger)
        assert {*first.attempts["batch"]} == {*again.attempts["batch"]}, "it does not wait for what it has"
        (open_,) = ledger.batches.open()
        found = asyncio.run(collected(session))
        assert [(open_.id, 3, True)] == [*map(tuple, found)]
        assert [] == ledger.batches.open()
        assert {open_.id} == {*drive(plan, server, ledger).attempts["batch"]}
        assert [] == asyncio.run(session.collect_batches())


def test_a_cancelled_batch_is_collected(ledger):
    """Nothing of it was answered, so it is over and nothing is kept: the answers from before are served."""
    plan = rows(2, "Cut {{ item }}")
    with start(latency="none", unlimited=True, batch="takes=60,poll=0.05") as server:
        client = am.Claude(base_url=server.url, api_key="x")
        session = am.Session(client=client, ledger=ledger)
        asyncio.run(plan.run(client=client, ledger=ledger))
        asyncio.run(stopped(plan, server, ledger, fresh=True))
        (cut,) = asyncio.run(session.cancel_batches())
        assert [(cut, 0, True)] == [*map(tuple, asyncio.run(collected(session)))]
        assert [] == ledger.batches.open()
        assert {"ledger"} == {*drive(plan, server, ledger).attempts["source"]}
        with pytest.raises(PlanError, match="no open batch"):
            asyncio.run(session.collect_batches([cut]))


def test_results_that_lack_lines_are_read_again(ledger, monkeypatch):
    """A batch whose results cannot be read whole is not over, though nobody waits for it."""
    monkeypatch.setattr("agent_magic.live.batching.READS", 1)
    plan = rows(2, "Torn {{ item }}")
    with start(latency="none", unlimited=True, batch="takes=0.1,poll=0.05") as server:
        session = am.Session(client=am.Claude(base_url=server.url, api_key="x"), ledger=ledger)
        asyncio.run(stopped(plan, server, ledger))
        items = MessageBatches.items

        async def torn(self, batch):
            async for one in items(self, batch):
                yield one
                return

        with monkeypatch.context() as patch:
            patch.setattr(MessageBatches, "items", torn)
            assert [None] == [one.answers for one in asyncio.run(ended(session))]
        assert [2] == [one.answers for one in asyncio.run(collected(session))]


async def collected(session):
    """Collect until a batch is over."""
    (found,) = await session.collect_batches()
    while not found.is_over:
        await asyncio.sleep(0.05)
        (found,) = await session.collect_batches()
    return [found]


async def ended(session):
    """Collect once when the batch has ended."""
    (batch,) = session.ledger.batches.open()
    async with session.client.open():
        while (await session.client.batches.state(batch.id)).ended_at is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    return await session.collect_batches()
