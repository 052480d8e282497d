"""The number of requests a server runs at once, if it silently refuses more."""

from __future__ import annotations

import math
from typing import Final

from agent_magic.engine.contract import Hold
from agent_magic.engine.pacing.bucket import Ratio

AGREES: Final = math.log(0.9 / 0.1)
"""Log odds of a refusal with the full number under way. Such a server refuses it nearly always; one with a rate limit
has no reason to do so just then."""
PASSES: Final = math.log(0.2 / 0.9)
"""A request admitted beyond the number: only a slot freed on the way explains it."""
PASSES_SURE: Final = PASSES / 5
"""The same, once the limit is known: it was probably raised, which lets many in."""
DIFFERS: Final = math.log(0.0005 / 0.05)
"""A refusal with fewer under way: of a rate, of chance, or of a limit that was lowered."""
SURE: Final = 6.0
"""Three refusals that agree."""
LEAST: Final = -1.0
"""Below these odds it is no such limit."""
MOST: Final = 9.0
"""So that learned limits can be unlearned."""
NEAR: Final = 1
FEW: Final = 8
"""Requests and answers overtake each other on the wire: counts may be off by one, and one more per this number."""
LEAST_WIRE: Final = 0.02
MOST_WIRE: Final = 0.5
"""The share of a request's time on the wire from which counts are off by more than that, and its maximum."""
FIRST_PROBE_S: Final = 0.8
LONGER: Final = 5.0
LONGEST_PROBE_S: Final = 60.0
"""The longest time after which one more than the limit is tried; each try costs a refusal."""
EVERY: Final = 150
"""Requests between probes, once the limit is sure."""
UNSURE_S: Final = 2.5
"""A limit that is not confirmed within this time is dropped."""
DOUBLE_S: Final = 0.5
"""Meanwhile requests go at their earlier pace, doubled after each such time, until the limit or a rate refuses one."""
SILENT_S: Final = 0.3
"""Seconds without a refusal after which a request was admitted."""
NEXT_S: Final = 0.05


