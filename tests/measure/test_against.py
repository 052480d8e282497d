"""A run against the same job done another way: measured, or not said."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import math

import pandas as pd
import pytest

import agent_magic as am
from agent_magic import TokenPrice
from agent_magic.api import Ledger, Run
from agent_magic.errors import Rejected
from agent_magic.measure import student_quantile
from agent_magic.providers import Deck
from agent_magic.record import Prices, read_cassette
from tests.live.virtual import Reply, Scripted, drive

PRICES = Prices({"m": TokenPrice(1_000_000.0, 1_000_000.0)})


def plan_of(*names):
    """Agents side by side, then one that joins them."""
    joined = " ".join(f"{{{{ {name} }}}}" for name in names)
    return am.Plan([*(am.Agent(name, f"p {name}", model="m") for name in names), am.Agent("end", joined, model="m")])


def run_of(plan, policy=None, takes_s=2.0, tokens=(10, 5, 0, 0), **more):
    """Run a plan on a virtual clock."""
    return Run(drive(plan, lambda *_: Reply(takes_s, tokens=tokens), policy, prices=PRICES, **more)[0])


def test_until_it_was_measured_it_is_simulated():
    """The speedup follows from the run itself, and says so; what one agent costs nobody knows."""
    row = run_of(plan_of("a", "b")).summary.iloc[0]
    assert (1.5, "simulated", "sequential") == tuple(row[["speedup", "speedup_basis", "speedup_over"]])
    assert pd.isna(row["cost_multiple"])


def test_one_agent_gives_both_measures():
    """Wall over wall, dollars over dollars: 6 of work in 4, 3 x 15 dollars for 30."""
    plan = plan_of("a", "b")
    run = run_of(plan)
    assert run is run.against(run_of(plan.baseline(), takes_s=5.0, tokens=(20, 10, 0, 0)))
    row = run.summary.iloc[0]
    assert (1.25, "one agent", 1.5) == tuple(row[["speedup", "speedup_over", "cost_multiple"]])
    assert (5.0, "measured") == tuple(row[["sequential_s", "speedup_basis"]])


def test_a_sequential_run_is_the_better_measure_of_time():
    """It replaces the single agent in `speedup`, and leaves `cost_multiple` to it."""
    plan = plan_of("a", "b")
    run = run_of(plan).against(run_of(plan, am.Policy(schedule="sequential")))
    assert (1.5, "sequential") == tuple(run.summary.iloc[0][["speedup", "speedup_over"]])
    assert pd.isna(run.summary["cost_multiple"][0])
    run.against(run_of(plan.baseline(), takes_s=5.0, tokens=(20, 10, 0, 0)))
    assert (1.5, "sequential", 1.5) == tuple(run.summary.iloc[0][["speedup", "speedup_over", "cost_multiple"]])


def test_repeated_baselines_give_the_multiple_an_interval():
    """Over the mean of equal ones, dollars and seconds; one run counts once, another model or token cap starts anew."""
    plan = plan_of("a", "b")
    run, columns = run_of(plan), ["cost_multiple", "cost_multiple_low", "cost_multiple_high"]
    first, second = (run_of(plan.baseline(), takes_s=s, tokens=(s, s, 0, 0)) for s in (14, 16))
    for other in (first, first):
        run.against(other)
        assert run.summary[columns].isna().to_numpy().tolist() == [[False, True, True]]
    row = run.against(second).summary.iloc[0]
    factor = math.exp(
        student_quantile(1, 0.975) * 2 / 30
    )  # 28 and 32 dollars: their mean 30 with a standard error of 2
    assert pytest.approx([1.5, 1.5 / factor, 1.5 * factor]) == list(row[columns])
    assert 15.0 == row["sequential_s"]
    run.against(run_of(plan.baseline(max_tokens=77), takes_s=5.0, tokens=(9, 9, 0, 0)))
    assert [2.5, True, True] == [run.summary["cost_multiple"][0], *run.summary.iloc[0][columns[1:]].isna()]


def test_repeated_baselines_are_kept_in_files(tmp_path):
    """What a replay has is what the run had."""
    plan, file = plan_of("a", "b"), str(tmp_path / "run.jsonl")
    run = run_of(plan)
    for tokens in (14, 16):
        run.against(run_of(plan.baseline(), tokens=(tokens, tokens, 0, 0)))
    run.save(file)
    assert run.record.bases == Deck(read_cassette(file)).play(plan, timeout_s=60.0).bases


def test_an_unknown_price_leaves_the_multiple_unknown():
    """The seconds are known all the same."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y")])
    run = Run(drive(plan, lambda *_: Reply(2.0, tokens=None))[0])
    row = run.against(Run(drive(plan.baseline(), lambda *_: Reply(3.0))[0])).summary.iloc[0]
    assert 1.5 == row["speedup"]
    assert pd.isna(row["cost_multiple"])


def test_what_is_no_measure_is_refused():
    """Another job, both concurrent, a failure, answers from the ledger: each with what to do."""
    plan = plan_of("a", "b")
    run = run_of(plan)
    with pytest.raises(am.AgentMagicError, match="another job"):
        run.against(run_of(plan_of("a", "c")))
    with pytest.raises(am.AgentMagicError, match="another job"):
        run.against(run_of(plan_of("a", "c").baseline()))
    with pytest.raises(am.AgentMagicError, match="compare"):
        run.against(run_of(plan))
    failed = Run(drive(plan.baseline(), lambda *_: Reply(1.0, Rejected("no", status=400)), prices=PRICES)[0])
    with pytest.raises(am.AgentMagicError, match="0 of 1 agents"):
        run.against(failed)
    ledger, client = Ledger(), Scripted(lambda *_: Reply(1.0))
    served = [Run(drive(plan.baseline(), client, ledger=ledger, prices=PRICES)[0]) for _ in range(2)][1]
    with pytest.raises(am.AgentMagicError, match="fresh"):
        run.against(served)
    assert {} == run.record.bases


def test_a_run_from_the_ledger_has_no_speedup():
    """Its own answers took no time."""
    plan, ledger, client = plan_of("a"), Ledger(), Scripted(lambda *_: Reply(1.0))
    for _ in range(2):
        run = Run(drive(plan, client, ledger=ledger, prices=PRICES)[0])
    run.against(run_of(plan.baseline()))
    assert pd.isna(run.summary["speedup"][0])


def test_forecasts_are_held_against_the_measured_baseline():
    """`cost_multiple` of a what-if: its dollars over those of the one agent that was run; unknown before."""
    plan = plan_of("a", "b")
    run = run_of(plan)
    assert run.whatif(concurrency=[1, 2])["cost_multiple"].isna().all()
    run.against(run_of(plan.baseline(), takes_s=5.0, tokens=(20, 10, 0, 0)))
    assert [1.5, 1.5] == list(run.whatif(concurrency=[1, 2])["cost_multiple"])


def test_a_frame_that_was_read_twice_is_the_same_job():
    """Plans over equal frames ask the same, though the frames are two and pandas has no truth value for that."""

    def plan(rows):
        return am.Plan([am.Agent("a", "Sum up {{ rows }}", model="m")], {"rows": pd.DataFrame({"x": rows})})

    run = run_of(plan([1, 2]))
    run.against(run_of(plan([1, 2]), am.Policy(schedule="sequential")))
    assert 1.0 == run.summary["speedup"][0]
    with pytest.raises(am.AgentMagicError, match="another job"):
        run.against(run_of(plan([1, 3]), am.Policy(schedule="sequential")))
