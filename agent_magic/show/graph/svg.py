"""The picture of a plan or a run: one drawing for the saved notebook and for the live view.

The live view finds the elements by class and order: `.n` agents or groups, `.e` edges.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from agent_magic.declare.units import time_tick
from agent_magic.show.graph.groups import draw_cells, draw_groups, sheet_of
from agent_magic.show.graph.layout import BAND_HEAD
from agent_magic.show.markup import element, escape, fit, fit_end, number, path_data, width_px
from agent_magic.show.states import SOURCES
from agent_magic.show.theme import BAR_H, PHASES, Theme, attributes_for_classes, dark_style

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.declare.plan import Plan
    from agent_magic.show.graph.groups import Sheet
    from agent_magic.show.graph.layout import Box, EdgePath, Layout
    from agent_magic.show.graph.scene import Header, NodeView, Scene
    from agent_magic.show.graph.timeline import Bar, Timeline

MARGIN = 24.0
HEAD_H = 92.0
LIVE_TOP = 8.0  # the live view writes its header itself
LEAST_W = 848.0
"""The width of an output in JupyterLab at 1280 px, so letters have their drawn size."""
PAGE_W = 880.0
"""Wider pictures are not shrunk to this width: their letters would be too small."""
SCROLLED_W = 1100.0
"""Wider pictures are scrolled in a window of 1280 px, even without JupyterLab's sidebar."""
ROW_H = 19.0
FULL_ROWS = 40
"""More rows share the same total height."""
NAME_H = 12.0
"""Least distance between names; thinner rows are not all named."""
LABEL_W = 132.0
CARD_PAD = 12.0
CUT = 11.0


@dataclass(frozen=True, slots=True)
class Plot:
    """The position of a timeline: the upper left corner of its bars, its width, its rows."""

    x: float
    y: float
    w: float = field(kw_only=True)
    rows: int = field(kw_only=True)

    @property
    def row_h(self) -> float:
        return ROW_H * min(1.0, FULL_ROWS / max(1, self.rows))

    @property
    def bar_h(self) -> float:
        return self.row_h * BAR_H / ROW_H

    @property
    def bottom(self) -> float:
        return self.y + self.rows * self.row_h

    @property
    def named(self) -> int:
        return math.ceil(NAME_H / self.row_h)

    def at(self, time_s: float, span_s: float) -> float:
        return self.x + time_s / span_s * self.w


def draw(scene: Scene, plan: Plan, layout: Layout | None, *, theme: Theme | None = "auto") -> str:
    """Draw well-formed SVG, without scripts, links or external resources.

    Without a layout it draws groups. Without a theme it is the live view: no style, no background, no header.
    """
    live = theme is None
    head_h = HEAD_H if scene.timeline is not None else HEAD_H - 16
    if layout is not None:
        sheet = None
        width, graph_h = picture_width(layout), layout.height
        graph = _cards(scene, plan, layout, live=live)
    else:
        sheet = scene.sheet or sheet_of(plan)
        width, graph_h = picture_width(sheet.layout), groups_h(sheet)
        groups = draw_groups(sheet, scene.faces)
        graph = f'<g transform="translate(0 {number(-BAND_HEAD)})">{groups}</g>'
    body = [] if live else [_header(scene, _on_page(width))]
    body.append(_moved(graph, head_h))
    height = head_h + graph_h + MARGIN
    if scene.timeline is not None:
        plot = plot_of(width, graph_h, len(scene.timeline.rows))
        note = scene.timeline.note or (f"one row of {plot.named} has its name" if plot.named > 1 else "")
        body.append(_timeline(scene.timeline, plot, note, live=live))
        height = plot.bottom + (36 if note else 20)
    if sheet is not None and not live:  # a static group cannot be opened, so every agent has a cell
        states = "".join(node.state for node in scene.nodes)
        lost = [node.title for node in scene.nodes if node.state == "f"]
        cells, cells_h = draw_cells(plan, sheet, states, lost, width - 2 * MARGIN)
        body.append(_moved(cells, height))
        height += cells_h + MARGIN
    spoken = " · ".join([scene.title, scene.header.line, *scene.header.facts])
    return _frame(width, height, "".join(body), theme, spoken)


