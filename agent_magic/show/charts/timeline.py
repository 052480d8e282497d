"""When each agent waited and worked: a bar per attempt, or how many did what at once where they are many."""

from __future__ import annotations

import functools
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.show.charts.chart import MARGIN, Chart, Paper, in_both, mixed, spec_of, ticks
from agent_magic.show.graph.timeline import axis_for, tick_label
from agent_magic.show.markup import fit, number, single_line
from agent_magic.show.units import plural, seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent_magic.measure.spans import Span
    from agent_magic.show.theme import Theme

MOST_ROWS = 60
"""More agents are counted, not drawn one by one."""
BINS = 120
ROW_H = 20.0
LABEL_W = 168.0
_END_W = 64.0


class Look(NamedTuple):
    """How a phase looks: its ink, how strong, how high, and its word."""

    ink: str
    opacity: float
    height: float
    word: str


PHASES = {
    "queued": Look("wait", 0.75, 4.0, "queued"),
    "first": Look("run", 0.38, 12.0, "waiting for the first token"),
    "stream": Look("run", 1.0, 12.0, "streaming"),
    "backoff": Look("fail", 0.7, 4.0, "waiting after a failure"),
}
"""Told apart by height and strength as well as by colour. Our own time is too short to be seen, and left out."""
FAILED = Look("fail", 0.85, 12.0, "failed attempt")


def timeline_chart(
    spans: Sequence[Span],
    order: Sequence[str],
    *,
    on_path: Collection[str] = (),
    title: str,
    line: str,
    caption: str = "",
    theme: Theme = "auto",
) -> Chart:
    """Draw when each agent waited and worked.

    Args:
        spans: What happened when.
        order: The agents, top down.
        on_path: The agents of the critical path.
        title: What it is of.
        line: The run's numbers in a line.
        caption: Where the numbers come from.
        theme: Its colours.
    """
    if len(order) > MOST_ROWS:
        return _crowd(spans, title=title, line=line, caption=caption, theme=theme)
    until_s = max((span.to_s for span in spans), default=0.0)
    names = {name: single_line(name) for name in order}
    svg = _rows_svg(spans, names, on_path, title=title, line=line, caption=caption, theme=theme, until_s=until_s)
    text = _rows_text(spans, names, on_path, title=title, line=line, caption=caption)
    both = in_both(theme, functools.partial(_rows_spec, spans, names, on_path, (title, line, caption)))
    return Chart(title, svg, text=text, **both)


def _look(span: Span) -> Look:
    bad = span.outcome in {"failed", "refused", "cancelled"} and span.phase in {"first", "stream"}
    return FAILED if bad else PHASES[span.phase]


def _hint(span: Span) -> str:
    waits = f" for {span.reason}" if span.phase == "queued" and span.reason else ""
    what = {"queued": "queued", "backoff": "waited after a failure", "first": "no token yet", "stream": "streaming"}
    return f"{single_line(span.agent)}, attempt {span.attempt}: {what[span.phase]}{waits} {seconds(span.length_s)}"


def _rows_svg(
    spans: Sequence[Span],
    names: dict[str, str],
    on_path: Collection[str],
    *,
    title: str,
    line: str,
    caption: str,
    theme: Theme,
    until_s: float,
) -> str:
    paper = Paper(theme)
    paper.head(title, line)
    looks = [*PHASES.values(), *([FAILED] if any(_look(one) is FAILED for one in spans if one.phase in PHASES) else [])]
    paper.key(76, [(look.ink, look.opacity, look.height, look.word) for look in looks])
    x, top = MARGIN + LABEL_W, 112.0
    wide, axis = paper.width - x - MARGIN - _END_W, axis_for(until_s)
    bottom = top + len(names) * ROW_H
    for tick in axis.ticks_s:
        at = x + tick / axis.span_s * wide
        paper.line(f"M{number(at)} {number(top - 4)}V{number(bottom)}")
        paper.text(at, top - 9, tick_label(tick, axis.span_s), anchor="middle")
    by_agent = {name: list(group) for name, group in groupby(sorted(spans, key=_of), key=_of)}
    for row, (name, shown) in enumerate(names.items()):
        middle = top + row * ROW_H + ROW_H / 2
        _row(paper, by_agent.get(name, []), shown, (x, middle, wide / axis.span_s), strong=name in on_path)
    if on_path:
        caption = " · ".join(filter(None, ["bold: the critical path, the longest chain of work", caption]))
    paper.caption(bottom + 24, caption)
    return paper.svg(bottom + (38 if caption else 20), f"{title}: {line}")


def _of(span: Span) -> str:
    return span.agent


