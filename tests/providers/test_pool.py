"""Several accounts or servers as one provider."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import agent_magic as am
from agent_magic.api.session import Session
from agent_magic.errors import DeclarationError, Rejected, Unreachable
from agent_magic.providers.base import Provider, Stream
from agent_magic.record.answer import Answer, Usage
from agent_magic.record.request import Request


class Member(Provider):
    """Answers at once, or raises."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.endpoint, self.error, self.asked = name, error, 0

    async def send(self, request: Request, stream: Stream) -> Answer:
        """Answer."""
        self.asked += 1
        if self.error is not None:
            raise self.error
        stream.replied(200)
        stream.opened()
        stream.add("yes")
        return Answer("yes", "end_turn", usage=Usage(10, output_tokens=2), model=request.model, source="live")


def plan(agents: int) -> am.Plan:
    """Return a plan of agents that wait for nobody."""
    return am.Plan(
        [am.Agent("a", "Hello {{ item }}.", each="rows", model="m", max_tokens=5)], {"rows": [*range(agents)]}
    )


def run_at(pool: am.Pool, agents: int = 12) -> tuple[am.Run, Session]:
    """Run a plan at a pool."""
    session = Session(client=pool, prices={"m": am.TokenPrice(1, 5)})
    return asyncio.run(plan(agents).run(am.Policy(4, seed=1), session=session)), session


def test_each_request_says_where_it_went(tmp_path):
    """A column of `run.attempts`, in a cassette too; a replay asks none of them."""
    members = {"one": Member("http://one"), "two": Member("http://two")}
    run, _ = run_at(am.Pool(members))
    went = Counter(run.attempts["endpoint"])
    assert {name: one.asked for name, one in members.items()} == went
    assert {"one": 6, "two": 6} == went
    run.save(tmp_path / "run.jsonl")
    again = plan(12).replay(tmp_path / "run.jsonl")
    assert went == Counter(again.attempts["endpoint"])
    assert {"one": 6, "two": 6} == {name: one.asked for name, one in members.items()}


@pytest.mark.parametrize("status", [401, 403])
def test_one_that_refuses_the_key_is_left_out_and_said(status):
    """What it was asked goes to another one; only the last one may end the run."""
    pool = am.Pool({"one": Member("one", Rejected("no such key", status=status)), "two": Member("two")})
    run, _ = run_at(pool)
    assert run.ok
    failed = run.attempts[run.attempts["status"] == "failed"]
    assert {"one"} == set(failed["endpoint"])
    assert {"LeftOut"} == set(failed["error_class"])
    assert {"two"} == set(run.attempts.loc[run.attempts["status"] == "succeeded", "endpoint"])
    again, _ = run_at(pool)
    assert {"two"} == set(again.attempts["endpoint"])


def test_where_all_refuse_the_key_the_run_ends_with_its_reason():
    """As with one provider."""
    refused = Rejected("no such key", status=401)
    run, _ = run_at(am.Pool({"one": Member("one", refused), "two": Member("two", refused)}))
    assert not run.ok
    assert "Rejected" in set(run.attempts["error_class"])


def test_what_a_dead_endpoint_was_asked_goes_to_another_one():
    """It answers fastest, and is left out after two failures: no agent fails because of it."""
    dead = Member("one", Unreachable("no connection", sent=False))
    run, _ = run_at(am.Pool({"one": dead, "two": Member("two")}), agents=30)
    assert run.ok
    assert dead.asked < 10


def test_a_note_says_once_who_is_left_out():
    """After the run."""
    pool = am.Pool({"one": Member("one", Rejected("no such key", status=401)), "two": Member("two")})
    session = Session(client=pool, prices={"m": am.TokenPrice(1, 5)})
    asyncio.run(am.start(plan(3), session=session).drive())
    assert ["the endpoint one is left out: no such key"] == [*pool.take_notes()]
    assert not pool.take_notes()


@pytest.mark.parametrize(
    ("members", "options", "why"),
    [
        ({}, {}, "members must be"),
        ({"a": 1}, {}, "is no provider"),
        ({"a/b": Member("x")}, {}, "a name has no '/'"),
        ({"a": Member("x")}, {"weights": {"b": 1}}, "weights must be one of a"),
        ({"a": Member("x")}, {"weights": {"a": 0}}, "must be a number > 0"),
        ({"a": Member("x")}, {"route": "random"}, "route must be one of"),
    ],
)
def test_a_pool_that_cannot_be_is_said_when_it_is_made(members, options, why):
    """Before anything is sent."""
    with pytest.raises(DeclarationError, match=why):
        am.Pool(members, **options)


def test_two_servers_with_different_limits_are_used_up_together_without_a_refusal():
    """Real HTTP: nothing is refused, each has what its limit allows, and a forecast is right within a tenth."""
    with am.Simulator(latency="none", rpm=300) as small, am.Simulator(latency="none", rpm=3000) as large:
        servers = {"small": small.url, "large": large.url}
        pool = am.Pool({name: am.Claude(base_url=url, api_key="any-key-at-all") for name, url in servers.items()})
        agents = am.Plan([am.Agent("a", "Hello {{ item }}.", each="rows", max_tokens=5)], {"rows": [*range(130)]})
        run = asyncio.run(agents.run(am.Policy(8, seed=1), session=Session(client=pool)))
    went = Counter(run.attempts["endpoint"])
    assert (130, 0) == (run.totals.succeeded, run.totals.rate_limited)
    assert 6 <= went["small"] <= 24  # a tenth of what the other one may have, and what it had saved up
    forecast = run.whatif(concurrency=8)
    assert run.totals.wall_s == pytest.approx(forecast.loc[0, "wall_s"], rel=0.1)
