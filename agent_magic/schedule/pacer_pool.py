"""The pacing of one model class: three buckets, a pace, and a window while nothing is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from agent_magic.schedule.limits import DIMENSIONS, Dimension, Limits, Reading, read_headers
from agent_magic.schedule.pacer_bucket import Bucket
from agent_magic.schedule.pacer_output import Output

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

Reason = Literal["requests", "input", "output", "backoff", "slot"]

FIRST_WINDOW: Final = 8
"""Requests under way before the first answer."""
LEAST_PACE: Final = 0.05
MOST_PACE: Final = 8.0
SPREAD_S: Final = 0.05
"""A request that wakes up late may be made up for within this time, no longer."""
LONGEST_STEP_S: Final = 0.1
"""The pace keeps requests from leaving together. That a large one has room is the bucket's business."""
POLL_S: Final = 0.25
GATE_S: Final = 1.0
"""How long to wait after a refusal that does not say."""
JITTER: Final = 0.1
RECENT: Final = 0.97
"""What an answer's weight is multiplied with at every later answer, in what is learned from answers."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Not now.

    Attributes:
        reason: What holds the request.
        until_s: When to ask again. Asking at every answer is useful too: it may bring more room than expected.
    """

    reason: Reason
    until_s: float


class Ticket:
    """Leave to send one request now. Give it back by `finished` or `refused`, whatever happens."""

    __slots__ = ("asked", "doubt", "heard", "input", "marks", "open", "output", "pool", "sent_s", "spent")

    def __init__(self, pool: Pool, asked: tuple[int, int], taken: float, expected: float, now: float) -> None:
        self.pool, self.asked, self.input, self.output, self.sent_s = pool, asked, taken, expected, now
        self.open, self.heard = True, False
        requests, inputs, outputs = pool.buckets
        self.doubt = inputs.doubt_of(taken)
        self.marks = requests.take(1.0, now), inputs.take(taken, now), pool._out.begin(expected, now)
        self.spent = requests.spent, inputs.spent, outputs.spent


class Ratio:
    """How much more was used than was expected, learned from answers."""

    __slots__ = ("_expected", "_used", "value")

    def __init__(self, weight: float) -> None:
        self._expected = self._used = weight
        self.value = 1.0

    def add(self, expected: float, used: float) -> None:
        """Take in one answer."""
        self._expected = self._expected * RECENT + expected
        self._used = self._used * RECENT + used
        self.value = self._used / self._expected


