"""`speedup`: the run one step at a time over the run, for every run, its replay and its forecasts."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false, reportArgumentType=false

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy
from agent_magic.api import Plan, Run
from agent_magic.forecast.whatif import MOST_AT_ONCE
from agent_magic.measure.compare import measure_against
from agent_magic.record import AgentReopened
from agent_magic.show import run_line
from tests.forecast.test_forecast_properties import EIGHTHS, plans, recorded
from tests.live.virtual import Reply, drive
from tests.record.histories import histories

NIGHTLY = os.environ.get("AGENT_MAGIC_HYPOTHESIS") == "nightly"
RELEASES = sorted(path.parent for path in (Path(__file__).parents[1] / "record" / "releases").glob("*/told.json"))


def numbers(run: Run) -> pd.Series:
    """The row of `run.summary`."""
    return run.summary.iloc[0]


def lawful(run: Run) -> pd.Series:
    """Hold what is true of every run, and return the row of its summary."""
    row, agents = numbers(run), run.agents
    for share in ("efficiency", "success_rate"):
        assert pd.isna(row[share]) or 0 <= row[share] <= 1 + 1e-9
    worked = agents["speedup"].notna()
    assert (worked == agents["saved_s"].notna()).all()
    if pd.isna(row["speedup"]):
        assert row[["sequential_s", "time_saved_pct", "speedup_basis", "speedup_over"]].isna().all()
        assert not worked.any()
        return row
    assert row["sequential_s"] / row["wall_s"] == row["speedup"]
    assert row["time_saved_pct"] == pytest.approx(100 * (row["sequential_s"] - row["wall_s"]) / row["sequential_s"])
    if row["speedup_basis"] == "simulated":
        begun_s = min(one.ready_s for one in run.record.results if one.ready_s is not None)
        ends = agents["finished_s"][worked] - begun_s + agents["saved_s"][worked]
        assert ends.max() == pytest.approx(row["sequential_s"])
        assert (ends / (agents["finished_s"][worked] - begun_s)).tolist() == pytest.approx(
            agents["speedup"][worked].tolist()
        )
    return row


@given(plans(), st.integers(1, 4), st.sampled_from(["ready", "layers", "sequential"]))
def test_one_by_one_takes_the_sum(plan, slots, schedule):
    """Steps that nobody holds take, one at a time, the sum of their seconds; not compared where one failed."""
    parents, takes, broken = plan
    run = recorded(parents, takes, broken, Policy(slots, schedule, seed=1))
    row = lawful(run)
    if broken:
        assert pd.isna(row["speedup"])
        return
    assert sum(takes) / EIGHTHS == row["sequential_s"]
    assert schedule != "sequential" or row["speedup"] == 1
    assert 1 <= row["speedup"] <= min(slots, len(takes)) + 1e-9 or schedule == "sequential"


@settings(max_examples=1000 if NIGHTLY else 100, deadline=None)
@given(histories())
def test_the_laws_hold_for_drawn_runs(history):
    """Whatever fails, is refused, stopped, retried or skipped."""
    run = Run(history[0])
    row = lawful(run)
    assert run.record.is_complete or pd.isna(row["speedup"])


@settings(max_examples=100, deadline=None)
@given(histories(), st.integers(1, 4))
def test_no_step_begins_before_the_one_before_it_has_ended(history, slots):
    """In a run under `sequential` and in its forecast, retries and their waits included."""
    run = Run(history[0])
    for one in [run, *([run.forecast(schedule="sequential", concurrency=slots)] if run.record.ended_s else [])]:
        if one.record.terms.policy["schedule"] != "sequential" or any(
            isinstance(event, AgentReopened) for event in one.record.events
        ):
            continue
        spans = [(step.attempts[0].granted_s, step.finished_s) for step in one.record.results if step.attempts]
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(sorted(spans)))


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(1, 5))
def test_run_and_forecast_have_equal_columns(history, slots):
    """A forecast is a run like any other."""
    run = Run(history[0])
    if run.record.ended_s is None:
        return
    forecast = run.forecast(concurrency=slots)
    lawful(forecast)
    assert [*run.summary] == [*forecast.summary]
    assert {*run.agents} - {*forecast.agents} <= {"expected_s", "bias", "capped"}


@pytest.mark.parametrize("folder", RELEASES, ids=lambda path: path.name)
def test_the_laws_hold_for_kept_records(folder):
    """Files of every release."""
    plan = Plan.from_dict(json.loads((folder / "told.json").read_text())["plan"])
    lawful(plan.replay(folder / "run.cassette.jsonl"))


def test_a_replay_has_the_numbers_of_its_run(tmp_path):
    """To the last cell: they stand on the record alone, never on what else a session has seen."""
    run = recorded([[], [], [0, 1], [0], [2, 3]], [9, 4, 17, 3, 8])
    run.save(tmp_path / "run.jsonl")
    again = Plan(run.plan.agents, run.plan.values).replay(tmp_path / "run.jsonl")
    for name in ("agents", "summary"):
        frame, other = getattr(run, name), getattr(again, name)
        assert [] == [one for one in frame if one != "source" and not frame[one].equals(other[one])]
    assert numbers(run)["speedup"] > 1


def test_steps_say_what_they_gained():
    """Three rows of 2 s and a join of 1 s: the third row waits for two others, the join for all."""
    plan = am.Plan([*(am.Agent(one, one) for one in "abc"), am.Agent("j", "{{ a }}{{ b }}{{ c }}")])
    run = Run(drive(plan, lambda prompt, _: Reply(1.0 if len(prompt) > 1 else 2.0, text="x"))[0])
    assert [1.0, 2.0, 3.0, 7 / 3] == pytest.approx(run.agents["speedup"].tolist())
    assert [0.0, 2.0, 4.0, 4.0] == pytest.approx(run.agents["saved_s"].tolist())
    assert "3.0 s, 7.0 s one by one: 2.3x" in str(run)
    assert "7.0 s one by one: 2.3x" in run.bundle()["image/svg+xml"]
    assert "3.0 s, 7.0 s one by one: 2.3x" in run.bundle()["text/plain"].replace("\n      ", " ")


def test_a_measured_run_counts_before_a_simulated_one():
    """A sequential run of the same plan is the basis; the steps stay simulated."""
    run = recorded([[], [], [0, 1]], [8, 8, 8])
    slow = recorded([[], [], [0, 1]], [8, 8, 16], policy=Policy(1, "sequential", seed=1))
    assert ("simulated", 3.0, 1.5) == tuple(numbers(run)[["speedup_basis", "sequential_s", "speedup"]])
    measure_against(run.record, slow.record)
    assert ("measured", 4.0, 2.0) == tuple(numbers(run)[["speedup_basis", "sequential_s", "speedup"]])
    assert ("sequential", 50.0) == tuple(numbers(run)[["speedup_over", "time_saved_pct"]])
    lawful(run)


def test_what_was_reused_is_not_compared():
    """Reused answers took no time; nor is a stopped run or an active one compared."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y")])
    with am.Simulator(latency="none", unlimited=True) as server:
        client = am.Claude(base_url=server.url, api_key="none")
        session = am.Session(client=client)
        first = asyncio.run(plan.run(session=session))
        second = asyncio.run(plan.run(session=session, resume=first))
    assert (False, True) == (pd.isna(numbers(first)["speedup"]), pd.isna(numbers(second)["speedup"]))
    stopped = Run(drive(plan, lambda *_: Reply(2.0), cancel_at=1.0)[0])
    lawful(stopped)
    assert pd.isna(numbers(stopped)["speedup"])
    assert "one by one" not in str(second) + str(stopped)


