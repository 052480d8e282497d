"""Dollars against score, with the Pareto front.

A filled point is a setting of a trial, its dollars scaled to the run's rows. A ring is a scenario of a what-if: its
dollars are forecast, its score is the trial's.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.declare.units import dollars, plural
from agent_magic.declare.validation import must_be
from agent_magic.errors import DeclarationError
from agent_magic.measure.trial import Setting
from agent_magic.show.charts.chart import compose, provenance
from agent_magic.show.charts.marks import Line, Look, Panel, Point, Scale, around, numbers, place_label
from agent_magic.show.charts.tradeoff import HEIGHT, dollar_tick, is_number, looks_of, pareto, rows_of, scenarios_of
from agent_magic.show.markup import fit, width_px

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.measure.trial import Trial
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.charts.marks import Box, Mark
    from agent_magic.show.theme import Theme

STEP: Final = 0.1
"""The axis of scores begins at a multiple of this."""


class Scored(NamedTuple):
    """A point of the chart."""

    label: str
    model: str
    cost_usd: float
    score: float
    low: float
    high: float
    n: int
    cost_range_usd: tuple[float, float] | None
    is_forecast: bool
    verdict: str


def front_chart(trial: Trial, frame: Any = None, *, chosen: Setting | None = None, theme: Theme = "auto") -> Chart:
    measured = _measured(trial)
    if not measured:
        raise DeclarationError("No setting of the trial has both a score and a price.", hint="Look at trial.frame.")
    forecast = [] if frame is None else _forecast(frame, measured)
    known = [*measured, *forecast]
    front = pareto([(one.cost_usd, -one.score) for one in known])
    plot, looks = _plot(known), looks_of([one.model for one in known])
    line = sorted((known[place].cost_usd, known[place].score) for place in front)
    marks: list[Mark] = [Line(line, Look("soft", size=1.4), is_stepped=True)] if len(line) > 1 else []
    marks += _chosen(measured, chosen)
    for place, one in sorted(enumerate(known), key=lambda each: not each[1].is_forecast):  # measurements on top
        marks += _point(one, looks[one.model], is_front=place in front)
    marks += _labels(known, line, plot)
    unscored = 0 if frame is None else len(scenarios_of(rows_of(frame))) - len(forecast)
    notes = [
        "filled: measured, with intervals",
        "rings: forecast dollars, measured score" if forecast else "",
        f"{plural(unscored, 'scenario')} nobody has graded, not shown" if unscored else "",
    ]
    words = f"{len(front)} of {plural(len(known), 'setting')}, joined: no other is both cheaper and better"
    legend = [look._replace(size=8.0) for look in looks.values()] if len(looks) > 1 else []
    caption = [*provenance(simulated=trial.simulated), *notes]
    title = f"Dollars against score of {trial.target}"
    return compose(title, words, [replace(plot, marks=marks)], legend=legend, caption=caption, theme=theme)


def check_by(by: object, trials: Sequence[Trial]) -> None:
    """Raise `DeclarationError` unless a tradeoff can be drawn by this, with a trial if needed."""
    if by not in (None, "seconds", "score"):
        raise must_be("by", "seconds or score", by)
    if not trials:
        hint = (
            "run.tradeoff(by='seconds') draws dollars against seconds. "
            "Against a score: await run.trial(...) first, which grades a sample."
        )
        raise DeclarationError("No score is known: nothing forecasts one.", hint=hint)


def _measured(trial: Trial) -> list[Scored]:
    rows: list[dict[Any, Any]] = trial.frame.to_dict("records")
    found: list[Scored] = []
    for row in rows:
        label = Setting.of(row).label
        if not (is_number(row["score"]) and is_number(row["run_usd"])):
            continue
        score = float(row["score"])
        low, high = (float(row[name]) if is_number(row[name]) else score for name in ("low", "high"))
        ends = row["run_low_usd"], row["run_high_usd"]
        cost_range = (float(ends[0]), float(ends[1])) if all(map(is_number, ends)) else None
        numbers_of = (float(row["run_usd"]), score, low, high, int(row["n"]))
        found.append(
            Scored(
                label, label.split(" · ")[0], *numbers_of, cost_range, is_forecast=False, verdict=str(row["verdict"])
            )
        )
    return found


def _forecast(frame: Any, measured: Sequence[Scored]) -> list[Scored]:
    by_label = {one.label: one for one in measured}
    known = frame.dropna(subset=["wall_s", "cost_usd", "score"])
    return [
        by_label[str(of)]._replace(label=one.label, cost_usd=one.cost_usd, cost_range_usd=None, is_forecast=True)
        for one, of in zip(scenarios_of(rows_of(known)), known["score_of"], strict=True)
        if str(of) in by_label
    ]


def _plot(known: Sequence[Scored]) -> Panel:
    across = numbers(max(one.cost_usd for one in known) * 1.12, 6)
    is_share = all(0 <= one.score <= 1 for one in known)
    lowest, highest = min(one.low for one in known), max([one.high for one in known] + [1.0] * is_share)
    least = max(0.0, (lowest // STEP) * STEP) if is_share else 0.0
    ticks = [least + tick for tick in numbers((highest - least) * 0.999, 5)]
    x = Scale(across[-1], across, label=dollar_tick, write=dollars)
    y = Scale(
        max(ticks[-1], highest), ticks, least=least, label=lambda tick: f"{tick:.3g}", write=lambda one: f"{one:.2f}"
    )
    return Panel((), x, y, height=HEIGHT, left=52, title="score")


def _point(one: Scored, look: Look, *, is_front: bool) -> list[Mark]:
    facts = {
        "setting": one.label,
        "score": f"{one.score:.2f} ({one.low:.2f} to {one.high:.2f}, {plural(one.n, 'answer')})",
        "dollars": dollars(one.cost_usd),
        "verdict": "forecast dollars" if one.is_forecast else one.verdict,
    }
    if one.is_forecast:
        return [Point(one.cost_usd, one.score, look._replace(size=3.4, hollow=True), facts)]
    marks: list[Mark] = [Line([(one.cost_usd, one.low), (one.cost_usd, one.high)], Look(look.ink, size=1.4))]
    if one.cost_range_usd is not None:
        marks.append(Line([(at, one.score) for at in one.cost_range_usd], Look(look.ink, size=1.4)))
    return [*marks, Point(one.cost_usd, one.score, look._replace(size=5.6 if is_front else 4.2), facts, one.label)]


def _chosen(measured: Sequence[Scored], chosen: Setting | None) -> list[Mark]:
    marked = [one for one in measured if chosen is not None and one.label == chosen.label]
    return [
        Point(one.cost_usd, one.score, Look("ink", size=10.0, hollow=True), {}, "chosen", "diamond") for one in marked
    ]


def _labels(known: Sequence[Scored], line: Sequence[tuple[float, float]], plot: Panel) -> list[Mark]:
    taken: list[Box] = [(plot.at_x(one.cost_usd) - 6, plot.at_y(one.score) - 6, 12.0, 12.0) for one in known]
    shown = [one for one in known if not one.is_forecast]
    uprights = [(one.cost_usd, one.low, one.high) for one in shown]
    uprights += [(x, before, y) for (_, before), (x, y) in pairwise(line)]
    for x, low, high in uprights:
        taken.append((plot.at_x(x) - 1, plot.at_y(high), 2.0, plot.at_y(low) - plot.at_y(high)))
    marks: list[Mark] = []
    for one in shown:
        words = fit(f"{one.label}: {one.score:.2f}, {dollars(one.cost_usd)}", 230, 11)
        at_y, width = plot.at_y(one.score), width_px(words, 11)
        ends = (plot.at_y(one.high) - at_y - 6, plot.at_y(one.low) - at_y + 15)
        inside = max(-width / 2, 4 - plot.at_x(one.cost_usd))
        offers = [*around(words)[:4], *((dx, dy) for dy in ends for dx in (inside, 9.0, -9.0 - width))]
        marks += place_label(one.cost_usd, one.score, words, offers, plot, taken)
    return marks
