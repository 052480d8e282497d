"""Runs of a session among other kernels: what they tell, what they keep to, and that nobody waits for the file."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_magic import Claude, Limits
from agent_magic.api import Ledger, Policy, Session
from agent_magic.engine import Pacer
from agent_magic.engine.pacing.share import BEAT_S
from agent_magic.live.sharing import Sharing

CLASS = "claude-sonnet-5"


class Board:
    """Rows in memory. `locked` says that they cannot be read now."""

    def __init__(self, name, rows):
        self.name, self.rows, self.locked, self.left, self.failed = name, rows, False, 0, 0

    def peek(self):
        """Read the rows of the others."""
        return {name: row for name, row in self.rows.items() if name != self.name}

    def look(self, decide, *, beat=True):
        """Write our own row."""
        del beat
        if self.locked:
            self.failed += 1
            return False
        self.rows[self.name] = decide(self.peek())
        return True

    def leave(self):
        """Take it away."""
        self.left += 1
        self.rows.pop(self.name, None)


def kernel(name, rows):
    """Return the sharing of a kernel with a limit of 600 requests a minute."""
    pacer = Pacer({CLASS: Limits(600)}, seed=1)
    pacer.ask(CLASS, 10, 10, 0.0)
    return Sharing(pacer, Board(name, rows))


async def until(holds):
    """Wait until something holds."""
    async with asyncio.timeout(20 * BEAT_S):
        while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(BEAT_S / 20)


def parts(rows):
    """Return the part of the requests that each has."""
    return {name: round(row[CLASS]["requests"][1], 2) for name, row in rows.items()}


def test_a_run_alone_has_all_and_leaves_nothing_behind():
    """Its row is there while it lasts."""

    async def scene():
        rows = {}
        one = kernel("a", rows)
        async with one.taking_part([CLASS], bool):
            assert {"a": 1.0} == parts(rows)
        assert {} == rows

    asyncio.run(scene())


def test_two_kernels_have_parts_that_add_to_one():
    """Who joins is seen at the next look, and whoever is held may ask anew then."""

    async def scene():
        rows, woken = {}, []
        one, two = kernel("a", rows), kernel("b", rows)
        async with one.taking_part([CLASS], lambda: woken.append("a")), two.taking_part([CLASS], bool):
            await until(lambda: parts(rows) == {"a": 0.5, "b": 0.5})
            await until(lambda: woken)
            assert (2, 0.5) == (one.kernels, round(one.pacer.health(0.0)[CLASS].limits["requests"].share, 2))
        assert {} == rows
        assert 1 == one.kernels

    asyncio.run(scene())


def test_two_runs_of_a_session_have_one_row():
    """It is there until the last of them is over."""

    async def scene():
        rows = {}
        one = kernel("a", rows)
        async with one.taking_part([CLASS], bool):
            async with one.taking_part(["claude-haiku-5"], bool):
                assert ["a"] == list(rows)
            assert {"a": 1.0} == parts(rows)
        assert {} == rows

    asyncio.run(scene())


def test_a_file_that_is_locked_changes_nothing():
    """A run begins all the same, and keeps the part it has."""

    async def scene():
        rows = {}
        one: Any = kernel("a", rows)
        one._rows.locked = True
        async with one.taking_part([CLASS], bool):
            await until(lambda: one._rows.failed >= 3)
            assert {} == rows
            assert 1.0 == one.pacer.health(0.0)[CLASS].limits["requests"].share
            one._rows.locked = False
            await until(lambda: parts(rows) == {"a": 1.0})

    asyncio.run(scene())


def test_after_the_last_run_a_session_has_its_limits_to_itself():
    """The next run begins with a new look."""

    async def scene():
        rows = {"b": {CLASS: {"requests": [1.0, 1.0, 0.0]}}}
        one = kernel("a", rows)
        async with one.taking_part([CLASS], bool):
            assert 0.01 == parts(rows)["a"]
        assert not one.pacer.set_shares({}, 0.0)

    asyncio.run(scene())


def test_what_is_given_away_is_given_away_before_it_is_written():
    """The file is written on a thread: a request that left meanwhile would be sent from what another has by then."""

    async def scene():
        rows, shares = {}, []
        one = kernel("a", rows)
        look = one._rows.look

        def seen(decide, *, beat=True):
            shares.append(one.pacer.health(0.0)[CLASS].limits["requests"].share)
            return look(decide, beat=beat)

        async with one.taking_part([CLASS], bool):
            assert {"a": 1.0} == parts(rows)
            one._rows.look = seen
            rows["b"] = {CLASS: {"requests": [1.0, 0.01, 0.0, 0.0, 0.0, 1.0, 0.0, 600.0, 10.0]}}
            await until(lambda: parts(rows)["a"] < 0.6)
            one._rows.look = look
        assert shares[-1] < 0.6

    asyncio.run(scene())


@pytest.mark.parametrize("kept", [None, "memory", "file"])
def test_only_a_file_connects_kernels(kept, tmp_path):
    """Without one nothing is told, and nothing costs anything."""
    ledger = {None: lambda: None, "memory": Ledger, "file": lambda: Ledger(tmp_path / "ledger.sqlite3")}[kept]()
    session = Session(ledger=ledger)
    session.connect(Claude(base_url="http://127.0.0.1:9", api_key="x"))
    assert (kept == "file") is (session.sharing() is not None)
    assert session.sharing() is session.sharing()
    if ledger is not None:
        ledger.close()


def test_the_policy_turns_it_off():
    """By a word."""
    assert "on" == Policy().shared
    assert "off" == Policy(shared="off").shared
