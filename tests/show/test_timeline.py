"""Rows of groups in the timeline: how many agents at once, as shades."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.record import AgentReady, AttemptEnded, AttemptStarted, Price
from agent_magic.show import Shades, sheet_of
from agent_magic.show.graph.timeline import MOST_BINS, SHADES, Bar, axis_for, grouped_timeline, tone_of_row
from tests.show.story import REQUEST, finished_run, layered_plan

if TYPE_CHECKING:
    from agent_magic.record import Event

Work = tuple[float, float]


def events_of(*work: Work) -> list[Event]:
    """Agents of one group that are ready at the start, and at work from one second to another."""
    events: list[Event] = [AgentReady(0.0, agent) for agent in range(len(work))]
    for agent, (start, end) in enumerate(work):
        events.append(AttemptStarted(start, agent, 1, start, "", REQUEST))
        events.append(AttemptEnded(end, agent, 1, None, None, None, "", None, Price(None, ""), None, None))
    return sorted(events, key=lambda event: event.at_s)


def shades_of(*work: Work, until_s: float = 1e9) -> Shades:
    """Shades that saw what happened until a second."""
    shades = Shades([0] * len(work), 1)
    for event in events_of(*work):
        if event.at_s <= until_s:
            shades.take(event)
    return shades


def bar(shade: str, start: float, end: float | None) -> Bar:
    """A stretch of a done group."""
    return Bar(shade, "s", from_s=start, to_s=end)  # pyright: ignore[reportArgumentType]


def test_shades_follow_how_many_are_at_once() -> None:
    """Four agents, then two, then one: of the most at once all, half and a quarter."""
    shades = shades_of((0.0, 3.0), (0.0, 2.0), (0.0, 1.0), (0.0, 1.0))
    assert [bar("4", 0.0, 1.0), bar("2", 1.0, 2.0), bar("1", 2.0, 3.0)] == rounded(shades.bars(0, "s", 3.0))


def test_a_group_waits_works_pauses_and_goes_on() -> None:
    """The wait before the first request is thin, a time without any is empty, what goes on has no end."""
    shades = shades_of((0.5, 1.0), (2.0, 9.0), until_s=3.0)
    found = rounded(shades.bars(0, "r", 3.0))
    assert Bar("q", "q", from_s=0.0, to_s=0.5) == found[0]
    assert [("4", 0.5, 1.0), ("4", 2.0, None)] == [(one.kind, one.from_s, one.to_s) for one in found[1:]]


def test_nothing_is_drawn_before_anything_is_ready() -> None:
    """A group that nobody has reached has no bar; one that waits has a thin one."""
    assert [] == Shades([0], 1).bars(0, "p", 5.0)
    shades = Shades([0], 1)
    shades.take(AgentReady(1.0, 0))
    assert [Bar("q", "q", from_s=1.0)] == shades.bars(0, "p", 5.0)


def rounded(bars: list[Bar]) -> list[Bar]:
    """Bars in tenths of a second."""
    return [
        Bar(one.kind, one.tone, from_s=round(one.from_s, 1), to_s=None if one.to_s is None else round(one.to_s, 1))
        for one in bars
    ]


TIMES = st.floats(0, 5000, allow_nan=False, width=32)


@given(st.lists(st.tuples(TIMES, TIMES).map(sorted).map(tuple), min_size=1, max_size=20))
def test_stretches_are_few_and_hold_all_work(work: list[Work]) -> None:
    """However long a run is, a row has a bounded number of bars, in order; the work in them is all the work."""
    shades = shades_of(*work)
    assert sum(shades._busy[0]) == pytest.approx(sum(end - start for start, end in work), abs=1e-6)
    bars = [one for one in shades.bars(0, "s", 5000.0) if one.kind in SHADES]
    assert len(bars) <= MOST_BINS
    assert all(one.to_s is not None and one.from_s <= one.to_s for one in bars)
    ends = [one.to_s or 0.0 for one in bars]
    assert all(end <= later.from_s + 1e-9 for end, later in zip(ends, bars[1:]))  # noqa: B905 - each with its next


@pytest.mark.parametrize(
    ("counts", "tone"),
    [
        ((3, 0, 0, 1, 0, 0, 0, 0), "r"),
        ((3, 0, 0, 0, 0, 0, 0, 2), "r"),
        ((0, 0, 0, 0, 0, 0, 0, 5), "c"),
        ((4, 0, 1, 0, 0, 0, 0, 0), "s"),
        ((0, 0, 5, 0, 0, 0, 0, 0), "f"),
        ((0, 0, 0, 0, 0, 5, 0, 0), "c"),
        ((0, 0, 0, 0, 0, 0, 5, 0), "c"),
        ((2, 1, 0, 0, 0, 0, 0, 0), "m"),
    ],
)
def test_the_colour_of_a_row(counts: tuple[int, ...], tone: str) -> None:
    """Blue while it goes on, amber where it was capped, green where something came of it, red where all was lost."""
    assert tone == tone_of_row(counts)


def test_a_still_picture_has_a_row_per_group() -> None:
    """The names of the groups, bars to the end, and what the shades mean."""
    plan = layered_plan(300, 60)
    run, sheet = finished_run(plan), sheet_of(plan)
    tallies = [(len(group.agents), 0, 0, 0, 0, 0) for group in sheet.groups]
    timeline = grouped_timeline(sheet, run, tallies, until_s=run.events[-1].at_s, over=True)
    assert tuple(group.label for group in sheet.groups) == timeline.names
    assert all(timeline.bars)
    assert timeline.note


def test_the_axis_ends_with_the_run() -> None:
    """While a run goes on its axis ends at a tick, so that it rarely changes; at the end it ends with the data."""
    going, done = axis_for(16.1), axis_for(16.1, over=True)
    assert (20.0, (0.0, 5.0, 10.0, 15.0, 20.0)) == (going.span_s, going.ticks_s)
    assert (16.1, (0.0, 5.0, 10.0, 15.0)) == (done.span_s, done.ticks_s)
