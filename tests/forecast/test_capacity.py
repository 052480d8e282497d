"""The calculators, against their formulas the other way round."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy, roi
from agent_magic.api import Run
from agent_magic.errors import AgentMagicError
from agent_magic.forecast.capacity import CAPACITY
from agent_magic.measure import CONSTANT, Server, summarize
from tests.forecast.test_remaining import run_on
from tests.measure.test_path import graphs, run_of
from tests.measure.test_server import drawn

positive = st.floats(0.01, 1e6)


def test_fifty_requests_a_minute_carry_less_than_one_a_second():
    """0.83 a second; five to ten jobs a second need 300 to 600 a minute."""
    assert 50 / 60 == am.capacity(am.Limits(50)).jobs_per_s == am.capacity(50).jobs_per_s
    for wanted, needed in ((5, 300), (10, 600)):
        row = am.capacity(am.Limits(50), wanted_jobs_per_s=wanted).frame.iloc[0]
        assert (needed, False) == (row.needed_per_minute, row.enough)


def test_dollars_an_hour():
    """Two dollars a job are 36,000 to 72,000 an hour at five to ten a second."""
    found = [am.capacity(usd_per_job=2.0, wanted_jobs_per_s=rate).usd_per_hour for rate in (5, 10)]
    assert [36_000, 72_000] == found


def test_all_figures_are_of_one_load():
    """A rate that is wanted and cannot be had changes neither the dollars nor the requests beside the rate that can."""
    given_limits, job = am.Limits(60), {"latency_s": 2.0, "usd_per_job": 0.5}
    found = am.capacity(given_limits, wanted_jobs_per_s=10, **job)
    assert (1.0, 2.0, 1800.0) == (found.jobs_per_s, found.concurrent, found.usd_per_hour)
    wanted = am.capacity(wanted_jobs_per_s=10, **job)
    assert (None, 20.0, 18_000.0) == (wanted.jobs_per_s, wanted.concurrent, wanted.usd_per_hour)


@given(positive, positive, positive, positive, positive, positive)
def test_the_rate_uses_up_the_limit_that_binds(rpm, itpm, otpm, given_tokens, made, latency):
    """At the rate found no limit is passed, one is met exactly, and Little's law gives the requests under way."""
    found = am.capacity(
        am.Limits(rpm, itpm, output_tokens=otpm),
        input_tokens=given_tokens,
        output_tokens=made,
        latency_s=latency,
    )
    used = {
        "requests": found.jobs_per_s * 60 / rpm,
        "input tokens": found.jobs_per_s * 60 * given_tokens / itpm,
        "output tokens": found.jobs_per_s * 60 * made / otpm,
    }
    assert max(used.values()) <= 1 + 1e-9
    assert math.isclose(1, used[found.limited_by])
    assert math.isclose(found.concurrent, found.jobs_per_s * latency)
    assert CAPACITY == {name: str(kind) for name, kind in found.frame.dtypes.items()}


def test_slots_are_a_limit_too():
    """Twenty slots of four seconds carry five requests a second."""
    found = am.capacity(am.Limits(6000), concurrent_requests=20, latency_s=4.0)
    assert (5.0, "slots", 20.0) == (found.jobs_per_s, found.limited_by, found.concurrent)


def test_what_was_not_given_is_unknown():
    """No limit, no rate; no price, no dollars; an empty frame keeps its columns."""
    found = am.capacity()
    assert (None, "", None, None) == (found.jobs_per_s, found.limited_by, found.concurrent, found.usd_per_hour)
    assert list(CAPACITY) == list(found.frame)


def test_a_month_of_reviews():
    """Five million tokens are 142 runs of 35,000, or 73 of 68,000."""
    assert (142, 73) == (am.monthly(35_000).runs, am.monthly(68_000).runs)


@given(st.integers(1, 10**6), st.integers(0, 10**8), st.integers(0, 10**8), st.integers(1, 30))
def test_whole_runs_fit_and_one_more_does_not(tokens, budget, used, days):
    """As many runs as fit, with what is left too; the days left are those of the pace so far."""
    found = am.monthly(tokens, budget, used_tokens=used, days_gone=days, usd_per_run=0.5)
    assert found.runs * tokens <= budget < (found.runs + 1) * tokens
    assert found.runs_left * tokens <= max(0, budget - used) < (found.runs_left + 1) * tokens
    assert found.runs / 2 == found.usd
    if used:
        assert math.isclose(found.days_left * used / days, max(0, budget - used))
    else:
        assert found.days_left is None


