"""Wide layers in columns: forty agents side by side are four columns of ten cards, not one that nobody sees whole.

Edges leave and reach the inner columns through the gaps between the rows, so none seems to join two cards of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_magic.show.layered import stack_layers
from agent_magic.show.layout import BAND_HEAD, BAND_PAD, CARD_H, ROW_GAP, Box, EdgePath, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.show.layout import Point

MOST_ROWS = 8
"""A layer of at most so many cards is one column."""
COLUMNS = 5
LEAST_SPARE = 2
CARD_W = 190.0
COLUMN_GAP = 20.0
BAND_GAP = 57.0


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a card stands.

    Attributes:
        box: Its rectangle.
        band: That of its layer.
        column: From the left.
        columns: Of its layer.
    """

    box: Box
    band: Box
    column: int = field(kw_only=True)
    columns: int = field(kw_only=True)

    @property
    def middle(self) -> float:
        """The height at which edges join it."""
        return self.box.y + self.box.h / 2


def columns_of(dag: Dag) -> list[int]:
    """Choose how many columns each layer has: the longest get more, as far as a page is wide."""
    sizes = [len(layer) for layer in dag.layers()]
    columns = [1] * len(sizes)
    for _ in range(max(LEAST_SPARE, COLUMNS - len(sizes))):
        longest = max(range(len(sizes)), key=lambda layer: sizes[layer] / columns[layer], default=None)
        if longest is None or sizes[longest] <= MOST_ROWS * columns[longest]:
            break
        columns[longest] += 1
    return columns


def fold(dag: Dag) -> Layout | None:
    """Place the agents of a plan with wide layers; `None` where no layer is wide."""
    columns = columns_of(dag)
    if max(columns, default=1) == 1:
        return None
    middles, _ = stack_layers(dag, card_h=CARD_H, gap=ROW_GAP)
    layers = [
        list(layer) if columns[place] > 1 else sorted(layer, key=middles.__getitem__)
        for place, layer in enumerate(dag.layers())
    ]
    heights = [_height(-(-len(layer) // columns[place])) for place, layer in enumerate(layers)]
    tall = BAND_HEAD + max(heights) + BAND_PAD
    bands: list[Box] = []
    x = 0.0
    for count in columns:
        bands.append(Box(x, 0.0, w=count * CARD_W + (count - 1) * COLUMN_GAP + 2 * BAND_PAD, h=tall))
        x += bands[-1].w + BAND_GAP
    spots: dict[int, Spot] = {}
    for place, layer in enumerate(layers):
        top = BAND_HEAD + (max(heights) - heights[place]) / 2
        for index, agent in enumerate(layer):
            row, column = divmod(index, columns[place])
            left = bands[place].x + BAND_PAD + column * (CARD_W + COLUMN_GAP)
            box = Box(left, top + row * (CARD_H + ROW_GAP), w=CARD_W, h=CARD_H)
            spots[agent] = Spot(box, bands[place], column=column, columns=columns[place])
    edges = [
        EdgePath(parent, child, points=_way(spots[parent], spots[child]))
        for child, before in enumerate(dag.parents)
        for parent in before
    ]
    boxes = tuple(spots[agent].box for agent in range(len(spots)))
    return Layout(x - BAND_GAP, tall, nodes=boxes, edges=tuple(edges), bands=tuple(bands), engine="folded")


def _height(rows: int) -> float:
    return rows * (CARD_H + ROW_GAP) - ROW_GAP


def _way(parent: Spot, child: Spot) -> tuple[Point, ...]:
    """Lead an edge out of its layer, across to the other, and to its card."""
    here: Point = (parent.box.x + parent.box.w, parent.middle)
    there: Point = (child.box.x, child.middle)
    points = [here]
    if parent.column < parent.columns - 1:  # below the cards of its row
        lane = parent.box.y + parent.box.h + ROW_GAP / 2
        points += _curve(here, (here[0] + COLUMN_GAP, lane))
        points += _curve(points[-1], (parent.band.x + parent.band.w, lane))
    if child.column == 0:
        points += _curve(points[-1], there)
        return tuple(points)
    lane = child.box.y - ROW_GAP / 2  # above them
    points += _curve(points[-1], (child.band.x, lane))
    points += _curve(points[-1], (there[0] - COLUMN_GAP, lane))
    points += _curve(points[-1], there)
    return tuple(points)


def _curve(start: Point, end: Point) -> Sequence[Point]:
    """Return the control points of a curve that leaves and arrives level."""
    half = (start[0] + end[0]) / 2
    return ((half, start[1]), (half, end[1]), end)
