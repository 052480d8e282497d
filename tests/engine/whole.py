"""One run of the whole engine on a virtual clock: conductor, gate, budget, leaders and retries.

It does what the live driver does. `whole_world` turns it, `whole_book` checks what has to hold at all times.
"""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from agent_magic.declare.dag import build_dag
from agent_magic.engine.actions import Backoff, Cancel, Finished, Launch, Reopened, Skipped, WakeAt
from agent_magic.engine.breaker import Breakers, Fault
from agent_magic.engine.budget import Budget, Worst
from agent_magic.engine.conductor import Conductor
from agent_magic.engine.prefix import Prefixes
from agent_magic.engine.retry import failure_of
from agent_magic.engine.room import Gate, Need
from agent_magic.errors import Late, Overloaded, RateLimited, Truncated, Unreachable
from agent_magic.record.events import AgentEnded, AgentReady
from tests.engine.whole_book import USD, WIRE_S, Book
from tests.engine.whole_scene import ANSWERS, FAULTS, PRODUCES, Asked, Scene

if TYPE_CHECKING:
    from agent_magic.engine.breaker import Blame
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.pool import Seat
    from tests.engine.whole_world import World

HANDS = frozenset({"cancel", "skip", "retry", "pause", "resume"})


class Whole:
    """Runs one plan of a scene.

    Args:
        world: The clock, the server and what else the runs of a session share.
        scene: The plan, the policy and the hands.
        starts_s: When it begins.

    Attributes:
        book: What has to hold.
        launches: (time, agent) of every request.
        running: The agents under way, each with the number of its attempt and why it is cancelled, if it is.
        end_s: When the run was over.
    """

    def __init__(self, world: World, scene: Scene, starts_s: float) -> None:
        self.world, self.scene, self.starts_s, self.count = world, scene, starts_s, len(scene.asked)
        dag = build_dag(scene.parents)
        assert dag is not None
        self.dag, policy = dag, scene.policy
        self.end_s, self.alarm, self.woken_s = -1.0, math.inf, 0.0
        self.running: dict[int, tuple[int, str]] = {}
        self.own, self.sent = Counter[int](), set[tuple[int, int]]()
        self.launches: list[tuple[float, int]] = []
        self.slots = 1 if policy.schedule == "sequential" else policy.concurrency
        capped = policy.budget_tokens is not None
        groups = [one.group for one in scene.asked]
        self.budget = Budget(None, policy.budget_tokens) if capped else None
        self.gate = Gate(
            [one.model for one in scene.asked],
            self.need,
            pacer=world.pacer,
            budget=self.budget,
            prefixes=Prefixes(groups) if any(groups) else None,
            breakers=Breakers(policy.breaker_share, policy.max_usd_per_min),
            key=world.key,
        )
        self.gate.began_s = world.scene.began_s + starts_s
        timeouts = [one.timeout_s for one in scene.asked]
        self.conductor = Conductor(dag, policy, timeouts_s=timeouts, room=self.gate)
        self.seat: Seat | None = None
        self.book = Book(self)

    @property
    def now(self) -> float:
        """The time since it began."""
        return max(self.woken_s, self.world.now - self.starts_s)

    @property
    def alarm_s(self) -> float:
        """When it wants to be woken, on the clock of all."""
        return self.starts_s + self.alarm

    @property
    def is_over(self) -> bool:
        """Whether nothing will come of it any more."""
        return self.end_s >= 0

    @property
    def is_live(self) -> bool:
        """Whether it has begun, and is not over."""
        return self.seat is not None and not self.is_over

    def need(self, agent: int) -> Need:
        """Say what an agent's request will use."""
        one = self.scene.asked[agent]
        worst = Worst(one.worst_tokens * USD, one.worst_tokens)
        return Need(one.model, one.input_tokens, int(one.output_tokens * one.guess), worst)

    def left(self) -> list[int]:
        """The agents without a last status."""
        return [agent for agent in range(self.count) if agent not in self.book.status]

    def later(self, in_s: float, what: str, who: Any) -> None:
        """Have something happen to it."""
        self.world.later(self.world.now + in_s, self, what, who)

    def start(self) -> None:
        """Begin."""
        for at_s, what, agents in self.scene.controls:
            self.later(at_s, what, agents)
        self.seat = self.gate.seat = self.world.slots.join(self.slots, self.slot_free)
        self.take(self.conductor.start(self.now))

    def slot_free(self) -> bool:
        """Ask again for a slot: there is one."""
        if not self.is_over:
            self.take(self.conductor.room_changed(self.now))
        return True

    def wake(self) -> None:
        """Take in that its alarm rings."""
        self.woken_s, self.alarm = max(self.woken_s, self.alarm), math.inf
        self.take(self.conductor.wake(self.now))

    def happen(self, what: str, who: Any) -> None:
        """Let something happen."""
        if what == "start":
            self.start()
            return
        if what in HANDS:
            if not self.is_over:
                self.control(what, who)
            return
        agent, number = who
        if self.running.get(agent, (0, ""))[0] != number:
            return
        if what == "leave":
            if not self.running[agent][1]:
                self.send(agent, number, self.scene.asked[agent])
        elif what == "begun":
            self.world.book.ended(self.scene.asked[agent])
            self.gate.heard(agent, self.readings(agent), self.now)
            self.replied(200)
            self.take(self.conductor.room_changed(self.now))
            self.gate.began(agent)
            self.book.begun(agent)
            self.take(self.conductor.room_changed(self.now))
        elif what in {"gone", "unsent"}:
            self.gone(agent, sent=what == "gone")
        elif not self.running[agent][1]:
            self.end(agent, what)

    def control(self, what: str, agents: tuple[int, ...] | None) -> None:
        """Do what somebody wants of the run."""
        if what in {"pause", "resume"}:
            self.book.paused = what == "pause"
            self.take(getattr(self.conductor, what)(self.now))
            if self.book.paused:
                self.gate.forgo()
            return
        if what == "cancel":
            self.book.cut = self.book.cut or agents is None
        if what in {"cancel", "skip"}:
            self.book.out.update(range(self.count) if agents is None else agents)
        self.take(getattr(self.conductor, what)(self.now, agents))

    def take(self, actions: Any) -> None:
        """Check and do what the conductor said."""
        for action in actions:
            match action:
                case AgentReady(_, agent):
                    self.book.ready(agent)
                case Launch(agent, number, _):
                    self.launch(agent, number)
                case Backoff(agent, until_s, _):
                    self.book.waits[agent] = until_s
                case Cancel(agent, why):
                    self.cancel(agent, why)
                case AgentEnded() | Skipped():
                    self.book.ended(action.agent, action.status, getattr(action, "error", None) or "")
                case Reopened(agent):
                    self.book.reopened(agent)
                case WakeAt(at_s):
                    self.alarm = at_s
                case Finished():
                    self.finish()
        self.seat.offer()

    def finish(self) -> None:
        """Give all back: the run is over."""
        assert not self.is_over, "finished twice"
        assert not self.left(), "finished with agents open"
        assert not self.running, "finished with requests under way"
        self.end_s, self.alarm = self.now, math.inf
        self.book.over()
        self.gate.leave()

    def launch(self, agent: int, number: int) -> None:
        """Check a launch; the request leaves at this same time, unless it is cancelled before."""
        assert agent not in self.running, "twice at once"
        self.running[agent] = number, ""
        self.launches.append((self.now, agent))
        self.book.launched(agent, number)
        self.world.book.launched(self, agent)
        self.later(0.0, "leave", (agent, number))

    def cancel(self, agent: int, why: str) -> None:
        """Stop a request, or keep it from leaving."""
        assert agent in self.running, "cancelled without running"
        number, before = self.running[agent]
        self.running[agent] = number, before or why
        if why == "stopped":
            self.book.stopping.add(agent)
        sent = (agent, number) in self.sent
        self.later(WIRE_S if sent else 0.0, "gone" if sent else "unsent", (agent, number))

    def send(self, agent: int, number: int, one: Asked) -> None:
        """Let the server decide what comes of a request."""
        fate = one.fates[min(self.own[agent] + 1, len(one.fates)) - 1]
        self.sent.add((agent, number))
        denial = None if fate.startswith("429") else self.world.server.admit(one, self.world.now)  # that takes nothing
        if denial is not None:
            self.world.book.crossed(denial.limit)
            self.later(WIRE_S, f"limit {denial.retry_after_s}", (agent, number))
            return
        self.own[agent] += 1
        if fate not in PRODUCES | ANSWERS | {"hang"}:
            self.later(WIRE_S, fate, (agent, number))
            return
        self.later(one.takes_s * one.first, "begun", (agent, number))
        if fate != "hang":
            self.later(one.takes_s, fate, (agent, number))

    def readings(self, agent: int) -> Readings:
        """Return what the server says of its limits at this moment."""
        return self.world.server.readings(self.scene.asked[agent], self.world.now)

    def end(self, agent: int, what: str) -> None:
        """Report what came of an attempt, as the driver does."""
        one = self.scene.asked[agent]
        if what in PRODUCES | ANSWERS:
            self.world.server.made(one, self.world.now)
        del self.running[agent]
        if what in ANSWERS:
            self.settle(agent, one.input_tokens, one.output_tokens, bad=False)
            if what == "ok":
                self.book.answered(agent)
            if what == "capped":
                self.take(self.conductor.capped(agent, "the cap on turns", self.now))
            else:
                self.take((self.conductor.succeeded if what == "ok" else self.conductor.goes_on)(agent, self.now))
            return
        if what.startswith("limit "):
            error: Any = RateLimited("limit", retry_after_s=float(what.split()[1]))
        else:
            error = FAULTS[what]
        self.replied(getattr(error, "status", None))
        if isinstance(error, RateLimited):
            self.world.book.refused(one, error.retry_after_s)
            self.gate.refused(agent, error.retry_after_s, error.limit, self.now, self.readings(agent))
        bad: Blame = False
        if isinstance(error, (Overloaded, Unreachable, Truncated)):
            bad = Fault(what, reached=what != "nowhere")
        if what == "reset":
            self.settle(agent, None, None, bad=bad)
        else:
            self.settle(agent, *((one.input_tokens, one.output_tokens) if what in PRODUCES else (0, 0)), bad=bad)
        self.fail(agent, error)

    def replied(self, status: int | None) -> None:
        """Report a reply, or that there will be none. The gate wakes other runs, so the book has to know it first."""
        self.world.book.replied(status)
        self.gate.replied(status)

    def fail(self, agent: int, error: BaseException) -> None:
        """Report that an attempt failed."""
        failure = failure_of(error, self.scene.policy.max_attempts)
        self.book.failed(agent, failure)
        self.take(self.conductor.failed(agent, failure, self.now))

    def gone(self, agent: int, *, sent: bool) -> None:
        """Report that a cancelled request has ended, or that it never left."""
        _, why = self.running.pop(agent)
        if not sent:
            self.gate.turned_back()
            self.world.book.turned_back()
            self.settle(agent, 0, 0, bad=None)
        else:
            self.settle(agent, None, None, bad=None)
        if sent and why in {"late", "over"}:
            self.fail(agent, Late(1.0, of_run=why == "over"))
        else:
            self.take(self.conductor.cancelled(agent, self.now))

    def settle(self, agent: int, taken: int | None, made: int | None, *, bad: Blame) -> None:
        """Tell the gate and the book what a request used."""
        total = None if taken is None or made is None else taken + made
        self.book.settled(agent, total, bad=bad)
        self.world.book.ended(self.scene.asked[agent])
        self.gate.settle(
            agent,
            input_tokens=taken,
            output_tokens=made,
            total_tokens=total,
            read_tokens=None,
            cost_usd=None if total is None else total * USD,
            bad=bad,
            now=self.now,
        )
