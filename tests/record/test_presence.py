"""Rows of the kernels that use one key: who is there, who is gone, and what a locked file does."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from agent_magic.api import Ledger
from agent_magic.record.ledger.lease import LOOKS


@pytest.fixture
def ledger(tmp_path):
    """A ledger in a file."""
    made = Ledger(tmp_path / "ledger.sqlite3")
    yield made
    made.close()


def seen_by(presence, row: object = "here"):
    """Return what a kernel reads of the others while it writes its own row."""
    found = {}
    assert presence.look(lambda others: found.update(others) or row)
    return found


def test_each_reads_the_rows_of_the_others_with_the_same_key(ledger):
    """Not its own, and not those of another key or another address."""
    one, two = ledger.presence("key", "here"), ledger.presence("key", "here")
    other, elsewhere = ledger.presence("other", "here"), ledger.presence("key", "there")
    assert {} == seen_by(one, {"a": 1})
    assert {one.name: {"a": 1}} == seen_by(two)
    assert {two.name: "here"} == seen_by(one)
    assert {} == seen_by(other)
    assert {} == seen_by(elsewhere)


def test_the_file_has_no_key(ledger):
    """Only a salted hash of it."""
    seen_by(ledger.presence("sk-secret", "here"))
    assert b"sk-secret" not in ledger.path.read_bytes()


def test_a_ledger_in_memory_has_nobody_else():
    """Nothing is asked of it."""
    ledger = Ledger()
    assert ledger.presence("key", "here") is None
    ledger.close()


def test_who_leaves_is_not_there(ledger):
    """At once."""
    one, two = ledger.presence("key", "here"), ledger.presence("key", "here")
    seen_by(one)
    one.leave()
    assert {} == seen_by(two)


def test_who_does_not_look_any_more_is_forgotten_after_ten_looks(ledger):
    """Its kernel hangs, or is gone with another machine. It is back as soon as it looks again."""
    one, two = ledger.presence("key", "here"), ledger.presence("key", "here")
    seen_by(one)
    assert [True] * LOOKS + [False] * 2 == [one.name in seen_by(two) for _ in range(LOOKS + 2)]
    seen_by(one)
    assert {one.name: "here"} == seen_by(two)


def test_looks_between_beats_make_nobody_forgotten(ledger):
    """Kernels that take turns look often, and beat no more often. Peeking writes nothing."""
    one, two = ledger.presence("key", "here"), ledger.presence("key", "here")
    seen_by(one)
    for _ in range(2 * LOOKS):
        assert two.look(lambda _: "there", beat=False)
        assert {one.name: "here"} == two.peek()
    assert {two.name: "there"} == one.peek()


def test_a_process_that_was_killed_is_forgotten_at_the_next_look(ledger):
    """Its row says which process it was."""
    code = (
        "import os, sys, agent_magic as am\n"
        "there = am.Ledger(sys.argv[1]).presence('key', 'here')\n"
        "assert there.look(lambda others: 'killed')\n"
        "os.kill(os.getpid(), 9)"
    )
    assert 0 != subprocess.run([sys.executable, "-c", code, str(ledger.path)], check=False).returncode
    with closing(sqlite3.connect(ledger.path)) as db, db:
        assert [('"killed"',)] == db.execute("SELECT data FROM presence").fetchall()
    db.close()
    assert {} == seen_by(ledger.presence("key", "here"))


def test_while_another_process_has_the_file_locked_nothing_is_decided(ledger):
    """Nobody waits for it, and nobody is forgotten meanwhile."""
    one, two = ledger.presence("key", "here"), ledger.presence("key", "here")
    seen_by(one)
    lock = sqlite3.connect(ledger.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for _ in range(2 * LOOKS):
        assert not two.look(lambda _: pytest.fail("decided"))
    two.leave()
    lock.execute("ROLLBACK")
    lock.close()
    assert {one.name: "here"} == seen_by(two)


def test_a_row_of_this_process_is_of_a_process_that_is_there(ledger):
    """It is known by host, number and start."""
    seen_by(ledger.presence("key", "here"))
    with closing(sqlite3.connect(ledger.path)) as db, db:
        ((owner,),) = db.execute("SELECT owner FROM presence").fetchall()
    db.close()
    assert str(os.getpid()) in owner.split()
