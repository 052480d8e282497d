"""Labels that do not collide: each at the first free place near its point, or not at all.

Every labelled point is in the text and in a tooltip, so an omitted label is not lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from agent_magic.show.charts.marks import Label, Line, Look, Rows
from agent_magic.show.markup import width_px

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.show.charts.marks import Mark, Panel

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, width, height, in px of the plot."""
LEADER_DY: Final = (-26.0, -42.0, -58.0, -74.0)
"""The heights of a label above its point, joined to it by a line, if there is no room beside it."""


def around(words: str) -> list[tuple[float, float]]:
    """Return the places for a label, the best first: beside its point, then above it."""
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
    """Write a label at the first free position inside the plot, joined to its point by a line if it is far."""
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
