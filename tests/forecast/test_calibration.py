"""Forecasts beside the runs that came after them."""

from __future__ import annotations

from dataclasses import replace

from agent_magic.api import Agent, Ledger, Plan, Policy, Run
from agent_magic.engine.pacing.limits import Limits
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.forecast.calibration import calibration
from tests.live.virtual import MODEL, Reply, drive

PLAN = Plan([Agent("a", "one"), Agent("b", "two"), Agent("c", "{{ a }} {{ b }}")])


def ran(policy, plan=PLAN, **more):
    """Run a plan on a virtual clock."""
    return Run(drive(plan, lambda prompt, _: Reply(float(len(prompt)), first_s=0.5), policy, **more)[0])


def test_a_forecast_that_was_run_is_put_beside_it():
    """What was predicted and what was measured stand in one row; what was never run has none."""
    base = ran(Policy(2))
    base.whatif(concurrency=[1, 2, 3])
    frame = calibration(base, ran(Policy(1)))
    assert [1] == list(frame["concurrency"])
    row = frame.iloc[0]
    assert abs(row["wall_error"]) < 0.01
    assert row["wall_in_range"]
    assert abs(row["cost_error"]) < 1e-9
    assert row["measured_rate_limited"] == row["predicted_rate_limited"] == 0
    assert row["made"] == "before"


def test_a_run_that_nobody_forecast_is_forecast_afterwards():
    """Without a what-if there is a row all the same: from the earliest run that it repeats in another way."""
    base, fewer, less = ran(Policy(2)), ran(Policy(1)), ran(Policy(2), Plan([Agent("a", "one"), Agent("c", "{{ a }}")]))
    frame = calibration(less, fewer, base)
    assert ["afterwards", "afterwards"] == list(frame["made"])
    assert [1, 2] == list(frame["concurrency"])
    assert ["b"] == list(frame["drop"].dropna())
    assert abs(frame["wall_error"][0]) < 0.01
    assert calibration(base).empty


def test_another_plan_is_no_measure_of_it():
    """A changed prompt or an earlier run is not what was forecast; a changed model is forecast afterwards."""
    base = ran(Policy(2))
    base.whatif(concurrency=1)
    other = Plan([*PLAN.agents[:2], replace(PLAN.agents[2], prompt="{{ a }} or {{ b }}")])
    dearer = Plan([replace(agent, model="claude-opus-5-5") for agent in PLAN.agents])
    frame = calibration(base, ran(Policy(1), other), ran(Policy(1), dearer), base)
    assert [("afterwards", "claude-opus-5-5")] == list(zip(frame["made"], frame["model"], strict=True))


def test_a_run_under_the_limits_that_were_asked_for_counts():
    """A forecast of other limits is held only against a run that found those."""
    base = ran(Policy(2), pacer=Pacer())
    base.whatif(limits=[60, 120])
    frame = calibration(base, ran(Policy(2), pacer=Pacer({MODEL: Limits(60)})))
    assert ["60 requests"] == list(frame["limits"])


def test_a_dropped_agent_is_matched_by_the_plan_without_it():
    """Its name is in the row."""
    base = ran(Policy(2))
    base.whatif(drop="b")
    frame = calibration(base, ran(Policy(2), Plan([Agent("a", "one"), Agent("c", "{{ a }}")])))
    assert ["b"] == list(frame["drop"])


def test_a_run_that_measures_nothing_says_why():
    """Answers from the ledger took no time: the row stands there without numbers, and with the reason."""
    ledger = Ledger()
    base = ran(Policy(2), ledger=ledger)
    base.whatif(concurrency=1)
    frame = calibration(base, ran(Policy(1), ledger=ledger))
    assert ["3 of 3 answers from the ledger"] == list(frame["left_out"])
    assert frame[["measured_wall_s", "wall_error", "wall_in_range", "measured_cost_usd"]].isna().all(axis=None)
    assert calibration(base, ran(Policy(1)))["left_out"].isna().all()
