"""A dashboard of a run over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from agent_magic.declare.units import count, seconds
from agent_magic.engine.alerts import METRICS, SHARES, Gauges, slots_of
from agent_magic.errors import and_more
from agent_magic.record.display import single_line
from agent_magic.record.events import AttemptEnded
from agent_magic.show.charts.chart import compose, provenance
from agent_magic.show.charts.limits import evenly, percent, shares_of
from agent_magic.show.charts.marks import MARGIN, WIDTH, Area, Line, Look, Panel, Scale, numbers, times
from agent_magic.show.text import run_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.engine.alerts import Episode
    from agent_magic.live.monitor import Sample
    from agent_magic.record.results import RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.charts.marks import Mark
    from agent_magic.show.theme import Theme

BINS: Final = 60
LEFT: Final = 52.0
GAP: Final = 28.0
HALF: Final = (WIDTH - 2 * MARGIN + GAP) / 2
HEIGHT: Final = 84.0
ERROR_INKS: Final = ("fail", "wait", "tape", "kept", "soft")
WORKER_INKS: Final = ("done", "kept", "tape", "wait", "soft")
T = TypeVar("T")
LIMIT_INKS: Final = ("kept", "tape", "tool", "idle")


class Moment(NamedTuple):
    """A run at the end of a bin."""

    at_s: float
    values: Mapping[str, float | None]


def run_dashboard(
    record: RunRecord, samples: Sequence[Sample] = (), episodes: Iterable[Episode] = (), *, theme: Theme = "auto"
) -> Chart:
    until_s = max((event.at_s for event in record.events), default=0.0)
    x, moments = times(until_s), moments_of(record, until_s)
    errors, looks = _errors(record, x, until_s)
    workers, more_looks = _workers(record, x, until_s)
    limits, limit_looks = _limits(record, x, until_s)
    panels = [
        _rates(record, x, until_s), errors,
        _agents(record, moments, x), _latency(moments, x),
        _dollars(moments, x), limits,
        *workers, *_kernel(samples, x),
    ]  # fmt: skip
    found = list(episodes)
    alerts = "alerts: " + "; ".join(f"{one} at {seconds(one.at_s)}" for one in found[:3]) if found else ""
    caption = [alerts + and_more(len(found) - 3), *evenly(record), *provenance(simulated=record.simulated)]
    placed = [panel if index % 2 == 0 else panel.moved(HALF) for index, panel in enumerate(panels)]
    legend = [*LINES, *looks, *limit_looks, *more_looks]
    title = f"{single_line(record.plan.name)}: dashboard"
    return compose(title, run_line(record, until_s), placed, legend=legend, caption=caption, theme=theme)


def moments_of(record: RunRecord, until_s: float) -> list[Moment]:
    """Return the metrics at the end of each bin; `peak` is its maximum."""
    gauges, found, place = Gauges(slots_of(record)), list[Moment](), 0
    for number in range(1, BINS + 1):
        at_s, peak = until_s * number / BINS, gauges.running
        while place < len(record.events) and record.events[place].at_s <= at_s:
            gauges.add(record.events[place])
            place += 1
            peak = max(peak, gauges.running)
        values = {metric: gauges.value(metric, at_s) for metric in METRICS if metric not in SHARES}
        more = {"running": gauges.running, "peak": peak, "waited": gauges.waited_s}
        found.append(Moment(at_s, {**values, **more}))
    return found


LONG_S: Final = 120.0
"""Longer durations are written in minutes."""
MEDIAN: Final = Look("run", size=1.6, word="median")
P95: Final = Look("fail", size=1.6, word="95th percentile")
WAIT: Final = Look("wait", size=1.6, word="median wait", dash="4 3")
RUNNING: Final = Look("run", 0.3, 8, "under way")
WAITING: Final = Look("wait", 0.35, 8, "waiting")
LINES: Final = (RUNNING, WAITING, MEDIAN, P95, WAIT)


def _panel(marks: Sequence[Mark], x: Scale, most: float, title: str, write: Callable[[float], str], note: str) -> Panel:
    ticks = numbers(most or 1.0, 3)
    y = Scale(ticks[-1], (0.0, ticks[-1] / 2, ticks[-1]), label=write, write=write)
    return Panel(marks, x, y, height=HEIGHT, left=LEFT, right=HALF, title=title, note=note)


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float, float, float]]:
    starts = [0.0, *(at for at, _ in points[:-1])]
    return [(start, at, 0.0, value) for start, (at, value) in zip(starts, points, strict=True)]


def _series(moments: Sequence[Moment], name: str) -> list[tuple[float, float]]:
    found = [(one.at_s, one.values[name]) for one in moments]
    return [(at, value) for at, value in found if value is not None]


def _binned(at: Iterable[float], until_s: float) -> list[float]:
    """Return the rate per second in each bin; a short run's bins are averaged over a second."""
    wide = min(BINS, -(-BINS // max(1, int(until_s))))
    width, counts = max(until_s, 1e-9) / BINS, [0.0] * BINS
    for one in at:
        first = min(BINS - 1, int(one / width)) // wide * wide
        stretch = range(first, min(BINS, first + wide))
        for place in stretch:
            counts[place] += 1 / (width * len(stretch))
    return counts


def _ended(record: RunRecord) -> list[AttemptEnded]:
    ends = [one for one in record.events if isinstance(one, AttemptEnded)]
    return [one for one in ends if one.source != "ledger" and one.kind != "cancelled"]


def _stacked(layers: Sequence[tuple[Look, Sequence[float]]], until_s: float) -> tuple[list[Mark], float]:
    marks: list[Mark] = []
    floor, width = [0.0] * BINS, until_s / BINS
    for look, values in layers:
        roof = [low + value for low, value in zip(floor, values, strict=True)]
        edges = enumerate(zip(floor, roof, strict=True))
        marks.append(Area([(place * width, (place + 1) * width, low, high) for place, (low, high) in edges], look))
        floor = roof
    return marks, max(floor)


def _rates(record: RunRecord, x: Scale, until_s: float) -> Panel:
    done = [one.at_s for one in _ended(record) if one.kind is None]
    marks, most = _stacked([(Look("done", 0.45), _binned(done, until_s))], until_s)
    mean = len(done) / until_s if until_s else 0.0
    return _panel(marks, x, most, "answers a second", _short, f"{len(done):,} in all, {mean:.3g} a second")


def _errors(record: RunRecord, x: Scale, until_s: float) -> tuple[Panel, list[Look]]:
    by: dict[str, list[float]] = {}
    for one in _ended(record):
        if one.kind is not None:
            by.setdefault(one.kind, []).append(one.at_s)
    ranked = _ranked(by, ERROR_INKS, "other errors")
    marks, most = _stacked([(look, _binned(at, until_s)) for look, at in ranked], until_s) if ranked else ([], 0.0)
    note = f"{sum(map(len, by.values())):,} in all" if by else "none"
    return _panel(marks, x, most, "errors a second", _short, note), [look for look, _ in ranked]


def _ranked(by: Mapping[str, list[T]], inks: Sequence[str], others: str) -> list[tuple[Look, list[T]]]:
    ordered = sorted(by, key=lambda name: -len(by[name]))
    kept = ordered if len(ordered) <= len(inks) else ordered[: len(inks) - 1]
    found = [(name, by[name]) for name in kept]
    if rest := [one for name in ordered[len(kept) :] for one in by[name]]:
        found.append((others, rest))
    return [(Look(ink, 0.7, 8, single_line(name)), rows) for ink, (name, rows) in zip(inks, found, strict=False)]


def _workers(record: RunRecord, x: Scale, until_s: float) -> tuple[list[Panel], list[Look]]:
    by: dict[str, list[tuple[float, float]]] = {}
    for one in record.facts.ended:
        if one.worker:
            by.setdefault(one.worker, []).append((one.granted_s, until_s if one.ended_s is None else one.ended_s))
    ranked, ends = _ranked(by, WORKER_INKS, "other workers"), [until_s * number / BINS for number in range(1, BINS + 1)]
    if not ranked:
        return [], []
    under_way = [(look, [float(sum(a <= at < b for a, b in rows)) for at in ends]) for look, rows in ranked]
    marks, most = _stacked(under_way, until_s)
    note = f"{sum(map(len, by.values())):,} in all, at most {max(map(len, by.values())):,} at one"
    return [_panel(marks, x, most, "requests at workers", _short, note)], [look for look, _ in ranked]


def _agents(record: RunRecord, moments: Sequence[Moment], x: Scale) -> Panel:
    running, waiting = ([value for _, value in _series(moments, name)] for name in ("peak", "queue"))
    marks, most = _stacked([(RUNNING, running), (WAITING, waiting)], moments[-1].at_s)
    slots = slots_of(record)
    if slots is not None and slots <= 2 * most:
        marks.append(Line([(0.0, slots), (x.most, slots)], Look("soft", size=1.2, dash="5 4")))
    note = f"at most {max(running):,.0f} under way" + ("" if slots is None else f" in {slots:,} slots")
    return _panel(marks, x, most, "agents", _short, note)


def _latency(moments: Sequence[Moment], x: Scale) -> Panel:
    lines = [(look, _series(moments, name)) for look, name in ((WAIT, "waited"), (MEDIAN, "p50"), (P95, "p95"))]
    marks = [Line(points, look) for look, points in lines if points]
    most = max((value for _, points in lines for _, value in points), default=0.0)
    last = dict(lines)[P95][-1:]
    note = f"95th percentile {seconds(last[0][1])}" if last else "too few for a percentile"
    return _panel(marks, x, most, "seconds an agent took", _seconds, note)


def _dollars(moments: Sequence[Moment], x: Scale) -> Panel:
    points = _series(moments, "usd_per_min")
    most = max((value for _, value in points), default=0.0)
    note = f"at most {_usd(most)}"
    return _panel([Area(_steps(points), Look("kept", 0.45))], x, most, "dollars in the last minute", _usd, note)


def _limits(record: RunRecord, x: Scale, until_s: float) -> tuple[Panel, list[Look]]:
    curves = list(shares_of(record).values())
    marks: list[Mark] = []
    looks: list[Look] = []
    for ink, curve in zip(LIMIT_INKS, curves, strict=False):
        points = [(at, share) for at, share in curve.steps if at <= until_s]
        if points:
            points.append((until_s, points[-1][1]))
            looks.append(Look(ink, size=1.6, word=curve.name))
            marks.append(Line(points, looks[-1], is_stepped=True))
    nearest = max(curves, key=lambda one: one.most, default=None)
    most = 1.0 if nearest is None else nearest.most
    note = "limits unknown" if nearest is None else f"at most {percent(most)} of {nearest.name}"
    return _panel(marks, x, most, "rate limits used", _percent, note), looks if len(looks) > 1 else []


def _kernel(samples: Sequence[Sample], x: Scale) -> list[Panel]:
    inside = [one for one in samples if one.at_s <= x.most]
    if not inside:
        return []
    cpu = [(one.at_s, one.cpu_share) for one in inside]
    most, lag = max(share for _, share in cpu), max(one.lag_s for one in inside)
    note = f"loop up to {1000 * lag:,.0f} ms late"
    panels = [_panel([Area(_steps(cpu), Look("run", 0.3))], x, most, "CPU of the kernel, of a core", _percent, note)]
    rss = [(one.at_s, one.rss_mb) for one in inside if one.rss_mb is not None]
    if rss:
        least, most = min(value for _, value in rss), max(value for _, value in rss)
        note = f"{most - least:+,.0f} MB from least to most"
        panels.append(_panel([Area(_steps(rss), Look("tape", 0.3))], x, most, "memory of the kernel, MB", _short, note))
    return panels


def _short(value: float) -> str:
    return count(value) if value >= 1000 else f"{value:.3g}"


def _seconds(value: float) -> str:
    return seconds(value) if value > LONG_S else f"{value:.3g} s" if value >= 1 else f"{value:.2g} s"


def _usd(value: float) -> str:
    if not 0 < value < 0.1:
        return f"${value:,.3g}"
    return f"${value:.{1 - math.floor(math.log10(value))}f}".rstrip("0")


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"
