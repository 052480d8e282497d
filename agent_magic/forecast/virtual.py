"""The engine on virtual time: the code of live runs on a heap instead of an event loop.

A `VirtualDriver` replaces the live driver of one engine, and a `Service` answers: a model of the provider in forecasts,
a scripted server in tests.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from agent_magic.engine.contract import UNSENT, Abort, Begin, Count, Done, Send, WakeAt
from agent_magic.engine.run import CUT
from agent_magic.measure.server import NEVER, NO_NEEDS, Serving
from agent_magic.record.events import TICKS_PER_S, on_grid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_magic.engine.calls import Call, Result
    from agent_magic.engine.contract import Action, Outcome
    from agent_magic.engine.pacing.limits import Readings
    from agent_magic.engine.run import Engine
    from agent_magic.record.request import Request

EVENT, ALARM = 0, 1
"""Events come before an alarm of the same time."""


class Flight:
    """An active request."""

    __slots__ = ("begun", "first_s", "needs", "server", "started_s", "step", "until_s")

    def __init__(self, step: int, started_s: float, first_s: float | None, until_s: float) -> None:
        self.step, self.started_s, self.first_s, self.until_s = step, started_s, first_s, until_s
        self.begun = False
        self.server: Served | None = None
        self.needs = NO_NEEDS

    def completed(self, now: float) -> None:
        self.until_s = now


Served = Serving[Flight]
F = TypeVar("F", bound=Flight)


class Service(Protocol[F]):
    """Answers on virtual time."""

    @property
    def abort_s(self) -> float:
        """Seconds until an aborted request is over."""
        ...

    def delay_s(self, step: int) -> float: ...

    def send(self, step: int, request: Request, now: float) -> F:
        """Take a request: return the flight with its start and end."""
        ...

    def begin(self, flight: F, now: float) -> tuple[int, Readings]:
        """Begin a reply: return its status and rate limit headers."""
        ...

    def end(self, flight: F, now: float) -> Outcome: ...

    def abort(self, flight: F, now: float) -> Outcome: ...

    def call(self, call: Call) -> tuple[float, Result]: ...

    def count(self, request: Request) -> int | None: ...


class VirtualClock:
    """Runs events in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[object, ...]]] = []
        self._serial = 0

    def at(self, at_s: float, what: Callable[..., None], *args: object, rank: int = EVENT) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (at_s, rank, self._serial, what, args))

    def step(self) -> bool:
        if not self._heap:
            return False
        self.now, _, _, what, args = heapq.heappop(self._heap)
        what(*args)
        return True


