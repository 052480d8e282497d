"""Forecasts against what really happens when a plan runs that way, on virtual time."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

import agent_magic as am
from agent_magic import Agent, Policy, TokenPrice
from agent_magic.api import Run
from agent_magic.declare import Plan
from agent_magic.engine import Key, Pacer
from agent_magic.engine.admission.pool import PATIENCE_S
from agent_magic.errors import DeclarationError, Overloaded, UnknownAgent
from agent_magic.forecast import Forecaster, Scenario
from agent_magic.live import Earlier
from agent_magic.measure import summarize
from agent_magic.record import History, answers_of
from tests.live.virtual import MODEL, Reply, Scripted, drive

TICK_S = 1e-4
"""The live clock has a grid, and every event of a run rounds to it."""
PLAN = Plan([Agent(f"a{i}", f"x{i}" + (f" {{{{ a{i // 2 - 1} }}}}" if i >= 4 else "")) for i in range(30)])


def scripted(prompt, number):
    """Answer by what is asked: some fail once, all take their own time."""
    lot = random.Random(f"{prompt}/{number}")
    if number == 1 and lot.random() < 0.15:
        return Reply(lot.random(), Overloaded("busy", status=529, retry_after_s=None), tokens=None, status=529)
    return Reply(1 + lot.random() * 4, first_s=lot.random(), tokens=(100, lot.randrange(50, 900), 0, 0))


def forecast(record, policy=None):
    """The forecast of a policy."""
    return Forecaster(record).forecast(Scenario(policy))


@pytest.fixture(scope="module")
def record():
    """A run with failures that were repeated."""
    return drive(PLAN, scripted, Policy(4, seed=7), pacer=Pacer())[0]


def test_the_recorded_policy_gives_the_recorded_run(record):
    """Time, dollars, tokens and waiting come out as they were."""
    was, found = summarize(record), forecast(record)
    assert any(len(result.attempts) > 1 for result in record.results)
    assert was.wall_s == pytest.approx(found.wall_s, abs=TICK_S)
    assert was.cost_usd == pytest.approx(found.cost_usd)
    assert (was.input_tokens, was.output_tokens) == (found.totals.input_tokens, found.totals.output_tokens)
    assert was.agent_s == pytest.approx(found.totals.agent_s, abs=TICK_S)
    assert was.critical_path_s == pytest.approx(found.totals.critical_path_s, abs=TICK_S)
    assert was.limited_by == found.totals.limited_by
    assert found.note.basis == "measured"
    assert sum(result.queued_s for result in record.results) == pytest.approx(found.totals.queued_s, abs=TICK_S)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(1, seed=7),
        Policy(2, seed=7),
        Policy(30, seed=7),
        Policy(3, schedule="layers", seed=7),
        Policy(8, schedule="sequential", seed=7),
    ],
    ids=str,
)
def test_another_policy_gives_what_a_run_of_it_takes(record, policy):
    """The forecast of a policy is the run of that policy: the same conductor decides both."""
    really, _ = drive(PLAN, scripted, policy, pacer=Pacer())
    found = forecast(record, policy)
    assert summarize(really).wall_s == pytest.approx(found.wall_s, abs=0.3)  # the order of failures draws the jitter
    assert summarize(really).cost_usd == pytest.approx(found.cost_usd)


def test_a_frame_has_a_row_for_each_combination(record):
    """The last argument changes fastest; what was asked is in columns named as the arguments, the rest in `attrs`."""
    frame = Run(record).whatif(concurrency=[1, 4], schedule=["ready", "layers"])
    assert [(1, "ready"), (1, "layers"), (4, "ready"), (4, "layers")] == list(
        frame[["concurrency", "schedule"]].itertuples(index=False, name=None)
    )
    assert ["concurrency", "schedule", "wall_s", "cost_usd"] == list(frame.columns[:4])
    assert (MODEL, "auto", "off") == tuple(frame.attrs["unchanged"][name] for name in ("model", "cache", "batch"))
    assert frame["cost_multiple"].isna().all()  # nobody ran a baseline


def test_a_batch_costs_half_and_takes_hours(record):
    """Half the dollars of the answers, an hour for each layer, a day for each at the most."""
    row = Run(record).whatif(batch=True).iloc[0]
    live = forecast(record)
    answered = sum(bar.price.cost_usd or 0.0 for bar in live.record.attempts if bar.status == "succeeded")
    assert answered / 2 == pytest.approx(row["cost_usd"])
    assert row["wall_s"] == PLAN.depth * 3600
    assert row["wall_high_s"] == PLAN.depth * 86400
    assert row["wall_low_s"] == PLAN.depth * 900
    assert row["basis"] == "assumed"


def test_every_setting_is_a_row(record):
    """What was asked is in the row, also where a batch has no use for it: then the numbers are the same."""
    frame = Run(record).whatif(batch=[True, False], concurrency=[1, 8])
    assert [("on", 1), ("off", 1), ("on", 8), ("off", 8)] == list(
        zip(frame["batch"], frame["concurrency"], strict=True)
    )
    assert 1 == frame.loc[frame["batch"] == "on", ["wall_s", "cost_usd"]].drop_duplicates().shape[0]


def test_prices_are_exchanged(record):
    """Given prices count for the recorded tokens: a sum that can be done by hand."""
    row = Run(record).whatif(prices={MODEL: TokenPrice(2.0, 10.0)}).iloc[0]
    assert row["input_tokens"] * 2e-6 + row["output_tokens"] * 1e-5 == pytest.approx(row["cost_usd"])


def test_models_of_some_agents_are_said_once_each(record):
    """Beginning with the model, so that a label that is cut short still says it."""
    given = {"a1": "claude-opus-4-5", "a2": "claude-sonnet-4-5", "a3": "claude-opus-4-5"}
    row = Run(record).whatif(model=given).iloc[0]
    assert f"claude-opus-4-5 for a1, a3; claude-sonnet-4-5 for a2; {MODEL} for the rest" == row["model"]


def test_a_dropped_agent_costs_nothing_and_nobody_waits_for_it(record):
    """What its children had of its answer is taken out of their prompts."""
    frame = Run(record).whatif(drop=[None, "a1", ("a1", "a2")])
    assert [30, 29, 28] == list(frame["succeeded"])
    assert frame["input_tokens"].is_monotonic_decreasing
    assert "a1" not in forecast_names(record, drop="a1")


def forecast_names(record, **changes):
    """The agents of a forecast's bars."""
    return {bar.agent for bar in Run(record).forecast(**changes).record.attempts}


