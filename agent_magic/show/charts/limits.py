"""What a run asked of the provider over time, beside the limits: requests under way, and the last minute's sums."""

from __future__ import annotations

import functools
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.show.charts.chart import MARGIN, Chart, Paper, in_both, spec_of, ticks
from agent_magic.show.graph.timeline import axis_for, tick_label
from agent_magic.show.markup import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.record.results import Attempt, RunRecord
    from agent_magic.show.theme import Theme

WINDOW_S = 60.0
"""Rate limits are per minute."""
MOST_STEPS = 400
PANEL_H = 84.0
GAP = 44.0
UNDER_WAY, REQUESTS, INPUT, OUTPUT = "requests under way", "requests", "input tokens", "output tokens"
TITLES = {
    UNDER_WAY: "requests under way",
    REQUESTS: "requests in the last minute",
    INPUT: "uncached input tokens in the last minute",
    OUTPUT: "output tokens in the last minute",
}


class Curve(NamedTuple):
    """A number over time, constant between its steps.

    Attributes:
        name: What is counted.
        steps: (second, value), in order.
        limit: The limit; `None` where it is unknown.
    """

    name: str
    steps: tuple[tuple[float, float], ...]
    limit: float | None = None

    @property
    def most(self) -> float:
        """Its highest value."""
        return max((value for _, value in self.steps), default=0.0)


def curves_of(record: RunRecord, limits: Mapping[str, float | None]) -> list[Curve]:
    """Count what a run asked of the provider.

    Requests and input count when they are sent, output when its answer is complete. Served answers count nothing.

    Args:
        record: The run.
        limits: What is known of the limits, by the names above.
    """
    sent = [one for one in record.attempts if not one.is_served]
    under_way = [(one.started_s, 1.0) for one in sent]
    under_way += [(one.ended_s, -1.0) for one in sent if one.ended_s is not None]
    sums = {
        UNDER_WAY: _running(under_way),
        REQUESTS: _running(_leaving((one.started_s, 1.0) for one in sent)),
        INPUT: _running(_leaving(_tokens_in(sent))),
        OUTPUT: _running(_leaving(_tokens_out(sent))),
    }
    return [Curve(name, tuple(steps), limits.get(name)) for name, steps in sums.items()]


def limits_chart(
    curves: Sequence[Curve],
    *,
    until_s: float,
    refused_s: Sequence[float] = (),
    title: str,
    line: str,
    caption: str = "",
    theme: Theme = "auto",
) -> Chart:
    """Draw what a run asked of the provider over time, a panel each.

    Args:
        curves: What was counted.
        until_s: The end of the run.
        refused_s: When the provider turned a request away with 429.
        title: What it is of.
        line: The run's numbers in a line.
        caption: Where the numbers come from.
        theme: Its colours.
    """
    paper = Paper(theme)
    paper.head(title, line)
    axis = axis_for(until_s)
    x, top = MARGIN + 56, 96.0
    wide = paper.width - x - MARGIN - 8
    for curve in curves:
        _panel(paper, curve, (x, top, wide / axis.span_s, wide), until_s)
        if curve.name == REQUESTS:
            for at in refused_s:
                paper.line(f"M{number(x + at / axis.span_s * wide)} {number(top + PANEL_H)}v-10", ink="fail", w=2)
        top += PANEL_H + GAP
    for tick in axis.ticks_s:
        paper.text(x + tick / axis.span_s * wide, top - GAP + 18, tick_label(tick, axis.span_s), anchor="middle")
    refused = f"red ticks: {len(refused_s):,} requests turned away (429)" if refused_s else ""
    caption = " · ".join(filter(None, [refused, caption]))
    paper.caption(top - GAP + 42, caption)
    text = [title, line, *(_said(curve) for curve in curves), *([caption] if caption else [])]
    both = in_both(theme, functools.partial(_spec, curves, until_s, refused_s, (title, line, caption)))
    return Chart(title, paper.svg(top - GAP + 56, f"{title}: {line}"), text="\n".join(text), **both)


def _panel(paper: Paper, curve: Curve, frame: tuple[float, float, float, float], until_s: float) -> None:
    x, top, across, wide = frame
    limit = curve.limit
    near = limit is not None and curve.most > limit * 0.25
    most = ticks(max(curve.most, limit or 0.0 if near else 0.0, 1.0), 3)[-1]
    scale, bottom = PANEL_H / most, top + PANEL_H
    paper.text(x, top - 10, TITLES[curve.name], size=12, ink="ink", weight=600)
    for mark in (0.0, most / 2, most):
        y = bottom - mark * scale
        paper.line(f"M{number(x)} {number(y)}H{number(x + wide)}")
        paper.text(x - 8, y + 4, f"{mark:,.6g}", anchor="end")
    points, value, last = f"M{number(x)} {number(bottom)}", 0.0, 0.0
    for at, value in thinned(curve.steps, until_s):
        points += f"H{number(x + at * across)}V{number(bottom - value * scale)}"
        last = at
    end = number(x + max(until_s, last) * across)
    paper.shape(f"{points}H{end}V{number(bottom)}Z", ink="run", opacity=0.16)
    paper.line(f"{points}H{end}", ink="run", w=1.5)
    if limit is not None:
        words = f"limit {limit:,.6g}" if curve.name != UNDER_WAY else f"at most {limit:,.6g}"
        if near:
            y = bottom - limit * scale
            paper.line(f"M{number(x)} {number(y)}H{number(x + wide)}", ink="fail", w=1.2, dash="5 4")
        paper.text(
            x + wide, top - 10, words if near else f"{words}, far above", anchor="end", ink="fail" if near else "soft"
        )
    else:
        paper.text(x + wide, top - 10, "limit unknown", anchor="end")


