"""What may leave where no limit of requests is announced, or a lower one is enforced than is announced."""

from __future__ import annotations

from typing import Final

from agent_magic.engine.admission.key import PATIENCE_S
from agent_magic.engine.admission.room import Hold

FIRST_WINDOW: Final = 8
"""Requests under way while there is no reply, or a first one that told no limit."""
DOUBLE_S: Final = 0.2
"""The window doubles in this time. A refusal comes at once, only an answer takes longer: silence is good news."""
POLL_S: Final = 0.05
"""How often to look whether the window has room."""
PROBE: Final = 0.001
"""How much more of an inferred limit is tried after a second in which it held requests. It grows with the square: a
limit that is right costs a refusal every quarter of a minute, one that has become four times as high is found within
a minute."""
RAMP: Final = 0.5
"""How much slower those seconds pass once the server has said that the load grew too fast."""
LESS: Final = 0.8
SHORT_S: Final = 1.0
LONG_S: Final = 10.0
"""In a shorter time too little passes to say much, and in a longer one it is not sure that somebody always pressed."""


class Window:
    """Finds out how much may pass where nobody says.

    Before the first refusal it bounds what is under way, ever less. The refusal then shows the limit: between two of
    them as much has passed as flows in, for the server's bucket was empty at both. What flows in is counted by requests
    that were let in, or that were answered if that is more: output is paid for when it is made.

    Attributes:
        size: How many may be under way before the first refusal.
        quiet: Whether no reply has come yet.
        rate: The inferred limit, in requests per second; 0 is none.
    """

    def __init__(self) -> None:
        self.size, self.quiet = float(FIRST_WINDOW), True
        self._until_s = self._asked_s = 0.0
        self._full = False
        self.rate = self._base = self._tried_s = self._then_s = 0.0
        self._speed = 1.0
        self._sent = self._answered = 0
        self._held_s: float | None = None

    def hold(self, under_way: int, now: float) -> Hold | None:
        """Say what holds one more; `None` lets it go."""
        if self.quiet:
            if not under_way:
                self._until_s = self._asked_s = now + PATIENCE_S
                return None
            if now < self._until_s:
                return Hold("limits", self._until_s)
        if self._full:
            self.size *= 2 ** (min(now - self._asked_s, POLL_S) / DOUBLE_S)
        self._full, self._asked_s = under_way >= self.size, now
        return Hold("limits" if self.quiet else "slot", now + POLL_S) if self._full else None

    def held(self, now: float) -> None:
        """Record that the inferred limit holds a request."""
        if self._held_s is None:
            self._held_s = now

    def sent(self, now: float) -> bool:
        """Count a request that leaves. Tell whether the inferred limit has grown: requests were held by it."""
        self._sent += 1
        held_s, self._held_s = self._held_s, None
        if held_s is None or not self.rate:
            return False
        self._tried_s += (now - held_s) * self._speed
        self.rate = self._base * (1 + PROBE * self._tried_s**2)
        return True

    def answered(self) -> None:
        """Count an answer."""
        self._answered += 1

    def refused(self, *, explained: bool) -> None:
        """Take a request back that was not let in."""
        self._sent = self._sent - 1 if explained else 0

    def infer(self, lately: float, owed_s: float, now: float, *, ramp: bool) -> None:
        """Infer the limit from the first refusal of an episode that nothing announced explains.

        Args:
            lately: How many requests left of late, per second: more than the limit, if there was no refusal before.
            owed_s: How long all that flows in is owed already.
            now: The time.
            ramp: Whether the server said that the load grew too fast.
        """
        then_s, self._then_s = self._then_s, now + owed_s
        past_s = max(self._then_s - then_s, 0.1)
        rate = max(self._sent - 1, self._answered, 1) / past_s if self.rate else lately
        if self.rate and not SHORT_S <= past_s - owed_s <= LONG_S:
            rate = max(rate, LESS * self.rate)
        if ramp:
            self._speed = RAMP
        self._tried_s, self._answered = 0.0, 0
        self.rate = self._base = rate

    def recall(self, size: float) -> None:
        """Go on from what was learned earlier: a reply had come."""
        self.size, self.quiet = size, False

    def recall_rate(self, rate: float) -> None:
        """Go on from a limit that was inferred earlier: it is tried whether there is more."""
        self.rate = self._base = rate
