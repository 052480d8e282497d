"""`%agents prices`: what is listed, and what the user says."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic import TokenPrice
from agent_magic.notebook import AgentMagics


@pytest.fixture
def magics():
    """The magics of a shell, connected to nobody."""
    return AgentMagics(InteractiveShell.instance())


def test_prices_of_what_is_declared_are_shown(magics, capsys):
    """The declared models, each once, with where their prices are from, longer prompts too."""
    magics.agents("prices")
    assert "claude-haiku-5-5 $0.1 $0.5 $0.01 $0.125 $0.2".split() == capsys.readouterr().out.splitlines()[1].split()
    magics.agent("one --model claude-sonnet-5-5", "Hello.")
    magics.agent("two", "Hello.")
    magics.agent("three --model mine", "Hello.")
    capsys.readouterr()
    magics.agents("prices")
    head, sonnet, haiku, longer, *rest = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["model", "prompt", "input", "output"]
    assert "claude-sonnet-5-5 $2 $10 $0.1 $2.5 $4".split() == sonnet.split()
    assert haiku.startswith("claude-haiku-5-5 ")
    assert "> 100,000 $0.5".split() == longer.split()[:3]
    said = " ".join(rest)
    assert "Dollars per million tokens. From genai-prices " in said
    assert "mine: no known price. Give it one: %agents prices mine --input USD --output USD" in said


def test_a_price_is_given(magics, capsys):
    """It is kept for the session and shown as given; a listed model can have one too."""
    magics.agents("prices mine --input 3 --output 15 --cache-read 0.25")
    _, mine, said = capsys.readouterr().out.splitlines()
    assert "mine $3 $15 $0.25 $3.75 $6".split() == mine.split()
    assert "given (mine)" in said
    magics.agents("prices claude-haiku-5-5 --input 0 --output 0")
    assert {
        "mine": TokenPrice(3, 15, cache_read=0.25),
        "claude-haiku-5-5": TokenPrice(0, 0),
    } == magics.session.shared.prices


@pytest.mark.parametrize(
    "line",
    [
        "mine --input 3",
        "mine --output 3",
        "--input 3 --output 3",
        "mine --cache-read 1",
        "mine --input -1 --output 3",
        "mine --input nan --output 3",
        "mine --input 1 --output inf",
    ],
)
def test_what_is_no_price_is_refused(magics, line):
    """A model, its input and its output, all 0 or more: else nothing is kept."""
    with pytest.raises(UsageError, match="price"):
        magics.agents(f"prices {line}")
    assert {} == magics.session.shared.prices
