"""The parts of a chart: marks on panels. Positions are in units of the data, sizes of marks in px.

Colours are roles of the palette in `agent_magic.show.theme`, so marks do not depend on the theme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, TypeAlias

from agent_magic.declare.units import seconds, time_tick, time_ticks

WIDTH: Final = 848.0
"""The width of an output in JupyterLab in a window of 1280 px: letters have their drawn size there."""
MARGIN: Final = 24.0
ROW_H: Final = 20.0

Facts: TypeAlias = Mapping[str, str | float]
"""The tooltip of a mark, by name."""
NOTHING: Final[Facts] = {}


class Look(NamedTuple):
    """How a mark is drawn, and its word in legend and text; empty leaves it out.

    The size in px is the height of a bar, the width of a line, or the radius of a point.
    """

    ink: str
    opacity: float = 1.0
    size: float = 1.0
    word: str = ""
    dash: str = ""
    hollow: bool = False


class Bar(NamedTuple):
    """A horizontal bar; in a panel with rows `y` is the number of the row plus a half."""

    x0: float
    x1: float
    y: float
    look: Look
    facts: Facts = NOTHING


class Area(NamedTuple):
    """A stepped area; a step is (start, end, low, high)."""

    steps: Sequence[tuple[float, float, float, float]]
    look: Look


class Line(NamedTuple):
    """A line through points; a stepped line keeps each value until the next point."""

    points: Sequence[tuple[float, float]]
    look: Look
    is_stepped: bool = False


class Point(NamedTuple):
    """A point."""

    x: float
    y: float
    look: Look
    facts: Facts = NOTHING
    label: str = ""
    shape: Literal["circle", "diamond"] = "circle"


class Label(NamedTuple):
    """Words at a position, moved by `dx` and `dy` px."""

    x: float
    y: float
    words: str
    dx: float = 0.0
    dy: float = 4.0
    ink: str = "soft"
    is_bold: bool = False
    anchor: Literal["start", "middle", "end"] = "start"


Mark: TypeAlias = Bar | Area | Line | Point | Label


@dataclass(frozen=True, slots=True)
class Scale:
    """A numeric axis, from 0 by default; `label` writes a tick, `write` a value in full."""

    most: float
    ticks: Sequence[float] = ()
    least: float = field(default=0.0, kw_only=True)
    label: Callable[[float], str] = field(default=str, kw_only=True)
    write: Callable[[float], str] = field(default=seconds, kw_only=True)

    def share(self, value: float) -> float:
        """Return the position of a value, from 0 at the beginning to 1 at the end."""
        return (value - self.least) / (self.most - self.least)


@dataclass(frozen=True, slots=True)
class Rows:
    """A vertical axis of named rows, from the top.

    Attributes:
        names: The names of the rows.
        bold: The rows in bold.
    """

    names: Sequence[str]
    bold: frozenset[int] = field(default=frozenset(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Panel:
    """Marks on two scales, with sizes in px; one with an offset stands beside the panel before it."""

    marks: Sequence[Mark]
    x: Scale
    y: Scale | Rows
    height: float = field(kw_only=True)
    left: float = field(kw_only=True)
    right: float = field(default=8.0, kw_only=True)
    title: str = field(default="", kw_only=True)
    note: str = field(default="", kw_only=True)
    note_ink: str = field(default="soft", kw_only=True)
    offset: float = field(default=0.0, kw_only=True)

    @property
    def width(self) -> float:
        """The width of the plot, in px."""
        return WIDTH - 2 * MARGIN - self.offset - self.left - self.right

    def moved(self, offset: float) -> Panel:
        """Return it at an offset, to the right edge."""
        return replace(self, offset=offset, right=8.0)

    def at_x(self, value: float) -> float:
        """Return the position of a value, in px from the left edge of the plot."""
        return self.x.share(value) * self.width

    def at_y(self, value: float) -> float:
        """Return the position of a value, in px from the upper edge of the plot."""
        if isinstance(self.y, Rows):
            return value * ROW_H
        return self.height * (1 - self.y.share(value))


def numbers(most: float, count: int = 6) -> list[float]:
    """Choose round values from 0 to at least `most`, about `count` of them."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / count
    power = 1.0
    while power > raw:
        power /= 10
    while power * 10 <= raw:
        power *= 10
    step = next(power * one for one in (1.0, 2.0, 2.5, 5.0, 10.0) if power * one >= raw * 0.999)
    return [index * step for index in range(int(most / step - 1e-9) + 2)]


def times(until_s: float) -> Scale:
    """Return the time scale of a run: from 0 to its end."""
    span_s = max(until_s, 0.1)
    return Scale(span_s, time_ticks(span_s), label=lambda tick: time_tick(tick, span_s))
