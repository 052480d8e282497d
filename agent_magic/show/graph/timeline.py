"""The timeline under the graph: thin bars for waiting, thick ones for requests, dashes for backoff."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

from agent_magic.declare.units import time_step, time_tick
from agent_magic.record.display import single_line
from agent_magic.record.events import AgentReady, AgentReopened, AttemptEnded, AttemptStarted, CallEnded, CallStarted
from agent_magic.record.phases import phases_of
from agent_magic.record.reasons import wording
from agent_magic.show.states import tone_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.record.events import Event
    from agent_magic.record.facts import Attempt
    from agent_magic.record.results import AgentResult, RunRecord
    from agent_magic.show.graph.groups import Sheet

LEAST_WAIT_S = 0.05  # a shorter wait would be a dot
MOST_WHAT = 60
Kind = Literal["q", "b", "f", "s", "t", "1", "2", "3", "4"]
"""Initials of phases: queued, backoff, first, stream, tool; `1` to `4` of a group's peak are at work."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A span of an agent's time, still open if its end is `None`."""

    kind: Kind
    tone: str
    from_s: float = field(kw_only=True)
    to_s: float | None = field(default=None, kw_only=True)
    what: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Axis:
    """In seconds."""

    span_s: float
    ticks_s: tuple[float, ...] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of a timeline; `now_s` is `None` once the run is over."""

    rows: tuple[int, ...]
    names: tuple[str, ...] = field(kw_only=True)
    bars: tuple[tuple[Bar, ...], ...] = field(kw_only=True)
    axis: Axis = field(kw_only=True)
    now_s: float | None = field(default=None, kw_only=True)
    note: str = field(default="", kw_only=True)


def timeline_of(plan: Plan, results: Sequence[AgentResult], *, until_s: float, over: bool) -> Timeline:
    rows = rows_of(plan)
    bars = tuple(tuple(bars_of(results[agent])) for agent in rows)
    names = tuple(plan.names[agent] for agent in rows)
    return Timeline(rows, names=names, bars=bars, axis=axis_for(until_s, over=over), now_s=None if over else until_s)


def rows_of(plan: Plan) -> tuple[int, ...]:
    """Order the rows by layer, so that they never move during a run."""
    return tuple(agent for layer in plan.dag.layers() for agent in layer)


def bars_of(result: AgentResult) -> Iterator[Bar]:
    """Leave out waits too short to see."""
    for phase in phases_of(result):
        start_s, end_s = phase.start_s, phase.end_s
        if phase.kind == "backoff" and start_s != end_s:
            yield Bar("b", "q", from_s=start_s, to_s=end_s)
        elif phase.kind == "queued" and (end_s is None or end_s - start_s > LEAST_WAIT_S):
            yield Bar("q", "q", from_s=start_s, to_s=end_s, what=wording(phase.reason).label)
        elif phase.kind == "tool" and start_s != end_s:
            what = "" if result.is_task else single_line(phase.reason)[:MOST_WHAT]
            yield Bar("t", "r", from_s=start_s, to_s=end_s, what=what)
        elif phase.kind == "first" and phase.attempt is not None:
            yield from _request(phase.attempt)


