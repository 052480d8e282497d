"""The ledger on the disk: private, shared, and still there after whatever happens to its file."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from agent_magic import Agent, Policy, TokenPrice
from agent_magic.api import Ledger, Run
from agent_magic.declare import Plan, one_agent
from agent_magic.errors import LedgerError
from agent_magic.record import Busy, CallEnded, CallStarted, LedgerFile, Owner, Prices, SqliteLedger
from agent_magic.record.ledger.base import CallKey, Doubt
from agent_magic.record.ledger.file import carries_a_log, data_folder, default_path
from agent_magic.record.ledger.lease import SKEW_S
from agent_magic.record.ledger.rows import MARK, VERSION
from tests.live.virtual import MODEL, Reply, drive
from tests.record.conformance import Conformance, always, answer, plan_of, record_of

HERE = Path(__file__).resolve().parent


class TestInMemory(Conformance):
    """The one of a session without a file."""

    @pytest.fixture
    def ledger(self):
        """A ledger."""
        made = Ledger()
        yield made
        made.close()


@pytest.fixture
def path(tmp_path):
    """Where a ledger goes."""
    return tmp_path / "data" / "ledger.sqlite3"


@pytest.fixture
def ledger(path):
    """A ledger in a file that does not wait for the disk: there is no loop whose threads could."""
    made = Ledger(path)
    made._store.file.is_logged = False  # `on_disk` returns at once, as it does for a rollback journal
    yield made
    made.close()


class TestOnDisk(Conformance):
    """The one everybody has."""

    @pytest.fixture
    def ledger(self, ledger):
        """A ledger."""
        return ledger


class TestRollbackJournal(Conformance):
    """The one on a file system that carries no write-ahead log; `unix-dotfile` locks as such systems have to."""

    @pytest.fixture
    def ledger(self, path, monkeypatch):
        """A ledger."""
        made = LedgerFile(path, options="vfs=unix-dotfile")
        assert not made.is_logged
        assert [("delete",)] == made.read("PRAGMA journal_mode")
        assert [(2,)] == made.read("PRAGMA synchronous")
        monkeypatch.setattr("agent_magic.record.ledger.database.LedgerFile", lambda *_: made)
        found = Ledger(path)
        yield found
        found.close()


def test_the_probe_tells(tmp_path):
    """A write-ahead log is tried out in the same folder, and nothing of the trial stays."""
    assert carries_a_log(tmp_path / "x")
    assert not carries_a_log(tmp_path / "x", "vfs=unix-dotfile")
    assert [] == list(tmp_path.iterdir())


def test_it_is_private(path):
    """S16: the folder is for its owner alone, and so is every file in it, the log too."""
    ledger = Ledger(path)
    ledger.keep("k", 0, answer())
    assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)
    assert {0o600} == {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert 3 == len(list(path.parent.iterdir()))
    ledger.close()
    path.chmod(0o644)
    Ledger(path).close()
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)


def test_a_folder_of_the_user_stays_as_it_is(tmp_path):
    """Only a folder that was made here is closed to others."""
    tmp_path.chmod(0o755)
    Ledger(tmp_path / "mine.sqlite3").close()
    assert 0o755 == stat.S_IMODE(tmp_path.stat().st_mode)


def test_it_outlives_its_process(path):
    """Answers, runs and what they took are there in another ledger on the same file."""
    first = Ledger(path)
    record, _ = drive(plan_of(a="x", b="{{ a }}"), always(first_s=0.25, takes_s=2.0), ledger=first)
    first.close()
    second = Ledger(path)
    again, client = drive(plan_of(a="x", b="{{ a }}"), always(text="never"), ledger=second)
    assert not client.asked
    assert [one.text for one in record.results] == [one.text for one in again.results]
    opened = second.open(1)
    assert record.events == opened.record.events
    assert 2 == len(opened.agents)
    assert [("a", 0.25, False), ("b", 0.25, False)] == [
        (one.agent, round(one.ttft_s, 3), one.simulated) for one in second.history()
    ]
    frame = second.runs()
    assert ([2, 1], ["finished", "finished"]) == (list(frame["run"]), list(frame["state"]))
    assert (0, 2) == (frame["calls"][0], frame["served"][0])
    assert (0, 0.0) == (frame["tokens"][0], frame["cost_usd"][0])  # known: nothing was sent
    second.close()


def test_a_run_that_is_over_counts_its_agents_as_its_frames_do(ledger):
    """Places that were reserved and not needed are none."""
    plan = Plan([Agent("plan", "x", repeat=2), Agent("draft", "d", until="'x' in draft", rounds=4)])
    record, _ = drive(plan, always(text="x"), ledger=ledger)
    assert 3 == ledger._past_runs()[0].agents == len(record.rows)


def test_where_it_is(monkeypatch, tmp_path):
    """What the user says comes first, then the environment, then the data folder of the system."""
    monkeypatch.delenv("AGENT_MAGIC_LEDGER")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert tmp_path / "agent-magic" == data_folder()
    assert str(data_folder() / "ledger.sqlite3") == default_path()
    monkeypatch.setenv("AGENT_MAGIC_LEDGER", "env.sqlite3")
    assert "env.sqlite3" == default_path()
    assert ":memory:" == default_path(":memory:")


# What is under way


def call_states(ledger):
    """The states of all calls."""
    return [row[0] for row in ledger._store.file.read("SELECT state FROM calls ORDER BY id")]


def test_states_of_an_attempt(ledger):
    """planned, started, finished: each is in the file before the next thing happens."""
    record = record_of()
    journal = ledger.begin(record)
    journal.write()
    assert ["planned"] == call_states(ledger)
    asyncio.run(journal.ask(0, 1, "k", 0, fresh=False))
    assert ["started"] == call_states(ledger)
    assert [("k", 0, str(Owner.me()))] == ledger._store.file.read("SELECT key, ordinal, owner FROM leases")
    journal.keep(0, 1, answer(), 2.0)
    asyncio.run(journal.on_disk(0, 1))
    assert ["finished"] == call_states(ledger)
    assert [] == ledger._store.file.read("SELECT * FROM leases")
    assert [(1, 10)] == ledger._store.file.read("SELECT reserved_input, reserved_output FROM calls")


def test_a_lease_that_nobody_has_is_taken_without_a_look(ledger):
    """A bought answer writes its lease and deletes it; only a lease that is there is read."""
    sent = list[str]()
    journal = ledger.begin(record_of())
    ledger._store.file._db.set_trace_callback(sent.append)
    assert asyncio.run(journal.ask(0, 1, "k", 0, fresh=False)) is None
    journal.keep(0, 1, answer(), 2.0)
    journal.write()
    assert ["INSERT", "DELETE"] == [one.split()[0] for one in sent if " leases " in one]


def test_what_comes_at_one_moment_shares_a_transaction(ledger):
    """Ten agents that start together are one transaction, and so are their answers."""
    sent = list[str]()
    journal = ledger.begin(record_of(names="abcdefghij"))

    async def both():
        asked = await asyncio.gather(*(journal.ask(one, 1, f"k{one}", 0, fresh=False) for one in range(10)))
        for one in range(10):
            journal.keep(one, 1, answer(), 2.0)
        await asyncio.gather(*(journal.on_disk(one, 1) for one in range(10)))
        return asked

    ledger._store.file._db.set_trace_callback(sent.append)
    assert [None] * 10 == asyncio.run(both())
    assert 2 == sent.count("COMMIT")
    assert [(10,)] == ledger._store.file.read("SELECT count(*) FROM answers")


def test_a_request_that_is_stopped_before_its_start_is_stored_is_free(ledger):
    """It takes no lease, has no row, and the others of its moment start."""
    journal = ledger.begin(record_of(names="ab"))

    async def stopped():
        first, second = (asyncio.ensure_future(journal.ask(one, 1, f"k{one}", 0, fresh=False)) for one in range(2))
        await asyncio.sleep(0)
        first.cancel()
        return await asyncio.gather(first, second, return_exceptions=True)

    gone, known = asyncio.run(stopped())
    assert isinstance(gone, asyncio.CancelledError)
    assert known is None
    assert [("k1",)] == ledger._store.file.read("SELECT key FROM leases")


def test_states_of_failures(ledger):
    """A failure and a cancellation are told apart, and each lets others buy."""
    from agent_magic.errors import Rejected

    drive(
        plan_of(a="a", b="b"),
        lambda prompt, _: Reply(9.0) if prompt == "b" else Reply(1.0, error=Rejected("no", status=400)),
        Policy(2),
        ledger=ledger,
        stops=[(3.0, None)],
    )
    assert ["failed", "cancelled"] == call_states(ledger)
    assert [] == ledger._store.file.read("SELECT * FROM leases")
    assert "cut" == ledger._past_runs()[0].state


def orphan(ledger, owner="nowhere 1 1"):
    """Let what is in the ledger be of a process that is not there."""
    with ledger._store.file.writing() as db:
        db.execute("UPDATE runs SET owner = ? WHERE state = 'running'", (owner,))
        db.execute("UPDATE leases SET owner = ?", (owner,))


def gone():
    """A process that was here and has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return f"{Owner.me().host} {ended.pid} 1"


