"""The conductor: decides which agent does what next. No clock, no tasks, no network.

Events and the time go in, actions come out. Two drivers turn it: the live one on the event loop, and a heap of virtual
time in forecasts, so that a forecast comes from the code that ran the agents.

```
          parents done             slot              answer
PENDING ---------------> READY -----------> RUNNING ---------> ENDED
                           ^                 |   |
                           |  time           |   | failure that another attempt can mend
                           +---- BACKOFF <---+   |
                           +---- AWAY <----------+ a turn has ended, and something is done that is no request
```

Before a step is ready it may be left out: see `agent_magic.declare.flow`. Then it ends as skipped or unused, which is
no failure: what can do without it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.engine.actions import Abort, Backoff, Decision, Done, Reopened, Send, Skipped, WakeAt
from agent_magic.engine.admission.room import FOREVER, Hold, Never
from agent_magic.engine.calls import Holding, Resources
from agent_magic.engine.conductor.alarms import RUN, Alarms
from agent_magic.engine.conductor.ends import Ends
from agent_magic.engine.conductor.lines import Barrier, Lines
from agent_magic.engine.conductor.order import Order
from agent_magic.engine.conductor.reopening import to_reopen
from agent_magic.engine.conductor.tries import Slots, Tries
from agent_magic.engine.contract import NO_STEPS
from agent_magic.record.events import AgentEnded, AgentReady
from agent_magic.record.made import made

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.flow import Left
    from agent_magic.declare.resources import Held
    from agent_magic.engine.admission.room import Room
    from agent_magic.engine.batching import Batching
    from agent_magic.engine.contract import Choices
    from agent_magic.engine.policy import Policy
    from agent_magic.engine.retry import Failure
    from agent_magic.record.answer import Status
    from agent_magic.record.reasons import Reason

PENDING: Final = 0
READY: Final = 1
RUNNING: Final = 2
BACKOFF: Final = 3
ENDED: Final = 4
AWAY: Final = 5
UNDER_WAY: Final = frozenset({RUNNING, AWAY})
PASSED_ON: Final = frozenset({"succeeded", "capped"})
"""Whose children may begin."""
SKIPPED: Final = "skipped by the user"
STOPPED: Final = "Stopped"
"""The kind of an end that somebody asked for, or that follows from another agent's."""


