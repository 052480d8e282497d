"""The ledger among other files and other processes: what is not ours stays as it is, and a lock loses nothing."""

# Tests look into rooms, and take for granted what they have just checked.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import agent_magic as am
from agent_magic import Policy
from agent_magic.errors import LedgerError
from agent_magic.live import Driver
from agent_magic.record import Busy
from agent_magic.record.ledger import journal as store_journal
from tests.live.virtual import Reply, Scripted
from tests.record.conformance import answer, plan_of, record_of


@pytest.fixture
def path(tmp_path):
    """Where a ledger goes."""
    return tmp_path / "l.sqlite3"


@pytest.fixture
def ledger(path):
    """A ledger in a file."""
    made = am.Ledger(path)
    yield made
    made.close()


# Other files


def pipe(path):
    """Make a named pipe."""
    os.mkfifo(path, 0o644)


def device(path):
    """Make a device of our own: the same as the null device, which nobody else uses."""
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    path.chmod(0o666)


def socket_file(path):
    """Make a socket."""
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(path))


def text(path):
    """Make a file of notes."""
    path.write_text("my notes")
    path.chmod(0o644)


def foreign(path):
    """Make the database of another program."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE mine (x)")
    path.chmod(0o644)


def foreign_logged(path):
    """Make the database of another program that has a write-ahead log."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE mine (x)")
    path.chmod(0o644)


@pytest.mark.parametrize(
    "make", [pipe, device, socket_file, Path.mkdir, text, foreign, foreign_logged], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("way", ["itself", "a link to it"])
def test_what_is_no_ledger_is_refused_and_unchanged(path, make, way):
    """Its mode, its content and its very file are as before, and nothing is beside it."""
    make(path)
    given = path
    if way != "itself":
        given = path.with_name("link")
        given.symlink_to(path)
    names = sorted(one.name for one in path.parent.iterdir())
    before, content = path.lstat(), path.read_bytes() if path.is_file() else None
    with pytest.raises(LedgerError, match=r"not a file|no ledger"):
        am.Ledger(given)
    after = path.lstat()
    assert (before.st_mode, before.st_ino, before.st_size) == (after.st_mode, after.st_ino, after.st_size)
    assert content is None or content == path.read_bytes()
    assert names == sorted(one.name for one in path.parent.iterdir())


@pytest.mark.parametrize("way", ["file", "folder", "not there yet"])
def test_a_link_to_a_ledger_is_the_ledger(tmp_path, way):
    """The log stands beside the real file, what was stored is synced, and the link stays one."""
    real, link = tmp_path / "real" / "l.sqlite3", tmp_path / "link"
    real.parent.mkdir()
    if way == "file":
        am.Ledger(real).close()
    link.symlink_to(real.parent if way == "folder" else real)
    ledger = am.Ledger(link / real.name if way == "folder" else link)
    ledger.keep("k", 0, answer())
    assert [] == ledger.notes
    assert Path(f"{real}-wal").exists()
    assert link.is_symlink()
    ledger.close()
    with closing(am.Ledger(real)) as again:
        assert 1 == len(again)


@pytest.mark.parametrize("place", ["loop", "nul\0name", "~nobody-at-all/x"])
def test_what_is_no_path_is_said(tmp_path, place):
    """A loop of links, a NUL, no such user."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(LedgerError, match=r"is no file name|cannot be opened"):
        am.Ledger(tmp_path / place if place == "loop" else place)


def test_a_working_directory_that_is_gone_is_said(tmp_path, monkeypatch):
    """A relative name then means nothing."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(LedgerError, match="working directory does not exist"):
        am.Ledger("l.sqlite3")


def test_exports_replace_no_other_kind_of_file(ledger, tmp_path):
    """A pipe stays a pipe; a folder that is missing and a NUL are said."""
    pipe(tmp_path / "pipe")
    for name, told in (
        ("pipe", "a named pipe, not a file"),
        ("none/x", "folder of 'x' does not exist"),
        ("a\0b", "no f"),
    ):
        with pytest.raises(LedgerError, match=told):
            ledger.export(tmp_path / name)
    assert (tmp_path / "pipe").is_fifo()


# Other processes

ELSEWHERE = "import sys, agent_magic as am\nam.Ledger(sys.argv[1]).close()"


def test_a_second_ledger_of_a_process_drops_no_locks(ledger):
    """Closing any handle of a file drops this process's locks on it, and another process then deletes the log."""
    ledger.keep("before", 0, answer())
    am.Ledger(ledger.path).close()
    with pytest.raises(LedgerError):
        ledger.export(ledger.path)
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(ledger.path)], check=True)
    assert Path(f"{ledger.path}-wal").exists()
    ledger.keep("after", 0, answer())
    with closing(am.Ledger(ledger.path)) as again:
        assert 2 == len(again)


class Lock:
    """Another process that has the file locked, played by another connection."""

    def __init__(self, path):
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def take(self):
        """Lock it."""
        self._db.execute("BEGIN IMMEDIATE")

    def free(self):
        """Free it again."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")


@pytest.fixture
def lock(ledger):
    """A lock on the ledger's file, not taken yet."""
    made = Lock(ledger.path)
    yield made
    made.free()
    made._db.close()


