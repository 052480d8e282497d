"""Large plans: a card per group, with counts and a ring, and a cell per agent below."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import pi
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from agent_magic.declare.dag import build_dag
from agent_magic.declare.each import ROUNDS
from agent_magic.declare.flow import is_reserved
from agent_magic.declare.subplan import box_of, boxes_of
from agent_magic.declare.units import plural
from agent_magic.errors import and_more
from agent_magic.record.display import single_line
from agent_magic.show.graph.layout import place
from agent_magic.show.markup import element, escape, fit, number, path_data
from agent_magic.show.states import STATES
from agent_magic.show.text import LEAST_STACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.show.graph.layout import Box, Layout

K = TypeVar("K")
GROUP_H = 114.0
MOST_STACKED = 60
"""More cards are grouped by layer."""
MOST_GROUPS = 40
MOST_COLUMNS = 10
TONES = ("s", "m", "f", "r", "q", "k", "c")
"""Parts of a ring: done, capped, failed, running, queued, skipped, cancelled. The rest is to do."""
TODO = len(TONES)
_PARTS = {tone: place_ for place_, tone in enumerate(TONES)} | {"l": 0, "y": 0}
_NUMBERED = re.compile(r"[\W_]*\d[\d_\-.]*$")


@dataclass(frozen=True, slots=True)
class Group:
    """Agents drawn as one node: rounds of a loop, the steps of a nested plan (`is_box`), or one agent."""

    label: str
    place: str
    agents: tuple[int, ...] = field(kw_only=True)
    rounds: int = field(default=0, kw_only=True)
    is_box: bool = field(default=False, kw_only=True)
    is_reserved: bool = field(default=False, kw_only=True)

    @property
    def is_one(self) -> bool:
        return len(self.agents) == 1

    @property
    def where(self) -> str:
        return self.place or plural(len(self.agents), "agent")


@dataclass(frozen=True, slots=True)
class Sheet:
    """The groups of a plan, laid out; `returns` are edges from a loop's last group to its first."""

    groups: tuple[Group, ...]
    layout: Layout = field(kw_only=True)
    returns: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)

    def group_of(self) -> list[int]:
        found = [0] * sum(len(group.agents) for group in self.groups)
        for place_, group in enumerate(self.groups):
            for agent in group.agents:
                found[agent] = place_
        return found


class Face(NamedTuple):
    """The texts and the ring of a group's card.

    Attributes:
        share: Inside the ring: the finished share, or the sign of an agent's state.
        rest: The other counts, or an agent's reason to wait.
        who: The failed or else slowest agent; or an agent's numbers.
        answer: The last answer of a plan or a loop, else the first.
    """

    counts: Sequence[int]
    share: str
    done: str
    rest: str
    tone: str
    who: str = ""
    answer: str = ""


def sheet_of(plan: Plan) -> Sheet:
    stacked = _stacked(plan) if is_stacked(plan) else ()
    return _placed(plan, stacked if 0 < len(stacked) <= MOST_STACKED else _grouped(plan))


def is_stacked(plan: Plan) -> bool:
    """True for enough items for one card, or a nested plan."""
    return any(is_one_card(plan, name) for name in plan.groups) or any(map(box_of, plan.names))


def is_one_card(plan: Plan, group: str) -> bool:
    """True for many items, or more than the items of one value."""
    members = plan.groups[group]
    if len(members) >= LEAST_STACK:
        return True
    part = plan.agents[next(iter(members.values()))].part
    return part is not None and part.is_counted


def _stacked(plan: Plan) -> tuple[Group, ...]:
    big = {name: members for name, members in plan.groups.items() if is_one_card(plan, name)}
    inside = {agent: name for name, members in big.items() for agent in members.values()}
    inside |= {agent: box for box, members in boxes_of(plan.names).items() for agent in members}
    found: dict[str | int, list[int]] = {}
    for agent in range(len(plan)):
        found.setdefault(inside.get(agent, agent), []).append(agent)
    return tuple(_stack(plan, key, agents) for key, agents in found.items())


