"""When the agents of a group were at work, as shades of one bar: the darker, the more of them at once."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from agent_magic.record.events import AgentReady, AgentReopened, AttemptEnded, AttemptStarted
from agent_magic.show.timeline import LEAST_WAIT_S, Bar, Kind, Timeline, axis_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent_magic.record.events import Event
    from agent_magic.show.groups import Sheet

LEAST_BIN_S = 0.1
MOST_BINS = 40
NOTE = "the darker, the more agents of the row at once"
SHADES: tuple[Kind, ...] = ("1", "2", "3", "4")


class Shades:
    """Counts how many agents of each group are at work, in equal stretches of time that double as the run goes on.

    Args:
        group_of: The group of each agent.
        groups: How many there are.

    Attributes:
        bin_s: The length of a stretch.
        running: How many agents of each group are at work.
    """

    def __init__(self, group_of: Sequence[int], groups: int) -> None:
        self._group_of = group_of
        self._busy: list[list[float]] = [[] for _ in range(groups)]  # agent-seconds per stretch
        self._ready_s: list[float | None] = [None] * groups
        self._first_s: list[float | None] = [None] * groups
        self._last_s = [0.0] * groups
        self.running = [0] * groups
        self.bin_s = LEAST_BIN_S

    def take(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case AttemptStarted():
                self._step(self._group_of[event.agent], event.at_s, 1)
            case AttemptEnded():
                self._step(self._group_of[event.agent], event.at_s, -1)
            case AgentReady() | AgentReopened():
                group = self._group_of[event.agent]
                if self._ready_s[group] is None:
                    self._ready_s[group] = event.at_s
            case _:
                pass

    def bars(self, group: int, tone: str, now_s: float) -> list[Bar]:
        """Return the bars of a group, in order of time; the last has no end while an agent is at work.

        Args:
            group: Its number.
            tone: The character of the state that gives its bars their colour.
            now_s: The present, or the end of the run.
        """
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
        edges = [place * self.bin_s for place in range(self._bin(until) + 2)]
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
        for place, (shade, start, end) in enumerate(found):
            last = going and place == len(found) - 1
            if shade:
                yield Bar(SHADES[shade - 1], tone, from_s=start, to_s=None if last else end)

    def _step(self, group: int, at_s: float, by: int) -> None:
        if self._first_s[group] is None:
            self._first_s[group] = self._last_s[group] = at_s
        self._spread(group, at_s)
        self.running[group] += by

    def _spread(self, group: int, until_s: float) -> None:
        """Add the work since the last change to the stretches it fell into."""
        while until_s > self.bin_s * MOST_BINS:
            self._double()
        busy, at, running = self._busy[group], self._last_s[group], self.running[group]
        if until_s <= at:
            return
        if running:
            busy.extend([0.0] * (self._bin(until_s) + 1 - len(busy)))
            for place in range(self._bin(at), self._bin(until_s) + 1):
                start, end = max(at, place * self.bin_s), min(until_s, (place + 1) * self.bin_s)
                busy[place] += running * max(0.0, end - start)
        self._last_s[group] = until_s

    def _double(self) -> None:
        self.bin_s *= 2
        for busy in self._busy:
            busy[:] = [sum(busy[place : place + 2]) for place in range(0, len(busy), 2)]

    def _bin(self, at_s: float) -> int:
        return int(at_s / self.bin_s)


def tone_of_row(counts: Sequence[int]) -> str:
    """Return the colour of a group's row, by its tally: running until none is to do, then done, or else lost."""
    done, failed, *rest = counts
    running, queued, never, todo = rest
    if running or queued or (todo and done + failed + never):
        return "r"
    return "s" if done else "f" if failed else "c"


def grouped_timeline(
    sheet: Sheet, events: Iterable[Event], tallies: Sequence[Sequence[int]], *, until_s: float, over: bool
) -> Timeline:
    """Draw up the timeline of a run in groups: a row per group.

    Args:
        sheet: The groups.
        events: What happened.
        tallies: Of each group, its agents counted by the parts of its ring; see `agent_magic.show.groups`.
        until_s: The present, or the end of the run.
        over: Whether the run has ended.
    """
    shades = Shades(sheet.group_of(), len(sheet.groups))
    for event in events:
        shades.take(event)
    rows = range(len(sheet.groups))
    bars = tuple(tuple(shades.bars(row, tone_of_row(tallies[row]), until_s)) for row in rows)
    names = tuple(group.label for group in sheet.groups)
    now_s = None if over else until_s
    return Timeline(tuple(rows), names=names, bars=bars, axis=axis_for(until_s), now_s=now_s, note=NOTE)
