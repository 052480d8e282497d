"""The whole engine on a virtual clock: conductor, gate, pacer, budget, leaders and retries before a limited server.

It does what the live driver does. `whole_book` checks what has to hold at all times.
"""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agent_magic.declare.dag import build_dag
from agent_magic.errors import Late, Overloaded, RateLimited, Refused, Rejected, Truncated, Unreachable
from agent_magic.record.events import AgentEnded, AgentReady
from agent_magic.schedule.actions import Backoff, Cancel, Finished, Launch, Reopened, Skipped, WakeAt
from agent_magic.schedule.breaker import Breakers
from agent_magic.schedule.budget import Budget, Worst
from agent_magic.schedule.conductor import Conductor
from agent_magic.schedule.key import Key
from agent_magic.schedule.limits import Limits as Told
from agent_magic.schedule.limits import class_of
from agent_magic.schedule.pacer import Pacer
from agent_magic.schedule.policy import Policy
from agent_magic.schedule.prefix import Prefixes
from agent_magic.schedule.retry import failure_of
from agent_magic.schedule.room import Gate, Need
from agent_magic.simulator.quota import Limit, Limits, Pool
from tests.schedule.whole_book import USD, WIRE_S, Book

EPOCH_S = 1_790_000_000.37
UNLIMITED = 1e9
LONGEST_RUN_S = 1e6
MOST_STEPS = 1_000
"""More at one moment are a circle."""
MOST_LAUNCHES, MOST_TURNS = 1_000, 20_000
FAULTS: dict[str, Any] = {
    "429": RateLimited("busy"),
    "429 after 3": RateLimited("busy", retry_after_s=3.0),
    "429 for good": RateLimited("spent", final=True),
    "529": Overloaded("full", status=529),
    "500 after 2": Overloaded("broken", status=500, retry_after_s=2.0),
    "reset": Unreachable("reset"),
    "cut": Truncated("cut"),
    "refusal": Refused("no"),
    "400": Rejected("wrong", status=400),
    "401": Rejected("key", status=401),
}
"""What can go wrong with an attempt, besides `hang`, which ends by a deadline only."""
ANSWERS = frozenset({"ok", "turn", "capped"})
"""An answer, one that goes on with another request, and one that is to have no more of them."""
PRODUCES = frozenset({"reset", "cut", "refusal"})
"""Faults of an answer that had begun. The others come at once, and cost nothing."""