def axis_for(until_s: float, *, over: bool = False) -> Axis:
    # The axis of an active run ends at a tick, to change rarely.
    wanted = max(until_s, 0.1)
    step = time_step(wanted)
    span = wanted if over else max(step, -(-wanted // step) * step)
    return Axis(span, ticks_s=tuple(round(index * step, 6) for index in range(int(span / step + 1e-9) + 1)))


def axis_entry(now_s: float, *, over: bool) -> dict[str, Any]:
    axis = axis_for(now_s, over=over)
    return {"span": axis.span_s, "ticks": [[tick, time_tick(tick, axis.span_s)] for tick in axis.ticks_s]}


def bar_entry(bar: Bar) -> list[str | float | None]:
    places = [bar.kind, bar.tone, round(bar.from_s, 3), None if bar.to_s is None else round(bar.to_s, 3)]
    return [*places, bar.what] if bar.what else places


def _request(attempt: Attempt) -> Iterator[Bar]:
    tone, first = tone_of(attempt), attempt.first_token_s
    if first is None or first - attempt.started_s < 0.005:
        kind: Kind = "f" if attempt.ended_s is None and first is None else "s"
        yield Bar(kind, tone, from_s=attempt.started_s, to_s=attempt.ended_s)
        return
    yield Bar("f", tone, from_s=attempt.started_s, to_s=first)
    yield Bar("s", tone, from_s=first, to_s=attempt.ended_s)


LEAST_BIN_S = 0.1
MOST_BINS = 40
NOTE = "the stronger the colour, the more agents of the row at once"
SHADES: tuple[Kind, ...] = ("1", "2", "3", "4")


class Shades:
    """Counts the agents of each group at work, in bins of time that double as the run grows."""

    def __init__(self, group_of: Sequence[int], groups: int) -> None:
        self._group_of = group_of
        self._busy: list[list[float]] = [[] for _ in range(groups)]  # agent-seconds per stretch
        self._ready_s: list[float | None] = [None] * groups
        self._first_s: list[float | None] = [None] * groups
        self._last_s = [0.0] * groups
        self.running = [0] * groups
        self._calls = [0] * len(group_of)
        self.bin_s = LEAST_BIN_S

    def take(self, event: Event) -> None:
        match event:
            case AttemptStarted():
                self._step(self._group_of[event.agent], event.at_s, 1)
            case AttemptEnded():
                self._step(self._group_of[event.agent], event.at_s, -1)
            case CallStarted():  # of calls side by side their agent counts once
                self._calls[event.agent] += 1
                if self._calls[event.agent] == 1:
                    self._step(self._group_of[event.agent], event.at_s, 1)
            case CallEnded():
                self._calls[event.agent] -= 1
                if not self._calls[event.agent]:
                    self._step(self._group_of[event.agent], event.at_s, -1)
            case AgentReady() | AgentReopened():
                group = self._group_of[event.agent]
                if self._ready_s[group] is None:
                    self._ready_s[group] = event.at_s
            case _:
                pass

    def bars(self, group: int, tone: str, now_s: float) -> list[Bar]:
        """Return bars in order of time, the last without an end while an agent is at work."""
        ready, first = self._ready_s[group], self._first_s[group]
        if ready is None:
            return []
        if first is None:
            return [Bar("q", "q", from_s=ready)]
        waited = [Bar("q", "q", from_s=ready, to_s=first)] if first - ready > LEAST_WAIT_S else []
        if self.running[group]:
            self._spread(group, now_s)
        return [*waited, *self._shaded(group, first, tone)]

    def _shaded(self, group: int, first: float, tone: str) -> Iterator[Bar]:
        until, going = self._last_s[group], self.running[group] > 0
        edges = [index * self.bin_s for index in range(self._bin(until) + 2)]
        stretches = [(max(first, start), min(until, end)) for start, end in pairwise(edges)]
        busy = self._busy[group] + [0.0] * (len(stretches) - len(self._busy[group]))
        at_once = [
            (amount / (end - start), start, end)
            for amount, (start, end) in zip(busy, stretches, strict=False)  # one may have begun that has no work yet
            if end > start
        ]
        peak = max((amount for amount, _, _ in at_once), default=0.0) or 1.0
        found: list[tuple[int, float, float]] = []
        for amount, start, end in at_once:
            shade = min(len(SHADES), ceil(len(SHADES) * amount / peak - 1e-9))
            if found and found[-1][0] == shade:
                found[-1] = (shade, found[-1][1], end)
            else:
                found.append((shade, start, end))
        for index, (shade, start, end) in enumerate(found):
            last = going and index == len(found) - 1
            if shade:
                yield Bar(SHADES[shade - 1], tone, from_s=start, to_s=None if last else end)

    def _step(self, group: int, at_s: float, by: int) -> None:
        if self._first_s[group] is None:
            self._first_s[group] = self._last_s[group] = at_s
        self._spread(group, at_s)
        self.running[group] += by

    def _spread(self, group: int, until_s: float) -> None:
        while until_s > self.bin_s * MOST_BINS:
            self.bin_s *= 2
            for busy in self._busy:
                busy[:] = [sum(busy[index : index + 2]) for index in range(0, len(busy), 2)]
        busy, at, running = self._busy[group], self._last_s[group], self.running[group]
        if until_s <= at:
            return
        if running:
            busy.extend([0.0] * (self._bin(until_s) + 1 - len(busy)))
            for index in range(self._bin(at), self._bin(until_s) + 1):
                start, end = max(at, index * self.bin_s), min(until_s, (index + 1) * self.bin_s)
                busy[index] += running * max(0.0, end - start)
        self._last_s[group] = until_s

    def _bin(self, at_s: float) -> int:
        return int(at_s / self.bin_s)


def tone_of_row(counts: Sequence[int]) -> str:
    done, capped, failed, running, queued, *never, todo = counts
    if running or queued or (todo and done + capped + failed + sum(never)):
        return "r"
    return "m" if capped else "s" if done else "f" if failed else "c"


def grouped_timeline(
    sheet: Sheet, record: RunRecord, tallies: Sequence[Sequence[int]], *, until_s: float, over: bool
) -> Timeline:
    shades = Shades(sheet.group_of(), len(sheet.groups))
    for event in record.events:
        shades.take(event)
    rows = range(len(sheet.groups))
    bars = tuple(
        tuple(
            bars_of(record.results[group.agents[0]])
            if group.is_one
            else shades.bars(row, tone_of_row(tallies[row]), until_s)
        )
        for row, group in enumerate(sheet.groups)
    )
    names = tuple(group.label for group in sheet.groups)
    now_s = None if over else until_s
    return Timeline(tuple(rows), names=names, bars=bars, axis=axis_for(until_s, over=over), now_s=now_s, note=NOTE)
