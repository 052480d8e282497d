"""Budgets that are short: the API counts what the bytes of a prompt only bound."""

from __future__ import annotations

import asyncio

import pytest

from agent_magic.api import Agent, Plan, Policy, Run
from agent_magic.errors import Overloaded
from tests.live.virtual import Reply, Scripted, drive

MODEL = "claude-opus-5-5"
LONG = "lorem ipsum " * 3_334
INPUT, OUTPUT, MOST = 10_000, 50, 100
COST_USD = (INPUT * 4 + OUTPUT * 20) / 1e6
WORST_USD = (INPUT * 4 + MOST * 20) / 1e6


class Counter(Scripted):
    """Counts as a server would that is `takes_s` away; `error` is what it says instead."""

    def __init__(self, takes_s=0.1, error=None, tokens=INPUT, reply=None):
        said = reply or Reply(tokens=(INPUT, OUTPUT, 0, 0))
        super().__init__(lambda prompt, number: said)
        self.takes_s, self.error, self.tokens, self.counted = takes_s, error, tokens, []

    async def count_tokens(self, request):
        """Count one."""
        self.counted.append(request.prompt)
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        return self.tokens


def plan(count, text=LONG):
    """So many agents of 40,000 bytes, which are 10,000 tokens."""
    return Plan([Agent(f"a{number}", f"{number} {text}", model=MODEL, max_tokens=MOST) for number in range(count)])


def test_what_fits_by_its_count_is_sent():
    """By its bytes it might cost $0.16, by its count at most $0.042, and there are $0.043."""
    client = Counter()
    record, _ = drive(plan(1), client, Policy(budget_usd=0.043))
    assert "succeeded" == record["a0"].status
    assert 1 == len(client.counted)
    assert "budget" == record["a0"].attempts[0].held_by


def test_a_budget_with_room_has_nothing_counted():
    """Counting takes a moment: only who is short of room waits for it."""
    client = Counter()
    record, _ = drive(plan(3), client, Policy(budget_usd=1.0))
    assert [] == client.counted
    assert {"succeeded"} == {result.status for result in record.results}


@pytest.mark.parametrize("concurrency", [1, 4, 20])
def test_half_the_cost_is_used_and_never_crossed(concurrency):
    """Of twenty agents the budget reaches those whose worst case fits into it, whatever runs at once."""
    cap_usd = 10 * COST_USD
    record, _ = drive(plan(20), Counter(), Policy(concurrency=concurrency, budget_usd=cap_usd))
    spent_usd = sum(result.cost_usd or 0.0 for result in record.results)
    assert cap_usd - WORST_USD < spent_usd <= cap_usd
    stopped = [result for result in record.results if result.status == "cancelled"]
    assert all((result.error or "").startswith("BudgetExceeded") for result in stopped)


def test_a_spent_budget_has_nothing_counted():
    """Where no count could make room, nobody asks for one: a thousand agents left over are not a thousand requests."""
    client = Counter(tokens=INPUT, reply=Reply(tokens=(INPUT, MOST, 0, 0)))
    drive(plan(300), client, Policy(budget_usd=3 * WORST_USD + 0.001))
    assert len(client.counted) <= 4


@pytest.mark.parametrize(
    "client",
    [Counter(error=Overloaded("no", status=529)), Counter(takes_s=1e6), Counter(takes_s=0.0, error=TimeoutError())],
)
def test_without_counts_the_bytes_bound(client):
    """A counter that fails or hangs is asked once, and nothing that may cost too much is sent."""
    record, _ = drive(plan(5), client, Policy(budget_usd=0.1))
    assert 1 == len(client.counted)
    assert {"cancelled"} == {result.status for result in record.results}


def test_a_stop_while_counting_ends_the_run():
    """Nothing is left of the count, and nothing is sent."""
    client = Counter(takes_s=5.0)
    record, _ = drive(plan(2), client, Policy(budget_usd=0.043), stops=[(1.0, None)])
    assert ["cancelled", "cancelled"] == [result.status for result in record.results]
    assert [] == client.asked


def test_dollars_a_minute_count_too():
    """An agent whose bytes might cost more than a minute may is not turned away before it was counted."""
    record, _ = drive(plan(1), Counter(), Policy(max_usd_per_min=0.05))
    assert "succeeded" == record["a0"].status


@pytest.mark.parametrize("tokens", [5, INPUT])
def test_a_server_that_bills_more_than_was_counted_is_believed_later(tokens):
    """Whatever it says of the first answer is expected of the next: siblings one after another stay under the cap."""
    cap_usd = 10.5 * COST_USD
    client = Counter(tokens=tokens)
    record, _ = drive(plan(20, "short"), client, Policy(concurrency=1, budget_usd=cap_usd))
    spent_usd = sum(result.cost_usd or 0.0 for result in record.results)
    assert cap_usd - WORST_USD - COST_USD < spent_usd <= cap_usd


def test_a_forecast_of_a_short_budget_reaches_as_far():
    """It has the counts as well, so the recorded policy ends with the same dollars."""
    cap_usd = 6 * COST_USD
    record, _ = drive(plan(12), Counter(takes_s=0.0), Policy(concurrency=3, budget_usd=cap_usd, seed=1))
    done = sum(result.status == "succeeded" for result in record.results)
    again = Run(record).forecast()
    assert 5 == done
    assert sum(result.cost_usd or 0.0 for result in record.results) == pytest.approx(again.totals.cost_usd)
