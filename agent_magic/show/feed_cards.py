"""What the live view is told of agents that are cards: their lines, their bars in the timeline, the bold path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.show.markup import fit_end
from agent_magic.show.scene import flow_of, node_view, worked_path
from agent_magic.show.svg import card_texts, tail_room
from agent_magic.show.timeline import axis_entry, bar_entry, bars_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.record.events import Event
    from agent_magic.record.results import RunRecord
    from agent_magic.show.layout import Layout


PATH_EVERY_S = 0.5


class CardFeed:
    """Follows agents that are cards.

    Args:
        record: The run, which grows.
        layout: Where the cards stand.

    Attributes:
        keyed: The names of what it tells entry by entry.
        each: Whether it tells anything of a single agent.
        rows: The row of each agent that has one in the timeline.
    """

    keyed = ("nodes", "bars", "flows")
    each = True

    def take(self, event: Event) -> None:
        """Take an event in: what cards say is read from the results."""

    def __init__(self, record: RunRecord, layout: Layout) -> None:
        self._record, self._layout = record, layout
        self._said: dict[int, list[str | float | None]] = {}
        self._ended, self._path_s = False, float("-inf")
        self.rows = {agent: row for row, agent in enumerate(rows_of(record.plan))}

    def entries(
        self, look: set[int], fresh: set[int], changed: Mapping[int, str], now_s: float, tails: Mapping[int, str]
    ) -> dict[str, dict[int, Any]]:
        """Return entries that may have changed.

        Args:
            look: Agents to look at.
            fresh: Those of them with new events.
            changed: Those of them in a new state, with it.
            now_s: Seconds since the run began.
            tails: The end of the text that arrives, or what holds an agent.
        """
        results = self._record.results
        return {
            "nodes": {agent: self._node(agent, now_s, tails, grown=agent not in fresh) for agent in look},
            "bars": {self.rows[agent]: self._bars(agent) for agent in fresh if agent in self.rows},
            "flows": {agent: flow for agent in changed if (flow := flow_of(results[agent]))},
        }

    def values(self, now_s: float, *, ended: bool) -> dict[str, Any]:
        """Return what is told as a whole: the path now and then, for it looks at every agent."""
        self._ended = self._ended or ended
        late = now_s - self._path_s >= PATH_EVERY_S or self._record.ended_s is not None
        if not (self._ended and late):
            return {"axis": axis_entry(now_s)}
        self._ended, self._path_s = False, now_s
        return {"path": list(worked_path(self._record, now_s)), "axis": axis_entry(now_s)}

    def _node(self, agent: int, now_s: float, tails: Mapping[int, str], *, grown: bool) -> list[str | float | None]:
        """Return the texts of a card. Of a running one the page itself writes the seconds.

        Args:
            agent: Its number.
            now_s: Seconds since the run began.
            tails: The end of the text that arrives.
            grown: Whether at most its text has changed: no event came.
        """
        wide = self._layout.nodes[agent].w
        before = self._said.get(agent)
        if grown and before is not None and before[4] is not None:  # under way, as it was
            badge = str(before[3])
            return [before[0], fit_end(tails.get(agent, ""), tail_room(wide, badge), 10.5), None, badge, before[4]]
        view = node_view(self._record, agent, now_s, tail=tails.get(agent, ""))
        _, line, tail = card_texts(view, wide)
        if view.since_s is not None:
            line = line.partition(" · ")[2]
        since = None if view.since_s is None else round(view.since_s, 2)
        self._said[agent] = [line, tail, view.share, view.badge, since]
        return self._said[agent]

    def _bars(self, agent: int) -> list[list[str | float | None]]:
        return [bar_entry(bar) for bar in bars_of(self._record.results[agent])]
