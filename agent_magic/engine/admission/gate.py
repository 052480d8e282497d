"""The gate: the conductor asks it before it starts an agent.

The pacer keeps the provider's limits and is shared by all runs of a session; the budget belongs to one run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agent_magic.declare.units import seconds
from agent_magic.engine.contract import FOREVER, Hold, Never
from agent_magic.engine.pacing.limits import NO_READINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from agent_magic.engine.admission.breaker import Blame, Breakers
    from agent_magic.engine.admission.budget import Budget, Worst
    from agent_magic.engine.admission.pool import Key, Seat
    from agent_magic.engine.admission.prefix import Prefixes
    from agent_magic.engine.contract import Need
    from agent_magic.engine.expected import Pressure
    from agent_magic.engine.pacing.class_pacer import LimitUse, Ticket
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.pacing.pacer import Pacer
    from agent_magic.record.answer import Usage

TOO_MANY_REQUESTS = 429
TOLD_S = 1.5
"""Shorter waits in seconds are not reported: they end before they are read."""


class Gate:
    """Admission of one run.

    If the budget has no room for a request's bound, `count` queues its input for counting; then `ease` makes it
    cheaper, or `close` the last of its conversation. With `apart`, errors count per model class.
    """

    def __init__(  # noqa: PLR0913 - all that decide
        self,
        limit_classes: Sequence[str],
        need: Callable[[int], Need],
        *,
        pacer: Pacer | None = None,
        budget: Budget | None = None,
        prefixes: Prefixes | None = None,
        breakers: Breakers | None = None,
        key: Key | None = None,
        patience_s: Sequence[float] | None = None,
        count: Callable[[int], bool] | None = None,
        close: Callable[[int], bool] | None = None,
        batched: Container[int] = frozenset[int](),
        apart: bool = False,
        ease: Callable[[int], bool] | None = None,
        pressure: Pressure | None = None,
    ) -> None:
        self._breakers, self._key, self._patience_s = breakers, key, patience_s
        self._classes, self._apart = limit_classes, apart
        self._prefixes = prefixes
        self._lines = list(map(self._line_of, range(len(limit_classes))))
        self._followers: set[int] = set()
        self._free: set[int] = set()  # steps that went without asking
        self._queues: dict[str, int] = {}
        self._turns: dict[str, str] = {}  # lines that the pacer holds, each with its class
        self._need, self._pacer, self._budget = need, pacer, budget
        self._tickets: dict[int, Ticket] = {}
        self._began_s = 0.0
        self.seat: Seat | None = None
        self._count, self._close = count, close
        self._seated: set[int] = set()
        self._batched = batched
        self._ease, self._pressure = ease, pressure

    def begin(self, began_s: float, seat: Seat | None) -> None:
        self._began_s, self.seat = began_s, seat

    def offer(self) -> None:
        if self.seat is not None:
            self.seat.pool.offer()

    def _line_of(self, agent: int) -> str:
        group = None if self._prefixes is None else self._prefixes.name(agent)
        return self._classes[agent] if group is None else f"{self._classes[agent]} {group}"

    def _breaker_of(self, agent: int) -> str:
        return self._classes[agent] if self._apart else ""

    def moved(self, agent: int) -> None:
        if self._prefixes is not None:
            self._prefixes.leave(agent)
        self._lines[agent] = self._line_of(agent)

    def line(self, agent: int) -> str:
        return self._lines[agent]

    def enter(self, agent: int, now: float) -> Hold | Never | None:
        need = self._need(agent)
        if need.free:
            self._free.add(agent)
            return None
        if self._pressure is not None and self._pressure.is_late(agent, now) and self._eases(agent):
            return Hold("deadline", now, falls_back=True)
        line = self._lines[agent]
        counting = False
        if self._count is not None and need.least is not None and self._may_fit(need.worst, need.least):
            counting = self._count(agent)
            need = self._need(agent)
        held = Hold("budget", FOREVER) if counting else self._held(agent, need, now)
        if isinstance(held, Never) and held.keeps and self._close is not None and self._close(agent):
            need = self._need(agent)
            held = self._held(agent, need, now)
        if held is not None:
            if line in self._turns:
                self._forgo(line)
            beyond = isinstance(held, Never) and held.kind == "BudgetExceeded"
            return Hold("budget", now, falls_back=True) if beyond and self._eases(agent) else held
        if self._pacer is not None and agent not in self._batched:
            warm = self._prefixes is not None and self._prefixes.is_warm(agent, now)
            tokens = need.input_tokens - need.shared_tokens if warm else need.input_tokens
            queue = self._queues.setdefault(line, id(self) + len(self._queues))  # one for each run and line
            ticket = self._pacer.ask(self._classes[agent], tokens, need.output_tokens, self._began_s + now, queue=queue)
            if isinstance(ticket, Hold):
                self._turns[line] = self._classes[agent]
                if (stop := self._impatient(agent, ticket, now)) is not None:
                    return stop
                return Hold(ticket.reason, ticket.until_s - self._began_s) if self._began_s else ticket
            self._turns.pop(line, None)
            self._tickets[agent] = ticket
        self._took(agent, need, now)
        return None

    def _eases(self, agent: int) -> bool:
        return self._ease is not None and self._ease(agent)

    def leave(self) -> None:
        self.forgo()
        if self.seat is not None:
            self.seat.pool.forget(self.seat)

    def forgo(self) -> None:
        for line in list(self._turns):
            self._forgo(line)

    def _forgo(self, line: str) -> None:
        if self._pacer is not None:
            self._pacer.forgo(self._turns.pop(line), self._queues[line])

    def _held(self, agent: int, need: Need, now: float) -> Hold | Never | None:
        if agent in self._batched:
            return self._beyond_budget(need)
        if self._prefixes is not None and (hold := self._prefixes.hold(agent, now)) is not None:
            return hold
        if (stop := self._stopped(agent, need, now)) is not None:
            return stop
        if (stop := self._beyond_budget(need)) is not None:
            return stop
        if self.seat is not None and agent not in self._seated and not self.seat.pool.has_room(self.seat):
            return Hold("slot", FOREVER)
        return None

    def _beyond_budget(self, need: Need) -> Hold | Never | None:
        if self._budget is not None and not self._budget.fits(need.worst):
            why = self._budget.why_not(need.worst, need.model)
            return (
                Hold("budget", FOREVER)
                if self._budget.waiting_helps
                else Never(f"BudgetExceeded: {why}", "BudgetExceeded", need.keeps)
            )
        return None

    def _may_fit(self, worst: Worst, least: Worst) -> bool:
        if self._breakers is not None and self._breakers.never(worst):
            return not self._breakers.never(least)
        return self._budget is not None and not self._budget.fits(worst) and self._budget.fits(least)

    def _impatient(self, agent: int, hold: Hold, now: float) -> Never | None:
        wait_s = hold.until_s - self._began_s - now
        if self._patience_s is None or hold.reason != "backoff" or wait_s <= self._patience_s[agent]:
            return None
        most_s = self._patience_s[agent]
        why = f"RateLimited: retry-after is {seconds(wait_s)}, longer than the agent's timeout of {seconds(most_s)}."
        return Never(why, "RateLimited", falls_back=True)

    def _took(self, agent: int, need: Need, now: float) -> None:
        if self._pressure is not None:
            self._pressure.began(agent)
        if agent in self._batched:
            if self._budget is not None:
                self._budget.set_aside(agent, need.worst)
            return
        if self.seat is not None and agent not in self._seated:
            self._seated.add(agent)
            self.seat.take()
        if self._budget is not None:
            self._budget.set_aside(agent, need.worst)
        if self._prefixes is not None:
            if self._prefixes.is_warm(agent, now):
                self._followers.add(agent)
            self._prefixes.left(agent, now)
        if self._breakers is not None:
            self._breakers.left(agent, self._breaker_of(agent), need.worst, now)
        if self._key is not None:
            self._key.left(self._began_s + now)

    def _stopped(self, agent: int, need: Need, now: float) -> Hold | Never | None:
        if self._key is not None:
            if self._key.accepted:
                self._key = None
            elif (until_s := self._key.wait_until_s(self._began_s + now)) is not None:
                return Hold("key", until_s - self._began_s)
        if self._breakers is None:
            return None
        return self._breakers.hold(self._breaker_of(agent), need.worst, now)

    def endpoint(self, agent: int) -> str:
        ticket = self._tickets.get(agent)
        return "" if ticket is None else ticket.pool.endpoint

    def replied(self, agent: int, status: int, readings: Readings | None, now: float) -> None:
        ticket = self._tickets.get(agent)
        if self._pacer is not None and ticket is not None:
            was_quiet = ticket.pool.quiet
            self._pacer.heard(ticket, readings or NO_READINGS, self._began_s + now)
            if was_quiet:
                self._tell()
        self._tried(status)

    def ended(self, agent: int, status: int | None, *, answered: bool) -> None:
        if answered or status is not None:
            self._free.discard(agent)
            self._tried(status)
        else:
            self.turned_back(agent)

    def _tried(self, status: int | None) -> None:
        if self._key is not None:
            was_accepted = self._key.accepted
            self._key.replied(status)
            if self._key.accepted and not was_accepted:
                self._tell()

    def turned_back(self, agent: int) -> None:
        if agent in self._free:  # no step waited for it
            self._free.discard(agent)
        elif self._key is not None:
            self._key.turned_back()

    def halted(self, now: float) -> tuple[str, ...]:
        shut = {} if self._pacer is None else self._pacer.health(self._began_s + now)
        told = [(name, math.ceil(pool.shut_s)) for name, pool in shut.items() if pool.shut_s > TOLD_S]
        waits = [f"{name} was told to wait (429): {seconds(left_s)} more" for name, left_s in told]
        return (*waits, *(() if self._breakers is None else self._breakers.words(now)))

    def limits_in_use(self, now: float) -> list[LimitUse]:
        if self._pacer is None:
            return []
        pools = self._pacer.health(self._began_s + now).values()
        return [one for pool in pools for one in pool.limits.values()]

    def began(self, agent: int) -> None:
        if self._prefixes is not None:
            self._prefixes.began(agent)

    def refused(
        self, agent: int, retry_after_s: float | None, limit: str | None, readings: Readings | None, now: float
    ) -> None:
        ticket = self._tickets.pop(agent, None)
        if self._pacer is not None and ticket is not None:
            was_quiet = ticket.pool.quiet
            self._pacer.refused(ticket, retry_after_s, limit, self._began_s + now, readings or NO_READINGS)
            if was_quiet:
                self._tell()

    def _tell(self) -> None:
        """Wake the other runs of the session, which waited for this reply too."""
        if self.seat is not None:
            self.seat.pool.news(self.seat)

    def settle(
        self, agent: int, used: Usage, cost_usd: float | None, bad: Blame, now: float, *, is_final: bool
    ) -> None:
        """Record the use of a request and release its reserve; without a final count its tokens count as spent."""
        ticket, was_quiet = self._tickets.pop(agent, None), False
        if self._pacer is not None and ticket is not None:
            was_quiet = ticket.pool.quiet
            self._pacer.finished(ticket, used.limited_input_tokens, used.output_tokens, self._began_s + now)
            self._pacer.blamed(ticket, bad, self._began_s + now)
        if self._breakers is not None and agent not in self._batched:
            self._breakers.ended(agent, self._breaker_of(agent), bad=bad, usd=cost_usd, now=now)
        if self._budget is not None or self._prefixes is not None:
            read_in, made = used.total_input_tokens, used.output_tokens
            total = None if read_in is None or made is None else read_in + made
            if self._budget is not None:
                self._budget.settle(agent, cost_usd, total if is_final else None)
            if self._prefixes is not None:
                read = None if total == 0 else used.cache_read_tokens  # a refusal says nothing of the cache
                self._prefixes.ended(agent, read, followed=agent in self._followers)
                self._followers.discard(agent)
        if self.seat is not None and agent in self._seated:
            self._seated.discard(agent)
            self.seat.give()
        if was_quiet:
            self._tell()
