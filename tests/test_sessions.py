"""A session: what several runs of a script share."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio

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
