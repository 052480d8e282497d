"""The table of what breaks, second half: kernels and schedulers that are killed, interrupts, strangers who scale.

Every request has a prompt of its own, so a request that is sent twice without the run's saying so is seen.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import agent_magic as am
from tests.kernels import Kernel
from tests.providers.deaths import DEATHS, ONCE, ROUNDS, SOON_S, gone, noticed_s, plan, run_and
from tests.providers.paid import PATIENCE_S

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    # Dask leaves sockets and loops of processes that died to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ROOT = Path(__file__).resolve().parents[2]


SCRIPT = """
    import asyncio, os, sys
    import agent_magic as am

    async def main(url):
        dask = am.Dask(workers=2, client=am.Claude(base_url=url, api_key="k"))
        dask.start()
        print(*dask.cluster._client.run(os.getpid).values(), flush=True)
        agents = [am.Agent(f"a{one}", f"request {one}.") for one in range(8)]
        await am.Plan(agents).run(am.Policy(100, max_attempts=1), client=dask, ledger=am.Ledger(sys.argv[2]))

    if __name__ == "__main__":
        asyncio.run(main(sys.argv[1]))
"""


def start_kernel(book, tmp_path):
    """Start a process that runs a plan over two workers. Returns it and the workers, once all requests have begun."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), book.url, str(tmp_path / "ledger.sqlite3")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    kernel = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)
    assert kernel.stdout is not None
    workers = [int(pid) for pid in kernel.stdout.readline().split()]
    book.until(lambda: len(book.states()) == 8)
    return kernel, workers


@pytest.mark.parametrize("how", DEATHS)
def test_a_killed_kernel_stops_spending_and_leaves_no_process(book, tmp_path, how, record_property):
    """Its workers end what they make, and themselves."""
    book.pieces = 1000
    kernel, workers = start_kernel(book, tmp_path)
    with kernel:
        died = time.monotonic()
        kernel.send_signal(how)
        kernel.wait()
        soon = book.until(lambda: book.states().count("cut") == 8) - died
        gone(*workers)
        left = time.monotonic() - died
    assert {1} == {len(states) for states in book.book.values()}
    assert soon < SOON_S
    record_property("requests cut", 8)
    record_property("seconds until the server knew", soon)
    record_property("seconds until no process was left", left)


def test_the_run_after_a_killed_kernel_knows_what_may_be_paid(book, tmp_path):
    """Its requests are in the ledger as unknown; the next run, without workers, asks each of them once more."""
    book.pieces = 1000
    kernel, workers = start_kernel(book, tmp_path)
    with kernel:
        kernel.kill()
        kernel.wait()
    gone(*workers)
    book.pieces = 2
    ledger = am.Ledger(tmp_path / "ledger.sqlite3")
    client = am.Claude(base_url=book.url, api_key="k")
    run = asyncio.run(plan().run(ONCE, client=client, ledger=ledger))
    assert run.ok
    assert {2} == {len(states) for states in book.book.values()}
    assert {"cut": 8, "whole": 8} == {state: book.states().count(state) for state in book.states()}
    assert [8, 0] == list(ledger.runs().sort_values("run")["unknown"])
    ledger.close()


@pytest.fixture
def elsewhere(tmp_path, book):
    """Start a scheduler and two workers as somebody else would. Returns our side and the processes."""
    file, env = tmp_path / "scheduler.json", {**os.environ, "PYTHONPATH": str(ROOT)}
    here = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    kinds = {
        "scheduler": ["dask_scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0"],
        "north": ["dask_worker", "--no-nanny", "--nthreads", "1", "--name", "north"],
        "south": ["dask_worker", "--no-nanny", "--nthreads", "1", "--name", "south"],
    }
    started = {
        name: subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{module}", *here, *more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
        )
        for name, (module, *more) in kinds.items()
    }
    made, end = None, time.monotonic() + PATIENCE_S
    while made is None or len(made.workers()) < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
        if made is None and file.exists() and '"address": "' in (text := file.read_text()):
            address = text.partition('"address": "')[2].partition('"')[0]
            made = am.Dask(address, client=am.Claude(base_url=book.url, api_key="k"))
    yield made, started
    made.close()
    for one in started.values():
        one.kill()
        one.wait()


