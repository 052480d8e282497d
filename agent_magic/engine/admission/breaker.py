"""Breakers: what keeps a run from throwing good requests after bad ones, and money after money.

```
            too many of the last attempts failed              a probe failed: twice the wait
  CLOSED ---------------------------------------> OPEN <---------------------------------- ONE
    ^                                              |        the wait is over                ^
    |                                              +----------------------------------------+
    +---------------- as many answers in a row as times it has opened ----------------------+
```

Open, nothing goes. Then one request at a time goes, until the service answers again; the more often it has opened, the
more answers in a row it takes. So failed agents are tried again at full concurrency first, and at one when failures say
so. What waits for longer than the patience is given up: a dead service costs a few calls, not three for each agent. An
address that nobody has reached yet, for want of a network or of a server, is given up much sooner.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from agent_magic.declare.units import dollars, seconds
from agent_magic.engine.admission.room import Hold, Never

if TYPE_CHECKING:
    from agent_magic.engine.admission.budget import Worst

WINDOW: Final = 20
"""How many attempts are looked back on."""
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
PATIENCE_S: Final = 60.0
"""How long it may stay open before what waits is given up."""
UNREACHED_S: Final = 3.0
"""The same where no request of the run has found a connection yet. It opens after so long, too, at the latest."""
HANDFUL: Final = 5
"""Of fewer attempts without a connection nothing is concluded."""
MOST_IN_A_ROW: Final = 8
MINUTE_S: Final = 60.0
FOREVER: Final = float("inf")


class Fault(NamedTuple):
    """An attempt failed by the fault of the service or of the network.

    Attributes:
        why: Its error, in one line.
        reached: Whether it had found a connection.
    """

    why: str = ""
    reached: bool = True


Blame = Fault | Literal[False] | None
"""What an attempt says of the service and the network: a fault, `False` that they are alive, or `None` nothing."""


class ErrorBreaker:
    """Opens when too many of the last attempts failed by the fault of the service or of the network.

    Args:
        share: Which share of the last attempts may fail.
    """

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
        """Say until when nobody goes; `None` lets one go."""
        if self._is_closed:
            return None
        if self._probe is not None:
            return Hold("breaker", FOREVER)  # asked again when the probe has ended
        return Hold("breaker", self._until_s) if now < self._until_s else None

    def gives_up(self, now: float) -> str:
        """Say why waiting makes no sense any more; an empty string while it does."""
        if self._is_closed or now - self._since_s < self._patience_s:
            return ""
        if self._reached:
            return (
                f"the service has failed for {seconds(now - self._since_s)}, single requests too. "
                f"Run it again later: what succeeded is kept. Last: {self._why}"
            )
        enough = self._probes_lost and self._failed >= HANDFUL
        return f"no connection in {self._failed} tries. Last: {self._why}" if enough else ""

    def left(self, agent: int, now: float) -> None:
        """Record that a request left."""
        if self._first_s is None:
            self._first_s = now
        if not self._is_closed:
            self._probe = agent

    def ended(self, agent: int, *, bad: Blame, now: float) -> None:
        """Record how a request ended; `None` says nothing of the service, such as a cancelled one."""
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
        """Say what it does; an empty string while it is closed."""
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
        """Tell whether a handful of requests, over a few seconds, has found no connection, and none ever has."""
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
        self._since_s = now  # it answers: patience begins anew
        if self._in_a_row >= min(2 ** (self._openings - 1), MOST_IN_A_ROW):
            self._is_closed = True
            self._last.clear()


class BurnBreaker:
    """Opens when more dollars were spent within a minute than somebody allows.

    What is under way counts with its worst case, as with a budget, so the rate cannot be crossed.

    Args:
        most_usd: The most dollars within any minute.
    """

    def __init__(self, most_usd: float) -> None:
        self._most_usd = most_usd
        self._spent: deque[tuple[float, float]] = deque()
        self._aside: dict[int, float] = {}
        self._holds = False

    def hold(self, worst: Worst, now: float) -> Hold | None:
        """Say until when the rate is used up; `None` lets one go."""
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
        """Say why a request can never go; an empty string where it can."""
        if worst.usd is None:
            return "its model has no known price, so it cannot be held within dollars per minute: see %agents prices"
        if worst.usd > self._most_usd:
            return f"it may cost {dollars(worst.usd)}, and {dollars(self._most_usd)} a minute are allowed"
        return ""

    def left(self, agent: int, worst: Worst) -> None:
        """Record that a request left."""
        self._aside[agent] = worst.usd or 0.0

    def ended(self, agent: int, usd: float | None, now: float) -> None:
        """Record what a request has cost. What is unknown counts as its worst case."""
        aside = self._aside.pop(agent, None)
        if aside is not None:
            self._spent.append((now, aside if usd is None else usd))

    def words(self, now: float) -> str:
        """Say what it does; an empty string while there is room, for whoever asked last."""
        spent_usd = self._within_a_minute(now) + sum(self._aside.values())
        if spent_usd < 0.9 * self._most_usd and not (self._holds and spent_usd):
            return ""
        return f"spending: {dollars(spent_usd)} of {dollars(self._most_usd)} allowed a minute"

    def _within_a_minute(self, now: float) -> float:
        while self._spent and self._spent[0][0] + MINUTE_S <= now:  # as `hold` has said, to the last digit
            self._spent.popleft()
        return sum(usd for _, usd in self._spent)


class Breakers:
    """The breakers of one run: for errors, by the name of what they count for, and for what all spend.

    Args:
        share: See `ErrorBreaker`; `None` has none.
        most_usd_per_min: See `BurnBreaker`; `None` has none.
    """

    def __init__(self, share: float | None, most_usd_per_min: float | None) -> None:
        self._share, self._errors = share, dict[str, ErrorBreaker]()
        self._burn = None if most_usd_per_min is None else BurnBreaker(most_usd_per_min)

    def _of(self, name: str) -> ErrorBreaker | None:
        """Return the breaker for errors of that name; `None` where there are none."""
        if self._share is None:
            return None
        found = self._errors.get(name)
        if found is None:
            found = self._errors[name] = ErrorBreaker(self._share)
        return found

    def hold(self, name: str, worst: Worst, now: float) -> Hold | Never | None:
        """Say until when nobody of that name goes, or why this one never will; `None` lets it go."""
        errors = self._of(name)
        if errors is not None and (hold := errors.hold(now)) is not None:
            return _never(errors.gives_up(now), falls_back=True) or hold._replace(falls_back=True)
        if self._burn is not None:
            return _never(self._burn.never(worst)) or self._burn.hold(worst, now)
        return None

    def never(self, worst: Worst) -> str:
        """Say why a request can never go; an empty string where it can."""
        return "" if self._burn is None else self._burn.never(worst)

    def left(self, agent: int, name: str, worst: Worst, now: float) -> None:
        """Record that a request of that name left."""
        errors = self._of(name)
        if errors is not None:
            errors.left(agent, now)
        if self._burn is not None:
            self._burn.left(agent, worst)

    def ended(self, agent: int, name: str, *, bad: Blame, usd: float | None, now: float) -> None:
        """Record how a request of that name ended, and what it cost."""
        errors = self._of(name)
        if errors is not None:
            errors.ended(agent, bad=bad, now=now)
        if self._burn is not None:
            self._burn.ended(agent, usd, now)

    def words(self, now: float) -> tuple[str, ...]:
        """Say what is open."""
        several = len(self._errors) > 1
        said = [(f"{name} " if several else "", one.words(now)) for name, one in self._errors.items()]
        said += [] if self._burn is None else [("", self._burn.words(now))]
        return tuple(f"{name}{words}" for name, words in said if words)


def _never(why: str, *, falls_back: bool = False) -> Never | None:
    return Never(f"Breaker: {why.rstrip('.')}.", "Breaker", falls_back=falls_back) if why else None
