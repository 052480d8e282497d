"""Whether a run is asked about first: by agents, dollars, thresholds, and whether somebody is there."""

# Stand-ins have the two dollars of an estimate that are read, and nothing else.
# pyright: reportArgumentType=false

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent_magic.forecast import Outlay, confirmation, outlay
from agent_magic.show import outlay_line

CASES = {
    "small": (10, 0.5, {}, "go"),
    "at the limits": (100, 5.0, {}, "go"),
    "many": (101, 0.5, {}, "ask"),
    "dear": (10, 5.01, {}, "ask"),
    "said yes": (1000, 50.0, {"yes": True}, "go"),
    "nobody there": (101, 0.5, {"can_ask": False}, "note"),
    "small, nobody there": (10, 0.5, {"can_ask": False}, "go"),
    "yes, nobody there": (101, 9.0, {"yes": True, "can_ask": False}, "go"),
    "agents never": (1000, 0.5, {"above_agents": 0}, "go"),
    "dollars never": (10, 50.0, {"above_usd": 0.0}, "go"),
    "dollars still": (1000, 50.0, {"above_agents": 0}, "ask"),
    "agents still": (1000, 50.0, {"above_usd": 0.0}, "ask"),
}


@pytest.mark.parametrize(("agents", "usd", "said", "decided"), CASES.values(), ids=CASES)
def test_when_it_is_asked(agents, usd, said, decided):
    """Above either threshold it is asked; without anybody to answer a note has to do; 0 and --yes ask nothing."""
    options = {"above_agents": 100, "above_usd": 5.0, "yes": False, "can_ask": True, **said}
    assert decided == confirmation(Outlay(agents, usd, usd * 4, 0), **options)


def test_an_unknown_price_does_not_count():
    """Dollars are those of the agents with a known price; the others are counted and said, tasks are not."""
    one = SimpleNamespace(cost_usd=2.0, most_usd=8.0, is_task=False, shares=False)
    other = SimpleNamespace(cost_usd=None, most_usd=None, is_task=False, shares=False)
    what = outlay([one, other, one, SimpleNamespace(cost_usd=0.0, most_usd=0.0, is_task=True, shares=False)])
    assert Outlay(3, 4.0, 16.0, 1) == what
    assert "3 agents, about $4.00 expected (estimate), 1 of unknown price" == outlay_line(what, None)
    assert "1 agent, 1 of unknown price" == outlay_line(outlay([other]), 1.0)
    assert Outlay(0, 0, 0, 0) == outlay([])


@pytest.mark.parametrize(
    ("budget", "most"), [(None, "at most $31.00"), (3.0, "at most $3.00, the budget"), (40.0, "at most $31.00")]
)
def test_the_line_says_the_most(budget, most):
    """The most is what full answers cost, or the budget where that is less."""
    line = outlay_line(Outlay(150, 7.2, 31.0, 0), budget)
    assert f"150 agents, about $7.20 expected (estimate), {most}" == line