def test_a_locked_ledger_says_busy_at_once(ledger, lock):
    """Nobody buys while the start cannot be stored; afterwards it goes on, and only the first look waits at all."""
    journal = ledger.begin(record_of())
    lock.take()
    assert isinstance(asyncio.run(journal.ask(0, 1, "k", 0, fresh=False)), Busy)
    assert [(0,)] == ledger._store.file.read("PRAGMA busy_timeout")
    assert isinstance(asyncio.run(journal.ask(0, 1, "k", 0, fresh=False)), Busy)
    lock.free()
    assert asyncio.run(journal.ask(0, 1, "k", 0, fresh=False)) is None
    assert [(50,)] == ledger._store.file.read("PRAGMA busy_timeout")
    assert [] == ledger.notes
    journal.close()


async def until(what):
    """Let the loop run until something is true."""
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("moment", ["before the start", "before the answer"])
def test_a_run_outlasts_a_lock(ledger, lock, moment):
    """The loop runs on meanwhile, nothing is shown that is not stored, and every agent succeeds, each bought once."""
    plan = plan_of(a="x", b="y", c="z")

    async def work():
        client = Scripted(lambda *_: Reply(0.01))
        driver = Driver(plan, Policy(3), client, ledger=ledger)
        if moment == "before the start":
            lock.take()
        running = asyncio.create_task(driver.drive())
        if moment == "before the answer":
            await until(lambda: len(client.asked) == 3)
            lock.take()
            await until(lambda: not client.running)
        for _ in range(100):
            await asyncio.sleep(0.005)
        assert not any(one.status == "succeeded" for one in driver.record.results)
        assert (0 if moment == "before the start" else 3) == len(client.asked)
        lock.free()
        await running
        return driver.record, client

    record, client = asyncio.run(work())
    assert ["succeeded"] * 3 == [one.status for one in record.results]
    assert 3 == len(client.asked)
    assert [(3,)] == ledger._store.file.read("SELECT count(*) FROM answers")
    assert [] == ledger.notes


def test_a_lock_without_end_is_a_failure_that_loses_nothing(ledger, lock, monkeypatch):
    """No request is sent, what was bought is shown and kept in memory, and written as soon as the lock is gone."""
    monkeypatch.setattr(store_journal, "LOCKED_S", 0.0)
    monkeypatch.setattr("agent_magic.record.ledger.lease.TICK_S", 0.01)
    monkeypatch.setattr(store_journal, "BEATS", 1 << 30)
    plan = plan_of(a="x", b="{{ a }}")

    async def work():
        client = Scripted(lambda *_: Reply(0.01))
        driver = Driver(plan, Policy(3), client, ledger=ledger)
        running = asyncio.create_task(driver.drive())
        await until(lambda: client.asked)
        lock.take()
        await running
        return driver.record

    record = asyncio.run(work())
    assert ["succeeded", "failed"] == [one.status for one in record.results]
    assert "Nothing was sent" in (record["b"].error or "")
    assert "kept in memory" in ledger.notes[0]
    assert 1 == len(ledger._store.held)
    lock.free()
    asyncio.run(until(lambda: not ledger._store.held))
    with closing(am.Ledger(ledger.path)) as again:
        assert (["finished"], 1) == (list(again.runs()["state"]), len(again))


def test_what_is_left_is_written_when_the_ledger_closes(path, monkeypatch):
    """A run ended while the file was locked, and the kernel goes before the heartbeat has tried again."""
    monkeypatch.setattr("agent_magic.record.ledger.lease.TICK_S", 1e6)
    ledger = am.Ledger(path)
    lock = Lock(path)
    journal = ledger.begin(record_of())
    asyncio.run(journal.ask(0, 1, "k", 0, fresh=False))
    lock.take()
    journal.keep(0, 1, answer("paid"), 1.0)
    journal.close()
    lock.free()
    lock._db.close()
    ledger.close()
    with closing(am.Ledger(path)) as again:
        assert "paid" == again.find("k", 0).text


def test_a_user_is_told_of_a_lock(ledger, lock, monkeypatch):
    """What a user asks of the ledger waits a moment, and then says what is wrong."""
    monkeypatch.setattr("agent_magic.record.ledger.database.PATIENCE_S", 0.0)
    lock.take()
    with pytest.raises(LedgerError, match=r"could not be read or written: database is locked"):
        ledger.prune(days=0)


# Interrupts and full disks


def test_an_interrupt_between_reply_and_commit_loses_nothing(ledger, monkeypatch):
    """The interrupt comes in the middle of the commit: the answer is in the file when the run has been cleaned up."""
    real, client = ledger._store.file.writing, Scripted(lambda *_: Reply(0.01, text="paid"))
    interrupts = []

    def writing():
        if client.asked and not client.running and not interrupts:
            interrupts.append(1)
            raise KeyboardInterrupt
        return real()

    monkeypatch.setattr(ledger._store.file, "writing", writing)
    driver = Driver(plan_of(a="x"), Policy(1), client, ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(driver.drive())
    assert [1] == interrupts
    assert 1 == len(client.asked)
    assert [(1,)] == ledger._store.file.read("SELECT count(*) FROM answers")
    with closing(am.Ledger(ledger.path)) as again:
        _, second = again, Scripted(lambda *_: Reply(0.01))
        asyncio.run(Driver(plan_of(a="x"), Policy(1), second, ledger=again).drive())
    assert not second.asked
