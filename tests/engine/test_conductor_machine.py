"""The conductor in anybody's hands: answers, failures, stops, skips, retries, pauses and alarms in any order."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import get_args

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_magic import Policy
from agent_magic.declare import build_dag
from agent_magic.engine import Abort, Backoff, Conductor, Done, Failure, Reopened, Schedule, Send, Skipped, WakeAt
from agent_magic.record import AgentEnded, AgentReady

MOST = 7
steps = st.integers(1, 64).map(lambda one: one / 16)
rows = st.lists(st.sets(st.integers(0, MOST), max_size=3), min_size=1, max_size=MOST)
failures = st.builds(
    Failure,
    st.just("x"),
    st.integers(1, 3),
    retry_after_s=st.none() | steps,
    stops_run=st.sampled_from([False] * 9 + [True]),
)
some = st.none() | st.lists(st.integers(0, MOST - 1), min_size=1, max_size=3)


class Hands(RuleBasedStateMachine):
    """Turns a conductor and keeps its own book of what it was told."""

    @initialize(
        parents=rows,
        slots=st.integers(1, 3),
        schedule=st.sampled_from(get_args(Schedule)),
        timeouts=st.none() | st.lists(steps, min_size=MOST, max_size=MOST),
        deadline=st.none() | st.none() | steps.map(lambda one: 4 * one),
    )
    def begin(self, parents, slots, schedule, timeouts, deadline):
        """Start a random plan."""
        dag = build_dag([tuple(one for one in row if one < number) for number, row in enumerate(parents)])
        self.dag, self.count = dag, len(parents)
        self.slots = 1 if schedule == "sequential" else slots
        policy = Policy(slots, schedule, seed=1, deadline_s=deadline)
        self.now, self.alarm = 0.0, None
        self.status: dict[int, str] = {}
        self.causes: dict[int, int | None] = {}
        self.running: dict[int, int] = {}
        self.wanted_out: set[int] = set()
        self.waits: dict[int, float] = {}
        self.tries: dict[int, int] = {}
        self.is_over = self.cut = self.paused = False
        self.conductor = Conductor(dag, policy, timeouts_s=(timeouts or [1e6] * MOST)[: self.count])
        self.take(self.conductor.start(0.0))

    def take(self, actions):
        """Write down what was decided, and check it."""
        for action in actions:
            match action:
                case AgentReady(_, agent):
                    assert agent not in self.status
                    assert all(self.status.get(one) == "succeeded" for one in self.dag.parents[agent])
                case Send(agent, number, _):
                    assert all(self.status.get(one) == "succeeded" for one in self.dag.parents[agent]), "before parents"
                    assert agent not in self.running, "twice at once"
                    assert agent not in self.status, "after its end"
                    assert not self.cut, "after the stop"
                    assert not self.paused, "while paused"
                    assert not self.is_over, "after the end of the run"
                    assert self.waits.pop(agent, 0.0) <= self.now, "before its wait was over"
                    assert number == self.tries.get(agent, 0) + 1, "attempts count on"
                    self.tries[agent] = self.running[agent] = number
                case Backoff(agent, until_s, _):
                    self.waits[agent] = until_s
                case Abort(agent, _):
                    assert agent in self.running
                    self.wanted_out.add(agent)
                case AgentEnded(agent=agent) | Skipped(step=agent):
                    assert agent not in self.status, "ended twice"
                    assert agent not in self.running
                    self.status[agent], self.causes[agent] = action.status, getattr(action, "cause", None)
                case Reopened(agent):
                    assert self.status.pop(agent) != "succeeded", "an answer was thrown away"
                    assert not self.cut
                    self.waits.pop(agent, None)
                case WakeAt(at_s):
                    self.alarm = at_s
                case Done(cut):
                    assert not self.is_over, "finished twice"
                    assert self.count == len(self.status)
                    assert cut or not self.cut
                    self.is_over = True

    def pick(self, number, among):
        """Take one of some agents."""
        agents = sorted(among)
        assume(agents)
        return agents[number % len(agents)]

    def known(self, agents):
        """Leave out agents that the plan does not have."""
        return None if agents is None else [one for one in agents if one < self.count]

    @rule(step=steps)
    def wait(self, step):
        """Let time pass; the alarm rings when it is due."""
        until = self.now + step
        while self.alarm is not None and self.alarm <= until:
            self.now, self.alarm = max(self.now, self.alarm), None
            self.take(self.conductor.wake(self.now))
        self.now = until

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, MOST))
    def answer(self, number):
        """An agent has its answer, even one that was to be stopped."""
        agent = self.pick(number, self.running)
        del self.running[agent]
        self.wanted_out.discard(agent)
        self.take(self.conductor.succeeded(agent, self.now))

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, MOST), failure=failures)
    def fail(self, number, failure):
        """An attempt failed."""
        agent = self.pick(number, self.running)
        del self.running[agent]
        self.wanted_out.discard(agent)
        self.take(self.conductor.failed(agent, failure, self.now))

    @precondition(lambda self: self.wanted_out)
    @rule(number=st.integers(0, MOST))
    def gone(self, number):
        """A request that was to be cancelled has ended."""
        agent = self.pick(number, self.wanted_out)
        del self.running[agent]
        self.wanted_out.discard(agent)
        self.take(self.conductor.cancelled(agent, self.now))

    @rule(agents=some)
    def stop(self, agents):
        """Somebody stops the run, or agents of it."""
        self.cut = self.cut or (agents is None and not self.is_over)
        self.take(self.conductor.cancel(self.now, self.known(agents)))

    @rule(agents=some)
    def retry(self, agents):
        """Somebody wants agents again."""
        self.take(self.conductor.retry(self.now, self.known(agents)))

    @rule(agents=some)
    def skip(self, agents):
        """Somebody leaves agents out."""
        self.take(self.conductor.skip(self.now, self.known(agents) or []))

    @rule()
    def pause(self):
        """Somebody wants quiet."""
        self.paused = True
        self.take(self.conductor.pause(self.now))

    @rule()
    def resume(self):
        """And no more."""
        self.paused = False
        self.take(self.conductor.resume(self.now))

    @invariant()
    def slots_are_kept(self):
        """No more requests under way than there are slots, and no slot empty for nothing."""
        if hasattr(self, "conductor"):
            assert len(self.running) == self.conductor.running <= self.slots
            held = {one for one in range(self.count) if self.conductor.held_by(one)}
            assert not held & set(self.status), "held after its end"

    @invariant()
    def skipped_ones_have_a_cause(self):
        """A skipped agent names an ancestor that did not succeed; one that somebody skipped names none."""
        for agent, status in getattr(self, "status", {}).items():
            if status == "skipped" and self.causes[agent] is not None:
                assert self.status[self.causes[agent]] != "succeeded"
                assert self.causes[agent] in self.dag.ancestors([agent])

    def teardown(self):
        """Whatever happened: without pauses, and with answers, it ends."""
        if not hasattr(self, "conductor"):
            return
        self.resume()
        for _ in range(20 * self.count):
            if self.is_over:
                break
            if self.running:
                self.answer(0)
            else:
                assert self.alarm is not None, "nothing will ever happen again"
                self.wait(max(0.0, self.alarm - self.now))
        assert self.is_over
        assert self.count == len(self.status)


Hands.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
test_in_any_hands_the_rules_hold = Hands.TestCase
