"""How much longer a run takes: an interval from earlier answers, nothing where there are none."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from agent_magic import Agent, Policy, Task
from agent_magic.declare import Plan
from agent_magic.forecast.remaining import remaining
from agent_magic.measure import CONSTANT, Server
from agent_magic.record import (
    AgentEnded,
    AgentReady,
    Answer,
    AttemptEnded,
    AttemptStarted,
    Event,
    FirstToken,
    History,
    Past,
    Price,
    RunEnded,
    Usage,
)
from tests.live.virtual import Reply, drive
from tests.measure.test_server import drawn, served
from tests.record.histories import answered
from tests.show.calling import calling_run
from tests.show.story import MODEL, REQUEST, business_run, finished_run, plan_of, record_of

if TYPE_CHECKING:
    from agent_magic.record import RunRecord


def past(name: str, *seconds: float, simulated: bool = False) -> list[Past]:
    """Return answers that took so long."""
    return [Past(name, MODEL, None, 10, 20, 0.1, one, simulated) for one in seconds]


def test_nothing_known_is_no_estimate() -> None:
    """Without earlier answers nobody can know."""
    assert None is remaining(record_of(plan_of({"one": ()})), 0.0, History(), 8)
    assert None is remaining(record_of(plan_of({"one": ()})), 0.0, History(past("two", 1.0)), 8)


def test_a_chain_takes_the_sum_of_its_agents() -> None:
    """Quartiles of each agent's own answers, one after another."""
    record = record_of(plan_of({"one": (), "two": ("one",)}))
    history = answered(record.plan.agents, [*past("one", 1, 2, 3, 4, 5), *past("two", 10, 10, 10)])
    assert (12.0, 14.0) == remaining(record, 0.0, history, 8)


def test_few_slots_take_longer() -> None:
    """Four agents side by side in two slots take twice as long as one, at most that and half of the rest."""
    record = record_of(plan_of(dict.fromkeys(("a", "b", "c", "d"), ())))
    history = History(past("any", 2, 2, 2))
    assert (4.0, 5.0) == remaining(record, 0.0, history, 2)
    assert (2.0, 3.5) == remaining(record, 0.0, history, 4)


def test_simulated_answers_say_nothing_of_real_ones() -> None:
    """Rows of the other kind do not count."""
    record = record_of(plan_of({"one": ()}))
    assert None is remaining(record, 0.0, History(past("one", 1, 1, 1, simulated=True)), 8)


def test_a_run_learns_from_its_own_answers() -> None:
    """Once three answers of a model are there, the rest can be estimated without any earlier run."""
    assert None is remaining(business_run(2.2), 2.2, History(), 8)
    low, high = remaining(business_run(6.5), 6.5, History(), 8) or (0.0, 0.0)
    assert 0 < low < high
    assert None is remaining(finished_run(plan_of({"one": ()})), 9.0, History(), 8)


def test_of_tasks_nothing_is_known() -> None:
    """While one is still to run nobody can say when the run ends; one that has ended does not matter."""
    rows = (past(name, 1, 2, 3, simulated=True) for name in ("finder", "report"))
    history = History([row for some in rows for row in some])
    assert None is remaining(calling_run(6.9), 6.9, history, 8)
    assert None is not remaining(calling_run(7.3), 7.3, history, 8)


def test_what_is_declared_is_a_first_estimate() -> None:
    """Half to twice of it, of agents and tasks; answers of its own are believed over it, those of its model are not."""
    plan = Plan([Agent("one", "x", expect=4.0), Task("two", lambda one: one, expect=2.0)])
    record = record_of(plan)
    assert (3.0, 12.0) == remaining(record, 0.0, History(past("other", 9, 9, 9)), 8)
    assert (7.0, 10.0) == remaining(record, 0.0, answered(plan.agents, past("one", 6, 6, 6)), 8)


def test_what_is_declared_is_corrected_by_what_the_run_measures() -> None:
    """An agent took twice what it declared, so what comes after it is expected to, a task that is under way too."""
    agents = [Agent("one", "x", expect=4.0), Agent("two", "{{ one }}", expect=5.0)]
    plan = Plan([*agents, Task("three", lambda two: two, expect=6.0)])
    record, _ = drive(plan, lambda prompt, _: Reply({"x": 8.0, "y": 10.0}[prompt], text="y"), Policy(4))
    told = record_of(plan)
    found = []
    for event in record.events:
        told.add(event)
        found.append((event.at_s, told["three"].status, remaining(told, event.at_s, History(), 4)))
    assert (0.0, "pending", (7.5, 30.0)) in found
    assert (8.0, "pending", (11.0, 44.0)) in found
    assert (18.0, "running", (6.0, 24.0)) in found


