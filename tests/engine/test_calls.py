"""What a step does between two turns that is no request: it holds no slot, and the conversation goes on after it."""

# Tests hand over simple stand-ins for what the engine asks.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_magic.declare.agent import Agent
from agent_magic.declare.plan import Plan
from agent_magic.engine.actions import Abort, Call, Done, Send, WakeAt
from agent_magic.engine.policy import Policy
from agent_magic.engine.run import Engine, Outcome
from agent_magic.record.answer import TOOL_USE, Answer, Price, Usage
from agent_magic.record.results import RunRecord
from tests.engine.whole import Script
from tests.engine.whole_scene import Asked, Scene

USED = Usage(10, output_tokens=5)


class Calling(Script):
    """Requests of agents that may have two tools called in a turn."""

    def __init__(self, scene):
        super().__init__(scene)
        self.results = []

    def calls(self, step, answer):
        """Return two calls for a response that asks for tools."""
        return ("one", "two") if answer.stop_reason == TOOL_USE else ()

    def called(self, step, call, result):
        """Keep what came of a call."""
        self.results.append((step, call, result))


def engine_of(count=2, **policy):
    """An engine of agents side by side, with one slot."""
    scene = Scene(tuple(() for _ in range(count)), tuple(Asked() for _ in range(count)))
    plan = Plan([Agent(f"a{number}", "x") for number in range(count)])
    requests = Calling(scene)
    record = RunRecord(plan, datetime.now(UTC), requests.models)
    timeouts_s = [policy.pop("timeout_s", 100.0)] * count
    options = {"timeouts_s": timeouts_s, "price": lambda *_: Price(0.0, "free")}
    return Engine(record, Policy(1, seed=1, **policy), requests, **options), requests


def responded(reason, text="t"):
    """A response that stopped for a reason."""
    answer = Answer(text, reason, usage=USED, model="m")
    return Outcome(answer, None, 200, USED, "live")


def told(actions):
    """Some actions, alarms left out."""
    return [one for one in actions if not isinstance(one, WakeAt)]


def kinds(actions):
    """The kinds of some actions, alarms left out."""
    return [type(one) for one in told(actions)]


def test_calls_free_the_slot_and_the_conversation_goes_on_after_the_last():
    """Another agent is let go meanwhile. The next request uses up no attempt, and its answer is the agent's."""
    engine, requests = engine_of(max_attempts=1)
    assert [Send] == kinds(engine.start(0.0))
    engine.send(0, 0.0)
    actions = engine.ended(0, responded(TOOL_USE), 1.0)
    assert [Call(0, "one"), Call(0, "two"), Send(1, 1, "slot")] == told(actions)
    engine.send(1, 1.0)
    assert [] == told(engine.call_ended(0, "two", 2, 2.0))
    assert [] == told(engine.call_ended(0, "one", 1, 3.0))  # its turn comes when the slot is free
    actions = engine.ended(1, responded("end_turn"), 4.0)
    assert [Send] == kinds(actions)
    assert 0 == told(actions)[0].step
    engine.send(0, 4.0)
    assert [Done] == kinds(engine.ended(0, responded("end_turn", "the end"), 5.0))
    assert [(0, "two", 2), (0, "one", 1)] == requests.results
    assert "the end" == engine.record.results[0].text
    assert ["succeeded"] * 2 == [one.status for one in engine.record.results]
    assert [2, 1] == [len(one.attempts) for one in engine.record.results]


@pytest.mark.parametrize(("stops", "status", "kind"), [(True, "cancelled", "Stopped"), (False, "failed", "Late")])
def test_a_stop_and_a_deadline_reach_calls(stops, status, kind):
    """What is under way is aborted, and the agent ends when that is over."""
    engine, _ = engine_of(1, timeout_s=5.0)
    engine.start(0.0)
    engine.send(0, 0.0)
    engine.ended(0, responded(TOOL_USE), 1.0)
    actions = engine.stop(2.0) if stops else engine.wake(5.0)
    assert Abort(0, "stopped" if stops else "late") in actions
    engine.call_ended(0, "one", None, 5.5)
    assert [Done] == kinds(engine.call_ended(0, "two", None, 5.5))
    result = engine.record.results[0]
    assert (status, kind) == (result.status, engine.record.events[-2].kind)