def _moved(inside: str, y: float) -> str:
    return f'<g transform="translate({number(MARGIN)} {number(y)})">{inside}</g>'


def groups_h(sheet: Sheet) -> float:
    """Return the height of groups, which have no headings of layers."""
    return sheet.layout.height - BAND_HEAD


def plot_of(width: float, graph_h: float, rows: int) -> Plot:
    x = MARGIN + LABEL_W + 10
    return Plot(x, HEAD_H + graph_h + 46, w=_on_page(width) - MARGIN - 16 - x, rows=rows)


def _on_page(width: float) -> float:
    """Return the width above and below a graph: a scrolled graph leaves it on the page."""
    return width if width <= SCROLLED_W else PAGE_W


def picture_width(layout: Layout) -> float:
    return max(LEAST_W, layout.width + 2 * MARGIN)


GAP_W = 1.5


def progress_parts(header: Header, width: float) -> list[tuple[str, float, float]]:
    full = width - 2 * MARGIN
    parts: list[tuple[str, float, float]] = []
    x = MARGIN
    for state, share in header.progress:
        wide = full * share
        gap = GAP_W if x + wide < MARGIN + full - GAP_W else 0.0  # none behind the last part
        parts.append((state, x, max(0.0, wide - gap)))
        x += wide
    return parts


def fact_runs(header: Header) -> list[tuple[str, str]]:
    runs: list[tuple[str, str]] = []
    for index, phrase in enumerate(header.facts):
        if index:
            runs.append(("", "\u00a0 · \u00a0"))
        if header.source and phrase == header.source:
            state = SOURCES.get(phrase, "s")
            runs.append(("src" if state == "s" else f"src src-{state}", phrase))
            continue
        found = re.match(r"[$≈]?[\d≈$.,– ]*[\d–]", phrase)
        cut = found.end() if found else 0
        runs += [(kind, text) for kind, text in (("v", phrase[:cut]), ("", phrase[cut:])) if text]
    return runs


def card_texts(node: NodeView, card_w: float) -> tuple[str, str, str]:
    room = card_w - 2 * CARD_PAD
    cut = fit_end if node.state == "r" else fit
    return (
        fit(node.title, room - 22, 13, bold=True),
        fit(node.line, room, 11),
        cut(node.tail, tail_room(card_w, node.badge), 11) if node.tail else "",
    )


def tail_room(card_w: float, badge: str) -> float:
    return card_w - 2 * CARD_PAD - (pill_w(badge) + 6 if badge else 0.0)


def pill_w(badge: str) -> float:
    return width_px(badge, 11, bold=True) + 10 if badge else 0.0


def _frame(width: float, height: float, body: str, theme: Theme | None, label: str) -> str:
    # It has no height, and the full width up to its own. One that is wider than a page of JupyterLab at 1280 px has
    # a fixed width: JupyterLab does not shrink it but scrolls, so its letters can be read.
    page = {"xmlns": "http://www.w3.org/2000/svg", "width": "100%", "aria_label": label}
    if theme is None:
        top = HEAD_H - LIVE_TOP
        box = f"0 {number(top)} {number(width)} {number(height - top)}"
        return element("svg", body, class_="am-fig", viewBox=box, role="group", **page)
    ground = element("rect", class_="bg", width=width, height=height, rx=6)
    inside = attributes_for_classes(f'<g class="am-fig">{ground}{body}</g>', theme)
    is_wide = width > PAGE_W
    if is_wide:
        page["width"] = number(width)
    return element(
        "svg",
        (dark_style(inside) if theme == "auto" else "") + inside,
        class_=f"am-fig am-{theme}",
        viewBox=f"0 0 {number(width)} {number(height)}",
        style=f"{'' if is_wide else f'max-width:{number(width)}px;'}height:auto;display:block",
        role="img",
        **page,
    )


