"""A model of the server behind an endpoint: how its speed depends on concurrent requests.

It is egalitarian processor sharing with a limit, behind a queue:

* At most `slots` requests run at once; more wait, first come, first served.
* With `n` running, each has `share(n) = min(1, full / n)` of the speed of a single request: a server that gives one
  request at most `cap` tokens a second, and all together `rate`, has `full = rate / cap`. With a `power` the speed is
  `share(n) ** power`: below 1 more requests at once still gain throughput, above 1 they lose some.
* Reading the prompt is part of that work (`reads_beside`), or takes a time that does not depend on the load.

A *constant* server has neither slots nor `full`. The work of a request is the time it would take alone: `work =
integral of share(n(t)) dt`. A simulation inverts this by one clock of service (`Serving`), so a recorded run, simulated
unchanged, takes its recorded time under every model.

Source: Kleinrock, "Time-shared Systems: a theoretical treatment", 1967 (processor sharing); Cohen, "The multiple phase
service network with generalized processor sharing", 1979 (a speed per number of requests).
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from agent_magic.declare.units import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

K = TypeVar("K")
NEVER: Final = math.inf
HELD: Final = 0.1
"""If requests lose more than this share of their time to others, the server limits them."""


class Server(NamedTuple):
    """A model of a server, its limits infinite if there are none; `reads_beside` if prompts share the time."""

    slots: float = NEVER
    full: float = NEVER
    reads_beside: bool = True
    power: float = 1.0

    @property
    def is_constant(self) -> bool:
        return self.slots == NEVER == self.full

    def share(self, running: int) -> float:
        return 1.0 if running <= self.full else (self.full / running) ** self.power


CONSTANT: Final = Server()


class Needs(NamedTuple):
    """The work of a request, in seconds alone: until its first token, and after it."""

    before_s: float
    after_s: float


At = tuple[str, str]
"""An endpoint, its name empty if there is one, and a model class."""
NO_NEEDS: Final = Needs(0.0, 0.0)


class Held(NamedTuple):
    """What requests lost to others at a server; the seconds are those of `Serving`."""

    model: Server
    queued_s: float
    slowed_s: float
    busy_s: float


def limit_of(servers: Iterable[Held | Serving[Any]]) -> str:
    busiest = max(servers, key=attrgetter("busy_s"), default=None)
    if busiest is None or busiest.queued_s + busiest.slowed_s <= HELD * busiest.busy_s:
        return ""
    return limit_words(busiest.model, queued=busiest.queued_s >= busiest.slowed_s)


def limit_words(model: Server, *, queued: bool | None = None) -> str:
    """Name a busy server's slots or its shared speed; `queued=None` if its slots are all in use."""
    if model.slots < NEVER and (model.slots <= model.full if queued is None else queued):
        return f"the server ({plural(int(model.slots), 'slot')})"
    return "the server's speed"


def words_of(model: Server) -> str:
    slots = "" if model.slots == NEVER else plural(int(model.slots), "slot")
    shared = "" if model.full == NEVER else f"one speed for all, full for {model.full:.2g} at once"
    return f"the server has {' and '.join(filter(None, (slots, shared)))}" if slots or shared else ""


