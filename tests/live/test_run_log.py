"""What the log tells of a run."""

from __future__ import annotations

import logging

from agent_magic import Agent, Policy
from agent_magic.declare import Plan
from agent_magic.errors import Overloaded
from agent_magic.live.monitor import tell
from tests.live.virtual import Reply, drive
from tests.show.calling import calling_run


def test_debug_tells_the_story_of_a_run(caplog):
    """Agents, attempts, holds, retries and tokens, in the order they happened; no prompt and no answer."""

    def script(prompt, number):
        if number == 1 and prompt == "secret one":
            return Reply(0.5, Overloaded("busy", status=529), tokens=None, status=529)
        return Reply(1.0, first_s=0.5, text="hidden answer")

    with caplog.at_level(logging.DEBUG, "agent_magic"):
        drive(Plan([Agent("a", "secret one"), Agent("b", "secret two")]), script, Policy(1, seed=1))
    lines = [line.partition(": ")[2] for line in caplog.messages]
    assert ["a is ready", "b is ready", "a sends attempt 1 to claude-haiku-5-5"] == lines[:3]
    assert "a ended attempt 1: Overloaded, 0 input and 0 output tokens" in lines
    assert any(line.startswith("a tries again at") for line in lines)
    assert "b sends attempt 1 to claude-haiku-5-5, held by a slot" in lines
    assert "a ended attempt 2: answered, 10 input and 5 output tokens" in lines
    assert "the run is over" == lines[-1]
    assert not [line for line in caplog.messages if "secret" in line or "hidden" in line]


def test_nothing_is_told_otherwise(caplog):
    """Without DEBUG a run says nothing."""
    drive(Plan([Agent("a", "x")]), lambda *_: Reply())
    assert [] == caplog.messages


def test_calls_are_told_without_what_they_take_and_return(caplog):
    """The tool, what became of it and how long it took; no arguments, no results, no prints."""
    with caplog.at_level(logging.DEBUG, "agent_magic"):
        tell(calling_run(), 0)
    lines = [line.partition(": ")[2] for line in caplog.messages]
    assert "finder begins call 1: run_sql" in lines
    assert "finder ended call 1: succeeded after 1.000 s" in lines
    assert "finder begins call 2: lock, held by a person's answer" in lines
    assert "finder ended call 2: ValueError after 1.000 s" in lines
    assert not [line for line in caplog.messages if "SELECT" in line or "north" in line or "3 rows" in line]
