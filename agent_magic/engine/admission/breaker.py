"""Circuit breakers: they stop a run from sending requests to a failing service, and from spending too fast.

```
            too many of the last attempts failed              a probe failed: twice the wait
  CLOSED ---------------------------------------> OPEN <---------------------------------- ONE
    ^                                              |        the wait is over                ^
    |                                              +----------------------------------------+
    +---------------- as many answers in a row as times it has opened ----------------------+
```

Requests that wait longer than the patience are given up, so a dead service costs a few calls instead of three per
agent.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from agent_magic.declare.units import dollars, seconds
from agent_magic.engine.contract import Hold, Never

if TYPE_CHECKING:
    from agent_magic.engine.admission.budget import Worst

WINDOW: Final = 20
"""Attempts looked back on."""
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
PATIENCE_S: Final = 60.0
"""Seconds it may stay open before waiting requests are given up."""
UNREACHED_S: Final = 3.0
"""The same if no request has found a connection yet; it also opens after this time at the latest."""
HANDFUL: Final = 5
"""Attempts without a connection to conclude anything."""
MOST_IN_A_ROW: Final = 8
MINUTE_S: Final = 60.0
FOREVER: Final = float("inf")


class Fault(NamedTuple):
    """A failure of the service or the network."""

    why: str = ""
    reached: bool = True  # there was a connection


Blame = Fault | Literal[False] | None
"""Evidence about service and network: a fault, `False` if they are alive, `None` without any."""


class ErrorBreaker:
    """Opens when too large a share of the last attempts failed by the fault of the service or the network."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._last: deque[bool] = deque(maxlen=WINDOW)
        self._is_closed = True
        self._until_s = self._wait_s = 0.0
        self._since_s = 0.0
        self._openings = 0
        self._probe: int | None = None
        self._in_a_row = 0
        self._probes_lost = 0
        self._first_s: float | None = None
        self._reached = False
        self._failed, self._why = 0, ""

    def hold(self, now: float) -> Hold | None:
        if self._is_closed:
            return None
        if self._probe is not None:
            return Hold("breaker", FOREVER)  # asked again when the probe has ended
        return Hold("breaker", self._until_s) if now < self._until_s else None

    def gives_up(self, now: float) -> str:
        if self._is_closed or now - self._since_s < self._patience_s:
            return ""
        if self._reached:
            return (
                f"the service has failed for {seconds(now - self._since_s)}, even for single requests. "
                f"Run it again later: what succeeded is kept. Last: {self._why}"
            )
        enough = self._probes_lost and self._failed >= HANDFUL
        return f"no connection in {self._failed} tries. Last: {self._why}" if enough else ""

    def left(self, agent: int, now: float) -> None:
        if self._first_s is None:
            self._first_s = now
        if not self._is_closed:
            self._probe = agent

    def ended(self, agent: int, *, bad: Blame, now: float) -> None:
        """Record the end of a request; `None` says nothing about the service, such as a cancellation."""
        if bad:
            self._failed, self._why = self._failed + 1, bad.why
        if bad is not None:
            self._reached = self._reached or not bad or bad.reached
        if not self._is_closed:
            if agent == self._probe:
                self._probe = None
                if bad is not None:
                    self._take_probe(now, bad=bool(bad))
        elif bad is not None:
            last = self._last
            last.append(bool(bad))
            if bad and (sum(last) >= self._share * WINDOW or self._finds_nothing(now)):
                self._open(now)
            elif len(last) == WINDOW and not any(last):
                self._openings = 0

    def words(self, now: float) -> str:
        if self._is_closed:
            return ""
        failed = f"errors: {sum(self._last)} of the last {len(self._last)} attempts failed"
        left_s = self._patience_s - (now - self._since_s)
        ends = f", given up in {math.ceil(left_s)} s" if left_s > 0 else ""
        if now < self._until_s:
            return f"{failed}; next try in {math.ceil(self._until_s - now)} s{ends}"
        return f"{failed}; one request at a time{ends}"

    @property
    def _patience_s(self) -> float:
        return PATIENCE_S if self._reached else UNREACHED_S

    def _finds_nothing(self, now: float) -> bool:
        return not self._reached and self._failed >= HANDFUL and now - (self._first_s or 0.0) >= UNREACHED_S

    def _open(self, now: float) -> None:
        self._is_closed = False
        self._since_s = now
        self._openings += 1
        self._in_a_row = 0
        self._wait_s = FIRST_WAIT_S
        self._until_s = now + self._wait_s

    def _take_probe(self, now: float, *, bad: bool) -> None:
        if bad:
            self._in_a_row = 0
            self._probes_lost += 1
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
            self._until_s = now + self._wait_s
            return
        self._in_a_row += 1
        self._since_s = now  # it answers: patience begins again
        if self._in_a_row >= min(2 ** (self._openings - 1), MOST_IN_A_ROW):
            self._is_closed = True
            self._last.clear()


