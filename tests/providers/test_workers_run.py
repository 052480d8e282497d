"""Whole runs over workers in memory: what the record, the frames, the ledger and a cassette say of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import agent_magic as am
from agent_magic.live import pack_call
from agent_magic.live.functions import call_packed
from agent_magic.providers.dask import client as clients
from agent_magic.providers.dask import fleet as fleets
from agent_magic.record import Answer, Usage
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


@pytest.mark.parametrize("concurrency", [4, 100])
def test_what_exceeds_the_room_of_all_workers_waits_for_a_slot(hub, concurrency):
    """It is not under way: the wait is in `queued_s`, with its reason, and a forecast has as few at once."""
    client = am.Claude(base_url="http://127.0.0.1:1", api_key="k")
    over = am.Dask(client=client, autoscale=am.Autoscale(4, 4, pool_size=2))
    plan = am.Plan([am.Agent(f"a{one}", f"request {one}") for one in range(12)])
    run = asyncio.run(plan.run(am.Policy(concurrency), client=over))
    assert run.ok
    assert run.record.terms is not None
    assert 4 == over.room == run.record.terms.policy["concurrency"]
    starts = [(one.started_s, 1) for result in run.record.results for one in result.attempts]
    ends = [(result.finished_s, -1) for result in run.record.results]
    under_way = list(itertools.accumulate(change for _, change in sorted(starts + ends)))
    assert 4 == max(under_way)
    assert {"", "key", "slot"} == {one.held_by for result in run.record.results for one in result.attempts}


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


# answers of a worker that was given up


class Doubled(Counting):
    """Whoever asks a second time waits for an event of its own, as does `request 9`."""

    def __init__(self):
        super().__init__(pieces=("One, ", "two."))
        self.again, self.slow = asyncio.Event(), asyncio.Event()

    async def send(self, request, stream):
        """Answer the first request when `hold` is set, later ones when `again` is."""
        if "9" in request.prompt:
            await self.slow.wait()
        elif self.asked[request.prompt]:
            self.asked[request.prompt] += 1
            self.running.add("again")
            stream.add("Not ")
            try:
                await self.again.wait()
            finally:
                self.running.discard("again")
            return Answer("Not this one.", "end_turn", usage=Usage(7, output_tokens=3), model=request.model)
        return await super().send(request, stream)


async def until(condition):
    """Wait for something to be so."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.001)


def given_up(hub, monkeypatch, then, *, attempts):
    """Run two agents, one of whose worker falls silent and is given up; `then` says what comes next.

    Returns the run, and what the ledger serves of its plan without a worker.
    """
    monkeypatch.setattr("agent_magic.providers.dask.serving.BEAT_S", 0.01)
    monkeypatch.setattr("agent_magic.providers.dask.fleet.LOST_S", 0.2)
    steps = am.Plan([am.Agent("a", "request 1"), am.Agent("b", "request 9"), am.Agent("c", "{{ a }}")])

    async def go():
        provider = hub.provider = Doubled()
        provider.hold.clear()
        ledger = am.Ledger(":memory:")
        made = dask()
        running = asyncio.ensure_future(steps.run(am.Policy(max_attempts=attempts), client=made, ledger=ledger))
        await until(lambda: "request 1" in provider.running)
        fleet: Any = made.remote
        await until(lambda: len(fleet.links) == 2)
        asks = {one._flights[1].request.prompt: one for one in fleet.links.values() if one.streams}
        link = asks["request 1"]
        mute = next(worker for kernel, worker in hub.ends if kernel is link._channel)
        mute.heard.clear()
        await until(lambda: link.lost)
        await then(provider, mute, fleet)
        provider.slow.set()
        provider.hold.set()
        run = await running
        await asyncio.gather(*hub.served)
        assert not provider.running
        again = await am.Plan(steps.agents[:1]).run(client=made.client, ledger=ledger)
        ledger.close()
        return run, again, link.name

    return asyncio.run(go())


