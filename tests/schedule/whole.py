"""The whole engine on a virtual clock: conductor, gate, pacer, budget, leaders and retries before a limited server.

It does what the live driver does, and keeps a book of its own of what has to hold at all times.
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
from agent_magic.schedule.actions import Backoff, Cancel, Ended, Finished, Launch, Ready, Reopened, WakeAt
from agent_magic.schedule.budget import Budget, Worst
from agent_magic.schedule.conductor import Conductor
from agent_magic.schedule.limits import Limits as Told
from agent_magic.schedule.limits import class_of
from agent_magic.schedule.pacer import Pacer
from agent_magic.schedule.policy import Policy
from agent_magic.schedule.prefix import PATIENCE_S, Prefixes
from agent_magic.schedule.retry import failure_of
from agent_magic.schedule.room import Gate, Need
from agent_magic.simulator.quota import Limit, Limits, Pool

EPOCH_S = 1_790_000_000.37
WIRE_S = 1 / 256
UNLIMITED = 1e9
LONGEST_RUN_S = 1e6
MOST_STEPS = 1_000
"""More at one moment are a circle."""
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
        controls: (time, what, agents or None): `cancel`, `skip`, `retry`, `pause`, `resume`.
    """

    parents: tuple[tuple[int, ...], ...]
    asked: tuple[Asked, ...]
    policy: Policy = field(default_factory=lambda: Policy(seed=1))
    limits: tuple[float, float, float] | None = None
    burst_s: float = 1.0
    told: bool = False
    controls: tuple[tuple[float, str, tuple[int, ...] | None], ...] = ()