def _stack(plan: Plan, key: str | int, agents: Sequence[int]) -> Group:
    first = plan.agents[agents[0]]
    if isinstance(key, int):
        return Group(single_line(first.name), _where(plan, key), agents=(key,))
    part = first.part
    if key == box_of(first.name):
        what = f"a plan of {plural(len(agents), 'step')}"
    elif part is not None and part.rounds:
        what = f"↻ until {first.until}" if first.until else f"↻ with {part.over.removeprefix(ROUNDS)}"
    elif part is not None and not part.has_item:
        what = f"asked {len(agents):,} times"
    elif part is not None and part.source:
        what = f"each of {part.over}"
    else:
        what = f"each of {len(agents):,} {part.over if part is not None else ''}"
    return Group(
        single_line(key),
        single_line(what),
        agents=tuple(agents),
        rounds=0 if part is None else part.rounds,
        is_box=key == box_of(first.name),
        is_reserved=any(is_reserved(plan.agents[agent]) for agent in agents),
    )


def _where(plan: Plan, key: int) -> str:
    """Return a card's heading; beside a loop, a layer is no help."""
    step = plan.agents[key]
    if not step.is_task and not any(one.part is not None and one.part.rounds for one in plan.agents):
        return f"layer {plan.dag.layer[key]}"
    return single_line(f"when {step.when}") if step.when else "task" if step.is_task else "agent"


def _placed(plan: Plan, groups: tuple[Group, ...]) -> Sheet:
    found = [0] * len(plan)
    for place_, group in enumerate(groups):
        for agent in group.agents:
            found[agent] = place_
    before: list[set[int]] = [set() for _ in groups]
    returns: dict[tuple[int, int], None] = {}
    for child, parents in enumerate(plan.dag.parents):
        again = plan.agents[child].part
        for parent in parents:
            other = plan.agents[parent].part
            if again is None or other is None or other.over != again.over or other.number == again.number:
                before[found[child]].add(found[parent])
            elif found[parent] != found[child]:  # used answers of the previous round
                returns[found[parent], found[child]] = None
    dag = build_dag([sorted(some - {here}) for here, some in enumerate(before)])
    return Sheet(groups, layout=place(dag, GROUP_H, graphviz=False), returns=tuple(returns))


def part_of(state: str) -> int:
    return _PARTS.get(state, TODO)


def counted(states: str) -> list[int]:
    counts = [0] * (TODO + 1)
    for state, place_ in _PARTS.items():
        counts[place_] += states.count(state)
    counts[-1] = len(states) - states.count("u") - sum(counts)
    return counts


def group_texts(group: Group, counts: Sequence[int]) -> tuple[str, str, str]:
    total, finished = sum(counts) or 1, counts[0] + counts[1]
    sign = STATES["m" if counts[1] else "s"].signs[0]
    share = sign if finished == total else f"{100 * finished // total} %"
    rest = [f"{many:,} {STATES[tone].word}" for tone, many in zip(TONES[1:], counts[1:], strict=False) if many]
    done = f"{finished:,} of {total:,}"
    if group.rounds:
        rest = [one.removeprefix("1 ") if one == "1 capped" else one for one in rest]  # the last round is
        done = f"{finished} of up to {plural(group.rounds, 'round')}"
    return share, done, " · ".join(rest)


def tone_of(counts: Sequence[int]) -> str:
    of: dict[str, int] = dict(zip((*TONES, "p"), counts, strict=True))
    return next((tone for tone in "frqpmsk" if of[tone]), "c")


