"""The table of what breaks, row by row: real workers, real processes that are killed, a server that counts.

`test_kernels_die` has the rows of kernels, schedulers and strangers. The summary of the tests shows what was counted.
Every request has a prompt of its own, so a request that is sent twice without the run's saying so is seen.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import agent_magic as am
from agent_magic.providers.dask import fleet as fleets
from tests.providers.deaths import DEATHS, ONCE, ROUNDS, SIGNALS, SOON_S, both, gone, noticed_s, plan, run_and
from tests.providers.paid import PATIENCE_S

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    # Dask leaves sockets and loops of processes that died to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BLOCKED_S = 60.0 if os.environ.get("AGENT_MAGIC_NIGHTLY") else 3.0
"""How long a cell holds up the kernel's loop."""
KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture(scope="module")
def dask(server):
    """Return two workers of this process."""
    made = am.Dask(workers=2, client=am.Claude(base_url=server.url, api_key=KEY))
    made.start()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _story(caplog):
    """A round that fails shows what the run did, and what its workers were told."""
    caplog.set_level(logging.DEBUG, "agent_magic")


def pids(dask):
    """Return the process of each of both workers, by name. One that was killed before is started again meanwhile.

    One that was asked to end still answers for a moment, so two answers have to agree.
    """
    before, end = {}, time.monotonic() + PATIENCE_S
    while True:
        client, names = dask.cluster._client, dask.cluster.start_now()
        found = {names.get(address): pid for address, pid in client.run(os.getpid, on_error="ignore").items()}
        if len(found) == 2 and None not in found and found == before:
            return found
        before = found
        assert time.monotonic() < end, f"only {found} have come"
        time.sleep(0.2)


@pytest.mark.parametrize("how", DEATHS)
def test_requests_of_a_dead_worker_fail_and_are_not_repeated(dask, book, how, record_property):
    """They are cut connections, in well under a second; the other worker's answers come; nothing is sent twice."""
    victim, died = pids(dask)["worker-0"], list[float]()

    def kill():
        book.until(lambda: book.sent > 100)  # so that text has reached the kernel
        died.append(time.time())
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
    soon = noticed_s(run, *died)
    assert soon < SOON_S
    record_property("requests cut", book.states().count("cut"))
    record_property("seconds until the run knew", soon)
    gone(victim)
    end = time.monotonic() + PATIENCE_S
    while len(dask.workers()) < 2:
        assert time.monotonic() < end, "it is started again"
        time.sleep(0.05)
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


def test_workers_that_are_killed_at_random_instants_lose_no_row_and_repeat_nothing(dask, book, record_property):
    """Whichever is hit and when, by whichever signal: each agent has its row, and the server saw each request once."""
    book.pieces, chance, counts = 15, random.Random(1), {"answers": 0, "cut": 0, "rounds": 0}
    for number in range(ROUNDS):
        book.book.clear()
        book.sent, pieces = 0, chance.randrange(8 * book.pieces)
        victim, how = chance.choice(sorted(pids(dask).values())), chance.choice([*SIGNALS.values()])

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
    for what, count in counts.items():
        record_property(what, count)
    assert counts["answers"] >= 4 * ROUNDS, "the other worker goes on"


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_worker_that_hangs_is_lost_by_its_silence(dask, book, monkeypatch, record_property, number):
    """A stopped process gives no sign but silence. Its requests end with the run, should it go on before that."""
    monkeypatch.setattr(fleets, "SILENT_S", 1.5)
    monkeypatch.setattr(fleets, "LOST_S", 2.5)
    book.pieces = 400
    victim = pids(dask)["worker-0"]

    async def go():
        async with dask.open():
            fleet = await both(dask)
            task = asyncio.ensure_future(plan().run(ONCE, client=dask))
            await asyncio.to_thread(book.until, lambda: len(book.states()) == 8)
            os.kill(victim, signal.SIGSTOP)
            stopped = time.monotonic()
            while len(fleet.links) == 2:  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.02)
            soon = time.monotonic() - stopped
            os.kill(victim, signal.SIGCONT)
            task.cancel()
            await asyncio.wait([task])
            return soon

    soon = asyncio.run(go())
    book.until(lambda: book.states().count("cut") == 8)
    assert {1} == {len(states) for states in book.book.values()}
    assert soon < fleets.LOST_S + SOON_S
    record_property("requests cut", 4)
    record_property(f"seconds until the run knew, by rule {fleets.LOST_S:g}", soon)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_what_a_lost_worker_says_later_is_used(dask, book, monkeypatch, record_property, number):
    """Answers of a worker that was stopped and goes on are taken: what was asked for again meanwhile is cut."""
    monkeypatch.setattr(fleets, "SILENT_S", 1.5)
    monkeypatch.setattr(fleets, "LOST_S", 2.5)
    book.pieces = 120
    victim = pids(dask)["worker-0"]

    def stop():
        os.kill(victim, signal.SIGSTOP)
        try:
            book.until(lambda: "worker-0" not in [one.name for one in dask.workers()])
            book.until(lambda: len(book.states()) > 8)  # the first request is sent again
        finally:
            os.kill(victim, signal.SIGCONT)

    run = run_and(dask, book, stop, policy=am.Policy(100, max_attempts=3))
    rows, states = run.attempts, book.states()
    lost, again = rows[rows.status == "failed"], len(states) - 8
    assert run.ok
    assert {"word " * 120} == set(run.texts)
    assert {"worker-0"} == set(lost.worker)
    assert 4 == len(lost) == len(rows) - 8
    assert 8 == states.count("whole"), "each is paid for once"
    assert again == states.count("cut"), "what was sent again is not"
    assert 4 == (rows[rows.status == "succeeded"].worker == "worker-0").sum()
    assert (lost.usage_estimated | lost.cost_usd.isna()).all(), "an estimate, or unknown where nothing had come"
    record_property("answers that came late", 4)
    record_property("requests sent again by policy, and cut", again)


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


def test_a_blocked_loop_loses_nothing(dask, book, record_property):
    """A cell that computes holds the kernel up; the workers keep what arrives."""
    book.pieces = 20
    run = run_and(dask, book, lambda: None)
    assert run.ok

    async def blocked():
        async with dask.open():
            task = asyncio.ensure_future(plan(word="blocked").run(ONCE, client=dask))
            await asyncio.to_thread(book.until, lambda: len(book.states()) == 16)
            time.sleep(BLOCKED_S)  # noqa: ASYNC251 - this is what is tested
            return await task

    run = asyncio.run(blocked())
    assert run.ok
    assert {"word " * 20} == set(run.texts)
    assert {1} == {len(states) for states in book.book.values()}
    record_property(f"answers whole after {BLOCKED_S:g} s", len(run.texts))


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