@dataclass(frozen=True)
class Asked:
    """One agent: what its requests take, and what comes of each in turn, the last one for ever."""

    takes_s: float = 1.0
    input_tokens: int = 100
    output_tokens: int = 100
    fates: tuple[str, ...] = ("ok",)
    model: str = "claude-haiku-5-5"
    group: str | None = None
    timeout_s: float = 100.0
    guess: float = 1.0
    first: float = 0.25

    @property
    def worst_tokens(self) -> int:
        """The most it can use."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class Scene:
    """What a run is made of.

    Attributes:
        parents: Per agent, the agents it waits for.
        asked: Per agent, its requests.
        limits: Requests, input and output tokens per minute; `None` is a server without limits or headers.
        burst_s: Seconds' worth of them that may pass at once.
        told: Whether the user has told the pacer the limits.
        key: Whether nobody has seen yet that the key is taken.
        began_s: When the run begins on the pacer's clock.
        controls: (time, what, agents or None): `cancel`, `skip`, `retry`, `pause`, `resume`.
    """

    parents: tuple[tuple[int, ...], ...]
    asked: tuple[Asked, ...]
    policy: Policy = field(default_factory=lambda: Policy(seed=1))
    limits: tuple[float, float, float] | None = None
    burst_s: float = 1.0
    told: bool = False
    controls: tuple[tuple[float, str, tuple[int, ...] | None], ...] = ()
    key: bool = False
    began_s: float = 0.0


class Whole:
    """Runs a scene to its end, and checks every step.

    Attributes:
        book: What has to hold.
        launches: (time, agent) of every request.
        end_s: When the run was over.
        refusals: How often the server's limits said no.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene, self.count = scene, len(scene.asked)
        dag = build_dag(scene.parents)
        assert dag is not None
        self.dag, policy = dag, scene.policy
        self.now, self.end_s, self.alarm, self.serial = 0.0, -1.0, math.inf, 0
        self.heap: list[tuple[float, int, str, Any]] = []
        self.running: dict[int, tuple[int, str]] = {}
        self.own = Counter[int]()
        self.launches: list[tuple[float, int]] = []
        self.refusals = 0
        self.pools: dict[str, Pool] = {}
        self.slots = 1 if policy.schedule == "sequential" else policy.concurrency
        told = None
        if scene.told and scene.limits is not None:
            rpm, itpm, otpm = scene.limits
            limits = Told(rpm, itpm, output_tokens=otpm, burst_s=scene.burst_s)
            told = {one.model: limits for one in scene.asked}
        capped = policy.budget_tokens is not None
        groups = [one.group for one in scene.asked]
        self.gate = Gate(
            [one.model for one in scene.asked],
            self.need,
            pacer=Pacer(told, seed=1),
            budget=Budget(None, policy.budget_tokens) if capped else None,
            prefixes=Prefixes(groups) if any(groups) else None,
            breakers=Breakers(policy.breaker_share, policy.max_usd_per_min),
            key=Key() if scene.key else None,
        )
        self.gate.began_s = scene.began_s
        timeouts = [one.timeout_s for one in scene.asked]
        self.conductor = Conductor(dag, policy, timeouts_s=timeouts, room=self.gate)
        self.book = Book(self)

    def need(self, agent: int) -> Need:
        """Say what an agent's request will use."""
        one = self.scene.asked[agent]
        worst = Worst(one.worst_tokens * USD, one.worst_tokens)
        return Need(one.model, one.input_tokens, int(one.output_tokens * one.guess), worst)

    def run(self) -> Whole:
        """Turn until the run is over."""
        for at_s, what, agents in self.scene.controls:
            self.later(at_s, what, agents)
        self.take(self.conductor.start(0.0))
        steps, turns, before_s = 0, 0, -1.0
        while self.end_s < 0 or self.running:
            steps, before_s = steps + 1 if self.now == before_s else 0, self.now
            turns += 1
            assert turns < MOST_TURNS, "it asks for ever"
            assert steps < MOST_STEPS, f"it goes in circles at {self.now}"
            assert self.now < LONGEST_RUN_S, "it never ends"
            assert len(self.launches) < MOST_LAUNCHES, "it tries for ever"
            if self.heap and self.heap[0][0] <= self.alarm:
                self.now, _, what, who = heapq.heappop(self.heap)
                self.happen(what, who)
            else:
                assert self.alarm < math.inf, f"nothing will ever happen again, and {self.left()} are open"
                self.now, self.alarm = max(self.now, self.alarm), math.inf
                self.take(self.conductor.wake(self.now))
        assert self.count == len(self.book.status)
        return self

    def left(self) -> list[int]:
        """The agents without a last status."""
        return [agent for agent in range(self.count) if agent not in self.book.status]

    def later(self, at_s: float, what: str, who: Any) -> None:
        """Have something happen."""
        self.serial += 1
        heapq.heappush(self.heap, (at_s, self.serial, what, who))

    def happen(self, what: str, who: Any) -> None:
        """Let something happen."""
        if what in {"cancel", "skip", "retry", "pause", "resume"}:
            if self.end_s < 0:
                self.control(what, who)
            return
        agent, number = who
        if self.running.get(agent, (0, ""))[0] != number:
            return
        if what == "begun":
            self.replied(200)
            self.gate.heard(agent, self.headers(agent), self.now)
            self.take(self.conductor.room_changed(self.now))
            self.gate.began(agent)
            self.book.begun(agent)
            self.take(self.conductor.room_changed(self.now))
        elif what == "gone":
            self.gone(agent)
        elif not self.running[agent][1]:
            self.end(agent, what)

    def control(self, what: str, agents: tuple[int, ...] | None) -> None:
        """Do what somebody wants of the run."""
        if what in {"pause", "resume"}:
            self.book.paused = what == "pause"
            self.take(getattr(self.conductor, what)(self.now))
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
                    assert agent in self.running, "cancelled without running"
                    number, before = self.running[agent]
                    self.running[agent] = number, before or why
                    self.later(self.now + WIRE_S, "gone", (agent, number))
                case AgentEnded() | Skipped():
                    self.book.ended(action.agent, action.status)
                case Reopened(agent):
                    self.book.reopened(agent)
                case WakeAt(at_s):
                    self.alarm = at_s
                case Finished():
                    assert self.end_s < 0, "finished twice"
                    assert not self.left(), "finished with agents open"
                    self.end_s = self.now
        self.book.passed()

    def launch(self, agent: int, number: int) -> None:
        """Check a launch, and send the request."""
        assert agent not in self.running, "twice at once"
        self.running[agent] = number, ""
        self.launches.append((self.now, agent))
        self.book.launched(agent, number)
        self.send(agent, number, self.scene.asked[agent])

    def send(self, agent: int, number: int, one: Asked) -> None:
        """Let the server decide what comes of a request."""
        fate = one.fates[min(self.own[agent] + 1, len(one.fates)) - 1]
        pool = None if fate.startswith("429") else self.pool(one.model)  # who is turned away takes nothing
        denial = None if pool is None else pool.admit(one.input_tokens, self.now)
        if denial is not None:
            self.refusals += 1
            self.book.crossed(denial.limit)
            self.later(self.now + WIRE_S, f"limit {denial.retry_after_s}", (agent, number))
            return
        self.own[agent] += 1
        if fate not in PRODUCES | ANSWERS | {"hang"}:
            self.later(self.now + WIRE_S, fate, (agent, number))
            return
        self.later(self.now + one.takes_s * one.first, "begun", (agent, number))
        if fate != "hang":
            self.later(self.now + one.takes_s, fate, (agent, number))

    def pool(self, model: str) -> Pool | None:
        """Return the server's buckets for a model."""
        if self.scene.limits is None:
            return None
        name = class_of(model)
        if name not in self.pools:
            self.pools[name] = Pool(Limits(*(Limit(each, self.scene.burst_s) for each in self.scene.limits)), 0.0)
        return self.pools[name]

    def headers(self, agent: int) -> dict[str, str]:
        """Return what the server says of its limits at this moment."""
        pool = self.pool(self.scene.asked[agent].model)
        return {} if pool is None else pool.headers(self.now, datetime.fromtimestamp(EPOCH_S + self.now, UTC))

    def end(self, agent: int, what: str) -> None:
        """Report what came of an attempt, as the driver does."""
        one = self.scene.asked[agent]
        if what in PRODUCES | ANSWERS:
            pool = self.pool(one.model)
            if pool is not None:
                pool.output_tokens.take(one.output_tokens, self.now)
        del self.running[agent]
        if what in ANSWERS:
            self.settle(agent, one.input_tokens, one.output_tokens, bad=False)
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
            self.book.refused(agent, error.retry_after_s)
            self.gate.refused(agent, error.retry_after_s, error.limit, self.headers(agent), self.now)
        bad = isinstance(error, (Overloaded, Unreachable, Truncated))
        if what == "reset":
            self.settle(agent, None, None, bad=bad)
        else:
            self.settle(agent, *((one.input_tokens, one.output_tokens) if what in PRODUCES else (0, 0)), bad=bad)
        self.fail(agent, error)

    def replied(self, status: int | None) -> None:
        """Report a reply, or that there will be none."""
        self.gate.replied(status)
        self.book.replied(status)

    def fail(self, agent: int, error: BaseException) -> None:
        """Report that an attempt failed."""
        failure = failure_of(error, self.scene.policy.max_attempts)
        self.book.failed(agent, counts=failure.counts)
        self.take(self.conductor.failed(agent, failure, self.now))

    def gone(self, agent: int) -> None:
        """Report that a cancelled request has ended."""
        _, why = self.running.pop(agent)
        self.settle(agent, None, None, bad=None)
        if why in {"late", "over"}:
            self.fail(agent, Late(1.0, of_run=why == "over"))
        else:
            self.take(self.conductor.cancelled(agent, self.now))

    def settle(self, agent: int, taken: int | None, made: int | None, *, bad: bool | None) -> None:
        """Tell the gate and the book what a request used."""
        total = None if taken is None or made is None else taken + made
        self.book.settled(agent, total, bad=bad)
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
