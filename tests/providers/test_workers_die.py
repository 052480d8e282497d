"""The table of what breaks, row by row: real workers, real processes that are killed, a server that counts.

Every request has a prompt of its own, so a request that is sent twice without the run's saying so is seen.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import agent_magic as am
from agent_magic.providers.dask import link as links
from tests.kernels import Kernel
from tests.providers.paid import PATIENCE_S, paid

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    # Dask leaves sockets and loops of processes that died to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ROOT = Path(__file__).resolve().parents[2]
ONCE = am.Policy(100, max_attempts=1)
ROUNDS = 50 if os.environ.get("AGENT_MAGIC_NIGHTLY") else 3
"""How often workers are killed at random: `AGENT_MAGIC_NIGHTLY=1` does it fifty times, in some minutes."""
KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture(scope="module")
def server():
    """Return a server that counts."""
    with paid() as found:
        yield found


@pytest.fixture(scope="module")
def dask(server):
    """Return two workers of this process."""
    made = am.Dask(workers=2, client=am.Claude(base_url=server.url, api_key=KEY))
    made.start()
    yield made
    made.close()


@pytest.fixture
def book(server):
    """Return the server with an empty book, slow to answer."""
    server.book.clear()
    server.sent = 0
    server.pieces, server.pause_s, server.piece = 40, 0.05, "word "
    return server


def pids(dask):
    """Return the process of each of both workers, by name. One that was killed before is started again meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while True:
        client, names = dask.cluster._client, dask.cluster.start_now()
        found = {names.get(address): pid for address, pid in client.run(os.getpid, on_error="ignore").items()}
        if len(found) == 2 and None not in found:
            return found
        assert time.monotonic() < end, f"only {found} have come"
        time.sleep(0.05)


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
        await asyncio.to_thread(do)
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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "terminate"])
def test_requests_of_a_dead_worker_fail_and_are_not_repeated(dask, book, how):
    """They are cut connections, in well under a second; the other worker's answers come; nothing is sent twice."""
    victim = pids(dask)["worker-0"]

    def kill():
        book.until(lambda: book.sent > 100)  # so that text has reached the kernel
        os.kill(victim, how)

    run = run_and(dask, book, kill)
    rows = run.attempts.set_index("agent")
    lost = rows[rows.worker == "worker-0"]
    assert 4 == len(lost)
    assert lost.error.str.startswith("Unreachable: Worker 'worker-0' was lost.").all()
    assert (rows[rows.worker == "worker-1"].status == "succeeded").all()
    assert {1} == {len(states) for states in book.book.values()}
    assert 4 == book.states().count("cut")
    assert lost.usage_estimated.all()
    gone(victim)
    pids(dask)
    told = {one.name: (one.state, one.answered, one.failed) for one in dask.workers()}
    assert {"worker-0": ("idle", 0, 4), "worker-1": ("idle", 4, 0)} == told, "of the last run"


def test_the_retry_policy_decides_and_the_worker_comes_back(dask, book):
    """With attempts left the run is whole: what was lost is bought once more, and counted as such."""
    book.pieces = 20
    victim = pids(dask)["worker-1"]
    run = run_and(dask, book, lambda: os.kill(victim, signal.SIGKILL), policy=am.Policy(100, max_attempts=3))
    assert run.ok
    assert len(run.attempts) == len(book.states()) == 8 + book.states().count("cut")
    assert victim not in pids(dask).values()


def test_workers_that_are_killed_at_random_instants_lose_no_row_and_repeat_nothing(dask, book):
    """Whichever is hit and when, by whichever signal: each agent has its row, and the server saw each request once."""
    book.pieces, chance, counts = 15, random.Random(1), {"answers": 0, "cut": 0, "rounds": 0}
    for number in range(ROUNDS):
        book.book.clear()
        book.sent, pieces = 0, chance.randrange(8 * book.pieces)
        victim, how = chance.choice(sorted(pids(dask).values())), chance.choice([signal.SIGKILL, signal.SIGTERM])

        def kill(pieces=pieces, victim=victim, how=how):
            book.until(lambda: book.sent >= pieces)
            with suppress(ProcessLookupError):  # Dask has given it up meanwhile
                os.kill(victim, how)

        run = run_and(dask, book, kill, word=f"round {number}, request")
        rows, states = run.attempts, book.states()
        assert 8 == len(rows) == len(states), "none is sent twice, and none is lost"
        assert (rows.status == "succeeded").sum() + rows.error.str.startswith("Unreachable").sum() == 8
        assert (rows.status == "succeeded").sum() <= states.count("whole")
        gone(victim)
        counts["answers"] += int((rows.status == "succeeded").sum())
        counts["cut"] += states.count("cut")
        counts["rounds"] += 1
    print(counts)
    assert counts["answers"] >= 4 * ROUNDS, "the other worker goes on"