def _header(scene: Scene, width: float) -> str:
    full = width - 2 * MARGIN
    title = element("tspan", escape(fit(scene.title, 300, 17, bold=True)), class_="h")
    counts = element("tspan", escape(scene.header.line), class_="k counts", dx=12)
    bar = [] if scene.timeline is None else [element("rect", class_="tr", x=MARGIN, y=47, width=full, height=5, rx=2.5)]
    bar += [
        element("rect", class_=f"g p s-{state}", x=x, y=47, width=wide, height=5, rx=2.5)
        for state, x, wide in progress_parts(scene.header, width)
        if bar
    ]
    runs = "".join(element("tspan", escape(text), class_=kind or None) for kind, text in fact_runs(scene.header))
    facts = f'<text class="k facts" x="{number(MARGIN)}" y="{75 if bar else 58}">{runs}</text>'
    return element("text", title + counts, x=MARGIN, y=33) + "".join(bar) + facts


def _cards(scene: Scene, plan: Plan, layout: Layout, *, live: bool) -> str:
    on = set(scene.path)
    steps = set(pairwise(scene.path))
    parts = [_band(depth, band) for depth, band in enumerate(layout.bands)]
    flows = scene.flows or (0,) * len(scene.nodes)
    # Edges of the critical path are drawn last. The live view finds edges by order, and raises them itself.
    edges = layout.edges if live else sorted(layout.edges, key=lambda edge: (edge.parent, edge.child) in steps)
    parts.append('<g class="es">')
    for edge in edges:
        on_path = " on" if (edge.parent, edge.child) in steps else ""
        width = f"f{flows[edge.parent]}" if passes(plan, edge) else "a"
        parts.append(f'<path class="e{on_path} {width}" d="{path_data(edge.points)}"/>')
    parts.append("</g>")
    parts += [
        _card(node, box, on=agent in on, live=live)
        for agent, (node, box) in enumerate(zip(scene.nodes, layout.nodes, strict=True))
    ]
    return "".join(parts)


def _band(depth: int, box: Box) -> str:
    ground = element("rect", class_="band", x=box.x, y=box.y, width=box.w, height=box.h, rx=10)
    return ground + element("text", f"layer {depth}", x=box.x + 14, y=box.y + 21)


def passes(plan: Plan, edge: EdgePath) -> bool:
    """True if the child reads its parent's answer, rather than only waiting for it."""
    return plan.agents[edge.parent].name in plan.inputs[edge.child]


def _card(node: NodeView, box: Box, *, on: bool, live: bool) -> str:
    name, line, tail = card_texts(node, box.w)
    room, end, wide = box.w - 2 * CARD_PAD, box.w - CARD_PAD, pill_w(node.badge)
    share = 1.0 if node.share is None else node.share
    going = "g go" if node.share is None else "g"
    parts = [
        f"<title>{escape(node.hint)}</title>",
        _ground(box, is_task=node.is_task),
        element("path", class_="i", transform=f"translate({number(CARD_PAD)} 11.5)", d=node.icon),
        element("text", escape(name), class_="t", x=CARD_PAD + 18, y=22),
        element("text", escape(line), class_="l", x=CARD_PAD, y=38.5),
    ]
    if tail or live:  # the live view fills in the empty parts
        parts.append(element("text", escape(tail), class_="w", x=CARD_PAD, y=52.5))
    if node.badge or live:
        parts.append(element("rect", class_="q", x=end - wide, y=43, width=wide, height=13, rx=6.5))
        parts.append(element("text", escape(node.badge), class_="x", x=end - 5, y=52.5, text_anchor="end"))
    if share or live:
        parts.append(element("rect", class_=going, x=CARD_PAD, y=box.h - 8, width=room * share, height=2.5, rx=1.2))
    look = f"n s-{node.state}{' on' if on else ''}"
    return element("g", "".join(parts), class_=look, transform=f"translate({number(box.x)} {number(box.y)})")


def _ground(box: Box, *, is_task: bool) -> str:
    if not is_task:
        return element("rect", class_="c", width=box.w, height=box.h, rx=8)
    right, bottom, cut = number(box.w - CUT), number(box.h - CUT), number(CUT)
    outline = f"M{cut} 0H{right}l{cut} {cut}V{bottom}l-{cut} {cut}H{cut}l-{cut} -{cut}V{cut}z"
    return element("path", class_="c", d=outline, data_w=box.w)


