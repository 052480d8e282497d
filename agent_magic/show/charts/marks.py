"""The parts of a chart: marks on panels, positions in units of the data, sizes in px.

Colours are roles of the palette, so marks do not depend on the theme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from agent_magic.declare.units import seconds, time_tick, time_ticks
from agent_magic.show.markup import width_px

if TYPE_CHECKING:
    from collections.abc import Sequence


Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, width, height, in px of the plot."""
LEADER_DY: Final = (-26.0, -42.0, -58.0, -74.0)
"""Heights above a point of a label that is joined to it by a line, if there is no room beside it."""
WIDTH: Final = 848.0
"""The width of an output in JupyterLab at 1280 px, so letters have their drawn size."""
MARGIN: Final = 24.0
ROW_H: Final = 20.0

Facts: TypeAlias = Mapping[str, str | float]
NOTHING: Final[Facts] = {}


class Look(NamedTuple):
    """Size in px of a bar's height, a line's width or a point's radius; an empty word is not in the legend."""

    ink: str
    opacity: float = 1.0
    size: float = 1.0
    word: str = ""
    dash: str = ""
    hollow: bool = False


class Bar(NamedTuple):
    """In a panel with rows `y` is the row number plus a half."""

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
    """If stepped, each value holds until the next point."""

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
    """Words at a position, moved by px."""

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
    """A numeric axis; `label` writes a tick, `write` a value in full."""

    most: float
    ticks: Sequence[float] = ()
    least: float = field(default=0.0, kw_only=True)
    label: Callable[[float], str] = field(default=str, kw_only=True)
    write: Callable[[float], str] = field(default=seconds, kw_only=True)

    def share(self, value: float) -> float:
        return (value - self.least) / (self.most - self.least)


@dataclass(frozen=True, slots=True)
class Rows:
    """A vertical axis of named rows, from the top."""

    names: Sequence[str]
    bold: frozenset[int] = field(default=frozenset(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Panel:
    """Marks on two scales, sizes in px; an offset places it beside the previous panel."""

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
        return WIDTH - 2 * MARGIN - self.offset - self.left - self.right

    def moved(self, offset: float) -> Panel:
        return replace(self, offset=offset, right=8.0)

    def at_x(self, value: float) -> float:
        return self.x.share(value) * self.width

    def at_y(self, value: float) -> float:
        if isinstance(self.y, Rows):
            return value * ROW_H
        return self.height * (1 - self.y.share(value))


def numbers(most: float, count: int = 6) -> list[float]:
    """Return about `count` round values from 0 to at least `most`."""
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
    span_s = max(until_s, 0.1)
    return Scale(span_s, time_ticks(span_s), label=lambda tick: time_tick(tick, span_s))


def around(words: str) -> list[tuple[float, float]]:
    width = width_px(words, 11)
    beside = [(9.0, -9.0), (9.0, 14.0), (-9.0 - width, -9.0), (-9.0 - width, 14.0)]
    beside += [(14.0, 4.0), (-14.0 - width, 4.0)]  # if a larger mark is on the same place
    return [*beside, *((dx, dy) for dy in LEADER_DY for dx in (9.0, -width / 2, -9.0 - width))]


def place_label(
    x: float,
    y: float,
    words: str,
    offers: Sequence[tuple[float, float]],
    plot: Panel,
    taken: list[Box],
    *,
    is_bold: bool = False,
    ink: str = "ink",
) -> list[Mark]:
    """Write a label at the first free place inside the plot, with a line to a far point."""
    at_x, at_y = plot.at_x(x), plot.at_y(y)
    width = width_px(words, 11, bold=is_bold)
    for dx, dy in offers:
        box = (at_x + dx, at_y + dy - 10, width, 13.0)
        is_inside = box[0] >= 0 and box[0] + width <= plot.width + 8 and box[1] > -20 and box[1] + 13 < plot.height
        if is_inside and not any(_touch(box, other) for other in taken):
            taken.append(box)
            span = 0.0 if isinstance(plot.y, Rows) else plot.y.most - plot.y.least
            leader = [(x, y), (x, y - (dy + 5) / plot.height * span)]
            far: list[Mark] = [Line(leader, Look("edge"))] if dy in LEADER_DY else []
            return [*far, Label(x, y, words, dx=dx, dy=dy, ink=ink, is_bold=is_bold)]
    return []


def _touch(a: Box, b: Box) -> bool:
    room = 4.0
    return a[0] < b[0] + b[2] + room and b[0] < a[0] + a[2] + room and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]