class Concurrency:
    """Distinguishes a limit of concurrent requests from a rate limit by their odds, and keeps it.

    Refusals at the number left by the first refusal are evidence for it; refusals below it and admissions above it are
    evidence against it.
    """

    def __init__(self) -> None:
        self.limit, self.kept = 0, False
        self._odds = 0.0
        self._sent, self._fresh = 0, False
        self._lately = self._began_s = 0.0  # how fast requests were admitted, and when the first pause is over
        self._grown = self._sunk = 0
        self._probe_s, self._step_s = 0.0, FIRST_PROBE_S
        self._probed_s: float | None = None
        self._cut_s = -1.0  # when a refusal last came
        self._took, self._wire = Ratio(0.0, 0.0), Ratio(0.0, 0.0)  # seconds of answers, and of refusals: there and back

    @property
    def is_sure(self) -> bool:
        return self.limit > 0 and self._odds >= SURE

    @property
    def learned(self) -> tuple[float, ...]:
        """The limit, its log odds and the seconds of answers and refusals; empty while unsure."""
        known = self.is_sure and self._took.expected
        return (self.limit, self._odds, *self._took.sums, *self._wire.sums) if known else ()

    def recall(self, learned: tuple[float, ...]) -> None:
        limit, self._odds, *sums = learned
        self.limit, self.kept = int(limit), True
        self._took.recall(*sums[:2])
        self._wire.recall(*sums[2:])

    def hold(self, under_way: int, now: float) -> Hold | None:
        if not self.kept:
            return None
        if not self.is_sure and now >= self._probe_s + UNSURE_S:
            self._drop()
            return None
        if self._probed_s is not None and now - self._probed_s >= SILENT_S:
            self.let_in(self.limit + 1, self._probed_s, now)
        if not self.kept or under_way < self.limit:
            return None
        if self._probed_s is not None:
            until_s = self._probed_s + SILENT_S
        elif self.is_sure and self._sent < EVERY:
            until_s = now + LONGEST_PROBE_S  # an answer makes room earlier
        else:
            until_s = self._probe_s
        return Hold("concurrent", until_s) if now < until_s else None

    def step_s(self, now: float) -> float:
        if self.is_sure or not self.kept or not self._lately:
            return 0.0
        return float(2 ** -max(0.0, (now - self._began_s) / DOUBLE_S) / self._lately)

    def sent(self, under_way: int, now: float) -> None:
        self._sent += 1
        if self.limit and under_way > self.limit:
            self._probed_s = now

    def let_in(self, under_way: int, sent_s: float, now: float) -> None:
        # Requests sent before a refusal may have been counted with the refused one.
        if not self.limit or under_way <= self.limit or sent_s <= self._cut_s:
            return
        self._grown += 1
        if self._grown > self._slack:
            self._weigh(PASSES_SURE if self.is_sure else PASSES)
        self.limit += self.limit > 0
        self._probed_s, self._step_s = None, FIRST_PROBE_S
        self._probe_s = max(now + NEXT_S, sent_s + SILENT_S)  # as long as one waits for an answer that is slow

    def answered(self, took_s: float) -> None:
        self._took.add(1.0, took_s)

    def refused(
        self, before: int, left: int, now: float, *, sent_s: float, first: bool, wait_s: float, lately: float
    ) -> bool:
        """Return whether a refusal is of this limit.

        Other requests under way were `before` at its sending and are `left` now; `first` of its episode; `lately`
        admitted per second.
        """
        self._cut_s, there = now, max(before, left)
        self._wire.add(1.0, now - sent_s)
        most = self.limit + NEAR + self.limit // FEW + self._on_wire
        if not self.limit or (first and not self.kept and there > most):
            self.limit, self._odds, self._grown, self._sunk, self._fresh = left, 0.0, 0, 0, True
            self._step_s, self._probed_s = FIRST_PROBE_S, None
            return False
        if not first:
            if self._fresh and left:
                self.limit = min(self.limit, left)
            return self.kept
        spare = self._on_wire - self._sunk if self.kept else 0
        at_least = self.limit - max(min(self._grown, self._slack), spare)
        if there >= max(1, at_least) and (self._grown or self._probed_s is not None or spare > 0):
            self._sunk += max(0, self.limit - self._grown - there)
            self._weigh(AGREES if self._grown or self._probed_s is not None else 0.0)
            if not self.kept:
                self.kept, self._lately, self._began_s = True, lately, now + wait_s
            self._sent, self._step_s = 0, min(LONGER * self._step_s, LONGEST_PROBE_S)
        elif not there and not self.is_sure:  # alone: no number is that small
            self._drop()
        else:
            is_near = self._odds <= 0 < there and there >= at_least - self._slack
            self._weigh(DIFFERS / 6 if is_near else DIFFERS)
            self._step_s = FIRST_PROBE_S
        self.limit = self.limit and min(self.limit, max(1, there))
        self._grown, self._fresh, self._probed_s, self._probe_s = 0, False, None, now + max(self._step_s, wait_s)
        return self.kept

    @property
    def _slack(self) -> int:
        return self._on_wire + (NEAR + self.limit // FEW if self.kept else 0)

    @property
    def _on_wire(self) -> int:
        """Maximum requests of the limit on the wire, by how quickly refusals come."""
        part = self._wire.value / self._took.value if self._took.used else 0.0
        if part < LEAST_WIRE:
            return 0
        usual = self.limit * min(part, MOST_WIRE)
        return int(usual + 2 * math.sqrt(usual))

    def _weigh(self, evidence: float) -> None:
        self._odds = min(MOST, self._odds + evidence)
        if self._odds < LEAST:
            self._drop()

    def _drop(self) -> None:
        self.limit, self.kept, self._odds = 0, False, 0.0
