"""A simulated run with tools and tasks: a person agrees to one of two calls of an agent, and a task fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from agent_magic import Agent, Task
from agent_magic.declare import Plan
from agent_magic.record import (
    AgentEnded,
    AgentReady,
    Answer,
    AttemptEnded,
    AttemptStarted,
    CallEnded,
    CallStarted,
    Event,
    FirstToken,
    Message,
    Price,
    Request,
    RunEnded,
    RunRecord,
    Usage,
)
from tests.show.story import MODEL, answered

ASKED = '{"query": "SELECT 1", "limit": 20}'
PRICE = Price(0.0021, "given")


def clean(numbers: list[int]) -> list[int]:
    """Return the numbers."""
    return numbers


def broken(finder: str) -> str:
    """Return the text."""
    return finder


def calling_plan() -> Plan:
    """Return a plan of two agents and two tasks: clean, finder, broken and report."""
    steps = [
        Task("clean", clean),
        Agent("finder", "Find. {{ clean }}"),
        Task("broken", broken),
        Agent("report", "Report. {{ finder }}"),
    ]
    return Plan(steps, {"numbers": [1]}, name="sales")


def asked_for_tools(at_s: float, text: str = "Let me see.") -> AttemptEnded:
    """Return the event of a response that asks for tools."""
    usage = Usage(600, output_tokens=40)
    answer = Answer(text, "tool_use", usage=usage, model=MODEL, source="simulated")
    return AttemptEnded(at_s, 1, 1, answer, None, None, "", usage, PRICE, "simulated", 200)


def calling_events(text: str = "", arguments: str = ASKED) -> list[Event]:
    """Return the whole story; what is said, called, printed and returned can be made hostile.

    Args:
        text: Stands for every word that is not ours; empty for words that make sense.
        arguments: The arguments of the first call.
    """
    request = Request(MODEL, "Find.", 800)
    later = request._replace(messages=(Message("assistant", "[]"), Message("user", "[]")))
    look, lock = text or "run_sql", text or "lock"
    trace = text or "Traceback:\n  line 3\nKeyError: 'x'"
    return [
        AgentReady(0.0, 0),
        CallStarted(0.0, 0, 1, 0, "", text or "clean", ""),
        CallEnded(0.5, 0, 1, "succeeded", text or "[1]", None, None, "live", "[1]", text or "read 1 row\n"),
        AgentEnded(0.5, 0, "succeeded", None),
        AgentReady(0.5, 1),
        AttemptStarted(0.5, 1, 1, 0.5, "", request),
        FirstToken(0.8, 1, 1),
        asked_for_tools(1.0, text or "Let me see."),
        CallStarted(1.0, 1, 1, 1, "t1", look, arguments),
        CallEnded(
            2.0, 1, 1, "succeeded", text or "north first", None, None, "live", None, text or "connecting\n3 rows\n"
        ),
        CallStarted(5.0, 1, 2, 1, "t2", lock, "{}", "person"),
        CallEnded(
            6.0, 1, 2, "failed", text or "locked", text or "ValueError: locked", "ValueError", "live", None, "", trace
        ),
        AttemptStarted(6.0, 1, 2, 6.0, "", later),
        FirstToken(6.5, 1, 2),
        *answered(7.0, 1, 2),
        AgentReady(7.0, 2),
        CallStarted(7.0, 2, 1, 0, "", "broken", ""),
        AgentReady(7.0, 3),
        AttemptStarted(7.0, 3, 1, 7.0, "", request),
        FirstToken(7.2, 3, 1),
        CallEnded(7.25, 2, 1, "failed", "", text or "KeyError: 'x'", "KeyError", "live", None, "", trace),
        AgentEnded(7.25, 2, "failed", text or "KeyError: 'x'", "KeyError"),
        *answered(8.0, 3),
        RunEnded(8.0, cut=False),
    ]


def calling_run(until_s: float = 99.0, text: str = "", arguments: str = ASKED) -> RunRecord:
    """Return the run as it stands at a moment; `text` as in `calling_events`."""
    plan = calling_plan()
    models = ["" if one.is_task else MODEL for one in plan.agents]
    record = RunRecord(plan, began_at=datetime(2026, 1, 2, tzinfo=UTC), models=models)
    for event in calling_events(text, arguments):
        if event.at_s <= until_s:
            record.add(event)
    return record


def arguments_of(text: str) -> str:
    """Return arguments in which each word is the given one."""
    return json.dumps({text: text, "nested": [{text: text}]})
