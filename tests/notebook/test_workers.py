"""`%agents connect dask` and `%agents workers`: what is said before any process starts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic import Autoscale, Dask, providers
from agent_magic.api import Agent, Claude, Plan, Policy
from agent_magic.errors import AgentMagicError
from agent_magic.notebook import AgentMagics
from agent_magic.notebook.planning import workers_notes
from agent_magic.providers.dask.client import WorkerState


class FewerProcesses(Dask):
    """Workers that are only said to be there."""

    closed, ready = False, 1

    def start(self) -> None:
        """Start nothing."""

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def workers(self) -> list[WorkerState]:
        """Return two workers."""
        more = [WorkerState(f"worker-{one}", "ready", 0, 0, 0, 0.0) for one in range(2, self.ready + 1)]
        return [
            WorkerState("worker-0", "ready", 3, 10, 1, 0.0),
            WorkerState("worker-1", "draining", 0, 9, 0, 0.0),
            *more,
        ]

    @property
    def starting(self) -> int:
        """Return that a third one is on its way."""
        return 1

    def scale(self, workers: int) -> None:
        """Note it."""
        self.wanted = workers

    def drain(self, names: Any = None) -> None:
        """Note it."""
        self.drained = names


@pytest.fixture
def magics(monkeypatch: pytest.MonkeyPatch) -> AgentMagics:
    """Return the magics of a session that starts no process."""
    monkeypatch.setattr(providers, "Dask", FewerProcesses)
    made = AgentMagics(InteractiveShell.instance())
    made.session.connect(Claude(base_url="http://127.0.0.1:1"))
    return made


def test_workers_come_between_the_kernel_and_whoever_answers(magics, capsys):
    """The same server and key; `connect` says so, and leaves them again."""
    magics.agents("connect dask --workers 3")
    assert "Connected to http://127.0.0.1:1, over Dask workers." in capsys.readouterr().out
    assert "http://127.0.0.1:1" == magics.session.shared.client.endpoint
    magics.agents("connect dask")
    assert isinstance(magics.session.workers.client, Claude)
    magics.agents("connect api")
    assert magics.session.workers is None
    capsys.readouterr()
    magics.agents("workers")
    assert "%agents connect dask" in capsys.readouterr().out
    with pytest.raises(UsageError, match="%agents connect dask"):
        magics.agents("workers scale 2")


@pytest.mark.parametrize("autoscale", [None, Autoscale(interval_s=5.0)])
def test_the_workers_of_a_provider_that_was_made_by_hand_are_known(magics, capsys, autoscale):
    """All words work for them. They are left as they are when another one is connected: they are the user's."""
    mine = magics.shell.user_ns["mine"] = FewerProcesses(
        client=Claude(base_url="http://127.0.0.1:1"), autoscale=autoscale
    )
    magics.agents("connect mine")
    assert "over Dask workers" in capsys.readouterr().out
    magics.agents("workers")
    assert "worker-1 draining" in " ".join(capsys.readouterr().out.split())
    magics.agents("workers scale 3")
    said = capsys.readouterr().out
    assert "From now on there are 3." in said
    assert ("every 5 s" in said) == (autoscale is not None)
    magics.agents("workers drain worker-1")
    assert (3, ["worker-1"], mine) == (mine.wanted, mine.drained, magics.session.workers)
    magics.agents("connect api")
    assert (None, False) == (magics.session.workers, mine.closed)
    magics.agents("connect dask")
    started = magics.session.workers
    magics.agents("connect mine")
    assert (mine, True, False) == (magics.session.workers, started.closed, mine.closed)
    del magics.shell.user_ns["mine"]


def test_only_fewer_workers_finish_their_streams_first(magics, capsys):
    """Of two workers one is draining: one is not fewer, and none is too many."""
    magics.agents("connect dask")
    for count, fewer in {1: False, 2: False}.items():
        capsys.readouterr()
        magics.agents(f"workers scale {count}")
        assert fewer == ("too many" in capsys.readouterr().out)
    magics.session.workers.ready = 3
    magics.agents("workers scale 1")
    assert "From now on there is 1. Workers that are no longer needed finish" in capsys.readouterr().out


