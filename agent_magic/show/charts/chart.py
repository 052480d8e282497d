"""A chart: panels with marks, as SVG that follows its page, as Vega-Lite in fixed colours, and as text.

Colours of the SVG are attributes, so every viewer shows them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent_magic.record.display import single_line
from agent_magic.show.charts.marks import MARGIN, ROW_H, WIDTH, Area, Bar, Label, Line, Point, Rows
from agent_magic.show.markup import TEXT_WIDTH, element, escape, fit, number, width_px, wrapped
from agent_magic.show.theme import FONT, dark_style, inks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_magic.show.charts.marks import Facts, Look, Panel
    from agent_magic.show.theme import Theme


LEAST_PAUSE_S: Final = 1.0
DRAWING: Final = 0.05
"""Maximum share of the kernel's time for drawing."""
_GOING: Final[set[asyncio.Task[None]]] = set()
"""Keeps tasks of redrawn charts alive: nothing else refers to them."""
ADVISE: Final = "run.advise() says what would be faster or cheaper"
MIME: Final = "application/vnd.vegalite.v5+json"


@dataclass(frozen=True, slots=True)
class Interactive:
    """A chart with tooltips: notebooks that know Vega-Lite draw it, others show the picture."""

    chart: Chart

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {MIME: self.chart.spec, "image/svg+xml": self.chart.svg, "text/plain": self.chart.text}

    def _repr_svg_(self) -> str:
        """Return the picture, for front ends such as Panel that ask for no bundle."""
        return self.chart.svg


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. A notebook displays it as a picture in the colours of its page.

    Attributes:
        specify: Writes `spec` on demand.
    """

    title: str
    svg: str = field(repr=False)
    text: str = field(repr=False)
    specify: Callable[[], dict[str, Any]] = field(repr=False, compare=False)

    @property
    def spec(self) -> dict[str, Any]:
        return self.specify()

    def interactive(self) -> Interactive:
        """Return the chart for Vega-Lite, with tooltips, in fixed colours that fit light and dark pages."""
        return Interactive(self)

    def bundle(self) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": self.text}

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return self.bundle()

    def _repr_svg_(self) -> str:
        return self.svg


def compose(
    title: str,
    line: str,
    panels: Sequence[Panel],
    *,
    legend: Sequence[Look] = (),
    caption: Sequence[str] = (),
    theme: Theme = "auto",
) -> Chart:
    title, line = single_line(title), single_line(line)  # names of models and plans of strangers are among the words
    below = single_line(SEPARATOR.join(filter(None, caption)))
    rows = [row for panel in panels for row in _text_rows(panel)]
    text = "\n".join(wrapped(row, TEXT_WIDTH, "    ") for row in [title, line, *rows, below] if row)
    given = (title, line, panels, legend, below)
    return Chart(title, svg_of(*given, theme=theme), text, partial(_spec_of, *given, theme=theme))


def _spec_of(*given: Any, theme: Theme) -> dict[str, Any]:
    from agent_magic.show.charts.vega import spec_of  # noqa: PLC0415  # lazy: pages that answer draw SVG only

    return spec_of(*given, theme=theme)


def _text_rows(panel: Panel) -> Iterator[str]:
    if isinstance(panel.y, Rows):
        yield from _sums(panel, panel.y)
        return
    note = f" ({panel.note})" if panel.note else ""
    for mark in panel.marks:
        match mark:
            case Area(steps, look):
                peak = max((high - low for _, _, low, high in steps), default=0.0)
                if peak:
                    yield f"  {look.word or panel.title}: at most {panel.y.write(peak)}{note}"
                    note = ""
            case Point(x, y, label=label) if label:
                yield f"  {panel.x.write(x):>10}  {panel.y.write(y):>12}  {label}"
            case _:
                pass


def _sums(panel: Panel, rows: Rows) -> Iterator[str]:
    if panel.title:
        yield panel.title
    wide = min(48, max(map(len, rows.names), default=0))
    for row, name in enumerate(rows.names):
        sums: dict[str, float] = {}
        for bar in panel.marks:
            if isinstance(bar, Bar) and int(bar.y) == row:
                sums[bar.look.word] = sums.get(bar.look.word, 0.0) + bar.x1 - bar.x0
        parts = [f"{word} {panel.x.write(total)}".strip() for word, total in sums.items()]
        yield f"{'*' if row in rows.bold else ' '} {name[:wide]:<{wide}}  {', '.join(parts) or 'nothing'}"


def provenance(*, simulated: bool, forecast: str = "") -> list[str]:
    """Return the source of a chart's numbers; none if measured on the real API."""
    words = [f"forecast: {forecast}"] if forecast else []
    return [*words, "simulated responses"] if simulated else words


