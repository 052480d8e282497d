"""The conductor decides which agent does what next. No clock, no tasks, no network.

```
          parents done             slot              answer
PENDING ---------------> READY -----------> RUNNING ---------> ENDED
                           ^                 |   |
                           |  time           |   | failure that a retry can mend
                           +---- BACKOFF <---+   |
                           +---- AWAY <----------+ a turn has ended; calls run between requests
```

A step that is left out (`agent_magic.declare.flow`) ends as skipped or unused, which is no failure.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from agent_magic.engine.admission.room import FOREVER, Hold, Never
from agent_magic.engine.calls import Holding, Resources
from agent_magic.engine.conductor.queues import Order, Queues, barrier_of
from agent_magic.engine.contract import NO_STEPS, Abort, Backoff, Decision, Done, Reopened, Send, Skipped, Take, WakeAt
from agent_magic.engine.identical import IDENTICAL
from agent_magic.engine.retry import Slots, Tries
from agent_magic.record.events import AgentEnded, AgentReady
from agent_magic.record.quick_tuples import new_tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.flow import Left
    from agent_magic.declare.resources import Held
    from agent_magic.engine.admission.room import Room
    from agent_magic.engine.batching import Batching
    from agent_magic.engine.contract import Choices
    from agent_magic.engine.identical import Identical
    from agent_magic.engine.policy import Policy
    from agent_magic.engine.retry import Failure
    from agent_magic.record.answer import Status
    from agent_magic.record.reasons import Reason

LINES: Final = -1
"""All queued agents."""
RUN: Final = -2
"""The run's deadline."""
HEDGES: Final = -3
"""Overdue requests."""


class Alarms:
    """Wake-up times by agent number, or `LINES`, `RUN`, `HEDGES`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._told_s = self._queues_s = FOREVER

    def set(self, at_s: float, agent: int, number: int = 0) -> None:
        heappush(self._heap, (at_s, number, agent))

    def set_lines(self, at_s: float) -> None:
        """Set the time to try the queues again, unless an earlier one is set; an infinite hold waits for an answer."""
        if at_s < self._queues_s:
            self._queues_s = at_s
            self.set(at_s, LINES)

    def woken(self) -> None:
        self._told_s = self._queues_s = FOREVER

    def due(self, now: float) -> int | None:
        return heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def next_s(self) -> float | None:
        # Superseded times of the queues are dropped, since each would lead to another.
        heap = self._heap
        while heap and heap[0][0] < self._told_s:
            if heap[0][2] != LINES or heap[0][0] == self._queues_s:
                self._told_s = heap[0][0]
                return self._told_s
            heappop(heap)
        return None


PENDING: Final = 0
READY: Final = 1
RUNNING: Final = 2
BACKOFF: Final = 3
ENDED: Final = 4
AWAY: Final = 5
UNDER_WAY: Final = frozenset({RUNNING, AWAY})
PASSED_ON: Final = frozenset({"succeeded", "capped"})
SKIPPED: Final = "skipped by the user"
STOPPED: Final = "Stopped"
"""Kind of an end on demand, or caused by another agent's end."""


class Ends:
    """Steps that ended without success, or are about to, with the reasons."""

    __slots__ = ("again", "cut", "done", "late", "left", "lost", "stopping")

    def __init__(self, done: Mapping[int, Status] | None, left: Mapping[int, Left] | None) -> None:
        self.done: dict[int, Status] = dict(done or {})
        self.left: dict[int, Left] = dict(left or {})
        self.stopping: dict[int, tuple[Status, str]] = {}
        self.lost: dict[int, int] = {}
        self.again: set[int] = set()
        self.cut, self.late = False, ""