def _row(paper: Paper, spans: Sequence[Span], name: str, place: tuple[float, float, float], *, strong: bool) -> None:
    x, middle, scale = place
    paper.text(
        x - 10,
        middle + 4,
        fit(name, LABEL_W - 14, 11.5, bold=strong),
        size=11.5,
        anchor="end",
        ink="ink" if strong else "soft",
        weight=650 if strong else None,
    )
    end = 0.0
    for span in spans:
        if span.phase not in PHASES:
            continue
        look = _look(span)
        wide = max(1.0, span.length_s * scale)
        paper.rect(
            x + span.from_s * scale,
            middle - look.height / 2,
            wide,
            look.height,
            ink=look.ink,
            opacity=look.opacity,
            hint=_hint(span),
        )
        end = max(end, span.to_s)
    worked = sum(span.length_s for span in spans if span.phase in {"first", "stream", "local"})
    if strong and spans:
        start = min(span.from_s for span in spans)
        below = number(middle + 8.5)
        paper.line(f"M{number(x + start * scale)} {below}H{number(x + end * scale)}", ink="ink", w=1.6)
    if end:
        paper.text(x + end * scale + 6, middle + 4, seconds(worked), size=10.5, ink="ink" if strong else "soft")


def _rows_text(
    spans: Sequence[Span], names: dict[str, str], on_path: Collection[str], *, title: str, line: str, caption: str
) -> str:
    wide = min(32, max(map(len, names.values()), default=0))
    lines = [title, line]
    for name, shown in names.items():
        sums: dict[str, float] = {}
        for span in spans:
            if span.agent == name:
                sums[span.phase] = sums.get(span.phase, 0.0) + span.length_s
        parts = [f"{PHASES[phase].word} {seconds(sums[phase])}" for phase in PHASES if sums.get(phase, 0.0) >= 0.05]
        mark = "* " if name in on_path else "  "
        lines.append(f"{mark}{shown[:wide]:<{wide}}  {', '.join(parts) or 'nothing'}")
    lines += ["* on the critical path"] if on_path else []
    return "\n".join([*lines, *([caption] if caption else [])])


def _rows_spec(
    spans: Sequence[Span], names: dict[str, str], on_path: Collection[str], words: tuple[str, str, str], theme: Theme
) -> dict[str, Any]:
    inks = Paper(theme).inks
    looks = {**PHASES, "failed": FAILED}
    rows = [
        {
            "agent": names.get(span.agent, span.agent),
            "attempt": span.attempt,
            "phase": _look(span).word,
            "waits for": span.reason,
            "from": round(span.from_s, 4),
            "to": round(span.to_s, 4),
            "seconds": round(span.length_s, 4),
            "model": span.model,
            "outcome": span.outcome,
        }
        for span in spans
        if span.phase in PHASES
    ]
    path = [names[name] for name in names if name in on_path]
    words_of = [look.word for look in looks.values()]
    colours = [mixed(inks[look.ink], inks["ground"], look.opacity) for look in looks.values()]
    y = {
        "field": "agent",
        "type": "nominal",
        "sort": list(names.values()),
        "title": None,
        "axis": {
            "labelFontWeight": {
                "condition": {"test": {"field": "value", "oneOf": path}, "value": "bold"},
                "value": "normal",
            },
            "ticks": False,
            "domain": False,
        },
    }
    shared: dict[str, Any] = {
        "x": {"field": "from", "type": "quantitative", "title": "seconds", "scale": {"zero": True}},
        "x2": {"field": "to"},
        "y": y,
        "color": {"field": "phase", "type": "nominal", "scale": {"domain": words_of, "range": colours}},
        "tooltip": [
            {"field": one} for one in ("agent", "attempt", "phase", "waits for", "seconds", "model", "outcome")
        ],
    }
    thin = [look.word for look in looks.values() if look.height < 10]
    layers = [
        {
            "transform": [{"filter": {"field": "phase", "oneOf": words_of_kind}}],
            "mark": {"type": "bar", "height": height, "cornerRadius": 2},
            "encoding": shared,
        }
        for words_of_kind, height in ((thin, 4), ([word for word in words_of if word not in thin], 12))
    ]
    body = {"width": 640, "height": {"step": 20}, "data": {"values": rows}, "layer": layers}
    note = "bold: the critical path" if path else ""
    return spec_of(words[0], words[1], body, theme=theme, caption=" · ".join(filter(None, [note, words[2]])))


class Bin(NamedTuple):
    """How many agents did what at once, on average over a stretch of time."""

    from_s: float
    to_s: float
    counts: dict[str, float]


def binned(spans: Sequence[Span], count: int = BINS) -> list[Bin]:
    """Count who did what at once. The counts times the lengths of the bins add up to the seconds of each phase."""
    until = max((span.to_s for span in spans), default=0.0)
    if until <= 0:
        return []
    width = until / count
    sums: dict[str, list[float]] = {phase: [0.0] * count for phase in PHASES}
    for span in spans:
        if span.phase not in PHASES:
            continue
        row = sums[span.phase]
        first, last = int(span.from_s / width), min(count - 1, int(span.to_s / width))
        for place in range(first, last + 1):
            row[place] += max(0.0, min(span.to_s, (place + 1) * width) - max(span.from_s, place * width))
    return [
        Bin(place * width, (place + 1) * width, {phase: row[place] / width for phase, row in sums.items()})
        for place in range(count)
    ]


