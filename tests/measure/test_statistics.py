"""Intervals beside scipy and statsmodels, which only tests have, and how often each holds in simulation."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agent_magic.api.choosing import is_worse
from agent_magic.measure import mean_interval, running_interval, share_interval, student_quantile
from agent_magic.measure.intervals import Interval, bounded_interval

stats: Any = pytest.importorskip("scipy.stats")
proportion: Any = pytest.importorskip("statsmodels.stats.proportion")
SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)


def test_wilson_is_that_of_statsmodels_and_scipy():
    """For every number of hits, at three levels."""
    for n in (1, 7, 30, 400):
        for hits in range(0, n + 1, max(1, n // 20)):
            for level in (0.9, 0.95, 0.99):
                found = share_interval(hits, n, level)
                other = proportion.proportion_confint(hits, n, 1 - level, method="wilson")
                third = stats.binomtest(hits, n).proportion_ci(level, method="wilson")
                assert other == pytest.approx((found.low, found.high), abs=1e-12)
                assert (third.low, third.high) == pytest.approx((found.low, found.high), abs=1e-12)


def test_student_is_that_of_scipy():
    """Quantiles at every degree of freedom up to where the series takes over and beyond, and intervals of samples."""
    for df in (*range(1, 60), 120, 199, 200, 201, 500, 5000):
        for p in (0.9, 0.95, 0.975, 0.995, 1 - 0.05 / 12):
            assert stats.t.ppf(p, df) == pytest.approx(student_quantile(df, p), rel=1e-6)
    rng = random.Random(5)
    values = [rng.choice(SCORES) for _ in range(37)]
    found = mean_interval(values)
    other = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (other.low, other.high) == pytest.approx((found.low, found.high), rel=1e-9)


def test_a_difference_of_shares_is_newcombe_s():
    """`--model auto` asks whether the interval of a difference reaches 0: method 10 of statsmodels."""
    for n, m in ((20, 20), (50, 35), (200, 120)):
        for hits in range(0, n + 1, max(1, n // 7)):
            for others in range(0, m + 1, max(1, m // 7)):
                low, _ = proportion.confint_proportions_2indep(hits, n, others, m, method="newcomb", compare="diff")
                worse = is_worse(share_interval(others, m), share_interval(hits, n))
                assert worse == (low > 1e-12), (hits, n, others, m)


@pytest.mark.parametrize("weights", [(1, 1, 1, 1, 1), (1, 2, 4, 6, 8), (5, 3, 1, 3, 5)])
def test_a_mean_of_graded_scores_is_covered_94_to_96_times_of_100(weights: tuple[int, ...]):
    """Not normal values, but the few steps that graders give, skewed and with two tops; from 30 answers on."""
    truth = sum(s * w for s, w in zip(SCORES, weights, strict=True)) / sum(weights)
    rng = random.Random(11)
    for n in (30, 100):
        found = [bounded_interval(rng.choices(SCORES, weights, k=n)) for _ in range(4000)]
        assert 0.94 <= sum(one.low <= truth <= one.high for one in found) / len(found) <= 0.96


def test_scores_near_the_top_are_covered_where_student_s_interval_is_not():
    """Most answers are perfect: of twenty, Student misses far more often than one in twenty, and leaves 0 to 1."""
    weights, rng = (1, 1, 1, 3, 20), random.Random(4)
    truth = sum(s * w for s, w in zip(SCORES, weights, strict=True)) / sum(weights)
    samples = [rng.choices(SCORES, weights, k=20) for _ in range(3000)]
    found = [[*map(of, samples)] for of in (mean_interval, bounded_interval)]
    held = [sum(one.low <= truth <= one.high for one in each) / 3000 for each in found]
    assert held[0] < 0.89
    assert held[1] > 0.91
    assert all(0 <= one.low <= one.high <= 1 for one in map(bounded_interval, samples))


def test_right_and_wrong_as_numbers_have_the_interval_of_a_share():
    """A grader that returns 1.0 and 0.0 in place of a bool is not punished for it."""
    values = [1.0] * 57 + [0.0] * 3
    found, share = bounded_interval(values), share_interval(57, 60)
    assert share[:3] == pytest.approx(found[:3], abs=0.005)


def test_a_mean_is_as_narrow_as_its_bootstrap():
    """Scipy's bootstrap of the same scores has the same ends, but for its own noise."""
    rng = random.Random(2)
    values = rng.choices(SCORES, (1, 2, 4, 6, 8), k=120)
    found = mean_interval(values)
    other = stats.bootstrap((values,), _mean, n_resamples=4000, method="percentile", rng=1).confidence_interval
    width = found.high - found.low
    assert other.low == pytest.approx(found.low, abs=0.06 * width)
    assert other.high == pytest.approx(found.high, abs=0.06 * width)


def _mean(values: Any, axis: int) -> Any:
    return values.mean(axis=axis)


def test_a_band_holds_the_mean_whenever_one_looks():
    """Of 2,000 sequences of graded scores at most 5 % ever leave the true mean outside."""
    truth, rng, left = sum(SCORES) / len(SCORES), random.Random(9), 0
    for _ in range(2000):
        found: Interval = running_interval(rng.choices(SCORES, k=100), 0, 1, 0.05)
        left += not found.low <= truth <= found.high  # bands only narrow, so the end tells of all looks
    assert 0 < left / 2000 <= 0.05
