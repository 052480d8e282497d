"""What-ifs as commands: what a line means, and whether the run or the plan is asked."""

from __future__ import annotations

import asyncio

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from agent_magic.notebook import AgentMagics
from tests.measure.test_each import known


@pytest.fixture
def magics() -> AgentMagics:
    """A session in which two agents are declared."""
    found = AgentMagics(InteractiveShell.instance())
    found.agent("first --model claude-haiku-5-5", "One")
    found.agent("second --model claude-haiku-5-5", "Two")
    return found


def run_of(magics: AgentMagics) -> None:
    """Run what is declared."""
    plan = magics.session.plan({}, defaults=magics.defaults())
    run = asyncio.run(plan.run(client=known({"One": "1", "Two": "2"})))
    magics.session.settle(run)


def test_before_a_run_the_plan_is_asked_and_a_row_can_be_declared(magics, capsys):
    """The frame is that of a run's what-if; the line says which was asked."""
    frame = magics.agents("whatif --model claude-haiku-5-5,second=claude-opus-5-5 --concurrency 1,4")
    assert "it has not run yet" in capsys.readouterr().out
    assert ([1, 4, 1, 4], "the plan") == (frame["concurrency"].tolist(), frame.attrs["subject"])
    assert frame["cost_usd"][2] > frame["cost_usd"][0]
    magics.shell.user_ns["row"] = frame.iloc[3]
    magics.agents("apply row")
    assert ["claude-haiku-5-5", "claude-opus-5-5"] == [one.model for one in magics.session.registry().agents]
    magics.agents("undo")


def test_a_run_answers_as_long_as_it_ran_what_is_declared(magics, capsys):
    """A plan that changed since is asked itself, and with --next one that did not."""
    run_of(magics)
    assert "the run" == magics.agents("whatif --concurrency 1").attrs["subject"]
    assert "from the last run" in capsys.readouterr().out
    assert "the plan" == magics.agents("whatif --concurrency 1 --next").attrs["subject"]
    magics.agent("second --model claude-haiku-5-5", "Two, briefly")
    assert "the plan" == magics.agents("whatif --concurrency 1").attrs["subject"]
    assert "it has changed since its last run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--concurrency 1,,4", "empty value. Write 1,4,16 without spaces"),
        ("--rounds two", "numbers such as 1,4,16"),
        ("--limits fast", "numbers such as 50,200, or off"),
        ("--concurency 3", "Did you mean"),
    ],
)
def test_a_line_that_cannot_be_read_says_what_to_write(magics, line, words):
    """By the option."""
    with pytest.raises(UsageError, match=words):
        magics.agents(f"whatif {line}")