def test_what_was_under_way_at_a_kill_is_counted(ledger):
    """G3: the next run says how many calls may have been billed and what for at most; its lease is free."""
    first = ledger.begin(record_of())
    asyncio.run(first.ask(0, 1, "k", 0, fresh=False))
    orphan(ledger, gone())
    second = ledger.begin(record_of())
    assert 1 == len(ledger.notes)
    assert "1 call was in flight when the kernel of run 1" in ledger.notes[0]
    assert "may have been billed" in ledger.notes[0]
    assert ["unknown"] == call_states(ledger)
    assert asyncio.run(second.ask(0, 1, "k", 0, fresh=False)) is None
    ledger.notes.clear()
    ledger.begin(record_of())
    assert [] == ledger.notes, "it is said once"
    assert [0, 1] == [one.unknown for one in ledger._past_runs()]


def test_a_run_that_nobody_answered_is_neither_simulated_nor_not(ledger):
    """It was stopped before a server said what it is."""
    drive(plan_of(a="a"), lambda *_: Reply(9.0), ledger=ledger, stops=[(3.0, None)])
    assert [None] == [one.simulated for one in ledger._past_runs()]


def test_a_lost_run_opens(ledger):
    """What had finished is there, what was under way says why it is not, and its frames add up."""
    plan = plan_of(a="x", b="{{ a }}", c="{{ b }}")

    record, _ = drive(plan, always(first_s=0.5, takes_s=1.0), ledger=ledger)
    with ledger._store.file.writing() as db:  # as it is when b's answer is in the file, and nothing behind it
        db.execute("DELETE FROM events WHERE place > (SELECT max(place) - 2 FROM events)")
        db.execute("UPDATE runs SET state = 'running'")
        db.execute("UPDATE calls SET state = 'started', answer = NULL WHERE name = 'c'")
    orphan(ledger, gone())
    ledger._find_lost_runs()
    run = ledger.open()
    assert [True, True, False] == [one.status == "succeeded" for one in run.record.results]
    assert run.record["b"].text == record["b"].text
    assert "kernel was killed" in run.record["c"].error
    assert run.record.cut
    assert ["lost"] == [one.state for one in ledger._past_runs()]
    assert 3 == len(run.agents)
    for result in run.record.results:
        if result.total_s is not None:
            assert result.total_s == result.queued_s + result.api_s + result.backoff_s + result.local_s


