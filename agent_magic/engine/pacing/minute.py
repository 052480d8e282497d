"""Infers an unannounced limit of requests per minute, of a server that counts by the minute."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from agent_magic.engine.admission.room import Hold
from agent_magic.engine.pacing.concurrency import SILENT_S

MINUTE_S: Final = 60.0
HELD_S: Final = 60.1
"""Seconds for which a request counts: a minute, and the difference between times on the wire."""
MOST: Final = 4_096
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
EVERY: Final = 150
EVERY_S: Final = 600.0
"""Requests, or seconds if requests are few, between probes of a higher limit: each costs a refusal."""
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
        self._sent = deque[float](maxlen=MOST)
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
