"""Panels as a Vega-Lite v5 specification with its data.

Vega-Lite does not follow the theme of its page, so `auto` has no background and colours legible on both.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent_magic.show.charts.marks import Area, Bar, Label, Line, Point, Rows
from agent_magic.show.theme import FONT, INKS_ON_EITHER, inks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agent_magic.show.charts.marks import Look, Mark, Panel, Scale
    from agent_magic.show.theme import Theme

SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v5.json"
SPARED_W: Final = 50.0
"""Px narrower than the SVG: Vega-Lite does not shrink with its page, and its menu needs room."""
_X: Final = {"field": "x", "type": "quantitative"}
_Y: Final = {"field": "y", "type": "quantitative"}
_STEP: Final = {
    "tooltip": [{"field": "x", "title": "from"}, {"field": "x2", "title": "to"}, {"field": "value"}],
}
_HEIGHT: Final = {"transform": [{"calculate": "datum.y2 - datum.y", "as": "value"}]}
_SIZE: Final = {"field": "size", "type": "quantitative", "scale": None}
_COLOUR: Final = {"field": "colour", "type": "nominal", "scale": None}


def spec_of(
    title: str, line: str, panels: Sequence[Panel], legend: Sequence[Look], caption: str, *, theme: Theme
) -> dict[str, Any]:
    inks = INKS_ON_EITHER if theme == "auto" else inks_of(theme)
    # A view without layers is no Vega-Lite: a panel with nothing in it is left out, as of a run without errors.
    views = [_view(panel, inks) for panel in panels if panel.marks]
    if legend and views:
        views[0]["layer"].insert(0, _legend(legend, inks))
    words = {"color": inks["ink"], "subtitleColor": inks["soft"], "fontSize": 16, "subtitleFontSize": 12}
    axis = {"labelColor": inks["soft"], "titleColor": inks["soft"], "gridColor": inks["line"], "domain": False}
    return {
        "$schema": SCHEMA,
        "description": f"{title}: {line}" if line else title,  # text for a screen reader
        "title": {"text": title, "subtitle": [one for one in (line, caption) if one], "anchor": "start", "offset": 12},
        "background": inks["ground"],
        "padding": 16,
        "vconcat": views,
        "spacing": 24,
        "config": {
            "font": FONT.replace("'", '"'),
            "view": {"stroke": None},
            "axis": {**axis, "ticks": False, "titleFontWeight": "normal", "labelFontSize": 11, "labelLimit": 260},
            "legend": {"labelColor": inks["soft"], "orient": "top", "title": None, "columns": 6},
            "title": {**words, "fontWeight": 600},
        },
    }


def _view(panel: Panel, inks: dict[str, str]) -> dict[str, Any]:
    view: dict[str, Any] = {"width": panel.width - SPARED_W, "height": panel.height}
    if panel.title:
        words = panel.title + (f" ({panel.note})" if panel.note else "")
        view["title"] = {"text": words, "fontSize": 12, "anchor": "start"}
    axes: dict[str, Any] = {"x": {**_X, **_axis(panel.x)}, "y": {**_Y, **_axis(panel.y)}}
    axes["x"]["axis"]["grid"] = isinstance(panel.y, Rows)
    if isinstance(panel.y, Rows):
        axes["x"]["axis"]["orient"] = "top"
    view["layer"] = list(_layers(panel.marks, axes, inks))
    return view


def _axis(scale: Scale | Rows) -> dict[str, Any]:
    """Return scale and axis, with labels written here, not by Vega."""
    if isinstance(scale, Rows):
        places = [place + 0.5 for place in range(len(scale.names))]
        bold = {"test": f"indexof({[place + 0.5 for place in sorted(scale.bold)]}, datum.value) >= 0", "value": "bold"}
        weight = {"condition": bold, "value": "normal"}
        axis = {"values": places, "labelExpr": _lookup(places, scale.names), "grid": False, "labelFontWeight": weight}
        return {"scale": {"domain": [0, len(scale.names)], "reverse": True}, "title": None, "axis": axis}
    ticks = list(scale.ticks)
    axis = {"values": ticks, "labelExpr": _lookup(ticks, list(map(scale.label, ticks)))}
    return {"scale": {"domain": [scale.least, scale.most], "nice": False}, "title": None, "axis": axis}


def _lookup(values: Sequence[float], words: Sequence[str]) -> str:
    """Return an expression that maps values to words, quoted as JSON so that no text becomes code."""
    return f"{json.dumps(list(words))}[indexof({json.dumps(list(values))}, datum.value)]"


def _layers(marks: Sequence[Mark], axes: dict[str, Any], inks: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield one layer for marks that differ only in their data."""
    layers: dict[str, list[_Reading]] = {}
    for index, mark in enumerate(marks):
        reading = _read(mark, index, inks)
        layers.setdefault(json.dumps([reading.mark, reading.channels]), []).append(reading)
    for some in layers.values():
        tips = dict.fromkeys(name for one in some for name in one.tips)
        shown = {"tooltip": [{"field": name} for name in tips]} if tips else {}
        rows = [row for one in some for row in one.rows]
        data, channels = {"data": {"values": rows}}, {**axes, **some[0].channels, **shown}
        if some[0].mark["type"] == "area":
            # An area has one tooltip only, so each step has an invisible bar with its own.
            hover = {"mark": {"type": "rect", "opacity": 0}, "encoding": {"x2": {"field": "x2"}, **_STEP}, **_HEIGHT}
            yield {**data, "encoding": channels, "layer": [{"mark": some[0].mark}, hover]}
        else:
            yield {**data, "mark": some[0].mark, "encoding": channels}