def test_leases_of_the_living_hold(ledger):
    """A lease holds while its process is there, elsewhere until its time is over by any clock, never for the dead."""
    first, second = ledger.begin(record_of()), ledger.begin(record_of())
    assert asyncio.run(first.ask(0, 1, "k", 0, fresh=False)) is None
    assert isinstance(asyncio.run(second.ask(0, 1, "k", 0, fresh=False)), Busy)
    orphan(ledger, "elsewhere 1 1")
    assert isinstance(asyncio.run(second.ask(0, 1, "k", 0, fresh=False)), Busy)
    with ledger._store.file.writing() as db:
        db.execute("UPDATE leases SET until = ?", (time.time() - SKEW_S - 1,))
    assert asyncio.run(second.ask(0, 1, "k", 0, fresh=False)) is None


def test_processes_are_told_apart():
    """By machine, number and time of start: numbers come again."""
    me = Owner.me()
    assert me == Owner.parse(str(me))
    assert me.is_alive() is True
    assert Owner.parse(gone()).is_alive() is False
    assert Owner("elsewhere", me.pid, me.start).is_alive() is None
    if sys.platform.startswith("linux"):
        assert me._replace(start="1").is_alive() is False


# What breaks


def test_a_later_version_is_refused(path):
    """F39: the error names the version and what to do; the file stays as it is."""
    Ledger(path).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=rf"later version \(format {VERSION + 1}.*Update agent-magic"):
        Ledger(path)
    assert before == path.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such owners")
