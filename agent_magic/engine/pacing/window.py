"""Limits of requests that are unannounced, or lower than announced."""

from __future__ import annotations

import math
from typing import Final

from agent_magic.engine.admission.key import PATIENCE_S
from agent_magic.engine.admission.room import Hold

FIRST_WINDOW: Final = 8
"""Requests under way after a first reply that told no limit; before it there are two."""
DOUBLE_S: Final = 0.2
"""The window doubles in this time: a refusal comes at once, so silence is good news."""
POLL_S: Final = 0.05
"""How often to look whether the window has room."""
SOONEST_S: Final = 15.0
EACH: Final = 75.0
LONGEST_S: Final = 120.0
"""Seconds and requests for which an inferred limit is kept before more is tried, and the maximum of both. So a right
limit costs one refusal in a hundred requests."""
PLENTY: Final = 100
"""Up to this many requests between two refusals, the limit is kept for twice the time between them."""
STEEP: Final = 4
"""More is tried with this power of the time: next to nothing until it is over, then ever more."""
SPARE_S: Final = 5.0
"""Seconds of inflow during a pause, which admit more requests before the next refusal."""
RAMP: Final = 2.0
"""How many times longer the limit is kept once the server has said that the load grew too fast."""
HASTE_S: Final = 3.0
"""How long it is kept where refusals come by chance."""
MOST_MORE: Final = 8.0
"""Maximum factor on the inferred limit before it is refused again."""
LESS: Final = 0.8
"""The most that it is lowered where requests did not press all the time."""
HELD: Final = 0.5
"""Share of the time with held requests from which they pressed all the time."""
ROOM: Final = 1.05
ROOM_S: Final = 0.02
"""Seconds of inflow beyond what was sent, from which there was room: requests overtake each other."""
CONTRADICT: Final = 2
"""Refusals that no limit explains, with none between them after more was tried, from which they are by chance."""
SHORT: Final = 0.8
"""Minimum share of the inflow that passes between two refusals of a limit; by chance it varies."""
STRAYS: Final = 0.04
GUESSED: Final = 25.0
"""Share of requests refused by chance, before this many are counted."""
MOST: Final = 0.2
"""Chance refuses no greater part."""
RARE: Final = 0.002
"""A smaller part is none."""
ENOUGH: Final = 10
"""Admitted requests before more than twice as much is tried."""
COUNTED: Final = 400.0
"""Counted requests, after which older ones weigh half."""
TOLERATED: Final = 2.5
MANY: Final = 3.0
"""Excess refusals over this multiple of chance that show a limit."""
PACE_S: Final = 0.5
"""How far back the pace of the first refusal is taken."""
CLOSED_S: Final = 8.0
"""A server that refuses all for longer than the first lets in no more meanwhile than in the minute before."""


