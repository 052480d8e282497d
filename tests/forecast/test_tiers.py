"""The size of a system on paper, against its formulas the other way round."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import AgentMagicError
from agent_magic.forecast.capacity import LOST, TIERS

positive = st.floats(0.01, 1e5)


def test_agents_are_little_s_law():
    """Five jobs a second of eight seconds are forty under way, and one kernel carries them."""
    row = am.tiers(5, 8).frame.iloc[0]
    assert (40, 1, 0, 40) == (row.agents, row.kernels, row.workers, row.connections)
    assert row[["limited_by", "accounts", "usd_per_hour"]].isna().all()


def test_what_was_not_given_is_not_known():
    """No tokens of a job, no tokens a minute; and a limit of tokens cannot be judged, nor whether it decides."""
    row = am.tiers(5, 8, limits=am.Limits(50, 30_000)).frame.iloc[0]
    unknown = ["input_tokens_per_min", "output_tokens_per_min", "limited_by", "accounts"]
    assert row[unknown].isna().all()
    known = am.tiers(5, 8, input_tokens=0, limits=am.Limits(50, 30_000)).frame.iloc[0]
    assert (0, "requests", 6) == (known.input_tokens_per_min, known.limited_by, known.accounts)


def test_above_two_hundred_streams_workers_read_them():
    """Two hundred each, and a kernel carries two thousand of them."""
    frame = am.tiers([20, 20.1, 200, 201], 10).frame
    assert [1, 1, 1, 2] == list(frame["kernels"])
    assert [0, 2, 10, 11] == list(frame["workers"])


@given(positive, positive, positive, positive, positive)
def test_so_many_accounts_carry_the_rate_and_one_less_does_not(rate, rpm, itpm, given_tokens, dollars):
    """The calculator of one account says so."""
    row = am.tiers(rate, 1, input_tokens=given_tokens, limits=am.Limits(rpm, itpm), usd_per_job=dollars).frame.iloc[0]
    one = am.capacity(am.Limits(rpm, itpm), input_tokens=given_tokens).jobs_per_s
    assert one is not None
    assert row.accounts * one >= rate * (1 - 1e-9)
    assert row.accounts == 1 or (row.accounts - 1) * one <= rate * (1 + 1e-9)
    assert row.usd_per_hour == pytest.approx(3600 * rate * dollars)


def test_a_lost_region():
    """What was under way there is cut; the rest waits where the others are too small, and is drained afterwards."""
    sized = am.tiers(10, 6, usd_per_job=0.01)
    frame = sized.without_region(3, lost_s=60, utilization=0.8)
    row = frame.iloc[0]
    assert (20, 0, 0.2) == (row.cut, row.lost, row.paid_twice_usd)
    assert row.waiting == pytest.approx(60 * (10 - 10 / 0.8 * 2 / 3))
    assert row.drained_s == pytest.approx(row.waiting / (10 / 0.8 - 10))
    assert 0 == sized.without_region(3, utilization=0.5).iloc[0].waiting
    assert LOST == {name: str(kind) for name, kind in frame.dtypes.items()}


def test_what_is_shown_has_every_number_and_the_contradictions_are_asked_for():
    """Computed, not quoted."""
    sized = am.tiers([5, 1_000_000], 8, limits=50)
    assert all(name in repr(sized) for name in TIERS)
    assert "8,000,000" in repr(sized)
    text = "\n".join(sized.claims)
    assert text not in repr(sized)
    assert "0.83 a second" in text
    assert "$36K to $72K an hour" in text
    assert "$0.007 to $0.05 a job" in text
    assert TIERS == {name: str(kind) for name, kind in sized.frame.dtypes.items()}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: am.tiers(-1, 8),
        lambda: am.tiers([1, float("nan")], 8),
        lambda: am.tiers(1, "8"),
        lambda: am.tiers(1, 8, usd_per_job=-1),
        lambda: am.tiers(1, 8, limits="50"),
        lambda: am.tiers(1, 8).without_region(1),
        lambda: am.tiers(1, 8).without_region(3, utilization=1),
    ],
)
def test_what_is_no_number_is_refused(wrong):
    """By name."""
    with pytest.raises(AgentMagicError, match="must be"):
        wrong()
