"""Cost against time: a point per scenario, and the Pareto front as a line."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.declare.units import dollars, plural, seconds
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.forecast.whatif import Rows
from agent_magic.measure.frames import next_step
from agent_magic.measure.metrics import summarize
from agent_magic.record.display import single_line
from agent_magic.show.charts.chart import compose, provenance
from agent_magic.show.charts.marks import Line, Look, Panel, Point, Scale, around, numbers, place_label
from agent_magic.show.markup import fit, width_px

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.record.results import RunRecord
    from agent_magic.show.charts.chart import Chart
    from agent_magic.show.charts.marks import Box, Mark
    from agent_magic.show.theme import Theme

HEIGHT: Final = 340.0
MOST_POINTS: Final = 1500
"""With more points, only the front and an even sample of the rest are drawn."""
OFF_SCALE: Final = 20.0
"""Scenarios this many times slower than the median, such as a batch, are drawn at the top edge."""
MODEL_INKS: Final = ("run", "kept", "tape", "wait", "done")
"""In order of appearance; with more models, all points have the first."""
FAMILY_INKS: Final = {"haiku": "tape", "sonnet": "kept", "opus": "run"}
MOST_AVOIDED: Final = 150
"""With more points, labels avoid only the front."""
MOST_LABELLED: Final = 24
"""With more scenarios, only the best are labelled."""
HINT: Final = "Give what run.whatif(...) returned."
NONE: Final = frozenset({"<NA>", "None", "nan"})


class Scenario(NamedTuple):
    """A point; `label` is how it differs from the others, `model` is empty if all agree."""

    label: str
    wall_s: float
    cost_usd: float
    model: str = ""
    is_front: bool = False
    wall_range_s: tuple[float, float] | None = None
    basis: str = ""


class Marked(NamedTuple):
    """The run itself, or the chosen scenario."""

    label: str
    cost_usd: float
    wall_s: float
    is_measured: bool = False


def tradeoff(frame: Any, *, theme: Theme = "auto") -> Chart:
    """Draw a frame of `run.whatif(...)` as cost against time.

    Args:
        frame: The frame.
        theme: `auto` (follows the page), `light` or `dark`.

    Raises:
        DeclarationError: It is not such a frame.
    """
    check_frame(frame)
    return tradeoff_chart(rows_of(frame), caption=_frame_caption(frame), theme=theme)


def run_tradeoff(record: RunRecord, frame: Any, *, chosen: Any = None, step: str = "", theme: Theme = "auto") -> Chart:
    check_frame(frame)
    totals = summarize(record)
    is_known = totals.cost_usd is not None and totals.wall_s is not None
    measured = record.forecast is None
    ran = Marked("this run", totals.cost_usd or 0.0, totals.wall_s or 0.0, is_measured=measured)
    marked = [ran] if is_known else []
    if chosen is not None:
        marked.append(_chosen(frame, chosen))
        label = chosen.item() if hasattr(chosen, "item") else chosen
        step = f"run.apply(frame.loc[{label!r}]) takes the chosen one"
    caption = [next_step(record, step), *_frame_caption(frame)]
    return tradeoff_chart(rows_of(frame), marked=marked, caption=caption, theme=theme)


def _chosen(frame: Any, chosen: Any) -> Marked:
    """Raise `DeclarationError` if the label is not unique or has no time or cost."""
    labels: list[Any] = frame.index.tolist()
    places = [index for index, label in enumerate(labels) if isinstance(chosen, Hashable) and label == chosen]
    if len(places) != 1:
        what = f"the label of {len(places)} rows" if places else "no row"
        such = f", such as {labels[0]!r}" if len(places) < len(labels) else ""
        hint = (
            f"It has {plural(len(labels), 'row')}; give the label of one{such}. frame.reset_index() tells them apart."
        )
        raise DeclarationError(f"chosen={shown_value(chosen)} is {what} of the frame.", hint=hint)
    cost, wall_s = (frame[name].iloc[places[0]] for name in ("cost_usd", "wall_s"))
    if not (is_number(cost) and is_number(wall_s)):
        hint = "Choose one that has both: frame.dropna(subset=['cost_usd', 'wall_s'])."
        raise DeclarationError(f"The seconds or dollars of row {shown_value(chosen)} are unknown.", hint=hint)
    return Marked("chosen", float(cost), float(wall_s))


def _frame_caption(frame: Any) -> list[str]:
    nothing = "nothing was sent" if frame.attrs.get("source") == "forecast" else ""
    return provenance(simulated=bool(frame.attrs.get("simulated")), forecast=nothing)


def tradeoff_chart(
    found: Rows, *, marked: Sequence[Marked] = (), caption: Sequence[str] = (), theme: Theme = "auto"
) -> Chart:
    known = scenarios_of(found)
    marked = _merged(marked)
    plot = _plot(known, marked)
    step = len(known) // MOST_POINTS + 1
    shown = [one for index, one in enumerate(known) if one.is_front or index % step == 0]
    front = sorted((one for one in known if one.is_front), key=lambda one: one.cost_usd)
    looks = looks_of([one.model for one in known])
    points = [*_diamonds([one for one in marked if not one.is_measured], plot), *_points(shown, front, plot, looks)]
    points += _diamonds([one for one in marked if one.is_measured], plot)
    marks = [*points, *_labels(shown, front, marked, plot)]
    unknown, above = len(found.rows) - len(known), sum(one.wall_s > _top_s(plot) for one in known)
    notes = [
        "solid: measured, hollow: forecast" if any(one.is_measured for one in marked) else "",
        f"{plural(unknown, 'scenario')} without a known price or time not shown" if unknown else "",
        f"{len(shown):,} of {len(known):,} points drawn" if len(shown) < len(known) else "",
        f"↑ {above} above the scale" if above else "",
    ]
    line = _best(front, len(known))
    legend = [look._replace(size=8.0) for look in looks.values()] if len(looks) > 1 else []
    panels = [replace(plot, marks=marks)]
    return compose("Cost against time", line, panels, legend=legend, caption=[*caption, *notes], theme=theme)


def _best(front: Sequence[Scenario], known: int) -> str:
    if len(front) == 1 and known > 1:
        return f"the cheapest and fastest of {known:,} scenarios: {single_line(front[0].label)}"
    best = f"the best {len(front):,} of {plural(known, 'scenario')}"
    return f"{best}, joined: each other one is dearer or slower than one of these" if len(front) < known else best


def rows_of(frame: Any) -> Rows:
    """Return the scenarios; the columns before `wall_s` are the arguments."""
    check_frame(frame)
    columns = [str(name) for name in frame.columns]
    return Rows(columns[: columns.index("wall_s")], frame.to_dict("records"))


def scenarios_of(found: Rows) -> list[Scenario]:
    asked, rows = found
    varied = [name for name in asked if len({str(row[name]) for row in rows}) > 1]
    drawn = [
        Scenario(
            " · ".join(_word(name, row[name]) for name in varied if str(row[name]) not in NONE) or "as it was",
            float(row["wall_s"]),
            float(row["cost_usd"]),
            _word("model", row["model"]) if "model" in varied else "",
            wall_range_s=_range(row),
            basis=str(row.get("basis", "")),
        )
        for row in rows
        if is_number(row["wall_s"]) and is_number(row["cost_usd"])
    ]
    front = pareto([(one.cost_usd, one.wall_s) for one in drawn])
    return [one._replace(is_front=index in front) for index, one in enumerate(drawn)]


def check_frame(frame: Any) -> None:
    if not hasattr(frame, "columns") or not hasattr(frame, "attrs"):
        raise DeclarationError(f"frame must be a frame of scenarios, got {shown_value(frame)}.", hint=HINT)
    columns = [str(name) for name in frame.columns]
    for name in ("wall_s", "cost_usd"):
        if name not in columns:
            raise DeclarationError(f"The frame has no column {name!r}: {columns!r}.", hint=HINT)


def pareto(pairs: Sequence[tuple[float, float]]) -> set[int]:
    """Return the indices on the Pareto front; of equal pairs the first."""
    order = sorted(range(len(pairs)), key=lambda place: (*pairs[place], place))
    best, front = math.inf, set[int]()
    for place in order:
        if pairs[place][1] < best:
            best = pairs[place][1]
            front.add(place)
    return front


def _word(name: str, value: object) -> str:
    if name == "concurrency":
        return f"concurrency {value}"
    if name == "cache_ttl":
        return f"cached {value}"
    if name in {"cache", "batch"}:
        return f"{name} {({'True': 'on', 'False': 'off'}).get(str(value), str(value))}"
    return "as it was" if str(value) in NONE else single_line(str(value).replace("claude-", ""))


def is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):  # `None`, and pandas' `NA`
        return False


def _range(row: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = row.get("wall_low_s"), row.get("wall_high_s")
    return (float(str(low)), float(str(high))) if is_number(low) and is_number(high) else None


def _merged(marked: Sequence[Marked]) -> list[Marked]:
    found: dict[tuple[str, str], Marked] = {}
    for one in marked:
        place = (dollars(one.cost_usd), seconds(one.wall_s))
        other = found.get(place)
        label = one.label if other is None else f"{other.label} and {one.label}"
        found[place] = one._replace(
            label=label, is_measured=one.is_measured or (other is not None and other.is_measured)
        )
    return list(found.values())


def _plot(scenarios: Sequence[Scenario], marked: Sequence[Marked]) -> Panel:
    costs = [one.cost_usd for one in (*scenarios, *marked)]
    walls = sorted(one.wall_s for one in (*scenarios, *marked))
    while len(walls) > 1 and walls[-1] > OFF_SCALE * walls[(len(walls) - 2) // 2]:
        walls.pop()
    across, up = numbers(max(costs, default=1.0) * 1.06, 6), numbers(max(walls, default=1.0) * 1.04, 6)
    x = Scale(across[-1], across, label=dollar_tick, write=dollars)
    y = Scale(up[-1], up, label=lambda tick: f"{tick:,.6g}")
    return Panel((), x, y, height=HEIGHT, left=52, title="seconds")


def dollar_tick(value: float) -> str:
    return "$0" if not value else f"${value:.4g}"


def _top_s(plot: Panel) -> float:
    return plot.y.most if isinstance(plot.y, Scale) else math.inf


def looks_of(models: Iterable[str]) -> dict[str, Look]:
    models = list(dict.fromkeys(models))
    if len(models) > len(MODEL_INKS):
        return {model: Look("run", size=4.6, word=model) for model in models}
    inks = dict[str, str]()
    for model in models:
        own = FAMILY_INKS.get(model.partition("-")[0])
        if own is not None and own not in inks.values():
            inks[model] = own
    free = iter([ink for ink in MODEL_INKS if ink not in inks.values()])
    return {model: Look(inks.get(model) or next(free), size=4.6, word=model) for model in models}


def _points(
    scenarios: Sequence[Scenario], front: Sequence[Scenario], plot: Panel, looks: Mapping[str, Look]
) -> list[Mark]:
    top = _top_s(plot)
    marks: list[Mark] = [
        Point(one.cost_usd, min(one.wall_s, top), looks[one.model]._replace(size=3.2, hollow=True), _facts(one))
        for one in scenarios
        if not one.is_front
    ]
    if len(front) > 1:
        marks.append(
            Line([(one.cost_usd, min(one.wall_s, top)) for one in front], Look("soft", size=1.4), is_stepped=True)
        )
    for one in front:
        if one.wall_range_s is not None and one.wall_range_s[1] > one.wall_range_s[0]:
            low, high = one.wall_range_s
            marks.append(
                Line([(one.cost_usd, min(low, top)), (one.cost_usd, min(high, top))], Look(looks[one.model].ink))
            )
        look = looks[one.model]._replace(hollow=True)
        marks.append(Point(one.cost_usd, min(one.wall_s, top), look, _facts(one), label=single_line(one.label)))
    return marks


def _facts(one: Scenario) -> dict[str, str | float]:
    return {
        "scenario": single_line(one.label),
        "seconds": seconds(one.wall_s),
        "dollars": dollars(one.cost_usd),
        "basis": one.basis,
    }


def _diamonds(marked: Sequence[Marked], plot: Panel) -> list[Mark]:
    return [
        Point(
            one.cost_usd,
            min(one.wall_s, _top_s(plot)),
            Look("ink", size=7.0 if one.is_measured else 10.0, hollow=not one.is_measured),
            {"scenario": one.label, "seconds": seconds(one.wall_s), "dollars": dollars(one.cost_usd)},
            one.label,
            "diamond",
        )
        for one in marked
    ]


def _labels(
    scenarios: Sequence[Scenario], front: Sequence[Scenario], marked: Sequence[Marked], plot: Panel
) -> list[Mark]:
    top = _top_s(plot)
    kept = [one for one in scenarios if one.is_front or len(scenarios) <= MOST_AVOIDED]
    spots = [(plot.at_x(one.cost_usd), plot.at_y(min(one.wall_s, top))) for one in kept]
    taken: list[Box] = [(x - 4, y - 4, 8.0, 8.0) for x, y in spots]
    taken += [(plot.at_x(one.cost_usd) - 8, plot.at_y(min(one.wall_s, top)) - 8, 16.0, 16.0) for one in marked]
    marks: list[Mark] = []
    for one in marked:
        words = f"{one.label}: {seconds(one.wall_s)}, {dollars(one.cost_usd)}"
        width = width_px(words, 11, bold=True)
        middle = min(max(plot.at_x(one.cost_usd) - width / 2, 4), plot.width - width)
        offers = [(middle - plot.at_x(one.cost_usd), dy) for dy in (-14.0, 22.0, -30.0, 38.0, -46.0, -62.0)]
        marks += place_label(one.cost_usd, min(one.wall_s, top), words, offers, plot, taken, is_bold=True)
    for one in front:
        words = f"↑ {seconds(one.wall_s)} · {one.label}" if one.wall_s > top else one.label
        words = fit(single_line(words), 230, 11)
        marks += place_label(one.cost_usd, min(one.wall_s, top), words, around(words), plot, taken)
    for one in scenarios if len(scenarios) <= MOST_LABELLED else ():
        words = fit(single_line(one.label.removeprefix(one.model).removeprefix(" · ")), 160, 11)
        if words and not one.is_front and one.wall_s <= top:
            offers = [(8.0, 4.0), (-8.0 - width_px(words, 11), 4.0)]
            marks += place_label(one.cost_usd, one.wall_s, words, offers, plot, taken, ink="soft")
    return marks
