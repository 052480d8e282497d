"""Forecasts against the live driver on the same virtual clock, under the stand-in's own limits, cache and faults.

The two share the conductor and the pacer, and nothing else: whoever admits, bills, refuses and writes headers is the
stand-in on one side and the model of it on the other. So they agree to the grain of the clock, or one of them is wrong.

Limits on output are the exception. The stand-in counts an answer piece by piece, and a forecast cannot know the pieces:
it counts evenly. Some milliseconds then decide which of two agents goes first, and with another order the same work may
take a tenth longer or shorter. A single run says nothing there; several show that the forecast takes no side. Of 150
seeds, for a diamond under an output limit, the error was 0.2 % in the median, 0.2 % on the average, 10 % at most.
"""

# Options are handed over as keywords from dictionaries.
# pyright: reportArgumentType=false

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from statistics import fmean, median
from typing import Annotated, Literal, TypedDict

import pytest
from pydantic import Field

from agent_magic import Agent, Policy
from agent_magic.api import Run
from agent_magic.declare import Plan
from tests.forecast.standin import StandIn, run_on

CLOSE, CLOSE_REFUSED, CLOSE_FAILING = 0.001, 0.01, 0.05
MEDIAN, MEAN, MOST = 0.02, 0.025, 0.12
"""How far forecasts of several runs may be off whose output is limited: in the median, on the average, and each."""
CONTEXT = "The service keeps accounts, moves money between them and reports on both. " * 200
BASE = Policy(4, seed=1)
LATENCY, SEED, SEEDS = "x0.4", 6, range(5)
FAILS_ONCE = "[[status:529 times=1]]"


def length(lot):
    """A length of an answer."""
    return f"[[tokens:{lot.randrange(20, 300)}]]"


def reduced(count, context=False, fault=""):
    """Many agents side by side, three that read a third of them each, one that reads those."""
    lot, shared = Random(count), {"context": "doc"} if context else {}
    maps = [Agent(f"m{n}", f"Map {n} {fault if n % 4 == 1 else ''} {length(lot)}", **shared) for n in range(count)]
    thirds = [" ".join(f"{{{{ m{n} }}}}" for n in range(part, count, 3)) for part in range(3)]
    joins = [Agent(f"r{part}", f"Join {those} {length(lot)}") for part, those in enumerate(thirds)]
    last = Agent("all", f"All {{{{ r0 }}}} {{{{ r1 }}}} {{{{ r2 }}}} {length(lot)}", **shared)
    return Plan([*maps, *joins, last], {"doc": CONTEXT} if context else {})


def chain(count):
    """One after another."""
    lot = Random(count)
    before = ["", *(f"{{{{ s{n} }}}}" for n in range(count - 1))]
    return Plan([Agent(f"s{n}", f"Step {n} {text} {length(lot)}") for n, text in enumerate(before)])


def diamond(count):
    """One, then many of two models, then one."""
    lot, models = Random(count), ("claude-haiku-5-5", "claude-sonnet-5-5")
    middle = [Agent(f"m{n}", f"Look {{{{ top }}}} {n} {length(lot)}", model=models[n % 2]) for n in range(count)]
    end = Agent("end", " ".join(f"{{{{ m{n} }}}}" for n in range(count)) + length(lot))
    return Plan([Agent("top", f"Begin {length(lot)}"), *middle, end])


class Label(TypedDict):
    """A label, and how sure it is."""

    mood: Literal["positive", "negative", "mixed"]
    confidence: Annotated[float, Field(ge=0, le=1)]


def cascade(count):
    """Side by side, each by a cheap model, and by a dear one where that is not sure; then one that reads all."""
    models = {"cascade": ["claude-haiku-5-5", "claude-sonnet-5-5"], "escalate": "answer.confidence < 0.7"}
    labels = [Agent(f"l{n}", f"Label review {n}: great value.", returns=Label, **models) for n in range(count)]
    return Plan([*labels, Agent("end", " ".join(f"{{{{ l{n}.mood }}}}" for n in range(count)))])


PLANS = {
    "chain": chain(6),
    "diamond": diamond(12),
    "reduced": reduced(20),
    "cached": reduced(16, context=True),
    "failing": reduced(16, context=True, fault=FAILS_ONCE),
    "escalating": cascade(16),
}
CASES = {
    "as recorded": ({}, {}),
    "wider": ({"concurrency": 12}, {}),
    "layers": ({"schedule": "layers"}, {}),
    "requests": ({"limits": 150}, {"rpm": 150}),
    "input": ({"limits": {"input_tokens": 60_000}}, {"itpm": 60_000}),
    "a full minute": (
        {"limits": {"input_tokens": 20_000, "burst_s": 60.0}, "concurrency": 10},
        {"itpm": 20_000, "burst_s": 60.0},
    ),
    "no limits": ({"limits": "none", "concurrency": 12}, {"unlimited": True}),
    "uncached": ({"cache": "off", "limits": {"input_tokens": 100_000}}, {"itpm": 100_000}),
    "an hour": ({"cache": "on", "cache_ttl": "1h"}, {}),
}
OUTPUT_CASES = {
    "output": ({"limits": {"output_tokens": 20_000}}, {"otpm": 20_000}),
    "all three": (
        {"limits": {"requests": 200, "input_tokens": 20_000, "output_tokens": 20_000}, "concurrency": 12},
        {"rpm": 200, "itpm": 20_000, "otpm": 20_000},
    ),
}
IN_POLICY = ("concurrency", "schedule", "cache", "cache_ttl", "max_usd_per_min", "breaker_share", "budget_usd")


