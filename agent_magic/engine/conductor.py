"""The conductor decides which agent does what next. No clock, no tasks, no network.

```
          parents done             slot              answer
PENDING ---------------> READY -----------> RUNNING ---------> ENDED
                           ^                 |   |
                           |  time           |   | failure that a retry can mend
                           +---- BACKOFF <---+   |
                           +---- AWAY <----------+ a turn has ended; calls run between requests
```

A step that is left out (`agent_magic.declare.flow`) ends as skipped or unused, which is no failure. Steps that compete,
or begin before they are known to be needed, are the business of `Candidates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.engine.calls import Holding, Resources
from agent_magic.engine.candidates import SUCCEEDED, End
from agent_magic.engine.contract import (
    FOREVER,
    NO_STEPS,
    Abort,
    Backoff,
    Decision,
    Done,
    Hold,
    Never,
    Reopened,
    Send,
    Skipped,
    Take,
    WakeAt,
)
from agent_magic.engine.identical import IDENTICAL
from agent_magic.engine.queues import Order, Queues, barrier_of
from agent_magic.engine.retry import Slots, Tries
from agent_magic.engine.states import (
    AWAY,
    BACKOFF,
    ENDED,
    KEPT,
    PENDING,
    READY,
    RUN,
    RUNNING,
    SKIPPED,
    STOPPED,
    UNDER_WAY,
    Alarms,
    Ends,
    to_reopen,
)
from agent_magic.record.answer import WITH_ANSWER
from agent_magic.record.events import AgentEnded, AgentReady, new_tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.flow import Left
    from agent_magic.declare.resources import Held
    from agent_magic.engine.candidates import Candidates
    from agent_magic.engine.contract import Choices, Room
    from agent_magic.engine.identical import Identical
    from agent_magic.engine.policy import Batching, Policy
    from agent_magic.engine.retry import Failure
    from agent_magic.record.answer import Status
    from agent_magic.record.reasons import Reason


class Conductor:
    """Decides, for one run of one plan.

    Tasks use slots of their own, as many as requests have. `kinds` are steps with durations that correct each other's
    expectation.
    """

    def __init__(  # noqa: PLR0913 - all that decides
        self,
        dag: Dag,
        policy: Policy,
        *,
        timeouts_s: Sequence[float],
        work_s: Sequence[float] | None = None,
        kinds: Sequence[str] = (),
        room: Room | None = None,
        seed: int | None = None,
        done: Mapping[int, Status] | None = None,
        tasks: Container[int] = frozenset(),
        holds: Mapping[int, tuple[Held, ...]] | None = None,
        resources: Resources | None = None,
        flow: Choices | None = None,
        left: Mapping[int, Left] | None = None,
        batching: Batching | None = None,
        fall_back: Callable[[int], bool] | None = None,
        identical: Identical | None = None,
        candidates: Candidates | None = None,
    ) -> None:
        # Fewer than thirty attributes: CPython 3.11 takes a third longer for each of an object that has more.
        count = len(dag.parents)
        self.dag, self._policy, self._timeouts_s = dag, policy, timeouts_s
        alone = policy.schedule == "sequential"
        self._slots = Slots(1 if alone else policy.concurrency)
        self.state = [PENDING] * count
        self.missing = [*map(len, dag.parents)]  # number of things that each step waits for
        self.tries = Tries(count, policy, seed, tasks)
        self._ready_s = [0.0] * count
        self._deadline_s: list[float | None] = [None] * count
        barrier = barrier_of(dag, policy)
        self.tasks, self._tasks_running = tasks, 0
        self._holding = Holding(holds or {}, resources or Resources(), alone=alone) if holds or alone else None
        self._batching, self._batched = batching, NO_STEPS if batching is None else batching.now
        # Steps wait for other things than slots of requests.
        self._others = bool(tasks or self._holding or batching)
        name = self._line if self._others else room.line if room else None
        self._room = room
        self._queues = Queues(name, Order(dag, policy, work_s, kinds), barrier)
        self.alarms = Alarms()
        self._moved_for: dict[int, str] = {}  # why those ask another model that have not asked it yet
        self._running = 0
        self._open = count
        self._over = self.paused = False  # paused: nothing is started
        self._has_begun = False  # before, a user may skip steps and take that back, and nothing is sent
        self._flow, self._fall_back, self.ends = flow, fall_back, Ends(done, left)
        self._identical, self._candidates = identical, candidates
        for place in candidates.places if candidates is not None else ():
            self.missing[place] += 1
        self.out: list[Decision] = []

    @property
    def learn(self) -> Callable[[int, float], None] | None:
        """Takes the duration of an answer; `None` if no order depends on it."""
        return self._queues.learn if self._queues.learns else None

    @property
    def running(self) -> int:
        return self._running

    @property
    def slots_used(self) -> int:
        return max(self._running, self._tasks_running)

    @property
    def slots(self) -> int:
        return self._slots.width

    def _line(self, agent: int) -> str:
        line = "task" if agent in self.tasks else self._room.line(agent) if self._room else ""
        if self._batching is not None and agent in self._batching.steps:
            line = f"{line} batch"
        return line if self._holding is None else f"{line}{self._holding.line(agent)}"

    def start(self, now: float) -> list[Decision]:
        self._has_begun = True
        self._settle_done(now)
        for agent, missing in enumerate(self.missing):
            if not missing and self.state[agent] == PENDING:
                self.make_ready(agent, now)
        if self._policy.deadline_s is not None:
            self.alarms.set(now + self._policy.deadline_s, RUN)
        out = self._go_on(now)
        if self._candidates is not None and self._candidates.look_at_all():
            out += self._go_on(now)
        return out

    def settle_done(self, now: float) -> list[Decision]:
        self._settle_done(now)
        return self._go_on(now)

    def count_done(self, agent: int) -> None:
        self.ends.done[agent] = "succeeded"

    def room_changed(self, now: float) -> list[Decision]:
        may = self._running < self._slots.width or self._others
        return self._go_on(now) if may and self._queues.waiting else []

    def succeeded(self, agent: int, now: float) -> list[Decision]:
        self._leave(agent)
        is_request = not self._others or (agent not in self.tasks and agent not in self._batched)
        if is_request and (self._identical is None or agent not in self._identical.taken):
            self._slots.answered(agent)
        return self._ended_well(agent, SUCCEEDED, now)

    def step_out(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent makes calls between requests, without a slot."""
        self._leave(agent)
        self.state[agent] = AWAY
        return self._go_on(now)

    def continue_turn(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent needs another request, which uses up no attempt."""
        if (over := self._asks_no_more(agent, now)) is not None:
            return over
        self.tries.turned(agent)
        self.state[agent], self._ready_s[agent] = READY, now
        self._join(agent, now)
        return self._go_on(now)

    def ask_another(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent starts over with another model and all attempts."""
        if (over := self._asks_no_more(agent, now)) is not None:
            return over
        self._slots.ended(agent)
        self.state[agent], self._ready_s[agent] = READY, now
        self._move(agent, now)
        return self._go_on(now)

    def _asks_no_more(self, agent: int, now: float) -> list[Decision] | None:
        """Stop counting an agent as running, and end it if it is to be stopped."""
        self._leave(agent)
        if agent in self.ends.stopping:
            return self.cancelled(agent, now, left=True)
        if self.ends.late:
            self.give_up(agent, "Late", self.ends.late, now)
        return self._go_on(now) if self.ends.late else None

    def _move(self, agent: int, now: float) -> None:
        self.tries.moved(agent)
        self._queues.rename(agent)
        self._join(agent, now)

    def _falls_back(self, agent: int, found: Failure | Hold | Never) -> bool:
        return found.falls_back and self._fall_back is not None and self._fall_back(agent)

    def capped(self, agent: int, why: str, now: float) -> list[Decision]:
        self._leave(agent)
        return self._ended_well(agent, End("capped", why, "Capped"), now)

    def _ended_well(self, agent: int, end: End, now: float) -> list[Decision]:
        if self._candidates is None or not self._candidates.takes_end(self, agent, end, now):
            self.pass_on(agent, end, now)
        return self._go_on(now)

    def pass_on(self, agent: int, end: End, now: float) -> None:
        """End an agent; its children may start."""
        self.end(agent, end, now)
        if self._candidates is not None:
            self._candidates.won(self, agent, now)
        self._release(agent, now)

    def _release(self, agent: int, now: float) -> None:
        missing, state = self.missing, self.state
        for child in self.dag.children[agent]:
            left = missing[child] = missing[child] - 1
            if not left and state[child] == PENDING:
                self.make_ready(child, now)

    def why_left_out(self, agent: int) -> Left | None:
        flow, candidates = self._flow, self._candidates
        left = None if candidates is None else candidates.lost(self, agent)
        if left is None and flow is not None and agent in flow.decides:
            left = flow.choose(agent, self.ends.left)
        if candidates is not None:
            candidates.decided(agent, left)
        return left

    def leave_out(self, agent: int, left: Left, now: float) -> None:
        todo = [(agent, left)]
        while todo:
            one, why = todo.pop()
            if why.status == "failed":
                self.give_up(one, why.kind, why.why, now)
                continue
            self.ends.left[one] = why
            self.end(one, End(*why), now)
            for child in self.dag.children[one]:
                self.missing[child] -= 1
                if self.missing[child] or self.state[child] != PENDING:
                    continue
                if (also := self.why_left_out(child)) is not None:
                    todo.append((child, also))
                else:
                    self.make_ready(child, now, decided=True)

    def failed(self, agent: int, failure: Failure, now: float) -> list[Decision]:
        if self._candidates is not None:
            self._candidates.attempt_failed(agent, now)
        self._leave(agent)
        if agent in self.ends.stopping:
            return self.cancelled(agent, now, left=True)
        answer = self.tries.next_s(agent, failure, now, self._deadline_s[agent])
        if self._batching is not None and agent in self._batched:
            self._batching.failed(agent)
        elif agent not in self.tasks:
            self._slots.failed(agent, failure, tries_left=self.tries.left(agent, failure))
        if isinstance(answer, str) and self._falls_back(agent, failure):
            self.state[agent] = AWAY
            return self.ask_another(agent, now)
        if not isinstance(answer, str):
            self.state[agent] = BACKOFF
            self.alarms.set(answer, agent, self.tries.made(agent))
            self.out.append(Backoff(agent, answer, failure.why))
            return self._go_on(now)
        self.give_up(agent, failure.kind, answer, now)
        if failure.stops_run:
            self._cancel_all(now, f"the run was stopped by {answer}")
        return self._go_on(now)

    def cancelled(self, agent: int, now: float, *, left: bool = False) -> list[Decision]:
        """Record that a running agent's request was aborted on demand; `left` if its slot is already free."""
        if not left:
            self._leave(agent)
        self.stopped(agent, now)
        return self._go_on(now)

    def stopped(self, agent: int, now: float) -> None:
        if self._candidates is not None and self._candidates.takes_abort(self, agent, now):
            return
        status, why = self.ends.stopping.get(agent, ("cancelled", "stopped"))
        self.end(agent, End(status, why, STOPPED), now)
        self.skip_descendants(agent, now)
        if agent in self.ends.again and not self.ends.cut:
            self._reopen((agent,), now)

    def held_by(self, agent: int) -> str:
        """Return the cause of a ready agent's wait: `slot`, `requests`, `input`, `output`, `budget`, `barrier`, ..."""
        if self.state[agent] == KEPT:
            return "dependencies"
        if self.state[agent] == BACKOFF:
            return "backoff"
        if self.state[agent] != READY:
            return ""
        if self._identical is not None and self._identical.waits(agent):
            return IDENTICAL
        if self.paused:
            return "paused"
        return self._queues.reason(agent)

    def wake(self, now: float) -> list[Decision]:
        self.alarms.woken()
        while (agent := self.alarms.due(now)) is not None:
            if agent == RUN:
                self._run_out(now)
            if agent < 0 or self.state[agent] == ENDED:
                continue
            deadline = self._deadline_s[agent]
            if deadline is not None and deadline <= now:
                self._run_late(agent, now)
            elif self.state[agent] == BACKOFF and self.tries.until_s[agent] <= now:
                self.state[agent] = READY
                self._join(agent, now)
        return self._go_on(now)

    def cancel(self, now: float, agents: Iterable[int] | None = None) -> list[Decision]:
        if agents is None:
            self.ends.cut = True
            self._cancel_all(now, "stopped")
        else:
            for agent in agents:
                self._take_out(agent, "cancelled", "stopped", now)
        return self._go_on(now)

    def skip(self, now: float, agents: Iterable[int], why: str = "") -> list[Decision]:
        for agent in agents:
            self._take_out(agent, "skipped", why or SKIPPED, now)
        return self._go_on(now)

    def retry(self, now: float, agents: Iterable[int] | None = None) -> list[Decision]:
        """Run unsuccessful agents again, these or all; see `to_reopen`."""
        if not self.ends.cut and self._open:
            self._reopen(range(len(self.state)) if agents is None else agents, now)
        return self._go_on(now)

    def pause(self, now: float) -> list[Decision]:
        self.paused = True
        self._queues.hold_others((), "paused", now)
        return self._go_on(now)

    def resume(self, now: float) -> list[Decision]:
        if self.paused:
            self.paused = False
            self._queues.hold_others((), "paused", now)
        return self._go_on(now)

    def _settle_done(self, now: float) -> None:
        candidates = self._candidates
        answered = [] if candidates is None else candidates.settle(self, self.ends.done)
        for agent, status in self.ends.done.items():
            self.state[agent] = ENDED
            self._open -= 1
            if self._queues.barrier is not None:
                self._queues.ended(agent, now)
            for child in self.dag.children[agent]:
                self.missing[child] -= status in WITH_ANSWER or agent in self.ends.left
        for agent, status in self.ends.done.items():
            if status not in WITH_ANSWER and agent not in self.ends.left:
                self.ends.lost[agent] = agent
                self.skip_descendants(agent, now)
        if candidates is not None:
            candidates.settled(self, answered, now)
        self.ends.done = {}

    def make_ready(self, agent: int, now: float, *, decided: bool = False) -> None:
        """Queue a step, unless it is left out; `decided` skips that check."""
        if self._flow is not None and not decided and (why := self.why_left_out(agent)) is not None:
            self.leave_out(agent, why, now)
            return
        self.state[agent] = READY
        self._ready_s[agent] = now
        self.out.append(new_tuple(AgentReady, (now, agent)))
        self._join(agent, now)
        if self._policy.timeout_counts == "total":
            self._set_deadline(agent, now, self.tries.made(agent))

    def _join(self, agent: int, now: float) -> None:
        if self._batching is not None:
            self._batching.decide(agent, now)
        self._queues.join(agent)

    def _go_on(self, now: float) -> list[Decision]:
        if self._candidates is not None:
            self._candidates.start_due(self, now)
        if self._queues.waiting and self._has_begun and not self.paused:
            self._fill(now)
        if self._candidates is not None:
            self._candidates.sort(self)
            self._candidates.set_alarm(self, now)
        if not self._open and not self._over:
            self._over = True
            self.out.append(Done(self.ends.cut))
        if (wake_s := self.alarms.next_s()) is not None:
            self.out.append(WakeAt(wake_s))
        out, self.out = self.out, []
        return out

    def _fill(self, now: float) -> None:
        queues, room, width, others = self._queues, self._room, self._slots.width, self._others
        held: Collection[int] = ()
        while queues.waiting and (self._running < width or others) and (agent := queues.first(held)) is not None:
            if self.state[agent] != READY:  # it ended while it waited
                queues.leave(agent, now, now)
            elif (deadline := self._deadline_s[agent]) is not None and deadline <= now:
                queues.leave(agent, now, now)
                self._run_late(agent, now)  # a slot came free too late for another try
            elif self._identical is not None and self._follows(agent, now):
                continue
            elif others and (reason := self._held_back(agent, width)):
                held = {*held, queues.hold(agent, reason, now)}
            elif room is None or agent in self.tasks or (answer := room.enter(agent, now)) is None:
                self._launch(agent, now, queues.leave(agent, self._ready_s[agent], now))
            elif self._falls_back(agent, answer):
                reason = queues.leave(agent, self._ready_s[agent], now)
                self._moved_for[agent] = answer.reason if isinstance(answer, Hold) else reason
                self._move(agent, now)
            elif isinstance(answer, Hold):
                held = {*held, queues.hold(agent, answer.reason, now)}
                self.alarms.set_lines(answer.until_s)
            else:
                queues.leave(agent, now, now)
                self._turn_away(agent, answer, now)
        if self._running >= width:
            queues.hold_others(held, "slot", now)

    def _turn_away(self, agent: int, never: Never, now: float) -> None:
        self.end(agent, End("capped" if never.keeps else "cancelled", never.why, never.kind), now)
        if never.keeps:
            self._release(agent, now)
        else:
            self.skip_descendants(agent, now)

    def _follows(self, agent: int, now: float) -> bool:
        """Let an agent wait for an identical one, or take its outcome."""
        if self._identical is None or agent in self.tasks or (leader := self._identical.leader(agent)) is None:
            return False
        if self.state[leader] != ENDED and self._queues.barrier is not None:
            layer = self.dag.layer
            if layer[leader] > layer[agent]:  # it may wait for this one's layer
                return False
        reason = self._queues.leave(agent, self._ready_s[agent], now)
        if self.state[leader] == ENDED:
            self._take_over(agent, leader, now, "" if now <= self._ready_s[agent] else reason)
        else:
            self._identical.wait(agent, leader)
        return True

    def _take_over(self, agent: int, leader: int, now: float, held_by: str) -> None:
        if self._identical is None:
            return
        if (failure := self._identical.failures.get(leader)) is not None:
            self.give_up(agent, failure[1], failure[0], now)
            return
        self.state[agent] = AWAY
        self.tries.launched(agent)
        self._identical.take(agent)
        self.out.append(Take(agent, leader, held_by))

    def give_back(self, agent: int) -> None:
        """Free the resources that an agent holds."""
        if self._holding is not None:
            self._holding.give_back(agent)

    def _led(self, agent: int, status: Status, failure: tuple[str, str] | None, now: float) -> None:
        if self._identical is None:
            return
        waiting, counts = self._identical.ended(agent, passed_on=status in WITH_ANSWER, failure=failure)
        for one in waiting:
            if self.state[one] != READY:  # it ended while it waited
                continue
            if counts:
                self._take_over(one, agent, now, IDENTICAL)
            else:
                self._join(one, now)

    def _held_back(self, agent: int, width: int) -> Reason | None:
        """Return what holds a step besides admission: the schedule, resources, or slots of its kind."""
        if self._holding is not None and (reason := self._holding.held_by(agent)) is not None:
            return reason
        running = self._tasks_running if agent in self.tasks else self._running
        if agent in self._batched:
            running = 0
        return "slot" if running >= (self._policy.concurrency if agent in self.tasks else width) else None

    def _launch(self, agent: int, now: float, reason: str) -> None:
        self.state[agent] = RUNNING
        if self._identical is not None:
            self._identical.left(agent)
        if agent in self.tasks:
            self._tasks_running += 1
        elif agent not in self._batched:
            self._running += 1
        if self._holding is not None:
            self._holding.take(agent)
        number = self.tries.launched(agent)
        if self._candidates is not None:
            self._candidates.launched(agent, now)
        if (deadline := self._deadline_s[agent]) is None or deadline == FOREVER:
            self._set_deadline(agent, now, number)
        at_once = now <= self._ready_s[agent] and (number == 1 or self.tries.has_turned(agent))
        held_by = self._moved_for.pop(agent, "") or ("" if at_once else self._held_by(agent, now, reason))
        self.out.append(new_tuple(Send, (agent, number, held_by)))

    def _held_by(self, agent: int, now: float, reason: str) -> str:
        if self.tries.made(agent) > 1:
            return self.tries.held_by(agent, reason)
        return self._queues.opened(agent, self._ready_s[agent], now) or reason or "slot"

    def _set_deadline(self, agent: int, now: float, number: int) -> None:
        timeout_s = FOREVER if agent in self._batched else self._timeouts_s[agent]
        deadline = self._deadline_s[agent] = now + timeout_s
        if deadline == FOREVER:
            return
        self.alarms.set(deadline, agent, number)

    def _leave(self, agent: int) -> None:
        state = self.state[agent]
        if state == RUNNING and not self._others:
            self._running -= 1
        elif state == RUNNING and agent in self.tasks:
            self._tasks_running -= 1
        elif state == RUNNING:
            self._running -= agent not in self._batched
        elif state != AWAY:
            raise RuntimeError(f"agent {agent} is not running")

    def _run_late(self, agent: int, now: float) -> None:
        if self.state[agent] == KEPT:
            return  # it was not late, the steps that its condition waits for are
        if self.state[agent] in UNDER_WAY:
            self.out.append(Abort(agent, "late"))
        else:
            self.give_up(agent, "Late", f"Late: no complete answer within {self._timeouts_s[agent]:g} s", now)

    def give_up(self, agent: int, kind: str, why: str, now: float) -> None:
        if self._candidates is None or not self._candidates.takes_failure(self, agent, kind, why, now):
            self.end(agent, End("failed", why, kind), now)
            self.skip_descendants(agent, now)

    def skip_descendants(self, agent: int, now: float) -> None:
        todo, candidates = [agent], self._candidates
        while todo:
            for child in self.dag.children[todo.pop()]:
                if self.state[child] == ENDED:
                    continue
                if candidates is None or not candidates.can_do_without(self, child, now):
                    self.end(child, End("skipped", None, None, agent), now)
                    todo.append(child)

    def end(self, agent: int, end: End, now: float) -> None:
        candidates = self._candidates
        if candidates is not None:
            end = candidates.ending(self, agent, end, now)
        status, error, kind, cause = end
        self.state[agent] = ENDED
        self._open -= 1
        if self._slots.last_tries:
            self._slots.ended(agent)
        if self._holding is not None:
            self._holding.give_back(agent)
        if status not in WITH_ANSWER and agent not in self.ends.left:
            self.ends.lost[agent] = agent if cause is None else cause
        told = new_tuple(AgentEnded, (now, agent, status, error, kind)) if cause is None else Skipped(agent, cause)
        self.out.append(told)
        if self._queues.barrier is not None:
            self._queues.ended(agent, now)
        if self._identical is not None:
            self._led(agent, status, (error or "", kind or "") if status == "failed" else None, now)
        if candidates is not None:
            candidates.ended(self, agent, now)

    def _run_out(self, now: float) -> None:
        self.ends.cut = True
        why = self.ends.late = f"Late: the run passed its deadline of {self._policy.deadline_s:g} s"
        for agent in self.dag.order:
            if self.state[agent] in UNDER_WAY:
                self.out.append(Abort(agent, "over"))
            elif self.state[agent] != ENDED:
                self.end(agent, End("cancelled", why, "Late"), now)

    def _cancel_all(self, now: float, why: str) -> None:
        for agent in self.dag.order:
            self._cancel_one(agent, now, why)

    def _cancel_one(self, agent: int, now: float, why: str, status: Status = "cancelled") -> None:
        if self.state[agent] in UNDER_WAY:
            self.ends.stopping.setdefault(agent, (status, why if status == "skipped" else "stopped"))
            self.ends.again.discard(agent)
            self.out.append(Abort(agent, "stopped"))
        elif self.state[agent] != ENDED:
            self.end(agent, End(status, why, STOPPED), now)

    def _take_out(self, agent: int, status: Status, why: str, now: float) -> None:
        if self.state[agent] != ENDED:
            self._cancel_one(agent, now, why, status)
            if self.state[agent] == ENDED:
                self.skip_descendants(agent, now)

    def _reopen(self, agents: Iterable[int], now: float) -> None:
        asked, ends = list(agents), self.ends
        ends.again.update(agent for agent in asked if agent in ends.stopping and self.state[agent] in UNDER_WAY)
        candidates = self._candidates
        again, skipped = to_reopen(self.dag, ends.lost, asked, () if candidates is None else candidates.races)
        for agent in again:
            del ends.lost[agent]
            ends.stopping.pop(agent, None)
            ends.again.discard(agent)
            self.state[agent], self._deadline_s[agent] = PENDING, None
            self.tries.forget(agent)
            self._open += 1
            self._queues.reopened(agent)
            if self._identical is not None:
                self._identical.reopened(agent)
            self.out.append(Reopened(agent))
        if candidates is not None:
            candidates.reopened(again)
            children = (child for agent in again for child in self.dag.children[agent])
            for step in {*again, *children}:
                self.missing[step] = candidates.waits_for(self, step)
        for agent in again:
            if not self.missing[agent] and self.state[agent] == PENDING:
                self.make_ready(agent, now)
        for agent, cause in skipped.items():
            ends.lost[agent] = cause
            self.out += [Reopened(agent), Skipped(agent, cause)]