def test_workers_that_have_not_started_are_not_started_by_a_look(magics, capsys, monkeypatch):
    """They start with the first run."""
    monkeypatch.setattr(providers, "Dask", Dask)
    magics.session.connect(Dask(client=Claude(base_url="http://127.0.0.1:1")))
    magics.agents("workers")
    assert "The workers start with the first run." in capsys.readouterr().out
    assert not magics.session.workers.cluster.is_started


def test_a_variable_called_dask_is_taken_with_a_word_and_a_module_is_not(magics, capsys):
    """`import dask` leaves the word what it is; a provider of this name goes first, as other variables do."""
    variables = magics.shell.user_ns
    variables["dask"] = asyncio
    magics.agents("connect dask --workers 3")
    assert "over Dask workers" in capsys.readouterr().out
    variables["dask"] = mine = FewerProcesses(client=Claude(base_url="http://127.0.0.1:2"))
    magics.agents("connect dask")
    assert mine is magics.session.workers
    assert "dask is your variable here" in capsys.readouterr().out
    with pytest.raises(UsageError, match="dask is your variable here"):
        magics.agents("connect dask --workers 3")
    del variables["dask"]


def test_whoever_has_no_key_is_told_at_once(magics, capsys, monkeypatch):
    """Not only by the run: workers that ask the real server may not be what was meant."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    magics.agents("connect dask")
    assert "no API key" not in capsys.readouterr().out, "the server of one's own needs none"
    magics.agents("connect api")
    assert "no API key is set" in capsys.readouterr().out
    magics.agents("connect dask")
    assert "no API key is set" in capsys.readouterr().out


def test_workers_are_shown_scaled_and_drained(magics, capsys):
    """A row each; a number that is none and a name that is not there are errors."""
    magics.agents("connect dask")
    capsys.readouterr()
    magics.agents("workers")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["worker-0", "ready", "3", "10", "1"] in rows
    assert "1 more is being started, which takes seconds".split() in rows
    magics.agents("workers scale 4")
    magics.agents("workers drain worker-1")
    assert (4, ["worker-1"]) == (magics.session.workers.wanted, magics.session.workers.drained)
    for wrong, why in {
        "scale": "must be >= 1",
        "scale 0": "must be >= 1",
        "drain w": "One of worker-0",
        "fly": "One of",
    }.items():
        with pytest.raises(UsageError, match=why):
            magics.agents(f"workers {wrong}")


def test_an_address_comes_after_dask_only(magics):
    """What cannot be is said before anything starts."""
    for wrong in ("connect api tls://h:1", "connect simulator --workers 2"):
        with pytest.raises(UsageError, match=r"after (chat or )?dask"):
            magics.agents(wrong)
    with pytest.raises(AgentMagicError, match="has its own"):
        magics.session.connect_dask("tls://h:1", 2)


def test_a_plan_says_when_workers_help():
    """Above 200 requests at once; where they are and do not, it says that too."""
    wide = Plan([Agent(f"a{one}", "Hi.") for one in range(401)])
    kernel: Any = SimpleNamespace(workers=None, spends=True)
    workers: Any = SimpleNamespace(workers=SimpleNamespace(room=None), spends=True)
    assert ["up to 401 requests run at once"] == [one[:30] for one in workers_notes(wide, Policy(500), kernel)]
    few: Any = SimpleNamespace(workers=SimpleNamespace(room=50), spends=True)
    assert "at most 50 requests run at once" in workers_notes(wide, Policy(500), few)[0]
    assert "only add ways to fail" in workers_notes(wide, Policy(50), few)[0]
    assert "--workers 3" in workers_notes(wide, Policy(500), kernel)[0]
    assert [] == workers_notes(wide, Policy(200), kernel) == workers_notes(wide, Policy(500), workers)
    assert "only add ways to fail" in workers_notes(wide, Policy(8), workers)[0]
