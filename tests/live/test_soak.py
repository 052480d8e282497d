"""A hundred agents at once, with requests that are refused, cut and slow: nothing is lost, memory does not grow."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.soak import AT_ONCE, soak

GROWTH_MB = 40
"""What a few rounds may add: caches, and records that are not collected yet. A leak of answers adds more."""


@pytest.mark.slow
def test_a_hundred_agents_at_once_lose_nothing() -> None:
    """Every agent succeeds, with one row; frames and server agree on the requests."""
    found = asyncio.run(soak(20.0, latency="ttft=0.2,pace=100,spread=0.4"))
    assert (AT_ONCE * found.rounds, 0) == (found.agents, found.lost)
    assert found.agents == found.succeeded
    assert found.served == found.requests
    assert {"RateLimited", "Overloaded", "Unreachable"} <= set(found.errors)
    assert found.growth_mb < GROWTH_MB