@pytest.mark.parametrize("seed", range(4))
def test_of_many_items_the_rest_is_known_from_the_first_tenth_on(seed: int) -> None:
    """Within a factor of 1.5, though answers of one prompt differ by ten and earlier ones were another matter."""
    items, slots = 300, 8
    rng = random.Random(seed)
    plan = Plan((Agent("label", "Which? {{ item }}", each="rows"),), values={"rows": ["x"] * items})
    record, _ = drive(plan, lambda _p, _n: Reply(rng.uniform(0.2, 2.0)), Policy(slots))
    told = record_of(plan)
    history = History(past("essay", *[20.0] * 20, simulated=True))
    end_s = record.events[-1].at_s
    seen = 0
    for event in record.events:
        told.add(event)
        done = sum(one.finished_s is not None for one in told.results)
        if isinstance(event, AgentEnded) and items // 10 <= done < items * 9 // 10 and not done % 20:
            low, high = remaining(told, event.at_s, history, slots) or (0.0, 0.0)
            left_s = end_s - event.at_s
            assert left_s / 1.5 <= (low + high) / 2 <= left_s * 1.5
            assert high <= 1.5 * low + 2.0
            seen += 1
    assert seen > 5


def run_on(truth: Server, concurrency: int, share: float = 1.0) -> tuple[RunRecord, float]:
    """Return a run of 24 rows on a server as it stands after a share of its seconds, and how many are left."""
    needs, tokens = drawn(4, 24)
    record = record_of(plan_of({f"row_{number}": () for number in range(len(needs))}))
    events: list[Event] = [AgentReady(0.0, agent) for agent in range(len(needs))]
    exchanges = sorted(served(needs, tokens, truth, concurrency), key=lambda one: one.sent_s)
    for agent, one in enumerate(exchanges):
        usage = Usage(one.input_tokens, output_tokens=one.output_tokens)
        answer = Answer("Good.", "end_turn", usage=usage, model=MODEL, source="live")
        told = answer, None, None, "", usage, Price(0.0, "given"), "live", 200
        events.append(AttemptStarted(one.sent_s, agent, 1, one.sent_s, "", REQUEST))
        events.append(FirstToken(one.first_s or 0.0, agent, 1))
        events += [AttemptEnded(one.ended_s, agent, 1, *told), AgentEnded(one.ended_s, agent, "succeeded", None)]
    wall_s = max(one.ended_s for one in exchanges)
    events.append(RunEnded(wall_s, cut=False))
    now_s = share * wall_s
    for event in sorted(events, key=lambda event: event.at_s):
        if event.at_s <= now_s:
            record.add(event)
    return record, wall_s - now_s


@pytest.mark.parametrize("truth", [Server(2.0), Server(full=1.5), Server(4.0, 2.0), CONSTANT])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_load_of_a_server_counts(truth: Server, share: float) -> None:
    """An earlier run at another concurrency and this one tell together how long the rest takes on their server."""
    for before, now in ((1, 8), (8, 1)):
        history = History()
        history.learn(run_on(truth, before)[0])
        record, left_s = run_on(truth, now, share)
        low, high = remaining(record, record.events[-1].at_s, history, now) or (0.0, 0.0)
        assert 0.7 * low <= left_s <= 1.4 * high, (before, now, low, left_s, high)
        if share > 0.1:
            assert high <= 2 * left_s + 1.0, (before, now, low, left_s, high)


def test_servers_are_fitted_in_steps_while_a_run_goes_on() -> None:
    """Calls that have no time compare one model each, and end with what a call finds that has all time."""
    history, other = History(), History()
    for each in (history, other):
        each.learn(run_on(Server(4.0, 2.0), 1)[0])
    record, _ = run_on(Server(4.0, 2.0), 8, 0.7)
    now_s = record.events[-1].at_s
    whole = remaining(record, now_s, history, 8)
    found = [remaining(record, now_s, other, 8, most_s=0.0) for _ in range(150)]
    assert None is not whole
    assert whole == found[-1]
    assert 20 < found.index(whole)
