"""Deaths of workers, kernels and schedulers: who dies how and how often, and what is asked of a run meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

import agent_magic as am
from tests.providers.paid import PATIENCE_S

ROUNDS = 50 if os.environ.get("AGENT_MAGIC_NIGHTLY") else 3
"""How often each of them dies: `AGENT_MAGIC_NIGHTLY=1` does it fifty times, in half an hour."""
SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}
DEATHS = [
    pytest.param(how, id=f"{name}-{number}")
    for number, (name, how) in enumerate((list(SIGNALS.items()) * ROUNDS)[:ROUNDS])
]
"""One round each, by one signal and the other in turn."""
SOON_S = 5.0
"""By then a death is known. It takes well under a second; the rest is for a machine on which much else runs."""
ONCE = am.Policy(100, max_attempts=1)


async def both(dask):
    """Wait until both workers are connected. Returns their fleet."""
    fleet = dask._fleets[asyncio.get_running_loop()]
    async with asyncio.timeout(PATIENCE_S):
        while len(fleet.links) < 2:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.02)
    return fleet


def plan(count=8, word="request"):
    """Return a plan of so many agents that wait for nobody."""
    return am.Plan([am.Agent(f"a{one}", f"{word} {one}.") for one in range(count)])


def run_and(dask, book, do, *, policy=ONCE, count=8, word="request"):
    """Run a plan; when all requests have begun `do` in a thread. Returns the run."""

    async def go():
        task = asyncio.ensure_future(plan(count, word).run(policy, client=dask))
        await asyncio.to_thread(book.until, lambda: len(book.states()) == count)
        try:
            await asyncio.to_thread(do)
        except AssertionError as error:
            error.add_note(f"The workers then: {dask.workers()}. The run {'is over' if task.done() else 'goes on'}.")
            raise
        return await task

    async def held():
        async with dask.open():  # the connections stay, so that both workers are used from the start
            await both(dask)
            return await go()

    return asyncio.run(held())


def alive(pid):
    """Tell whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(*found):
    """Wait until processes are gone."""
    end = time.monotonic() + PATIENCE_S
    while any(map(alive, found)):
        assert time.monotonic() < end, "a process is left"
        time.sleep(0.02)


def noticed_s(run, died):
    """Return how many seconds after a death, by `time.time`, the last request that it cost had failed."""
    attempts = [one for result in run.record.results for one in result.attempts]
    return run.record.began_at.timestamp() + max(one.ended_s for one in attempts if one.status == "failed") - died
