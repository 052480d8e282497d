"""Attempts per agent: how many are left, when the next may start, and how many may run at once."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Final

from agent_magic.declare.units import seconds
from agent_magic.engine.retry import backoff_s

if TYPE_CHECKING:
    from collections.abc import Container

    from agent_magic.engine.policy import Policy
    from agent_magic.engine.retry import Failure


class Tries:
    """Counts the attempts of each agent; of `own` ones, tasks, only the failures say how many they have."""

    def __init__(self, count: int, policy: Policy, seed: int | None, own: Container[int] = frozenset()) -> None:
        self._most, self._own = policy.max_attempts, own
        self._seed = seed if policy.seed is None else policy.seed
        self._made = [0] * count
        self._free: dict[int, int] = {}
        self._turned: set[int] = set()
        self.until_s: dict[int, float] = {}

    def launched(self, agent: int) -> int:
        number = self._made[agent] = self._made[agent] + 1
        return number

    def made(self, agent: int) -> int:
        return self._made[agent]

    def turned(self, agent: int) -> None:
        """Record that the last attempt was a turn, which uses up no attempt."""
        self._free[agent] = self._free.get(agent, 0) + 1
        self._turned.add(agent)
        self.until_s.pop(agent, None)

    def moved(self, agent: int) -> None:
        self.forget(agent)
        self._turned.add(agent)

    def has_turned(self, agent: int) -> bool:
        return agent in self._turned

    def next_s(self, agent: int, failure: Failure, now: float, deadline_s: float | None) -> float | str:
        """Return when a failed agent may be retried, or the reason it may not."""
        if not failure.counts:
            self._free[agent] = self._free.get(agent, 0) + 1
        if self.left(agent, failure) <= 0:
            return failure.why
        until_s = now + backoff_s(failure, self._made[agent], self._chance(agent))
        if deadline_s is not None and until_s >= deadline_s:
            return f"{failure.why} (the next try would come in {seconds(until_s - now)}, after the deadline)"
        self.until_s[agent] = until_s
        self._turned.discard(agent)
        return until_s

    def _chance(self, agent: int) -> Random:
        """Return the random source of this attempt's jitter, independent of other failures and their order."""
        return Random(None if self._seed is None else f"{self._seed} {agent} {self._made[agent]}")

    def left(self, agent: int, failure: Failure) -> int:
        most = failure.attempts if agent in self._own else min(failure.attempts, self._most)
        return most - self.counted(agent)

    def counted(self, agent: int) -> int:
        return self._made[agent] - self._free.get(agent, 0)

    def held_by(self, agent: int, reason: str) -> str:
        if agent in self._turned:
            return reason
        return "backoff" if agent in self.until_s else reason or "retry"

    def forget(self, agent: int) -> None:
        self._free[agent] = self._made[agent]
        self.until_s.pop(agent, None)
        self._turned.discard(agent)


LATEST: Final = 8
LEAST: Final = 3
SHARE: Final = 0.5


class Slots:
    """The concurrency of a run: the policy's, reduced when failures show that it is too high.

    When an agent has one attempt left and half of the latest attempts failed by overload (status, time-outs, lost
    connections), requests go one at a time. Once all such last attempts are over, each answer doubles the concurrency.
    The pacer handles 429s; they do not count here.
    """

    def __init__(self, most: int) -> None:
        self._most = self.width = most
        self._latest: deque[bool] = deque(maxlen=LATEST)
        self.last_tries: set[int] = set()

    def answered(self, agent: int) -> None:
        self._latest.append(False)
        if self.width < self._most:
            self.last_tries.discard(agent)
            if not self.last_tries:
                self.width = min(self._most, self.width * 2)

    def ended(self, agent: int) -> None:
        self.last_tries.discard(agent)

    def failed(self, agent: int, failure: Failure, *, tries_left: int) -> None:
        self._latest.append(failure.crowded)
        if not failure.crowded or tries_left != 1:
            return
        if self.width > 1:
            if len(self._latest) < LEAST or sum(self._latest) < SHARE * len(self._latest):
                return
            self.width = 1
        self.last_tries.add(agent)
