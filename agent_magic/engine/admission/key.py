"""One request tests the API key before the others are sent, since a refused key fails every agent.

The others wait until its reply begins, at most `PATIENCE_S`.
"""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 0.5
"""A refusal comes at once; only an answer takes longer."""
REFUSED: Final = frozenset({401, 402, 403})


class Key:
    """State of one client's key, shared by its runs."""

    def __init__(self) -> None:
        self.accepted = False
        self._until_s: float | None = None

    def wait_until_s(self, now: float) -> float | None:
        return self._until_s if self._until_s is not None and now < self._until_s else None

    def left(self, now: float) -> None:
        if self._until_s is None:
            self._until_s = now + PATIENCE_S

    def turned_back(self) -> None:
        """Let another request go first: this one was not sent, since its answer was available."""
        if not self.accepted:
            self._until_s = None

    def replied(self, status: int | None) -> None:
        if status in REFUSED:
            self._until_s = None  # the next one, of another run, is sent first again
        else:
            self.accepted = True
