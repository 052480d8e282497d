"""`%agents stop`, `skip`, `wait` and the like: which run they mean, and which agents of it."""

# Tests hand over stand-ins for a session.
# pyright: reportArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import pytest

import agent_magic as am
from agent_magic.errors import UnknownAgent
from agent_magic.notebook.verbs.runs import VERBS, _end_of
from agent_magic.notebook.verbs.steering import _running
from tests.live.virtual import Reply, Scripted


def desk_of(*plans):
    """A desk at which these plans are about to run."""
    running = [am.start(plan, client=Scripted(lambda *_: Reply())) for plan in plans]
    return SimpleNamespace(session=SimpleNamespace(running=running))


def test_a_group_is_steered_by_its_name():
    """An agent declared for each of something is named as it was declared, as Tab offers it; so is one of its parts."""
    grouped = am.Plan([am.Agent("label", "{{ item }}", each="rows")], {"rows": [1, 2]})
    desk = desk_of(grouped, am.Plan([am.Agent("other", "x")]))
    assert [["label"]] == [names for _, names in _running(desk, ["label"])]
    assert [["label_1"], ["other"]] == [names for _, names in _running(desk, ["label_1", "other"])]
    assert 2 == len(_running(desk, []))
    with pytest.raises(UnknownAgent, match="Did you mean 'label'"):
        _running(desk, ["lable"])


def test_the_run_in_the_background_is_what_is_waited_for(monkeypatch):
    """Another run may have ended after it: `run = %agents wait` is the background's, and its end is told."""
    told = []
    monkeypatch.setattr("agent_magic.notebook.verbs.runs.tell_end", lambda _, run: told.append(run))

    async def wait():
        async def work():
            return "the background's"

        session = SimpleNamespace(background=asyncio.create_task(work()), last="another cell's")
        desk = SimpleNamespace(session=session)
        return await VERBS["wait"].do(desk, SimpleNamespace()), session.background

    assert ("the background's", None) == asyncio.run(wait())
    assert ["the background's"] == told


def test_a_thread_is_told_that_a_cell_blocks_the_run_it_waits_for(monkeypatch):
    """The cell joins the thread, so the run cannot go on before the cell ends."""
    told, notes = Event(), []
    monkeypatch.setattr("agent_magic.notebook.verbs.runs.HELD_UP_S", 0.01)
    monkeypatch.setattr("agent_magic.notebook.verbs.runs.say", lambda text: (notes.append(text), told.set()))

    async def cell():
        task = asyncio.create_task(asyncio.sleep(0, "the run"))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: asyncio.run(_end_of(task)))
            assert told.wait(60)  # blocks this loop
            return await asyncio.wrap_future(waiting)

    assert "the run" == asyncio.run(cell())
    assert "a cell blocks its loop" in notes[0]
