"""What happened when, as bars: waiting thin, requests thick, the time after a failure dashed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from agent_magic.record.phases import phases_of
from agent_magic.show.states import tone_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.record.attempt import Attempt
    from agent_magic.record.results import AgentResult

LEAST_WAIT_S = 0.05  # shorter waits are a dot nobody can read
_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 43200, 86400)
_MOST_TICKS = 7

Kind = Literal["q", "b", "w", "a", "1", "2", "3", "4"]
"""`q` queued, `b` waiting because an attempt failed, `w` a request before its first token, `a` the rest of it.

`1` to `4` are of groups: some of its agents at work, up to most of those that ever were at once.
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of one agent's time.

    Attributes:
        kind: What the agent did; see `Kind`.
        tone: The character of the state that gives it its colour.
        from_s: Its start, in seconds since the run began.
        to_s: Its end; `None` while it goes on.
    """

    kind: Kind
    tone: str
    from_s: float = field(kw_only=True)
    to_s: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Axis:
    """The scale of a timeline: its length, and the seconds that have a line and a label."""

    span_s: float
    ticks_s: tuple[float, ...] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of a timeline.

    Attributes:
        rows: The agents, or the groups, that have one, top down.
        names: Theirs.
        bars: Per row, in order of time.
        now_s: Where the present is; `None` once the run is over.
        note: What has to be said of its rows.
    """

    rows: tuple[int, ...]
    names: tuple[str, ...] = field(kw_only=True)
    bars: tuple[tuple[Bar, ...], ...] = field(kw_only=True)
    axis: Axis = field(kw_only=True)
    now_s: float | None = field(default=None, kw_only=True)
    note: str = field(default="", kw_only=True)


def timeline_of(plan: Plan, results: Sequence[AgentResult], *, until_s: float, over: bool) -> Timeline:
    """Draw up the timeline of a run.

    Args:
        plan: What was run.
        results: What became of it so far.
        until_s: The present, or the end of the run.
        over: Whether the run has ended.
    """
    rows = rows_of(plan)
    bars = tuple(tuple(bars_of(results[agent])) for agent in rows)
    names = tuple(plan.names[agent] for agent in rows)
    return Timeline(rows, names=names, bars=bars, axis=axis_for(until_s), now_s=None if over else until_s)


def rows_of(plan: Plan) -> tuple[int, ...]:
    """Put the agents in the order of their rows: layer by layer, so that a row never moves while a run goes on."""
    return tuple(agent for layer in plan.dag.layers() for agent in layer)


def bars_of(result: AgentResult) -> Iterator[Bar]:
    """Cut an agent's time into bars. A wait too short to be seen is left out."""
    for phase in phases_of(result):
        start_s, end_s = phase.start_s, phase.end_s
        if phase.kind == "backoff" and start_s != end_s:
            yield Bar("b", "q", from_s=start_s, to_s=end_s)
        elif phase.kind == "queued" and (end_s is None or end_s - start_s > LEAST_WAIT_S):
            yield Bar("q", "q", from_s=start_s, to_s=end_s)
        elif phase.kind == "first" and phase.attempt is not None:
            yield from _request(phase.attempt)


def axis_for(until_s: float) -> Axis:
    """Choose a scale with round steps that holds `until_s`, with a little room after it."""
    wanted = max(until_s, 0.1)
    step = next((one for one in _STEPS_S if wanted / one <= _MOST_TICKS - 1), wanted / (_MOST_TICKS - 1))
    span = max(step, -(-wanted // step) * step)
    ticks = tuple(round(index * step, 6) for index in range(round(span / step) + 1))
    return Axis(span, ticks_s=ticks)


def tick_label(value_s: float, span_s: float) -> str:
    """Write a time under the axis, in a unit that fits its length."""
    if span_s >= 3600 * 2:
        return f"{value_s / 3600:g} h"
    if span_s >= 180:
        return f"{value_s / 60:g} min"
    return f"{value_s:g} s"


def axis_entry(now_s: float) -> dict[str, Any]:
    """Return the scale as the live view is told it."""
    axis = axis_for(now_s)
    return {"span": axis.span_s, "ticks": [[tick, tick_label(tick, axis.span_s)] for tick in axis.ticks_s]}


def bar_entry(bar: Bar) -> list[str | float | None]:
    """Return a bar as the live view is told it."""
    return [bar.kind, bar.tone, round(bar.from_s, 3), None if bar.to_s is None else round(bar.to_s, 3)]


def _request(attempt: Attempt) -> Iterator[Bar]:
    tone, first = tone_of(attempt), attempt.first_token_s
    if first is None or first - attempt.started_s < 0.005:
        kind: Kind = "w" if attempt.ended_s is None and first is None else "a"
        yield Bar(kind, tone, from_s=attempt.started_s, to_s=attempt.ended_s)
        return
    yield Bar("w", tone, from_s=attempt.started_s, to_s=first)
    yield Bar("a", tone, from_s=first, to_s=attempt.ended_s)