def test_a_rate_limit_counts_for_both():
    """Two requests at one a second: one by one they wait as long, so running at once saves little."""
    limits = {"claude-haiku-5-5": am.Limits(60, burst_s=1)}
    with am.Simulator(latency="none", unlimited=True) as server:
        session = am.Session(client=am.Claude(base_url=server.url, api_key="none"), limits=limits)
        plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y")])
        run = asyncio.run(plan.run(session=session))
    assert run.totals.limited_by == "requests"
    assert math.isclose(1.0, run.totals.speedup, rel_tol=0.1)


def test_a_line_simulates_no_large_run():
    """The end of a run of many steps waits for nothing; the frame computes it, and the line has it then."""
    many = am.Plan([am.Agent("a", "A {{ item }}", each="rows")], {"rows": list(range(MOST_AT_ONCE + 1))})
    run = Run(drive(many, lambda *_: Reply(2.0), Policy(8))[0])
    assert "one by one" not in run_line(run.record)
    assert run.record.sequential is None
    assert 2.0 * (MOST_AT_ONCE + 1) == pytest.approx(numbers(run)["sequential_s"])
    assert "one by one: 7.9x" in run_line(run.record)


@pytest.mark.parametrize("count", [12, 50, 100])
def test_rows_that_end_together_are_no_sign_of_one_slot(count):
    """Equal answers, eight at once: each needs its 2 s, and none of them nothing."""
    plan = am.Plan([am.Agent("a", "A {{ item }}", each="rows")], {"rows": list(range(count))})
    run = Run(drive(plan, lambda *_: Reply(2.0), Policy(8))[0])
    assert 2.0 * count == pytest.approx(run.totals.sequential_s)
