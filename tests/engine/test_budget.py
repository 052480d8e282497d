"""The budget: what is set aside, what comes back, and that no order of things crosses the cap."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.engine import Budget, Worst


def test_siblings_in_flight_cannot_cross_the_cap_together():
    """The worst case of each is counted while it is under way."""
    budget = Budget(cap_usd=1.0)
    assert budget.fits(Worst(0.6, 10))
    budget.set_aside(0, Worst(0.6, 10))
    assert not budget.fits(Worst(0.6, 10))
    budget.settle(0, 0.1, 5)
    assert budget.fits(Worst(0.6, 10))
    assert (0.1, 0.0) == (budget.spent_usd, budget.reserved_usd)


def test_what_is_unknown_counts_as_its_worst_case():
    """A broken request may have been billed."""
    budget = Budget(cap_usd=1.0, cap_tokens=100)
    budget.set_aside(0, Worst(0.6, 10))
    budget.settle(0, None, None)
    assert (0.6, 10) == (budget.spent_usd, budget.spent_tokens)


def test_an_unknown_price_fits_no_budget():
    """Without a price nothing can be promised; a budget in tokens needs none."""
    assert not Budget(cap_usd=1.0).fits(Worst(None, 1))
    said = Budget(cap_usd=1.0).why_not(Worst(None, 1), "mine")
    assert "mine has no known price" in said
    assert "%agents prices mine --input USD --output USD" in said
    assert Budget(cap_tokens=10).fits(Worst(None, 10))


@pytest.mark.parametrize(("cap", "worst", "said"), [((1.0, None), (2.0, 1), "$"), ((None, 10), (0.0, 11), "tokens")])
def test_the_reason_names_what_is_lacking(cap, worst, said):
    """The reason gives the numbers of the cap that does not fit."""
    assert said in Budget(*cap).why_not(Worst(*worst), "mine")


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 50), st.booleans()), max_size=40))
def test_no_order_of_requests_crosses_the_cap(requests):
    """Whatever is asked and however much of it is used, spent and set aside stay within the cap."""
    budget = Budget(cap_usd=2.0, cap_tokens=100)
    open_: list[tuple[int, float, int, float]] = []
    for number, (usd, share, tokens, now) in enumerate(requests):
        worst = Worst(usd, tokens)
        if budget.fits(worst):
            budget.set_aside(number, worst)
            open_.append((number, usd, tokens, share))
        if now and open_:
            done, most, count, part = open_.pop(0)
            budget.settle(done, most * part, math.floor(count * part))
        assert budget.spent_usd + budget.reserved_usd <= 2.0 + 1e-9
        assert budget.spent_tokens + budget.reserved_tokens <= 100
