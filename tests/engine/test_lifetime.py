"""How long a cached context lives: by when its agents are expected to start."""

from __future__ import annotations

from typing import Any

import pytest

from agent_magic import Agent, Policy
from agent_magic.declare import Plan
from agent_magic.engine.admission.prefix import best_ttl, expected_starts_s, shared_prefixes, with_lives
from agent_magic.record import ModelFacts

SHARED = "x" * 4000
CHAIN = Plan(
    [Agent("a", "x", context="c"), Agent("b", "{{ a }}", context="c"), Agent("d", "{{ b }}", context="c")],
    {"c": SHARED},
)
MODEL = "claude-sonnet-5-5"


@pytest.mark.parametrize(
    ("starts_s", "ttl"),
    [
        ([0, 0], "5m"),
        ([0, 1, 2, 200, 440], "5m"),  # each read starts its life anew
        ([0, 1, 400], "1h"),  # 2 + 2 x 0.1 against 2 x 1.25 + 0.1 and 3 uncached
        ([0, 400], None),  # 2.1 and 2.5 against 2 uncached
        ([0, 400, 800, 1200], "1h"),
        ([0, 4000, 8000], None),  # an hour is not enough either
        ([0, 0, 0, 4000], "5m"),  # 2 x 1.25 + 0.2 against 2 x 2 + 0.2
        ([0], "5m"),
    ],
)
def test_the_cheapest_life(starts_s: Any, ttl: str | None):
    """Five minutes within a burst, an hour across a gap, none where writing costs more than it saves."""
    assert ttl == best_ttl(starts_s)


def test_expected_starts():
    """Longest way first, within the slots; a child when its parents are done."""
    plan = Plan([Agent("a", "x"), Agent("b", "x"), Agent("d", "{{ a }}"), Agent("e", "x")])
    work_s = [10.0, 30.0, 50.0, 5.0]
    assert [0.0, 0.0, 10.0, 30.0] == expected_starts_s(plan.dag, Policy(2), work_s)
    assert [0.0, 10.0, 45.0, 40.0] == expected_starts_s(plan.dag, Policy(2, "sequential"), work_s)


@pytest.mark.parametrize(
    ("options", "work_s", "lives"),
    [
        ({}, None, ["5m"] * 3),
        ({}, [10.0, 10.0, 10.0], ["5m"] * 3),
        ({}, [10.0, 400.0, 10.0], ["1h"] * 3),
        ({"cache_ttl": "5m"}, [10.0, 400.0, 10.0], ["5m"] * 3),
        ({"cache_ttl": "1h"}, None, ["1h"] * 3),
        ({}, [4000.0, 4000.0, 10.0], [None] * 3),
        ({"cache": "on"}, [4000.0, 4000.0, 10.0], ["5m"] * 3),
    ],
)
def test_a_run_chooses_by_what_it_expects(options: Any, work_s: list[float] | None, lives: list[str | None]):
    """A long agent in the middle makes an hour pay; what the user names counts before that."""
    prefixes = shared_prefixes(CHAIN, [MODEL] * 3, {MODEL: ModelFacts(MODEL, 512)}, Policy(**options), work_s)
    assert prefixes is not None
    assert lives == [prefixes.ttl(agent) for agent in range(3)]


def test_each_group_has_its_own_life():
    """Groups are judged apart."""
    agents = [*CHAIN.agents, Agent("e", "x", context="k"), Agent("f", "x", context="k")]
    plan = Plan(agents, {"c": SHARED, "k": SHARED})
    groups, lives = with_lives(["c"] * 3 + ["k"] * 2, plan.dag, Policy(), [10.0, 400.0, 10.0, 10.0, 10.0])
    assert (["c"] * 3 + ["k"] * 2, {"c": "1h", "k": "5m"}) == (groups, lives)


def test_an_entry_of_an_hour_is_warm_for_an_hour():
    """Nobody leads again within it."""
    prefixes = shared_prefixes(CHAIN, [MODEL] * 3, {MODEL: ModelFacts(MODEL, 512)}, Policy(cache_ttl="1h"))
    assert prefixes is not None
    prefixes.left(0, 0.0)
    prefixes.began(0)
    assert prefixes.is_warm(1, 3599.0)
    assert not prefixes.is_warm(1, 3600.0)
