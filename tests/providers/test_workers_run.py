"""Whole runs over workers in memory: what the record, the frames, the ledger and a cassette say of them."""

from __future__ import annotations

import asyncio

import pytest

import agent_magic as am
from agent_magic.providers.dask import client as clients
from agent_magic.providers.dask import fleet as fleets
from tests.providers.memory import Counting, Hub


@pytest.fixture
def hub(monkeypatch):
    """Return workers in memory, in place of a Dask cluster."""
    monkeypatch.setattr(fleets, "TICK_S", 0.01)
    made = Hub(Counting(pieces=("One, ", "two.")), 2)
    monkeypatch.setattr(clients, "Cluster", lambda *_: made)
    return made


def dask():
    """Return the provider. No request reaches the address: the workers have another provider."""
    return am.Dask(client=am.Claude(base_url="http://127.0.0.1:1", api_key="k"))


def plan(count=4):
    """Return a plan of so many agents, and one that reads them all."""
    agents = [am.Agent(f"a{one}", f"request {one}") for one in range(count)]
    return am.Plan([*agents, am.Agent("last", " ".join(f"{{{{ {one.name} }}}}" for one in agents))])


def test_the_worker_is_a_column(hub, tmp_path):
    """Of attempts and agents; a replay of the recording has it too."""
    run = asyncio.run(plan().run(client=dask()))
    assert run.ok
    assert {"worker-0", "worker-1"} >= set(run.attempts.worker) != set()
    assert list(run.agents.worker) == list(run.attempts.set_index("agent").worker[run.agents.agent])
    run.save(str(tmp_path / "run.jsonl"))
    replayed = plan().replay(str(tmp_path / "run.jsonl"))
    assert list(run.attempts.worker) == list(replayed.attempts.worker)


def test_answers_in_the_ledger_are_found_with_and_without_workers(hub):
    """They are kept by who answered, not by who asked."""

    async def twice():
        ledger = am.Ledger(":memory:")
        first = await plan().run(client=dask(), ledger=ledger)
        second = await plan().run(client=am.Claude(base_url="http://127.0.0.1:1", api_key="k"), ledger=ledger)
        ledger.close()
        return first, second

    first, second = asyncio.run(twice())
    assert first.ok
    assert {"ledger"} == set(second.agents.source)
    assert "worker" not in second.attempts
    assert list(first.texts) == list(second.texts)


def test_a_lost_worker_is_an_attempt_that_failed(hub):
    """The retry policy decides: another attempt on another worker, both in the record, one answer in the run."""
    hub.on_connect = lambda kernel, worker: setattr(worker, "cut_after", 5) if len(hub.ends) == 1 else None
    run = asyncio.run(plan(2).run(am.Policy(max_attempts=3), client=dask()))
    assert run.ok
    rows = run.attempts
    failed = rows[rows.status == "failed"]
    assert len(failed)
    assert failed.error.str.startswith("Unreachable: Worker 'worker-0' was lost.").all()
    assert len(rows) == hub.provider.asked.total()


def test_a_stopped_run_stops_its_workers(hub):
    """Stop means stop: nothing goes on spending."""
    hub.provider.hold.clear()

    async def go():
        task = asyncio.ensure_future(plan().run(client=dask()))
        while len(hub.provider.running) < 4:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.gather(*hub.served)
        assert not hub.provider.running
        assert not asyncio.all_tasks() - {asyncio.current_task()}

    asyncio.run(go())
