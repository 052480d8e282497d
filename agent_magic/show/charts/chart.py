"""A chart: panels with marks, as SVG that follows its page, as Vega-Lite in fixed colours, and as text."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent_magic.record.display import single_line
from agent_magic.show.charts.marks import Area, Bar, Point, Rows
from agent_magic.show.charts.svg import SEPARATOR, svg_of
from agent_magic.show.page import WIDTH, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_magic.show.charts.marks import Look, Panel
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
    text = "\n".join(wrapped(row, WIDTH, "    ") for row in [title, line, *rows, below] if row)
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