@given(graphs(), st.integers(1, 5))
def test_every_run_lies_between_the_bounds(graph, slots):
    """The conductor never leaves a slot idle while an agent is ready, so Graham's bounds hold for each run."""
    parents, work = graph
    summary = summarize(run_of(parents, work, Policy(slots)))
    if not summary.agent_s:
        return
    bounds = am.speedup_bounds(summary.agent_s, summary.critical_path_s, slots)
    speedup = summary.agent_s / summary.wall_s
    assert bounds.worst <= speedup + 1e-9
    assert speedup <= bounds.best + 1e-9


@pytest.mark.parametrize(
    "call",
    [
        lambda: am.capacity(requests=-1),
        lambda: am.capacity(latency_s=math.nan),
        lambda: am.capacity("50"),
        lambda: am.monthly(0),
        lambda: am.monthly(5, -1),
        lambda: am.speedup_bounds(5.0, 6.0, 1),
        lambda: am.speedup_bounds(5.0, 5.0, 0),
    ],
)
def test_what_cannot_be_is_refused(call):
    """The message names the value."""
    with pytest.raises(am.AgentMagicError, match="must be"):
        call()


def test_what_an_accepted_answer_costs_and_brings():
    """400 answers at $2 and half a cent of review each; 95 % can be used, each worth two cents."""
    found = roi(value_per_answer=0.02, cost_usd=2.0, answers=400, accepted_share=0.95, review_usd_per_answer=0.005)
    assert (380, 4.0, 7.6, 3.6, 0.9) == tuple(
        round(one, 9) for one in (found.accepted, found.cost_usd, found.value_usd, found.net_usd, found.roi or 0)
    )
    assert 4 / 380 == found.cost_per_accepted_usd
    assert 0.5 == found.break_even_share


def test_nothing_accepted_has_no_price():
    """Unknown is None, and what was spent is lost."""
    found = roi(value_per_answer=1, cost_usd=2.0, answers=4, accepted_share=0)
    assert (None, -1.0) == (found.cost_per_accepted_usd, found.roi)


@pytest.mark.parametrize(
    "wrong", [{"answers": 0}, {"accepted_share": 1.5}, {"cost_usd": -1}, {"value_per_answer": "x"}]
)
def test_a_return_needs_real_numbers(wrong):
    """None of them has a default."""
    with pytest.raises(AgentMagicError, match=next(iter(wrong))):
        roi(**{"value_per_answer": 1, "cost_usd": 1, "answers": 1, "accepted_share": 1, **wrong})


@pytest.mark.parametrize(
    ("truth", "name", "per_request_s"),
    [(Server(2.0), "the server (2 slots)", 2.0), (Server(full=1.5), "the server's speed", 1.5)],
)
def test_a_run_is_a_job_and_its_server_is_a_limit(truth: Server, name: str, per_request_s: float):
    """A busy server does as many jobs a second as it has slots, or speed, for what they take alone."""
    record, _ = run_on(truth, 8)
    run = Run(record)
    found = am.capacity(run=run, wanted_jobs_per_s=0.01)
    needs, _ = drawn(4, 24)
    alone_s = sum(one.before_s + one.after_s for one in needs)
    assert name == found.limited_by
    assert per_request_s / alone_s == pytest.approx(found.jobs_per_s, rel=0.05)
    row = found.frame.iloc[0]
    assert (24, True) == (row.per_job, row.enough)
    assert 1_000 == am.capacity(1_000, requests=1, run=run).frame.per_minute[0]
    assert ["requests", name] == [*am.capacity(1, run=run).frame.limit]
    assert run.totals.output_tokens == am.capacity(am.Limits(output_tokens=600), run=run).frame.per_job[0]


def test_the_server_of_a_run_is_no_limit_where_the_load_changes_nothing():
    """A constant server has no row."""
    record, _ = run_on(CONSTANT, 8)
    assert 0 == len(am.capacity(run=Run(record)).frame)
