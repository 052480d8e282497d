"""The frame of contexts, on recorded events: unknown stays unknown, waits are told apart."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent_magic import Agent, TokenPrice
from agent_magic.declare import Plan
from agent_magic.measure import contexts_frame
from agent_magic.measure.contexts import shared_contexts
from agent_magic.record import (
    AgentEnded,
    AgentReady,
    Answer,
    AttemptEnded,
    AttemptStarted,
    Price,
    Request,
    RunRecord,
    Usage,
)
from agent_magic.show import context_notes

PRICE = {"m": TokenPrice(10.0, 1.0)}
WRITES = Usage(5, cache_read_tokens=0, cache_write_tokens=1000, output_tokens=1)
READS = Usage(5, cache_read_tokens=1000, cache_write_tokens=0, output_tokens=1)


def record(*rows: Any, cached: bool = True) -> RunRecord:
    """Make a record of agents that share a context: per agent (granted_s, held_by, usage), all ready at 0."""
    names = [f"a{number}" for number in range(len(rows))]
    plan = Plan([Agent(name, "x", model="m", context="c") for name in names], {"c": "text"})
    made = RunRecord(plan, began_at=datetime.now(UTC), models=["m"] * len(rows), origin="nowhere")
    request = Request("m", "x", 10, context="text", cached=cached)
    for number in range(len(rows)):
        made.add(AgentReady(0.0, number))
    for number, (granted_s, held_by, usage) in enumerate(rows):
        made.add(AttemptStarted(granted_s, number, 1, granted_s, held_by, request))
        answer = None if usage is None else Answer("t", "end_turn", usage=usage, model="m")
        error = "Unreachable: gone" if answer is None else None
        kind = None if answer is None else "Unreachable"
        end = AttemptEnded(
            granted_s + 9, number, 1, answer, error, kind, "", usage, Price(None, "unknown"), "live", 200
        )
        made.add(end)
        made.add(AgentEnded(granted_s + 9, number, "failed" if error else "succeeded", error))
    return made


def test_what_was_written_and_read_is_priced():
    """12.5 dollars a million to write, 1 to read, in place of 10."""
    [one] = shared_contexts(record((0.0, "", WRITES), (2.0, "leader", READS), (2.0, "leader", READS)), PRICE)
    assert ("a0", 1000, 1000, 2000) == (one.leader, one.prefix_tokens, one.cache_write_tokens, one.cache_read_tokens)
    assert pytest.approx(0.0145) == one.cost_usd
    assert pytest.approx(0.03) == one.uncached_usd
    assert pytest.approx(0.0155) == one.saved_usd
    assert 4.0 == one.waited_s


def test_caching_that_lost_money_is_negative():
    """Two that both wrote paid a quarter more, and that is said."""
    made = record((0.0, "", WRITES), (0.0, "", WRITES))
    [one] = shared_contexts(made, PRICE)
    assert pytest.approx(-0.005) == one.saved_usd
    [note] = context_notes(made, PRICE)
    assert "caching cost more than it saved, $0.0250 instead of $0.0200; --cache off disables it" in note


def test_a_wait_for_a_limit_behind_the_leader_is_told_apart():
    """One that a limit held until 5 waited for the leader until 2, one that waited for a slot not at all."""
    rows = ((0.0, "", WRITES), (2.0, "leader", READS), (5.0, "output", READS), (9.0, "slot", READS))
    assert 4.0 == shared_contexts(record(*rows), PRICE)[0].waited_s


def test_unknown_tokens_and_prices_stay_unknown():
    """A request that died unheard is counted as unknown; without a price there are no dollars."""
    made = record((0.0, "", WRITES), (2.0, "leader", None))
    [one] = shared_contexts(made, PRICE)
    assert (2, 1, 1000) == (one.requests, one.uncounted, one.cache_write_tokens)
    row = contexts_frame(made).iloc[0]
    assert row[["cost_usd", "uncached_usd", "saved_usd"]].isna().all()
    assert "cached, savings unknown" in context_notes(made, None)[0]
    [dead] = shared_contexts(record((0.0, "", None)), PRICE)
    assert (None, None, None, None) == (dead.prefix_tokens, dead.cache_write_tokens, dead.cost_usd, dead.saved_usd)


def test_a_mark_the_provider_ignored_is_said():
    """Too short a text is cached by nobody, at no loss."""
    plain = Usage(900, cache_read_tokens=0, cache_write_tokens=0, output_tokens=1)
    made = record((0.0, "", plain))
    [one] = shared_contexts(made, PRICE)
    assert (False, None, None, 0.0) == (one.cached, one.cost_usd, one.uncached_usd, one.saved_usd)
    assert "marked for caching, but the provider cached nothing" in context_notes(made, PRICE)[0]


def test_what_nobody_marked_saved_nothing():
    """It says nothing of its length, and no note is made."""
    made = record((0.0, "", Usage(900, output_tokens=1)), cached=False)
    [one] = shared_contexts(made, PRICE)
    assert (False, None, 0.0, None) == (one.cached, one.ttl, one.saved_usd, one.prefix_tokens)
    assert [] == context_notes(made, PRICE)
