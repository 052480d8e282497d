"""Groups of agents as cards: a ring of their states, a name, a tally."""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING

from agent_magic.show.groups import TODO, TONES, counted, group_texts, tone_of
from agent_magic.show.markup import element, escape, fit, number, path_data, single_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_magic.show.groups import Group, Sheet
    from agent_magic.show.layout import Box

RING_R = 21.0
RING_X, RING_Y = 34.0, 42.0
RING_LENGTH = 2 * pi * RING_R
TEXT_X = 66.0


def draw_groups(sheet: Sheet, states: str) -> str:
    """Draw the groups and how they depend on each other."""
    layout = sheet.layout
    parts = [f'<path class="e" d="{path_data(edge.points)}"/>' for edge in layout.edges]
    for group, box in zip(sheet.groups, layout.nodes, strict=True):
        counts = counted("".join(states[agent] for agent in group.agents))
        parts.append("".join(_group_card(group, box, counts)))
    return "".join(parts)


def _group_card(group: Group, box: Box, counts: Sequence[int]) -> Iterator[str]:
    share, done, rest = group_texts(counts)
    room = rest_room(box)
    yield f'<g class="n gr s-{tone_of(counts)}" transform="translate({number(box.x)} {number(box.y)})">'
    yield f"<title>{escape(group_hint(group, counts))}</title>"
    yield f'<rect class="c" width="{number(box.w)}" height="{number(box.h)}" rx="8"/>'
    yield element("circle", class_="rt", cx=RING_X, cy=RING_Y, r=RING_R)
    for tone, (long, start) in zip(TONES, arcs(counts), strict=True):
        yield (
            f'<circle class="ra s-{tone}" cx="{number(RING_X)}" cy="{number(RING_Y)}" r="{number(RING_R)}"'
            f' stroke-dasharray="{number(long)} {number(RING_LENGTH)}" stroke-dashoffset="{number(-start)}"'
            f' transform="rotate(-90 {number(RING_X)} {number(RING_Y)})"/>'
        )
    yield element("text", share, class_="v rp", x=RING_X, y=RING_Y + 4, text_anchor="middle")
    yield element("text", escape(fit(group.label, room, 13, bold=True)), class_="t", x=TEXT_X, y=24)
    yield element("text", escape(fit(group.where, room, 11)), class_="pl", x=TEXT_X, y=40)
    yield element("text", done, class_="l", x=TEXT_X, y=57)
    yield element("text", fit(rest, room, 10.5), class_="w", x=TEXT_X, y=72)
    yield "</g>"


def rest_room(box: Box) -> float:
    """Return the width of the lines beside a ring."""
    return box.w - TEXT_X - 10


def group_hint(group: Group, counts: Sequence[int]) -> str:
    """Say a group in one line."""
    _, done, rest = group_texts(counts)
    return single_line(" · ".join(part for part in (group.label, group.where, done, rest) if part))


def arcs(counts: Sequence[int]) -> list[tuple[float, float]]:
    """Cut a ring into (length, start), clockwise from the top, in px."""
    total = sum(counts) or 1
    parts: list[tuple[float, float]] = []
    start = 0.0
    for one in counts[:TODO]:
        long = RING_LENGTH * one / total
        parts.append((long, start))
        start += long
    return parts