@pytest.mark.parametrize("schedule", ["ready", "layers", "sequential"])
@pytest.mark.parametrize("more", [{}, {"limits": {"requests": 60, "burst_s": 30.0}}], ids=str)
def test_what_needs_no_more_slots_is_not_turned_again(record, schedule, more):
    """A forecast that stands on one with fewer slots is the one that it would have been by itself."""
    frame = Run(record).whatif(concurrency=[40, 3, 12, 8, 31, 1, 2], schedule=schedule, **more)
    for place, slots in enumerate(frame["concurrency"]):
        alone = Run(record).whatif(concurrency=slots, schedule=schedule, **more)
        assert_frame_equal(alone, frame.iloc[[place]].reset_index(drop=True))


@pytest.mark.parametrize("takes_s", [0.2, 3.0])
def test_a_key_that_was_untried_holds_the_forecast_as_it_held_the_run(takes_s):
    """The first request goes ahead alone until its reply, or half a second, whatever the policy."""
    plan = Plan([Agent(f"a{i}", f"x{i}") for i in range(6)])

    def ran(concurrency, *, tried):
        key = Key()
        key.accepted = tried
        client = Scripted(lambda *_: Reply(takes_s), credentials=key)
        return drive(plan, client, Policy(concurrency, seed=7))[0]

    first, later = ran(2, tried=False), ran(2, tried=True)
    for record, tried in ((first, False), (later, True)):
        for concurrency in (1, 2, 6):
            really = summarize(ran(concurrency, tried=tried)).wall_s
            assert really == pytest.approx(forecast(record, Policy(concurrency, seed=7)).wall_s, abs=TICK_S)
    assert forecast(later, Policy(6, seed=7)).wall_s == pytest.approx(takes_s, abs=TICK_S)
    assert forecast(first, Policy(6, seed=7)).wall_s == pytest.approx(takes_s + min(takes_s, PATIENCE_S), abs=TICK_S)


@pytest.mark.parametrize(
    ("given", "error", "meant"),
    [
        ({"concurency": 3}, DeclarationError, "'concurrency'"),
        ({"model": "claude-hiku-5-5"}, DeclarationError, "'claude-haiku-5-5'"),
        ({"model": {"a33": "claude-opus-5-5"}}, UnknownAgent, "'a3'"),
        ({"drop": "a1x"}, UnknownAgent, "'a1'"),
        ({"schedule": "layer"}, DeclarationError, "'layers'"),
        ({"effort": "hihg"}, DeclarationError, "'high'"),
        ({"limits": {"request": 4}}, DeclarationError, "'requests'"),
        ({"concurrency": 0}, DeclarationError, "integer >= 1"),
        ({"cache": "yes"}, DeclarationError, "auto"),
        ({"cache_ttl": "2h"}, DeclarationError, "5m"),
        ({"batch": 1}, DeclarationError, "True, False, on, off or auto"),
        ({"model": []}, DeclarationError, "Leave it out"),
        ({"prices": {"x": 2}}, DeclarationError, "TokenPrice"),
        ({"drop": tuple(PLAN.names)}, DeclarationError, "no agent"),
        ({"drop": 3}, DeclarationError, "a tuple"),
        ({"drop": ("a1", 3)}, DeclarationError, "a tuple"),
        ({"concurrency": {"a1": 2}}, DeclarationError, "one value"),
        ({"cache_ttl": ("5m", "1h")}, DeclarationError, "a list"),
        ({"model": "claude-haiku"}, DeclarationError, "'claude-haiku-"),
    ],
    ids=str,
)
def test_a_wrong_argument_says_what_was_meant(record, given, error, meant):
    """Nothing is guessed: the error names the value and the nearest one that is known."""
    with pytest.raises(error) as raised:
        Run(record).whatif(**given)
    assert meant in str(raised.value)