class Conductor:
    """Decides, for one run of one plan.

    Work goes by the longest remaining path first. Tasks use slots of their own, as many as requests have. `kinds` are
    steps whose durations correct each other's expectation.
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
    ) -> None:
        # Fewer than thirty attributes: CPython 3.11 takes a third longer for each of an object that has more.
        count = len(dag.parents)
        self._dag, self._policy, self._timeouts_s = dag, policy, timeouts_s
        alone = policy.schedule == "sequential"
        self._slots = Slots(1 if alone else policy.concurrency)
        self._state = [PENDING] * count
        self._missing = [*map(len, dag.parents)]
        self._tries = Tries(count, policy, seed, tasks)
        self._ready_s = [0.0] * count
        self._deadline_s: list[float | None] = [None] * count
        barrier = barrier_of(dag, policy)
        self._tasks, self._tasks_running = tasks, 0
        self._holding = Holding(holds or {}, resources or Resources(), alone=alone) if holds or alone else None
        self._batching, self._batched = batching, NO_STEPS if batching is None else batching.now
        # Steps wait for other things than slots of requests.
        self._others = bool(tasks or self._holding or batching)
        name = self._line if self._others else room.line if room else None
        self._room = room
        order = Order(dag, policy, work_s, kinds)
        self._queues = Queues(name, order, barrier)
        self.learn = self._queues.learn if order.learns else None
        self._alarms = Alarms()
        self._moved_for: dict[int, str] = {}  # why those ask another model that have not asked it yet
        self._running = 0
        self._open = count
        self._over = self._paused = False
        self._flow, self._fall_back, self._ends = flow, fall_back, Ends(done, left)
        self._identical = identical
        self._out: list[Decision] = []

    @property
    def running(self) -> int:
        return self._running

    @property
    def slots_used(self) -> int:
        """The larger number of requests and of tasks under way."""
        return max(self._running, self._tasks_running)

    @property
    def slots(self) -> int:
        return self._slots.width

    @property
    def paused(self) -> bool:
        return self._paused

    def _line(self, agent: int) -> str:
        line = "task" if agent in self._tasks else self._room.line(agent) if self._room else ""
        if self._batching is not None and agent in self._batching.steps:
            line = f"{line} batch"
        return line if self._holding is None else f"{line}{self._holding.line(agent)}"

    def start(self, now: float) -> list[Decision]:
        self._settle_done(now)
        for agent, missing in enumerate(self._missing):
            if not missing and self._state[agent] == PENDING:
                self._make_ready(agent, now)
        if self._policy.deadline_s is not None:
            self._alarms.set(now + self._policy.deadline_s, RUN)
        return self._go_on(now)

    def settle_done(self, now: float) -> list[Decision]:
        self._settle_done(now)
        return self._go_on(now)

    def leave_out(self, agent: int) -> None:
        self._ends.done[agent] = "succeeded"

    def room_changed(self, now: float) -> list[Decision]:
        may = self._running < self._slots.width or self._others
        return self._go_on(now) if may and self._queues.waiting else []

    def succeeded(self, agent: int, now: float) -> list[Decision]:
        self._leave(agent)
        is_request = not self._others or (agent not in self._tasks and agent not in self._batched)
        if is_request and (self._identical is None or agent not in self._identical.taken):
            self._slots.answered(agent)
        return self._pass_on(agent, "succeeded", None, now)

    def step_out(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent makes calls between requests; its slot is free until `continue_turn`."""
        self._leave(agent)
        self._state[agent] = AWAY
        return self._go_on(now)

    def continue_turn(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent needs another request, which uses up no attempt."""
        if (over := self._asks_no_more(agent, now)) is not None:
            return over
        self._tries.turned(agent)
        self._state[agent], self._ready_s[agent] = READY, now
        self._join(agent, now)
        return self._go_on(now)

    def ask_another(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent starts over with another model and all attempts."""
        if (over := self._asks_no_more(agent, now)) is not None:
            return over
        self._slots.ended(agent)
        self._state[agent], self._ready_s[agent] = READY, now
        self._move(agent, now)
        return self._go_on(now)

    def _asks_no_more(self, agent: int, now: float) -> list[Decision] | None:
        """Stop counting an agent as running, and end it if it is to be stopped; `None` if it may go on."""
        self._leave(agent)
        if agent in self._ends.stopping:
            return self.cancelled(agent, now, left=True)
        if self._ends.late:
            self._give_up(agent, "Late", self._ends.late, now)
        return self._go_on(now) if self._ends.late else None

    def _move(self, agent: int, now: float) -> None:
        self._tries.moved(agent)
        self._queues.rename(agent)
        self._join(agent, now)

    def _falls_back(self, agent: int, found: Failure | Hold | Never) -> bool:
        return found.falls_back and self._fall_back is not None and self._fall_back(agent)

    def capped(self, agent: int, why: str, now: float) -> list[Decision]:
        self._leave(agent)
        return self._pass_on(agent, "capped", why, now, "Capped")

    def _pass_on(
        self, agent: int, status: Status, why: str | None, now: float, kind: str | None = None
    ) -> list[Decision]:
        self._end(agent, status, why, now, kind)
        self._release(agent, now)
        return self._go_on(now)

    def _release(self, agent: int, now: float) -> None:
        missing, state = self._missing, self._state
        for child in self._dag.children[agent]:
            left = missing[child] = missing[child] - 1
            if not left and state[child] == PENDING:
                self._make_ready(child, now)

    def _why_left_out(self, agent: int) -> Left | None:
        flow = self._flow
        return None if flow is None or agent not in flow.decides else flow.choose(agent, self._ends.left)

    def _leave_out(self, agent: int, left: Left, now: float) -> None:
        todo = [(agent, left)]
        while todo:
            one, why = todo.pop()
            if why.status == "failed":
                self._give_up(one, why.kind, why.why, now)
                continue
            self._ends.left[one] = why
            self._end(one, why.status, why.why, now, why.kind)
            for child in self._dag.children[one]:
                self._missing[child] -= 1
                if self._missing[child] or self._state[child] != PENDING:
                    continue
                if (also := self._why_left_out(child)) is not None:
                    todo.append((child, also))
                else:
                    self._make_ready(child, now, decided=True)

    def failed(self, agent: int, failure: Failure, now: float) -> list[Decision]:
        self._leave(agent)
        if agent in self._ends.stopping:
            return self.cancelled(agent, now, left=True)
        answer = self._tries.next_s(agent, failure, now, self._deadline_s[agent])
        if self._batching is not None and agent in self._batched:
            self._batching.failed(agent)
        elif agent not in self._tasks:
            self._slots.failed(agent, failure, tries_left=self._tries.left(agent, failure))
        if isinstance(answer, str) and self._falls_back(agent, failure):
            self._state[agent] = AWAY
            return self.ask_another(agent, now)
        if not isinstance(answer, str):
            self._state[agent] = BACKOFF
            self._alarms.set(answer, agent, self._tries.made(agent))
            self._out.append(Backoff(agent, answer, failure.why))
            return self._go_on(now)
        self._give_up(agent, failure.kind, answer, now)
        if failure.stops_run:
            self._cancel_all(now, f"the run was stopped by {answer}")
        return self._go_on(now)

    def cancelled(self, agent: int, now: float, *, left: bool = False) -> list[Decision]:
        """Record that a running agent's request was aborted on demand; `left` if its slot is already free."""
        if not left:
            self._leave(agent)
        status, why = self._ends.stopping.get(agent, ("cancelled", "stopped"))
        self._end(agent, status, why, now, STOPPED)
        self._skip_descendants(agent, now)
        if agent in self._ends.again and not self._ends.cut:
            self._reopen((agent,), now)
        return self._go_on(now)

    def held_by(self, agent: int) -> str:
        if self._state[agent] == BACKOFF:
            return "backoff"
        if self._state[agent] != READY:
            return ""
        if self._identical is not None and self._identical.waits(agent):
            return IDENTICAL
        if self._paused:
            return "paused"
        return self._queues.reason(agent)

    def wake(self, now: float) -> list[Decision]:
        self._alarms.woken()
        while (agent := self._alarms.due(now)) is not None:
            if agent == RUN:
                self._run_out(now)
            if agent < 0 or self._state[agent] == ENDED:
                continue
            deadline = self._deadline_s[agent]
            if deadline is not None and deadline <= now:
                self._run_late(agent, now)
            elif self._state[agent] == BACKOFF and self._tries.until_s[agent] <= now:
                self._state[agent] = READY
                self._join(agent, now)
        return self._go_on(now)

    def cancel(self, now: float, agents: Iterable[int] | None = None) -> list[Decision]:
        """Stop these agents, or all; running ones are reported by `cancelled` later."""
        if agents is None:
            self._ends.cut = True
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
        if not self._ends.cut and self._open:
            self._reopen(range(len(self._state)) if agents is None else agents, now)
        return self._go_on(now)

    def pause(self, now: float) -> list[Decision]:
        self._paused = True
        self._queues.hold_others((), "paused", now)
        return self._go_on(now)

    def resume(self, now: float) -> list[Decision]:
        if self._paused:
            self._paused = False
            self._queues.hold_others((), "paused", now)
        return self._go_on(now)

    def _settle_done(self, now: float) -> None:
        for agent, status in self._ends.done.items():
            self._state[agent] = ENDED
            self._open -= 1
            if self._queues.barrier is not None:
                self._queues.ended(agent, now)
            for child in self._dag.children[agent]:
                self._missing[child] -= status in PASSED_ON or agent in self._ends.left
        for agent, status in self._ends.done.items():
            if status not in PASSED_ON and agent not in self._ends.left:
                self._ends.lost[agent] = agent
                self._skip_descendants(agent, now)
        self._ends.done = {}

    def _make_ready(self, agent: int, now: float, *, decided: bool = False) -> None:
        if self._flow is not None and not decided and (why := self._why_left_out(agent)) is not None:
            self._leave_out(agent, why, now)
            return
        self._state[agent] = READY
        self._ready_s[agent] = now
        self._out.append(new_tuple(AgentReady, (now, agent)))
        self._join(agent, now)
        if self._policy.timeout_counts == "total":
            self._set_deadline(agent, now, self._tries.made(agent))

    def _join(self, agent: int, now: float) -> None:
        if self._batching is not None:
            self._batching.decide(agent, now)
        self._queues.join(agent)

    def _go_on(self, now: float) -> list[Decision]:
        if self._queues.waiting and not self._paused:
            self._fill(now)
        if not self._open and not self._over:
            self._over = True
            self._out.append(Done(self._ends.cut))
        if (wake_s := self._alarms.next_s()) is not None:
            self._out.append(WakeAt(wake_s))
        out, self._out = self._out, []
        return out

    def _fill(self, now: float) -> None:
        queues, room, width, others = self._queues, self._room, self._slots.width, self._others
        held: Collection[int] = ()
        while queues.waiting and (self._running < width or others) and (agent := queues.first(held)) is not None:
            if self._state[agent] != READY:  # it ended while it waited
                queues.leave(agent, now, now)
            elif (deadline := self._deadline_s[agent]) is not None and deadline <= now:
                queues.leave(agent, now, now)
                self._run_late(agent, now)  # a slot came free too late for another try
            elif self._identical is not None and self._follows(agent, now):
                continue
            elif others and (reason := self._held_back(agent, width)):
                held = {*held, queues.hold(agent, reason, now)}
            elif room is None or agent in self._tasks or (answer := room.enter(agent, now)) is None:
                self._launch(agent, now, queues.leave(agent, self._ready_s[agent], now))
            elif self._falls_back(agent, answer):
                reason = queues.leave(agent, self._ready_s[agent], now)
                self._moved_for[agent] = answer.reason if isinstance(answer, Hold) else reason
                self._move(agent, now)
            elif isinstance(answer, Hold):
                held = {*held, queues.hold(agent, answer.reason, now)}
                self._alarms.set_lines(answer.until_s)
            else:
                queues.leave(agent, now, now)
                self._turn_away(agent, answer, now)
        if self._running >= width:
            queues.hold_others(held, "slot", now)

    def _turn_away(self, agent: int, never: Never, now: float) -> None:
        self._end(agent, "capped" if never.keeps else "cancelled", never.why, now, never.kind)
        if never.keeps:
            self._release(agent, now)
        else:
            self._skip_descendants(agent, now)

    def _follows(self, agent: int, now: float) -> bool:
        """Let an agent wait for an identical one, or take its outcome; return False if it must ask itself."""
        if self._identical is None or agent in self._tasks or (leader := self._identical.leader(agent)) is None:
            return False
        if self._state[leader] != ENDED and self._queues.barrier is not None:
            layer = self._dag.layer
            if layer[leader] > layer[agent]:  # it may wait for this one's layer
                return False
        reason = self._queues.leave(agent, self._ready_s[agent], now)
        if self._state[leader] == ENDED:
            self._take_over(agent, leader, now, "" if now <= self._ready_s[agent] else reason)
        else:
            self._identical.wait(agent, leader)
        return True

    def _take_over(self, agent: int, leader: int, now: float, held_by: str) -> None:
        if self._identical is None:
            return
        if (failure := self._identical.failures.get(leader)) is not None:
            self._give_up(agent, failure[1], failure[0], now)
            return
        self._state[agent] = AWAY
        self._tries.launched(agent)
        self._identical.take(agent)
        self._out.append(Take(agent, leader, held_by))

    def _led(self, agent: int, status: Status, failure: tuple[str, str] | None, now: float) -> None:
        if self._identical is None:
            return
        waiting, counts = self._identical.ended(agent, passed_on=status in PASSED_ON, failure=failure)
        for one in waiting:
            if self._state[one] != READY:  # it ended while it waited
                continue
            if counts:
                self._take_over(one, agent, now, IDENTICAL)
            else:
                self._join(one, now)

    def _held_back(self, agent: int, width: int) -> Reason | None:
        """Return what holds a step besides admission: the schedule, resources, or slots of its kind."""
        if self._holding is not None and (reason := self._holding.held_by(agent)) is not None:
            return reason
        running = self._tasks_running if agent in self._tasks else self._running
        if agent in self._batched:
            running = 0
        return "slot" if running >= (self._policy.concurrency if agent in self._tasks else width) else None

    def _launch(self, agent: int, now: float, reason: str) -> None:
        self._state[agent] = RUNNING
        if self._identical is not None:
            self._identical.left(agent)
        if agent in self._tasks:
            self._tasks_running += 1
        elif agent not in self._batched:
            self._running += 1
        if self._holding is not None:
            self._holding.take(agent)
        number = self._tries.launched(agent)
        if (deadline := self._deadline_s[agent]) is None or deadline == FOREVER:
            self._set_deadline(agent, now, number)
        at_once = now <= self._ready_s[agent] and (number == 1 or self._tries.has_turned(agent))
        held_by = self._moved_for.pop(agent, "") or ("" if at_once else self._held_by(agent, now, reason))
        self._out.append(new_tuple(Send, (agent, number, held_by)))

    def _held_by(self, agent: int, now: float, reason: str) -> str:
        if self._tries.made(agent) > 1:
            return self._tries.held_by(agent, reason)
        return self._queues.opened(agent, self._ready_s[agent], now) or reason or "slot"

    def _set_deadline(self, agent: int, now: float, number: int) -> None:
        timeout_s = FOREVER if agent in self._batched else self._timeouts_s[agent]
        deadline = self._deadline_s[agent] = now + timeout_s
        if deadline == FOREVER:
            return
        self._alarms.set(deadline, agent, number)

    def _leave(self, agent: int) -> None:
        state = self._state[agent]
        if state == RUNNING and not self._others:
            self._running -= 1
        elif state == RUNNING and agent in self._tasks:
            self._tasks_running -= 1
        elif state == RUNNING:
            self._running -= agent not in self._batched
        elif state != AWAY:
            raise RuntimeError(f"agent {agent} is not running")

    def _run_late(self, agent: int, now: float) -> None:
        if self._state[agent] in UNDER_WAY:
            self._out.append(Abort(agent, "late"))
        else:
            self._give_up(agent, "Late", f"Late: no complete answer within {self._timeouts_s[agent]:g} s", now)

    def _give_up(self, agent: int, kind: str, why: str, now: float) -> None:
        self._end(agent, "failed", why, now, kind)
        self._skip_descendants(agent, now)

    def _skip_descendants(self, agent: int, now: float) -> None:
        todo = [agent]
        while todo:
            for child in self._dag.children[todo.pop()]:
                if self._state[child] != ENDED and not self._can_do_without(child, now):
                    self._end(child, "skipped", None, now, cause=agent)
                    todo.append(child)

    def _can_do_without(self, step: int, now: float) -> bool:
        """Return whether a step survives a failed parent; only races do."""
        del step, now
        return False

    def _end(
        self,
        agent: int,
        status: Status,
        error: str | None,
        now: float,
        kind: str | None = None,
        *,
        cause: int | None = None,
    ) -> None:
        self._state[agent] = ENDED
        self._open -= 1
        if self._slots.last_tries:
            self._slots.ended(agent)
        if self._holding is not None:
            self._holding.give_back(agent)
        if status not in PASSED_ON and agent not in self._ends.left:
            self._ends.lost[agent] = agent if cause is None else cause
        end = new_tuple(AgentEnded, (now, agent, status, error, kind)) if cause is None else Skipped(agent, cause)
        self._out.append(end)
        if self._queues.barrier is not None:
            self._queues.ended(agent, now)
        if self._identical is not None:
            self._led(agent, status, (error or "", kind or "") if status == "failed" else None, now)

    def _run_out(self, now: float) -> None:
        self._ends.cut = True
        why = self._ends.late = f"Late: the run passed its deadline of {self._policy.deadline_s:g} s"
        for agent in self._dag.order:
            if self._state[agent] in UNDER_WAY:
                self._out.append(Abort(agent, "over"))
            elif self._state[agent] != ENDED:
                self._end(agent, "cancelled", why, now, "Late")

    def _cancel_all(self, now: float, why: str) -> None:
        for agent in self._dag.order:
            self._cancel_one(agent, now, why)

    def _cancel_one(self, agent: int, now: float, why: str, status: Status = "cancelled") -> None:
        if self._state[agent] in UNDER_WAY:
            self._ends.stopping.setdefault(agent, (status, why if status == "skipped" else "stopped"))
            self._ends.again.discard(agent)
            self._out.append(Abort(agent, "stopped"))
        elif self._state[agent] != ENDED:
            self._end(agent, status, why, now, STOPPED)

    def _take_out(self, agent: int, status: Status, why: str, now: float) -> None:
        if self._state[agent] != ENDED:
            self._cancel_one(agent, now, why, status)
            if self._state[agent] == ENDED:
                self._skip_descendants(agent, now)

    def _to_reopen(self, asked: Iterable[int]) -> tuple[list[int], dict[int, int]]:
        return to_reopen(self._dag, self._ends.lost, asked)

    def _reopen(self, agents: Iterable[int], now: float) -> None:
        asked, ends = list(agents), self._ends
        ends.again.update(agent for agent in asked if agent in ends.stopping and self._state[agent] in UNDER_WAY)
        again, skipped = self._to_reopen(asked)
        for agent in again:
            del ends.lost[agent]
            ends.stopping.pop(agent, None)
            ends.again.discard(agent)
            self._state[agent], self._deadline_s[agent] = PENDING, None
            self._tries.forget(agent)
            self._open += 1
            self._queues.reopened(agent)
            if self._identical is not None:
                self._identical.reopened(agent)
            self._out.append(Reopened(agent))
            if not self._missing[agent]:
                self._make_ready(agent, now)
        for agent, cause in skipped.items():
            ends.lost[agent] = cause
            self._out += [Reopened(agent), Skipped(agent, cause)]


def to_reopen(
    dag: Dag, lost: Mapping[int, int], asked: Iterable[int], races: Container[int] = ()
) -> tuple[list[int], dict[int, int]]:
    """Return the agents to run again, parents before children, and the new cause of each that stays skipped.

    A retried agent brings its unsuccessful ancestors, and the steps skipped because of them unless another cause
    remains. Agents skipped or stopped by name come back only by name.
    """
    wanted = {agent for agent in asked if agent in lost}
    if not wanted:
        return [], {}
    wanted |= {agent for agent in dag.ancestors(wanted) if agent in lost}
    below = dag.descendants(wanted)
    found: dict[int, None] = {}
    causes: dict[int, int] = {}
    for agent in dag.order:
        if agent in wanted or (agent in below and lost.get(agent, agent) != agent):
            in_its_way = [parent for parent in dag.parents[agent] if parent in lost and parent not in found]
            if agent in races and len(in_its_way) < len(dag.parents[agent]):
                in_its_way = []
            if not in_its_way:
                found[agent] = None
            elif lost[agent] in found:
                causes[agent] = causes.get(in_its_way[0], lost[in_its_way[0]])
    return list(found), causes
