"""A rate-limited server and its clients on a virtual clock, for the benchmark and the tests of the pacer.

The server is that of the mock server: token buckets of a capacity the client is not told, integer `retry-after`, the
documented headers. A refused request takes nothing. Output is counted when the answer is done, or as it is produced.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from random import Random
from typing import Literal, Protocol

from agent_magic.engine.admission.pool import Key
from agent_magic.engine.contract import Hold
from agent_magic.engine.pacing.class_pacer import Ticket
from agent_magic.engine.pacing.pacer import Pacer
from agent_magic.engine.retry import FIRST_BACKOFF_S
from agent_magic.providers.anthropic.errors import read_headers
from agent_magic.providers.responses import retry_after_s
from agent_magic.simulator.limits import Bucket, Limit, Limits, Pool

EPOCH_S = 1_790_000_000.37
MODEL = "claude-sonnet-5-5"
UNLIMITED = 1e9
OK, REFUSED = 200, 429
STEPS = 10
"""In how many parts a streamed answer is counted."""
Kind = Literal["requests", "input", "output"]


@dataclass(frozen=True, slots=True)
class Job:
    """One request: what the server counts, and what the client believes."""

    number: int
    input_tokens: int
    output_tokens: int
    latency_s: float
    believed_input: int
    believed_output: int = 500

    def cost(self, kind: Kind) -> int:
        """What it takes of a limit."""
        return {"requests": 1, "input": self.input_tokens, "output": self.output_tokens}[kind]


@dataclass(frozen=True, slots=True)
class Secret:
    """A limit of requests that is enforced besides, and not announced; where it is `bare`, in front of the server."""

    rpm: float
    capacity_s: float = 1.0
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """How the server limits and tells.

    Attributes:
        rpm: Requests per minute.
        itpm: Input tokens per minute.
        otpm: Output tokens per minute.
        capacity_s: Seconds' worth of each limit that its bucket holds.
        headers: When they are computed: when the response begins, when the request is let in, or never.
        first_byte: When the response begins, as a share of the latency.
        streamed: Whether output is counted as it is produced, not at the end.
        wire_s: The least and the most time a message is under way.
        secret: A limit that no header tells.
        stray: The part of the requests that is refused for no reason, with a `retry-after` of 1.
        stray_told: Whether such a refusal has the headers of limits too, which then have room; else nothing else.
        slots: How many requests may be under way at once; 0 is any number.
        wait: What a refusal says as `retry-after`: what is true, nothing, or always the same.
        windows: Whether requests are counted by the minute of the clock, as small gateways do.
    """

    rpm: float = UNLIMITED
    itpm: float = UNLIMITED
    otpm: float = UNLIMITED
    capacity_s: float = 1.0
    headers: Literal["response", "admission", "none"] = "response"
    first_byte: float = 0.3
    streamed: bool = False
    wire_s: tuple[float, float] = (0.002, 0.010)
    secret: Secret | None = None
    stray: float = 0.0
    stray_told: bool = False
    slots: int = 0
    wait: Literal["true"] | float | None = "true"
    windows: bool = False


@dataclass
class Result:
    """What one client got. All times are the server's, but `sent` and `refused`, which are the client's.

    `longest_s` is the longest time from the first request for a job to its answer.
    """

    admitted: list[tuple[float, Job]] = field(default_factory=list)
    landed: list[tuple[float, int]] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    first_s: float = math.inf
    failed: int = 0
    left: int = 0
    longest_s: float = 0.0

    def share(self, kind: Kind, per_minute: float, after_s: float | None = None, until_s: float | None = None) -> float:
        """Return what was got per time of what the limit gives, by default from the first answer on.

        Output cannot be counted before it is produced: its time begins a second later.
        """
        ramp_s = 1.0 if kind == "output" else 0.0
        first = self.first_s + ramp_s if after_s is None else after_s
        last = max(at for at, _ in self.admitted) if until_s is None else until_s
        if kind == "output":
            got = sum(tokens for at, tokens in self.landed if first < at <= last)
        else:
            got = sum(job.cost(kind) for at, job in self.admitted if first < at <= last)
        return got * 60 / (per_minute * (last - first))

    def busy(self, slots: int) -> float:
        """Return how much of so many places was used, from the start to the last request let in."""
        last = max(at for at, _ in self.admitted)
        return sum(min(job.latency_s, last - at) for at, job in self.admitted) / (slots * last)

    def refused_share(self, after_s: float = 0.0) -> float:
        """Return the part of the requests that was answered 429, of those since a time."""
        return sum(at >= after_s for at in self.refused) / max(1, sum(at >= after_s for at in self.sent))

    def overtaken(self, large: int) -> int:
        """Return the most requests that were queued behind a large one and let in before it."""
        worst, behind = 0, [job.number for _, job in self.admitted]
        for place, (_, job) in enumerate(self.admitted):
            if job.input_tokens >= large:
                worst = max(worst, sum(number > job.number for number in behind[:place]))
        return worst


class Receiver(Protocol):
    """Whoever is told what became of a request."""

    result: Result

    def heard(self, job: Job, headers: Mapping[str, str]) -> None:
        """Take in that the response begins."""

    def done(self, job: Job) -> None:
        """Take in that the response is complete."""

    def refused(self, job: Job, headers: Mapping[str, str]) -> None:
        """Take in a 429."""


class World:
    """Turns one server and any number of clients."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.random = server, Random(seed)
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        limits = Limits(*(Limit(each, server.capacity_s) for each in (server.rpm, server.itpm, server.otpm)))
        self.pool = Pool(limits, 0.0)
        secret = server.secret
        self._secret = Bucket(secret.rpm, secret.rpm * secret.capacity_s / 60) if secret else None
        self._under_way = 0
        self._minute, self._passed = -1, 0

    def later(self, at_s: float, call: Callable[[], None]) -> None:
        """Call at a time."""
        self._serial += 1
        heapq.heappush(self._heap, (at_s, self._serial, call))

    def run(self, until_s: float = math.inf) -> None:
        """Turn until nothing is left to do, or until a time."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now, _, call = heapq.heappop(self._heap)
            call()

    def request(self, job: Job, client: Receiver) -> None:
        """Send. The client is told of `heard`, then `done`, or of `refused`."""
        client.result.sent.append(self.now)
        self._after_wire(partial(self._arrive, job, client))

    def headers(self) -> dict[str, str]:
        """Return the limit headers of this moment."""
        if self.server.headers == "none":
            return {}
        return self.pool.headers(self.now, datetime.fromtimestamp(EPOCH_S + self.now, UTC))

    def date(self) -> dict[str, str]:
        """Return the `date` header of this moment."""
        return {"date": format_datetime(datetime.fromtimestamp(int(EPOCH_S + self.now), UTC), usegmt=True)}

    def _after_wire(self, call: Callable[[], None]) -> None:
        self.later(self.now + self.random.uniform(*self.server.wire_s), call)

    def _arrive(self, job: Job, client: Receiver) -> None:
        stray = self.server.stray and self.random.random() < self.server.stray
        wait_s = 1 if stray else self._admit(job)
        if wait_s:
            secret = self.server.secret
            bare = not self.server.stray_told if stray else secret is not None and secret.bare
            said = wait_s if self.server.wait == "true" else self.server.wait
            wait = {} if said is None else {"retry-after": str(said)}
            headers = {**({} if bare else self.headers()), **self.date(), **wait}
            self._after_wire(partial(client.refused, job, headers))
            return
        client.result.admitted.append((self.now, job))
        self._under_way += 1
        begin_s = self.now + job.latency_s * self.server.first_byte
        self.later(begin_s, partial(self._begin, job, client, self.headers()))
        if self.server.streamed:
            step_s = job.latency_s * (1 - self.server.first_byte) / STEPS
            for step in range(STEPS):
                part = job.output_tokens * (step + 1) // STEPS - job.output_tokens * step // STEPS
                self.later(begin_s + step_s * (step + 1), partial(self._land, client, part))
        self.later(self.now + job.latency_s, partial(self._end, job, client))

    def _admit(self, job: Job) -> int:
        """Let a request in, or return the seconds it has to wait."""
        if self.server.slots and self._under_way >= self.server.slots:
            return 1
        if self.server.windows:
            return self._in_this_minute()
        if self._secret is not None and (hidden_s := self._secret.wait_s(1, self.now)):
            return math.ceil(hidden_s)
        denial = self.pool.admit(job.input_tokens, self.now)
        if denial is None and self._secret is not None:
            self._secret.take(1, self.now)
        return denial.retry_after_s if denial else 0

    def _in_this_minute(self) -> int:
        minute, second = divmod(self.now, 60)
        if minute != self._minute:
            self._minute, self._passed = minute, 0
        if self._passed >= self.server.rpm:
            return math.ceil(60 - second)
        self._passed += 1
        return 0

    def _begin(self, job: Job, client: Receiver, early: dict[str, str]) -> None:
        headers = {**(early if self.server.headers == "admission" else self.headers()), **self.date()}
        self._after_wire(partial(client.heard, job, headers))

    def _land(self, client: Receiver, tokens: int) -> None:
        self.pool.output_tokens.take(tokens, self.now)
        client.result.landed.append((self.now, tokens))

    def _end(self, job: Job, client: Receiver) -> None:
        self._under_way -= 1
        if not self.server.streamed:
            self._land(client, job.output_tokens)
        self._after_wire(partial(client.done, job))


class Paced:
    """Sends its jobs in order through a pacer, as a session's first run does.

    The first of the queue is asked for, no other. The very first request goes ahead alone until its reply begins. A
    refused request comes back after the wait it was told, or half a second, as an agent of a run does. At most `most`
    are under way; 0 is any number.
    """

    def __init__(
        self, world: World, jobs: list[Job], pacer: Pacer, *, attempts: int = 3, queue: int = 0, most: int = 0
    ) -> None:
        self.world, self.pacer, self.attempts, self.queue, self.most = world, pacer, attempts, queue, most
        self.result = Result(left=len(jobs))
        self._jobs = deque(jobs)
        self._key = Key()
        self._tickets: dict[int, Ticket] = {}
        self._tries: dict[int, int] = {}
        self._began_s: dict[int, float] = {}
        self._alarm_s = math.inf
        world.later(world.now, self.pump)

    def add(self, jobs: list[Job]) -> None:
        """Have more to send."""
        self.result.left += len(jobs)
        self._jobs.extend(jobs)
        self.pump()

    def pump(self) -> None:
        """Send what may leave now."""
        now = self.world.now
        if self._alarm_s <= now:
            self._alarm_s = math.inf
        while self._jobs and not (self.most and len(self._tickets) >= self.most):
            job = self._jobs[0]
            if not self._key.accepted and (until_s := self._key.wait_until_s(now)) is not None:
                self._wake(until_s)
                return
            got = self.pacer.ask(MODEL, job.believed_input, job.believed_output, now, queue=self.queue)
            if isinstance(got, Hold):
                self._wake(got.until_s)
                return
            self._key.left(now)
            self._jobs.popleft()
            self._tickets[job.number] = got
            self._tries[job.number] = self._tries.get(job.number, 0) + 1
            self._began_s.setdefault(job.number, now)
            self.world.request(job, self)

    def _wake(self, until_s: float) -> None:
        if until_s < self._alarm_s:
            self._alarm_s = max(until_s, self.world.now + 1e-4)
            self.world.later(self._alarm_s, self.pump)

    def heard(self, job: Job, headers: Mapping[str, str]) -> None:
        """Take in that the response begins."""
        self.result.first_s = min(self.result.first_s, self.world.now)
        self._key.replied(OK)
        if job.number in self._tickets:  # a slow wire may deliver the end first
            self.pacer.heard(self._tickets[job.number], read_headers(headers), self.world.now)
            self.pump()

    def done(self, job: Job) -> None:
        """Take in that the response is complete."""
        self.result.left -= 1
        self.result.longest_s = max(self.result.longest_s, self.world.now - self._began_s[job.number])
        self.pacer.finished(self._tickets.pop(job.number), job.input_tokens, job.output_tokens, self.world.now)
        self.pump()

    def refused(self, job: Job, headers: Mapping[str, str]) -> None:
        """Take in a 429."""
        self.result.refused.append(self.world.now)
        self._key.replied(REFUSED)
        ticket, wait_s = self._tickets.pop(job.number), retry_after_s(headers)
        self.pacer.refused(ticket, wait_s, None, self.world.now, read_headers(headers))
        if self._tries[job.number] >= self.attempts:
            self.result.failed += 1
            self.result.left -= 1
        else:
            own_s = max(FIRST_BACKOFF_S, wait_s or 0.0)
            self.world.later(self.world.now + own_s, partial(self._again, job))
        self.pump()

    def _again(self, job: Job) -> None:
        self._jobs.appendleft(job)
        self.pump()


class Naive:
    """What people write: so many at once, each sleeps as long as it is told and tries again."""

    def __init__(self, world: World, jobs: list[Job], *, slots: int, attempts: int = 3) -> None:
        self.world, self.attempts = world, attempts
        self.result = Result(left=len(jobs))
        self._jobs = deque(jobs)
        self._tries: dict[int, int] = {}
        for _ in range(min(slots, len(jobs))):
            world.later(world.now, self._next)

    def send(self, job: Job) -> None:
        """Send one."""
        self._tries[job.number] = self._tries.get(job.number, 0) + 1
        self.world.request(job, self)

    def _next(self) -> None:
        if self._jobs:
            self.send(self._jobs.popleft())

    def heard(self, job: Job, headers: Mapping[str, str]) -> None:
        """Take in that the response begins."""
        self.result.first_s = min(self.result.first_s, self.world.now)

    def done(self, job: Job) -> None:
        """Take in that the response is complete."""
        self.result.left -= 1
        self._next()

    def refused(self, job: Job, headers: Mapping[str, str]) -> None:
        """Take in a 429."""
        self.result.refused.append(self.world.now)
        if self._tries[job.number] < self.attempts:
            self.world.later(self.world.now + float(headers.get("retry-after", 1)), partial(self.send, job))
            return
        self.result.failed += 1
        self.result.left -= 1
        self._next()


def draw(
    count: int,
    random: Random,
    *,
    inputs: tuple[float, float] = (300, 0.3),
    outputs: tuple[float, float] = (280, 0.6),
    latency: tuple[float, float] = (0.8, 0.6),
    large: float = 0.0,
    large_input: int = 0,
    believed_output: int = 500,
) -> list[Job]:
    """Draw requests.

    Args:
        count: How many.
        random: The source.
        inputs: Median and sigma of lognormal input tokens. The client believes a quarter more, give or take 10 %.
        outputs: Median and sigma of output tokens.
        latency: Median and sigma of seconds.
        large: The share of requests with a large input.
        large_input: How large, give or take a fifth.
        believed_output: What the client expects of each.
    """
    found: list[Job] = []
    for number in range(count):
        size = max(1, int(inputs[0] * math.exp(random.gauss(0, inputs[1]))))
        if random.random() < large:
            size = int(large_input * random.uniform(0.8, 1.2))
        made = max(1, int(outputs[0] * math.exp(random.gauss(0, outputs[1]))))
        believed = int(size * 1.25 * math.exp(random.gauss(0, 0.1))) + 1
        seconds = latency[0] * math.exp(random.gauss(0, latency[1]))
        found.append(Job(number, size, made, seconds, believed, believed_output))
    return found
