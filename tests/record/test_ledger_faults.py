"""A ledger's file is taken away, broken, locked or full while a run goes on, in drawn scenes: no money is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

import agent_magic as am
from agent_magic import Policy
from agent_magic.errors import LedgerError
from agent_magic.live import Driver
from agent_magic.record.ledger import journal as store_journal
from tests.conftest import NIGHTLY
from tests.live.batch_scenes import SHM, Loop
from tests.live.virtual import Reply, Scripted
from tests.record.conformance import answer, record_of

PARTS = ("", "-wal", "-shm")
MOMENTS_S = [0.0, 0.4, 0.6, 1.1, 1.6, 2.2]
SAID_LOST = ("not on the disk", "bought again")
"""What a note says where an answer that was bought is not in the ledger."""


class Disk:
    """Whatever else happens to the file of an open ledger."""

    def __init__(self, ledger: am.Ledger) -> None:
        assert ledger.path is not None
        self.ledger, self.path = ledger, ledger.path
        self.lock: sqlite3.Connection | None = None

    def locked(self) -> None:
        """Another process writes for a long time."""
        if self.lock is None:
            self.lock = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self.lock.execute("BEGIN IMMEDIATE")

    def full(self) -> None:
        """The file takes no more pages."""
        file = self.ledger._store.file
        file.read(f"PRAGMA max_page_count={file.read('PRAGMA page_count')[0][0]}")

    def deleted(self) -> None:
        """The file and its log are deleted."""
        for end in PARTS:
            Path(f"{self.path}{end}").unlink()

    def deleted_alone(self) -> None:
        """Its log stays."""
        self.path.unlink()

    def log_deleted(self) -> None:
        """What stands beside it is deleted, as by somebody who cleans up."""
        for end in PARTS[1:]:
            Path(f"{self.path}{end}").unlink()

    def moved(self) -> None:
        """It has another name."""
        for end in PARTS:
            Path(f"{self.path}{end}").rename(f"{self.path}.moved{end}")

    def moved_alone(self) -> None:
        """Its log stays."""
        self.path.rename(f"{self.path}.moved")

    def folder_moved(self) -> None:
        """Its folder has another name."""
        self.path.parent.rename(f"{self.path.parent}.moved")

    def folder_deleted(self) -> None:
        """Its folder is deleted."""
        shutil.rmtree(self.path.parent)

    def restored(self) -> None:
        """A backup takes its place, as tools that synchronize do."""
        copy = self.path.with_name("copy")
        shutil.copy(self.path, copy)
        copy.replace(self.path)

    def replaced(self) -> None:
        """Another ledger takes its place."""
        other = am.Ledger(self.path.with_name("other"))
        other.close()
        self.path.with_name("other").replace(self.path)

    def text(self) -> None:
        """A text takes its place."""
        other = self.path.with_name("other")
        other.write_text("my notes " * 100)
        other.replace(self.path)

    def foreign(self) -> None:
        """The database of another program takes its place."""
        other = self.path.with_name("other")
        with closing(sqlite3.connect(other)) as db:
            db.execute("CREATE TABLE mine (x)")
        other.replace(self.path)

    def emptied(self) -> None:
        """It has no bytes any more."""
        os.truncate(self.path, 0)

    def halved(self) -> None:
        """It has half of its bytes."""
        os.truncate(self.path, self.path.stat().st_size // 2)

    def scribbled(self) -> None:
        """Its head is written over."""
        with self.path.open("r+b") as file:
            file.write(b"x" * 200)

    def mend(self) -> None:
        """The lock ends, and there is room."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None
        with suppress(sqlite3.Error):
            self.ledger._store.file.read("PRAGMA max_page_count=1000000")


FAULTS = [getattr(Disk, name) for name in vars(Disk) if name[0] != "_" and name != "mend"]


