"""What the live view is told of agents in groups: the tally of each group in which something has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.show.groups import TODO, counted, group_texts, part_of, tone_of
from agent_magic.show.markup import fit
from agent_magic.show.shades import Shades, tone_of_row
from agent_magic.show.svg_groups import rest_room
from agent_magic.show.timeline import axis_entry, bar_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.record.events import Event
    from agent_magic.show.groups import Sheet


class GroupFeed:
    """Follows groups of agents.

    Args:
        sheet: The groups.
        states: One character per agent, as the run begins.

    Attributes:
        keyed: The names of what it tells entry by entry.
        each: Whether it tells anything of a single agent.
    """

    keyed = ("groups", "bars")
    each = False

    def __init__(self, sheet: Sheet, states: str) -> None:
        self._sheet = sheet
        self._group_of = sheet.group_of()
        self._counts = [counted("".join(states[agent] for agent in group.agents)) for group in sheet.groups]
        self._parts = [part_of(state) for state in states]
        self._rooms = [rest_room(box) for box in sheet.layout.nodes]
        self._shades = Shades(self._group_of, len(sheet.groups))
        self._drawn: list[tuple[str, bool]] = [("", False)] * len(sheet.groups)
        self._bin = (0.0, -1)
        self._told = False

    def take(self, event: Event) -> None:
        """Take an event in."""
        self._shades.take(event)

    def entries(
        self,
        look: set[int],  # noqa: ARG002 - as `CardFeed`
        fresh: set[int],  # noqa: ARG002
        changed: Mapping[int, str],
        now_s: float,
        tails: Mapping[int, str],  # noqa: ARG002
    ) -> dict[str, dict[int, Any]]:
        """Return the tallies that have changed: the parts of the ring, then the lines; and rows of the timeline."""
        touched = set[int]() if self._told else set(range(len(self._counts)))
        self._told = True
        for agent, state in changed.items():
            group, part = self._group_of[agent], part_of(state)
            self._counts[group][self._parts[agent]] -= 1
            self._counts[group][part] += 1
            self._parts[agent] = part
            touched.add(group)
        return {"groups": {group: self._entry(group) for group in touched}, "bars": self._rows(now_s)}

    def values(self, now_s: float, *, ended: bool) -> dict[str, Any]:  # noqa: ARG002 - as `CardFeed`
        """Return what is told as a whole."""
        return {"axis": axis_entry(now_s)}

    def _rows(self, now_s: float) -> dict[int, list[Any]]:
        """Return the rows that have changed: the page itself lets the last bar of a row grow."""
        bin_s = self._shades.bin_s
        here, self._bin = self._bin, (bin_s, int(now_s / bin_s))
        passed = here != self._bin
        rows: dict[int, list[Any]] = {}
        for group, counts in enumerate(self._counts):
            going = self._shades.running[group] > 0
            look = (tone_of_row(counts), going)
            if look == self._drawn[group] and not (passed and going):
                continue
            self._drawn[group] = look
            rows[group] = [bar_entry(bar) for bar in self._shades.bars(group, look[0], now_s)]
        return rows

    def _entry(self, group: int) -> list[Any]:
        counts = self._counts[group]
        share, done, rest = group_texts(counts)
        return [list(counts[:TODO]), sum(counts), share, done, fit(rest, self._rooms[group], 10.5), tone_of(counts)]
