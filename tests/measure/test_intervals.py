"""Intervals against exact sums, printed tables and simulated trials: they hold as often as they say."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from agent_magic.measure import mean_interval, running_interval, share_interval, student_quantile
from agent_magic.measure.intervals import more_needed, stratified

TABLE = {1: 12.7062, 2: 4.3027, 3: 3.1824, 5: 2.5706, 10: 2.2281, 19: 2.0930, 30: 2.0423, 120: 1.9799, 1000: 1.9623}
"""The 97.5 % points of Student's t, as every textbook prints them."""


@pytest.mark.parametrize(("df", "printed"), TABLE.items())
def test_student_is_that_of_the_printed_table(df, printed):
    """To the four digits that tables print, on both sides of where the series ends."""
    assert printed == round(student_quantile(df, 0.975), 4)


def test_wilson_is_that_of_the_example_of_newcombe():
    """81 of 263: 0.2553 to 0.3662, method 3 of Newcombe, "Two-sided confidence intervals", 1998, table I."""
    found = share_interval(81, 263)
    assert (0.2553, 0.3662) == (round(found.low, 4), round(found.high, 4))
    assert (0.0, 1.0) == (share_interval(0, 7).low, share_interval(7, 7).high)


def test_of_nothing_nothing_is_known():
    """Unknown is NaN, never 0; one value has no spread."""
    for found in (share_interval(0, 0), mean_interval([])):
        assert 0 == found.n
        assert all(math.isnan(one) for one in found[:3])
    assert math.isnan(mean_interval([3.0]).low)
    assert 3.0 == mean_interval([3.0]).value


def test_wilson_covers_a_share_as_often_as_it_says():
    """Summed exactly over the binomial distribution: 94 to 96 % on average over all shares."""
    for n in (20, 50, 100):
        ends = [share_interval(hits, n) for hits in range(n + 1)]
        shares = [place / 200 for place in range(1, 200)]
        covered = [
            sum(
                math.comb(n, hits) * p**hits * (1 - p) ** (n - hits)
                for hits, one in enumerate(ends)
                if one.low <= p <= one.high
            )
            for p in shares
        ]
        assert 0.94 <= sum(covered) / len(covered) <= 0.96


def test_student_covers_a_mean_as_often_as_it_says():
    """Of 4,000 simulated samples of ten, 94 to 96 % hold the true mean."""
    rng = random.Random(3)
    found = [mean_interval([rng.gauss(5, 2) for _ in range(10)]) for _ in range(4000)]
    assert 0.94 <= sum(one.low <= 5 <= one.high for one in found) / len(found) <= 0.96


def stops_wrongly(seed: int, n: int = 150) -> bool:
    """Tell whether a trial between equal settings ever finds a difference. Bands only narrow: the last tells all."""
    rng = random.Random(seed)
    found = running_interval([float(rng.choice([-1, 0, 0, 1])) for _ in range(n)], -1, 1, 0.05)
    return found.low > 0 or found.high < 0


def test_whoever_stops_when_it_is_decided_errs_no_more_often_than_agreed():
    """Over 1,000 simulated trials without a difference, at most 5 % find one, whenever they look."""
    assert sum(map(stops_wrongly, range(1000))) / 1000 <= 0.05


def test_looking_again_and_again_at_a_t_interval_errs_far_more_often():
    """The reason for the sequence: the same looks at a t interval find a difference that is not there."""
    wrong = 0
    for seed in range(300):
        rng = random.Random(seed)
        apart = [rng.choice([-1.0, 0.0, 0.0, 1.0]) for _ in range(150)]
        looks = [mean_interval(apart[:at]) for at in range(10, 151, 10)]
        wrong += any(one.low > 0 or one.high < 0 for one in looks)
    assert wrong / 300 > 0.10


def test_a_band_once_left_is_left_for_good():
    """More values never widen it: what was out stays out."""
    rng = random.Random(1)
    values = [float(rng.random() < 0.8) for _ in range(120)]
    bands = [running_interval(values[:at], 0, 1, 0.05) for at in range(1, 121)]
    assert all(a.low <= b.low and b.high <= a.high for a, b in itertools.pairwise(bands))
    assert bands[-1].low <= 0.8 <= bands[-1].high


def test_equal_values_are_not_taken_for_certain():
    """Twenty answers that agree do not show that two models always do."""
    found = running_interval([0.0] * 20, -1, 1, 0.05)
    assert found.low < -0.2
    assert found.high > 0.2
    assert (math.isnan(running_interval([], -1, 1, 0.05).value), -1, 1, 0) == (
        True,
        *running_interval([], -1, 1, 0.05)[1:],
    )


def test_how_many_more_follows_the_root_of_n():
    """Twice as wide as the gap takes four times as many."""
    found = running_interval([0.2] * 50, -1, 1, 0.05)._replace(value=0.1, low=-0.1, high=0.3, n=50)
    assert 150 == more_needed(found, 0.05)


def test_a_stratified_sample_has_the_shares_of_the_whole():
    """By largest remainders, the same for the same seed, all where there are too few."""
    strata = ["a"] * 60 + ["b"] * 30 + ["c"] * 10
    chosen = stratified(strata, 20, 7)
    assert [12, 6, 2] == [sum(strata[one] == name for one in chosen) for name in "abc"]
    assert chosen == stratified(strata, 20, 7)
    assert chosen != stratified(strata, 20, 8)
    assert list(range(100)) == stratified(strata, 500, 7)
