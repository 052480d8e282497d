"""When to start and stop workers: a decision, without a clock or a process.

Dask's adaptive scaling counts tasks, and requests are none: it would stop a worker in the middle of its streams.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from agent_magic.declare.validation import check_integer, check_positive, must_be
from agent_magic.engine.policy import Policy

STREAMS_PER_KERNEL = 200
"""Streams of 50 events a second that one kernel reads with its loop less than 50 ms late (measured on one core)."""


def useful_workers(streams: int) -> int:
    """Return how many workers help with this many concurrent streams; 0 if none would."""
    return math.ceil(streams / STREAMS_PER_KERNEL) if streams > STREAMS_PER_KERNEL else 0


@dataclass(frozen=True, slots=True)
class Autoscale:
    """Automatic scaling of workers by the number of concurrent agents.

    A concurrent agent is a request under way. A worker takes up to `pool_size` of them; further ones wait. Removed
    workers finish their streams first.

    Args:
        min_agents: Minimum capacity in agents.
        max_agents: Maximum capacity.
        scale_up_percent: Above this percentage of use, capacity grows by `scale_up_step`.
        scale_down_percent: Below this percentage of use, capacity shrinks by `scale_down_step`, unless the rest would
            be used above `scale_up_percent`.
        scale_up_step: Growth in agents.
        scale_down_step: Shrinkage in agents.
        pool_size: Capacity of one worker.
        queue_size: Maximum waiting agents. Beyond it, capacity is `max_agents`, and further requests are told to come
            back later, as by an overloaded server.
        max_retries: Retries per request, for `policy`.
        timeout_s: Seconds per agent, for `policy`.
        interval_s: Seconds between two decisions.

    Raises:
        DeclarationError: A value is invalid.
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
        """Return the wanted capacity in agents.

        Args:
            agents: The capacity now.
            streams: Requests under way.
            waiting: Waiting requests.
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
        """Return the nearest allowed capacity.

        Args:
            agents: A number of agents.
        """
        return min(self.max_agents, max(self.min_agents, agents))

    def workers(self, agents: int) -> int:
        """Return the number of workers for this many agents.

        Args:
            agents: A number of agents.
        """
        return math.ceil(agents / self.pool_size)

    @property
    def room(self) -> int:
        """Total request slots at the maximum number of workers."""
        return self.workers(self.max_agents) * self.pool_size

    @property
    def policy(self) -> Policy:
        """The policy of a run with these options: concurrency, attempts and timeout."""
        return Policy(self.max_agents, max_attempts=1 + self.max_retries, timeout_s=self.timeout_s)
