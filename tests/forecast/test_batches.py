"""Forecasts of runs that go by batch: the engine's own rule, played with the seconds of batches."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Agent, Policy
from agent_magic.api import Run
from agent_magic.declare import Plan
from agent_magic.errors import Overloaded, PlanError, RateLimited
from agent_magic.show import Choice, Explorer
from agent_magic.simulator import start
from tests.live.test_other_models import agents, cascade, look_up, sure
from tests.live.virtual import MODEL, Reply, drive

HOUR_S = 3600.0
HALF = 0.5
PROMPTS = ("a", "b", "c", "d")


def answers(record):
    """The models that answered each agent, in order."""
    return {one.name: [each.model for each in one.attempts if each.answer is not None] for one in record.results}


@pytest.fixture(scope="module")
def escalated():
    """A run of a cascade in which two of four agents escalate."""
    return Run(drive(cascade(*PROMPTS), sure(a=0.9, b=0.6, c=0.9, d=0.1), Policy(4, seed=1))[0])


def test_a_cascade_by_batch_is_two_batches_in_a_row(escalated):
    """What is escalated is asked in the next batch, and billed: every answer at half its price."""
    live, found = escalated.record, escalated.forecast(batch=True)
    assert answers(live) == answers(found.record)
    assert found.totals.cost_usd == pytest.approx(HALF * escalated.totals.cost_usd)
    assert 2 * HOUR_S == pytest.approx(found.totals.wall_s, abs=1)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([True, "auto"]))
def test_no_answer_is_lost_by_batch(seed, batch):
    """Whatever failed and was repeated, a batch answers all that was answered live, for half of its dollars."""
    lot = random.Random(seed)
    names = [f"a{number}" for number in range(6)]

    def script(*_):
        busy = [Overloaded("busy", status=529), RateLimited("slow down", retry_after_s=0.5)]
        if lot.random() < 0.25:
            return Reply(0.25, lot.choice(busy), tokens=None, status=529)
        return Reply(1 + lot.random(), tokens=(100, lot.randrange(50, 900), 0, 0))

    record, _ = drive(agents(*names, model=MODEL), script, Policy(3, seed=1))
    found = Run(record).forecast(batch=batch)
    assert answers(record) == answers(found.record)
    paid = sum(one.cost_usd or 0.0 for one in record.results)
    assert found.totals.cost_usd == pytest.approx(HALF * paid)


def test_what_a_batch_refuses_a_what_if_refuses():
    """The rule of a real run counts: no agent with tools of the user goes by batch unless it says so."""
    record, _ = drive(agents("a", tools=[look_up]), lambda *_: Reply(1.0), Policy(1, seed=1))
    with pytest.raises(PlanError, match="has tools"):
        Run(record).whatif(batch=True)


def test_an_agent_that_says_off_goes_live():
    """Its own word counts in a what-if as in a run: it costs the whole price, and takes seconds."""
    plan = Plan([Agent("now", "now", batch="off"), Agent("later", "later")])
    record, _ = drive(plan, lambda *_: Reply(2.0, tokens=(100, 100, 0, 0)), Policy(2, seed=1))
    found = Run(record).forecast(batch=True).record
    now, later = found["now"], found["later"]
    assert record["now"].cost_usd == pytest.approx(now.cost_usd)
    assert record["later"].cost_usd == pytest.approx(2 * (later.cost_usd or 0.0))
    assert (2.0, HOUR_S) == (pytest.approx(now.finished_s, abs=0.1), pytest.approx(later.finished_s, abs=1))


def test_the_plan_of_a_cascade_by_batch_shows_two_hours():
    """An estimate takes as many batches as the next model needs, and so does its critical path."""
    found = cascade("a").estimate(Policy(batch=True))
    assert 2 * HOUR_S == pytest.approx(found.wall_s.likely, abs=1)
    assert 2 * HOUR_S == pytest.approx(found.critical_path.length_s, abs=1)
    assert 2 * HOUR_S == pytest.approx(found.expected[0].seconds.likely, abs=1)


@pytest.fixture(scope="module")
def measured():
    """A live run on the mock server, six batches that its ledger knows of, and the same plan by batch."""
    server = start(latency="none", unlimited=True, batch="takes=0.3,poll=0.05")
    ledger = am.Ledger(reuse_simulated=False)
    with server as running:
        session = am.Session(client=am.Claude(base_url=running.url, api_key="x"), ledger=ledger)

        async def both():
            for number in range(6):
                plan = am.Plan([am.Agent("one", f"Batch {number}")])
                await plan.run(am.Policy(batch=True), session=session)
            plan = am.Plan([am.Agent("a", "Say {{ item }}", each="rows"), am.Agent("sum", "{{ a }}")], {"rows": [1, 2]})
            live = await plan.run(session=session, fresh=True)
            predicted = live.whatif(batch=True).iloc[0]
            return live, predicted, await plan.run(am.Policy(batch=True), session=session, fresh=True)

        yield asyncio.run(both())
    ledger.close()


def test_a_live_run_forecasts_the_batch_run(measured):
    """Its dollars, by the seconds of earlier batches, and calibration says that it went by batch."""
    live, predicted, by_batch = measured
    assert predicted["cost_usd"] == pytest.approx(by_batch.totals.cost_usd)
    row = am.calibration(live, by_batch).iloc[-1]
    assert ("on", "before") == (row["batch"], row["made"])
    assert predicted["wall_low_s"] <= by_batch.totals.wall_s  # a run gathers and asks besides, which takes no hours
    assert "6 earlier batches" in predicted["assumed"]


def test_a_batch_run_forecasts_itself(measured):
    """Nothing changed, nothing differs: the seconds of its batches and its dollars are as they were."""
    by_batch = measured[2]
    row = by_batch.whatif(concurrency=[1, 8])
    assert row["cost_usd"].tolist() == pytest.approx([by_batch.totals.cost_usd] * 2)
    assert row["wall_s"].tolist() == pytest.approx([by_batch.totals.wall_s] * 2, abs=0.1)
    assert {"measured"} == set(row["basis"])


def test_a_batch_run_forecasts_a_live_one(measured):
    """It costs twice as much, and its seconds are those of the models, which the batch has not measured."""
    live, _, by_batch = measured
    found = by_batch.forecast(batch=False)
    assert found.totals.cost_usd == pytest.approx(2 * by_batch.totals.cost_usd)
    assert found.totals.cost_usd == pytest.approx(live.totals.cost_usd)
    assert "measured" != found.record.forecast.basis


def test_a_panel_of_a_batch_run_says_how_it_ran(measured):
    """Its tick is on, and taking it off asks the same what-if as `whatif(batch=False)`."""
    by_batch = measured[2]
    panel = Explorer(by_batch.forecaster())
    assert "on" == panel.policy.batch
    assert {} == Choice().changes
    assert {"batch": False} == Choice(batch=False).changes
    assert panel.answer(Choice(batch=False)).facts[0][1] != panel.answer(Choice()).facts[0][1]


def test_a_batch_run_has_advice(measured):
    """Every rule can be asked of it, what one after another takes included."""
    advice = measured[2].advise()
    assert advice.findings


def test_a_row_by_batch_is_applied(escalated):
    """`run.apply` makes the policy that the row was forecast with."""
    row = escalated.whatif(batch=[False, True]).iloc[1]
    found = escalated.apply(row)
    assert ("on", {"batch": ("off", "on")}) == (found.policy.batch, found.defaults)