class Window:
    """Finds an unannounced limit of requests.

    Between two refusals of a limit as much passes as flows in, since the server's bucket was empty at both. Inflow is
    counted by admitted requests, or by answers if they are more, since output is paid when it is produced.

    Refusals of a proxy or of chance come at any load. `has_room` keeps a bucket never fuller than the server's, so a
    refusal despite room, or long before as much has passed as the time before, speaks against the limit. After two of
    these, refusals are taken for chance, and more is tried at once. When more are refused than that explains (a
    cumulative sum), there is a limit too.
    """

    def __init__(self) -> None:
        self.size, self.quiet = float(FIRST_WINDOW), True
        self._until_s = self._asked_s = 0.0
        self._full = self._eased = False
        self.rate = self._base = 0.0
        self._keep_s, self._more = SOONEST_S, 0.0  # how long the limit is kept, and how much more is tried then
        self._tried_s = 0.0
        self._held_s: float | None = None
        self._then_s = self._paused_s = self._closed_s = 0.0  # the last refusal by the limit, and the pause after it
        self.passed = self._answered = 0  # since then
        self._since_s = self._limit_s = -1.0
        self._let_in = self._seen = 0
        self._pace = self._paced_s = 0.0
        self._low = self._level = self._level_s = 0.0  # a bucket that holds no more than the server's
        self.has_room = False
        self._strays = self._safe = 0.0  # refusals despite room, and requests
        self._excess = self._proved = 0.0
        self.doubted = False  # True if refusals contradict the inferred limit
        self._is_measured = self._is_by_answers = False

    @property
    def by_chance(self) -> bool:
        return self._strays >= CONTRADICT

    def hold(self, under_way: int, now: float) -> Hold | None:
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
        if self._held_s is None:
            self._held_s = now

    def sent(self, now: float) -> bool:
        """Count a sent request; return True if the inferred limit has grown, since it held requests."""
        self.passed += 1
        self._pace = self._pace * math.exp((self._paced_s - now) / PACE_S) + 1
        self._paced_s = now
        held_s, self._held_s = self._held_s, None
        if not self.rate:
            return False
        self._level = min(max(1.2, self._low), self._level + (now - self._level_s) * self._low)
        self._level_s = now
        self.has_room = self._level >= ROOM + ROOM_S * self._low
        self._level = max(0.0, self._level - 1)
        if held_s is None:
            return False
        self._tried_s += now - held_s
        most = 2.0 if self.doubted else MOST_MORE
        self.rate = self._base * min(1 + self._more * (self._tried_s / self._keep_s) ** STEEP, most)
        if self.doubted and self.rate >= most * self._base and self._let_in >= ENOUGH:
            self._base, self._tried_s, self._let_in = self.rate, 0.0, 0
        return True

    def let_in(self, *, had_room: bool) -> None:
        self._let_in += 1
        self._seen += 1
        if not self.by_chance:
            return
        self._safe += had_room
        if self._safe > COUNTED:
            self._safe, self._strays = self._safe / 2, self._strays / 2
        part = min((self._strays + STRAYS * GUESSED) / (self._safe + GUESSED), MOST)
        self._excess = max(0.0, self._excess - TOLERATED * part)
        if part < RARE:
            self._strays = self._safe = 0.0
            self.doubted = False

    def answered(self) -> None:
        self._answered += 1

    def take_back(self, sent_s: float) -> None:
        self.passed -= sent_s > self._since_s

    def eased(self) -> None:
        """Record that something else held requests since the last refusal, so they are no measure."""
        self._eased = True

    def refused(
        self,
        now: float,
        wait_s: float,
        *,
        had_room: bool,
        passed: int,
        first: bool,
        burst: int,
        announced: float = 0.0,
        ramp: bool = False,
    ) -> bool:
        """Record an unexplained refusal, and return whether it is of a limit.

        `passed` requests were sent since the last refusal of a limit, `burst` within the minute before the server began
        to refuse; `ramp` if it said that the load grew too fast.
        """
        if not first:
            return False
        if (had_room or self._is_short(now)) and not self._agrees(announced, now):
            self._count_stray()
            if had_room and not self.by_chance:
                return False
        elif not self.by_chance and self._tried_s >= self._keep_s:
            self._strays = 0.0
        if self.by_chance:
            if not self._excess:
                self._proved = self._strays
                self._then_s, self.passed, self._paused_s, self._closed_s = now, 0, 0.0, 0.0
                self._since_s = now
            self._excess += 1
            if self._excess < MANY:
                return False
            if self._seen < GUESSED:
                self._safe = self._proved = 0.0
            self._strays = self._proved
            self._many(passed - 1, now, wait_s)
        else:
            self._measure(passed - 1, now, wait_s, burst)
        if ramp:
            self._keep_s *= RAMP
        return True

    def _agrees(self, announced: float, now: float) -> bool:
        rate, passed = self.passed / max(now - self._then_s, 0.1), max(1, self.passed)
        apart = 1.1 + 2 / passed
        return max(rate, announced) <= apart * min(rate, announced)

    def _is_short(self, now: float) -> bool:
        """Return whether far less has passed than the limit lets in, if that was measured."""
        # A limit that was measured by answers lets answers in: of output, few requests may pass while many are
        # paid for.
        flows_in = self._base * (now - self._then_s)
        passed = max(self.passed + 1, self._answered) if self._is_by_answers else self.passed + 1
        return self._is_measured and not self.by_chance and passed < SHORT * flows_in

    def _count_stray(self) -> None:
        was_chance = self.by_chance
        self._strays += 1
        if self.by_chance and not was_chance:
            self.doubted, self._excess, self._safe, self._seen = True, 0.0, 0.0, 0
            self._keep_s, self._more, self._tried_s = HASTE_S, SPARE_S / HASTE_S, 0.0
            self._base = self.rate

    def _many(self, passed: int, now: float, wait_s: float) -> None:
        top = self.rate or self._pace / PACE_S
        self._base = min(max(passed / max(now - self._then_s, 0.1), top / 2), LESS * top)
        keep_s = min(max(4.0, 2 * (now - self._limit_s)), SOONEST_S + EACH / self._base, LONGEST_S)
        self._keep_s, self._more, self._low = keep_s, max(SPARE_S / keep_s, 0.25), min(self._low, self._base / 2)
        self._begin(now, max(0.0, wait_s - 1.0), wait_s)

    def _measure(self, passed: int, now: float, wait_s: float, burst: int) -> None:
        owed_s = max(0.0, wait_s - 1.0)
        past_s = max(now + owed_s - self._then_s, 0.1)
        open_s = max(past_s - self._paused_s, 0.1)
        if not self.rate:
            if passed < 1:
                return
            self._base, self._low = self._pace / PACE_S, 0.0
            self._keep_s, self._more = 4.0, 1.0
            self._is_measured = False
        elif passed < 1:
            self._paused_s += max(0.0, wait_s - 1)
            self._closed_s += wait_s
            closed_s = now - self._since_s
            if closed_s > CLOSED_S and (most := (burst + 1) / closed_s) < self._base:
                self._base, self._keep_s = most, min(max(self._keep_s, 2 * closed_s), LONGEST_S)
            self.rate, self._tried_s = self._base, 0.0
            self._level, self._level_s = 0.0, now
            return
        else:
            rate = max(passed + 0.5, self._answered) / past_s
            self._is_by_answers = self._answered > passed + 0.5
            if self._eased or now - self._since_s - self._closed_s - self._tried_s > max(
                1.0, HELD * (now - self._since_s)
            ):
                rate = max(rate, LESS * self.rate)
            unsure = min(max(0.0, (passed + 1) / open_s / rate - 1), 1.0)
            self._keep_s = min(SOONEST_S + EACH / rate, LONGEST_S)
            if passed < PLENTY:
                self._keep_s = min(max(2.0, 2 * open_s), self._keep_s)
            self._more = max(SPARE_S / self._keep_s, unsure)
            self._is_measured = True
            self._base, self._low = rate, max(0.0, passed - 1 - ROOM_S * self.rate) / past_s
        self._begin(now, owed_s, wait_s)

    def _begin(self, now: float, owed_s: float, wait_s: float) -> None:
        self._excess, self.doubted, self._limit_s = 0.0, False, now
        self.rate, self._tried_s = self._base, 0.0
        self._level, self._level_s = 0.0, now
        self._then_s, self._paused_s, self._closed_s = now + owed_s, 0.0, wait_s
        self.passed = self._answered = 0
        self._since_s, self._eased = now, False

    def recall(self, size: float) -> None:
        self.size, self.quiet = size, False

    def recall_rate(self, rate: float) -> None:
        self.rate = self._base = rate
        self._keep_s = min(SOONEST_S + EACH / rate, LONGEST_S)
        self._more = SPARE_S / self._keep_s
