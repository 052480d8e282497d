"""Advice, baseline and sweep as commands: the price first, nothing sent without `--yes`."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

import agent_magic as am
from agent_magic import TokenPrice
from agent_magic.notebook.verbs.trials import _slots
from agent_magic.show import price_line


def test_the_concurrencies_of_a_sweep():
    """By default the usual ones up to the number of agents; else as written, and nothing below 1."""
    assert [1, 2, 4] == _slots("", 5)
    assert [1] == _slots("", 0)
    assert [3, 1] == _slots("3,1", 5)
    for wrong in ("x", "1,,2", "0"):
        with pytest.raises(UsageError, match="--at"):
            _slots(wrong, 5)


def test_the_price_of_several_runs():
    """Dollars of all runs together, tokens of each."""
    plan = am.Plan([am.Agent("a", "x" * 400, max_tokens=100, model="mine")])
    expected = plan.estimate(prices={"mine": TokenPrice(1_000_000, 0)}).expected
    assert price_line(expected).startswith("1 request, about 101 input tokens: expected $101.00, at most $101.00")
    assert price_line(expected, 3).startswith("3 runs of 1 request, about 101 input tokens each: expected $303.00")


def test_concurrencies_without_their_option_are_pointed_out():
    """Numbers where names are expected are taken for what they are."""
    from IPython.core.interactiveshell import InteractiveShell

    from agent_magic.notebook import AgentMagics

    magics = AgentMagics(InteractiveShell.instance())
    with pytest.raises(UsageError, match="sweep --at 1,2"):
        magics.agents("sweep 1 2")
