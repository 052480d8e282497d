"""The record: what events make of agents and attempts, and that the times of an agent add up."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Agent
from agent_magic.declare import Plan
from agent_magic.errors import UnknownAgent
from agent_magic.record import (
    NOTHING_USED,
    TICKS_PER_S,
    AgentEnded,
    AgentReady,
    AgentReopened,
    Answer,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    FirstToken,
    Price,
    Request,
    RunEnded,
    RunRecord,
    Usage,
    on_grid,
    phases_of,
)
from agent_magic.record.answer import add_usage
from agent_magic.record.phases import COLUMN_OF
from tests.record.histories import histories

ANSWER = Answer("text", "end_turn", usage=Usage(10, output_tokens=5), model="m-1", request_id="r")
CENT = Price(0.01, "given")


def record_of(*events, agents=("a", "b")):
    """A record of agents, the first the parent of all others, with these events."""
    first = Agent(agents[0], "x")
    plan = Plan((first, *(Agent(name, f"{{{{ {agents[0]} }}}}") for name in agents[1:])))
    record = RunRecord(plan, began_at=datetime.now(UTC), models=["m"] * len(agents))
    for event in events:
        record.add(event)
    return record


def started(at_s, number=1, granted_s=None, held_by="", agent=0):
    """A request was sent."""
    return AttemptStarted(at_s, agent, number, at_s if granted_s is None else granted_s, held_by, Request("m", "x", 10))


def answered(at_s, number=1, answer=ANSWER, price=CENT, agent=0):
    """It was answered."""
    return AttemptEnded(at_s, agent, number, answer, None, None, "", answer.usage, price, answer.source, 200)


def failed(at_s, number=1, partial="", usage=None, price=None, kind="Unreachable", agent=0):
    """It failed."""
    price = price or Price(None, "unknown")
    return AttemptEnded(at_s, agent, number, None, f"{kind}: x", kind, partial, usage, price, None, None)


def test_before_any_event():
    """Everybody is pending, and nothing is known."""
    result = record_of()["a"]
    assert ("pending", 0, None, None, None, "") == (
        result.status,
        len(result.attempts),
        result.ready_s,
        result.total_s,
        result.cost_usd,
        result.text,
    )
    assert (None, None, 0.0) == (result.usage.input_tokens, result.started_s, result.work_s)


def test_an_agent_that_was_answered():
    """Queue, prompt, request, first token, answer: each second goes where it belongs."""
    record = record_of(
        AgentReady(1.0, 0),
        started(4.0, granted_s=3.0, held_by="slot"),
        FirstToken(5.5, 0, 1),
        answered(9.0),
        AgentEnded(9.25, 0, "succeeded", None),
        RunEnded(10.0, cut=False),
    )
    result = record["a"]
    assert (2.0, 5.0, 0.0, 1.25, 8.25) == (
        result.queued_s,
        result.api_s,
        result.backoff_s,
        result.local_s,
        result.total_s,
    )
    assert (1.5, 4.0, 9.25, 6.25) == (result.ttft_s, result.started_s, result.finished_s, result.work_s)
    assert ("succeeded", "text", "end_turn", "live", 0.01) == (
        result.status,
        result.text,
        result.stop_reason,
        result.source,
        result.cost_usd,
    )
    assert (10.0, False, 6) == (record.ended_s, record.cut, len(record.events))
    assert ["slot"] == [one.held_by for one in record.attempts]


def test_status_follows_the_events():
    """pending, queued, running, queued again while it waits, and the last status."""
    record = record_of()
    seen = []
    for event in (
        AgentReady(0.0, 0),
        started(1.0),
        failed(2.0),
        BackoffStarted(2.0, 0, 5.0, "busy"),
        started(6.0, 2, held_by="backoff"),
        answered(7.0, 2),
        AgentEnded(7.0, 0, "succeeded", None),
    ):
        record.add(event)
        seen.append((record["a"].status, record["a"].waits_until_s))
    assert [
        ("queued", None),
        ("running", None),
        ("running", None),
        ("queued", 5.0),
        ("running", None),
        ("running", None),
        ("succeeded", None),
    ] == seen


def test_an_agent_that_was_repeated():
    """A wait is `backoff_s`, and what it waited for a slot behind that is `queued_s`."""
    record = record_of(
        AgentReady(0.0, 0),
        started(0.0),
        failed(2.0, usage=NOTHING_USED, price=Price(0.0, "not billed")),
        BackoffStarted(2.0, 0, 5.0, "busy"),
        started(6.5, 2, granted_s=6.0, held_by="backoff"),
        answered(8.0, 2),
        AgentEnded(8.0, 0, "succeeded", None),
    )
    result = record["a"]
    assert (1.0, 3.5, 3.0, 0.5, 8.0) == (
        result.queued_s,
        result.api_s,
        result.backoff_s,
        result.local_s,
        result.total_s,
    )
    assert ["failed", "succeeded"] == [one.status for one in result.attempts]
    assert [0.0, 3.0] == [one.backoff_s for one in result.attempts]
    assert (10, 5, 0.01) == (result.usage.input_tokens, result.usage.output_tokens, result.cost_usd)


def test_an_agent_stopped_while_it_waited():
    """The wait for an attempt that never came counts as far as it went."""
    for end, backoff, queued in ((4.0, 2.0, 0.0), (9.0, 3.0, 4.0)):
        result = record_of(
            AgentReady(0.0, 0),
            started(0.0),
            failed(2.0, partial="so far"),
            BackoffStarted(2.0, 0, 5.0, "busy"),
            AgentEnded(end, 0, "cancelled", "stopped"),
        )["a"]
        assert (queued, 2.0, backoff, 0.0, end) == (
            result.queued_s,
            result.api_s,
            result.backoff_s,
            result.local_s,
            result.total_s,
        )
        assert ("so far", "stopped", None) == (result.text, result.error, result.waits_until_s)


def test_an_agent_that_never_was_ready():
    """A skipped agent has no times and no tokens: unknown is not 0."""
    result = record_of(AgentEnded(3.0, 1, "skipped", "'a' did not succeed"))["b"]
    assert ("skipped", None, None, None, None, None, 0.0) == (
        result.status,
        result.ready_s,
        result.total_s,
        result.queued_s,
        result.local_s,
        result.cost_usd,
        result.work_s,
    )


def test_an_agent_that_never_ran_was_queued():
    """An agent that was ready and stopped before its turn has waited all the time."""
    result = record_of(AgentReady(1.0, 0), AgentEnded(4.0, 0, "cancelled", "stopped"))["a"]
    assert (3.0, 0.0, 0.0, 0.0, 3.0) == (
        result.queued_s,
        result.api_s,
        result.backoff_s,
        result.local_s,
        result.total_s,
    )


COSTS = {
    "one answer": ([(ANSWER, 0.5)], 0.5),
    "an answer without a price": ([(ANSWER, None)], None),
    "a failure that was billed and an answer": ([(None, 0.25), (ANSWER, 0.5)], 0.75),
    "a failure of unknown cost and an answer": ([(None, None), (ANSWER, 0.5)], 0.5),
    "a failure that was billed and an answer without a price": ([(None, 0.25), (ANSWER, None)], None),
    "failures of unknown cost": ([(None, None)], None),
    "a failure that was not billed": ([(None, 0.0)], 0.0),
}


@pytest.mark.parametrize(("attempts", "cost"), COSTS.values(), ids=COSTS)
def test_what_an_agent_cost(attempts, cost):
    """All attempts whose cost is known are added up; an answer of unknown price makes the sum unknown."""
    events = [AgentReady(0.0, 0)]
    for number, (answer, price) in enumerate(attempts, 1):
        paid = Price(price, "given")
        end = answered(number, number, price=paid) if answer else failed(number, number, price=paid)
        events += [started(number, number), end]
    assert cost == record_of(*events)["a"].cost_usd


def test_the_text_of_a_cut_answer_is_what_had_arrived():
    """`text` is the answer, or the part of the last attempt."""
    result = record_of(AgentReady(0.0, 0), started(0.0), failed(1.0, partial="half an ans"))["a"]
    assert ("half an ans", None, None) == (result.text, result.stop_reason, result.ttft_s)


def test_attempts_come_in_the_order_they_were_sent():
    """The attempts of all agents, by time."""
    record = record_of(
        AgentReady(0.0, 0), AgentReady(0.0, 1), started(2.0), started(1.0, agent=1), failed(3.0), started(4.0, 2)
    )
    assert [("b", 1), ("a", 1), ("a", 2)] == [(one.agent, one.number) for one in record.attempts]


def test_an_unknown_agent_is_asked_for():
    """A wrong name brings the nearest one."""
    with pytest.raises(UnknownAgent, match="Did you mean 'writer'"):
        record_of(agents=("writer",))["writr"]


def test_usage_adds_up_and_unknown_stays_unknown():
    """A count that nobody knows is unknown; one that somebody knows is the sum of what is known."""
    assert Usage() == add_usage([])
    assert Usage(estimated=True) == add_usage([Usage(), Usage(estimated=True)])
    assert Usage(5, cache_read_tokens=2, output_tokens=7, cache_write_1h_tokens=3) == add_usage(
        [Usage(2, cache_read_tokens=2, cache_write_1h_tokens=3), Usage(3, output_tokens=7)]
    )


TOTALS = {"unknown": (Usage(), None), "all three": (Usage(1, cache_read_tokens=2, cache_write_tokens=4), 7)}


@pytest.mark.parametrize(("usage", "total"), TOTALS.values(), ids=TOTALS)
def test_all_input_together(usage, total):
    """Uncached, read and written input together; unknown where nothing is known."""
    assert total == usage.total_input_tokens


@given(st.floats(0, 1e6))
def test_times_lie_on_the_grid(seconds):
    """A time is a whole number of ticks, at most half a tick from the clock's."""
    tick = on_grid(seconds) * TICKS_PER_S
    assert tick == int(tick)
    assert abs(on_grid(seconds) - seconds) <= 0.5 / TICKS_PER_S