def _timeline(timeline: Timeline, plot: Plot, note: str, *, live: bool) -> str:
    parts = [element("text", "time", x=MARGIN, y=plot.y - 12)]
    for row, name in list(enumerate(timeline.names))[:: plot.named]:
        y = plot.y + row * plot.row_h + plot.bar_h / 2 + 4
        parts.append(element("text", escape(fit(name, LABEL_W, 11)), x=plot.x - 10, y=y, text_anchor="end"))
    if note:
        parts.append(element("text", note, x=plot.x, y=plot.bottom + 14))
    if live:
        thin = f' style="--am-thin:{number(plot.bar_h)}px"' if plot.bar_h < PHASES["backoff"].height else ""
        return "".join([*parts, f'<g class="ticks"></g><g class="bars"{thin}></g>'])
    return "".join([*parts, *_ticks(timeline, plot), *_bars(timeline, plot), _now(timeline, plot)])


def _ticks(timeline: Timeline, plot: Plot) -> Iterator[str]:
    span = timeline.axis.span_s
    for tick in timeline.axis.ticks_s:
        x = plot.at(tick, span)
        yield _upright("grid", x, plot)
        yield element("text", time_tick(tick, span), x=x, y=plot.y - 12, text_anchor="middle")


def _bars(timeline: Timeline, plot: Plot) -> Iterator[str]:
    now, thin = timeline.now_s or 0.0, plot.named > 1
    paths: dict[str, str] = {}
    for row, bars in enumerate(timeline.bars):
        middle = plot.y + row * plot.row_h + plot.bar_h / 2
        for bar in bars:
            if thin and bar.kind != "b":  # a path for all of one look: hundreds of bars would be most of the file
                look = f"b b-{bar.kind} s-{bar.tone}"
                paths[look] = paths.get(look, "") + _outline(bar, plot, middle, timeline.axis.span_s, now)
            else:
                yield _bar(bar, plot, middle, timeline.axis.span_s, now)
    for look, outlines in paths.items():
        yield element("path", class_=look, d=outlines)


def _outline(bar: Bar, plot: Plot, middle: float, span_s: float, now_s: float) -> str:
    start, wide, tall = _box(bar, plot, span_s, now_s)
    right, down = number(wide), number(tall)
    return f"M{number(start)} {number(middle - tall / 2)}h{right}v{down}h-{right}z"


def _box(bar: Bar, plot: Plot, span_s: float, now_s: float) -> tuple[float, float, float]:
    start = plot.at(bar.from_s, span_s)
    end = plot.at(max(bar.from_s, now_s) if bar.to_s is None else bar.to_s, span_s)
    tall = plot.bar_h
    if bar.kind == "q":
        tall = min(PHASES["queued"].height, plot.bar_h / 2)
    elif bar.kind == "t":
        tall *= PHASES["tool"].height / BAR_H
    return start, max(1.5, end - start), tall


def _bar(bar: Bar, plot: Plot, middle: float, span_s: float, now_s: float) -> str:
    start, wide, tall = _box(bar, plot, span_s, now_s)
    look = f"b b-{bar.kind} s-{bar.tone}"
    if bar.kind == "b":
        thin = plot.bar_h if plot.bar_h < PHASES["backoff"].height else None
        return element("path", class_=look, d=f"M{number(start)} {number(middle)}h{number(wide)}", stroke_width=thin)
    round_ = None if bar.kind.isdigit() else min(2.5, tall / 2, wide / 2)
    return element("rect", class_=look, x=start, y=middle - tall / 2, width=wide, height=tall, rx=round_)


def _now(timeline: Timeline, plot: Plot) -> str:
    if timeline.now_s is None:
        return ""
    return _upright("now", plot.at(timeline.now_s, timeline.axis.span_s), plot)


def _upright(look: str, x: float, plot: Plot) -> str:
    return element("path", class_=look, d=f"M{number(x)} {number(plot.y - 5)}V{number(plot.bottom)}")
