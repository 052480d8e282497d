"""A run in a terminal: a table that is redrawn in place, or a few lines in a log."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.units import count, dollars, plural, seconds
from agent_magic.record.display import single_line
from agent_magic.record.results import capped_steps
from agent_magic.show.graph import static_bundle
from agent_magic.show.graph.scene import doing_of, header_of, node_view
from agent_magic.show.states import DONE, OF_STATUS, STATES, badge_of, states_of
from agent_magic.show.text import counts_line, listed, many_of, run_line, steps_of, total_tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO, TypeAlias

    from agent_magic.record.results import RunRecord

    Tails: TypeAlias = Mapping[int, str]

LEAST_STEP_S = 0.1
LINE_EVERY_S = 10.0
LATER = 0.25
"""A log has a line every ten seconds, later after this share of the elapsed time: 30 in three hours."""
MOST_SHARE = 0.05
"""Maximum share of the time for drawing: a slow terminal is redrawn less often."""
MOST_ROWS = 60
_FRAME_H = 4  # the header, its bar, and room for the prompt
_NAME_W = 32
_WIDE, _MIDDLE = 72, 50

_URGENCY = "frqcmpksly"


_PLAIN = DONE | {"r"}


class Row(NamedTuple):
    """A row of the table: one agent."""

    state: str
    name: str
    took: str
    tokens: str
    cost: str
    last: str


class Group(NamedTuple):
    """A layer: its heading, and the rows shown."""

    heading: str
    rows: tuple[Row, ...]


def groups_of(record: RunRecord, now_s: float, tails: Tails, *, most: int) -> list[Group]:
    layers = record.plan.dag.layers()
    states, capped = states_of(record), capped_steps(record)

    def rows(agents: Sequence[int]) -> tuple[Row, ...]:
        return tuple(_row(record, agent, now_s, capped, tails.get(agent, "")) for agent in agents)

    if len(states) + len(layers) <= most:
        return [Group(f"layer {depth}", rows(layer)) for depth, layer in enumerate(layers)]
    room = max(1, most - min(len(layers), most // 3) - 1)
    chosen = set(sorted(range(len(states)), key=lambda agent: (_URGENCY.index(states[agent]), agent))[:room])
    groups: list[Group] = []
    for depth, layer in enumerate(layers):
        shown = [agent for agent in layer if agent in chosen]
        if shown and len(groups) < max(1, most // 3):
            tally = counts_line("".join(states[agent] for agent in layer))
            groups.append(Group(f"layer {depth}: {tally}", rows(shown)))
    hidden = len(states) - sum(len(group.rows) for group in groups)
    return [*groups, Group(f"and {plural(hidden, 'more agent')}", ())]


def _row(record: RunRecord, agent: int, now_s: float, capped: Mapping[int, str], tail: str) -> Row:
    result = record.results[agent]
    view = node_view(record, agent, now_s, capped=capped, tail=tail)
    if result.finished_s is None:
        since_s = result.working_since_s
        took = "" if since_s is None else seconds(max(0.0, now_s - since_s))
        words = [view.line if since_s is None else "", doing_of(result), view.tail]
        return Row(view.state, single_line(view.title), took, "", "", single_line(" · ".join(filter(None, words))))
    worked = result.started_s is not None
    words = [badge_of(record.source_at(agent)), "" if worked else view.line, view.tail]
    words += many_of(result)
    return Row(
        view.state,
        single_line(view.title),
        seconds(result.work_s) if worked else "",
        f"{count(total_tokens_of(result))} tok" if worked and not result.is_task else "",
        dollars(result.cost_usd) if worked and not result.is_task else "",
        single_line(" · ".join(filter(None, words))),
    )


class Lines:
    """Reports the progress of a run in lines, without a picture."""

    def __init__(self, record: RunRecord) -> None:
        self._record, self._next_s = record, LINE_EVERY_S

    def due(self, now_s: float, tails: Tails) -> str:
        if now_s < self._next_s:
            return ""
        self._next_s = now_s + max(LINE_EVERY_S, now_s * LATER)
        header, queued = header_of(self._record, now_s), OF_STATUS["queued"]
        found = Counter(tails.get(agent) for agent, state in enumerate(states_of(self._record)) if state == queued)
        reasons = [reason for reason, _ in found.most_common() if reason]
        why = [f"queued: {listed(reasons, 3)}"] if reasons else []
        return f"{single_line(self._record.plan.name)}: {' · '.join([header.line, *header.facts, *why])}"


class LineView:
    """Shows a run in a log: a first and a last line, and some in between."""

    def __init__(self, record: RunRecord, stream: TextIO) -> None:
        self._record, self._stream, self._lines = record, stream, Lines(record)

    def show(self) -> None:
        plan = self._record.plan
        self._write(f"{single_line(plan.name)}: {steps_of(plan)}, running")

    def tick(self, now_s: float, tails: Tails | None = None) -> None:
        if line := self._lines.due(now_s, tails or {}):
            self._write(line)

    def finish(self) -> None:
        self._write(run_line(self._record))

    def _write(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()


class StillView(LineView):
    """Shows lines inside an `Output` widget to a program that runs the cells, and the picture at the end."""

    # That widget keeps its first display, and no page will ask a live view for its picture.

    def finish(self) -> None:
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType] - IPython leaves types open

        display(static_bundle(self._record.plan, self._record), raw=True)


class TableView:
    """Shows a run as a table that is redrawn in place, and stays at the end."""

    def __init__(self, record: RunRecord, stream: TextIO) -> None:
        rich = importlib.import_module("rich.console")
        self._record = record
        self._console: Any = rich.Console(
            file=stream, highlight=False, markup=False, emoji=False, force_jupyter=False, soft_wrap=False
        )
        self._is_unicode = (self._console.encoding or "").lower().startswith("utf")
        self._live: Any = None
        self._next_s = float("-inf")
        self._tails: Tails = {}

    def show(self) -> None:
        live = importlib.import_module("rich.live")
        self._live = live.Live(
            self._drawn(0.0, self._console.height - _FRAME_H), console=self._console, auto_refresh=False
        )
        self._live.start(refresh=True)
        self._console.show_cursor(show=True)  # nothing is left to restore, however the program ends

    def hold(self) -> None:
        """Keep the table, with room for a question under it, until `show` draws another."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def tick(self, now_s: float, tails: Tails | None = None) -> None:
        """Redraw the table at most ten times a second, less often on a slow terminal."""
        self._tails = tails or {}
        if self._live is None or now_s < self._next_s:
            return
        began = time.perf_counter()
        self._live.update(self._drawn(now_s, self._console.height - _FRAME_H), refresh=True)
        took = time.perf_counter() - began
        self._next_s = now_s + max(LEAST_STEP_S * 0.9, took / MOST_SHARE)

    def finish(self) -> None:
        if self._live is None:
            return
        ended_s = self._record.ended_s
        if ended_s is None:
            ended_s = self._record.events[-1].at_s if self._record.events else 0.0
        self._live.update(self._drawn(ended_s, MOST_ROWS, line=run_line(self._record)))
        self._live.stop()
        self._live = None

    def _drawn(self, now_s: float, most: int, *, line: str = "") -> Any:
        Group_: Any = importlib.import_module("rich.console").Group  # noqa: N806 - a class of another's
        table = self._table(groups_of(self._record, now_s, self._tails, most=max(3, most)))
        if line:
            return Group_(*table, importlib.import_module("rich.text").Text(line, style="bold"))
        return Group_(*self._header(now_s), *table)

    def _header(self, now_s: float) -> list[Any]:
        header = header_of(self._record, now_s)
        words = [single_line(self._record.plan.name) + ":", header.line, "·", " · ".join(header.facts)]
        full = max(8, min(60, self._console.width - 1))
        bar = self._text("")
        left = full
        for state, share in header.progress:
            wide = min(left, round(full * share))
            bar.append(_bar_sign(state, is_unicode=self._is_unicode) * wide, style=STATES[state].style)
            left -= wide
        bar.append(("─" if self._is_unicode else "-") * left, style="dim")
        return [self._text(" ".join(words), "bold"), bar]

    def _table(self, groups: Sequence[Group]) -> list[Any]:
        rows = [row for group in groups for row in group.rows]
        shown = (True, self._console.width >= _WIDE, self._console.width >= _MIDDLE)
        widths = [max((len(row[index]) for row in rows), default=0) if one else 0 for index, one in enumerate(shown, 2)]
        cells: Any = importlib.import_module("rich.cells")
        longest = max((cells.cell_len(row.name) for row in rows), default=0)
        name_w = min(longest, _NAME_W, max(8, self._console.width // 3))
        lines: list[Any] = []
        for group in groups:
            lines.append(self._text(f"  {group.heading}", "dim"))
            for row in group.rows:
                name = (
                    row.name if cells.cell_len(row.name) <= name_w else cells.set_cell_size(row.name, name_w - 1) + "…"
                )
                line, look = self._text(""), STATES[row.state]
                line.append(f"  {look.signs[not self._is_unicode]} ", style=look.style)
                line.append(cells.set_cell_size(name, name_w), style="" if row.state in _PLAIN else look.style)
                for text, width in zip(row[2:5], widths, strict=True):
                    line.append(f"  {text:>{width}}" if width else "")
                line.append(f"  {row.last}".rstrip(), style="red" if row.state == "f" else "dim")
                lines.append(line)
        return lines

    @staticmethod
    def _text(text: str, style: str = "") -> Any:
        return importlib.import_module("rich.text").Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _bar_sign(state: str, *, is_unicode: bool) -> str:
    if state == "r":
        return "╌" if is_unicode else "~"
    return "━" if is_unicode else "="


def terminal_view(record: RunRecord, stream: TextIO | None = None) -> LineView | TableView:
    out = sys.stdout if stream is None else stream
    moves = out.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}
    return TableView(record, out) if moves else LineView(record, out)