@cache
def recorded(name, seed=SEED):
    """A run of a plan that nothing limited."""
    return Run(run_on(StandIn(latency=LATENCY, seed=seed), PLANS[name], BASE))


def real(name, asked, limits, seed=SEED):
    """The run that was asked about."""
    policy = replace(BASE, **{word: value for word, value in asked.items() if word in IN_POLICY})
    return Run(run_on(StandIn(latency=LATENCY, seed=seed, **limits), PLANS[name], policy))


def refusals(run):
    """Its 429s."""
    return sum(attempt.kind == "RateLimited" for attempt in run.record.attempts)


def same_money(found, run):
    """Compare dollars, and tokens written to the cache and read from it."""
    assert run.totals.cost_usd == pytest.approx(found.totals.cost_usd)
    for word in ("cache_read_tokens", "cache_write_tokens"):
        assert run.attempts[word].sum() == (getattr(found.totals, word) or 0)


def takes_no_side(pairs):
    """Compare the seconds of several forecasts with those of their runs."""
    errors = [found.totals.wall_s / run.totals.wall_s - 1 for found, run in pairs]
    assert median(map(abs, errors)) <= MEDIAN, errors
    assert abs(fmean(errors)) <= MEAN, errors
    assert max(map(abs, errors)) <= MOST, errors


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PLANS)
def test_a_forecast_is_what_a_run_then_takes(name, case):
    """Seconds, dollars, tokens from the cache and refusals."""
    asked, limits = CASES[case]
    found, run = recorded(name).forecast(**asked), real(name, asked, limits)
    # Who is refused when is a matter of milliseconds. Where agents fail at one time, who is first draws the first wait.
    rough = CLOSE_FAILING if name == "failing" else CLOSE_REFUSED if refusals(run) else CLOSE
    assert run.totals.wall_s == pytest.approx(found.totals.wall_s, rel=rough)
    same_money(found, run)
    assert refusals(run) == found.totals.rate_limited


@pytest.mark.parametrize("case", OUTPUT_CASES)
@pytest.mark.parametrize("name", PLANS)
def test_forecasts_of_limited_output_take_no_side(name, case):
    """Each costs what the run costs; seconds and refusals are right in the median."""
    asked, limits = OUTPUT_CASES[case]
    pairs = [(recorded(name, seed).forecast(**asked), real(name, asked, limits, seed)) for seed in SEEDS]
    takes_no_side(pairs)
    for found, run in pairs:
        same_money(found, run)
    assert 0 == median(abs(refusals(run) - found.totals.rate_limited) for found, run in pairs)


@cache
def unlearned(name, policy, before, seed):
    """A run that was told of no limits: it learns them, or has learned them from another run before."""
    client = StandIn(latency=LATENCY, seed=seed, rpm=240, otpm=40_000)
    return Run(run_on(client, PLANS[name], policy, None if before is None else PLANS[before]))


@pytest.mark.parametrize(
    ("before", "asked"),
    [(None, {"concurrency": 12}), (None, {"schedule": "layers"}), (None, {"cache": "off"}), ("reduced", {})],
    ids=str,
)
@pytest.mark.parametrize("name", PLANS)
def test_limits_that_were_learned_hold_a_forecast_as_they_held_the_run(name, before, asked):
    """Nobody was told of the limits, whose buckets hold a second: by what was announced they are known well enough."""
    policy = replace(BASE, **asked)
    runs = [(unlearned(name, BASE, before, seed), unlearned(name, policy, before, seed)) for seed in SEEDS]
    pairs = [(one.forecast(**asked), run) for one, run in runs]
    takes_no_side(pairs)
    for found, run in pairs:
        assert run.totals.cost_usd == pytest.approx(found.totals.cost_usd)


@pytest.mark.parametrize(
    "policy",
    [
        {"max_usd_per_min": 0.004},
        {"max_usd_per_min": 0.02, "concurrency": 12},
        {"breaker_share": 0.05},
        {"breaker_share": 0.1, "concurrency": 12},
        {"budget_usd": 0.012},
        {"budget_usd": 0.02, "concurrency": 12},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["cached", "failing"])
def test_breakers_and_budgets_hold_a_forecast_as_they_hold_a_run(name, policy):
    """What a request may cost at most has the cache write in it, and breakers open for the same failures."""
    found = recorded(name).forecast(replace(BASE, **policy))
    run = real(name, policy, {})
    assert run.totals.wall_s == pytest.approx(found.totals.wall_s, rel=CLOSE)
    assert run.totals.cost_usd == pytest.approx(found.totals.cost_usd)
    assert dict(zip(run.agents["agent"], run.agents["status"], strict=True)) == {
        one.name: one.status for one in found.record.results
    }


def test_a_cache_for_an_hour_is_dearer_to_write():
    """One frame prices both lives of the same tokens: twice the input in place of 1.25 times."""
    frame = recorded("cached").whatif(cache="on", cache_ttl=["5m", "1h"])
    [written] = set(frame["cache_write_tokens"])
    short, long = frame["cost_usd"]
    assert ["5m", "1h"] == list(frame["cache_ttl"])
    assert long - short == pytest.approx(written * (2 - 1.25) * 0.1 / 1e6)


def test_some_of_the_cascade_escalate():
    """And some do not: otherwise its cases would say little."""
    moved = [one.moved_by for one in recorded("escalating").record.results[:-1]]
    assert {"", "escalated"} == set(moved)
