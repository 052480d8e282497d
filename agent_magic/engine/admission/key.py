"""Whether the API takes the key: until that is seen, one request goes ahead of the others.

A key that is refused is refused for every agent. So the first request of a client leaves alone, until its reply begins;
agents that would have left with it would have been refused as well. It costs the first run of a session the time to the
first reply's headers, at most `PATIENCE_S`, and later runs nothing. How many leave while no limit is known is another
matter; see `agent_magic.engine.pacing.window`.
"""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 0.5
"""How long the others wait. A refusal comes at once, only an answer may take longer."""
REFUSED: Final = frozenset({401, 402, 403})


class Key:
    """What is known of the key of one client. Shared by the runs that use the client.

    Attributes:
        accepted: Whether a reply has shown that the key is taken.
    """

    def __init__(self) -> None:
        self.accepted = False
        self._until_s: float | None = None

    def wait_until_s(self, now: float) -> float | None:
        """Say until when others wait for the first request; `None` lets one go."""
        return self._until_s if self._until_s is not None and now < self._until_s else None

    def left(self, now: float) -> None:
        """Record that a request left."""
        if self._until_s is None:
            self._until_s = now + PATIENCE_S

    def turned_back(self) -> None:
        """Record that the request that left was never sent: its answer was there already. Another one goes ahead."""
        if not self.accepted:
            self._until_s = None

    def replied(self, status: int | None) -> None:
        """Record a reply, or the end of a request without one."""
        if status in REFUSED:
            self._until_s = None  # the next one, of another run, goes ahead again
        else:
            self.accepted = True