def test_strangers_who_scale_lose_nothing(elsewhere, book):
    """Workers that hold an anchor stay where they are."""
    import distributed

    made, _ = elsewhere
    book.pieces = 30

    def scale():
        with distributed.Client(made.cluster.address, set_as_default=False) as stranger:
            idle: Any = stranger.run_on_scheduler(lambda dask_scheduler: dask_scheduler.workers_to_close(n=2))
            assert [] == list(idle)  # what adaptive scaling would stop
            stranger.retire_workers([*stranger.scheduler_info(n_workers=-1)["workers"]], close_workers=True)

    run = run_and(made, book, scale)
    assert run.ok
    assert {1} == {len(states) for states in book.book.values()}
    assert {"north", "south"} == set(run.attempts.worker)
    with pytest.raises(am.AgentMagicError, match="started elsewhere"):
        made.scale(3)


@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_scheduler_repeats_nothing(elsewhere, book, how, record_property):
    """Its workers leave, and all is cut at once."""
    made, started = elsewhere
    book.pieces, died = 1000, list[float]()

    def kill():
        died.append(time.time())
        started["scheduler"].send_signal(how)

    run = run_and(made, book, kill)
    assert run.attempts.error.str.startswith("Unreachable: Worker").all()
    assert {1} == {len(states) for states in book.book.values()}
    soon = noticed_s(run, *died)
    assert soon < SOON_S
    record_property("requests cut", book.states().count("cut"))
    record_property("seconds until the run knew", soon)
    for name in ("north", "south"):
        started[name].wait(PATIENCE_S)
    with pytest.raises(am.AgentMagicError, match="Connect again"):
        asyncio.run(plan(1, "again").run(ONCE, client=made))


def test_adaptive_scaling_by_a_stranger_loses_nothing(book):
    """Dask takes a worker with our streams for idle; what it holds keeps it in place."""
    import distributed

    book.pieces = 60
    quiet = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
    made_by: Any = distributed.LocalCluster
    with made_by(n_workers=2, threads_per_worker=1, host="127.0.0.1", **quiet) as cluster:
        made = am.Dask(cluster.scheduler_address, client=am.Claude(base_url=book.url, api_key="k"))
        run = run_and(made, book, lambda: cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=1))
        made.close()
    assert run.ok
    assert {1} == {len(states) for states in book.book.values()}


def test_an_interrupt_of_a_kernel_leaves_its_workers(book, record_property):
    """Stop cancels the requests; the next cell runs on the same workers."""
    book.pieces = 1000
    with Kernel() as kernel:
        kernel.do("%load_ext agent_magic")
        kernel.do(f"%agents connect {book.url}")
        assert "over Dask workers" in kernel.do("%agents connect dask --workers 1").text
        kernel.do("%%agent a\nrequest 1")
        kernel.do("%%agent b\nrequest 2")
        where = "import os; print(sorted(get_ipython().magics_manager.registry and am_pids()))"
        kernel.do(
            "import os, gc\nfrom agent_magic.providers.dask.client import Dask\n"
            "def am_pids():\n"
            "    made, = [one for one in gc.get_objects() if type(one) is Dask]\n"
            "    return made.cluster._client.run(os.getpid).values()"
        )
        before = kernel.do(where).text
        for _ in range(ROUNDS):
            book.book.clear()
            cell = kernel.start("run = %agents run --yes")
            book.until(lambda: book.states() == ["begun", "begun"])
            kernel.interrupt(cell)
            kernel.wait(cell)
            book.until(lambda: book.states() == ["cut", "cut"])
            assert before == kernel.do(where).text
            record_property("requests cut", 2)
        book.pieces = 2
        kernel.do("run = %agents run --yes")
        assert "['worker-0', 'worker-0']" in kernel.do("print(list(run.attempts.worker))").text
        (worker,) = [int(one) for one in before.strip().strip("[]").split(",")]
    gone(worker)
