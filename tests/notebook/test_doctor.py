"""`%agents doctor`: what is set up and what is not."""

from __future__ import annotations

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

import agent_magic as am
from agent_magic.notebook import AgentMagics
from agent_magic.simulator import start


@pytest.fixture
def magics(monkeypatch: pytest.MonkeyPatch) -> AgentMagics:
    """The magics of a terminal, without a key."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    return AgentMagics(InteractiveShell.instance())


def test_a_missing_key_is_named_with_what_to_do(magics: AgentMagics, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line names what is wrong, its row says what to do; the rest is told all the same."""
    magics.agents("doctor")
    shown = capsys.readouterr().out
    assert shown.startswith("doctor: look at: key")
    assert "ANTHROPIC_API_KEY" in shown
    for what in ("provider", "prices", "ledger", "Graphviz", "live view", "versions"):
        assert f" {what} " in shown


def test_a_provider_that_cannot_be_reached(magics: AgentMagics, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that is not there is found out without asking a model."""
    magics.session.shared.connect(am.Claude(base_url="http://127.0.0.1:9", api_key="any"))
    magics.agents("doctor")
    assert "look at: reachable" in capsys.readouterr().out


def test_where_all_is_well_it_says_what_to_do_next(magics: AgentMagics, capsys: pytest.CaptureFixture[str]) -> None:
    """To declare an agent, then to look at the plan."""
    magics.agents("connect simulator --latency none")
    capsys.readouterr()
    magics.agents("doctor")
    assert "everything is set up. %%agent NAME" in " ".join(capsys.readouterr().out.split())
    magics.agent("a", "Hello.")
    capsys.readouterr()
    magics.agents("doctor")
    assert "everything is set up. %agents plan shows" in " ".join(capsys.readouterr().out.split())


def test_a_server_of_ones_own(magics: AgentMagics, capsys: pytest.CaptureFixture[str]) -> None:
    """Its list of models costs nothing: it tells whether the server is there, and which names it knows."""
    with start(latency="none") as server:
        magics.agents(f"connect chat {server.url}/v1 --free")
        capsys.readouterr()
        magics.agents("doctor")
        shown = " ".join(capsys.readouterr().out.split())
        assert "doctor: everything is set up." in shown
        assert "key none, so requests have none" in shown
        assert re.search(r"ok reachable yes: it listed \d+ models ok", shown)
    magics.agents("doctor")
    assert "look at: reachable" in capsys.readouterr().out