class BurnBreaker:
    """Opens when spending within a minute exceeds a limit."""

    # Requests under way count with their worst case, so the rate cannot be exceeded.

    def __init__(self, most_usd: float) -> None:
        self._most_usd = most_usd
        self._spent: deque[tuple[float, float]] = deque()
        self._aside: dict[int, float] = {}
        self._holds = False

    def hold(self, worst: Worst, now: float) -> Hold | None:
        spent_usd = self._within_a_minute(now)
        over_usd = spent_usd + sum(self._aside.values()) + (worst.usd or 0.0) - self._most_usd
        self._holds = over_usd > 0
        if over_usd <= 0:
            return None
        for at_s, usd in self._spent:
            over_usd -= usd
            if over_usd <= 0:
                return Hold("spend", at_s + MINUTE_S)
        return Hold("spend", FOREVER)  # asked again when something under way has ended

    def never(self, worst: Worst) -> str:
        if worst.usd is None:
            return "its model has no known price, so no cap in dollars a minute can hold it: see %agents prices"
        if worst.usd > self._most_usd:
            return f"it may cost {dollars(worst.usd)}, and {dollars(self._most_usd)} a minute is the cap"
        return ""

    def left(self, agent: int, worst: Worst) -> None:
        self._aside[agent] = worst.usd or 0.0

    def ended(self, agent: int, usd: float | None, now: float) -> None:
        aside = self._aside.pop(agent, None)
        if aside is not None:
            self._spent.append((now, aside if usd is None else usd))

    def words(self, now: float) -> str:
        spent_usd = self._within_a_minute(now) + sum(self._aside.values())
        if spent_usd < 0.9 * self._most_usd and not (self._holds and spent_usd):
            return ""
        return f"spending: {dollars(spent_usd)} of {dollars(self._most_usd)} allowed a minute"

    def _within_a_minute(self, now: float) -> float:
        while self._spent and self._spent[0][0] + MINUTE_S <= now:  # as `hold` has said, to the last digit
            self._spent.popleft()
        return sum(usd for _, usd in self._spent)


class Breakers:
    """The breakers of one run: for errors by endpoint, and for spending."""

    def __init__(self, share: float | None, most_usd_per_min: float | None) -> None:
        self._share, self._errors = share, dict[str, ErrorBreaker]()
        self._burn = None if most_usd_per_min is None else BurnBreaker(most_usd_per_min)

    def _of(self, name: str) -> ErrorBreaker | None:
        if self._share is None:
            return None
        found = self._errors.get(name)
        if found is None:
            found = self._errors[name] = ErrorBreaker(self._share)
        return found

    def hold(self, name: str, worst: Worst, now: float) -> Hold | Never | None:
        errors = self._of(name)
        if errors is not None and (hold := errors.hold(now)) is not None:
            return _never(errors.gives_up(now), falls_back=True) or hold._replace(falls_back=True)
        if self._burn is not None:
            return _never(self._burn.never(worst)) or self._burn.hold(worst, now)
        return None

    def never(self, worst: Worst) -> str:
        return "" if self._burn is None else self._burn.never(worst)

    def left(self, agent: int, name: str, worst: Worst, now: float) -> None:
        errors = self._of(name)
        if errors is not None:
            errors.left(agent, now)
        if self._burn is not None:
            self._burn.left(agent, worst)

    def ended(self, agent: int, name: str, *, bad: Blame, usd: float | None, now: float) -> None:
        errors = self._of(name)
        if errors is not None:
            errors.ended(agent, bad=bad, now=now)
        if self._burn is not None:
            self._burn.ended(agent, usd, now)

    def words(self, now: float) -> tuple[str, ...]:
        several = len(self._errors) > 1
        said = [(f"{name} " if several else "", one.words(now)) for name, one in self._errors.items()]
        said += [] if self._burn is None else [("", self._burn.words(now))]
        return tuple(f"{name}{words}" for name, words in said if words)


def _never(why: str, *, falls_back: bool = False) -> Never | None:
    return Never(f"Breaker: {why.rstrip('.')}.", "Breaker", falls_back=falls_back) if why else None
