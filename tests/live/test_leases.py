"""Two runs that want one answer: one buys it, the other waits, and its wait is no work."""

from __future__ import annotations

import asyncio
import contextlib

import agent_magic as am
from agent_magic.live import buying
from agent_magic.providers import Provider
from agent_magic.record import Answer, LedgerFile, Usage

SLOW = "Name a river. [[ttft:1]]"


async def begun(ledger):
    """Wait until a ledger has a request that is under way."""
    while not ledger._store.file.read("SELECT 1 FROM leases"):  # noqa: ASYNC110 - it stands in a file
        await asyncio.sleep(0.01)


def test_waiting_for_another_run_is_queued(tmp_path):
    """Where another run buys the same answer, the wait is `queued_s`, and says what it waits for."""

    async def both():
        first, second = (am.Ledger(tmp_path / "l.sqlite", reuse_simulated=True) for _ in range(2))
        with am.Simulator(latency="x1", unlimited=True) as server:

            def run(ledger):
                client = am.Claude(base_url=server.url, api_key="none", endpoint="one")
                return am.Plan([am.Agent("a", SLOW)]).run(session=am.Session(client=client, ledger=ledger))

            task = asyncio.create_task(run(first))
            await begun(first)
            other = await run(second)
            return await task, other

    bought, waited = asyncio.run(both())
    assert (0.0, "ledger") == (waited.agents["api_s"][0] // 0.5, waited.attempts["held_by"][0])
    assert waited.agents["queued_s"][0] > 0.5
    assert bought.agents["queued_s"][0] < 0.1


def test_a_ledger_that_closes_gives_its_leases_up(tmp_path):
    """A run whose ledger is closed under it is not `running` for ever, and nobody waits for what it asked."""

    async def closed():
        ledger = am.Ledger(tmp_path / "l.sqlite")
        with am.Simulator(latency="x1", unlimited=True) as server:
            client = am.Claude(base_url=server.url, api_key="none", endpoint="one")
            plan = am.Plan([am.Agent("a", "Name a river. [[ttft:20]]")])
            task = asyncio.create_task(plan.run(session=am.Session(client=client, ledger=ledger)))
            await begun(ledger)
            ledger.close()
            states = am.Ledger(tmp_path / "l.sqlite").runs()["state"].tolist()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return states

    assert ["lost"] == asyncio.run(closed())


class AtOnce(Provider):
    """Answers at once."""

    endpoint, is_limited, credentials, price_list = "at once", False, None, None

    async def send(self, request, stream):
        """Answer with a number."""
        stream.replied(200)
        return Answer("1", "end_turn", usage=Usage(1, output_tokens=1), model=request.model)


def test_a_row_of_the_ledger_is_one_read_and_a_bought_one_is_settled_once(tmp_path, monkeypatch):
    """An answer that is in the ledger costs no look at leases; one that is bought has its usage judged once."""
    reads, judged = [], []
    read, settle = LedgerFile.read, buying.settled
    monkeypatch.setattr(LedgerFile, "read", lambda file, sql, *values: reads.append(sql) or read(file, sql, *values))
    monkeypatch.setattr(buying, "settled", lambda *asked: judged.append(1) or settle(*asked))
    ledger = am.Ledger(tmp_path / "l.sqlite")
    for settled_times in (3, 0):
        reads.clear()
        judged.clear()
        plan = am.Plan([am.Agent("a", "{{ item }}", each="rows")], {"rows": [1, 2, 3]})
        run = asyncio.run(plan.run(client=AtOnce(), ledger=ledger))
        assert (True, settled_times) == (run.ok, len(judged))
    assert 3 == sum(" answers " in sql for sql in reads)
    assert not any("leases" in sql for sql in reads)
