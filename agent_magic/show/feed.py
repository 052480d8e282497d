"""What the live view is told: everything once, and then only what has changed.

Cost follows what happens, not how many agents or tokens there are: a step looks at the agents that have new events
and at those under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.record.events import AgentEnded, RunEnded
from agent_magic.show.cells import CellGrid, cell_grid, tally_of
from agent_magic.show.scene import Header, counted_header, joined, moment_of, node_view, worked_path
from agent_magic.show.states import state_of
from agent_magic.show.svg import MARGIN, card_texts, fact_runs, picture_width, progress_parts
from agent_magic.show.text import facts, total_tokens_of
from agent_magic.show.timeline import axis_for, bars_of, rows_of, tick_label
from agent_magic.show.units import count, dollars

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_magic.record.results import RunRecord
    from agent_magic.show.layout import Layout
    from agent_magic.show.text import Numbers

    Summarize = Callable[[RunRecord, float], Numbers]

SUMMARY_EVERY_S = 0.5  # for a thousand agents; for more as much later, for it costs as much more


class Feed:
    """Follows a run and says what a view of it has to change.

    Args:
        record: The run, which grows.
        layout: Where the cards stand; `None` where agents are cells.
        summarize: Works out the numbers of the run so far; `None` shows tokens and dollars only.

    Attributes:
        states: One character per agent.
        rows: The row of each agent that has one in the timeline.
        grid: The cells; `None` where agents are cards.
        full: All that was said so far, in one message: for a view that opens late.
    """

    def __init__(self, record: RunRecord, layout: Layout | None, summarize: Summarize | None = None) -> None:
        count_ = len(record.plan)
        self.states = "".join(map(state_of, record.results))
        self.full: dict[str, Any] = {"nodes": {}, "bars": {}, "tally": {}}
        self.grid: CellGrid | None = (
            cell_grid(record.plan, picture_width(None) - 2 * MARGIN) if layout is None else None
        )
        self._record, self._layout, self._summarize = record, layout, summarize
        self._seen = 0
        self._moving: set[int] = set(range(count_))
        self.rows = {agent: row for row, agent in enumerate(rows_of(record.plan))} if layout else {}
        self._tokens: dict[int, int] = {}
        self._costs: dict[int, float] = {}
        self._sources: set[str | None] = set()
        self._numbers: Numbers | None = None
        self._numbers_at = 0.0
        self._numbers_every_s = SUMMARY_EVERY_S * max(1.0, count_ / 1000)

    def step(self, now_s: float, tails: Mapping[int, str]) -> dict[str, Any]:
        """Return what has changed since the last step; empty where nothing has."""
        now_s = moment_of(self._record, now_s)
        fresh, ended = self._changed()
        look = fresh | self._moving | set(tails)
        self._take_states(look)
        delta: dict[str, Any] = {}
        if self._layout is not None:
            self._put(delta, "nodes", {agent: self._node(agent, now_s, tails) for agent in look})
            bars = {self.rows[agent]: self._bars(agent) for agent in fresh if agent in self.rows}
            self._put(delta, "bars", bars)
            if ended:
                self._set(delta, "path", list(worked_path(self._record, now_s)))
            self._set(delta, "axis", _axis(now_s))
            self._set(delta, "now", None if self._record.ended_s is not None else round(now_s, 2))
        elif self.grid is not None and (fresh or not self.full["tally"]):
            self._put(delta, "tally", self._tallies(self.grid))
        self._set(delta, "head", self._head(fresh, now_s))
        return delta

    def _changed(self) -> tuple[set[int], bool]:
        """Return the agents with new events, with those that waited for one that has ended."""
        news = self._record.events[self._seen :]
        self._seen += len(news)
        fresh: set[int] = set()
        ended = False
        for event in news:
            if isinstance(event, RunEnded):
                ended = True
                continue
            fresh.add(event.agent)
            if isinstance(event, AgentEnded):
                ended = True
                fresh.update(self._record.plan.dag.children[event.agent])
        return fresh, ended

    def _take_states(self, look: set[int]) -> None:
        """Bring the states up to date, and note which agents move on their own: those that run or wait to retry."""
        states = list(self.states)
        for agent in look:
            result = self._record.results[agent]
            states[agent] = state_of(result)
            if result.status == "running" or result.waits_until_s is not None:
                self._moving.add(agent)
            else:
                self._moving.discard(agent)
        self.states = "".join(states)

    def _node(self, agent: int, now_s: float, tails: Mapping[int, str]) -> list[str | float | None]:
        view = node_view(self._record, agent, now_s, tail=tails.get(agent, ""))
        _, line, tail = card_texts(view, self._layout.nodes[agent].w if self._layout else 0.0)
        return [line, tail, view.share, view.badge, view.hint]

    def _bars(self, agent: int) -> list[list[str | float | None]]:
        return [[bar.kind, bar.tone, bar.from_s, bar.to_s] for bar in bars_of(self._record.results[agent])]

    def _tallies(self, grid: CellGrid) -> dict[int, list[str]]:
        return {
            place: list(tally_of("".join(self.states[agent] for agent in band.agents)))
            for place, band in enumerate(grid.bands)
        }

    def _head(self, fresh: set[int], now_s: float) -> dict[str, Any]:
        for agent in fresh:
            result = self._record.results[agent]
            tokens, cost = total_tokens_of(result), result.cost_usd
            self._sources.update((result.source, "simulated" if self._record.replays_simulation else None))
            if tokens is not None:
                self._tokens[agent] = tokens
            if cost is not None:
                self._costs[agent] = cost
        source = joined(self._sources)
        header = counted_header(self.states, now_s, phrases=self._phrases(now_s, source), source=source)
        return _head(header, picture_width(self._layout))

    def _phrases(self, now_s: float, source: str) -> list[str]:
        if self._summarize is None or not self._record.events:
            tokens = count(sum(self._tokens.values()) if self._tokens else None)
            cost = dollars(sum(self._costs.values()) if self._costs else None)
            return [f"{tokens} tokens", cost, *([source] if source else [])]
        late = now_s - self._numbers_at >= self._numbers_every_s
        if self._numbers is None or late or self._record.ended_s is not None:
            self._numbers, self._numbers_at = self._summarize(self._record, now_s), now_s
        return facts(self._numbers, source)

    def _put(self, delta: dict[str, Any], key: str, entries: Mapping[int, Any]) -> None:
        """Say the entries that are not what was said before."""
        said = self.full[key]
        changed = {str(place): entry for place, entry in entries.items() if said.get(str(place)) != entry}
        if changed:
            said.update(changed)
            delta[key] = changed

    def _set(self, delta: dict[str, Any], key: str, value: Any) -> None:
        if key not in self.full or self.full[key] != value:
            delta[key] = self.full[key] = value


def _head(header: Header, width: float) -> dict[str, Any]:
    parts = [[round(x, 1), round(wide, 1)] for _, x, wide in progress_parts(header, width)]
    return {"counts": header.counts, "progress": parts, "facts": [list(run) for run in fact_runs(header)]}


def _axis(now_s: float) -> dict[str, Any]:
    axis = axis_for(now_s)
    return {"span": axis.span_s, "ticks": [[tick, tick_label(tick, axis.span_s)] for tick in axis.ticks_s]}
