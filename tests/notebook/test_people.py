"""`%agents pending`, `approve`, `deny`: the questions of runs under way, answered without the picture."""

# Tests hand over stand-ins for a session.
# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from IPython.core.error import UsageError

import agent_magic as am
from agent_magic import Desk, Question
from agent_magic.notebook import VERBS


def say(ctx, line):
    """Do what a line of `%agents` says."""
    command, rest = VERBS.split(line)
    return VERBS[command].do(ctx, VERBS.parser(command).read(rest))


def answers(lines, *agents):
    """Ask one question for each agent, say these lines, and return the verdicts."""

    @am.tool(ask=True)
    def send(to: str) -> str:
        """Send."""
        return to

    desk = Desk(am.Plan([am.Agent(name, "x", tools=[send]) for name in dict.fromkeys(agents)]))
    ctx = SimpleNamespace(session=SimpleNamespace(desks=[desk]))

    async def work():
        asking = [asyncio.create_task(desk.ask(Question("call", name, "send", '{"to": "x"}', 5.0))) for name in agents]
        await asyncio.sleep(0)
        first = min(desk.open)
        for line in lines:
            say(ctx, line.format(first, first + 1))
        return await asyncio.gather(*asking)

    return asyncio.run(work())


def test_a_question_is_named_by_its_number_or_its_agent():
    """Either does; a reason is words, a change is a text in quotes."""
    one, two = answers(['approve {0} --edit \'{{"to": "y"}}\'', "deny b it is late"], "a", "b")
    assert (True, '{"to": "y"}') == one[:2]
    assert (False, "it is late") == (two.approved, two.why)


def test_what_is_asked_is_listed(capsys):
    """Each question has its number, its agent, its tool and its arguments."""
    answers(["pending", "approve a"], "a")
    shown = capsys.readouterr().out
    assert "a wants to call send" in shown
    assert '"to": "x"' in shown


@pytest.mark.parametrize(
    ("line", "why"),
    [("approve a", "asks 2 questions"), ("approve c", "asks nothing"), ("approve {0} --edit '{{}}'", "to")],
)
def test_a_wrong_line_answers_nothing(line, why):
    """What is not clear, or of no use, leaves the questions open and says so."""
    with pytest.raises(UsageError, match=why):
        answers([line], "a", "a")


def test_nothing_is_asked():
    """Without a question there is nothing to agree to."""
    with pytest.raises(UsageError, match="No question is open"):
        say(SimpleNamespace(session=SimpleNamespace(desks=[])), "approve a")
