"""The timeline of a run: bars per agent, or counts per phase if there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_magic.declare.units import plural, seconds
from agent_magic.measure.frames import next_step
from agent_magic.measure.metrics import critical_path
from agent_magic.record.display import single_line
from agent_magic.record.phases import spans_of
from agent_magic.show.charts.chart import ADVISE, compose, provenance
from agent_magic.show.charts.marks import ROW_H, Area, Bar, Label, Line, Look, Panel, Rows, Scale, numbers, times
from agent_magic.show.states import LOST, OF_STATUS, STATES
from agent_magic.show.text import run_line
from agent_magic.show.theme import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent_magic.record.phases import Kind, Span
    from agent_magic.record.results import RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.charts.marks import Mark
    from agent_magic.show.theme import Theme

MOST_ROWS: Final = 60
"""With more agents, counts per phase are drawn."""
BINS: Final = 120
STACK: Final[tuple[Kind, ...]] = ("stream", "first", "tool", "backoff", "queued")
"""The counted phases, from the axis up: work first, so that its height can be read."""
WORK: Final = frozenset({"first", "stream", "tool", "local"})


def run_timeline(
    record: RunRecord,
    *,
    title: str = "",
    line: str | None = None,
    caption: Sequence[str] | None = None,
    theme: Theme = "auto",
) -> Chart:
    plan = record.plan
    title = title or f"{single_line(plan.name)}: timeline"
    line = run_line(record) if line is None else line
    caption = [next_step(record, ADVISE), *provenance(simulated=record.simulated)] if caption is None else caption
    spans = spans_of(record)
    on_path = {plan.names[agent] for agent in critical_path(record)}
    used = [one.status != "unused" for one in record.results]
    order = [plan.names[agent] for layer in plan.dag.layers() for agent in layer if used[agent]]
    x = times(max((span.to_s for span in spans), default=0.0))
    if len(order) > MOST_ROWS:
        note = f"{plural(len(order), 'agent')} counted by phase"
        legend = [look_of(kind) for kind in STACK]
        return compose(title, line, [_counted(spans, x)], legend=legend, caption=[note, *caption], theme=theme)
    if len(on_path) == len(order):
        on_path = ()  # if every agent is on it, bold means nothing
    by_agent: dict[str, list[Span]] = {}
    for span in spans:
        by_agent.setdefault(span.agent, []).append(span)
    marks = [
        mark for row, name in enumerate(order) for mark in _row(by_agent.get(name, []), row, is_bold=name in on_path)
    ]
    bold = frozenset(row for row, name in enumerate(order) if name in on_path)
    rows = Rows([single_line(name) for name in order], bold=bold)
    looks = dict.fromkeys(mark.look for mark in marks if isinstance(mark, Bar))
    phases = [look_of(kind) for kind in PHASES]
    legend = [*(look for look in phases if look in looks), *(look for look in looks if look not in phases)]
    panel = Panel(marks, x, rows, height=len(order) * ROW_H, left=168, right=64)
    note = "bold: the critical path, the longest chain of work" if on_path else ""
    waits = any(span.phase in {"queued", "backoff"} for span in spans)
    work = "numbers: seconds of own work, waiting left out" if waits else ""
    return compose(title, line, [panel], legend=legend, caption=[note, work, *caption], theme=theme)


def look_of(kind: Kind, outcome: str = "succeeded") -> Look:
    phase, state = PHASES[kind], OF_STATUS.get(outcome, "s")
    if phase.ink:
        return Look(phase.ink, phase.opacity, phase.height, phase.word, phase.dash)
    if state in LOST:
        return Look(STATES[state].ink, 1.0, phase.height, f"{outcome} attempt")
    return Look(STATES[state].ink, phase.opacity, phase.height, phase.word)


def _row(spans: Sequence[Span], row: int, *, is_bold: bool) -> Iterator[Mark]:
    shown = [span for span in spans if span.phase != "local"]  # too short to see
    for span in shown:
        yield Bar(span.from_s, span.to_s, row + 0.5, look_of(span.phase, span.outcome), _facts(span))
    if not shown:
        return
    start, end = min(span.from_s for span in shown), max(span.to_s for span in shown)
    if is_bold:
        yield Line([(start, row + 0.92), (end, row + 0.92)], Look("ink", size=1.6))
    worked = sum(span.length_s for span in spans if span.phase in WORK)
    yield Label(end, row + 0.5, seconds(worked), dx=6, ink="ink" if is_bold else "soft")


def _facts(span: Span) -> dict[str, str | float]:
    waits = (f" for {span.reason}" if span.phase == "queued" else f": {span.reason}") if span.reason else ""
    return {
        "agent": single_line(span.agent),
        "attempt": f"attempt {span.attempt}",
        "phase": look_of(span.phase, span.outcome).word + waits,
        "seconds": seconds(span.length_s),
        "model": single_line(span.model) or "task",
    }


def _counted(spans: Sequence[Span], x: Scale) -> Panel:
    counts = binned(spans, x.most)
    tops = [sum(one) for one in zip(*counts.values(), strict=True)]
    most = numbers(max(tops, default=0.0), 5)
    width, floor = x.most / BINS, [0.0] * BINS
    areas: list[Mark] = []
    for kind in STACK:
        roof = [low + count for low, count in zip(floor, counts[kind], strict=True)]
        steps = [
            (index * width, (index + 1) * width, low, high)
            for index, (low, high) in enumerate(zip(floor, roof, strict=True))
        ]
        areas.append(Area(steps, look_of(kind)))
        floor = roof
    y = Scale(most[-1], most, label=lambda tick: f"{tick:,.5g}", write=lambda value: plural(round(value), "agent"))
    return Panel(areas, x, y, height=220, left=44, title="agents")


def binned(spans: Sequence[Span], until_s: float, count: int = BINS) -> Mapping[Kind, Sequence[float]]:
    # The counts times the length of a stretch add up to the seconds of each phase.
    width = until_s / count
    sums: dict[Kind, list[float]] = {kind: [0.0] * count for kind in STACK}
    for span in spans:
        if span.phase not in sums:
            continue
        first, last = int(span.from_s / width), min(count - 1, int(span.to_s / width))
        for index in range(first, last + 1):
            inside = min(span.to_s, (index + 1) * width) - max(span.from_s, index * width)
            sums[span.phase][index] += max(0.0, inside) / width
    return sums
