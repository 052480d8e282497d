"""Several endpoints behind one pacer."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Limits
from agent_magic.engine import Fault, Hold, Pacer, Ticket
from agent_magic.engine.pacing.pacer import ROUTES, Endpoints, Route, Router
from agent_magic.record import Ceiling

MODEL = "claude-haiku-5-5"


def router(weights: dict[str, float], route: Route = "least loaded", **rates: float) -> Router:
    """A router whose endpoints have these limits of requests per minute."""
    limits = {f"{name}/{MODEL}": Limits(requests=rate) for name, rate in rates.items()}
    return Router(Endpoints(weights, route), limits, seed=1)


def answered(pacer, ticket, now):
    """Answer a request."""
    pacer.heard(ticket, {}, now)
    pacer.finished(ticket, 10, 10, now)
    pacer.blamed(ticket, bad=False, now=now)


@settings(max_examples=60, deadline=None)
@given(
    route=st.sampled_from(ROUTES),
    rates=st.lists(st.integers(30, 3000), min_size=1, max_size=4),
    steps=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=40),
)
def test_nobody_waits_while_an_endpoint_has_room(route, rates, steps):
    """Who is held by the router would be held by each endpoint alone; whoever goes, goes where there is room."""
    names = [f"e{place}" for place in range(len(rates))]
    many = router(dict.fromkeys(names, 1.0), route, **dict(zip(names, rates, strict=True)))
    alone = {name: Pacer({MODEL: Limits(requests=rate)}, seed=1) for name, rate in zip(names, rates, strict=True)}
    now = 0.0
    for step in steps:
        now += step
        found = many.ask(MODEL, 10, 10, now)
        if isinstance(found, Hold):
            assert all(isinstance(one.ask(MODEL, 10, 10, now), Hold) for one in alone.values())
            assert found.until_s > now
            for one in alone.values():
                one.forgo(MODEL, 0)
            many.forgo(MODEL, 0)
            continue
        same = alone[found.pool.endpoint].ask(MODEL, 10, 10, now)
        assert isinstance(same, Ticket)
        answered(many, found, now)
        answered(alone[found.pool.endpoint], same, now)


@pytest.mark.parametrize("route", ["least loaded", "round robin"])
@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 2.0, "c": 5.0}])
def test_weights_hold_in_the_long_run(weights, route):
    """Where limits hold nobody, each gets its share, to a request."""
    pacer = router(weights, route, **dict.fromkeys(weights, 600_000))
    sent: Counter[str] = Counter()
    for second in range(400):
        ticket = pacer.ask(MODEL, 10, 10, float(second))
        assert isinstance(ticket, Ticket)
        sent[ticket.pool.endpoint] += 1
        answered(pacer, ticket, float(second))
    for name, weight in weights.items():
        assert 400 * weight / sum(weights.values()) == pytest.approx(sent[name], abs=2)


def test_in_order_the_next_endpoint_is_asked_only_where_the_first_has_no_room():
    """Such as the cheapest first."""
    pacer = router({"cheap": 1.0, "dear": 1.0}, "in order", cheap=600, dear=6000)
    first, second = pacer.ask(MODEL, 10, 10, 0.0), pacer.ask(MODEL, 10, 10, 0.0)
    assert isinstance(first, Ticket)
    assert isinstance(second, Ticket)
    assert ["cheap", "dear"] == [first.pool.endpoint, second.pool.endpoint]


def test_a_failing_endpoint_is_left_out_for_a_while_and_tried_again():
    """Two failures open its breaker; a probe that is answered closes it."""
    pacer = router({"a": 1.0, "b": 1.0}, "in order", a=600_000, b=600_000)
    for now in (0.0, 1.0):
        ticket = pacer.ask(MODEL, 10, 10, now)
        assert isinstance(ticket, Ticket)
        assert ticket.pool.endpoint == "a"
        pacer.finished(ticket, None, None, now)
        pacer.blamed(ticket, Fault("down"), now)
    other = pacer.ask(MODEL, 10, 10, 1.5)
    assert isinstance(other, Ticket)
    assert other.pool.endpoint == "b"
    probe = pacer.ask(MODEL, 10, 10, 2.5)
    assert isinstance(probe, Ticket)
    assert probe.pool.endpoint == "a"
    answered(pacer, probe, 2.6)
    again = pacer.ask(MODEL, 10, 10, 3.0)
    assert isinstance(again, Ticket)
    assert again.pool.endpoint == "a"


def test_an_endpoint_that_refuses_us_is_left_out_and_the_last_one_stays():
    """Somebody has to say that nobody takes the key."""
    endpoints = Endpoints({"a": 1.0, "b": 1.0}, "least loaded")
    assert endpoints.leave_out("a", "401")
    assert not endpoints.leave_out("b", "401")
    assert endpoints.inside == ["b"]
    ticket = Router(endpoints).ask(MODEL, 10, 10, 0.0)
    assert isinstance(ticket, Ticket)
    assert ticket.pool.endpoint == "b"


def test_a_forecast_takes_the_limits_of_all_together():
    """Limits that are given for a model count for each endpoint."""
    pacer = Router(Endpoints({"a": 1.0, "b": 1.0}, "least loaded"), {MODEL: Limits(requests=60)})
    pacer.ask(MODEL, 10, 10, 0.0)
    assert {MODEL: {"requests": Ceiling(120.0, 2.0)}} == pacer.ceilings()
