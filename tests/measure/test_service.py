"""Percentiles with their n, and how busy a run was, by counting it all again."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Agent, Policy
from agent_magic.api import Run
from agent_magic.declare import Plan
from agent_magic.measure.frames import ALL
from agent_magic.measure.service import PERCENTILES, UTILIZATION, overlap
from agent_magic.record.facts import percentile
from tests.live.virtual import Reply, drive
from tests.record.histories import histories


def wide(count, policy=None, *, takes=float, model=None):
    """A run of agents side by side."""
    agents = tuple(Agent(f"a{one}", f"p{one}", model=model and model(one)) for one in range(count))
    return Run(drive(Plan(agents), lambda prompt, _: Reply(takes(int(prompt[1:]))), policy or Policy(count))[0])


@given(st.lists(st.integers(-50, 50), max_size=250), st.sampled_from([50, 95, 99]))
def test_a_percentile_is_one_of_the_values(values, percent):
    """So many percent are not above it, and of no smaller value that holds; too few values have none."""
    found = percentile(values, percent)
    if len(values) < {50: 1, 95: 20, 99: 100}[percent]:
        assert found is None
        return
    assert found in values

    def share(limit):
        return 100 * sum(value <= limit for value in values) / len(values)

    assert share(found) >= percent
    assert all(share(value) < percent for value in values if value < found)


def test_no_percentile_without_enough_of_them():
    """A P95 needs 20 values, a P99 100; `n` is shown, and runs are counted together."""
    few, many = wide(19), wide(81)
    frame = few.percentiles().set_index("number")
    assert (19, 9.0, 18.0) == tuple(frame.loc["total_s", ["n", "p50", "max"]])
    assert frame.loc["total_s", ["p95", "p99"]].isna().all()
    assert (81, 76.0) == tuple(many.percentiles().set_index("number").loc["total_s", ["n", "p95"]])
    together = few.percentiles(many).set_index("number")
    assert (100, 79.0) == tuple(together.loc["total_s", ["n", "p99"]])
    assert PERCENTILES == {name: str(kind) for name, kind in few.percentiles().dtypes.items()}


def test_pace_and_first_token():
    """Output tokens a second are counted from the first token on."""
    record, _ = drive(Plan((Agent("a", "x"),)), lambda *_: Reply(3.0, first_s=1.0, tokens=(1, 80, 0, 0)))
    frame = Run(record).percentiles().set_index("number")
    assert (1.0, 40.0) == (frame.loc["ttft_s", "p50"], frame.loc["output_tokens_per_s", "mean"])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=12))
def test_overlap_counts_as_a_clock_would(rows):
    """Second by second: how many are under way, and whether any is."""
    spans = [(float(start), float(start + length)) for start, length in rows]
    seconds = [sum(start <= at < end for start, end in spans) for at in range(45)]
    peak, covered = overlap(spans)
    assert max(seconds, default=0) == peak
    assert sum(count > 0 for count in seconds) == covered


@settings(max_examples=50, deadline=None)
@given(histories())
def test_utilization_follows_from_the_attempts(history):
    """Busy seconds are the sum of the requests', never more at once than slots, idle only where nobody was asked."""
    run = Run(history[0])
    frame = run.utilization().set_index("model")
    attempts = run.attempts
    assert math.isclose(frame.loc[ALL, "busy_s"], attempts["api_s"].sum(), abs_tol=1e-9)
    assert len(attempts) == frame.loc[ALL, "requests"]
    if frame["utilization"].notna()[ALL]:
        assert 0 <= frame.loc[ALL, "utilization"] <= 1
        assert frame.loc[ALL, "mean_concurrency"] <= frame.loc[ALL, "peak"]
    assert UTILIZATION == {name: str(kind) for name, kind in run.utilization().dtypes.items()}


@pytest.mark.filterwarnings("ignore::agent_magic.record.prices.PriceWarning")
def test_utilization_by_model():
    """Two slots, ten seconds each: full; a model that worked half of the time is at a half."""
    run = wide(4, Policy(2), takes=lambda one: 10.0, model=lambda one: "small" if one < 2 else "large")
    frame = run.utilization(slots=2).set_index("model")
    assert (1.0, 2.0, 1.0, 2) == tuple(frame.loc[ALL, ["utilization", "mean_concurrency", "slot_utilization", "peak"]])
    assert (0.5, 2, 20.0, 6.0, 10.0) == tuple(
        frame.loc["large", ["utilization", "agents", "busy_s", "requests_per_min", "mean_s"]]
    )
    assert run.utilization()["slot_utilization"].isna().all()
