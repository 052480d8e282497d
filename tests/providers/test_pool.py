"""Several accounts or servers as one provider."""

# A run that is over has its totals, and a forecast its record.
# pyright: reportOptionalMemberAccess=false, reportOptionalIterable=false, reportOptionalOperand=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

import agent_magic as am
from agent_magic import Session
from agent_magic.errors import DeclarationError, Rejected, Unreachable
from agent_magic.forecast import Scenario
from agent_magic.providers import Provider, Stream
from agent_magic.record import Answer, Request, Usage


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


class Reached(Member):
    """Can be tried."""

    async def reach(self, request: Request) -> str:
        """Say what was tried."""
        if self.error is not None:
            raise self.error
        return f"it knows {request.model}"


def test_a_pool_is_reached_if_each_member_is():
    """Each is tried by a model of its own; what is wrong names the member."""
    lab = Reached("http://lab")
    lab.models = ("own",)
    pool = am.Pool({"work": Reached("http://work"), "lab": lab, "old": Member("http://old")})
    request = Request("m", "x", 1)
    assert "work: it knows m; lab: it knows m; old: not tried" == asyncio.run(pool.reach(request))
    assert "" == asyncio.run(am.Pool({"old": Member("http://old")}).reach(request))
    gone = am.Pool({"work": Reached("http://work"), "lab": Reached("http://lab", Unreachable("No reply."))})
    with pytest.raises(Unreachable, match="lab: No reply"):
        asyncio.run(gone.reach(request))


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


def test_a_what_if_gives_requests_to_endpoints_as_another_route_would(tmp_path):
    """The endpoints and their weights are in the record, so a file that is opened elsewhere can be asked too."""
    members = {"one": Member("http://one"), "two": Member("http://two")}
    ran, _ = run_at(am.Pool(members, weights={"one": 2.0}, route="round robin"))
    ran.save(tmp_path / "run.jsonl")
    other, _ = run_at(am.Pool(members, weights={"one": 2.0}, route="in order"))
    in_order = Counter(other.attempts["endpoint"])
    assert in_order["one"] >= 11, "before the first reply says its limits, one request may go to the next"
    for run in (ran, plan(12).replay(tmp_path / "run.jsonl")):
        assert {"one": 8, "two": 4} == Counter(run.forecast().attempts["endpoint"])
        assert in_order == Counter(run.forecast(route="in order").attempts["endpoint"])
        frame = run.whatif(route=["in order", "round robin"])
        assert ["in order", "round robin"] == list(frame["route"])
        assert "round robin" == run.whatif(concurrency=2).attrs["unchanged"]["route"]


def test_a_context_is_written_at_each_endpoint_of_a_forecast_too():
    """Each has a cache of its own: where all go to one endpoint it is written once."""
    text = " ".join(f"fact {number} of the report" for number in range(1500))
    agents = am.Agent("label", "Question {{ item }}. [[tokens:20]]", each="rows", max_tokens=50, context="report")
    asked = am.Plan([agents], {"rows": [*range(8)], "report": text})
    written: dict[str, int] = {}
    for route in ("round robin", "in order"):
        with am.Simulator(latency="none") as work, am.Simulator(latency="none") as lab:
            members = {"work": work, "lab": lab}
            pool = am.Pool(
                {name: am.Claude(base_url=one.url, api_key=name) for name, one in members.items()}, route=route
            )
            run = asyncio.run(asked.run(am.Policy(1, seed=1), client=pool))
        written[route] = int(run.attempts["cache_write_tokens"].sum())
        for other in ("round robin", "in order"):
            if other in written:
                found = run.forecast(route=other)
                assert written[other] == int(found.attempts["cache_write_tokens"].sum())
        assert run.totals.cost_usd == pytest.approx(run.forecast().totals.cost_usd)
    assert written["round robin"] == 2 * written["in order"]