class Whole:
    """Runs a scene to its end, and checks every step.

    Attributes:
        status: The last status by agent.
        used: Tokens that were billed, by agent.
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
        self.tries, self.own = Counter[int](), Counter[int]()
        self.status: dict[int, str] = {}
        self.used, self.spent_tokens = Counter[int](), 0
        self.waits: dict[int, float] = {}
        self.out: set[int] = set()
        self.paused = self.cut = False
        self.launches: list[tuple[float, int]] = []
        self.refusals, self.reopened = 0, False
        self.leading: dict[str, tuple[int, float]] = {}
        self.warm, self.useless = set[str](), set[str]()
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
        )
        timeouts = [one.timeout_s for one in scene.asked]
        self.conductor = Conductor(dag, policy, timeouts_s=timeouts, room=self.gate)

    def need(self, agent: int) -> Need:
        """Say what an agent's request will use."""
        one = self.scene.asked[agent]
        return Need(one.model, one.input_tokens, int(one.output_tokens * one.guess), Worst(0.0, one.worst_tokens))

    def run(self) -> Whole:
        """Turn until the run is over."""
        for at_s, what, agents in self.scene.controls:
            self.later(at_s, what, agents)
        self.take(self.conductor.start(0.0))
        steps, before_s = 0, -1.0
        while self.end_s < 0 or self.running:
            steps, before_s = steps + 1 if self.now == before_s else 0, self.now
            assert steps < MOST_STEPS, f"it goes in circles at {self.now}"
            assert self.now < LONGEST_RUN_S, "it never ends"
            if self.heap and self.heap[0][0] <= self.alarm:
                self.now, _, what, who = heapq.heappop(self.heap)
                self.happen(what, who)
            else:
                assert self.alarm < math.inf, f"nothing will ever happen again, and {self.left()} are open"
                self.now, self.alarm = max(self.now, self.alarm), math.inf
                self.take(self.conductor.wake(self.now))
        assert self.count == len(self.status)
        return self

    def left(self) -> list[int]:
        """The agents without a last status."""
        return [agent for agent in range(self.count) if agent not in self.status]

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
            self.gate.heard(agent, self.headers(agent), self.now)
            self.take(self.conductor.room_changed(self.now))
            self.gate.began(agent)
            self.begun(agent)
            self.take(self.conductor.room_changed(self.now))
        elif what == "gone":
            self.gone(agent)
        elif not self.running[agent][1]:
            self.end(agent, what)

    def control(self, what: str, agents: tuple[int, ...] | None) -> None:
        """Do what somebody wants of the run."""
        if what in {"pause", "resume"}:
            self.paused = what == "pause"
            self.take(getattr(self.conductor, what)(self.now))
            return
        if what == "cancel":
            self.cut = self.cut or agents is None
        if what in {"cancel", "skip"}:
            self.out.update(range(self.count) if agents is None else agents)
        self.take(getattr(self.conductor, what)(self.now, agents))

    def take(self, actions: Any) -> None:
        """Check and do what the conductor said."""
        for action in actions:
            match action:
                case Ready(agent):
                    assert agent not in self.status
                    assert all(self.status.get(one) == "succeeded" for one in self.dag.parents[agent])
                case Launch(agent, number, _):
                    self.launch(agent, number)
                case Backoff(agent, until_s, _):
                    self.waits[agent] = until_s
                case Cancel(agent, why):
                    assert agent in self.running, "cancelled without running"
                    number, before = self.running[agent]
                    self.running[agent] = number, before or why
                    self.later(self.now + WIRE_S, "gone", (agent, number))
                case Ended(agent, status):
                    assert agent not in self.status, "ended twice"
                    assert agent not in self.running, "ended while it runs"
                    self.status[agent] = status
                case Reopened(agent):
                    assert self.status.pop(agent) != "succeeded", "an answer was thrown away"
                    self.waits.pop(agent, None)
                    self.out.discard(agent)
                    self.reopened = True
                case WakeAt(at_s):
                    self.alarm = at_s
                case Finished():
                    assert self.end_s < 0, "finished twice"
                    assert not self.left(), "finished with agents open"
                    self.end_s = self.now
        assert len(self.running) == self.conductor.running <= self.slots, "more at once than allowed"

    def launch(self, agent: int, number: int) -> None:
        """Check a launch, and send the request."""
        one = self.scene.asked[agent]
        assert all(self.status.get(before) == "succeeded" for before in self.dag.parents[agent]), "before its parents"
        assert agent not in self.running, "twice at once"
        assert agent not in self.status, "after its end"
        assert not self.cut, "after the stop"
        assert agent not in self.out, "after it was taken out"
        assert not self.paused, "while paused"
        assert self.waits.pop(agent, 0.0) <= self.now, "before its wait was over"
        assert number == self.tries[agent] + 1, "attempts count on"
        if self.scene.policy.schedule == "layers" and not self.reopened:  # a layer that has opened stays open
            mine = self.dag.layer[agent]
            assert all(self.dag.layer[other] == mine for other in self.running), "two layers at once"
        self.tries[agent] = number
        self.running[agent] = number, ""
        self.launches.append((self.now, agent))
        if self.scene.policy.budget_tokens is not None:
            held = sum(self.scene.asked[other].worst_tokens for other in self.running)
            assert self.spent_tokens + held <= self.scene.policy.budget_tokens, "the budget could be crossed"
        if one.group is not None:
            self.follow(agent, one.group)
        self.send(agent, number, one)

    def follow(self, agent: int, group: str) -> None:
        """Check that nobody overtakes who warms the cache of his group."""
        leader, led_s = self.leading.get(group, (agent, -math.inf))
        if leader in self.running and leader != agent and group not in self.warm | self.useless:
            assert self.now - led_s >= PATIENCE_S, "before its leader's answer began"
        elif group not in self.warm:
            self.leading[group] = agent, self.now

    def begun(self, agent: int) -> None:
        """Write down that the cache of a group is warm."""
        group = self.scene.asked[agent].group
        if group is not None:
            self.warm.add(group)

    def send(self, agent: int, number: int, one: Asked) -> None:
        """Let the server decide what comes of a request."""
        pool = self.pool(one.model)
        denial = None if pool is None else pool.admit(one.input_tokens, self.now)
        if denial is not None:
            self.refusals += 1
            self.later(self.now + WIRE_S, f"limit {denial.retry_after_s}", (agent, number))
            return
        self.own[agent] += 1
        fate = one.fates[min(self.own[agent], len(one.fates)) - 1]
        if fate not in PRODUCES | {"ok", "hang"}:
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
        if what == "ok" or what in PRODUCES:
            pool = self.pool(one.model)
            if pool is not None:
                pool.output_tokens.take(one.output_tokens, self.now)
        del self.running[agent]
        if what == "ok":
            self.settle(agent, one.input_tokens, one.output_tokens)
            self.take(self.conductor.succeeded(agent, self.now))
            return
        if what.startswith("limit "):
            error: Any = RateLimited("limit", retry_after_s=float(what.split()[1]))
        else:
            error = FAULTS[what]
        if isinstance(error, RateLimited):
            self.gate.refused(agent, error.retry_after_s, error.limit, self.headers(agent), self.now)
        if what == "reset":
            self.settle(agent, None, None)
        else:
            self.settle(agent, *((one.input_tokens, one.output_tokens) if what in PRODUCES else (0, 0)))
        self.take(self.conductor.failed(agent, failure_of(error, self.scene.policy.max_attempts), self.now))

    def gone(self, agent: int) -> None:
        """Report that a cancelled request has ended."""
        _, why = self.running.pop(agent)
        self.settle(agent, None, None)
        if why in {"late", "over"}:
            failure = failure_of(Late(1.0, of_run=why == "over"), self.scene.policy.max_attempts)
            self.take(self.conductor.failed(agent, failure, self.now))
        else:
            self.take(self.conductor.cancelled(agent, self.now))

    def settle(self, agent: int, taken: int | None, made: int | None) -> None:
        """Tell the gate what a request used, and write it down. What is unknown may have been all of it."""
        one = self.scene.asked[agent]
        total = None if taken is None or made is None else taken + made
        self.used[agent] += one.worst_tokens if total is None else total
        self.spent_tokens += one.worst_tokens if total is None else total
        self.gate.settle(
            agent,
            input_tokens=taken,
            output_tokens=made,
            total_tokens=total,
            read_tokens=None,
            cost_usd=0.0,
            now=self.now,
        )
