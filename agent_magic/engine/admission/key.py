"""One request tests the API key before the others are sent, since a refused key fails every agent.

The first request of a client goes alone until its reply begins. This costs the first run of a session the time to the
first headers, at most `PATIENCE_S`.
"""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 0.5
"""Maximum seconds the others wait. A refusal comes at once; only an answer takes longer."""
REFUSED: Final = frozenset({401, 402, 403})


class Key:
    """State of one client's key, shared by its runs.

    Attributes:
        accepted: True once a reply has shown that the key is valid.
    """

    def __init__(self) -> None:
        self.accepted = False
        self._until_s: float | None = None

    def wait_until_s(self, now: float) -> float | None:
        """Return until when others wait for the first request; `None` to send one."""
        return self._until_s if self._until_s is not None and now < self._until_s else None

    def left(self, now: float) -> None:
        """Record that a request was sent."""
        if self._until_s is None:
            self._until_s = now + PATIENCE_S

    def turned_back(self) -> None:
        """Record that the first request was not sent, since its answer was available. Another one goes first."""
        if not self.accepted:
            self._until_s = None

    def replied(self, status: int | None) -> None:
        """Record a reply, or the end of a request without one."""
        if status in REFUSED:
            self._until_s = None  # the next one, of another run, is sent first again
        else:
            self.accepted = True
