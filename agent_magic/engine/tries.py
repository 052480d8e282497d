"""How often agents have been tried, which tries count, and when the next one may come."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from agent_magic.engine.retry import backoff_s

if TYPE_CHECKING:
    from agent_magic.engine.policy import Policy
    from agent_magic.engine.retry import Failure


class Tries:
    """Counts the attempts of each agent.

    Args:
        count: How many agents there are.
        policy: How many attempts an agent has, and the seed of the jitter.
        seed: That where the policy names none.
    """

    def __init__(self, count: int, policy: Policy, seed: int | None) -> None:
        self._most = policy.max_attempts
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
        """Take in that the last one brought a part of the answer: it uses up none of the agent's attempts."""
        self._free[agent] = self._free.get(agent, 0) + 1
        self._turned.add(agent)
        self.until_s.pop(agent, None)

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
            return f"{failure.why} (the next try would come in {until_s - now:.0f} s, after the deadline)"
        self.until_s[agent] = until_s
        self._turned.discard(agent)
        return until_s

    def _chance(self, agent: int) -> Random:
        """Return what the jitter of this attempt is drawn from: the same whoever else fails, and in which order."""
        return Random(None if self._seed is None else f"{self._seed} {agent} {self._made[agent]}")

    def left(self, agent: int, failure: Failure) -> int:
        """Return how many more attempts the agent has after such a failure."""
        return min(failure.attempts, self._most) - self.counted(agent)

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
