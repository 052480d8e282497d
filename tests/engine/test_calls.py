"""What a step does between two turns that is no request: it holds no slot, and the conversation goes on after it."""

# Tests hand over simple stand-ins for what the engine asks.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalOperand=false
# pyright: reportOperatorIssue=false

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_magic import Agent, Policy, Verdict
from agent_magic.declare import Held, Plan
from agent_magic.engine import Abort, Ask, Begin, Call, Done, Engine, Outcome, Resources, Result, Send, WakeAt
from agent_magic.engine.calls import Calls, Wanted
from agent_magic.engine.run import CUT, SPEAK
from agent_magic.record import Answer, Price, RunRecord, Usage
from agent_magic.record.answer import TOOL_USE
from tests.engine.whole import Script
from tests.engine.whole_scene import Asked, Scene

USED = Usage(10, output_tokens=5)
ONE, TWO = Wanted("1", "one", "{}"), Wanted("2", "two", "{}")
DONE = Result("succeeded", "done")


class Calling(Script):
    """Requests of agents that may have tools called in a turn, beside tasks."""

    def __init__(self, scene, wanted=(ONE, TWO), tasks=None, holds=None, asked_of=()):
        super().__init__(scene)
        self.wanted, self.tasks, self.holds, self.asked_of = wanted, tasks or {}, holds or {}, asked_of
        self.results, self.replies = [], []

    def calls(self, step, answer):
        """Return the calls of a response that asks for tools."""
        return self.wanted if answer.stop_reason == TOOL_USE else ()

    def is_silent(self, answer):
        """Tell whether an answer is empty."""
        return not answer.text

    def called(self, call, result):
        """Keep what came of a call."""
        self.results.append((call.step, call.wanted.tool, result.status))

    def continue_turn(self, step, answer, reply=""):
        """Keep what was said to an answer."""
        self.replies.append(reply)


def engine_of(count=2, slots=1, parents=None, requests=None, **policy):
    """An engine of agents side by side, with one slot."""
    parents = parents or tuple(() for _ in range(count))
    scene = Scene(parents, tuple(Asked() for _ in range(count)))
    prompts = ["".join(f"{{{{ a{one} }}}}" for one in before) or "x" for before in parents]
    plan = Plan([Agent(f"a{number}", prompt) for number, prompt in enumerate(prompts)])
    requests = Calling(scene, **(requests or {}))
    record = RunRecord(plan, datetime.now(UTC), requests.models)
    timeouts_s = [policy.pop("timeout_s", 100.0)] * count
    options = {"timeouts_s": timeouts_s, "price": lambda *_: Price(0.0, "free")}
    return Engine(record, Policy(slots, seed=1, **policy), requests, **options), requests


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


def call_of(step=0, number=1, turn=1, wanted=ONE):
    """A call of a step."""
    return Call(step, number, turn, wanted)


def begun(actions):
    """The calls that some actions begin."""
    return [one.call for one in actions if isinstance(one, Begin)]


def test_calls_free_the_slot_and_the_conversation_goes_on_after_the_last():
    """Another agent is let go meanwhile. The next request uses up no attempt, and its answer is the agent's."""
    engine, requests = engine_of(max_attempts=1)
    assert [Send] == kinds(engine.start(0.0))
    engine.send(0, 0.0)
    one, two = call_of(), call_of(number=2, wanted=TWO)
    actions = engine.ended(0, responded(TOOL_USE), 1.0)
    assert [Begin(one), Begin(two), Send(1, 1, "slot")] == told(actions)
    engine.send(1, 1.0)
    assert [] == told(engine.call_ended(two, DONE, 2.0))
    assert [] == told(engine.call_ended(one, DONE, 3.0))  # its turn comes when the slot is free
    actions = engine.ended(1, responded("end_turn"), 4.0)
    assert [Send] == kinds(actions)
    assert 0 == told(actions)[0].step
    engine.send(0, 4.0)
    assert [Done] == kinds(engine.ended(0, responded("end_turn", "the end"), 5.0))
    assert [(0, "two", "succeeded"), (0, "one", "succeeded")] == requests.results
    result = engine.record.results[0]
    assert "the end" == result.text
    assert ["succeeded"] * 2 == [one.status for one in engine.record.results]
    assert [2, 1] == [len(one.attempts) for one in engine.record.results]
    assert (2.0, 1.0, 2.0, 0.0) == (result.api_s, result.queued_s, result.tool_s, result.local_s)