@settings(max_examples=100)
@given(histories())
def test_the_parts_of_every_agent_s_time_add_up_exactly(history):
    """Queued + api + backoff + local is total, to the last bit, in any order; no part is negative."""
    record, _ = history
    for result in record.results:
        if result.total_s is None:
            continue
        parts = [result.queued_s, result.api_s, result.backoff_s, result.local_s]
        assert all(part >= 0 for part in parts)
        for order in itertools.permutations(parts):
            assert result.total_s == order[0] + order[1] + order[2] + order[3]
        for part in parts:
            assert float(part * TICKS_PER_S).is_integer()


@settings(max_examples=100)
@given(histories())
def test_the_phases_of_every_agent_follow_one_another_and_add_up_to_its_columns(history):
    """From ready to finished without gaps; the phases of a kind add up to their column."""
    record, _ = history
    for result in record.results:
        phases = list(phases_of(result))
        if result.total_s is None:
            continue
        ends_s = [phase.end_s or 0.0 for phase in phases]
        assert [result.ready_s, *ends_s] == [*(phase.start_s for phase in phases), result.finished_s]
        sums = dict.fromkeys(COLUMN_OF.values(), 0.0)
        for phase, end_s in zip(phases, ends_s, strict=True):
            sums[COLUMN_OF[phase.kind]] += end_s - phase.start_s
        assert sums == {column: getattr(result, column) for column in sums}


