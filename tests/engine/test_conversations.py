"""Random conversations with tools: whatever fails, is cut, denied or stopped, in any order, the laws of one hold.

Beside them tasks run, deadlines pass, and a user stops, pauses, skips and has steps run again.
"""

# Tests take for granted what they have just checked.
# pyright: reportArgumentType=false, reportOptionalOperand=false, reportOperatorIssue=false

from __future__ import annotations

import itertools
import json
import math
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Agent, Policy, Task, Verdict, tool
from agent_magic.declare import Plan
from agent_magic.engine import Abort, Ask, Begin, Engine, Outcome, PlanRequests, Result, Send, WakeAt, failure_of
from agent_magic.engine.contract import UNSENT
from agent_magic.engine.run import CUT
from agent_magic.errors import Overloaded
from agent_magic.record import TICKS_PER_S, Answer, ModelFacts, Price, Prices, RunRecord, Usage, phases_of

MODEL = "claude-haiku-5-5"
MODELS = [MODEL, MODEL, "", ""]
USED = Usage(10, output_tokens=5)
RESULTS = [Result("succeeded", "ok"), Result("succeeded"), Result("failed", "no", "no", "ValueError")]


def plain() -> str:
    """Look."""
    return ""


@tool(alone=True)
def lonely() -> str:
    """Look alone."""
    return ""


@tool(ask=True)
def asking() -> str:
    """Ask first."""
    return ""


@tool(uses="db")
def holding() -> str:
    """Hold the database."""
    return ""


TOOLS = [plain, lonely, asking, holding]
NAMES = [*(one.__name__ for one in TOOLS), "unknown"]


class Conversation:
    """Plays a run of two agents with tools and two tasks: each thing that can happen next is drawn."""

    def __init__(self, data: st.DataObject) -> None:
        self.data, self.now, self.ids = data, 0.0, itertools.count()
        limits = {
            "max_turns": data.draw(st.integers(1, 5)),
            "deadline_s": data.draw(st.sampled_from([None, None, 9.0])),
        }
        policy = Policy(2, seed=1, **limits)
        tasks = [Task("t", plain, retries=data.draw(st.integers(0, 2))), Task("u", lambda a, t: (a, t))]
        agents = [Agent("a", "Go", tools=TOOLS, model=MODEL), Agent("b", "Go {{ t }}", tools=TOOLS, model=MODEL)]
        plan = Plan([*agents, *tasks])
        self.record = RunRecord(plan, datetime.now(UTC), MODELS)
        requests = PlanRequests(plan, policy, MODELS, {MODEL: ModelFacts(MODEL, None)}, Prices())
        after_s = data.draw(st.sampled_from([1e6, 1e6, 3.0]))
        self.engine = Engine(
            self.record, policy, requests, timeouts_s=[after_s] * 4, price=lambda *_: Price(0.0, "free")
        )
        self.sent: dict[int, list] = {0: [], 1: []}
        self.open: dict[tuple, object] = {}
        self.wake_s = None
        self.users = 6

    def do(self, actions) -> None:
        """Keep what is under way."""
        for one in actions:
            match one:
                case Send(step):
                    self.sent[step].append(self.engine.send(step, self.now))
                    self.open["send", step] = step
                case Begin(call):
                    self.open["call", call.step, call.number] = call
                case Ask(call):
                    self.open["ask", call.step, call.number] = call
                case Abort(step):
                    self.abort(step)
                case WakeAt(at_s):
                    self.wake_s = at_s
                case _:
                    pass

    def abort(self, step) -> None:
        """Cut what is under way for a step, as a driver does."""
        self.open = {key: one for key, one in self.open.items() if key[0] != "ask" or key[1] != step}
        for key in [key for key in self.open if key[1] == step]:
            one = self.open.pop(key)
            self.do(self.engine.ended(step, UNSENT, self.now) if key[0] == "send" else self.end(one, CUT))

    def end(self, call, result):
        """Report the end of a call."""
        return self.engine.call_ended(call, result, self.now)

    def answer(self) -> Outcome:
        """Draw what a request brings."""
        kind = self.data.draw(st.sampled_from(["tool_use", "tool_use", "tool_use", "end_turn", "pause_turn", "529"]))
        if kind == "529":
            return Outcome(None, failure_of(Overloaded("full", status=529), 3), 529)
        names = self.data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)) if kind == "tool_use" else []
        calls = [{"type": "tool_use", "id": f"t{next(self.ids)}", "name": one, "input": {}} for one in names]
        blocks = [{"type": "thinking", "thinking": "", "signature": f"s{next(self.ids)}"}, *calls]
        content = None if kind == "end_turn" else json.dumps(blocks)
        return Outcome(Answer("said", kind, usage=USED, model=MODEL, content=content), None, 200, USED, "live")

    def turn(self) -> None:
        """Let one thing happen."""
        self.now += self.data.draw(st.integers(0, 8)) / 16
        key = self.data.draw(st.sampled_from(sorted(self.open))) if self.open else None
        if self.users and self.data.draw(st.integers(0, 7)) == 0:
            self.users -= 1
            self.do(self.user())
        elif key is None or self.data.draw(st.integers(0, 15)) == 0:
            if key is None and self.engine.conductor.paused:
                self.do(self.engine.resume(self.now))
            self.now = max(self.now, math.ceil((self.wake_s or 0.0) * TICKS_PER_S) / TICKS_PER_S)  # as drivers do
            self.do(self.engine.wake(self.now))
        elif key[0] == "send":
            self.do(self.engine.ended(self.open.pop(key), self.answer(), self.now))
        elif key[0] == "call":
            self.do(self.end(self.open.pop(key), self.data.draw(st.sampled_from(RESULTS))))
        else:
            verdict = Verdict(approved=self.data.draw(st.booleans()), why="no")
            self.do(self.engine.decided(self.open.pop(key), verdict, self.now))

    def user(self) -> list:
        """Let the user do something."""
        steps = self.data.draw(st.sampled_from([(0,), (1,), (2,), (3,), None]))
        match self.data.draw(st.sampled_from(["retry", "retry", "retry", "pause", "resume", "skip", "stop"])):
            case "pause":
                return self.engine.pause(self.now)
            case "resume":
                return self.engine.resume(self.now)
            case "skip" if steps is not None:
                return self.engine.skip(self.now, steps)
            case "stop":
                return self.engine.stop(self.now, steps)
            case _:
                return self.engine.retry(self.now, steps)

    def play(self) -> None:
        """Turn to the end."""
        self.do(self.engine.start(0.0))
        for _ in range(500):
            if self.record.ended_s is not None:
                return
            self.turn()
        raise AssertionError("it never ends")