@pytest.mark.parametrize(("stops", "status", "kind"), [(True, "cancelled", "Stopped"), (False, "failed", "Late")])
def test_a_stop_and_a_deadline_reach_calls(stops, status, kind):
    """What is under way is aborted, and the agent ends when that is over."""
    engine, _ = engine_of(1, timeout_s=5.0)
    engine.start(0.0)
    engine.send(0, 0.0)
    calls = begun(engine.ended(0, responded(TOOL_USE), 1.0))
    actions = engine.stop(2.0) if stops else engine.wake(5.0)
    assert Abort(0, "stopped" if stops else "late") in actions
    engine.call_ended(calls[0], CUT, 5.5)
    assert [Done] == kinds(engine.call_ended(calls[1], CUT, 5.5))
    result = engine.record.results[0]
    assert (status, kind) == (result.status, engine.record.events[-2].kind)
    assert ["cancelled"] * 2 == [one.status for one in result.calls]


def test_a_stop_reaches_calls_that_have_not_begun():
    """An agent whose calls all wait for a person ends at once, and what the person says later changes nothing."""
    engine, _ = engine_of(1, requests={"wanted": (ONE._replace(ask=True),)})
    engine.start(0.0)
    engine.send(0, 0.0)
    actions = engine.ended(0, responded(TOOL_USE), 1.0)
    assert [Ask] == kinds(actions)
    assert "person" == engine.held_by(0)
    assert [Abort, Done] == kinds(engine.stop(2.0))
    assert [] == engine.decided(actions[0].call, Verdict(approved=True), 3.0)
    assert "cancelled" == engine.record.results[0].status


def test_a_response_that_came_after_a_stop_has_nothing_done():
    """What it asks for is not called any more; it is paid for, and an attempt."""
    engine, _ = engine_of(1)
    engine.start(0.0)
    engine.send(0, 0.0)
    engine.stop(0.5)
    assert [Done] == kinds(engine.ended(0, responded(TOOL_USE), 1.0))
    result = engine.record.results[0]
    assert ("cancelled", 0, 15) == (result.status, len(result.calls), 15)


def test_a_call_that_runs_alone_waits_for_the_others():
    """Calls begin in the order in which they were asked for; one that is alone has no other beside it."""
    three = Wanted("3", "three", "{}")
    engine, _ = engine_of(1, requests={"wanted": (ONE, TWO._replace(alone=True), three)})
    engine.start(0.0)
    engine.send(0, 0.0)
    first = begun(engine.ended(0, responded(TOOL_USE), 1.0))
    assert ["one", "three"] == [one.wanted.tool for one in first]
    assert [] == begun(engine.call_ended(first[0], DONE, 2.0))
    second = begun(engine.call_ended(first[1], DONE, 3.0))
    assert ["two"] == [one.wanted.tool for one in second]
    assert "alone" == engine.record.results[0].calls[-1].held_by


def test_a_person_agrees_denies_and_edits():
    """A call that was agreed to runs with the arguments agreed to; a denied one has a result that says so."""
    ask = ONE._replace(ask=True), TWO._replace(ask=True)
    engine, requests = engine_of(1, requests={"wanted": ask})
    engine.start(0.0)
    engine.send(0, 0.0)
    one, two = (each.call for each in engine.ended(0, responded(TOOL_USE), 1.0)[:2])
    assert [] == begun(engine.decided(one, Verdict(approved=False, why="no"), 2.0))
    (edited,) = begun(engine.decided(two, Verdict(approved=True, text='{"a": 1}'), 3.0))
    assert '{"a": 1}' == edited.wanted.arguments
    assert [] == begun(engine.decided(two, Verdict(approved=True), 3.5))  # it has begun
    assert [Send] == kinds(engine.call_ended(edited, DONE, 4.0))
    assert [(0, "one", "denied"), (0, "two", "succeeded")] == requests.results
    result = engine.record.results[0]
    assert [("person", 2.0), ("person", 3.0)] == [(each.held_by, each.started_s) for each in result.calls]
    engine.send(0, 4.0)
    engine.ended(0, responded("end_turn"), 5.0)
    assert (2.0, 1.0) == (result.queued_s, result.tool_s)