def test_an_agent_that_is_stopped_before_it_runs_again_was_queued_since():
    """After a retry of the user's, waiting is queued time, with an attempt to follow or without."""
    result = record_of(
        AgentReady(0.0, 0),
        started(0.0),
        failed(2.0),
        AgentEnded(2.0, 0, "failed", "x"),
        AgentReopened(3.0, 0),
        AgentReady(3.0, 0),
        AgentEnded(5.0, 0, "cancelled", "stopped"),
    )["a"]
    assert (3.0, 2.0, 0.0, 5.0) == (result.queued_s, result.api_s, result.local_s, result.total_s)


@given(histories())
def test_the_record_of_every_run_is_complete(history):
    """Everybody has a last status, each attempt an end, and the run too; times never run backwards."""
    record, client = history
    assert record.ended_s is not None
    times = [event.at_s for event in record.events]
    assert sorted(times) == times
    for result in record.results:
        assert result.status in {"succeeded", "failed", "skipped", "cancelled"}
        assert result.finished_s is not None
        if result.status == "skipped":  # nothing was asked, but by one that somebody skipped while it ran
            assert not result.attempts or result.attempts[-1].status != "succeeded"
        assert [one.number for one in result.attempts] == list(range(1, len(result.attempts) + 1))
        for one in result.attempts:
            assert one.ended_s is not None
            assert one.granted_s <= one.started_s <= one.ended_s
            assert one.first_token_s is None or one.started_s <= one.first_token_s <= one.ended_s
            assert one.status != "running"
        if result.status == "succeeded":
            assert result.answer is not None
            assert result.error is None
        if result.status in {"failed", "cancelled", "skipped"}:
            assert result.error
    assert len(client.asked) == len(record.attempts)
    assert math.isfinite(record.ended_s)


@given(histories())
def test_folding_the_events_again_gives_the_same_results(history):
    """Events are the one source: a record made from them anew is the same."""
    record, _ = history
    again = RunRecord(record.plan, began_at=record.began_at, models=[one.model for one in record.results])
    for event in record.events:
        again.add(event)
    assert record.results == again.results
    assert (record.ended_s, record.cut) == (again.ended_s, again.cut)