def test_requests_per_minute_hold_a_run(record):
    """Thirty requests at ten a minute, one at once: nothing can be faster than the bucket fills."""
    found = Run(record).forecast(replace(Policy(8), seed=7), limits=10)
    admitted = [
        bar.started_s for bar in found.record.attempts if bar.status == "succeeded"
    ]  # what is turned away takes nothing
    assert found.totals.limited_by == "requests"
    assert found.totals.wall_s >= (len(admitted) - 1) * 6.0
    for place in range(len(admitted)):
        window = [at for at in admitted if admitted[place] <= at < admitted[place] + 60.0]
        assert len(window) <= 11


def test_answers_that_were_bought_before_are_forecast_as_if_bought_now(record):
    """A run that took everything over took no time and no dollars: a what-if of it says what asking again would."""
    plan = Plan([Agent("a", "x"), Agent("b", "y {{ a }}")])
    first = drive(
        plan, lambda *_: Reply(4.0, first_s=1.0, tokens=(100, 300, 0, 0), source="simulated"), Policy(2, seed=7)
    )[0]
    earlier = Earlier(first, "scripted", plan=plan)
    again = drive(plan, lambda *_: Reply(4.0), Policy(2, seed=7), earlier=earlier)[0]
    assert again.served
    assert 0.0 == summarize(again).cost_usd
    found = Run(again, history=History([*answers_of(first)])).forecast()
    assert summarize(first).wall_s == pytest.approx(found.totals.wall_s, rel=0.01)
    assert summarize(first).cost_usd == pytest.approx(found.totals.cost_usd)
    assert "ledger" == found.record.forecast.basis
    assert "4.0 s–16.0 s, from earlier answers" in repr(found)


def slow_task(number, **options):
    """A task of two seconds."""

    async def wait():
        await asyncio.sleep(2)

    wait.__name__ = f"t{number}"
    return am.task(wait, **options)


@pytest.mark.parametrize(
    ("agents", "schedule"),
    [
        ([slow_task(one) for one in range(6)], "ready"),
        ([slow_task(0), am.Agent("a", "x"), *(slow_task(one) for one in (1, 2, 3))], "ready"),
        ([am.Agent(f"a{one}", f"x{one}", after=[f"a{one - 1}"] if one % 2 else []) for one in range(6)], "groups"),
    ],
    ids=["tasks", "tasks and an agent", "groups"],
)
def test_a_list_of_concurrencies_is_as_each_alone(agents, schedule):
    """Whatever takes slots: requests, tasks, or groups of as many steps."""
    run = Run(drive(am.Plan(agents), lambda *_: Reply(1.0), Policy(2, seed=1))[0])
    alone = [run.forecast(concurrency=one, schedule=schedule).totals.wall_s or 0.0 for one in (1, 2, 3, 6)]
    assert alone == run.whatif(concurrency=[1, 2, 3, 6], schedule=schedule)["wall_s"].tolist()
    assert alone == sorted(alone, reverse=True)
    assert alone[0] > alone[-1]


HOLDS: dict[str, list[dict[str, Any]]] = {
    "a file": [{"writes": ["src/a.py"]}] * 4,
    "a folder": [*[{"writes": ["src"]}] * 3, {"writes": ["src/b.py"]}],
    "amounts": [{"uses_resources": ["room:50MB"]}] * 4,
    "tasks": [{"uses": "one place"}] * 4,
}


def holding(kind: str) -> am.Plan:
    """Four steps of two seconds that hold these."""
    am.resource("one place", 1)
    am.resource("room", 100, unit="MB")
    make: Any = slow_task if kind == "tasks" else lambda one, **options: am.Agent(f"a{one}", f"x{one}", **options)
    return am.Plan([make(one, **options) for one, options in enumerate(HOLDS[kind])])


@pytest.mark.parametrize("kind", HOLDS)
def test_a_forecast_keeps_what_steps_hold(kind):
    """Who waits for a file or a resource in the run waits in its forecasts, and in the plan before it."""
    plan, wall_s = holding(kind), 4.0 if kind == "amounts" else 8.0
    run = Run(drive(plan, lambda *_: Reply(2.0), Policy(4, seed=1))[0])
    assert (wall_s, "resource") == (run.totals.wall_s, run.totals.limited_by)
    for concurrency in (4, 8):
        found = run.forecast(concurrency=concurrency).totals
        assert (wall_s, "resource") == (found.wall_s, found.limited_by)
    if kind != "tasks":
        before = plan.estimate()
        each_s = before.expected[0].seconds.likely
        assert wall_s / 2 * each_s == pytest.approx(before.wall_s.likely, rel=0.05)
        assert "resource" == before.limited_by