class _Reading(NamedTuple):
    mark: dict[str, Any]
    channels: dict[str, Any]
    rows: list[dict[str, Any]]
    tips: Iterable[str] = ()


def _read(mark: Mark, index: int, inks: dict[str, str]) -> _Reading:
    match mark:
        case Bar(x0, x1, y, look, facts):
            place_of = {"x": _short(x0), "x2": _short(x1), "y": y}
            row = {**place_of, "colour": _colour(look, inks), "size": look.size, **facts}
            channels = {"x2": {"field": "x2"}, "color": _COLOUR, "size": _SIZE}
            return _Reading({"type": "rule", "strokeDash": _dash(look)}, channels, [row], facts)
        case Area(steps, look):
            numbers = [tuple(map(_short, step)) for step in steps]
            rows = [{"x": x0, "x2": x1, "y": low, "y2": high} for x0, x1, low, high in numbers]
            rows += [{**row, "x": row["x2"]} for row in rows[-1:]]  # the end of the last step
            how = {"type": "area", "interpolate": "step-after", "color": _colour(look, inks)}
            return _Reading(how, {"y2": {"field": "y2"}}, rows)
        case Line(points, look, is_stepped):
            how = {"color": _colour(look, inks), "strokeWidth": look.size, "strokeDash": _dash(look)}
            rows = [{"x": _short(x), "y": _short(y), "line": index} for x, y in points]
            turns = "step-after" if is_stepped else "linear"
            return _Reading({"type": "line", "interpolate": turns, **how}, {"detail": {"field": "line"}}, rows)
        case Point(x, y, look, facts, _, shape):
            how = {"shape": shape, "filled": not look.hollow, "size": round(3.6 * look.size**2), "opacity": 1}
            row = {"x": x, "y": y, "colour": _colour(look, inks), **facts}
            return _Reading({"type": "point", **how}, {"color": _COLOUR}, [row], facts)
        case Label(x, y, words, dx, dy, ink, is_bold, anchor):
            align = {"start": "left", "middle": "center", "end": "right"}[anchor]
            how = {"dx": dx, "dy": dy - 4, "align": align, "fontWeight": 600 if is_bold else 400, "color": inks[ink]}
            return _Reading({"type": "text", **how}, {"text": {"field": "words"}}, [{"x": x, "y": y, "words": words}])


def _legend(looks: Sequence[Look], inks: dict[str, str]) -> dict[str, Any]:
    scale = {"domain": [look.word for look in looks], "range": [_colour(look, inks) for look in looks]}
    colour = {"field": "legend", "type": "nominal", "scale": scale}
    return {"data": {"values": []}, "mark": {"type": "square", "opacity": 1}, "encoding": {"color": colour}}


def _colour(look: Look, inks: dict[str, str]) -> str:
    return inks[look.ink] + (f"{round(255 * look.opacity):02x}" if look.opacity < 1 else "")


def _dash(look: Look) -> list[float]:
    return [float(one) for one in look.dash.split()] or [1, 0]


def _short(value: float) -> float:
    return round(value, 4)