@pytest.mark.parametrize("attempts", [1, 3])
def test_an_answer_of_a_worker_that_was_given_up_is_taken_when_it_comes(hub, monkeypatch, attempts):
    """It is paid for, so it is asked for once. An agent that had failed for good succeeds, and who waits for it too."""

    async def then(provider, mute, fleet):
        provider.hold.set()
        mute.heard.set()
        await until(lambda: not fleet._given_up)

    run, again, name = given_up(hub, monkeypatch, then, attempts=attempts)
    assert run.ok
    rows = run.attempts[run.attempts.agent == "a"]
    assert ["failed", "succeeded"] == list(rows.status)
    assert [name, name] == list(rows.worker)
    assert rows.cost_usd.isna().iloc[0], "nothing had come of it: unknown, not 0"
    assert 5 == rows.output_tokens.iloc[1]
    assert 1 == hub.provider.asked["request 1"]
    assert ["ledger"] == list(again.agents.source)


def test_an_answer_that_comes_late_ends_the_request_that_was_sent_again(hub, monkeypatch):
    """Whichever comes first is the answer, and the other one spends no more."""

    async def then(provider, mute, fleet):
        await until(lambda: "again" in provider.running)
        provider.hold.set()
        mute.heard.set()
        await until(lambda: "again" not in provider.running)

    run, again, name = given_up(hub, monkeypatch, then, attempts=3)
    assert run.ok
    rows = run.attempts[run.attempts.agent == "a"]
    assert ["failed", "succeeded"] == list(rows.status)
    assert name == rows.worker.iloc[1]
    assert "One, two." == run["a"].text == again["a"].text
    assert 2 == hub.provider.asked["request 1"]


def test_a_request_that_was_sent_again_and_answered_ends_the_one_that_was_given_up(hub, monkeypatch):
    """The worker is told, should it hear anything, long before the run is over."""

    async def then(provider, mute, fleet):
        await until(lambda: "again" in provider.running)
        provider.again.set()
        await until(lambda: not fleet._given_up)
        mute.heard.set()
        await until(lambda: "request 1" not in provider.running)

    run, again, _ = given_up(hub, monkeypatch, then, attempts=3)
    assert run.ok
    assert "Not this one." == run["a"].text == again["a"].text


# functions on workers

CELL = """
class Point:
    def __init__(self, x):
        self.x = x

def far(n):
    print("from process", os.getpid())
    return Point(n + 1)
"""


def task(function, **options):
    """Return a task that runs in a process."""
    return am.Task("far", function, process=True, **options)


def test_a_task_with_process_runs_at_a_worker_even_one_of_a_cell(hub, tmp_path):
    """Its code goes there, its prints and its value come back, and the value is of the cell's own class."""
    pytest.importorskip("cloudpickle")
    cell = {"__name__": "a_cell", "os": os}
    exec(CELL, cell)
    run = asyncio.run(am.Plan([task(cell["far"])], {"n": 41}).run(client=dask()))
    value = run["far"].value
    assert (cell["Point"], 42) == (type(value), value.x)
    assert f"from process {os.getpid()}" not in run["far"].calls[0].prints
    assert run["far"].calls[0].prints.startswith("from process ")
    worker = run["far"].calls[0].worker
    assert worker
    assert [worker] == list(run.tool_calls["worker"]) == list(run.agents["worker"])
    run.save(tmp_path / "run.jsonl")
    again = am.Plan([task(cell["far"])], {"n": 41}).replay(tmp_path / "run.jsonl")
    assert [worker] == list(again.tool_calls["worker"]), "it is in the record"
    assert [["run"], ["text", "ended"]] == [
        [kind for end in ends for kind in end.log] for ends in zip(*hub.ends, strict=True)
    ]


def test_what_cannot_travel_to_a_worker_is_an_error_that_says_so(hub):
    """A lock stays where it was made; nothing was sent."""
    pytest.importorskip("cloudpickle")

    def far(lock):
        return lock.locked()

    run = asyncio.run(am.Plan([task(far)], {"lock": threading.Lock()}).run(client=dask()))
    assert "DeclarationError: The call cannot be sent to a process: TypeError: cannot pickle" in run.agents.error[0]
    assert "has to be made in the function" in run.agents.error[0]
    assert not any(end.log for ends in hub.ends for end in ends)


def notes(path: Path, pid: int) -> None:
    """Write down that it has begun, in which process; end at once the second time."""
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    while len(path.read_text().split()) < 2 and os.getppid() == pid:
        time.sleep(0.01)