_STACK = ("stream", "first", "backoff", "queued")
"""From the axis up: work first, so that its height can be read."""


def _crowd(spans: Sequence[Span], *, title: str, line: str, caption: str, theme: Theme) -> Chart:
    bins = binned(spans)
    agents = len({span.agent for span in spans})
    note = f"{plural(agents, 'agent')} counted together: how many did what at once"
    svg = _crowd_svg(bins, title, line, " · ".join(filter(None, [note, caption])), theme)
    both = in_both(theme, functools.partial(_crowd_spec, bins, title, line, " · ".join(filter(None, [note, caption]))))
    sums = {phase: sum(one.counts[phase] * (one.to_s - one.from_s) for one in bins) for phase in _STACK}
    parts = [f"  {PHASES[phase].word}: {seconds(total)} in all" for phase, total in sums.items()]
    text = "\n".join([title, line, note, *parts, *([caption] if caption else [])])
    return Chart(title, svg, text=text, **both)


def _crowd_svg(bins: Sequence[Bin], title: str, line: str, caption: str, theme: Theme) -> str:
    paper = Paper(theme)
    paper.head(title, line)
    paper.key(76, [(PHASES[one].ink, PHASES[one].opacity, 12.0, PHASES[one].word) for one in _STACK])
    x, top, high = MARGIN + 44, 104.0, 220.0
    wide, axis = paper.width - x - MARGIN, axis_for(bins[-1].to_s if bins else 0.0)
    marks = ticks(max((sum(one.counts.values()) for one in bins), default=0.0), 5)
    most = marks[-1]
    for mark in marks:
        y = top + high - mark / most * high
        paper.line(f"M{number(x)} {number(y)}H{number(x + wide)}")
        paper.text(x - 8, y + 4, f"{mark:,.5g}", anchor="end")
    floor = [0.0] * len(bins)
    for phase in _STACK:
        roof = [low + one.counts[phase] for low, one in zip(floor, bins, strict=True)]
        steps = _steps(bins, roof, floor, (x, top + high, wide / axis.span_s, high / most))
        paper.shape(steps, ink=PHASES[phase].ink, opacity=PHASES[phase].opacity, hint=PHASES[phase].word)
        floor = roof
    for tick in axis.ticks_s:
        paper.text(x + tick / axis.span_s * wide, top + high + 18, tick_label(tick, axis.span_s), anchor="middle")
    paper.text(x - 8, top - 8, "agents", anchor="end")
    paper.caption(top + high + 42, caption)
    return paper.svg(top + high + 56, f"{title}: {line}")


def _steps(bins: Sequence[Bin], roof: Sequence[float], floor: Sequence[float], frame: tuple[float, ...]) -> str:
    x, bottom, across, up = frame
    there = [
        f"{number(x + at * across)} {number(bottom - high * up)}"
        for one, high in zip(bins, roof, strict=True)
        for at in (one.from_s, one.to_s)
    ]
    back = [
        f"{number(x + at * across)} {number(bottom - low * up)}"
        for one, low in zip(reversed(bins), reversed(floor), strict=True)
        for at in (one.to_s, one.from_s)
    ]
    return "M" + "L".join([*there, *back]) + "Z" if there else "M0 0"


def _crowd_spec(bins: Sequence[Bin], title: str, line: str, caption: str, theme: Theme) -> dict[str, Any]:
    inks = Paper(theme).inks
    rows = [
        {
            "from": round(one.from_s, 3),
            "to": round(one.to_s, 3),
            "phase": PHASES[phase].word,
            "agents": round(one.counts[phase], 3),
            "place": place,
        }
        for one in bins
        for place, phase in enumerate(_STACK)
    ]
    looks = [PHASES[phase] for phase in _STACK]
    domain = [look.word for look in looks]
    body = {
        "width": 720,
        "height": 240,
        "data": {"values": rows},
        "mark": {"type": "bar", "strokeWidth": 0},
        "encoding": {
            "x": {"field": "from", "type": "quantitative", "title": "seconds", "bin": {"binned": True}},
            "x2": {"field": "to"},
            "y": {"field": "agents", "type": "quantitative", "stack": "zero", "title": "agents"},
            "order": {"field": "place"},
            "color": {
                "field": "phase",
                "type": "nominal",
                "scale": {
                    "domain": domain,
                    "range": [mixed(inks[look.ink], inks["ground"], look.opacity) for look in looks],
                },
            },
            "tooltip": [{"field": "phase"}, {"field": "agents"}, {"field": "from"}, {"field": "to"}],
        },
    }
    return spec_of(title, line, body, theme=theme, caption=caption)