@pytest.mark.parametrize(
    ("verdict", "status", "text"),
    [
        (Verdict(approved=True), "succeeded", "mine"),
        (Verdict(approved=True, text="yours"), "succeeded", "yours"),
        (Verdict(approved=False, why="wrong"), "failed", "mine"),
    ],
)
def test_a_person_looks_at_an_answer_before_it_is_passed_on(verdict, status, text):
    """Nobody uses the answer of such an agent before somebody has agreed to it; the wait is queued, for a person."""
    engine, _ = engine_of(2, slots=2, parents=((), (0,)), requests={"asked_of": {0}})
    engine.start(0.0)
    engine.send(0, 0.0)
    actions = engine.ended(0, responded("end_turn", "mine"), 1.0)
    assert [Ask] == kinds(actions)
    assert "mine" == actions[0].call.wanted.arguments
    following = kinds(engine.decided(actions[0].call, verdict, 4.0))
    assert ([Send] if verdict.approved else [Done]) == following
    result = engine.record.results[0]
    assert (status, text, 3.0) == (result.status, result.text, result.queued_s)


def test_an_empty_answer_after_calls_is_asked_for_once_more():
    """It happens after tools; the second one that is empty is passed on."""
    engine, requests = engine_of(1, requests={"wanted": (ONE,)})
    engine.start(0.0)
    engine.send(0, 0.0)
    (call,) = begun(engine.ended(0, responded(TOOL_USE), 1.0))
    engine.call_ended(call, DONE, 2.0)
    engine.send(0, 2.0)
    assert [Send] == kinds(engine.ended(0, responded("end_turn", ""), 3.0))
    assert [SPEAK] == [one for one in requests.replies if one]
    engine.send(0, 3.0)
    assert [Done] == kinds(engine.ended(0, responded("end_turn", ""), 4.0))


def test_a_task_takes_no_slot_of_requests():
    """Tasks have slots of their own, as many as the run's concurrency; one that fails is tried as often as it says."""
    task = Wanted("", "t", "")
    engine, requests = engine_of(3, requests={"tasks": {1: task, 2: task}})
    actions = engine.start(0.0)
    assert [Send, Begin] == kinds(actions)
    (call,) = begun(actions)
    failing = Result("failed", "why", "ValueError: why", "ValueError", attempts=2)
    actions = engine.call_ended(call, failing, 1.0)
    (other,) = begun(actions)
    assert ({1, 2}, "slot") == ({call.step, other.step}, engine.record.results[other.step].calls[0].held_by)
    engine.call_ended(other, Result("succeeded", "7", value=7), 1.5)
    assert (other.step, "succeeded") in [(one[0], one[2]) for one in requests.results]
    (again,) = begun(engine.wake(1.0 + 0.75))
    assert (call.step, 2) == (again.step, again.number)
    engine.call_ended(again, failing, 3.0)
    result = engine.record.results[call.step]
    assert ("failed", "ValueError", 2) == (result.status, result.kind, len(result.calls))
    assert result.total_s == result.queued_s + result.tool_s + result.backoff_s + result.local_s


def test_writers_of_one_thing_go_one_after_the_other_and_readers_together():
    """Who holds what counts for steps and for calls alike."""
    writes, reads = (Held("report.md"),), (Held("report.md", float("inf")),)
    engine, _ = engine_of(4, slots=4, requests={"holds": {0: writes, 1: writes, 2: reads, 3: reads}})
    assert [0] == [one.step for one in told(engine.start(0.0))]
    engine.send(0, 0.0)
    assert "resource" == engine.held_by(1)
    engine.ended(0, responded("end_turn"), 1.0)
    engine.send(1, 1.0)
    actions = engine.ended(1, responded("end_turn"), 2.0)
    assert {2, 3} == {one.step for one in told(actions)}
    assert {"resource"} == {one.held_by for one in told(actions)}


def test_many_calls_at_once_are_told_apart_by_their_step():
    """Each step's calls begin in order, beside all others, and each step is done when its own have ended."""
    calls = Calls(Resources())
    for step in range(500):
        calls.want(step, 1, 1, [Wanted("", "one", "{}"), Wanted("", "two", "{}", alone=True)])
    begun = [found[0] for found in iter(calls.next, None)]
    assert [(step, 1) for step in range(500)] == [(one.step, one.number) for one in begun]
    assert calls.held_by(7) == ""
    assert [begun[7]] == calls.running(7)
    calls.ended(begun[7])
    assert "alone" == calls.held_by(7)
    second = calls.next()
    assert second is not None
    assert (7, 2, "alone") == (second[0].step, second[0].number, second[1])
    calls.ended(second[0])
    assert (False, True) == (calls.has(7), calls.has(8))
    calls.drop(8)
    assert calls.has(8), "one still runs"
    calls.ended(begun[8])
    assert not calls.has(8)
