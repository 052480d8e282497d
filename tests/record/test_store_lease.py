"""Leases by whoever waits for them, and what threads write: large answers, and a long log into its file."""

# Tests look into rooms.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

import agent_magic as am
from agent_magic import Policy
from agent_magic.live import Driver
from agent_magic.record import Owner
from agent_magic.record.ledger import file as store_file
from agent_magic.record.ledger import journal as store_journal
from agent_magic.record.ledger.lease import LEASE_S, Heartbeat, LeaseWatch
from tests.live.virtual import Reply, Scripted
from tests.record.conformance import answer, plan_of, record_of

ME, ELSEWHERE = str(Owner.me()), "elsewhere 1 1"
LEASE = ("k", 0, 1)


class Clock:
    """Seconds that pass when they are told to."""

    now_s = 0.0

    def __call__(self):
        """Tell the time."""
        return self.now_s


@pytest.mark.parametrize("jump_s", [0.0, 86400.0, -86400.0])
@pytest.mark.parametrize("owner", [ME, ELSEWHERE], ids=["here", "elsewhere"])
def test_a_lease_that_is_renewed_holds(owner, jump_s):
    """F28: for hours, and whatever the wall clock does; one that is not renewed ends after `LEASE_S`."""
    clock, wall_s = Clock(), 1e9
    pulses = LeaseWatch(clock)
    for _ in range(1000):
        assert pulses.holds(LEASE, owner, wall_s + LEASE_S, wall_s)
        clock.now_s += LEASE_S / 2
        wall_s += LEASE_S / 2
    wall_s += jump_s
    until = wall_s + LEASE_S
    assert pulses.holds(LEASE, owner, until, wall_s)
    clock.now_s += LEASE_S
    assert not pulses.holds(LEASE, owner, until, wall_s)


def test_the_clock_of_a_waiter_may_be_wrong():
    """F28: of a process on this machine it does not matter what time stands in its lease."""
    pulses = LeaseWatch(Clock())
    assert pulses.holds(LEASE, ME, 0.0, 1e9)
    assert not pulses.holds(LEASE, ELSEWHERE, 0.0, 1e9)


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
def test_clocks_of_two_machines_may_differ_by_minutes(ahead_s):
    """A lease that is renewed elsewhere holds, whatever the time written in it says here."""
    clock, wall_s = Clock(), 1e9
    pulses = LeaseWatch(clock)
    for _ in range(10):
        assert pulses.holds(LEASE, ELSEWHERE, wall_s + LEASE_S, wall_s + ahead_s)
        clock.now_s += LEASE_S / 2
        wall_s += LEASE_S / 2


def test_a_heart_beats_for_those_who_run(monkeypatch):
    """Once for each, on another thread, until the last has gone."""
    monkeypatch.setattr("agent_magic.record.ledger.lease.TICK_S", 0.005)
    heart, beats, both = Heartbeat(), {}, threading.Event()

    def work(name):
        beats[name] = threading.current_thread()
        if len(beats) == 2:
            both.set()

    heart.add(1, lambda: work(1))
    heart.add(2, lambda: work(2))
    assert both.wait(60)
    assert threading.main_thread() not in beats.values()
    heart.remove(1)
    heart.remove(2)
    beats[1].join(60)
    assert not beats[1].is_alive()
    both.clear()
    heart.add(2, both.set)
    assert both.wait(60)
    heart.remove(2)


@pytest.fixture
def ledger(tmp_path):
    """A ledger in a file."""
    made = am.Ledger(tmp_path / "l.sqlite3")
    yield made
    made.close()


def on_a_loop(plan, script, ledger, **more):
    """Run a plan on a real loop."""

    async def work():
        driver = Driver(plan, Policy(4), Scripted(script), ledger=ledger, **more)
        await driver.drive()
        return driver.record

    return asyncio.run(work())


def test_large_answers_are_written_by_a_thread(ledger, monkeypatch):
    """And are in the file before anybody sees them, each once, and served again."""
    long = "ä" * store_journal.LARGE
    writers = []
    monkeypatch.setattr(ledger._store.file, "writing", _noting(ledger._store.file.writing, writers))
    plan = plan_of(a="x", b="{{ a }}", c="small")
    record = on_a_loop(plan, lambda prompt, _: Reply(0.0, text="s" if prompt == "small" else long), ledger)
    assert long == record["b"].text
    assert any(one is not threading.main_thread() for one in writers)
    assert [(1,), (1,), (1,)] == ledger._store.file.read("SELECT count(*) FROM answers GROUP BY key, ordinal")
    again = on_a_loop(plan, lambda *_: Reply(0.0, error=ValueError("asked")), ledger)
    assert ["ledger"] * 3 == [one.source for one in again.results]
    assert record.events == ledger.open(1).record.events


def _noting(writing, writers):
    def noting():
        writers.append(threading.current_thread())
        return writing()

    return noting


def test_a_stop_waits_for_a_large_answer(ledger):
    """Cancelled while a thread writes it: it was bought, so it is kept, and the run has it."""
    long = "x" * store_journal.LARGE
    busy = threading.Event()
    ledger._store.writer.submit(busy.wait, 120)  # the thread has something else to do

    async def work():
        driver = Driver(plan_of(a="x"), Policy(4), Scripted(lambda *_: Reply(0.0, text=long)), ledger=ledger)
        task = asyncio.create_task(driver.drive())
        while not (driver._buyer.journal and driver._buyer.journal._large):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return driver.record

    try:
        record = asyncio.run(work())
    finally:
        busy.set()
    assert ("succeeded", long) == (record["a"].status, record["a"].text)
    assert [("finished",)] == ledger._store.file.read("SELECT state FROM calls")
    assert [(1,)] == ledger._store.file.read("SELECT count(*) FROM answers")


def test_a_full_disk_keeps_a_large_answer_in_memory(ledger):
    """The thread cannot write it: it is held, shown, and said."""
    pages = ledger._store.file.read("PRAGMA page_count")[0][0]
    ledger._store.file.read(f"PRAGMA max_page_count={pages + 20}")
    record = on_a_loop(plan_of(a="x"), lambda *_: Reply(0.0, text="x" * store_journal.LARGE), ledger)
    assert "succeeded" == record["a"].status
    assert 1 == len(ledger._store.held)
    assert "kept in memory" in ledger.notes[0]


def test_a_long_log_is_moved_without_the_loop(ledger, monkeypatch):
    """The thread that renews leases moves it into the file; no commit on the loop has to. The log gets short again."""
    monkeypatch.setattr(store_file, "LONG_LOG", 100_000)
    log = Path(f"{ledger.path}-wal")
    ledger._store.file.read("PRAGMA journal_size_limit=25000")
    before = ledger.path.stat().st_size
    for number in range(20):
        with ledger._store.file.writing() as db:
            db.execute("INSERT INTO texts VALUES (?, ?)", (str(number).encode(), b"x" * 10_000))
    assert before == ledger.path.stat().st_size
    assert log.stat().st_size > 200_000
    journal = ledger.begin(record_of())
    monkeypatch.setattr("agent_magic.record.ledger.lease.TICK_S", 0.01)
    assert asyncio.run(journal.ask(0, 1, "k", 0, fresh=False)) is None
    until = time.monotonic() + 60
    while ledger.path.stat().st_size < before + 200_000:
        assert time.monotonic() < until
        time.sleep(0.01)
    ledger._store.file.tidy()  # waits for the thread
    journal.keep(0, 1, answer(), 1.0)
    journal.write()
    assert log.stat().st_size < 100_000
    journal.close()
    assert ledger.verify().ok