def thinned(steps: Sequence[tuple[float, float]], until_s: float) -> list[tuple[float, float]]:
    """Keep of many steps the highest of each short stretch: no peak is lost."""
    inside = [step for step in steps if step[0] <= until_s]
    if len(inside) <= MOST_STEPS:
        return inside
    width = until_s / MOST_STEPS
    highest: dict[int, float] = {}
    for at, value in inside:
        place = int(at / width)
        highest[place] = max(highest.get(place, 0.0), value)
    return [(place * width, value) for place, value in sorted(highest.items())]


def _tokens_in(attempts: Iterable[Attempt]) -> list[tuple[float, float]]:
    return [
        (one.started_s, float(one.usage.input_tokens + (one.usage.cache_write_tokens or 0)))
        for one in attempts
        if one.usage is not None and one.usage.input_tokens is not None
    ]


def _tokens_out(attempts: Iterable[Attempt]) -> list[tuple[float, float]]:
    return [
        (one.ended_s, float(one.usage.output_tokens))
        for one in attempts
        if one.ended_s is not None and one.usage is not None and one.usage.output_tokens is not None
    ]


def _leaving(changes: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Let every amount leave the window a minute after it came."""
    came = list(changes)
    return [*came, *((at + WINDOW_S, -amount) for at, amount in came)]


def _running(changes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Add changes up in order of time, one step per moment."""
    steps: list[tuple[float, float]] = []
    value = 0.0
    for at, change in sorted(changes):
        value += change
        if steps and steps[-1][0] == at:
            steps[-1] = (at, value)
        else:
            steps.append((at, value))
    return steps


def value_at(curve: Curve, at_s: float) -> float:
    """Return a curve's value at a moment."""
    place = bisect_right(curve.steps, at_s, key=lambda step: step[0])
    return curve.steps[place - 1][1] if place else 0.0


def _said(curve: Curve) -> str:
    limit = "limit unknown" if curve.limit is None else f"limit {curve.limit:,.6g}"
    return f"  {TITLES[curve.name]}: at most {curve.most:,.6g} ({limit})"


def _spec(
    curves: Sequence[Curve], until_s: float, refused_s: Sequence[float], words: tuple[str, str, str], theme: Theme
) -> dict[str, Any]:
    inks = Paper(theme).inks
    panels: list[dict[str, Any]] = []
    for curve in curves:
        x: dict[str, Any] = {"field": "second", "type": "quantitative", "scale": {"domain": [0, until_s or 1]}}
        x["title"] = "seconds" if curve is curves[-1] else None
        steps = [(0.0, 0.0), *thinned(curve.steps, until_s)]
        rows = [{"second": round(at, 3), "value": value} for at, value in [*steps, (until_s, steps[-1][1])]]
        y: dict[str, Any] = {
            "field": "value",
            "type": "quantitative",
            "title": None,
            "stack": None,
            "scale": {"zero": True},
        }
        y["axis"] = {"tickCount": 3}
        area = {
            "type": "area",
            "interpolate": "step-after",
            "color": inks["run"],
            "opacity": 0.18,
            "line": {"color": inks["run"]},
        }
        layers: list[dict[str, Any]] = [
            {
                "data": {"values": rows},
                "mark": area,
                "encoding": {"x": x, "y": y, "tooltip": [{"field": "second"}, {"field": "value"}]},
            }
        ]
        if curve.limit is not None and curve.most > curve.limit * 0.25:
            rule = {"type": "rule", "color": inks["fail"], "strokeDash": [5, 4]}
            layers.append({"data": {"values": [{"value": curve.limit}]}, "mark": rule, "encoding": {"y": y}})
        if curve.name == REQUESTS and refused_s:
            mark = {"type": "tick", "orient": "vertical", "color": inks["fail"], "thickness": 2}
            ticks_ = [{"second": at, "value": 0} for at in refused_s]
            layers.append({"data": {"values": ticks_}, "mark": mark, "encoding": {"x": x, "y": y}})
        limit = "" if curve.limit is None else f" (limit {curve.limit:,.6g})"
        panels.append(
            {
                "title": {"text": TITLES[curve.name] + limit, "fontSize": 12, "anchor": "start"},
                "width": 720,
                "height": 84,
                "layer": layers,
            }
        )
    return spec_of(words[0], words[1], {"vconcat": panels, "spacing": 18}, theme=theme, caption=words[2])
