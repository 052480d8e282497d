"""A session: what several runs of a script share."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from types import SimpleNamespace

import pytest

import agent_magic as am
from agent_magic.errors import AgentMagicError
from tests.live.virtual import Reply, Scripted


def plan_of(*names: str) -> am.Plan:
    """Agents that do not wait for each other."""
    return am.Plan([am.Agent(name, f"say {name}") for name in names])


def test_runs_of_a_session_know_what_went_before():
    """The second run reuses what the ledger has, and knows how long answers took."""
    client = Scripted(lambda *_: Reply())

    async def work():
        async with am.Session(client=client, ledger=am.Ledger(":memory:")) as session:
            first = await plan_of("a").run(session=session)
            second = await plan_of("a").run(session=session)
            return first["a"].source, second["a"].source, len(session.history)

    assert ("live", "ledger", 1) == asyncio.run(work())


def test_limits_that_are_known_are_kept():
    """By model, of a session or of one run."""
    limits = {"claude-haiku-5-5": am.Limits(requests=50)}
    assert {"claude-haiku-5-5": limits["claude-haiku-5-5"]} == am.Session(limits=limits).pacer.given
    driver = am.start(plan_of("a"), client=Scripted(lambda *_: Reply()), limits=limits)
    assert driver.record.terms is not None
    assert driver.record.terms.paced


@pytest.mark.parametrize("wrong", [50, "50", {"m": 50}], ids=repr)
def test_limits_of_another_kind_are_refused(wrong):
    """Before anything is sent, with what to give."""
    with pytest.raises(AgentMagicError, match="limits must map models to Limits"):
        am.Session(limits=wrong)


@pytest.mark.parametrize("own", ["client", "ledger", "prices", "limits"])
def test_a_session_has_its_own(own):
    """Both would leave open which counts."""
    given = {own: Scripted(lambda *_: Reply()) if own == "client" else {}}
    with pytest.raises(AgentMagicError, match="either session= or"):
        am.start(plan_of("a"), session=am.Session(), **given)


def test_the_mock_server_of_a_script():
    """It runs until the end of the block, and labels what it answers."""
    with am.Simulator(latency="none") as server:
        client = am.Claude(base_url=server.url, api_key="any-key-will-do")
        run = asyncio.run(plan_of("a").run(client=client))
        assert ("succeeded", "simulated") == (run["a"].status, run["a"].source)
    assert not server.running


def test_every_method_of_a_plan_takes_the_session(tmp_path):
    """What a pilot buys in a session, an estimate, a count and a cassette that is filled know of."""

    def scripted(prompt: str, _: int) -> Reply:
        return Reply(0.0, tokens=(len(prompt), 50, 0, 0))

    session, plan = am.Session(client=Scripted(scripted), ledger=am.Ledger(":memory:")), plan_of("a", "b", "c")

    async def work():
        pilot = await plan.pilot(1, session=session)
        pilot.save(tmp_path / "pilot.cassette.jsonl")
        played = await plan.play(tmp_path / "pilot.cassette.jsonl", fill=True, session=session)
        return pilot, played, await plan.count_tokens(session=session)

    pilot, played, counted = asyncio.run(work())
    assert ["a"] == list(pilot.plan.names)
    assert ["replay", "live", "live"] == [played[name].source for name in "abc"]
    assert [None] * 3 == counted, "all is in the ledger"
    assert 3 == len(session.history)
    assert 3 == sum(one.reused for one in plan.estimate(session=session).expected)
    assert 0 == sum(one.reused for one in plan.estimate(session=session, fresh=True).expected)
    assert [] == plan.pilot_agents(session=session)


def test_a_sweep_runs_in_a_session():
    """All its runs share it."""
    session = am.Session(client=Scripted(lambda *_: Reply(0.01)))
    swept = asyncio.run(plan_of("a", "b").sweep([1, 2], session=session))
    assert [1, 2] == list(swept.frame["concurrency"])
    assert 4 == len(session.history)


@pytest.mark.parametrize("limited", [True, False])
def test_pacing_does_not_depend_on_the_session(limited):
    """A provider of your own is paced alike with a session and without: where it has limits, or you named one."""
    client = Scripted(lambda *_: Reply())
    client.is_limited = limited
    limits = {"claude-haiku-5-5": am.Limits(requests=50)}

    def paced(**given):
        driver = am.start(plan_of("a"), **given)
        assert driver.record.terms is not None
        return driver.record.terms.paced

    assert [limited] * 2 == [paced(client=client), paced(session=am.Session(client=client))]
    assert [True] * 2 == [
        paced(client=client, limits=limits),
        paced(session=am.Session(client=client, limits=limits)),
    ]


def test_what_drives_a_run_returns_its_record():
    """`am.Run` of it has the frames."""
    driver = am.start(plan_of("a"), client=Scripted(lambda *_: Reply(0.0)))
    assert ["succeeded"] == list(am.Run(asyncio.run(driver.drive())).agents["status"])


def test_a_session_can_change_what_it_shares():
    """Who answers, limits and prices: the runs that begin from then on have them."""
    first, second = Scripted(lambda *_: Reply(0.0)), Scripted(lambda *_: Reply(0.0))
    session = am.Session(client=first)
    session.set_limits("claude-haiku-5-5", am.Limits(requests=50))
    session.set_price("claude-haiku-5-5", am.TokenPrice(0, 1_000_000))
    before = asyncio.run(plan_of("a").run(session=session))
    session.connect(second)
    assert (1, 0, {}) == (len(first.asked), len(second.asked), session.pacer.given)
    assert 0 < (before["a"].cost_usd or 0)
    asyncio.run(plan_of("a").run(session=session))
    assert (1, 1) == (len(first.asked), len(second.asked))


@pytest.mark.parametrize("wrong", ["runs.sqlite3", 5, object()], ids=lambda one: type(one).__name__)
def test_a_ledger_of_another_kind_is_refused(wrong):
    """A path is not a ledger; the message says what is."""
    with pytest.raises(AgentMagicError, match="Give Ledger"):
        am.Session(ledger=wrong)
    with pytest.raises(AgentMagicError, match="not a Session"):
        am.start(plan_of("a"), session=wrong)


CALLS = {
    "run": lambda plan: plan.run(),
    "play": lambda plan: plan.play("none.cassette.jsonl"),
    "count_tokens": lambda plan: plan.count_tokens(),
    "session": lambda _: am.Session().__aenter__(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_loop_that_is_not_asyncios(call):
    """Under trio, or without any loop, the error says how to run it all the same; nothing is sent."""
    with pytest.raises(AgentMagicError, match=r"asyncio\.run\(plan\.run\(\)\)"):
        call(plan_of("a")).send(None)


def test_trio_above_asyncio(monkeypatch):
    """In a kernel with `%autoawait trio` both have a loop, and the one that awaits is trio's."""
    monkeypatch.setitem(sys.modules, "trio", SimpleNamespace(lowlevel=SimpleNamespace(current_task=object)))
    with pytest.raises(AgentMagicError, match=r"trio\.to_thread\.run_sync"):
        asyncio.run(plan_of("a").run(client=Scripted(lambda *_: Reply(0.0))))


def test_a_wall_clock_that_jumps(monkeypatch, tmp_path):
    """A run, its ledger and its reuse do not depend on the time of day: only dates are read from it."""
    real, jumps = time.time, itertools.cycle([0.0, -1e6, 1e6, -10.0, 4e7])
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    session = am.Session(client=Scripted(lambda *_: Reply(0.01)), ledger=am.Ledger(tmp_path / "runs.sqlite3"))
    plan = plan_of(*"abcdefgh")
    first = asyncio.run(plan.run(session=session))
    second = asyncio.run(plan.run(session=session))
    assert ["live"] * 8 == list(first.agents["source"])
    assert ["ledger"] * 8 == list(second.agents["source"])
    assert (first.totals.wall_s or -1.0) > 0
    assert session.ledger is not None
    assert session.ledger.verify().ok