def following(draw: Callable[[], Chart], is_over: Callable[[], bool]) -> Chart:
    now = draw()
    return _Following(now.title, now.svg, now.text, now.specify, draw, is_over)


@dataclass(frozen=True, slots=True)
class _Following(Chart):
    again: Callable[[], Chart] = field(repr=False)
    is_over: Callable[[], bool] = field(repr=False)

    def _ipython_display_(self) -> None:
        from IPython.display import DisplayHandle

        handle: Any = DisplayHandle()
        handle.display(self.bundle(), raw=True)
        try:
            task = asyncio.get_running_loop().create_task(self._follow(handle))
        except RuntimeError:
            return  # no loop turns here, so nothing goes on either
        _GOING.add(task)
        task.add_done_callback(_GOING.discard)

    async def _follow(self, handle: Any) -> None:
        took_s, is_over = 0.0, False
        while not is_over:
            await asyncio.sleep(max(LEAST_PAUSE_S, took_s / DRAWING))
            is_over, began_s = self.is_over(), time.perf_counter()
            handle.update(self.again().bundle(), raw=True)
            took_s = time.perf_counter() - began_s


HEAD_H: Final = 60.0
LINE_H: Final = 20.0
LEGEND_H: Final = 24.0
SEPARATOR: Final = " · "
PANEL_HEAD_H: Final = 34.0
AXIS_H: Final = 22.0


def svg_of(
    title: str, line: str, panels: Sequence[Panel], legend: Sequence[Look], caption: str, *, theme: Theme
) -> str:
    pen = _Pen(inks_of(theme))
    pen.text(MARGIN, 32, title, "ink", size=16, bold=True)
    pen.text(MARGIN, 52, fit(line, WIDTH - 2 * MARGIN, 12), size=12)
    y = HEAD_H if line else HEAD_H - LINE_H
    if legend:
        y = pen.legend(legend, y + 16) + LEGEND_H - 16
    for panel in panels:
        foot = AXIS_H if panel.x.ticks and not isinstance(panel.y, Rows) else 0.0
        if panel.offset:  # beside its predecessor, which is as high
            y -= panel.height + foot
        else:
            y += PANEL_HEAD_H
        pen.panel(panel, MARGIN + panel.offset + panel.left, y)
        y += panel.height + foot
    for index, words in enumerate(_folded(caption)):
        y += 16 if index else 24
        pen.text(MARGIN, y, fit(words, WIDTH - 2 * MARGIN, 11), size=11)
    ground = element("rect", width=WIDTH, height=y + 16, rx=6, fill=pen.inks["ground"])
    body = ground + "".join(pen.parts)
    return element(
        "svg",
        (dark_style(body) if theme == "auto" else "") + body,
        xmlns="http://www.w3.org/2000/svg",
        class_=f"am-chart am-{theme}",
        width="100%",
        font_family=FONT,
        style=f"max-width:{WIDTH:g}px;height:auto;display:block",
        viewBox=f"0 0 {WIDTH:g} {number(y + 16)}",
        role="img",
        aria_label=f"{title}: {line}" if line else title,
    )


def _folded(caption: str) -> list[str]:
    lines: list[str] = []
    for phrase in filter(None, caption.split(SEPARATOR)):
        longer = SEPARATOR.join([*lines[-1:], phrase])
        if lines and width_px(longer, 11) <= WIDTH - 2 * MARGIN:
            lines[-1] = longer
        else:
            lines.append(phrase)
    return lines