def test_a_worker_that_hangs_is_lost_by_its_silence(dask, book, monkeypatch):
    """A stopped process gives no sign but silence. Its requests end where it goes on, for nobody is there any more."""
    monkeypatch.setattr(links, "SILENT_S", 1.5)
    monkeypatch.setattr(links, "LOST_S", 2.5)
    book.pieces = 400
    victim = pids(dask)["worker-0"]

    async def go():
        async with dask.open():
            fleet = await both(dask)
            task = asyncio.ensure_future(plan().run(ONCE, client=dask))
            await asyncio.to_thread(book.until, lambda: len(book.states()) == 8)
            os.kill(victim, signal.SIGSTOP)
            while len(fleet.links) == 2:  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.02)
            os.kill(victim, signal.SIGCONT)
            await asyncio.to_thread(book.until, lambda: book.states().count("cut") == 4)
            task.cancel()
            await asyncio.wait([task])
            return am.Run(task.result().record) if not task.cancelled() else None

    asyncio.run(go())
    book.until(lambda: book.states().count("cut") == 8)
    assert {1} == {len(states) for states in book.book.values()}


def test_what_a_lost_worker_says_later_is_not_used(dask, book, monkeypatch):
    """It is stopped with answers under way, which are asked for again, and goes on: each request sent is one row."""
    monkeypatch.setattr(links, "SILENT_S", 1.5)
    monkeypatch.setattr(links, "LOST_S", 2.5)
    book.pieces = 40
    victim = pids(dask)["worker-0"]

    def stop():
        os.kill(victim, signal.SIGSTOP)
        book.until(lambda: len(book.states()) > 8)  # it is lost, and the first request is sent again
        os.kill(victim, signal.SIGCONT)

    run = run_and(dask, book, stop, policy=am.Policy(100, max_attempts=3))
    rows = run.attempts
    lost = rows[rows.status == "failed"]
    assert run.ok
    assert {"word " * 40} == set(run.texts)
    assert len(rows) == len(book.states()) == 12
    assert {"worker-0"} == set(lost.worker)
    assert 4 == len(lost)
    assert (lost.usage_estimated | lost.cost_usd.isna()).all(), "an estimate, or unknown where nothing had come"


def computes(path: str) -> int:
    """Write down its process and that of the worker, compute for ever; return at once the second time."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()} {os.getppid()}\n")
    while len(Path(path).read_text().split()) < 4:
        pass
    return os.getpid()


@pytest.mark.parametrize("retries", [0, 1])
def test_a_function_of_a_dead_worker_ends_and_is_not_a_dask_task(dask, book, tmp_path, retries):
    """Its process goes with the worker. The task's own retries decide whether another worker calls it once more."""
    path = tmp_path / "calls"
    path.touch()
    step = am.Task("far", computes, process=True, retries=retries)

    async def go():
        running = asyncio.ensure_future(am.Plan([step], {"path": str(path)}).run(client=dask))
        while not path.read_text().endswith("\n"):  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.02)
        process, worker = map(int, path.read_text().split())
        assert worker in pids(dask).values()
        os.kill(worker, signal.SIGKILL)
        return await running, process

    run, process = asyncio.run(go())
    gone(process)
    assert 1 + retries == len(path.read_text().splitlines())
    assert run.ok == (retries == 1)
    if run.ok:
        assert run["far"].value != process
    else:
        assert "Unreachable: Worker 'worker-" in run.agents.error[0]


def test_a_blocked_loop_loses_nothing(dask, book):
    """A cell that computes holds the kernel up; the workers keep what arrives."""
    book.pieces = 20
    run = run_and(dask, book, lambda: None)
    assert run.ok

    async def blocked():
        async with dask.open():
            task = asyncio.ensure_future(plan(word="blocked").run(ONCE, client=dask))
            await asyncio.to_thread(book.until, lambda: len(book.states()) == 16)
            time.sleep(3.0)  # noqa: ASYNC251 - this is what is tested
            return await task

    run = asyncio.run(blocked())
    assert run.ok
    assert {"word " * 20} == set(run.texts)
    assert {1} == {len(states) for states in book.book.values()}


