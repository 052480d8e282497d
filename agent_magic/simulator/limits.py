"""The limits of a server: of an account by pool of models (rate limits), and of a machine (slots and shared speed).

A pool has three buckets: requests, uncached input tokens, output tokens. `max_tokens` is not reserved: a request is
admitted while any output is left. A rejected request takes nothing. Default limits are those of the published Start
tier, with buckets of one minute; an explicit limit has a bucket of one second. Source: the vendor's page on rate
limits.

A self-hosted server has a few slots, a speed shared by all of them, and a queue, first come, first served. Each of `n`
writing requests gets `min(cap, shared_rate / n)` tokens a second (processor sharing). `Station` keeps one clock for
all, in tokens that each of them has received.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush

PREFIX = "anthropic-ratelimit"


class Bucket:
    """A token bucket: it holds up to `capacity`, refills at `per_minute / 60` per second, and may go into debt.

    An amount above the capacity passes when the bucket is full, and the rest is owed.
    """

    __slots__ = ("_at_s", "_level", "capacity", "per_minute")

    def __init__(self, per_minute: float, capacity: float, now_s: float = 0.0) -> None:
        self.per_minute = per_minute
        self.capacity = max(1.0, capacity)
        self._level = self.capacity
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        passed_s = max(0.0, now_s - self._at_s)
        return min(self.capacity, self._level + passed_s * self.per_minute / 60)

    def take(self, amount: float, now_s: float) -> None:
        self._level = self.level(now_s) - amount
        self._at_s = max(self._at_s, now_s)

    def wait_s(self, amount: float, now_s: float) -> float:
        """Return seconds until a request fits; above the capacity, until the bucket is full."""
        missing = min(amount, self.capacity) - self.level(now_s)
        return max(0.0, missing * 60 / self.per_minute)

    def full_in_s(self, now_s: float) -> float:
        return (self.capacity - self.level(now_s)) * 60 / self.per_minute


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit per minute, and its burst in seconds."""

    per_minute: float
    burst_s: float = 60.0

    def bucket(self, now_s: float) -> Bucket:
        return Bucket(self.per_minute, self.per_minute * self.burst_s / 60, now_s)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a pool."""

    requests: Limit
    input_tokens: Limit
    output_tokens: Limit


START_TIER = Limits(Limit(1_000), Limit(2_000_000), Limit(400_000))
START_TIER_FABLE = Limits(Limit(1_000), Limit(500_000), Limit(100_000))


@dataclass(frozen=True, slots=True)
class Allowance:
    """Requested limits; `None`: the Start tier, with buckets of 60 s."""

    rpm: float | None = None
    itpm: float | None = None
    otpm: float | None = None
    burst_s: float = 1.0
    unlimited: bool = False

    def limits(self, pool: str) -> Limits:
        tier = START_TIER_FABLE if pool.startswith(("fable", "mythos")) else START_TIER

        def limit(given: float | None, usual: Limit) -> Limit:
            return usual if given is None else Limit(given, self.burst_s)

        return Limits(
            limit(self.rpm, tier.requests), limit(self.itpm, tier.input_tokens), limit(self.otpm, tier.output_tokens)
        )


START_TIER_ALLOWANCE = Allowance()


@dataclass(frozen=True, slots=True)
class Denial:
    """The exceeded limit, and the whole seconds until the request may pass."""

    limit: str
    per_minute: int
    retry_after_s: int


class Pool:
    """The buckets of one pool of models."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self.requests = limits.requests.bucket(now_s)
        self.input_tokens = limits.input_tokens.bucket(now_s)
        self.output_tokens = limits.output_tokens.bucket(now_s)

    def admit(self, input_tokens: int, now_s: float) -> Denial | None:
        """Return the limit with the longest wait, if any."""
        waits = (
            (self.requests.wait_s(1, now_s), "requests", self.requests),
            (self.input_tokens.wait_s(input_tokens, now_s), "input tokens", self.input_tokens),
            (self.output_tokens.wait_s(1, now_s), "output tokens", self.output_tokens),
        )
        wait_s, words, bucket = max(waits, key=lambda each: each[0])
        if wait_s > 0:
            return Denial(f"{words} per minute", int(bucket.per_minute), max(1, math.ceil(wait_s)))
        self.requests.take(1, now_s)
        self.input_tokens.take(input_tokens, now_s)
        return None

    def headers(self, now_s: float, now: datetime) -> dict[str, str]:
        """Return headers; `now` is the moment of `now_s` as a date, for `reset`."""
        rows = {
            "requests": (self.requests,),
            "tokens": (self.input_tokens, self.output_tokens),
            "input-tokens": (self.input_tokens,),
            "output-tokens": (self.output_tokens,),
        }
        found: dict[str, str] = {}
        for name, buckets in rows.items():
            left = sum(max(0.0, bucket.level(now_s)) for bucket in buckets)
            full_s = max(bucket.full_in_s(now_s) for bucket in buckets)
            found[f"{PREFIX}-{name}-limit"] = str(int(sum(bucket.per_minute for bucket in buckets)))
            found[f"{PREFIX}-{name}-remaining"] = str(int(left) if name == "requests" else round(left / 1000) * 1000)
            reset = datetime.fromtimestamp(math.ceil(now.timestamp() + full_s), UTC)  # never too early
            found[f"{PREFIX}-{name}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
        return found


class Quota:
    """The pools of one organisation."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._pools: dict[str, Pool] = {}

    def pool(self, name: str, now_s: float) -> Pool | None:
        """Return `None` if unlimited."""
        if self._allowance.unlimited:
            return None
        if name not in self._pools:
            self._pools[name] = Pool(self._allowance.limits(name), now_s)
        return self._pools[name]

    def reset(self) -> None:
        self._pools.clear()


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a server, in tokens per second; by default requests do not slow each other.

    `prompt_rate` are input tokens read by an otherwise idle server; without it a prompt is read within the time to the
    first token, at any load.
    """

    slots: float = math.inf
    shared_rate: float = math.inf
    cap: float = math.inf
    prompt_rate: float | None = None

    @property
    def is_unlimited(self) -> bool:
        return self.slots == math.inf == self.shared_rate

    @property
    def is_paced(self) -> bool:
        """True if it sets the tokens a second of requests. With slots alone, each has its own pace."""
        return self.pace(1) < math.inf

    def pace(self, writing: int) -> float:
        return min(self.cap, self.shared_rate / max(1, writing))

    def read(self, input_tokens: int) -> float:
        """Return how many output tokens could be written while a prompt is read."""
        return 0.0 if not self.prompt_rate else input_tokens / self.prompt_rate * self.pace(1)


class Station:
    """The slots and the clock of a server."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._queue: deque[asyncio.Future[None]] = deque()
        self._inside = self._writing = 0
        self._tokens, self._at_s = 0.0, time.monotonic()
        self._goals: list[tuple[float, int, asyncio.Future[None]]] = []
        self._serial = 0
        self._alarm: asyncio.TimerHandle | None = None

    async def enter(self) -> None:
        if self._inside < self.capacity.slots:
            self._inside += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it had got the slot in the meantime
            else:
                self._queue.remove(turn)
            raise

    def leave(self) -> None:
        if self._queue:
            self._queue.popleft().set_result(None)
        else:
            self._inside -= 1

    def begin(self) -> float:
        """Start writing and return the clock, in tokens."""
        self._turn()
        self._writing += 1
        self._set_alarm()
        return self._tokens

    def end(self) -> None:
        self._turn()
        self._writing -= 1
        self._set_alarm()

    def now(self) -> float:
        self._turn()
        return self._tokens

    async def until(self, tokens: float) -> None:
        """Wait until this many tokens are written; only for a request that is writing."""
        self._turn()
        if tokens <= self._tokens:
            return
        goal = asyncio.get_running_loop().create_future()
        self._serial += 1
        heappush(self._goals, (tokens, self._serial, goal))
        self._set_alarm()
        await goal

    def _turn(self) -> None:
        now_s = time.monotonic()
        if self._writing:
            self._tokens += (now_s - self._at_s) * self.capacity.pace(self._writing)
        self._at_s = now_s

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._goals and self._goals[0][2].done():  # the waiting request is gone
            heappop(self._goals)
        if self._goals and self._writing:
            wait_s = (self._goals[0][0] - self._tokens) / self.capacity.pace(self._writing)
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, wait_s), self._ring)

    def _ring(self) -> None:
        self._turn()
        while self._goals and self._goals[0][0] <= self._tokens + 1e-6:
            _, _, goal = heappop(self._goals)
            if not goal.done():
                goal.set_result(None)
        self._alarm = None
        self._set_alarm()