class VirtualDriver(Generic[F]):
    """Drives one engine on a virtual clock, from `starts_s` on, which is `began_s` on the clock of a pacer."""

    def __init__(
        self,
        engine: Engine,
        service: Service[F],
        clock: VirtualClock | None = None,
        *,
        starts_s: float = 0.0,
        began_s: float | None = None,
    ) -> None:
        self.engine, self.service, self.clock = engine, service, clock or VirtualClock()
        self._starts_s, self._began_s = starts_s, starts_s if began_s is None else began_s
        self.over, self.peak = False, 0
        self.flights: dict[int, F] = {}
        self._leaving: dict[int, int] = {}  # steps with a request being written, each with the serial of its launch
        self._serial = 0
        self._alarm_s = NEVER
        self._next_s: dict[Served, float] = {}  # when each server has something to say

    @property
    def now(self) -> float:
        return self.clock.now - self._starts_s

    def run(self) -> None:
        self.start()
        step = self.clock.step
        while not self.over or self.flights:
            if not step():
                raise RuntimeError("nothing will ever happen again, and the run is not over")

    def start(self) -> None:
        self.do(self.engine.start(self.now, began_s=self._began_s, wake=self.room_changed))

    def room_changed(self) -> bool:
        self.do(self.engine.room_changed(self.now))
        return True

    def do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(step):
                    self._send(step)
                case Abort(step):
                    self._abort(step)
                case WakeAt(at_s):
                    self._alarm_s = math.ceil(at_s * TICKS_PER_S) / TICKS_PER_S  # not too early: `now` is on the grid
                    self.clock.at(self._starts_s + self._alarm_s, self.wake, self._alarm_s, rank=ALARM)
                case Begin(call):
                    self.peak = max(self.peak, self.engine.conductor.slots_used)
                    seconds, result = self.service.call(call)
                    self._later(self.now + on_grid(seconds), self.called, call, result)
                case Count(step, request):
                    self.do(self.engine.counted(step, self.service.count(request), self.now))
                case Done():
                    self.over, self._alarm_s = True, NEVER
                case _:
                    raise TypeError(action)
        self.engine.offer()

    def _later(self, at_s: float, what: Callable[..., None], *args: object) -> None:
        self.clock.at(self._starts_s + at_s, what, *args)

    def _send(self, step: int) -> None:
        self.peak = max(self.peak, self.engine.conductor.slots_used)
        self._serial += 1
        self._leaving[step] = self._serial
        self._later(self.now + on_grid(self.service.delay_s(step)), self.leave, step, self._serial)

    def _abort(self, step: int) -> None:
        if step in self.flights:
            self._later(self.now + self.service.abort_s, self.aborted, self.flights[step])
        elif calls := self.engine.calls.running(step):
            for call in calls:
                self._later(self.now, self.called, call, CUT)
        elif step in self._leaving:
            del self._leaving[step]
            self._later(self.now, self.unsent, step)

    def wake(self, alarm_s: float) -> None:
        if alarm_s == self._alarm_s:
            self._alarm_s = NEVER
            self.do(self.engine.wake(self.now))

    def leave(self, step: int, serial: int) -> None:
        if self._leaving.get(step) != serial:
            return
        del self._leaving[step]
        now = self.now
        flight = self.flights[step] = self.service.send(step, self.engine.send(step, now), now)
        if flight.server is not None:
            flight.server.join(flight, flight.needs, now)
            self._expect(flight.server)
        elif flight.first_s is not None:
            self._later(on_grid(flight.first_s), self.begin, flight)
        if flight.until_s < NEVER:
            self._later(on_grid(flight.until_s), self.end, flight)

    def _expect(self, server: Served) -> None:
        next_s = server.next_s()
        if next_s == NEVER:
            self._next_s.pop(server, None)
        elif (next_s := on_grid(next_s)) != self._next_s.get(server):
            self._next_s[server] = next_s
            self._later(next_s, self.served, server, next_s)

    def served(self, server: Served, next_s: float) -> None:
        """Begin or end a reply, unless the server's requests have changed since."""
        if self._next_s.get(server) != next_s:
            return
        del self._next_s[server]
        found, is_over = server.pop(next_s)
        self._expect(server)
        flight = self.flights.get(found.step)
        if flight is None or flight is not found:
            return
        if is_over:
            flight.completed(next_s)
            self.end(flight)
        elif flight.first_s is not None:
            flight.first_s = next_s
            self.begin(flight)

    def begin(self, flight: F) -> None:
        if self.flights.get(flight.step) is not flight:
            return
        now, flight.begun = self.now, True
        self.engine.first_token(flight.step, now)
        if self.engine.admission is not None:
            self.do(self.engine.replied(flight.step, *self.service.begin(flight, now), now))
            self.do(self.engine.began(flight.step, now))

    def end(self, flight: F) -> None:
        if self.flights.get(flight.step) is not flight:
            return
        now = self.now
        outcome = self.service.end(flight, now)
        self._let_go(flight, now)
        if not flight.begun and outcome.status is not None:
            self.do(self.engine.replied(flight.step, outcome.status, outcome.readings, now))
        del self.flights[flight.step]
        self.do(self.engine.ended(flight.step, outcome, now))

    def aborted(self, flight: F) -> None:
        if self.flights.get(flight.step) is flight:
            del self.flights[flight.step]
            outcome = self.service.abort(flight, self.now)
            self._let_go(flight, self.now)
            self.do(self.engine.ended(flight.step, outcome, self.now))

    def _let_go(self, flight: F, now: float) -> None:
        if flight.server is not None:
            flight.server.leave(flight, now)
            self._expect(flight.server)

    def called(self, call: Call, result: Result) -> None:
        if call in self.engine.calls.running(call.step):
            self.do(self.engine.call_ended(call, result, self.now))

    def unsent(self, step: int) -> None:
        self.do(self.engine.ended(step, UNSENT, self.now))