async def run_and_lose(hub, running, path):
    """Wait for a run, and cut the worker that runs its first function."""
    running = asyncio.ensure_future(running)
    while not path.read_text() and not running.done():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0.01)
    for kernel, _ in hub.ends:
        if "run" in kernel.log:
            kernel.abort()
    return await running


@pytest.mark.parametrize(("retries", "calls"), [(0, 1), (1, 2)])
def test_a_task_of_a_lost_worker_is_called_again_by_its_own_retries_only(hub, tmp_path, retries, calls):
    """It may have done what it does: nothing below the run repeats it."""
    pytest.importorskip("cloudpickle")
    path = tmp_path / "calls"
    path.touch()

    plan = am.Plan([task(notes, retries=retries)], {"path": path, "pid": os.getpid()})
    run = asyncio.run(run_and_lose(hub, plan.run(client=dask()), path))
    assert calls == len(path.read_text().split())
    assert (retries > 0) == run.ok
    if not retries:
        assert run.agents.error[0].startswith("Unreachable: Worker 'worker-")


class Wants(Counting):
    """Asks for the tool `charge` once, then answers."""

    async def send(self, request, stream):
        """Answer by the length of the conversation."""
        answer = await super().send(request, stream)
        if any(one.role == "assistant" for one in request.messages):
            return answer
        wanted = [{"type": "tool_use", "id": "t1", "name": "charge", "input": {}}]
        return Answer("", "tool_use", usage=answer.usage, model=request.model, content=json.dumps(wanted))


@pytest.mark.parametrize("safe", [False, True])
def test_a_tool_call_of_a_lost_worker_is_a_doubt_unless_it_is_safe(hub, tmp_path, safe):
    """As after a kill: an unsafe one is not repeated, in this run and the next; a safe one is called again."""
    pytest.importorskip("cloudpickle")
    hub.provider = Wants(pieces=())
    path, pid = tmp_path / "calls", os.getpid()
    path.touch()

    @am.tool(process=True, safe=safe)
    def charge() -> str:
        """Charge."""
        notes(path, pid)
        return "charged"

    plan = am.Plan([am.Agent("a", "Go.", tools=[charge])])
    ledger = am.Ledger(tmp_path / "ledger.sqlite3")
    run = asyncio.run(run_and_lose(hub, plan.run(client=dask(), ledger=ledger), path))
    assert run.ok == safe, list(run.agents.error)
    assert 1 + safe == len(path.read_text().split())
    if not safe:
        again = asyncio.run(plan.run(client=dask(), ledger=ledger))
        assert {"CallInDoubt"} == {one["a"].calls[0].kind for one in (run, again)}
        assert 1 == len(path.read_text().split())
        assert asyncio.run(plan.run(am.Policy(on_doubt="again"), client=dask(), ledger=ledger)).ok
        assert 2 == len(path.read_text().split())
    ledger.close()


def test_a_stopped_run_kills_the_process_at_the_worker(hub, tmp_path):
    """Nothing goes on computing for nobody."""
    pytest.importorskip("cloudpickle")
    path = tmp_path / "calls"
    path.touch()

    async def go():
        plan = am.Plan([task(notes)], {"path": path, "pid": os.getpid()})
        running = asyncio.ensure_future(plan.run(client=dask()))
        while not path.read_text().endswith("\n"):  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        await asyncio.gather(*hub.served)
        (pid,) = map(int, path.read_text().split())
        while not ended(pid):  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)

    asyncio.run(go())


def ended(pid):
    """Tell whether a child of this process has ended."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # whoever started it has seen its end
        return True


def test_a_worker_kills_a_function_at_its_own_deadline(tmp_path):
    """Should nobody be left who cancels it: the process ends, and an error says why."""
    path = tmp_path / "pid"
    packed = pack_call(sleeps_on, {"path": str(path)})
    with pytest.raises(TimeoutError):
        asyncio.run(call_packed(packed, print, timeout_s=5.0))
    while not ended(int(path.read_text())):
        time.sleep(0.01)


def sleeps_on(path: str) -> None:
    """Write its process down and sleep."""
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)