class Conductor:
    """Decides, for one run of one plan.

    Args:
        dag: Who waits for whom.
        policy: How to run.
        timeouts_s: Per agent, seconds from its first launch to its deadline.
        work_s: Per agent, expected seconds of work. Agents with more work before the end of the plan go first.
            Without it every agent counts the same.
        kinds: Per agent, what it is alike in: what some took corrects what is expected of others.
        room: Asked before an agent goes: rate limits, a budget. `None` is room for all.
        seed: Makes the jitter of waiting times repeatable, where the policy names none.
        done: Agents that have ended before, each with its status: those of a recording that is completed.
        tasks: The steps that make no requests. They take none of the slots of requests, but as many of their own.
        holds: Per step that holds something while it runs, what that is.
        resources: Who holds what; calls of tools count there too.
        flow: Decides which steps are left out; `None` leaves none out.
        left: The steps of `done` that were left out, and why.
        batching: Decides which requests go by batch: they take no slot. `None` sends none so.
        fall_back: Has a step ask its next fallback model; `False` where it has none. `None` has no such models.
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
    ) -> None:
        # Fewer than thirty attributes: CPython 3.11 takes a third longer for each of an object that has more.
        count = len(dag.parents)
        self._dag, self._policy, self._timeouts_s = dag, policy, timeouts_s
        self._slots = Slots(1 if policy.schedule == "sequential" else policy.concurrency)
        self._state = [PENDING] * count
        self._missing = [*map(len, dag.parents)]
        self._tries = Tries(count, policy, seed, tasks)
        self._ready_s = [0.0] * count
        self._deadline_s: list[float | None] = [None] * count
        barrier = Barrier(dag) if policy.schedule == "layers" else None
        self._tasks, self._tasks_running = tasks, 0
        self._holding = Holding(holds, resources or Resources()) if holds else None
        self._batching, self._batched = batching, NO_STEPS if batching is None else batching.now
        self._others = bool(tasks or holds or batching)  # steps that wait for other things than slots of requests
        name = self._line if self._others else room.line if room else None
        self._room = room
        order = Order(dag, policy, work_s, kinds)
        self._lines = Lines(name, order, barrier)
        self.learn = self._lines.learn if order.learns else None
        self._alarms = Alarms()
        self._running = 0
        self._open = count
        self._over = self._paused = False
        self._flow, self._fall_back, self._ends = flow, fall_back, Ends(done, left)
        self._out: list[Decision] = []

    @property
    def running(self) -> int:
        """How many requests are under way."""
        return self._running

    @property
    def slots(self) -> int:
        """How many requests may be under way now; see `Slots`."""
        return self._slots.width

    @property
    def paused(self) -> bool:
        """Whether nobody is let go."""
        return self._paused

    def _line(self, agent: int) -> str:
        """Name the line a step waits in, where not all are requests that hold nothing."""
        line = "task" if agent in self._tasks else self._room.line(agent) if self._room else ""
        if self._batching is not None and agent in self._batching.steps:
            line = f"{line} batch"
        return line if self._holding is None else f"{line}{self._holding.line(agent)}"

    def start(self, now: float) -> list[Decision]:
        """Begin. Call it once."""
        self._settle_done(now)
        for agent, missing in enumerate(self._missing):
            if not missing and self._state[agent] == PENDING:
                self._make_ready(agent, now)
        if self._policy.deadline_s is not None:
            self._alarms.set(now + self._policy.deadline_s, RUN)
        return self._go_on(now)

    def settle_done(self, now: float) -> list[Decision]:
        """Skip what waits for a recorded failure, before `start`. Ends a run of which nothing is left."""
        self._settle_done(now)
        return self._go_on(now)

    def leave_out(self, agent: int) -> None:
        """Count an agent off that nobody waits for. Call it before `start`."""
        self._ends.done[agent] = "succeeded"

    def room_changed(self, now: float) -> list[Decision]:
        """Record that there may be more room than before."""
        may = self._running < self._slots.width or self._others
        return self._go_on(now) if may and self._lines.waiting else []

    def succeeded(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent has its answer."""
        self._leave(agent)
        if not self._others or (agent not in self._tasks and agent not in self._batched):
            self._slots.answered(agent)
        return self._pass_on(agent, "succeeded", None, now)

    def step_out(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent does something that is no request, until `continue_turn`. Its slot is free."""
        self._leave(agent)
        self._state[agent] = AWAY
        return self._go_on(now)

    def continue_turn(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent's answer is to go on with another request, which uses up no attempt."""
        if (over := self._asks_no_more(agent, now)) is not None:
            return over
        self._tries.turned(agent)
        self._state[agent], self._ready_s[agent] = READY, now
        self._join(agent, now)
        return self._go_on(now)

    def ask_another(self, agent: int, now: float) -> list[Decision]:
        """Record that a running agent asks another model, in a new conversation, with all of its attempts."""
        if (over := self._asks_no_more(agent, now)) is not None:
            return over
        self._slots.ended(agent)
        self._state[agent], self._ready_s[agent] = READY, now
        self._move(agent, now)
        return self._go_on(now)

    def _asks_no_more(self, agent: int, now: float) -> list[Decision] | None:
        """Take out an agent that was under way, and end it if it was to be stopped; `None` where it may ask again."""
        self._leave(agent)
        if agent in self._ends.stopping:
            return self.cancelled(agent, now, left=True)
        if self._ends.late:
            self._give_up(agent, "Late", self._ends.late, now)
        return self._go_on(now) if self._ends.late else None

    def _move(self, agent: int, now: float) -> None:
        """Put a step that asks another model than before into the line of that."""
        self._tries.moved(agent)
        self._lines.rename(agent)
        self._join(agent, now)

    def _falls_back(self, agent: int, found: Failure | Hold | Never) -> bool:
        """Have an agent ask another model where its own does not answer; `False` where that is not so."""
        return found.falls_back and self._fall_back is not None and self._fall_back(agent)

    def capped(self, agent: int, why: str, now: float) -> list[Decision]:
        """Record that a running agent has a part of its answer, and shall have no more. It is passed on."""
        self._leave(agent)
        return self._pass_on(agent, "capped", why, now, "Capped")

    def _pass_on(
        self, agent: int, status: Status, why: str | None, now: float, kind: str | None = None
    ) -> list[Decision]:
        """End an agent whose children may begin."""
        self._end(agent, status, why, now, kind)
        self._release(agent, now)
        return self._go_on(now)

    def _release(self, agent: int, now: float) -> None:
        """Let the children of an agent begin that wait for nobody else."""
        missing, state = self._missing, self._state
        for child in self._dag.children[agent]:
            left = missing[child] = missing[child] - 1
            if not left and state[child] == PENDING:
                self._make_ready(child, now)

    def _why_left_out(self, agent: int) -> Left | None:
        """Return why a step whose parents have all ended does not run; `None` where it does."""
        flow = self._flow
        return None if flow is None or agent not in flow.decides else flow.choose(agent, self._ends.left)

    def _leave_out(self, agent: int, left: Left, now: float) -> None:
        """End a step that is not needed, and those that are not needed without it."""
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
        """Record that a running agent's attempt failed: try again later, or give up."""
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
        """Record that a running agent's request was cancelled, as this conductor had asked.

        Args:
            agent: The agent.
            now: The time.
            left: Whether its slot is free already.
        """
        if not left:
            self._leave(agent)
        status, why = self._ends.stopping.get(agent, ("cancelled", "stopped"))
        self._end(agent, status, why, now, STOPPED)
        self._skip_descendants(agent, now)
        if agent in self._ends.again and not self._ends.cut:
            self._reopen((agent,), now)
        return self._go_on(now)

    def held_by(self, agent: int) -> str:
        """Say what holds an agent that is ready: `slot`, `requests`, `input`, `output`, `budget`, `barrier`, ..."""
        if self._state[agent] == BACKOFF:
            return "backoff"
        if self._state[agent] != READY:
            return ""
        if self._paused:
            return "paused"
        return self._lines.reason(agent)

    def wake(self, now: float) -> list[Decision]:
        """Record that the time of a `WakeAt` has come."""
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
        """Stop these agents, or all of them. Those under way are reported by `cancelled` later."""
        if agents is None:
            self._ends.cut = True
            self._cancel_all(now, "stopped")
        else:
            for agent in agents:
                self._take_out(agent, "cancelled", "stopped", now)
        return self._go_on(now)

    def skip(self, now: float, agents: Iterable[int], why: str = "") -> list[Decision]:
        """Leave these agents out, and what waits for them. Those under way are reported by `cancelled` later."""
        for agent in agents:
            self._take_out(agent, "skipped", why or SKIPPED, now)
        return self._go_on(now)

    def retry(self, now: float, agents: Iterable[int] | None = None) -> list[Decision]:
        """Run these agents again, or all, that did not succeed; see `to_reopen`."""
        if not self._ends.cut and self._open:
            self._reopen(range(len(self._state)) if agents is None else agents, now)
        return self._go_on(now)

    def pause(self, now: float) -> list[Decision]:
        """Let nobody go until `resume`. What is under way goes on."""
        self._paused = True
        self._lines.hold_others((), "paused", now)
        return self._go_on(now)

    def resume(self, now: float) -> list[Decision]:
        """Let agents go again."""
        if self._paused:
            self._paused = False
            self._lines.hold_others((), "paused", now)
        return self._go_on(now)

    def _settle_done(self, now: float) -> None:
        """Count agents off that have ended before the run begins, and skip what waits for one without success."""
        for agent, status in self._ends.done.items():
            self._state[agent] = ENDED
            self._open -= 1
            if self._lines.barrier is not None:
                self._lines.ended(agent, now)
            for child in self._dag.children[agent]:
                self._missing[child] -= status in PASSED_ON or agent in self._ends.left
        for agent, status in self._ends.done.items():
            if status not in PASSED_ON and agent not in self._ends.left:
                self._ends.lost[agent] = agent
                self._skip_descendants(agent, now)
        self._ends.done = {}

    def _make_ready(self, agent: int, now: float, *, decided: bool = False) -> None:
        """Let a step wait for its turn, unless it is left out. `decided` says that it is not."""
        if self._flow is not None and not decided and (why := self._why_left_out(agent)) is not None:
            self._leave_out(agent, why, now)
            return
        self._state[agent] = READY
        self._ready_s[agent] = now
        self._out.append(made(AgentReady, (now, agent)))
        self._join(agent, now)
        if self._policy.timeout_counts == "total":
            self._set_deadline(agent, now, self._tries.made(agent))

    def _join(self, agent: int, now: float) -> None:
        """Put a step into its line, and decide whether it goes by batch."""
        if self._batching is not None:
            self._batching.decide(agent, now)
        self._lines.join(agent)

    def _go_on(self, now: float) -> list[Decision]:
        """Fill the free slots, set the alarm, and hand over what was decided."""
        if self._lines.waiting and not self._paused:
            self._fill(now)
        if not self._open and not self._over:
            self._over = True
            self._out.append(Done(self._ends.cut))
        if (wake_s := self._alarms.next_s()) is not None:
            self._out.append(WakeAt(wake_s))
        out, self._out = self._out, []
        return out

    def _fill(self, now: float) -> None:
        """Let agents go while there are slots and room, the longest remaining path first."""
        lines, room, width, others = self._lines, self._room, self._slots.width, self._others
        held: Collection[int] = ()
        while lines.waiting and (self._running < width or others) and (agent := lines.first(held)) is not None:
            if self._state[agent] != READY:  # it ended while it waited
                lines.leave(agent, now, now)
            elif (deadline := self._deadline_s[agent]) is not None and deadline <= now:
                lines.leave(agent, now, now)
                self._run_late(agent, now)  # a slot came free too late for another try
            elif others and (reason := self._held_back(agent, width)):
                held = {*held, lines.hold(agent, reason, now)}
            elif room is None or agent in self._tasks or (answer := room.enter(agent, now)) is None:
                self._launch(agent, now, lines.leave(agent, self._ready_s[agent], now))
            elif self._falls_back(agent, answer):
                lines.leave(agent, now, now)
                self._move(agent, now)
            elif isinstance(answer, Hold):
                held = {*held, lines.hold(agent, answer.reason, now)}
                self._alarms.set_lines(answer.until_s)
            else:
                lines.leave(agent, now, now)
                self._end(agent, "capped" if answer.keeps else "cancelled", answer.why, now, answer.kind)
                if answer.keeps:
                    self._release(agent, now)
                else:
                    self._skip_descendants(agent, now)
        if self._running >= width:
            lines.hold_others(held, "slot", now)

    def _held_back(self, agent: int, width: int) -> Reason | None:
        """Return what keeps a step from going besides its room: no slot of its kind, or what others hold."""
        running = self._tasks_running if agent in self._tasks else self._running
        if agent in self._batched:
            running = 0
        if self._policy.schedule == "sequential":
            running = self._tasks_running + self._running
        if running >= (self._policy.concurrency if agent in self._tasks else width):
            return "slot"
        return None if self._holding is None or self._holding.is_free(agent) else "resource"

    def _launch(self, agent: int, now: float, reason: str) -> None:
        self._state[agent] = RUNNING
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
        held_by = "" if at_once else self._held_by(agent, now, reason)
        self._out.append(made(Send, (agent, number, held_by)))

    def _held_by(self, agent: int, now: float, reason: str) -> str:
        if self._tries.made(agent) > 1:
            return self._tries.held_by(agent, reason)
        return "barrier" if self._lines.opened(agent, now) else reason or "slot"

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
        """Give up on what waits for this agent. The walk stops at agents that have ended: theirs have too."""
        todo = [agent]
        while todo:
            for child in self._dag.children[todo.pop()]:
                if self._state[child] != ENDED and not self._can_do_without(child, now):
                    self._end(child, "skipped", None, now, cause=agent)
                    todo.append(child)

    def _can_do_without(self, step: int, now: float) -> bool:
        """Tell whether a step goes on although a parent did not succeed: no step does, but a race."""
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
        end = made(AgentEnded, (now, agent, status, error, kind)) if cause is None else Skipped(agent, cause)
        self._out.append(end)
        if self._lines.barrier is not None:
            self._lines.ended(agent, now)

    def _run_out(self, now: float) -> None:
        """End a run whose deadline has passed."""
        self._ends.cut = True
        why = self._ends.late = f"Late: the run was to take no longer than {self._policy.deadline_s:g} s"
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
        """End one agent and what waits for it. One under way may still come in complete."""
        if self._state[agent] != ENDED:
            self._cancel_one(agent, now, why, status)
            if self._state[agent] == ENDED:
                self._skip_descendants(agent, now)

    def _to_reopen(self, asked: Iterable[int]) -> tuple[list[int], dict[int, int]]:
        return to_reopen(self._dag, self._ends.lost, asked)

    def _reopen(self, agents: Iterable[int], now: float) -> None:
        """Let agents run again that did not succeed, and what was skipped because of them."""
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
            self._lines.reopened(agent)
            self._out.append(Reopened(agent))
            if not self._missing[agent]:
                self._make_ready(agent, now)
        for agent, cause in skipped.items():
            ends.lost[agent] = cause
            self._out += [Reopened(agent), Skipped(agent, cause)]
