"""How many requests of a run may be under way: all that the policy allows, until failures say that this is the trouble.

Agents are tried again at full concurrency first. Where an agent has one try left, and half of the latest attempts have
failed of what a crowd can cause (overload, time-outs, lost connections), requests go one at a time. Once all such last
tries are through, each answer doubles how many may be under way, up to the full number again. A 429 is the pacer's
business and counts for nothing here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent_magic.engine.retry import Failure

LATEST: Final = 8
"""So many attempts are looked at."""
LEAST: Final = 3
"""Of fewer nothing is concluded."""
SHARE: Final = 0.5


class Slots:
    """Keeps count of how many may be under way.

    Args:
        most: The full number.

    Attributes:
        width: How many may be under way now.
    """

    def __init__(self, most: int) -> None:
        self._most = self.width = most
        self._latest: deque[bool] = deque(maxlen=LATEST)
        self._last_try: set[int] = set()

    def answered(self, agent: int) -> None:
        """Take in an agent's answer."""
        self._latest.append(False)
        if self.width < self._most:
            self._last_try.discard(agent)
            if not self._last_try:
                self.width = min(self._most, self.width * 2)

    def ended(self, agent: int) -> None:
        """Take in that an agent has no more tries to come."""
        if self._last_try:
            self._last_try.discard(agent)

    def failed(self, agent: int, failure: Failure, *, tries_left: int) -> None:
        """Take in a failure.

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
        self._last_try.add(agent)
