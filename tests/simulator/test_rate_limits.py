"""Rate limits, on virtual time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.simulator.limits import Allowance, Bucket, Pool, Quota

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
steps = st.lists(st.tuples(st.floats(0, 5), st.integers(0, 50)), max_size=60)


@settings(deadline=None)
@given(per_minute=st.integers(1, 6000), capacity=st.integers(1, 100), steps=steps)
def test_never_passes_more_than_its_rate(per_minute: int, capacity: int, steps: list[tuple[float, int]]) -> None:
    """What passes is at most capacity plus rate times time, plus what the last request overdrew."""
    bucket, now_s, passed = Bucket(per_minute, capacity), 0.0, 0
    for pause_s, amount in steps:
        now_s += pause_s
        if bucket.wait_s(amount, now_s) == 0:
            bucket.take(amount, now_s)
            overdrawn = max(0, amount - capacity)
            passed += amount
            assert passed <= capacity + overdrawn + per_minute / 60 * now_s + 1e-6


@settings(deadline=None)
@given(per_minute=st.integers(1, 6000), capacity=st.integers(1, 100), steps=steps, amount=st.integers(0, 500))
def test_wait_is_exact(per_minute: int, capacity: int, steps: list[tuple[float, int]], amount: int) -> None:
    """After the wait that is named a request passes, and a moment before it does not."""
    bucket, now_s = Bucket(per_minute, capacity), 0.0
    for pause_s, taken in steps:
        now_s += pause_s
        bucket.take(taken, now_s)
    wait_s = bucket.wait_s(amount, now_s)
    assert bucket.wait_s(amount, now_s + wait_s + 1e-6) == 0
    if wait_s > 1e-3:
        assert bucket.wait_s(amount, now_s + wait_s * 0.99) > 0


@settings(deadline=None)
@given(steps=steps)
def test_level_stays_within_capacity_and_fills_when_it_says(steps: list[tuple[float, int]]) -> None:
    """The level is never above the capacity, and is the capacity at the announced moment."""
    bucket, now_s = Bucket(600, 20), 0.0
    for pause_s, taken in steps:
        now_s += pause_s
        bucket.take(taken, now_s)
        assert bucket.level(now_s) <= 20
    assert bucket.level(now_s + bucket.full_in_s(now_s)) == pytest.approx(20)


def test_a_request_larger_than_the_capacity_passes_when_full() -> None:
    """A single large request is slow, never impossible: the rest is owed."""
    bucket = Bucket(60, 10)
    assert bucket.wait_s(100, 0.0) == 0
    bucket.take(100, 0.0)
    assert bucket.level(0.0) == -90
    assert bucket.wait_s(1, 0.0) == 91


def test_time_that_runs_backwards_gives_nothing() -> None:
    """An older time neither refills nor empties."""
    bucket = Bucket(60, 10)
    bucket.take(10, 5.0)
    assert bucket.level(4.0) == 0


def test_limits_given_by_hand_hold_a_second_and_the_tier_a_minute() -> None:
    """A hand-set limit lets one second's worth pass at once; what is not set keeps the published tier."""
    pool = Pool(Allowance(rpm=120).limits("haiku-5-5"), 0.0)
    assert (2, 2_000_000, 400_000) == (pool.requests.capacity, pool.input_tokens.capacity, pool.output_tokens.capacity)
    assert Pool(Allowance(rpm=120, burst_s=30).limits("haiku-5-5"), 0.0).requests.capacity == 60
    assert Pool(Allowance().limits("fable-5"), 0.0).input_tokens.per_minute == 500_000


def test_the_limit_that_waits_longest_is_named() -> None:
    """A denial names the limit that must be waited for, in whole seconds, rounded up."""
    pool = Pool(Allowance(rpm=60, itpm=600).limits("haiku-5-5"), 0.0)
    assert pool.admit(100, 0.0) is None
    denial = pool.admit(10, 0.5)
    assert denial is not None
    assert ("input tokens per minute", 600, 10) == (denial.limit, denial.per_minute, denial.retry_after_s)
    assert pool.admit(10, 0.5 + 10) is None


def test_a_denied_request_takes_nothing() -> None:
    """What was refused does not push the next request back."""
    pool = Pool(Allowance(rpm=60).limits("haiku-5-5"), 0.0)
    assert pool.admit(1, 0.0) is None
    for _ in range(100):
        assert pool.admit(1, 0.5) is not None
    assert pool.admit(1, 1.0) is None


def test_output_is_counted_as_it_is_produced() -> None:
    """A request is let in while any output is left; what was produced beyond is owed."""
    pool = Pool(Allowance(otpm=600).limits("haiku-5-5"), 0.0)
    assert pool.admit(1, 0.0) is None
    pool.output_tokens.take(30, 0.0)
    denial = pool.admit(1, 0.0)
    assert denial is not None
    assert 3 == denial.retry_after_s


def test_headers() -> None:
    """Remaining tokens are rounded to thousands, `tokens` adds both kinds, resets are dates of full buckets."""
    pool = Pool(Allowance().limits("haiku-5-5"), 0.0)
    pool.admit(30_400, 0.0)
    pool.output_tokens.take(100_600, 0.0)
    prefix = "anthropic-ratelimit"
    assert pool.headers(0.0, NOW) == {
        f"{prefix}-requests-limit": "1000",
        f"{prefix}-requests-remaining": "999",
        f"{prefix}-requests-reset": "2026-11-21T12:00:01Z",
        f"{prefix}-tokens-limit": "2400000",
        f"{prefix}-tokens-remaining": "2269000",
        f"{prefix}-tokens-reset": "2026-11-21T12:00:16Z",
        f"{prefix}-input-tokens-limit": "2000000",
        f"{prefix}-input-tokens-remaining": "1970000",
        f"{prefix}-input-tokens-reset": "2026-11-21T12:00:01Z",
        f"{prefix}-output-tokens-limit": "400000",
        f"{prefix}-output-tokens-remaining": "299000",
        f"{prefix}-output-tokens-reset": "2026-11-21T12:00:16Z",
    }


def test_pools_are_apart() -> None:
    """Models of one pool share it, others do not; unlimited has none."""
    quota = Quota(Allowance())
    assert quota.pool("opus-4", 0.0) is quota.pool("opus-4", 1.0)
    assert quota.pool("opus-4", 0.0) is not quota.pool("haiku-5-5", 0.0)
    assert Quota(Allowance(unlimited=True)).pool("opus-4", 0.0) is None
