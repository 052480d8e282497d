"""Limits of requests that are unannounced, or lower than announced."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from agent_magic.engine.admission.pool import PATIENCE_S
from agent_magic.engine.contract import Hold
from agent_magic.engine.pacing.concurrency import EVERY, SILENT_S

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
"""Room for this many seconds of inflow counts as room: requests overtake each other."""
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


MINUTE_S: Final = 60.0
HELD_S: Final = 60.1
"""Seconds for which a request counts: a minute, and the difference between times on the wire."""
MOST_KEPT: Final = 4_096
LONGER: Final = 1.5
SHUT: Final = 2.0
"""Log odds added if the server refuses for longer than `LONGER` times a bucket's time to admit one more."""
AGREES: Final = math.log(0.9 / 0.1)
"""Log odds added if two minutes end after the same number: a bucket does so only by chance."""
DIFFERS: Final = -5.0
"""Log odds if the starts of two minutes are not a multiple of a minute apart."""
LIKELY: Final = 3.0
SURE: Final = 4.0
CERTAIN: Final = 8.0
"""Log odds from which the limit is kept, from which a higher one is rarely tried, and their maximum."""
EVERY_S: Final = 600.0
"""Seconds between probes of a higher limit if requests are few: each costs a refusal."""
SLACK: Final = 20
"""Counts may be off by one in twenty: requests overtake each other on the wire."""


class Minute:
    """Distinguishes a count by the minute from a bucket by their odds, and keeps to it.

    A bucket admits the next request after a fraction of a minute, so a server that stays shut is evidence. Since the
    start of a minute is unknown, no more than `limit` are sent within *any* minute: right for minutes of the clock,
    sliding ones, and a bucket of as much.
    """

    def __init__(self) -> None:
        self.limit = self.burst = 0
        self._sent = deque[float](maxlen=MOST_KEPT)
        self._odds = 0.0
        self._shut_s: float | None = None  # when the first of the latest refusals was sent, while nothing is admitted
        self._last_s = 0.0  # when the last of them was sent
        self._is_counted = self._is_long = False  # whether that was weighed
        self._opened: tuple[float, float] | None = None  # a minute began between these times
        self._probed_s: float | None = None
        self._tried_s = 0.0
        self._grown = self._passed = 0  # since then

    @property
    def kept(self) -> bool:
        return self._odds >= LIKELY

    def learned(self, now: float) -> tuple[float, ...]:
        """Return the limit, its log odds and the seconds since its events, for `recall`; empty without one."""
        if not self.limit or self._opened is None:
            return ()
        times_s = self._tried_s, *self._opened, *(one for one in self._sent if one > now - HELD_S)
        return self.limit, self._odds, *(now - one for one in times_s)

    def recall(self, learned: tuple[float, ...], now: float, age_s: float) -> None:
        limit, self._odds, *ages_s = learned
        self.limit = int(limit)
        self._tried_s, after_s, before_s, *sent_s = (now - age_s - one for one in ages_s)
        self._opened = after_s, before_s
        self._sent.extend(sent_s)

    def hold(self, now: float) -> Hold | None:
        if not self.kept or len(self._sent) < self.limit:
            return None
        until_s = self._sent[-self.limit] + HELD_S
        if self._odds < SURE or self._passed >= EVERY or now - self._tried_s >= EVERY_S:  # one more is tried alone
            until_s = min(until_s, self._sent[-1] + SILENT_S)
            if self._probed_s is not None and now >= until_s:
                self._grow()
        return Hold("requests", until_s) if now < until_s else None

    def sent(self, now: float) -> None:
        if self.kept:
            self._passed += 1
            if len(self._sent) >= self.limit and now < self._sent[-self.limit] + HELD_S:
                self._probed_s = now
        self._sent.append(now)

    def let_in(self, sent_s: float) -> None:
        if self._probed_s is not None and sent_s >= self._probed_s:
            self._grow()
        if self._shut_s is not None and sent_s > self._shut_s and sent_s >= self._last_s:
            self._end(self._shut_s, sent_s)

    def refused(self, sent_s: float, now: float, *, first: bool, alone: bool) -> bool:
        if sent_s in self._sent:
            self._sent.remove(sent_s)
        if not first:
            return self.kept
        if self._shut_s is not None:
            self._settle(self._shut_s, sent_s)
        if self._shut_s is None:
            self._shut_s, self._is_counted, self._is_long = sent_s, False, False
            self.burst = sum(each >= sent_s - MINUTE_S for each in self._sent)
        self._last_s = sent_s
        self._probed_s, self._passed, self._tried_s = None, 0, now
        if not alone:
            self._odds = 0.0
        return self.kept

    def _settle(self, shut_s: float, now: float) -> None:
        since_s = self._last_s if self._last_s > shut_s else math.nextafter(shut_s, math.inf)
        admitted = next((each for each in self._sent if since_s <= each < now), None)
        if admitted is not None:  # its answer may not be here yet: refusals come sooner
            self._end(shut_s, admitted)
        else:
            self._weigh(shut_s, again=True)

    def _end(self, shut_s: float, opened_s: float) -> None:
        self._weigh(shut_s, again=False)
        if self.limit and not self.kept:
            self._open(self._last_s, opened_s)
        else:
            self._opened = self._last_s, opened_s
        self._shut_s = None

    def _weigh(self, shut_s: float, *, again: bool) -> None:
        if not self._is_counted:
            self._count(shut_s, again=again)
        if not self._is_long and (self._last_s - shut_s) * self.limit > LONGER * MINUTE_S:
            self._is_long, self._odds = True, min(self._odds + SHUT, CERTAIN)

    def _count(self, shut_s: float, *, again: bool) -> None:
        since_s = shut_s - MINUTE_S
        counts = [sum(since_s <= each <= shut_s for each in self._sent)]
        if self._opened is not None:  # the last beginning of a minute
            since_s = max(since_s, self._opened[1] + (shut_s - self._opened[1]) // MINUTE_S * MINUTE_S)
            counts.insert(0, sum(since_s <= each <= shut_s for each in self._sent))
        least, most = self.limit - self._grown - self.limit // SLACK, self.limit + self.limit // SLACK
        same = [each for each in counts[: 1 + self.kept] if least <= each <= most]
        if self.limit and same:
            self._odds, self.limit = min(self._odds + AGREES, CERTAIN), same[0]
        elif self.kept and not again:  # by chance, it may be
            self._odds -= SHUT
        else:
            self._odds, self._opened, self.limit = 0.0, None, counts[0]
        self._grown, self._is_counted = 0, True

    def _open(self, after_s: float, before_s: float) -> None:
        if self._opened is not None:
            least_s, most_s = after_s - self._opened[1], before_s - self._opened[0]
            if most_s // MINUTE_S * MINUTE_S < max(least_s, 1.0):
                self._odds = DIFFERS
            else:
                self._odds += math.log(MINUTE_S / min(max(most_s - least_s, MINUTE_S / 10), MINUTE_S))
        self._opened = after_s, before_s

    def _grow(self) -> None:
        self.limit += 1
        self._grown += 1
        self._probed_s = None