def _grouped(plan: Plan) -> tuple[Group, ...]:
    layers = plan.dag.layer
    if plan.dag.depth <= MOST_COLUMNS:
        roles = [agent.role for agent in plan.agents]
        names: list[Callable[[int], str]] = [lambda agent: roles[agent] or ""] if any(roles) else []
        names.append(lambda agent: beginning(plan.agents[agent].name))
        for name in names:
            found = _collect(len(plan), lambda agent, name=name: (layers[agent], name(agent)))
            if len(found) <= MOST_GROUPS and _tells_more(found, plan.dag.depth):
                return tuple(
                    Group(key[1] or f"layer {key[0]}", f"layer {key[0]}", agents=tuple(some))
                    for key, some in found.items()
                )
    step = -(-plan.dag.depth // MOST_COLUMNS) or 1
    spans = _collect(len(plan), lambda agent: layers[agent] // step)
    last = plan.dag.depth - 1
    found_groups: list[Group] = []
    for key in sorted(spans):
        first, end = key * step, min(last, key * step + step - 1)
        label = f"layer {first}" if first == end else f"layers {first} to {end}"
        found_groups.append(Group(label, "", agents=tuple(spans[key])))
    return tuple(found_groups)


def _tells_more(found: dict[tuple[int, str], list[int]], depth: int) -> bool:
    agents = sum(map(len, found.values()))
    return len(found) <= max(depth, agents // 4) and any(key[1] for key in found)


def _collect(count: int, key: Callable[[int], K]) -> dict[K, list[int]]:
    found: dict[K, list[int]] = {}
    for agent in range(count):
        found.setdefault(key(agent), []).append(agent)
    return found


def beginning(name: str) -> str:
    """Return `review` for `review_17`."""
    return _NUMBERED.sub("", name) or name


RING_R = 21.0
RING_X, RING_Y = 33.0, 42.0
RING_LENGTH = 2 * pi * RING_R
TEXT_X = 62.0


def draw_groups(sheet: Sheet, faces: Sequence[Face]) -> str:
    layout = sheet.layout
    parts = [f'<path class="e" d="{path_data(edge.points)}"/>' for edge in layout.edges]
    parts += [_way_back(layout.nodes[start], layout.nodes[end]) for start, end in sheet.returns]
    for group, box, face in zip(sheet.groups, layout.nodes, faces, strict=True):
        parts.append("".join(_group_card(group, box, face)))
    return "".join(parts)


def _way_back(start: Box, end: Box) -> str:
    (x, y), (to_x, to_y) = (start.x, start.y + BACK_Y), (end.x + end.w + BACK_HEAD, end.y + BACK_Y)
    middle = (x + to_x) / 2
    curve = path_data(((x, y), (middle, y), (middle, to_y), (to_x, to_y)))
    head = f"M{number(to_x + 5)} {number(to_y - 5)}l-7 5l7 5"
    return f'<g><title>the next round</title><path class="bk" d="{curve}"/><path class="hd" d="{head}"/></g>'


BACK_Y = 84.0
BACK_HEAD = 9.0
"""Where a loop's back edge leaves and enters cards, and its distance from them, in px."""


def _group_card(group: Group, box: Box, face: Face) -> Iterator[str]:
    _, share, done, rest, tone, who, answer = face
    room, wide = rest_room(box), line_room(box)
    look = "n gr" if group.is_one else "n gr st"
    hint = " · ".join(filter(None, (group.label, group.where, done, rest, who, answer)))
    yield f'<g class="{look} s-{tone}" transform="translate({number(box.x)} {number(box.y)})">'
    yield f"<title>{escape(single_line(hint))}</title>"
    if not group.is_one:
        yield element("rect", class_="under", x=5, y=5, width=box.w, height=box.h, rx=8)
    yield f'<rect class="c" width="{number(box.w)}" height="{number(box.h)}" rx="8"/>'
    yield element("circle", class_="rt", cx=RING_X, cy=RING_Y, r=RING_R)
    for part, (long, start) in zip(TONES, arcs(face.counts), strict=True):
        yield (
            f'<circle class="ra s-{part}" cx="{number(RING_X)}" cy="{number(RING_Y)}" r="{number(RING_R)}"'
            f' stroke-dasharray="{number(long)} {number(RING_LENGTH)}" stroke-dashoffset="{number(-start)}"'
            f' transform="rotate(-90 {number(RING_X)} {number(RING_Y)})"/>'
        )
    yield element("text", escape(share), class_="v rp", x=RING_X, y=RING_Y + 4, text_anchor="middle")
    yield element("text", escape(fit(group.label, room, 13, bold=True)), class_="t", x=TEXT_X, y=24)
    yield element("text", escape(fit(group.where, room, 11)), class_="pl", x=TEXT_X, y=40)
    yield element("text", escape(fit(done, room, 11)), class_="l", x=TEXT_X, y=57)
    yield element("text", escape(fit(rest, room, 11)), class_="w", x=TEXT_X, y=72)
    yield element("text", escape(fit(who, wide, 11)), class_="wh", x=LINE_X, y=90)
    yield element("text", escape(fit(answer, wide, 11)), class_="an", x=LINE_X, y=105)
    yield "</g>"


LINE_X = 13.0


def rest_room(box: Box) -> float:
    return box.w - TEXT_X - 6


def line_room(box: Box) -> float:
    return box.w - 2 * LINE_X


def arcs(counts: Sequence[int]) -> list[tuple[float, float]]:
    """Return the arcs of a ring as (length, start) in px, clockwise from the top."""
    total = sum(counts) or 1
    parts: list[tuple[float, float]] = []
    start = 0.0
    for one in counts[:TODO]:
        long = RING_LENGTH * one / total
        parts.append((long, start))
        start += long
    return parts


LABEL_W = 190.0
MOST_BANDS = 40
BAND_GAP = 8.0
PAD = 10.0
LEAST_BAND_H = 58.0
_MOST_NAMED = 12


@dataclass(frozen=True, slots=True)
class Band:
    """A row of cells: a layer, or several neighbouring ones."""

    label: str
    agents: tuple[int, ...]
    y: float = field(kw_only=True)
    h: float = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class CellGrid:
    """Pitch and side of cells in px, and cells per row."""

    pitch: float
    size: float
    columns: int
    bands: tuple[Band, ...] = field(kw_only=True)

    @property
    def height(self) -> float:
        return self.bands[-1].y + self.bands[-1].h if self.bands else 0.0


def cell_grid(plan: Plan, sheet: Sheet, width: float) -> CellGrid:
    pitch = 14.0 if len(plan) <= 1200 else 10.0 if len(plan) <= 4000 else 7.0
    stacks = [(group.label, group.agents) for group in sheet.groups if len(group.agents) >= LEAST_STACK]
    groups = stacks if is_stacked(plan) else list(_groups(plan.dag.layers()))
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


def draw_cells(plan: Plan, sheet: Sheet, states: str, lost: Sequence[str], width: float) -> tuple[str, float]:
    grid = cell_grid(plan, sheet, width)
    parts: list[str] = []
    for band in grid.bands:
        inside = "".join(states[agent] for agent in band.agents)
        ground = element("rect", class_="band", y=band.y, width=width, height=band.h, rx=8)
        label = element("text", escape(fit(band.label, LABEL_W - 22, 11, bold=True)), class_="v", x=14, y=band.y + 20)
        tally = "".join(
            element("text", escape(words), class_="tally", x=14, y=band.y + 35 + 14 * line)
            for line, words in enumerate(tally_of(inside))
        )
        cells = "".join(_layer_cells(inside, grid, band))
        parts.append(f'{ground}{label}{tally}<g class="cells">{cells}</g>')
    line = _lost_line(lost, width, grid.height + 20)
    return "".join(parts) + line, grid.height + (26 if line else 0)


def tally_of(states: str) -> tuple[str, str]:
    words = {word: states.count(state) for state, word in _WORDS.items()}
    words["done"] = sum(map(states.count, "slym"))
    return _counted(words, ("done", "to do")), _counted(words, ("failed", "running", "queued", "skipped", "cancelled"))


_WORDS = {"r": "running", "q": "queued", "f": "failed", "k": "skipped", "c": "cancelled", "p": "to do"}


def _counted(words: Mapping[str, int], wanted: Sequence[str]) -> str:
    found = [f"{words[word]:,} {word}" for word in wanted if words[word]]
    return fit(" · ".join(found), LABEL_W - 22, 11)


def cell_paths(states: str, grid: CellGrid, y: float) -> dict[str, str]:
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
    start = 0
    for index in range(1, len(states) + 1):
        if index == len(states) or index % columns == 0 or states[index] != states[start]:
            yield start, index
            start = index


def _groups(layers: Sequence[Sequence[int]]) -> Iterator[tuple[str, tuple[int, ...]]]:
    step = -(-len(layers) // MOST_BANDS) or 1
    for first in range(0, len(layers), step):
        group = layers[first : first + step]
        last = first + len(group) - 1
        label = f"layer {last}" if len(group) == 1 else f"layers {first} to {last}"
        yield label, tuple(agent for layer in group for agent in layer)


def _lost_line(lost: Sequence[str], width: float, y: float) -> str:
    if not lost:
        return ""
    more = and_more(len(lost) - _MOST_NAMED)
    text = f"{STATES['f'].word}: " + ", ".join(lost[:_MOST_NAMED])
    return element("text", escape(fit(text, width - 120, 11) + more), x=14, y=y)
