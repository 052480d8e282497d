"""A chart: a picture, its interactive twin, and its text, all of the same numbers."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_magic.show.markup import element, escape, fit, number, width_px
from agent_magic.show.theme import dark_where, inks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_magic.show.theme import Theme

MIME = "application/vnd.vegalite.v5+json"
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
FONT = 'Inter,"Segoe UI",system-ui,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif'
_SVG_FONT = FONT.replace('"', "'")
WIDTH = 860.0
MARGIN = 24.0
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Chart:
    """What a chart function returns. A notebook shows it: interactive where the front end can, else as a picture.

    Attributes:
        title: What it shows.
        svg: The picture.
        spec: The same as a Vega-Lite v5 specification, its data inside.
        text: The same in words.
        dark: Makes the specification in dark colours, of a chart whose colours are to be those of its page.
    """

    title: str
    svg: str = field(repr=False)
    spec: dict[str, Any] = field(repr=False)
    text: str = field(repr=False)
    dark: Callable[[], dict[str, Any]] | None = field(default=None, repr=False, compare=False)

    def bundle(self, *, dark: bool = False) -> dict[str, Any]:
        """Return what a notebook shows, by MIME type. A picture asks its page for its colours, Vega-Lite cannot.

        Args:
            dark: Whether the page is dark.
        """
        spec = self.dark() if dark and self.dark is not None else self.spec
        return {MIME: spec, "image/svg+xml": self.svg, "text/plain": self.text}

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return self.bundle()


class Paper:
    """Collects the elements of a picture.

    Args:
        theme: Its colours.
        width: Its width.
    """

    def __init__(self, theme: Theme = "auto", width: float = WIDTH) -> None:
        self.theme, self.inks = theme, inks_of(theme)
        self.width = width
        self._parts: list[str] = []

    def head(self, title: str, line: str) -> None:
        """Write the title and the line under it."""
        self.text(MARGIN, 32, title, size=16, ink="ink", weight=650)
        self.text(MARGIN, 52, fit(line, self.width - 2 * MARGIN, 12), size=12)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 11,
        ink: str = "soft",
        anchor: str = "start",
        weight: int | None = None,
    ) -> None:
        """Write words."""
        place = None if anchor == "start" else anchor
        self._parts.append(
            element(
                "text",
                escape(words),
                x=x,
                y=y,
                font_size=size,
                fill=self.inks[ink],
                text_anchor=place,
                font_weight=weight and str(weight),
            )
        )

    def rect(self, x: float, y: float, w: float, h: float, *, ink: str, opacity: float = 1.0, hint: str = "") -> None:
        """Draw a bar, with what it says when pointed at."""
        title = element("title", escape(hint)) if hint else ""
        half = min(2.0, w / 2, h / 2)
        fade = None if opacity == 1 else f"{opacity:g}"
        self._parts.append(
            element("rect", title, x=x, y=y, width=max(0.0, w), height=h, rx=half, fill=self.inks[ink], opacity=fade)
        )

    def line(self, points: str, *, ink: str = "line", w: float = 1.0, dash: str | None = None) -> None:
        """Draw a path without a filling."""
        self._parts.append(
            element("path", d=points, fill="none", stroke=self.inks[ink], stroke_width=w, stroke_dasharray=dash)
        )

    def shape(self, points: str, *, ink: str, opacity: float = 1.0, hint: str = "") -> None:
        """Draw a filled path."""
        title = element("title", escape(hint)) if hint else ""
        self._parts.append(element("path", title, d=points, fill=self.inks[ink], opacity=f"{opacity:g}"))

    def dot(self, x: float, y: float, r: float, *, ink: str, hollow: bool = False, hint: str = "") -> None:
        """Draw a point."""
        fill = self.inks["ground"] if hollow else self.inks[ink]
        title = element("title", escape(hint)) if hint else ""
        self._parts.append(
            element("circle", title, cx=x, cy=y, r=r, fill=fill, stroke=self.inks[ink], stroke_width=1.6)
        )

    def key(self, y: float, entries: list[tuple[str, float, float, str]]) -> None:
        """Write what the bars mean: (ink, opacity, height, words) side by side."""
        x = MARGIN
        for ink, opacity, height, words in entries:
            self.rect(x, y - 4 - height / 2, 16, height, ink=ink, opacity=opacity)
            self.text(x + 21, y, words)
            x += 21 + width_px(words, 11) + 16

    def caption(self, y: float, words: str) -> None:
        """Write where the numbers come from."""
        if words:
            self.text(MARGIN, y, fit(words, self.width - 2 * MARGIN, 10.5), size=10.5)

    def svg(self, height: float, label: str) -> str:
        """Return the picture. It grows no wider than it was drawn, and shrinks with its page."""
        ground = element("rect", width=self.width, height=height, rx=6, fill=self.inks["ground"])
        body = ground + "".join(self._parts)
        return element(
            "svg",
            (f"<style>{_darkened(body)}</style>" if self.theme == "auto" else "") + body,
            xmlns="http://www.w3.org/2000/svg",
            class_=f"am-chart am-{self.theme}",
            width="100%",
            style=f"max-width:{number(self.width)}px;height:auto;display:block;font-family:{_SVG_FONT}",
            viewBox=f"0 0 {number(self.width)} {number(height)}",
            role="img",
            aria_label=label,
        )


def _darkened(body: str) -> str:
    """Return rules that give a light picture dark colours: they go by the colours that its elements have."""
    light, dark = inks_of("light"), inks_of("dark")
    turned = {light[name]: dark[name] for name in reversed(light)}  # cards are as white as the ground, which is first
    rules = [f'& [{key}="{ink}"]{{{key}:{turned[ink]}}}' for key in ("fill", "stroke") for ink in turned]
    return dark_where("".join(rule for rule in rules if rule[3 : rule.index("]")] in body), ".am-auto")


def mixed(ink: str, ground: str, share: float) -> str:
    """Mix two colours, so that what is half as strong needs no transparency."""
    pairs = [(int(ink[place : place + 2], 16), int(ground[place : place + 2], 16)) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(above * share + below * (1 - share)):02x}" for above, below in pairs)


def ticks(most: float, count: int = 6) -> list[float]:
    """Choose round values from 0 to at least `most`, about `count` of them."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / count
    power = 1.0
    while power > raw:
        power /= 10
    while power * 10 <= raw:
        power *= 10
    step = next(power * one for one in _STEPS if power * one >= raw * 0.999)
    return [index * step for index in range(int(most / step - 1e-9) + 2)]