class Scene:
    """Runs of one plan, in one kernel and in the next, with a fault in the first."""

    def __init__(self, seed: int, faults: list[str] | None = None) -> None:
        self.chance, self.loop = Random(seed), Loop()
        steps: list[am.Agent] = []
        for number in range(self.chance.randint(2, 6)):
            used = [one.name for one in steps if self.chance.random() < 0.3]
            steps.append(am.Agent(f"a{number}", f"q{number} " + " ".join(f"{{{{ {one} }}}}" for one in used)))
        self.plan, self.bought = am.Plan(steps), list[str]()
        self.said: list[str] = []
        self.long = " long" * self.chance.choice([0, 0, 6000])

    def script(self, prompt: str, _: int) -> Reply:
        """Answer, and keep a book."""
        self.bought.append(prompt)
        return Reply(self.chance.choice([0.5, 1.0, 2.0]), text=f"to {prompt}{self.long}")

    def run(self, ledger: am.Ledger) -> list[str]:
        """Run the plan; return what was bought, all of which is in the run."""
        before, policy = len(self.bought), Policy(self.chance.choice([1, 2, 8]), seed=1)
        driver = Driver(self.plan, policy, Scripted(self.script), ledger=ledger, clock=self.loop.time)
        record = self.loop.run_until_complete(driver.drive())
        anew = self.bought[before:]
        paid = [one for result in record.results for one in result.attempts if one.answer and not one.is_served]
        assert sorted(anew) == sorted(one.request.prompt for one in paid)
        assert {one.status for one in record.results} <= {"succeeded", "failed", "skipped"}
        assert {one.kind for one in record.results if one.status == "failed"} <= {"LedgerError"}
        self.said += ledger.notes
        return anew

    def is_told(self) -> bool:
        """Whether a note says that something that was bought is not in the ledger."""
        return any(word in note for note in self.said for word in SAID_LOST)

    def play(self, path: Path) -> None:
        """Run, go on in the same kernel, and go on in the next."""
        ledger = am.Ledger(path)
        disk = Disk(ledger)
        for _ in range(self.chance.choice([1, 1, 2])):
            self.loop.call_later(self.chance.choice(MOMENTS_S), self.strike, disk, self.chance.choice(FAULTS))
        self.loop.call_later(self.chance.choice([0.7, 1.3, 50.0, 1e6]), disk.mend)
        first = self.run(ledger)
        second = self.run(ledger)
        assert self.is_told() or not {*first} & {*second}
        disk.mend()
        ledger.close()
        self.said += ledger.notes
        refused = ""
        try:
            ledger = am.Ledger(path)
        except LedgerError as error:
            refused = str(error)
        if refused:
            assert "Choose another" in refused
            assert self.is_told()
            return
        with closing(ledger):
            third = self.run(ledger)
            assert self.is_told() or not {*first, *second} & {*third}
            fourth = self.run(ledger)
            assert not fourth or any("bought again" in note for note in ledger.notes)  # one that strikes late

    @staticmethod
    def strike(disk: Disk, fault) -> None:
        """Let it happen, unless there is nothing left for it."""
        with suppress(OSError, sqlite3.Error, LedgerError):
            fault(disk)


@pytest.mark.parametrize("seed", range(3_000 if NIGHTLY else 40))
def test_whatever_happens_to_the_file_what_was_bought_is_kept_or_the_user_is_told(seed: int, monkeypatch):
    """Each run ends and has all it bought; what is bought again was said to be lost; a refusal says what to do."""
    scene = Scene(seed)
    monkeypatch.setattr(store_journal, "time", SimpleNamespace(time=time.time, monotonic=scene.loop.time))
    with TemporaryDirectory(dir=SHM) as folder:
        (Path(folder) / "data").mkdir()
        scene.play(Path(folder) / "data" / "l.sqlite3")
    scene.loop.close()


@pytest.fixture
def ledger(tmp_path):
    """A ledger in a file."""
    made = am.Ledger(tmp_path / "l.sqlite3")
    yield made
    made.close()


MISSING = [Disk.deleted, Disk.deleted_alone, Disk.moved, Disk.moved_alone, Disk.replaced, Disk.log_deleted]


@pytest.mark.parametrize("fault", MISSING, ids=lambda one: one.__name__)
def test_what_a_run_has_bought_follows_into_the_file_that_is_there_now(ledger, fault):
    """SQLite would write on into a file that nobody finds; a note says what is only in the old one."""
    record = record_of()
    journal = ledger.begin(record)
    asyncio.run(journal.ask(0, 1, "k", 0, fresh=False))
    journal.keep(0, 1, answer("paid"), 1.0)
    fault(Disk(ledger))
    journal.close()
    assert (fault is not Disk.log_deleted) == any("bought again" in note for note in ledger.notes)
    with closing(am.Ledger(ledger.path)) as again:
        assert 1 == len(again.runs())
        assert (found := again.find("k", 0)) is not None
        assert "paid" == found.text
        assert again.verify().ok


def test_a_batch_under_way_follows_too(ledger):
    """It is billed when it ends, and the next kernel has to find it."""
    row = ledger.batches.plan("x", ["a", "b"])
    Disk(ledger).deleted()
    ledger.batches.sent(row, "batch_1")
    with closing(am.Ledger(ledger.path)) as again:
        assert ["batch_1"] == [one.id for one in again.batches.open()]


def test_a_run_goes_on_in_a_file_that_was_recovered_with_the_run_in_it(ledger):
    """The recovered rows of the run are its own: it writes them anew, once."""
    record = record_of()
    journal = ledger.begin(record)
    asyncio.run(journal.ask(0, 1, "k", 0, fresh=False))
    file = ledger._store.file
    aside = file.replace()
    ledger._store._begin_anew()
    ledger._store._recover(aside)
    journal.keep(0, 1, answer("paid"), 1.0)
    journal.close()
    assert [(1, 1)] == file.read("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM calls)")
    assert (found := ledger.find("k", 0)) is not None
    assert ("paid", record.events) == (found.text, ledger.open().record.events[: len(record.events)])


def test_while_another_process_has_the_file_locked_only_the_first_look_waits(ledger):
    """What can be read meanwhile does not make the next write wait: hundreds of agents look."""
    journal = ledger.begin(record_of())
    disk = Disk(ledger)
    disk.locked()
    for _ in range(3):
        asyncio.run(journal.ask(0, 1, "k", 0, fresh=False))
        ledger.find("k", 0)
        assert [(0,)] == ledger._store.file.read("PRAGMA busy_timeout")
    disk.mend()
    assert asyncio.run(journal.ask(0, 1, "k", 0, fresh=False)) is None
    assert [(50,)] == ledger._store.file.read("PRAGMA busy_timeout")
    journal.close()
