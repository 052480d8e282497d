"""Virtual time: a heap turns the conductor and the gate of the live run, modelled attempts in place of requests."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from agent_magic.engine.actions import Backoff, Cancel, Finished, Launch, Reopened, Skipped, WakeAt
from agent_magic.engine.conductor import Conductor
from agent_magic.engine.pacing.limits import DIMENSIONS
from agent_magic.engine.retry import Failure
from agent_magic.forecast.evidence import GOES_ON
from agent_magic.forecast.flight import Flight
from agent_magic.forecast.provider import Input, Refusal, dated
from agent_magic.forecast.work import OK
from agent_magic.record.answer import NOTHING_USED, Usage
from agent_magic.record.events import AgentEnded, AgentReady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.engine.actions import Action
    from agent_magic.engine.breaker import Blame
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.policy import Policy
    from agent_magic.engine.room import Gate
    from agent_magic.forecast.provider import Provider
    from agent_magic.forecast.work import Try, Work

NEVER: Final = float("inf")
BEGINS, ENDS, CUT = 0, 1, 2


class Pricing(Protocol):
    """Says what tokens cost.

    Attributes:
        recorded: Whether an attempt that repeats a recorded one costs what that did.
    """

    recorded: bool

    def __call__(self, model: str, usage: Usage) -> float | None:
        """Return dollars; `None` is unknown."""
        ...


class Bar(NamedTuple):
    """One attempt of a forecast. Times in seconds since the run's start.

    Attributes:
        agent: The agent's name.
        number: 1 for its first attempt.
        model: The model asked.
        free_s: Since when it waited: its parents were done, or the attempt before had ended.
        backoff_s: How much of the wait was for a failure before.
        granted_s: When it was let go.
        started_s: When the request was sent.
        first_token_s: When the first token came; `None` where none did.
        ended_s: When the answer was complete, or it failed.
        held_by: What it waited for, or an empty string.
        outcome: `succeeded`, `failed`, `refused` (a 429) or `cancelled`.
        why: What went wrong, in one line; empty for an answer.
        usage: Its tokens.
        cost_usd: Dollars; `None` is unknown.
    """

    agent: str
    number: int
    model: str
    free_s: float
    backoff_s: float
    granted_s: float
    started_s: float
    first_token_s: float | None
    ended_s: float
    held_by: str
    outcome: str
    why: str
    usage: Usage
    cost_usd: float | None


class World:
    """One forecast run.

    Args:
        dag: Who waits for whom.
        works: Per agent, what it will do.
        policy: How to run.
        timeouts_s: Per agent, its deadline.
        gate: The room of the run; `None` where nothing limits it.
        provider: Who admits requests and bills their input.
        entries: Per agent, the cache entry it asks for; `None` asks for none.
        price: What tokens of a model cost.
        work_s: Per agent, the seconds expected of it, by which agents take turns.

    Attributes:
        bars: The attempts, in the order they ended.
        status: Per agent, its last status.
        ready_s: Per agent, when its parents were done.
        ended_s: Per agent, when it reached its last status.
        refused: How many 429s there were.
        peak: The most attempts that were under way at once.
    """

    def __init__(  # noqa: PLR0913 - all that a run stands on
        self,
        dag: Dag,
        works: Sequence[Work],
        policy: Policy,
        timeouts_s: Sequence[float],
        *,
        gate: Gate | None,
        provider: Provider,
        entries: Sequence[str | None],
        price: Pricing,
        work_s: Sequence[float] | None = None,
    ) -> None:
        self._works, self._gate, self._provider, self._entries, self._price = works, gate, provider, entries, price
        self._max_attempts = policy.max_attempts
        self._conductor = Conductor(dag, policy, timeouts_s=timeouts_s, work_s=work_s, room=gate)
        self._heap: list[tuple[float, int, int, int, int]] = []
        self._serial = 0
        self._alarm_s = NEVER
        self._finished = False
        count = len(works)
        self._flights: dict[int, Flight] = {}
        self._place = [0] * count
        self._free_s: list[float] = [0.0] * count
        self._waits_s: list[float | None] = [None] * count
        self.bars: list[Bar] = []
        self.status: list[str] = ["pending"] * count
        self.ready_s: list[float | None] = [None] * count
        self.ended_s: list[float | None] = [None] * count
        self.refused = self.peak = 0

    def run(self) -> World:
        """Turn the conductor until nothing is left to do."""
        heap = self._heap
        self._take(self._conductor.start(0.0), 0.0)
        while not self._finished or self._flights:
            if heap and heap[0][0] <= self._alarm_s:
                now, _, kind, agent, number = heapq.heappop(heap)
                flight = self._flights.get(agent)
                if flight is None or flight.number != number:
                    continue
                if kind == BEGINS:
                    self._begins(agent, flight, now)
                else:
                    self._ends(agent, flight, now)
            elif self._alarm_s < NEVER:
                now, self._alarm_s = self._alarm_s, NEVER
                self._take(self._conductor.wake(now), now)
            else:
                raise RuntimeError(f"nothing will ever happen again: {self.status.count('pending')} agents are pending")
        return self

    def _take(self, actions: Sequence[Action], now: float) -> None:
        for action in actions:
            match action:
                case Launch():
                    self._launch(action, now)
                case AgentReady():
                    self.ready_s[action.agent] = self._free_s[action.agent] = now
                case AgentEnded() | Skipped():
                    self.status[action.agent], self.ended_s[action.agent] = action.status, now
                case WakeAt():
                    self._alarm_s = action.at_s
                case Backoff():
                    self._waits_s[action.agent] = action.until_s
                case Cancel():
                    self._flights[action.agent].cut = action.why
                    self._later(now, CUT, action.agent)
                case Finished():
                    self._finished = True
                case Reopened():  # only a user's word does that
                    raise RuntimeError(f"agent {action.agent} was opened again")

    def _later(self, at_s: float, kind: int, agent: int) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (at_s, self._serial, kind, agent, self._flights[agent].number))

    def _launch(self, launch: Launch, now: float) -> None:
        agent = launch.agent
        work = self._works[agent]
        tries = work.tries
        step = tries[min(self._place[agent], len(tries) - 1)]
        flight = self._flights[agent] = Flight(launch.number, launch.held_by, now, step)
        self.peak = max(self.peak, len(self._flights))
        if step.input_tokens is not None and not step.turned_away:
            billed = self._provider.take(
                work.pool, step.input_tokens, flight.started_s, self._entries[agent], work.prefix
            )
            if isinstance(billed, Refusal):
                flight.refusal = billed
                flight.until_s = flight.started_s + self._provider.refusal_s
            else:
                flight.billed = billed
        flight.readings = self._provider.readings(work.pool, flight.started_s)
        if self._gate is not None and flight.first_s is not None and flight.refusal is None:
            self._later(flight.first_s, BEGINS, agent)
        if flight.until_s < NEVER:
            self._later(flight.until_s, ENDS, agent)

    def _begins(self, agent: int, flight: Flight, now: float) -> None:
        """The answer begins: headers are here, and what it wrote to the cache can be read."""
        gate = self._gate
        if gate is None:
            return
        self._opened(agent, flight, now)
        gate.heard(agent, dated(flight.readings, now), now, flight.arrived(now, gate.began_s))
        self._replied(flight)
        gate.began(agent)
        self._take(self._conductor.room_changed(now), now)

    def _replied(self, flight: Flight) -> None:
        """The key has been tried, unless the answer was there already and nothing was sent."""
        step = flight.step
        if self._gate is not None and (step.input_tokens != 0 or step.failure is not None):
            self._gate.replied(step.status if step.failure is not None else OK)

    def _opened(self, agent: int, flight: Flight, now: float) -> None:
        flight.begun = True
        written = flight.billed is not None and flight.billed.written > 0
        entry = self._entries[agent] if written else None
        made = flight.step.output_tokens or 0
        self._provider.began(self._works[agent].pool, (now, flight.until_s, made), entry, flight.started_s)

    def _ends(self, agent: int, flight: Flight, now: float) -> None:
        del self._flights[agent]
        if flight.cut != "stopped":
            self._replied(flight)
        if flight.cut:
            self._cut(agent, flight, now)
        elif flight.refusal is not None:
            self._refuse(agent, flight, flight.refusal, now)
        else:
            if not flight.begun and flight.step.failure is None:  # nobody streamed it: it begins and ends at once
                self._opened(agent, flight, now)
            usage = _usage_of(flight.step, flight.billed)
            failure = flight.step.failure
            if self._gate is not None and failure is not None and flight.step.status is not None and not flight.begun:
                self._gate.heard(agent, dated(flight.readings, now), now)
                self._take(self._conductor.room_changed(now), now)
            cost = self._cost(agent, flight.step, usage)
            self._settle(agent, usage, cost, now, bad=flight.step.bad)
            self._place[agent] += 1
            if failure is None:
                self._bar(agent, flight, now, "succeeded", "", usage, cost)
                self._take(self._conductor.succeeded(agent, now), now)
            elif failure is GOES_ON:
                self._bar(agent, flight, now, "succeeded", "", usage, cost)
                self._take(self._conductor.goes_on(agent, now), now)
            else:
                self._bar(agent, flight, now, "failed", failure.why, usage, cost)
                self._take(self._conductor.failed(agent, failure, now), now)

    def _refuse(self, agent: int, flight: Flight, refusal: Refusal, now: float) -> None:
        """The modelled provider answers 429."""
        self.refused += 1
        if self._gate is not None:
            readings = dated(flight.readings, now)
            self._gate.refused(agent, refusal.retry_after_s, _empty_limit(readings), now, readings)
        self._settle(agent, NOTHING_USED, 0.0, now, bad=False)
        why = f"RateLimited: {refusal.limit} (429)"
        self._bar(agent, flight, now, "refused", why, NOTHING_USED, 0.0)
        most = self._max_attempts
        failure = Failure(why, most, retry_after_s=refusal.retry_after_s, counts=most == 1)  # as in `failure_of`
        self._take(self._conductor.failed(agent, failure, now), now)

    def _cut(self, agent: int, flight: Flight, now: float) -> None:
        """A request was cancelled: at its deadline, or because the run was stopped."""
        usage = _usage_of(flight.step, flight.billed, share=_share(flight, now))
        cost = self._cost(agent, flight.step, usage)
        self._settle(agent, usage, cost, now, bad=False if flight.begun else None)
        if flight.cut == "stopped":
            self._bar(agent, flight, now, "cancelled", "stopped", usage, cost)
            self._take(self._conductor.cancelled(agent, now), now)
        else:
            why = "Late: no complete answer in time"
            self._bar(agent, flight, now, "failed", why, usage, cost)
            self._take(self._conductor.failed(agent, Failure(why), now), now)

    def _settle(self, agent: int, usage: Usage, cost: float | None, now: float, *, bad: Blame) -> None:
        if self._gate is None:
            return
        given, total = usage.input_tokens, usage.total_input_tokens
        self._gate.settle(
            agent,
            input_tokens=None if given is None else given + (usage.cache_write_tokens or 0),
            output_tokens=usage.output_tokens,
            total_tokens=None if total is None or usage.output_tokens is None else total + usage.output_tokens,
            read_tokens=usage.cache_read_tokens,
            cost_usd=cost,
            bad=bad,
            now=now,
        )

    def _cost(self, agent: int, step: Try, usage: Usage) -> float | None:
        if self._price.recorded and step.price is not None and usage is step.usage:
            return step.price.cost_usd
        return self._price(self._works[agent].model, usage)

    def _bar(
        self, agent: int, flight: Flight, now: float, outcome: str, why: str, usage: Usage, cost: float | None
    ) -> None:
        free_s, until_s = self._free_s[agent], self._waits_s[agent]
        waited_s = 0.0 if until_s is None else max(0.0, min(until_s, flight.granted_s) - free_s)
        self._waits_s[agent] = None
        self._free_s[agent] = now
        work = self._works[agent]
        self.bars.append(
            Bar(
                work.name,
                flight.number,
                work.model,
                free_s,
                waited_s,
                flight.granted_s,
                flight.started_s,
                flight.first_s if flight.first_s is not None and flight.first_s <= now and flight.begun else None,
                now,
                flight.held_by,
                outcome,
                why,
                usage,
                cost,
            )
        )


def _usage_of(step: Try, billed: Input | None, share: float = 1.0) -> Usage:
    """Return the tokens of an attempt: those recorded where it is billed as it was."""
    if billed is None or step.output_tokens is None:
        return step.usage or Usage()
    made = round(step.output_tokens * share)
    known = step.usage
    if (
        known is not None
        and made == known.output_tokens
        and (known.input_tokens, known.cache_read_tokens or 0, known.cache_write_tokens or 0) == billed[:3]
        and known.cache_write_1h_tokens == billed.written_1h
    ):
        return known
    return Usage(
        billed.uncached,
        cache_read_tokens=billed.read,
        cache_write_tokens=billed.written,
        output_tokens=made,
        cache_write_1h_tokens=billed.written_1h,
        estimated=share < 1.0,
    )


def _share(flight: Flight, now: float) -> float:
    """Return how much of an answer had come when it was cut."""
    if flight.until_s == NEVER:
        return 1.0  # what had come is what was recorded
    if flight.first_s is None or flight.until_s <= flight.first_s:
        return 0.0
    return min(1.0, max(0.0, (now - flight.first_s) / (flight.until_s - flight.first_s)))


def _empty_limit(readings: Readings) -> str | None:
    """Name the limit that a response shows as used up, as the live run does."""
    for name, reading in zip(DIMENSIONS, readings, strict=True):
        if reading is not None and reading.remaining == 0:
            return name
    return None