class Serving(Generic[K]):
    """A server at work: takes requests, and returns when the next answer begins or ends."""

    def __init__(self, model: Server) -> None:
        self.model = model
        self.queued_s = self.slowed_s = self.busy_s = 0.0
        self._at_s = self._served = 0.0
        self._speed, self._running = 1.0, 0
        self._waiting: dict[K, Needs] = {}
        self._inside: dict[K, tuple[bool, float]] = {}  # whether it answers, and when that part of it is over
        self._shared: list[tuple[float, int, K, bool]] = []  # ends by the clock of service
        self._reading: list[tuple[float, int, K, bool]] = []  # ends by the time
        self._after: dict[K, float] = {}
        self._serial = 0

    def join(self, key: K, work: Needs, now: float) -> None:
        self._turn(now)
        if len(self._inside) < self.model.slots:
            self._begin(key, work)
        else:
            self._waiting[key] = work

    def leave(self, key: K, now: float) -> None:
        self._turn(now)
        if self._waiting.pop(key, None) is None and key in self._inside:
            self._free(key)

    def left(self, key: K, now: float) -> float:
        """Return the share of an answer that has not arrived."""
        self._turn(now)
        answers, until = self._inside.get(key, (False, 0.0))
        after_s = self._after.get(key, 0.0)
        return min(1.0, max(0.0, (until - self._served) / after_s)) if answers and after_s > 0 else 1.0

    def until_s(self, key: K, now: float) -> float:
        return now + self.left(key, now) * self._after.get(key, 0.0) / self._speed

    def next_s(self) -> float:
        for heap in (self._shared, self._reading):
            while heap and self._inside.get(heap[0][2]) != (heap[0][3], heap[0][0]):
                heappop(heap)
        return min(self._reading[0][0] if self._reading else NEVER, self._shared_s())

    def _shared_s(self) -> float:
        return self._at_s + max(0.0, self._shared[0][0] - self._served) / self._speed if self._shared else NEVER

    def pop(self, now: float) -> tuple[K, bool]:
        """Return the request of the next event, which is due, and whether it has ended."""
        # `now` may be rounded: `next_s` decides the next, not the rounded time.
        heap = self._reading if self._reading and self._reading[0][0] <= self._shared_s() else self._shared
        self._turn(now)
        until, _, key, answers = heappop(heap)
        if heap is self._shared:
            self._served = max(self._served, until)
        if answers:
            self._free(key)
        else:
            if heap is self._reading:
                self._count(1)
            self._go_on(key, self._served + self._after[key], answers=True)
        return key, answers

    def _turn(self, now: float) -> None:
        if now > self._at_s:
            passed_s = now - self._at_s
            if self._running:
                self._served += passed_s * self._speed
                self.slowed_s += passed_s * self._running * (1.0 - self._speed)
            self.queued_s += passed_s * len(self._waiting)
            self.busy_s += passed_s * (len(self._inside) + len(self._waiting))
            self._at_s = now

    def _count(self, change: int) -> None:
        self._running += change
        self._speed = self.model.share(self._running)

    def _begin(self, key: K, work: Needs) -> None:
        self._after[key] = work.after_s
        if work.before_s > 0 and not self.model.reads_beside:
            self._serial += 1
            until_s = self._at_s + work.before_s
            self._inside[key] = False, until_s
            heappush(self._reading, (until_s, self._serial, key, False))
            return
        self._count(1)
        self._go_on(key, self._served + work.before_s, answers=False)

    def _go_on(self, key: K, until: float, *, answers: bool) -> None:
        self._serial += 1
        self._inside[key] = answers, until
        heappush(self._shared, (until, self._serial, key, answers))

    def _free(self, key: K) -> None:
        answers, _ = self._inside.pop(key)
        if answers or self.model.reads_beside or not any(one[2] == key for one in self._reading):
            self._count(-1)
        del self._after[key]
        if self._waiting and len(self._inside) < self.model.slots:
            other = next(iter(self._waiting))
            self._begin(other, self._waiting.pop(other))


def shortest_s(
    works: Sequence[Needs],
    parents: Sequence[Sequence[int]],
    concurrency: int,
    model: Server,
    elsewhere: Collection[int] = (),
) -> float:
    """Return the duration of requests that are sent as soon as their parents end, without other limits.

    The speed of requests `elsewhere` does not depend on the load.
    """
    shared, constant, now = Serving[int](model), Serving[int](CONSTANT), 0.0
    children: list[list[int]] = [[] for _ in works]
    lacking = [len(each) for each in parents]
    for child, each in enumerate(parents):
        for parent in each:
            children[parent].append(child)
    ready = [number for number, count in enumerate(lacking) if not count]
    under_way = 0
    while ready or under_way:
        while ready and under_way < concurrency:
            number = heappop(ready)
            (constant if number in elsewhere else shared).join(number, works[number], now)
            under_way += 1
        serving = constant if elsewhere and constant.next_s() < shared.next_s() else shared
        now = serving.next_s()
        number, over = serving.pop(now)
        if over:
            under_way -= 1
            for child in children[number]:
                lacking[child] -= 1
                if not lacking[child]:
                    heappush(ready, child)
    return now