def check_messages(sent) -> None:
    """Conversations grow byte for byte, and each call has one result in the message after it."""
    for before, after in itertools.pairwise(sent):
        if not after.messages:
            continue  # a step that runs again begins anew
        assert before.messages == after.messages[: len(before.messages)] or _goes_on(before, after)
        assert (before.tools, before.prompt, before.system) == (after.tools, after.prompt, after.system)
    for request in sent:
        for message, after in itertools.zip_longest(request.messages, request.messages[1:]):
            blocks = json.loads(message.content)
            asked = [one["id"] for one in blocks if one["type"] == "tool_use"]
            if asked:
                told = [one["tool_use_id"] for one in json.loads(after.content) if one["type"] == "tool_result"]
                assert asked == told


def _goes_on(before, after) -> bool:
    """Tell whether the last message, one of the assistant's, was made longer: two of them in a row are one."""
    last = len(before.messages) - 1
    longer = after.messages[last].content.startswith(before.messages[last].content.rstrip()[:-1])
    return before.messages[:last] == after.messages[:last] and longer


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_laws_of_conversations_hold(data):
    """Every call is answered once, nothing said is changed, time has no gaps, and the events tell all of it."""
    played = Conversation(data)
    played.play()
    record = played.record
    again = RunRecord(record.plan, record.began_at, MODELS)
    for event in record.events:
        again.add(event)
    for number, result in enumerate(record.results):
        check_messages(played.sent.get(number, []))
        if result.ready_s is None:  # nothing was done for it
            assert result.status in {"skipped", "cancelled"}
            continue
        parts = result.queued_s + result.api_s + result.tool_s + result.backoff_s + result.local_s
        assert parts == result.total_s
        at_s = result.ready_s
        for phase in phases_of(result):
            assert (at_s, True) == (phase.start_s, phase.end_s is not None and phase.end_s >= phase.start_s)
            at_s = phase.end_s
        assert at_s == result.finished_s
        assert all(one.ended is not None for one in [*result.calls, *result.attempts])
        other = again.results[number]
        assert (result.status, result.text, result.error, parts) == (
            other.status,
            other.text,
            other.error,
            other.queued_s + other.api_s + other.tool_s + other.backoff_s + other.local_s,
        )