def test_another_users_file_is_refused(path, monkeypatch):
    """S16: a ledger that somebody else has put there is not written to."""
    Ledger(path).close()
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(LedgerError, match="belongs to another user"):
        Ledger(path)


@pytest.mark.parametrize("content", [b"my notes", b"SQLite format 3\0 but no more", "other"], ids=str)
def test_another_programs_file_is_left_alone(path, content):
    """Whatever it is: it is not opened, not written and not renamed."""
    path.parent.mkdir()
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE mine (x)")
        db.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(path)
    assert before == path.read_bytes()
    assert ["ledger.sqlite3"] == [one.name for one in path.parent.iterdir()]


def test_a_ledger_of_each_release_opens(tmp_path):
    """F39: files of every release are kept here, and open for ever."""
    files = sorted((HERE / "ledgers").glob("*.sqlite3"))
    assert files
    for kept in files:
        copy = tmp_path / kept.name
        shutil.copy(kept, copy)
        ledger = Ledger(copy)
        assert [] == ledger.notes
        run = ledger.open(1)
        assert {"succeeded"} == {one.status for one in run.record.results}
        assert run["b"].text.endswith("\0 and a lone \ud800")
        assert len(run.record.attempts) == run.save(tmp_path / "run.cassette.jsonl"), "also what the file did not say"
        plan = run.plan
        _, client = drive(plan, always(), ledger=ledger)
        assert not client.asked
        assert ledger.verify().ok
        run.against(Run(drive(one_agent(plan), always(takes_s=9.0))[0]))
        ledger.close()
        again = Ledger(copy)
        assert {"one agent": 9.0} == {kind: base.wall_s for kind, base in again.open(1).record.bases.items()}
        again.close()


def test_what_a_run_was_measured_against_outlives_its_kernel(path):
    """The seconds and dollars of one agent are kept with the run, and come back with it, then and later."""
    plan, prices = plan_of(a="x", b="y {{ a }}"), Prices({MODEL: TokenPrice(1e6, 1e6)})
    ledger = Ledger(path)
    run = Run(drive(plan, always(), ledger=ledger, prices=prices)[0])
    run.against(Run(drive(one_agent(plan), always(takes_s=5.0), prices=prices)[0]))
    expected = run.summary[["speedup", "cost_multiple"]]
    assert expected.notna().all(axis=None)
    ledger.close()
    later = Ledger(path)
    kept = later.open(1)
    assert_frame_equal(expected, kept.summary[["speedup", "cost_multiple"]])
    assert run.whatif()["cost_multiple"][0] == kept.whatif(prices=None)["cost_multiple"][0] == 2.0
    kept.against(Run(drive(plan, always(takes_s=4.0), Policy(schedule="sequential"), prices=prices)[0]))
    later.close()
    assert {"one agent", "one after another"} == set(Ledger(path).open(1).record.bases)


