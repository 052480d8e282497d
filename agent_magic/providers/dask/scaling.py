"""When to start workers and when to let some go: a decision, without a clock or a process.

Dask's own adaptive scaling counts tasks, and requests are none: it would stop a worker in the middle of its streams.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from agent_magic.declare.validation import check_integer, check_positive, must_be
from agent_magic.engine.policy import Policy

STREAMS_PER_KERNEL = 200
"""So many streams of 50 events a second one kernel reads with its loop less than 50 ms late (measured on one core)."""


def useful_workers(streams: int) -> int:
    """Return how many workers help with so many streams at once; 0 where they would only add ways to fail."""
    return math.ceil(streams / STREAMS_PER_KERNEL) if streams > STREAMS_PER_KERNEL else 0


@dataclass(frozen=True, slots=True)
class Autoscale:
    """How many agents at once there should be room for, and so how many workers.

    An agent at once is a request under way. A worker has room for `pool_size` of them and takes no more: what exceeds
    all rooms waits. Workers that are let go finish their streams first.

    Args:
        min_agents: There is room for so many, always.
        max_agents: There is never room for more.
        scale_up_percent: Of the room in use; above it `scale_up_step` more get room.
        scale_down_percent: Of the room in use; below it `scale_down_step` fewer have room, unless `scale_up_percent` of
            what is left would be in use.
        scale_up_step: How many more get room at a time.
        scale_down_step: How many fewer have room at a time.
        pool_size: How many a worker has room for.
        queue_size: How many may wait. Where more do, there is room for `max_agents` at once, and what comes beyond
            that is told to come back later, as by an overloaded server.
        max_retries: How often a request is repeated: of `policy`.
        timeout_s: Seconds that an agent may take: of `policy`.
        interval_s: Seconds between two decisions.

    Raises:
        DeclarationError: A value is not what it must be.
    """

    min_agents: int = 10
    max_agents: int = 100
    scale_up_percent: float = field(default=80.0, kw_only=True)
    scale_down_percent: float = field(default=20.0, kw_only=True)
    scale_up_step: int = field(default=10, kw_only=True)
    scale_down_step: int = field(default=5, kw_only=True)
    pool_size: int = field(default=25, kw_only=True)
    queue_size: int = field(default=1000, kw_only=True)
    max_retries: int = field(default=3, kw_only=True)
    timeout_s: float = field(default=30.0, kw_only=True)
    interval_s: float = field(default=30.0, kw_only=True)

    def __post_init__(self) -> None:
        counts = "min_agents max_agents scale_up_step scale_down_step pool_size queue_size max_retries"
        for option in counts.split():
            check_integer(option, getattr(self, option))
        for option in ("scale_up_percent", "scale_down_percent", "timeout_s", "interval_s"):
            check_positive(option, getattr(self, option))
        if self.max_agents < self.min_agents:
            raise must_be("max_agents", f"at least min_agents={self.min_agents}", self.max_agents)
        if self.scale_up_percent <= self.scale_down_percent:
            given, least = self.scale_up_percent, self.scale_down_percent
            raise must_be("scale_up_percent", f"above scale_down_percent={least:g}", given)

    def decide(self, agents: int, streams: int, waiting: int = 0) -> int:
        """Return how many agents there should be room for from now on.

        Args:
            agents: How many there is room for now.
            streams: How many requests are under way.
            waiting: How many wait for room.
        """
        used = streams + waiting
        if waiting > self.queue_size:
            agents = self.max_agents
        elif used * 100 > self.scale_up_percent * agents:
            agents += self.scale_up_step
        elif used * 100 < self.scale_down_percent * agents:
            enough = math.ceil(used * 100 / min(100.0, self.scale_up_percent))  # with less it would be scaled up again
            agents = max(agents - self.scale_down_step, min(agents, enough))
        return self.within(agents)

    def within(self, agents: int) -> int:
        """Return the number of agents next to this one that there may be room for.

        Args:
            agents: How many.
        """
        return min(self.max_agents, max(self.min_agents, agents))

    def workers(self, agents: int) -> int:
        """Return how many workers have room for so many agents.

        Args:
            agents: How many.
        """
        return math.ceil(agents / self.pool_size)

    @property
    def room(self) -> int:
        """How many requests all workers take at once when there are most of them."""
        return self.workers(self.max_agents) * self.pool_size

    @property
    def policy(self) -> Policy:
        """The policy of a run with these options: concurrency, attempts and timeout."""
        return Policy(self.max_agents, max_attempts=1 + self.max_retries, timeout_s=self.timeout_s)