def test_the_cost_of_an_outage_is_forecast_for_one_of_two_endpoints():
    """What is under way there breaks off, the other takes the rest; what is paid twice is in the range of dollars."""
    pace = "[[tokens:100]] [[pace:100]]"  # a second each
    with am.Simulator(latency="none") as work, am.Simulator(latency="none") as lab:
        members = {"work": work, "lab": lab}
        pool = am.Pool({name: am.Claude(base_url=one.url, api_key=name) for name, one in members.items()})
        agents = am.Plan([am.Agent("a", f"Hello {{{{ item }}}}. {pace}", each="rows")], {"rows": [*range(24)]})
        run = asyncio.run(agents.run(am.Policy(8, seed=1), client=pool))
    outages = [None, {"lab": (1.5, 60)}, {"lab": (1.5, 0.5)}, (1.5, 60), {"lab": (900, 60)}]
    frame = run.whatif(outage=outages)
    assert ["lab from 1.5 s for 60 s", "from 1.5 s for 60 s"] == [frame.loc[one, "outage"] for one in (1, 3)]
    as_it_was, lost, back, both, later = frame["wall_s"]
    assert as_it_was == later < back <= lost < both
    assert 24 == frame.loc[1, "succeeded"]
    forecast = run.forecast(outage={"lab": (1.5, 60)})
    broken = forecast.attempts.query("error_class == 'Unreachable'")
    assert {"lab"} == set(broken["endpoint"])
    cut = broken[broken["output_tokens"] > 0]
    assert 4 == len(cut), "the four that were under way there"
    assert set(cut["finished_s"]) == {1.5}
    twice, (low, high) = cut["cost_usd"].sum(), forecast.record.forecast.cost_range_usd
    assert run.totals.cost_usd + twice == pytest.approx(low) == pytest.approx(forecast.totals.cost_usd)
    assert low < high == pytest.approx(run.totals.cost_usd + 4 * run.attempts["cost_usd"].max(), rel=0.001)
    assert forecast.totals.cost_mark == "≈"


def test_routes_are_told_apart_where_nobody_waits_for_a_slot():
    """One forecast is given again for more slots than were ever used: not that of another route."""
    members = {"one": Member("http://one"), "two": Member("http://two")}
    session = Session(client=am.Pool(members, route="round robin"), prices={"m": am.TokenPrice(1, 5)})
    asyncio.run(plan(12).run(am.Policy(50, seed=1), session=session))  # the next one knows that there are no limits
    asked = asyncio.run(plan(12).run(am.Policy(50, seed=1), session=session)).forecaster()
    routes = [replace(Scenario(), route=route) for route in ("round robin", "in order")]
    went = [Counter(one.endpoint for one in asked.forecast(each).record.attempts) for each in routes]
    assert {"one": 6, "two": 6} == went[0]
    assert went[1]["one"] > 6


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"route": "by car"}, "route must be"),
        ({"route": "in order", "limits": 60}, "route and limits cannot be asked together"),
        ({"outage": (1, 2), "limits": 60}, "outage and limits cannot be asked together"),
        ({"outage": {"three": (1, 2)}}, "no such endpoint. Its endpoints are one, two"),
        ({"outage": 10}, r"outage must be \(from_s, for_s\)"),
        ({"outage": (-1, 5)}, r"outage must be \(from_s, for_s\)"),
        ({"outage": (1, 0)}, r"outage must be \(from_s, for_s\)"),
        ({"outage": (1, float("nan"))}, r"outage must be \(from_s, for_s\)"),
    ],
)
def test_a_route_that_cannot_be_asked_is_said(asked, why):
    """With what can be; a run with one endpoint has no route."""
    run, _ = run_at(am.Pool({"one": Member("http://one"), "two": Member("http://two")}), 2)
    with pytest.raises(DeclarationError, match=why):
        run.whatif(**asked)
    session = Session(client=Member("http://one"), prices={"m": am.TokenPrice(1, 5)})
    alone = asyncio.run(plan(2).run(am.Policy(4, seed=1), session=session))
    with pytest.raises(DeclarationError, match="the run had one endpoint"):
        alone.whatif(route="in order")
    with pytest.raises(DeclarationError, match="The run had one endpoint: write outage"):
        alone.whatif(outage={"one": (1, 2)})
    assert alone.forecast(outage=(0, 1)).totals.wall_s >= 1


def test_a_model_that_one_member_names_is_asked_there_and_costs_what_it_does_there():
    """Also where the other one's address may have any model; a what-if compares both without a price of yours."""
    with am.Simulator(latency="none") as server:
        claude = am.Claude(base_url=server.url, api_key="any")
        own = am.Chat(f"{server.url}/v1", free=True, models=["own-7b"])
        plan = am.Plan([am.Agent(f"a{n}", f"Hello {n}", model="own-7b") for n in range(6)])
        done = asyncio.run(plan.run(client=am.Pool({"claude": claude, "own": own})))
        assert {"own"} == set(done.attempts["endpoint"])
        assert 0.0 == done.totals.cost_usd
        both = done.whatif(model=["own-7b", "claude-haiku-5-5"])
        assert [0.0, True] == [both["cost_usd"][0], both["cost_usd"][1] > 0]
        unnamed = am.Pool({"gateway": am.Chat(server.url), "own": own})
        assert {} == unnamed.prices  # the gateway may have it, too, and not for nothing
