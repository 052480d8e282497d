"""Hundreds of agents and more: one small cell each, in a band per layer with a tally.

Neighbouring cells in one state are one dashed line, so ten thousand agents take a few ten kilobytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_magic.show.markup import element, escape, fit, number
from agent_magic.show.states import STATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.show.scene import Scene

LABEL_W = 190.0
MOST_BANDS = 40
BAND_GAP = 8.0
PAD = 10.0
LEAST_BAND_H = 58.0
_MOST_NAMED = 12


@dataclass(frozen=True, slots=True)
class Band:
    """Agents drawn together: a layer, or several neighbouring ones where there are many.

    Attributes:
        label: `layer 3` or `layers 3-7`.
        agents: Numbers, in the order of the cells.
        y: Its top.
    """

    label: str
    agents: tuple[int, ...]
    y: float = field(kw_only=True)
    h: float = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class CellGrid:
    """The cells of a picture.

    Attributes:
        pitch: From one cell to the next, in px.
        size: The side of a cell.
        columns: Cells in a row.
    """

    pitch: float
    size: float
    columns: int
    bands: tuple[Band, ...] = field(kw_only=True)

    @property
    def height(self) -> float:
        """The height of all bands."""
        return self.bands[-1].y + self.bands[-1].h if self.bands else 0.0


def cell_grid(plan: Plan, width: float) -> CellGrid:
    """Choose the size of the cells and put the layers under each other."""
    pitch = 14.0 if len(plan) <= 1200 else 10.0 if len(plan) <= 4000 else 7.0
    groups = list(_groups(plan.dag.layers()))
    most, widest = int((width - LABEL_W - PAD) // pitch), max((len(agents) for _, agents in groups), default=1)
    columns = -(-widest // -(-widest // most))  # rows of one length, rather than a full one and a rest
    bands: list[Band] = []
    y = 0.0
    for label, agents in groups:
        rows = -(-len(agents) // columns)
        h = max(LEAST_BAND_H, rows * pitch + 2 * PAD)
        bands.append(Band(label, agents, y=y, h=h))
        y += h + BAND_GAP
    return CellGrid(pitch, pitch * 0.78, columns, bands=tuple(bands))


def draw_cells(plan: Plan, scene: Scene, width: float) -> tuple[str, float]:
    """Draw the agents as cells.

    Returns:
        The markup and its height.
    """
    grid = cell_grid(plan, width)
    states = "".join(node.state for node in scene.nodes)
    parts: list[str] = []
    for band in grid.bands:
        inside = "".join(states[agent] for agent in band.agents)
        ground = element("rect", class_="band", y=band.y, width=width, height=band.h, rx=8)
        label = element("text", band.label, class_="v", x=14, y=band.y + 20)
        tally = "".join(
            element("text", escape(words), class_="tally", x=14, y=band.y + 35 + 14 * line)
            for line, words in enumerate(tally_of(inside))
        )
        cells = "".join(_layer_cells(inside, grid, band))
        parts.append(f'{ground}{label}{tally}<g class="cells">{cells}</g>')
    lost = _lost_line(scene, width, grid.height + 20)
    return "".join(parts) + lost, grid.height + (26 if lost else 0)


def tally_of(states: str) -> tuple[str, str]:
    """Count the states of a band: what is done and to do, and what is neither."""
    words = {word: states.count(state) for state, word in _WORDS.items()}
    words["done"] = sum(map(states.count, "slym"))
    return _counted(words, ("done", "to do")), _counted(words, ("failed", "running", "queued", "skipped", "cancelled"))


_WORDS = {"r": "running", "q": "queued", "f": "failed", "k": "skipped", "c": "cancelled", "p": "to do"}


def _counted(words: Mapping[str, int], wanted: Sequence[str]) -> str:
    found = [f"{words[word]:,} {word}" for word in wanted if words[word]]
    return fit(" · ".join(found), LABEL_W - 22, 11)


def cell_paths(states: str, grid: CellGrid, y: float) -> dict[str, str]:
    """Return per state the `d` of a path of dashed lines, one for each run of neighbouring cells."""
    paths: dict[str, list[str]] = {}
    for start, stop in _runs(states, grid.columns):
        row, column = divmod(start, grid.columns)
        x = LABEL_W + column * grid.pitch
        middle = y + PAD + row * grid.pitch + grid.size / 2
        long = (stop - start - 1) * grid.pitch + grid.size
        paths.setdefault(states[start], []).append(f"M{number(x)} {number(middle)}h{number(long)}")
    return {state: "".join(steps) for state, steps in paths.items()}


def _layer_cells(states: str, grid: CellGrid, band: Band) -> Iterator[str]:
    dash = f"{number(grid.size)} {number(grid.pitch - grid.size)}"
    for state, steps in cell_paths(states, grid, band.y).items():
        yield element("path", class_=f"z s-{state}", stroke_width=grid.size, stroke_dasharray=dash, d=steps)


def _runs(states: str, columns: int) -> Iterator[tuple[int, int]]:
    """Cut a row-by-row arrangement into stretches of one state."""
    start = 0
    for place in range(1, len(states) + 1):
        if place == len(states) or place % columns == 0 or states[place] != states[start]:
            yield start, place
            start = place


def _groups(layers: Sequence[Sequence[int]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name the layers, several together where there are more than `MOST_BANDS`."""
    step = -(-len(layers) // MOST_BANDS) or 1
    for first in range(0, len(layers), step):
        group = layers[first : first + step]
        last = first + len(group) - 1
        label = f"layer {last}" if len(group) == 1 else f"layers {first} to {last}"
        yield label, tuple(agent for layer in group for agent in layer)


def _lost_line(scene: Scene, width: float, y: float) -> str:
    """Name the first agents that failed: a red cell has no name."""
    lost = [node.title for node in scene.nodes if node.state == "f"]
    if not lost:
        return ""
    more = f" and {len(lost) - _MOST_NAMED:,} more" if len(lost) > _MOST_NAMED else ""
    text = f"{STATES['f'].word}: " + ", ".join(lost[:_MOST_NAMED])
    return element("text", escape(fit(text, width - 120, 11) + more), x=14, y=y)
