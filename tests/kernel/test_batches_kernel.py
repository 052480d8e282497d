"""Batches that a stop has left at the provider, in a real kernel, over real HTTP to the mock server."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.kernel

CONNECT = """\
%load_ext agent_magic
import agent_magic as am
%config AgentMagics.reuse_simulated = True
sim = am.Simulator(latency="none", batch="takes={takes},poll=0.05")
client = am.Claude(base_url=sim.url, api_key="k")
%agents connect client
"""
SENT = """\
import asyncio
magics = next(one for one in get_ipython().configurables if type(one).__name__ == "AgentMagics")
ledger = magics.session.keeping.ledger
while not ledger.batches.open() or ledger.batches.open()[0].id is None:
    await asyncio.sleep(0.01)
"""
ENDED = """\
book = ledger.batches
async with client.open():
    while (await client.batches.state(book.open()[0].id)).ended_at is None:
        await asyncio.sleep(0.05)
"""


def left(kernel, takes, options=""):
    """Leave a batch at a mock server that takes so long; returns what the stop says."""
    assert "ok" == kernel.do(CONNECT.format(takes=takes)).status
    assert "ok" == kernel.do("%%agent one --each rows\nSay {{ item }}.").status
    if options:
        assert "ok" == kernel.do("first = %agents run").status
    assert "ok" == kernel.do(f"%agents start --batch {options}").status
    assert "ok" == kernel.do(SENT).status
    return " ".join(kernel.do("%agents stop").text.split())


@pytest.mark.parametrize("rows", [1, 15])
def test_without_a_connection_a_run_by_batch_says_so(fresh_kernel, rows):
    """It is refused in a sentence before anything is shown, and the last run is the one before."""
    kernel = fresh_kernel
    kernel.do(f"rows = [str(one) for one in range({rows})]")
    left(kernel, 300)
    kernel.do("sim.stop()")
    for command in ("run = %agents run --batch", "%agents start --batch"):
        reply = kernel.do(command)
        assert "No connection to 127.0.0.1" in f"{reply.evalue}{reply.text}"
        assert not [one for one in reply.outputs if one[0] == "display_data"]
    assert "UsageError" == kernel.do("run = %agents run --batch").ename
    assert f"{rows} cancelled" in kernel.do("%agents last").text
    assert "Nothing runs" in kernel.do("%agents pause").evalue


def test_a_fresh_batch_is_collected(fresh_kernel):
    """A run has answers already and would not wait for it: what the stop names gets its answers, once it has ended."""
    kernel = fresh_kernel
    kernel.do("rows = ['a', 'b', 'c']")
    said = left(kernel, 2, "--fresh")
    assert "%agents batches collect gets the answers" in said
    assert "Run again with --batch" not in said
    assert "has not ended" in kernel.do("%agents batches collect").text
    assert "ok" == kernel.do(ENDED).status
    assert "%agents batches collect" in kernel.do("%agents batches").text
    assert "is over: 3 answers in the ledger" in kernel.do("%agents batches collect").text
    assert "This ledger knows of no open batch" in kernel.do("%agents batches").text
    kernel.do("run = %agents run")
    assert "3 True" == kernel.do("print(len(run.attempts), run.attempts['batch'].notna().all())").text.strip()
