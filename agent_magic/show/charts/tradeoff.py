"""Cost against time: every scenario a point, those that none beats in both joined to the Pareto front."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agent_magic.show.charts.chart import MARGIN, WIDTH, Chart, Paper, in_both, spec_of, ticks
from agent_magic.show.charts.points import Point, points_of
from agent_magic.show.markup import fit, number, single_line, width_px
from agent_magic.show.units import dollars, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.show.theme import Theme

Box: TypeAlias = tuple[float, float, float, float]
LARGE = 1500
"""More points than this are thinned out: the front and an even choice of the rest."""
_PLOT_H = 340.0
_PLOT_W = WIDTH - 2 * MARGIN - 68
_ROOM = 4.0
_MOST_SPARED = 150
_OFF = 20.0
"""What takes so many times longer than the median of the rest, such as a batch, is drawn at the top edge."""
_FAR = (-26.0, -42.0, -58.0, -74.0)


class Mark(NamedTuple):
    """A point of its own beside the scenarios, such as the run itself.

    Attributes:
        label: What it is.
        cost_usd: Dollars.
        wall_s: Seconds.
        strong: Whether it is the one to look at.
    """

    label: str
    cost_usd: float
    wall_s: float
    strong: bool = False

    @property
    def words(self) -> str:
        """Its label with its numbers."""
        return f"{self.label}: {seconds(self.wall_s)}, {dollars(self.cost_usd)}"


def tradeoff_chart(frame: Any, *, marks: Sequence[Mark] = (), caption: str = "", theme: Theme = "auto") -> Chart:
    """Draw a frame of scenarios as cost against time.

    Args:
        frame: What `run.whatif(...)` returned.
        marks: Points beside the scenarios, such as the run itself.
        caption: Where the numbers come from.
        theme: Its colours.
    """
    points = points_of(frame)
    left_out = len(frame) - len(points)
    front = sorted((one for one in points if one.front), key=lambda one: one.cost_usd)
    title = "Cost against time"
    line = f"{plural(len(points), 'scenario')}, {len(front)} of them on the front: none is both cheaper and faster"
    lost = f"{plural(left_out, 'scenario')} without a known price or time not shown" if left_out else ""
    caption = " · ".join(filter(None, [caption, lost]))
    shown = [one for number_, one in enumerate(points) if one.front or number_ % (len(points) // LARGE + 1) == 0]
    if len(shown) < len(points):
        caption = " · ".join(filter(None, [caption, f"{len(shown):,} of {len(points):,} points drawn"]))
    marks = _merged(marks)
    off = sum(one.wall_s > _scales(points, marks, 0.0)[2].most_s for one in points)
    caption = " · ".join(filter(None, [caption, f"↑ {off} above the scale" if off else ""]))
    svg = _svg(shown, front, marks, (title, line, caption), theme)
    text = _text(front, marks, (title, line, caption))
    both = in_both(theme, functools.partial(_spec, shown, front, marks, (title, line, caption)))
    return Chart(title, svg, text=text, **both)


def _merged(marks: Sequence[Mark]) -> list[Mark]:
    """Give marks that stand at one place one label."""
    found: dict[str, Mark] = {}
    for mark in marks:
        place = mark._replace(label="").words
        other = found.get(place)
        label = mark.label if other is None else f"{other.label} and {mark.label}"
        found[place] = mark._replace(label=label, strong=mark.strong or (other is not None and other.strong))
    return list(found.values())


def _svg(
    points: Sequence[Point],
    front: Sequence[Point],
    marks: Sequence[Mark],
    words: tuple[str, str, str],
    theme: Theme,
) -> str:
    paper = Paper(theme)
    paper.head(words[0], words[1])
    top = 92.0
    across, up, place = _scales(points, marks, top + _PLOT_H)
    x, wide = place.left, _PLOT_W
    for tick in up:
        paper.line(f"M{number(x)} {number(place.y(tick))}H{number(x + wide)}")
        paper.text(x - 8, place.y(tick) + 4, f"{tick:,.6g}", anchor="end")
    for tick in across:
        paper.text(place.x(tick), top + _PLOT_H + 18, _money(tick), anchor="middle")
    paper.text(MARGIN, top - 12, "seconds")
    paper.text(x + wide, top + _PLOT_H + 38, "dollars", anchor="end")
    _draw_points(paper, points, front, place)
    taken = _taken(points, place)
    for mark in marks:
        _draw_mark(paper, mark, place, taken)
    _draw_labels(paper, _placed(front, place, taken), place)
    paper.caption(top + _PLOT_H + 58, words[2])
    return paper.svg(top + _PLOT_H + (72 if words[2] else 52), f"{words[0]}: {words[1]}")


class _Place(NamedTuple):
    """Where dollars and seconds are on the paper."""

    left: float
    bottom: float
    across: float
    up: float
    most_s: float

    def x(self, cost: float) -> float:
        return self.left + cost * self.across

    def y(self, wall: float) -> float:
        """What is off the scale stands at its top edge."""
        return self.bottom - min(wall, self.most_s) * self.up

    def words(self, one: Point | Mark) -> str:
        """Return a label, with the seconds of what is off the scale."""
        return f"↑ {seconds(one.wall_s)} · {one.label}" if one.wall_s > self.most_s else one.label


def _scales(points: Sequence[Point], marks: Sequence[Mark], bottom: float) -> tuple[list[float], list[float], _Place]:
    """Choose scales from 0 that hold every point, but those that would leave the others no room."""
    costs = [one.cost_usd for one in (*points, *marks)]
    walls = sorted(one.wall_s for one in (*points, *marks))
    while len(walls) > 1 and walls[-1] > _OFF * walls[(len(walls) - 2) // 2]:
        walls.pop()
    across, up = ticks(max(costs, default=1.0) * 1.06, 6), ticks(max(walls, default=1.0) * 1.04, 6)
    return across, up, _Place(MARGIN + 52, bottom, _PLOT_W / across[-1], _PLOT_H / up[-1], up[-1])


def _taken(points: Sequence[Point], place: _Place) -> list[Box]:
    """Return where labels should not stand: on the front, and where there are few points on none of them."""
    kept = [one for one in points if one.front or len(points) <= _MOST_SPARED]
    return [(place.x(one.cost_usd) - 4, place.y(one.wall_s) - 4, 8.0, 8.0) for one in kept]


def _draw_points(paper: Paper, points: Sequence[Point], front: Sequence[Point], place: _Place) -> None:
    for one in points:
        if not one.front:
            paper.dot(place.x(one.cost_usd), place.y(one.wall_s), 3.2, ink="none", hollow=True, hint=_hint(one))
    steps = [f"{number(place.x(one.cost_usd))} {number(place.y(one.wall_s))}" for one in front]
    if len(front) > 1:
        path = f"M{steps[0]}" + "".join(
            f"H{number(place.x(one.cost_usd))}V{number(place.y(one.wall_s))}" for one in front[1:]
        )
        paper.line(path, ink="run", w=1.6)
    for one in front:
        if one.wall_range_s is not None and one.wall_range_s[1] > one.wall_range_s[0]:
            low, high = one.wall_range_s
            at = number(place.x(one.cost_usd))
            paper.line(f"M{at} {number(place.y(low))}V{number(max(place.y(high), 60.0))}", ink="run", w=1.0)
        paper.dot(place.x(one.cost_usd), place.y(one.wall_s), 4.6, ink="run", hint=_hint(one))


def _draw_mark(paper: Paper, mark: Mark, place: _Place, taken: list[Box]) -> None:
    """Draw a diamond, filled where it is the one to look at, and its words above or below it."""
    at_x, at_y = place.x(mark.cost_usd), place.y(mark.wall_s)
    diamond = f"M{number(at_x)} {number(at_y - 7)}l7 7l-7 7l-7 -7Z"
    if mark.strong:
        paper.shape(diamond, ink="ink", hint=mark.words)
    paper.line(diamond, ink="ink", w=1.8)
    taken.append((at_x - 8, at_y - 8, 16.0, 16.0))
    width = width_px(mark.words, 11, bold=True)
    left = min(max(at_x - width / 2, place.left + 4), paper.width - MARGIN - width)
    heights = [at_y + dy for dy in (-14.0, 22.0, -30.0, -46.0, -62.0) if 62 < at_y + dy < place.bottom - 4]
    free = [y for y in heights if not any(_touch((left, y - 11, width, 13.0), other) for other in taken)]
    y = (free or heights or [at_y - 14])[0]
    taken.append((left, y - 11, width, 13.0))
    paper.text(left, y, mark.words, ink="ink", weight=650)


class _Label(NamedTuple):
    """A label of the front, and where it stands beside its point."""

    point: Point
    words: str
    dx: float
    dy: float


def _placed(front: Sequence[Point], place: _Place, taken: list[Box]) -> list[_Label]:
    """Find room for the labels of the front; where there is none, the point keeps its tooltip only."""
    labels: list[_Label] = []
    for one in front:
        at_x, at_y = place.x(one.cost_usd), place.y(one.wall_s)
        words = fit(single_line(place.words(one)), 230, 11)
        width = width_px(words, 11)
        beside = [(9.0, -9.0), (9.0, 14.0), (-9.0 - width, -9.0), (-9.0 - width, 14.0)]
        for dx, dy in [*beside, *((dx, dy) for dy in _FAR for dx in (9.0, -width / 2, -9.0 - width))]:
            box = (at_x + dx, at_y + dy - 10, width, 13.0)
            inside = place.left <= box[0] and box[0] + width <= WIDTH - MARGIN + 8 and box[1] > 56
            if inside and box[1] + 13 < place.bottom and not any(_touch(box, other) for other in taken):
                taken.append(box)
                labels.append(_Label(one, words, dx, dy))
                break
    return labels


def _draw_labels(paper: Paper, labels: Sequence[_Label], place: _Place) -> None:
    for point, words, dx, dy in labels:
        at_x, at_y = place.x(point.cost_usd), place.y(point.wall_s)
        if dy in _FAR:  # too far from its point to be read without a line
            paper.line(f"M{number(at_x)} {number(at_y - 6)}V{number(at_y + dy + 5)}", ink="edge")
        paper.text(at_x + dx, at_y + dy, words, ink="ink")


def _touch(a: Box, b: Box) -> bool:
    return a[0] < b[0] + b[2] + _ROOM and b[0] < a[0] + a[2] + _ROOM and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def _text(front: Sequence[Point], marks: Sequence[Mark], words: tuple[str, str, str]) -> str:
    lines = [words[0], words[1]]
    lines += [
        f"  {dollars(one.cost_usd):>10}  {seconds(one.wall_s):>12}  {single_line(one.label)}" for one in front[:20]
    ]
    lines += [f"  and {len(front) - 20} more"] if len(front) > 20 else []
    lines += [f"  {dollars(mark.cost_usd):>10}  {seconds(mark.wall_s):>12}  {mark.label}" for mark in marks]
    return "\n".join([*lines, *([words[2]] if words[2] else [])])


def _spec(
    points: Sequence[Point],
    front: Sequence[Point],
    marks: Sequence[Mark],
    words: tuple[str, str, str],
    theme: Theme,
) -> dict[str, Any]:
    inks = Paper(theme).inks
    across, up, place = _scales(points, marks, 92.0 + _PLOT_H)
    rows = [
        {
            "scenario": single_line(one.label),
            "dollars": one.cost_usd,
            "seconds": one.wall_s,
            "at": min(one.wall_s, place.most_s),
            "front": one.front,
            "basis": one.basis,
        }
        for one in points
    ]
    money = {"format": "$~g", "grid": False}
    x = {"field": "dollars", "type": "quantitative", "scale": {"domain": [0, across[-1]]}, "axis": money}
    y = {"field": "at", "title": "seconds", "type": "quantitative", "scale": {"domain": [0, up[-1]]}}
    tips = [{"field": one} for one in ("scenario", "dollars", "seconds", "basis")]
    on, off = {"filter": "datum.front"}, {"filter": "!datum.front"}
    layers: list[dict[str, Any]] = [
        {
            "transform": [off],
            "mark": {"type": "point", "size": 36, "color": inks["none"]},
            "encoding": {"x": x, "y": y, "tooltip": tips},
        },
        {
            "transform": [on],
            "mark": {"type": "line", "interpolate": "step-after", "color": inks["run"], "strokeWidth": 1.6},
            "encoding": {"x": x, "y": y},
        },
        {
            "transform": [on],
            "mark": {"type": "point", "filled": True, "size": 70, "color": inks["run"], "opacity": 1},
            "encoding": {"x": x, "y": y, "tooltip": tips},
        },
    ]
    taken = _taken([*points, *(Point("", mark.wall_s, mark.cost_usd, front=True) for mark in marks)], place)
    for point, shown, dx, dy in _placed(front, place, taken):
        label = {"type": "text", "align": "left", "dx": dx, "dy": dy - 4, "color": inks["ink"]}
        values = [{"scenario": shown, "dollars": point.cost_usd, "at": min(point.wall_s, place.most_s)}]
        layers.append(
            {"data": {"values": values}, "mark": label, "encoding": {"x": x, "y": y, "text": {"field": "scenario"}}}
        )
    for mark in marks:
        known = {"dollars": mark.cost_usd, "seconds": mark.wall_s, "at": min(mark.wall_s, place.most_s)}
        values = [{"scenario": mark.label, **known, "basis": mark.label}]
        look = {"type": "point", "shape": "diamond", "size": 140, "color": inks["ink"], "filled": mark.strong}
        encoding = {"x": x, "y": y, "tooltip": tips}
        layers.append(
            {"data": {"values": values}, "mark": {**look, "strokeWidth": 1.8, "opacity": 1}, "encoding": encoding}
        )
    body = {"width": _PLOT_W, "height": _PLOT_H, "data": {"values": rows}, "layer": layers}
    return spec_of(words[0], words[1], body, theme=theme, caption=words[2])


def _hint(one: Point) -> str:
    return f"{single_line(one.label)}: {seconds(one.wall_s)}, {dollars(one.cost_usd)}" + (
        f", {one.basis}" if one.basis else ""
    )


def _money(value: float) -> str:
    return "$0" if not value else f"${value:.4g}"
