"""A client of the simulated server that sees the output bucket: what the best anybody could do is held against.

It knows the level at every moment, the capacity, the mean output and the mean latency from the start; what it does not
know is how long each answer will be. It sends while anything is left and less is under way than flows in meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import mean

from benchmarks.rate_world import Job, Result, World

LOOK_S = 0.02
AIM_S = 0.2
"""Seconds' worth of output that it aims to keep in the bucket: the best of 0.5, 0.2, 0, -0.5, -1, -2 and -4."""


class Oracle:
    """Sends its jobs in order, as many at once as the output limit bears."""

    def __init__(self, world: World, jobs: list[Job]) -> None:
        self.world, self.result = world, Result(left=len(jobs))
        self._jobs, self._bucket = deque(jobs), world.pool.output_tokens
        self._per_s = self._bucket.per_minute / 60
        self._mean = mean(job.output_tokens for job in jobs)
        tokens = sum(job.output_tokens for job in jobs)
        self._ahead_s = sum(job.output_tokens * job.latency_s for job in jobs) / tokens
        self._under_way = 0
        world.later(world.now, self._look)

    def _look(self) -> None:
        now = self.world.now
        while self._jobs and self._bucket.level(now) > LOOK_S * self._per_s and self._room(now) > self._mean / 2:
            self._under_way += 1
            self.world.request(self._jobs.popleft(), self)
        if self._jobs:
            self.world.later(now + LOOK_S, self._look)

    def _room(self, now: float) -> float:
        flows_in = self._per_s * (self._ahead_s - AIM_S)
        return self._bucket.level(now) + flows_in - self._under_way * self._mean

    def heard(self, job: Job, headers: Mapping[str, str]) -> None:
        """Take in that the response begins."""
        self.result.first_s = min(self.result.first_s, self.world.now)

    def done(self, job: Job) -> None:
        """Take in that the response is complete."""
        self._under_way -= 1
        self.result.left -= 1

    def refused(self, job: Job, headers: Mapping[str, str]) -> None:
        """Take in a 429."""
        self._under_way -= 1
        self.result.refused.append(self.world.now)
        self._jobs.appendleft(job)