class _Pen:
    def __init__(self, inks: dict[str, str]) -> None:
        self.inks = inks
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        ink: str = "soft",
        *,
        size: float = 11,
        bold: bool = False,
        anchor: str | None = None,
    ) -> None:
        weight = "600" if bold else None
        look = {"fill": self.inks[ink], "text_anchor": anchor, "font_weight": weight}
        self.parts.append(element("text", escape(words), x=x, y=y, font_size=size, **look))

    def path(self, way: str, look: Look, title: str = "") -> None:
        stroke = {"stroke": self.inks[look.ink], "stroke_width": look.size, "stroke_dasharray": look.dash or None}
        self.parts.append(element("path", title, d=way, fill="none", **stroke, opacity=_fade(look)))

    def bar(self, x: float, y: float, width: float, look: Look, facts: Facts) -> None:
        title, width, height = _title(facts), max(1.0, width), look.size
        if look.dash:
            self.path(f"M{number(x)} {number(y)}h{number(width)}", look, title)
            return
        box = {"x": x, "y": y - height / 2, "width": width, "height": height, "rx": min(2.0, width / 2, height / 2)}
        self.parts.append(element("rect", title, **box, fill=self.inks[look.ink], opacity=_fade(look)))

    def point(self, x: float, y: float, point: Point) -> None:
        ink, radius = self.inks[point.look.ink], point.look.size
        paint = {"fill": self.inks["ground"] if point.look.hollow else ink, "stroke": ink, "stroke_width": 1.6}
        title = _title(point.facts)
        if point.shape == "circle":
            self.parts.append(element("circle", title, cx=x, cy=y, r=radius, **paint))
            return
        r = number(radius)
        way = f"M{number(x)} {number(y - radius)}l{r} {r}l-{r} {r}l-{r} -{r}Z"
        self.parts.append(element("path", title, d=way, **paint))

    def area(self, points: Sequence[tuple[float, float]], look: Look) -> None:
        way = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) + "Z" if points else "M0 0"
        title = element("title", escape(look.word)) if look.word else ""
        self.parts.append(element("path", title, d=way, fill=self.inks[look.ink], opacity=_fade(look)))

    def legend(self, looks: Sequence[Look], y: float) -> float:
        x = MARGIN
        for look in looks:
            if x > MARGIN and x + 21 + width_px(look.word, 11) > WIDTH - MARGIN:
                x, y = MARGIN, y + LINE_H
            self.bar(x, y - 4, 16, look, {})
            self.text(x + 21, y, look.word)
            x += 21 + width_px(look.word, 11) + 16
        return y

    def panel(self, panel: Panel, x: float, y: float) -> None:
        if panel.title:
            self.text(x - panel.left, y - 12, panel.title, "ink", size=12, bold=True)
        if panel.note:
            self.text(x + panel.width, y - 12, panel.note, panel.note_ink, anchor="end")
        self._axes(panel, x, y)
        for mark in panel.marks:
            match mark:
                case Bar():
                    start = panel.at_x(mark.x0)
                    self.bar(x + start, y + panel.at_y(mark.y), panel.at_x(mark.x1) - start, mark.look, mark.facts)
                case Area():
                    over = [(at, high) for x0, x1, _, high in mark.steps for at in (x0, x1)]
                    under = [(at, low) for x0, x1, low, _ in reversed(mark.steps) for at in (x1, x0)]
                    self.area([(x + panel.at_x(a), y + panel.at_y(b)) for a, b in (*over, *under)], mark.look)
                case Line():
                    places = [(number(x + panel.at_x(a)), number(y + panel.at_y(b))) for a, b in mark.points]
                    if mark.is_stepped:
                        self.path(f"M{' '.join(places[0])}" + "".join(f"H{a}V{b}" for a, b in places[1:]), mark.look)
                    else:
                        self.path("M" + "L".join(f"{a} {b}" for a, b in places), mark.look)
                case Point():
                    self.point(x + panel.at_x(mark.x), y + panel.at_y(mark.y), mark)
                case Label():
                    at_x, at_y = x + panel.at_x(mark.x) + mark.dx, y + panel.at_y(mark.y) + mark.dy
                    anchor = None if mark.anchor == "start" else mark.anchor
                    self.text(at_x, at_y, mark.words, mark.ink, bold=mark.is_bold, anchor=anchor)

    def _axes(self, panel: Panel, x: float, y: float) -> None:
        grid, rows = self.inks["line"], panel.y
        if isinstance(rows, Rows):
            for tick in panel.x.ticks:
                at = x + panel.at_x(tick)
                way = f"M{number(at)} {number(y - 4)}v{number(panel.height + 4)}"
                self.parts.append(element("path", d=way, stroke=grid))
                self.text(at, y - 9, panel.x.label(tick), anchor="middle")
            for row, name in enumerate(rows.names):
                bold = row in rows.bold
                shown = fit(name, panel.left - 14, 11.5, bold=bold)
                ink, middle = "ink" if bold else "soft", y + (row + 0.5) * ROW_H + 4
                self.text(x - 10, middle, shown, ink, size=11.5, bold=bold, anchor="end")
            return
        for tick in rows.ticks:
            at = y + panel.at_y(tick)
            self.parts.append(element("path", d=f"M{number(x)} {number(at)}h{number(panel.width)}", stroke=grid))
            self.text(x - 8, at + 4, rows.label(tick), anchor="end")
        for tick in panel.x.ticks:
            self.text(x + panel.at_x(tick), y + panel.height + 18, panel.x.label(tick), anchor="middle")


def _fade(look: Look) -> str | None:
    return f"{look.opacity:g}" if look.opacity < 1 else None


def _title(facts: Facts) -> str:
    words = " · ".join(str(value) for value in facts.values() if value != "")
    return element("title", escape(words)) if words else ""