def test_a_large_answer_comes_whole(dask, book):
    """10 MB, as fast as the server sends it."""
    book.pieces, book.pause_s, book.piece = 100, 0.0, "x" * 100_000
    run = asyncio.run(plan(1).run(ONCE, client=dask))
    assert run.ok
    assert 10_000_000 == len(run["a0"].text)


def test_no_key_and_no_prompt_is_left_where_others_look(dask, book, tmp_path):
    """Neither in the logs of the cluster, nor in its state, nor in what its processes were called with."""
    book.pieces = 2
    asyncio.run(plan(word="a secret prompt").run(ONCE, client=dask))
    client = dask.cluster._client
    client.dump_cluster_state(str(tmp_path / "dump"), format="yaml")
    (dump,) = (one.read_text() for one in tmp_path.iterdir())
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs()) + str(client.get_events())
    called = [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids(dask).values()]
    assert "worker" in dump
    for text in (dump, logs, *called, repr(dask), str(vars(dask.cluster))):
        assert KEY not in text
        assert "a secret prompt" not in text


def test_nothing_listens_beyond_this_machine(dask):
    """Neither scheduler, nor workers, nor a dashboard."""
    inodes = set[str]()
    for pid in (os.getpid(), *pids(dask).values()):
        for one in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(one.readlink().name.removeprefix("socket:[").removesuffix("]"))
            except OSError:
                continue
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
    assert listening
    assert {"0100007F"} == {one.partition(":")[0] for one in listening}


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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "terminate"])
def test_a_killed_kernel_stops_spending_and_leaves_no_process(book, tmp_path, how):
    """Its workers end what they make, and themselves."""
    book.pieces = 1000
    kernel, workers = start_kernel(book, tmp_path)
    with kernel:
        kernel.send_signal(how)
        kernel.wait()
        book.until(lambda: book.states().count("cut") == 8)
        gone(*workers)
    assert {1} == {len(states) for states in book.book.values()}


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


def test_strangers_who_scale_lose_nothing_and_a_dead_scheduler_repeats_nothing(elsewhere, book):
    """Workers that hold an anchor stay where they are; without a scheduler they leave, and all is cut at once."""
    import distributed

    made, started = elsewhere
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
    book.book.clear()
    book.pieces = 1000
    run = run_and(made, book, started["scheduler"].kill)
    assert run.attempts.error.str.startswith("Unreachable: Worker").all()
    assert {1} == {len(states) for states in book.book.values()}
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


def test_an_interrupt_of_a_kernel_leaves_its_workers(book):
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
        cell = kernel.start("run = %agents run --yes")
        book.until(lambda: book.states() == ["begun", "begun"])
        kernel.interrupt(cell)
        kernel.wait(cell)
        book.until(lambda: book.states() == ["cut", "cut"])
        assert before == kernel.do(where).text
        book.pieces = 2
        kernel.do("run = %agents run --yes")
        assert "['worker-0', 'worker-0']" in kernel.do("print(list(run.attempts.worker))").text
        (worker,) = [int(one) for one in before.strip().strip("[]").split(",")]
    gone(worker)


def test_encryption_for_workers_of_our_own(book):
    """`security=True` makes certificates; every connection uses them."""
    book.pieces = 2
    made = am.Dask(workers=1, client=am.Claude(base_url=book.url, api_key="k"), security=True)
    run = asyncio.run(plan(3).run(ONCE, client=made))
    assert run.ok
    assert {"tls"} == {one.partition(":")[0] for one in made.cluster.start_now()}
    made.close()


def test_workers_start_in_a_namespace_that_was_reset(server, monkeypatch):
    """`%reset` takes away what new processes ask the main module for."""
    monkeypatch.delattr(sys.modules["__main__"], "__spec__")
    made = am.Dask(workers=1, client=am.Claude(base_url=server.url, api_key="k"))
    made.start()
    assert ["worker-0"] == [one.name for one in made.workers()]
    made.close()


def test_a_worker_that_dask_gives_up_is_started_again(server):
    """Dask lets go of one that is not there some time after a loss, as of one that is lost again while it starts."""
    import dask.config

    made = am.Dask(workers=1, client=am.Claude(base_url=server.url, api_key="k"))
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}):
        made.start()
        nanny = made.cluster._local.workers[0]
        (pid,) = made.cluster._client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + PATIENCE_S
        while made.cluster._local.workers.get(0) is nanny:
            assert time.monotonic() < end
            time.sleep(0.02)
    while not made.workers():
        assert time.monotonic() < end
        time.sleep(0.02)
    assert pid not in made.cluster._client.run(os.getpid).values()
    assert asyncio.run(plan(1).run(ONCE, client=made)).ok
    made.close()