def spec_of(title: str, line: str, body: dict[str, Any], *, theme: Theme = "auto", caption: str = "") -> dict[str, Any]:
    """Wrap the marks of a chart into a Vega-Lite specification in the house's colours."""
    inks = inks_of(theme)
    words = [part for part in (line, caption) if part]
    axis = {
        "labelColor": inks["soft"],
        "titleColor": inks["soft"],
        "gridColor": inks["line"],
        "domainColor": inks["line"],
        "tickColor": inks["line"],
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "labelLimit": 260,
    }
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "subtitle": words, "anchor": "start", "offset": 12},
        "background": inks["ground"],
        "padding": 16,
        **body,
        "config": {
            "font": FONT,
            "view": {"stroke": None},
            "axis": axis,
            "legend": {"labelColor": inks["ink"], "titleColor": inks["soft"], "orient": "top", "title": None},
            "title": {
                "color": inks["ink"],
                "subtitleColor": inks["soft"],
                "fontSize": 16,
                "fontWeight": 600,
                "subtitleFontSize": 12,
            },
        },
    }


def in_both(theme: Theme, make: Callable[[Theme], dict[str, Any]]) -> dict[str, Any]:
    """Return the specifications of a chart as its fields: that of a theme, and the dark one where that is `auto`."""
    return {"spec": make(theme), "dark": functools.partial(make, "dark") if theme == "auto" else None}


def provenance(*, simulated: bool, forecast: str = "") -> str:
    """Say where the numbers of a chart come from; an empty string where they were measured on the real API."""
    words = [f"forecast: {forecast}"] if forecast else []
    words += ["simulated: the stand-in API made the answers up"] if simulated else []
    return " · ".join(words)
