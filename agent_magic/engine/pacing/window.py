"""What may leave where no limit of requests is announced, or a lower one is enforced than is announced."""

from __future__ import annotations

from typing import Final

from agent_magic.engine.admission.key import PATIENCE_S
from agent_magic.engine.admission.room import Hold

FIRST_WINDOW: Final = 8
"""Requests under way after a first reply that told no limit; while there is none it is two, then ever more up to this.
"""
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
HASTE: Final = 30.0
"""How much faster those seconds pass once refusals contradict each other."""
MOST_MORE: Final = 8.0
"""How many times the inferred limit is tried at most before it is refused again."""
SURER: Final = 0.2
"""How much slower they pass again with each refusal that agrees with the one before."""
APART: Final = 1.1
"""Rates are of one limit if they differ by no more than this factor, and two requests."""
ALIKE: Final = 3
"""So many contradictions in a row that agree with each other are a limit that was lowered."""
STORM: Final = 0.06
"""Where more of the requests are refused, and more than two, no refusal is taken for a stray one."""
LESS: Final = 0.8
SHORT_S: Final = 1.0
LONG_S: Final = 10.0
"""In a shorter time too little passes to say much, and in a longer one it is not sure that somebody always pressed."""


class Window:
    """Finds out how much may pass where nobody says.

    Before the first refusal it bounds what is under way, ever less. The refusal then shows the limit: between two of
    them as much has passed as flows in, for the server's bucket was empty at both. What flows in is counted by requests
    that were let in, or that were answered if that is more: output is paid for when it is made.

    Some refusals are of no limit: a proxy is short of something, or a fault is injected. A limit lets the same pass
    between any two of its refusals, chance does not. So a refusal after less has passed than between earlier ones
    contradicts them: it lowers nothing, and the limit that was inferred is tried for more at once. The same goes for
    one where limits are announced and have room, until some agree: with each other, or with what is announced, which
    may be enforced over a shorter time.

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
        self._seen = self._stray = 0.0  # what passed between refusals: of a limit, and of the last one of none
        self._alike = self._turned = self._passed = 0
        self._sent = self._answered = 0
        self._held_s: float | None = None

    @property
    def doubted(self) -> bool:
        """Whether refusals contradict the inferred limit."""
        return self._speed == HASTE

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
        size = min(self.size, 2 ** (1 + (now - self._until_s) / DOUBLE_S)) if self.quiet else self.size
        self._full, self._asked_s = under_way >= size, now
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
        self.rate = self._base * min(1 + PROBE * self._tried_s**2, MOST_MORE)
        return True

    def answered(self) -> None:
        """Count an answer."""
        self._answered += 1

    def refused(self, *, explained: bool) -> None:
        """Take a request back that was not let in."""
        self._sent = self._sent - 1 if explained else 0
        self._turned += not explained

    def infer(
        self, lately: float, owed_s: float, now: float, *, ramp: bool, odd: bool = False, announced: float = 0.0
    ) -> None:
        """Infer the limit from the first refusal of an episode that nothing announced explains.

        Args:
            lately: How many requests left of late, per second: more than the limit, if there was no refusal before.
            owed_s: How long all that flows in is owed already.
            now: The time.
            ramp: Whether the server said that the load grew too fast.
            odd: Whether limits are announced, and it is of none of them: it may come from somebody else, or by chance.
            announced: The limit of requests that is announced, per second; 0 is none.
        """
        then_s, self._then_s = self._then_s, now + owed_s
        past_s = max(self._then_s - then_s, 0.1)
        if self.rate:
            is_sure = SHORT_S <= past_s - owed_s <= LONG_S
            self._base = self._between(past_s, odd=odd, announced=announced, is_sure=is_sure)
        else:
            self._base, self._speed = lately, HASTE if odd else 1.0
        if ramp:
            self._speed = RAMP
        self._tried_s, self._answered = 0.0, 0
        self.rate = self._base

    def _between(self, past_s: float, *, odd: bool, announced: float, is_sure: bool) -> float:
        """Return the limit that the time between two refusals shows, or the one before if they contradict."""
        passed = max(self._sent - 1, 1)
        rate = max(passed, self._answered) / past_s
        is_storm = self._turned > 2 + STORM * self._passed
        self._turned, self._passed = 0, passed
        apart = APART + 2 / passed
        odd = odd and not _agree(rate, announced, apart)
        if not is_storm and past_s >= SHORT_S and self._is_stray(rate, apart, odd=odd):
            self._speed = HASTE if self._speed >= 1 else RAMP
            return self.rate
        if self._speed > 1 and rate < apart * self._seen:
            self._speed = max(1.0, SURER * self._speed)
        self._seen = passed / past_s  # not by answers: they may be of requests from before the refusal before
        return rate if is_sure else max(rate, LESS * self.rate)

    def _is_stray(self, rate: float, apart: float, *, odd: bool) -> bool:
        """Tell whether a refusal contradicts those before it, or is of no limit that is known."""
        if not odd and rate * apart >= self._seen:
            self._alike = 0
            return False
        self._alike = self._alike + 1 if _agree(rate, self._stray, apart) else 1
        self._stray = rate
        return self._alike < ALIKE

    def recall(self, size: float) -> None:
        """Go on from what was learned earlier: a reply had come."""
        self.size, self.quiet = size, False

    def recall_rate(self, rate: float) -> None:
        """Go on from a limit that was inferred earlier: it is tried whether there is more."""
        self.rate = self._base = rate


def _agree(rate: float, other: float, apart: float) -> bool:
    return max(rate, other) <= apart * min(rate, other)
