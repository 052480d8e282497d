"""Attempts: how many an agent has left, when the next one may come, and how many may be under way at once."""

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
    """Counts the attempts of each agent.

    Args:
        count: How many agents there are.
        policy: How many attempts an agent has, and the seed of the jitter.
        seed: That where the policy names none.
        own: The agents whose failures alone say how many attempts they have: tasks.
    """

    def __init__(self, count: int, policy: Policy, seed: int | None, own: Container[int] = frozenset()) -> None:
        self._most, self._own = policy.max_attempts, own
        self._seed = seed if policy.seed is None else policy.seed
        self._made = [0] * count
        self._free: dict[int, int] = {}
        self._turned: set[int] = set()
        self.until_s: dict[int, float] = {}

    def launched(self, agent: int) -> int:
        """Count one more, and return its number from 1."""
        number = self._made[agent] = self._made[agent] + 1
        return number

    def made(self, agent: int) -> int:
        """Return how many there were."""
        return self._made[agent]

    def turned(self, agent: int) -> None:
        """Record that the last one brought a part of the answer: it uses up none of the agent's attempts."""
        self._free[agent] = self._free.get(agent, 0) + 1
        self._turned.add(agent)
        self.until_s.pop(agent, None)

    def moved(self, agent: int) -> None:
        """Give the agent all of its attempts again, by another model, at once."""
        self.forget(agent)
        self._turned.add(agent)

    def has_turned(self, agent: int) -> bool:
        """Tell whether the agent's next attempt goes on from its last."""
        return agent in self._turned

    def next_s(self, agent: int, failure: Failure, now: float, deadline_s: float | None) -> float | str:
        """Say when a failed agent may be tried again, or why it is not."""
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
        """Return what the jitter of this attempt is drawn from: the same whoever else fails, and in which order."""
        return Random(None if self._seed is None else f"{self._seed} {agent} {self._made[agent]}")

    def left(self, agent: int, failure: Failure) -> int:
        """Return how many more attempts the agent has after such a failure."""
        most = failure.attempts if agent in self._own else min(failure.attempts, self._most)
        return most - self.counted(agent)

    def counted(self, agent: int) -> int:
        """Return how many of its attempts are used up."""
        return self._made[agent] - self._free.get(agent, 0)

    def held_by(self, agent: int, reason: str) -> str:
        """Say what an agent waited for that goes not for the first time, its line having waited for `reason`."""
        if agent in self._turned:
            return reason
        return "backoff" if agent in self.until_s else reason or "retry"

    def forget(self, agent: int) -> None:
        """Give the agent all of its attempts again; their numbers go on."""
        self._free[agent] = self._made[agent]
        self.until_s.pop(agent, None)
        self._turned.discard(agent)


LATEST: Final = 8
"""So many attempts are looked at."""
LEAST: Final = 3
"""Of fewer nothing is concluded."""
SHARE: Final = 0.5


class Slots:
    """How many requests of a run may be under way: all the policy allows, until failures say that this is too many.

    Agents are tried again at full concurrency first. Where an agent has one try left, and half of the latest attempts
    have failed of what a crowd can cause (overload, time-outs, lost connections), requests go one at a time. Once all
    such last tries are through, each answer doubles how many may be under way, up to the full number again. A 429 is
    the pacer's business and counts for nothing here.

    Args:
        most: The full number.

    Attributes:
        width: How many may be under way now.
        last_tries: The agents with one try left that failed in a crowd.
    """

    def __init__(self, most: int) -> None:
        self._most = self.width = most
        self._latest: deque[bool] = deque(maxlen=LATEST)
        self.last_tries: set[int] = set()

    def answered(self, agent: int) -> None:
        """Record an agent's answer."""
        self._latest.append(False)
        if self.width < self._most:
            self.last_tries.discard(agent)
            if not self.last_tries:
                self.width = min(self._most, self.width * 2)

    def ended(self, agent: int) -> None:
        """Record that an agent has no more tries to come."""
        self.last_tries.discard(agent)

    def failed(self, agent: int, failure: Failure, *, tries_left: int) -> None:
        """Record a failure.

        Args:
            agent: The agent.
            failure: How its attempt failed.
            tries_left: How many more it has.
        """
        self._latest.append(failure.crowded)
        if not failure.crowded or tries_left != 1:
            return
        if self.width > 1:
            if len(self._latest) < LEAST or sum(self._latest) < SHARE * len(self._latest):
                return
            self.width = 1
        self.last_tries.add(agent)
