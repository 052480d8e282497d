"""What holds for every forecast: held against a second simulator, against bounds, and against sums done by hand."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Agent, Policy, TokenPrice
from agent_magic.api import Run
from agent_magic.declare import Plan
from agent_magic.errors import Rejected
from tests.forecast.bruteforce import play
from tests.live.virtual import MODEL, Reply, drive

EIGHTHS = 8
"""Everything takes a whole number of eighths of a second, which the clock of a run can say exactly."""


@st.composite
def plans(draw, most=7):
    """Parents, durations in eighths, and who fails."""
    count = draw(st.integers(1, most))
    parents = [
        sorted(draw(st.sets(st.integers(0, agent - 1), max_size=3)) if agent else set()) for agent in range(count)
    ]
    takes = [draw(st.integers(1, 24)) for _ in range(count)]
    broken = draw(st.sets(st.integers(0, count - 1), max_size=2)) if draw(st.booleans()) else set()
    return parents, takes, broken


def declared(parents):
    """The plan with these edges."""
    asks = [" ".join(f"{{{{ a{parent} }}}}" for parent in before) for before in parents]
    return Plan([Agent(f"a{agent}", f"agent {agent}: {words}") for agent, words in enumerate(asks)])


def recorded(parents, takes, broken=(), policy=None):
    """A run of it."""

    def script(prompt, _):
        agent = int(prompt.split(":")[0].removeprefix("agent "))
        error = Rejected("no", status=400) if agent in broken else None
        tokens = (100 + agent, 10 * takes[agent], 0, 0)
        return Reply(takes[agent] / EIGHTHS, error, tokens=None if error else tokens, status=400 if error else 200)

    return Run(drive(declared(parents), script, policy or Policy(2, seed=1))[0])


@settings(max_examples=300)
@given(plans(), st.integers(1, 4), st.integers(1, 5), st.sampled_from(["ready", "layers"]))
def test_a_forecast_is_what_a_second_simulator_says(plan, slots, changed, schedule):
    """From a run with some slots, every start and end of a run with others, to the last bit."""
    parents, takes, broken = plan
    found = recorded(parents, takes, broken, Policy(slots, seed=1)).forecast(concurrency=changed, schedule=schedule)
    really = play(parents, takes, slots=changed, layers=schedule == "layers", broken=broken)
    spans = {bar.agent: (bar.started_s * EIGHTHS, bar.ended_s * EIGHTHS) for bar in found.record.attempts}
    assert {f"a{agent}": span for agent, span in really.spans.items()} == spans
    assert {f"a{agent}": status for agent, status in really.status.items()} == {
        one.name: one.status for one in found.record.results
    }
    assert really.wall == found.totals.wall_s * EIGHTHS


@given(plans(), st.integers(1, 5), st.sampled_from(["ready", "layers", "sequential"]))
def test_no_forecast_is_faster_than_its_path_or_its_work(plan, slots, schedule):
    """Neither the longest chain nor the work of all slots can be undercut, and one after another takes the sum."""
    parents, takes, _ = plan
    found = recorded(parents, takes).forecast(concurrency=slots, schedule=schedule)
    longest = [0] * len(takes)
    for agent, before in enumerate(parents):
        longest[agent] = takes[agent] + max((longest[parent] for parent in before), default=0)
    used = 1 if schedule == "sequential" else slots
    assert found.totals.wall_s * EIGHTHS >= max(*longest, math.ceil(sum(takes) / used))
    assert max(longest) == found.totals.critical_path_s * EIGHTHS
    assert sum(takes) == found.totals.agent_s * EIGHTHS
    if used == 1:
        assert sum(takes) == found.totals.wall_s * EIGHTHS


@given(st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_more_slots_never_slow_agents_that_wait_for_nobody(takes):
    """From one slot to one for each: never slower, and in the end as long as the longest."""
    frame = recorded([[]] * len(takes), takes).whatif(concurrency=list(range(1, len(takes) + 1)))
    assert frame["wall_s"].is_monotonic_decreasing
    assert [sum(takes), max(takes)] == [frame["wall_s"].iloc[place] * EIGHTHS for place in (0, -1)]


def test_more_slots_can_slow_agents_that_wait_for_others():
    """Graham's anomaly: whoever takes the third slot delays the longest agent. It is forecast, not hidden."""
    parents, takes = [[], [], [1], [0, 1], [], [], []], [1, 2, 4, 12, 1, 5, 5]
    frame = recorded(parents, takes).whatif(concurrency=[1, 2, 3, 4])
    assert [30, 16, 18, 14] == [play(parents, takes, slots=slots).wall for slots in (1, 2, 3, 4)]
    assert [30, 16, 18, 14] == [wall_s * EIGHTHS for wall_s in frame["wall_s"]]


@given(plans(), st.lists(st.sampled_from(["ready", "layers", "sequential"]), min_size=1, max_size=2, unique=True))
def test_tokens_and_dollars_do_not_depend_on_the_schedule(plan, schedules):
    """Who goes when changes seconds, and nothing else."""
    frame = recorded(*plan).whatif(concurrency=[1, 2, 5], schedule=schedules)
    for column in ("input_tokens", "output_tokens", "cost_usd", "succeeded"):
        assert 1 == frame[column].nunique(dropna=False)


@given(st.lists(st.integers(1, 900), min_size=1, max_size=6), st.tuples(*[st.floats(0.01, 100.0)] * 4))
def test_prices_agree_with_sums_by_hand(made, rates):
    """Dollars are tokens times prices, each kind with its own: the first one writes the cache, the others read it."""
    plan = Plan([Agent(f"a{agent}", f"{agent}", context="facts") for agent in range(len(made))], {"facts": "x" * 4000})

    def script(prompt, _):
        agent = int(prompt)
        return Reply(1.0, first_s=0.5, tokens=(10 + agent, made[agent], 1000 if agent else 0, 0 if agent else 1000))

    price = TokenPrice(rates[0], rates[1], cache_read=rates[2], cache_write=rates[3])
    row = Run(drive(plan, script, Policy(1, cache="on", seed=1))[0]).whatif(prices={MODEL: price}).iloc[0]
    tokens = {
        "input_tokens": sum(10 + agent for agent in range(len(made))),
        "output_tokens": sum(made),
        "cache_read_tokens": 1000 * (len(made) - 1),
        "cache_write_tokens": 1000,
    }
    assert tokens == {name: row[name] for name in tokens}
    by_hand = sum(count * rate for count, rate in zip(tokens.values(), rates, strict=True)) / 1e6
    assert by_hand == pytest.approx(row["cost_usd"], rel=1e-12)