class Pool:
    """What is known of the limits of one model class, and what is under way."""

    def __init__(self, limits: Limits, random: Random) -> None:
        self._random = random
        given = limits.requests, limits.input_tokens, limits.output_tokens
        self.buckets = (
            Bucket(1.0, given[0], limits.burst_s),
            Bucket(500.0, given[1], limits.burst_s),
            Bucket(500.0, given[2], limits.burst_s, fair=0.0, regain=1.0),
        )
        self.requests, self.input, self.output = self.buckets
        self._out = Output(self.output)
        self.known = any(limit is not None for limit in given)
        self.open = 0
        self.pace, self._ceiling, self._next_s, self._paced = 2.0, MOST_PACE, 0.0, False
        self.window, self._knee, self._pressed = float(FIRST_WINDOW), 1e9, False
        self.gate_s = self._cut_s = -1.0
        self.refusals = self.episodes = 0
        self._input_ratio, self._output_ratio = Ratio(500.0), Ratio(300.0)

    def ask(self, input_tokens: int, output_tokens: int, now: float) -> Ticket | Hold:
        """Let a request go, or say what it waits for."""
        if now < self.gate_s:
            return Hold("backoff", self.gate_s)
        if not self.known and self.open >= self.window:
            self._pressed = True
            return Hold("slot", now + POLL_S)
        taken, expected = input_tokens * self._input_ratio.value, output_tokens * self._output_ratio.value
        wait, why = 0.0, "requests"
        other = self.requests.wait_s(1.0, now)
        if other > wait:
            wait = other
        other = self.input.wait_s(taken, now)
        if other > wait:
            wait, why = other, "input"
        if self.output.rate:
            other = self._out.wait_s(expected, now)
            if other > wait:
                wait, why = other, "output"
        if self._next_s - now > wait:
            wait, self._paced = self._next_s - now, True
        if wait > 0:
            return Hold(why, now + wait)
        return self._grant(input_tokens, output_tokens, taken, expected, now)

    def _grant(self, input_tokens: int, output_tokens: int, taken: float, expected: float, now: float) -> Ticket:
        self.open += 1
        ticket = Ticket(self, (input_tokens, output_tokens), taken, expected, now)
        if self.known:
            extra = self.pace - 1.0
            step = self.requests.step_s(1.0, extra)
            other = self.input.step_s(taken, extra)
            if other > step:
                step = other
            other = self.output.step_s(expected, extra)
            if other > step:
                step = other
            if extra > 0 and step > LONGEST_STEP_S:
                step = LONGEST_STEP_S
        elif self.episodes:
            step = 0.5 * self._out.latency_s / self.window
        else:
            return ticket
        start = now - SPREAD_S
        self._next_s = (self._next_s if self._next_s > start else start) + step
        return ticket

    def heard(self, ticket: Ticket, headers: Mapping[str, str], now: float) -> None:
        readings = read_headers(headers)
        for bucket, reading, mark, spent in zip(self.buckets, readings, ticket.marks, ticket.spent, strict=True):
            if reading is not None:
                self.known = True
                bucket.read(reading, mark, spent, now=now, sent_s=ticket.sent_s)
        if readings[2] is not None:
            self._out.aim(readings[2], now)

    def finished(self, ticket: Ticket, input_tokens: int | None, output_tokens: int | None, now: float) -> None:
        self._leave(ticket)
        self._out.end(ticket.output, output_tokens, ticket.sent_s, now)
        if output_tokens is None:
            return
        if input_tokens is not None:
            self.input.correct(ticket.input - input_tokens)
            self._input_ratio.add(ticket.asked[0], input_tokens)
            self.input.missed(input_tokens, ticket.input)
        self._output_ratio.add(ticket.asked[1], output_tokens)
        self._grow(ticket)

    def _grow(self, ticket: Ticket) -> None:
        if self._pressed and not self.known:
            self.window += 1.0 if self.window < self._knee else 1.0 / self.window
            if self.open + 1 < self.window:
                self._pressed = False
        if self._paced:
            self._paced = False
            room = max(1.0, self.open)
            if self.pace < self._ceiling:
                self.pace = min(MOST_PACE, self.pace * (1 + 1 / room))
            else:
                self.pace = min(MOST_PACE, self.pace * (1 + 0.02 / room))

    def refused(
        self, ticket: Ticket, retry_after_s: float | None, limit: str | None, now: float, headers: Mapping[str, str]
    ) -> None:
        self._leave(ticket)
        self._out.undo(ticket.output, ticket.sent_s, now)
        self.requests.correct(1.0)
        self.input.correct(ticket.input)
        self.refusals += 1
        readings = read_headers(headers)
        explained = self._empty(readings, ticket, limit)
        wait = GATE_S if retry_after_s is None else retry_after_s
        first = ticket.sent_s > self._cut_s
        for dimension, bucket, reading, need in zip(DIMENSIONS, self.buckets, readings, (1.0, ticket.input, 1.0), strict=True):
            if reading is not None:
                self.known = True
            bucket.refuse(reading, now, need=need if dimension in explained else None, wait_s=wait, first=first)
        if first:
            self._cut_s = now
            self.episodes += 1
            self._cut(ramp=limit == "ramp", explained=bool(explained))
            wait += JITTER * self._random.random()
        self.gate_s = max(self.gate_s, now + wait)

    def _cut(self, *, ramp: bool, explained: bool) -> None:
        if not self.known:
            self.window = max(1.0, (self.open + 1) / 2)
            self._knee = self.window * 1.7
            return
        self._ceiling = 0.9 * self.pace
        least = 1.25 if explained and not ramp else LEAST_PACE
        self.pace = max(least, self.pace / 2)

    def _empty(self, readings: tuple[Reading | None, ...], ticket: Ticket, limit: str | None) -> set[Dimension]:
        """Name the limits that explain a refusal."""
        need = 1.0, ticket.input + 500, 500.0
        found: set[Dimension] = set()
        for dimension, reading, amount in zip(DIMENSIONS, readings, need, strict=True):
            if reading is not None and reading.remaining is not None and reading.remaining < amount:
                found.add(dimension)
        return found

    def _leave(self, ticket: Ticket) -> None:
        ticket.open = False
        self.open -= 1
        self.input.settle(ticket.doubt)