def filled(path, count=60, size=3000):
    """A ledger with runs and answers in it, closed, all of it in one file."""
    ledger = Ledger(path)
    ledger._store.file.is_logged = False
    drive(plan_of(**{f"a{one}": f"question {one}" for one in range(8)}), always(first_s=0.5), ledger=ledger)
    for one in range(count):
        ledger.keep(f"k{one}", 0, answer(f"{one} " * (size // 3)))
    ledger.close()
    assert not Path(f"{path}-wal").exists()


def flip(path, rng, times=1):
    """Change a byte somewhere behind the first page."""
    data = bytearray(path.read_bytes())
    for _ in range(times):
        place = rng.randrange(4096, len(data))
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("seed", range(25))
def test_flipped_bits(path, seed):
    """F18: whichever bit is flipped, what is served is what was bought, and a session goes on."""
    filled(path)
    flip(path, random.Random(seed), times=3)
    ledger = Ledger(path)
    found = [ledger.find(f"k{one}", 0) for one in range(60)]
    for one, got in enumerate(found):
        assert got is None or got.text == f"{one} " * 1000
    assert sum(got is None for got in found) <= 6
    drive(plan_of(new="something new"), always(), ledger=ledger)
    ledger.close()


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_torn_tail(path, share):
    """F18: a file that was cut is set aside, and what is left of it is recovered."""
    filled(path)
    whole = path.read_bytes()
    left = whole[: int(len(whole) * share)]
    path.write_bytes(left)
    ledger = Ledger(path)
    assert left.count(MARK.encode()) > 60 * share - 20
    assert ledger.size().answers >= left.count(MARK.encode()) - 1, "the last one may be torn"
    assert [] != ledger.notes
    assert "set aside" in ledger.notes[0]
    assert "recovered" in ledger.notes[0]
    assert ledger.verify().ok
    ledger.close()


@pytest.mark.parametrize("pages", [(0,), (1,), (0, 1, 2, 3)], ids=str)
def test_damaged_pages(path, pages):
    """F19: pages full of noise, the first with the header among them: the answers elsewhere are recovered."""
    filled(path)
    data = bytearray(path.read_bytes())
    for page in pages:
        data[page * 4096 : (page + 1) * 4096] = random.Random(page).randbytes(4096)
    path.write_bytes(data)
    ledger = Ledger(path)
    found = [ledger.find(f"k{one}", 0) for one in range(60)]
    assert sum(one is not None for one in found) >= 55
    assert any(one.name.startswith("ledger.sqlite3.damaged-") for one in path.parent.iterdir())
    assert ledger.verify().ok
    ledger.close()


def test_damage_in_the_middle_of_a_run(path):
    """A file that breaks while it is in use is replaced, and the run's answers and events go into the new one."""
    ledger = Ledger(path)
    ledger._store.file.is_logged = False
    record = record_of()
    journal = ledger.begin(record)
    asyncio.run(journal.ask(0, 1, "k", 0, fresh=False))
    journal.keep(0, 1, answer("paid"), 1.0)
    ledger._store.file.read("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)
    ledger.keep("other", 0, answer("later"))
    journal.write()
    journal.close()
    assert ("paid", "later") == (ledger.find("k", 0).text, ledger.find("other", 0).text)
    assert ledger.verify().ok
    assert record.events == ledger.open().record.events[: len(record.events)]
    ledger.close()


def test_salvage_takes_over_what_is_not_there_yet(path):
    """A file that was set aside by hand gives its answers, once."""
    filled(path, count=5)
    path.rename(path.with_name(f"{path.name}.damaged-x"))
    ledger = Ledger(path)
    assert [13, 0] == [ledger.salvage(), ledger.salvage()]
    assert "0 " * 1000 == ledger.find("k0", 0).text
    ledger.close()


CHARGE = CallKey("k", "charge")


def began(ledger, key=CHARGE):
    """A run that has begun a call."""
    record = record_of()
    journal = ledger.begin(record)
    assert journal.begin_call(0, 1, key, fresh=False) is None
    record.add(CallStarted(1.0, 0, 1, 1, "t", key.tool, "{}"))
    return record, journal


def ended(record, journal):
    """Let the call end."""
    record.add(CallEnded(2.0, 0, 1, "succeeded", "charged", None, None, "live"))
    journal.write()


def seen(ledger, key=CHARGE):
    """What another run is told of a call."""
    return ledger.begin(record_of()).begin_call(0, 1, key, fresh=False)


def test_two_kernels_make_a_call_once(path):
    """One waits while the other is at it, and uses its result. Where that one has gone, it is a doubt."""
    first, second = Ledger(path), Ledger(path)
    record, journal = began(first)
    assert isinstance(seen(second), Busy)
    ended(record, journal)
    known = seen(second)
    assert ("charged", "ledger") == (known.result, known.source)
    began(first, CallKey("other", "charge"))
    orphan(first, gone())
    assert isinstance(seen(second, CallKey("other", "charge")), Doubt)
    assert seen(second, CallKey("third", "look", repeats=True)) is None
    first.close()
    second.close()


@pytest.mark.parametrize("by_hand", [True, False])
def test_calls_outlive_a_damaged_file(path, by_hand):
    """What was done is not done again because the pages of answers broke; and a doubt stays one."""
    ledger, other = Ledger(path), CallKey("open", "charge")
    ended(*began(ledger))
    began(ledger, other)
    orphan(ledger, gone())
    ledger.close()
    filled(path)
    if by_hand:
        path.rename(path.with_name(f"{path.name}.damaged-x"))
    else:
        pages = [path.read_bytes()[at : at + 4096] for at in range(0, path.stat().st_size, 4096)]
        last = max(n for n, one in enumerate(pages) if MARK.encode() in one)
        pages[last] = bytes(4096)
        path.write_bytes(b"".join(pages))
    ledger = Ledger(path)
    if by_hand:
        ledger.keep("mine", 0, answer("mine"))
        assert ledger.salvage()
    else:
        assert "damaged" in ledger.notes[0]
    assert "charged" == seen(ledger).result
    assert isinstance(seen(ledger, other), Doubt)
    ledger.close()


@pytest.mark.parametrize("beside", [0, 300], ids=["alone", "among others"])
def test_calls_outlive_a_destroyed_first_page(path, beside):
    """Nothing says any more where a table begins: each call is known by its row, a done one as done."""
    done, other = CallKey("d" * 64, "charge"), CallKey("b" * 64, "zahlen_für")
    ledger = Ledger(path)
    for number in range(beside):
        began(ledger, CallKey(f"{number:064x}", "look"))
    ended(*began(ledger, done))
    began(ledger, other)
    orphan(ledger, gone())
    ledger.close()
    filled(path, count=5)
    data = path.read_bytes()
    path.write_bytes(bytes(4096) + data[4096:])
    ledger = Ledger(path)
    assert "damaged" in ledger.notes[0]
    assert "charged" == seen(ledger, done).result
    assert isinstance(seen(ledger, other), Doubt)
    assert isinstance(seen(ledger, CallKey(f"{beside - 1:064x}", "look")), Doubt) or not beside
    drive(plan_of(a="new"), always(), ledger=ledger)
    assert isinstance(seen(ledger, other), Doubt), "a new run has the number of none that was lost"
    ledger.close()


def test_what_is_pruned_takes_its_calls_along(ledger):
    """Their results are texts of the user's, too."""
    ended(*began(ledger))
    with ledger._store.file.writing() as db:
        db.execute("UPDATE runs SET state = 'finished'")
    ledger.prune(days=0)
    assert [(0,)] == ledger._store.file.read("SELECT count(*) FROM tool_calls")


def full(ledger):
    """Let the file take no more pages."""
    pages = ledger._store.file.read("PRAGMA page_count")[0][0]
    ledger._store.file.read(f"PRAGMA max_page_count={pages}")


def test_a_full_disk_loses_nothing(ledger):
    """F15: what comes in when the disk is full is shown and held; nothing more is bought; the rest is as it was."""
    drive(plan_of(before="b"), always(text="kept"), ledger=ledger)
    plan = plan_of(**{f"a{one}": f"question {one}" for one in range(20)})
    calls = []

    def script(prompt, _):
        calls.append(prompt)
        if len(calls) == 4:
            full(ledger)
        return Reply(1.0, text="long " * 3000)

    record, client = drive(plan, script, Policy(4), ledger=ledger)
    statuses = [one.status for one in record.results]
    assert len(client.asked) <= 8, "at most those under way"
    assert len(client.asked) == statuses.count("succeeded")
    assert 20 - len(client.asked) == statuses.count("failed")
    failed = next(one for one in record.results if one.status == "failed")
    assert "Nothing was sent" in failed.error
    assert 0.0 == failed.cost_usd
    assert 1 == sum("not on the disk" in note for note in ledger.notes)
    assert ledger._store.held
    assert ledger.verify().ok
    again, client = drive(plan_of(a0="question 0"), always(), ledger=ledger)
    assert ("ledger", 0) == (again["a0"].source, len(client.asked)), "held answers are served from memory"
    ledger._store.file.read("PRAGMA max_page_count=1000000")
    drive(plan, always(text="x"), ledger=ledger)
    assert {"succeeded"} == {one.status for one in ledger.open().record.results}


def test_room_again_stores_what_was_held(ledger):
    """As soon as the file takes more, what was held goes into it."""
    record = record_of()
    journal = ledger.begin(record)
    asyncio.run(journal.ask(0, 1, "k", 0, fresh=False))
    full(ledger)
    journal.keep(0, 1, answer("long " * 30000), 1.0)
    journal.write()
    assert ["k"] == [key for key, _ in ledger._store.held]
    ledger._store.file.read("PRAGMA max_page_count=1000000")
    journal.write()
    assert not ledger._store.held
    assert [(1,)] == ledger._store.file.read("SELECT count(*) FROM answers")


def test_large_answers(ledger):
    """F30: answers of 10 MB are kept and come back."""
    big = "wörd " * 2_000_000
    for one in range(3):
        ledger.keep(f"k{one}", 0, answer(f"{one}{big}"))
    assert f"1{big}" == ledger.find("k1", 0).text
    assert ledger.verify().ok


def test_pruning(ledger):
    """Made-up answers, or old ones, go with their runs; the rest stays and the room is given back."""
    drive(plan_of(a="real"), always(), ledger=ledger)
    drive(plan_of(a="made up"), always(source="simulated", text="y" * 100_000), ledger=ledger)
    assert 1 == ledger.prune(simulated=True)
    assert [1] == [one.run for one in ledger._past_runs()]
    assert {"succeeded"} == {one.status for one in ledger.open(1).record.results}
    assert 0 == ledger.prune(days=1)
    assert 1 == ledger.prune(days=0)
    assert ([], 0) == (ledger._past_runs(), len(ledger))
    assert [(0,)] == ledger._store.file.read("SELECT count(*) FROM texts")


def test_export(ledger, tmp_path):
    """Every answer as a line of plain JSON, with its agent, its model and what it cost."""
    drive(plan_of(a="x \ud800"), always(text="the answer"), ledger=ledger)
    assert 1 == ledger.export(tmp_path / "out.jsonl")
    line = json.loads((tmp_path / "out.jsonl").read_text())
    assert ("the answer", "a", 1) == (line["text"], line["agent"], line["run"])
    assert line["cost_usd"] > 0
    assert ["out.jsonl"] == [one.name for one in tmp_path.iterdir() if one.is_file()]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "Say what to delete"),
        ({"days": -1}, "got -1"),
        ({"days": float("nan")}, "got nan"),
        ({"days": "7"}, "'7'"),
    ],
)
def test_nothing_is_forgotten_by_mistake(ledger, said, told):
    """Whoever does not say what to forget, or says it wrongly, loses nothing that was paid for."""
    drive(plan_of(a="x"), always(), ledger=ledger)
    with pytest.raises(LedgerError, match=told):
        ledger.prune(**said)
    assert 1 == ledger.size().answers


def test_an_export_writes_over_exports_only(path, tmp_path):
    """A notebook, a data file or the ledger itself is as it was; an earlier export is replaced."""
    ledger = Ledger(path)
    drive(plan_of(a="x"), always(), ledger=ledger)
    for name, content in (("a.ipynb", '{"cells": []}'), ("b.csv", "a,b\n\xff"), ("c.json", "[1]")):
        (tmp_path / name).write_text(content)
        with pytest.raises(LedgerError, match="no export"):
            ledger.export(tmp_path / name)
        assert content == (tmp_path / name).read_text()
    with pytest.raises(LedgerError, match="no export"):
        ledger.export(path)
    assert 1 == ledger.size().answers
    for _ in range(2):
        assert 1 == ledger.export(tmp_path / "out.jsonl")
    ledger.close()


@pytest.mark.parametrize("place", [None, 5, object(), "a\0b"])
def test_what_is_no_path_makes_no_file(place, tmp_path, monkeypatch):
    """`Ledger(None)` leaves no file called None behind."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match="is no"):
        Ledger(place)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("run", [9, -1, "1", [1], 1 << 70, True])
def test_a_run_that_is_not_there(ledger, run):
    """Whatever is asked for, the answer says where the numbers are."""
    drive(plan_of(a="x"), always(), ledger=ledger)
    with pytest.raises(LedgerError, match="%agents runs lists them"):
        ledger.open(run)


def test_no_key_and_no_address_in_the_file(path):
    """S03: the file holds what was asked and answered, no credentials and no address with a token in it."""
    ledger = Ledger(path)
    ledger._store.file.is_logged = False
    from tests.live.virtual import Scripted

    drive(plan_of(a="x"), Scripted(always(), endpoint="https://user:canary@host.example/v1?k=canary"), ledger=ledger)
    ledger.close()
    data = path.read_bytes()
    assert b"canary" not in data
    assert MARK.encode() in data


def test_a_forked_child_has_a_connection_of_its_own(path):
    """Both go on to write, and all of it is there."""
    ledger = Ledger(path)
    ledger.keep("before", 0, answer())
    pid = os.fork()
    if not pid:
        status = 1
        try:
            ledger.keep("child", 0, answer())
            status = 0
        finally:
            os._exit(status)
    assert 0 == os.waitpid(pid, 0)[1]
    ledger.keep("after", 0, answer())
    assert ["before", "child", "after"] == [
        row[0] for row in ledger._store.file.read("SELECT key FROM answers ORDER BY id")
    ]
    assert ledger.verify().ok
    ledger.close()


def test_waiting_for_the_disk_is_shared(path, monkeypatch):
    """Answers that come in together wait for the disk together, and each is on it before anybody sees it."""
    ledger = Ledger(path)
    synced, all_asked, real = [], threading.Event(), ledger._store.file.sync

    def sync():  # a disk so slow that meanwhile everybody has been answered
        assert all_asked.wait(60)
        real()
        synced.append(1)

    monkeypatch.setattr(ledger._store.file, "sync", sync)
    plan = plan_of(**{f"a{one}": f"question {one}" for one in range(30)})

    async def work():
        from agent_magic.live import Driver
        from tests.live.virtual import Scripted

        client = Scripted(always(takes_s=0.01))
        driver = Driver(plan, Policy(30), client, ledger=ledger)
        running = asyncio.create_task(driver.drive())
        while len(client.asked) < 30 or client.running:  # noqa: ASYNC110 - requests have no event
            await asyncio.sleep(0.001)
        assert not any(one.status == "succeeded" for one in driver.record.results)
        all_asked.set()
        await running
        return driver.record

    record = asyncio.run(work())
    assert {"succeeded"} == {one.status for one in record.results}
    assert 1 <= len(synced) <= 3
    ledger.close()


def test_waiting_for_the_disk_ends(path):
    """Answers that come in while others wait for the disk: nobody spins on a wait that is over."""
    ledger = Ledger(path)
    plan, lot = plan_of(**{f"a{one}": f"question {one}" for one in range(60)}), random.Random(1)

    async def work():
        from agent_magic.live import Driver
        from tests.live.virtual import Scripted

        driver = Driver(plan, Policy(20), Scripted(lambda _, __: Reply(lot.random() * 0.02)), ledger=ledger)
        async with asyncio.timeout(60):
            await driver.drive()
        return driver.record

    for _ in range(3):
        record = asyncio.run(work())
        assert {"succeeded"} == {one.status for one in record.results}
        ledger.prune(days=0)
    ledger.close()


def test_disk_ledgers_say_what_they_are():
    """A name and a count, no text."""
    ledger = SqliteLedger()
    ledger.keep("k", 0, answer())
    assert "Ledger(':memory:': 1 answers)" == repr(ledger)
    ledger.close()
