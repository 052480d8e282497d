"""A driver of the conductor on a virtual clock. It checks after every step what has to hold at all times."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOptionalSubscript=false

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any

from agent_magic import Policy
from agent_magic.engine import Abort, Backoff, Conductor, Done, Failure, Reopened, Send, Skipped, WakeAt
from agent_magic.record import AgentEnded, AgentReady

LONG_S = 1e9
OK = "ok"


@dataclass(frozen=True)
class Step:
    """What comes of one attempt: it takes so long and ends in an answer, or in a failure."""

    takes_s: float
    failure: Failure | None = None


@dataclass
class Clockwork:
    """Turns a conductor.

    Attributes:
        dag: Who waits for whom.
        steps: Returns what comes of an attempt, by agent and number.
        stops: (time, agents or None): who is stopped when.
        controls: (time, what, agents): what else somebody wants: `retry`, `skip`, `pause`, `resume`.
        keeps: Agents whose answer is complete when they are cancelled.
        cancel_s: How long a cancelled request takes to end.
    """

    dag: Any
    steps: Any
    policy: Policy = field(default_factory=Policy)
    timeouts_s: list[float] | None = None
    work_s: list[float] | None = None
    stops: tuple[tuple[float, tuple[int, ...] | None], ...] = ()
    controls: tuple[tuple[float, str, tuple[int, ...] | None], ...] = ()
    keeps: frozenset[int] = frozenset()
    cancel_s: float = 0.0

    def __post_init__(self):
        self.count = len(self.dag.parents)
        self.now = 0.0
        self.running: dict[int, tuple[int, str]] = {}  # agent -> attempt, why it is cancelled
        self.status: dict[int, str] = {}
        self.cause: dict[int, int | None] = {}
        self.errors: dict[int, str | None] = {}
        self.ready_s: dict[int, float] = {}
        self.waiting_until: dict[int, float] = {}
        self.launches: list[tuple[float, int, int, str]] = []
        self.log: list[tuple[float, object]] = []
        self.peak = 0
        self.finished: Done | None = None
        self.cut = False
        self.alarm: float | None = None
        self.heap: list[tuple[float, int, str, object]] = []
        self.serial = 0
        self.deadline: dict[int, float] = {}
        self.tries: dict[int, int] = {}
        self.paused = False
        self.reopened: list[int] = []
        self.timeouts_s = self.timeouts_s or [LONG_S] * self.count
        self.slots = 1 if self.policy.schedule == "sequential" else self.policy.concurrency

    def run(self):
        """Turn the conductor until it has finished."""
        conductor = self.conductor = Conductor(self.dag, self.policy, timeouts_s=self.timeouts_s, work_s=self.work_s)
        for at, who in self.stops:
            self.later(at, "stop", who)
        for at, what, who in self.controls:
            self.later(at, what, who)
        self.take(conductor.start(0.0))
        while self.finished is None or self.running:
            where = min([self.heap[0][0]] if self.heap else [], default=None)
            if self.alarm is not None and (where is None or self.alarm < where):
                self.now, self.alarm = self.alarm, None
                self.take(conductor.wake(self.now))
                continue
            assert self.heap, f"nothing will ever happen again: {self.open()} are open"
            self.now, _, what, who = heapq.heappop(self.heap)
            if what == "stop":
                if self.finished is None:
                    self.cut = self.cut or who is None
                    self.take(conductor.cancel(self.now, who))
            elif what in {"pause", "resume"}:
                self.paused = what == "pause"
                self.take(getattr(conductor, what)(self.now))
            elif what in {"retry", "skip"}:
                if self.finished is None:
                    self.take(getattr(conductor, what)(self.now, who))
            else:
                self.end(what, who)
        assert len(self.status) == self.count
        return self

    def open(self):
        """The agents without a last status."""
        return [one for one in range(self.count) if one not in self.status]

    def later(self, at, what, who):
        """Put something on the heap."""
        self.serial += 1
        heapq.heappush(self.heap, (at, self.serial, what, who))

    def end(self, what, who):
        """Report what came of an attempt."""
        agent, number = who
        if self.running.get(agent, (None,))[0] != number:
            return
        why = self.running[agent][1]
        if what == "done" and why:
            return
        del self.running[agent]
        step = self.steps(agent, number)
        if what == "gone" and why == "late":
            step = Step(0.0, Failure("Late: too late"))
        if what == "gone" and agent in self.keeps:
            self.take(self.conductor.succeeded(agent, self.now))
        elif what == "gone" and why == "stopped":
            self.take(self.conductor.cancelled(agent, self.now))
        elif step.failure is None:
            self.take(self.conductor.succeeded(agent, self.now))
        else:
            self.take(self.conductor.failed(agent, step.failure, self.now))

    def take(self, actions):
        """Check and do what the conductor said."""
        for action in actions:
            self.log.append((self.now, action))
            match action:
                case AgentReady(_, agent):
                    assert agent not in self.ready_s or agent in self.reopened, "ready twice"
                    assert agent not in self.status
                    assert all(self.status.get(one) == "succeeded" for one in self.dag.parents[agent])
                    self.ready_s[agent] = self.now
                case Send(agent, number, held_by):
                    self.launch(agent, number, held_by)
                case Backoff(agent, until_s, _):
                    assert agent not in self.running
                    assert self.now <= until_s
                    self.waiting_until[agent] = until_s
                case Abort(agent, why):
                    assert agent in self.running, "cancelled without running"
                    number, before = self.running[agent]
                    self.running[agent] = (number, before if before == "stopped" else why)
                    self.later(self.now + self.cancel_s, "gone", (agent, number))
                case AgentEnded() | Skipped():
                    self.ended(action)
                case Reopened(agent):
                    self.reopen(agent)
                case WakeAt(at_s):
                    self.alarm = at_s
                case Done():
                    assert self.finished is None, "finished twice"
                    assert not self.open(), "finished with agents open"
                    self.finished = action
        self.check()

    def check(self):
        """Check what has to hold after every step."""
        assert len(self.running) == self.conductor.running
        assert len(self.running) <= self.slots
        self.peak = max(self.peak, len(self.running))
        waiting = [
            one
            for one in self.waiting_until
            if one not in self.status and one not in self.running and self.conductor.held_by(one) != "barrier"
        ]
        if waiting:
            assert self.alarm is not None
            until = min(max(self.waiting_until[one], self.now) for one in waiting)
            assert self.alarm <= until or self.is_full() or self.paused

    def ended(self, action):
        """Check an end and write it down."""
        agent = action.step if isinstance(action, Skipped) else action.agent
        assert agent not in self.status, "ended twice"
        assert agent not in self.running, "ended while it runs"
        self.status[agent], self.errors[agent] = action.status, getattr(action, "error", None)
        self.cause[agent] = getattr(action, "cause", None)

    def reopen(self, agent):
        """Check that an agent may run again."""
        assert self.status.pop(agent) != "succeeded", "an answer was thrown away"
        assert not self.cut, "reopened after the stop"
        assert self.finished is None, "reopened after the end"
        self.waiting_until.pop(agent, None)
        self.deadline.pop(agent, None)
        self.reopened.append(agent)

    def is_full(self):
        """Whether every slot is taken."""
        return len(self.running) >= self.conductor.slots

    def launch(self, agent, number, held_by):
        """Check a launch and let it run."""
        assert not self.cut, "launched after the stop"
        assert not self.paused, "launched while paused"
        assert agent in self.ready_s, "launched before it was ready"
        assert agent not in self.running, "running twice at once"
        assert agent not in self.status, "launched after its end"
        self.tries[agent] = self.tries.get(agent, 0) + 1
        assert number == self.tries[agent]
        if number > 1:
            assert agent in self.reopened or agent in self.waiting_until
            assert self.waiting_until.pop(agent, self.now) <= self.now, "launched before its wait was over"
        self.deadline.setdefault(agent, self.now + self.timeouts_s[agent])
        assert self.now <= self.deadline[agent], "launched after its deadline"
        self.running[agent] = (number, "")
        self.launches.append((self.now, agent, number, held_by))
        step = self.steps(agent, number)
        self.later(self.now + step.takes_s, "done", (agent, number))

    @property
    def makespan(self):
        """When the last agent ended."""
        return max((at for at, action in self.log if isinstance(action, AgentEnded | Skipped)), default=0.0)
