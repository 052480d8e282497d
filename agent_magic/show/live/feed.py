"""Computes the updates of the live view: everything once, then only changes, and the state outside of the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agent_magic.declare.units import count, dollars, plural
from agent_magic.engine.health import Thresholds
from agent_magic.engine.pacing.limits import DIMENSIONS
from agent_magic.forecast.whatif import MOST_AT_ONCE, totals_of
from agent_magic.measure.metrics import joined, source_of
from agent_magic.record.answer import SHARED
from agent_magic.record.display import single_line
from agent_magic.record.events import AgentEnded, AttemptEnded, RunEnded
from agent_magic.record.results import capped_steps
from agent_magic.show.graph.groups import TODO, Sheet, line_room, part_of, rest_room
from agent_magic.show.graph.scene import Faces, counted_header, face_of_one, flow_of, moment_of, node_view, worked_path
from agent_magic.show.graph.svg import card_texts, fact_runs, tail_room
from agent_magic.show.graph.timeline import Shades, axis_entry, bar_entry, bars_of, rows_of, tone_of_row
from agent_magic.show.markup import fit, fit_end
from agent_magic.show.states import STATES, state_at, states_of
from agent_magic.show.text import facts, sped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.engine.health import Health
    from agent_magic.engine.pacing.class_pacer import LimitUse
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.events import Event
    from agent_magic.record.results import RunRecord
    from agent_magic.show.graph.layout import Layout

SUMMARY_EVERY_S = 0.5  # for a hundred agents; in proportion for more
MOST_SUMMARIZED = 200  # the summary looks at every agent: for more it would take too much of the kernel's time
MOST_CHARS = 8_000
AGAIN = 12
"""Entries that a step repeats, in turn, for views that opened late or missed a message."""


class Around(NamedTuple):
    """State that is not in the record; `left_s` is the remaining time, low and high."""

    cap: int | None = None
    budget_usd: float | None = None
    paused: bool = False
    health: Health | None = None
    left_s: tuple[float, float] | None = None
    alerts: tuple[str, ...] = ()
    asked: int = 0


ALONE = Around()


class Sum:
    """Adds up the usage of all attempts."""

    def __init__(self, sources: Iterable[str] = ()) -> None:
        self.sources: set[str | None] = set(sources)
        self._tokens: int | None = None
        self._cost_usd: float | None = None

    def take(self, ended: AttemptEnded) -> None:
        """Count an ended attempt; a shared answer has the source of its original."""
        if ended.price != SHARED:
            self.sources.add(ended.source)
        usage = ended.usage
        if usage is not None and usage.total_input_tokens is not None and usage.output_tokens is not None:
            self._tokens = (self._tokens or 0) + usage.total_input_tokens + usage.output_tokens
        if ended.price.cost_usd is not None:
            self._cost_usd = (self._cost_usd or 0.0) + ended.price.cost_usd

    def phrases(self) -> list[str]:
        return [f"{count(self._tokens)} tokens", dollars(self._cost_usd)]


class Feed:
    """Computes the changes of a run's view; `full` is their sum, for a view that opens late."""

    def __init__(self, record: RunRecord, placed: Layout | Sheet) -> None:
        self._record = record
        self._states = bytearray(states_of(record), "ascii")
        self._capped = capped_steps(record)
        self._seen = 0
        self._moving: set[int] = set()
        self._body: CardFeed | GroupFeed = (
            GroupFeed(record, placed, self.states) if isinstance(placed, Sheet) else CardFeed(record, placed)
        )
        self.full: dict[str, Any] = {key: {} for key in self._body.keyed}
        self._late: dict[str, dict[int, Any]] = {}
        self._again: list[tuple[str, str]] = []
        self._sum = Sum({"simulated"} if record.replays_simulation else ())
        self._numbers: Summary | None = None
        self._numbers_at = 0.0

    @property
    def states(self) -> str:
        return self._states.decode("ascii")

    @property
    def rows(self) -> Mapping[int, int]:
        return self._body.rows if isinstance(self._body, CardFeed) else {}

    def step(self, now_s: float, tails: Mapping[int, str], around: Around = ALONE) -> dict[str, Any]:
        over = self._record.ended_s is not None
        now_s = moment_of(self._record, now_s)
        first = not self.full.get("head")
        fresh, ended = self._changed()
        look = set(range(len(self._states))) if first else fresh | self._moving | set(tails)
        changed = self._take_states(look)
        delta: dict[str, Any] = {}
        for key, entries in self._body.entries(look, fresh, changed, now_s, tails).items():
            self._late.setdefault(key, {}).update(entries)
        self._put_late(delta, all_=first or over)
        for key, value in self._body.values(now_s, ended=ended or first, over=over).items():
            self._set(delta, key, value)
        self._set(delta, "head", self._head(now_s, around))
        self._set(delta, "strip", strip_of(around.health, paused=around.paused, asked=self._only_asks(around.asked)))
        if around.alerts or self.full.get("alerts"):
            self._set(delta, "alerts", [single_line(one) for one in around.alerts])
        if not over:
            self._repeat(delta)
        self._set(delta, "now", None if over else round(now_s, 2))
        return delta

    def whole(self) -> dict[str, Any]:
        return {key: {**value} if key in self._body.keyed else value for key, value in self.full.items()}

    def _changed(self) -> tuple[set[int], bool]:
        """Return the agents with new events, and on cards the children of ended ones."""
        news = self._record.events[self._seen :]
        self._seen += len(news)
        fresh: set[int] = set()
        ended = False
        children = self._record.plan.dag.children
        for event in news:
            if isinstance(event, RunEnded):
                ended = True
                continue
            fresh.add(event.agent)
            self._body.take(event)
            if isinstance(event, AttemptEnded):
                self._sum.take(event)
            elif isinstance(event, AgentEnded):
                ended = True
                fresh |= self._cap(event.agent)
                if self._body.each:
                    fresh.update(children[event.agent])
        return fresh, ended

    def _cap(self, agent: int) -> set[int]:
        part = self._record.plan.agents[agent].part
        if part is None or not part.rounds or part.number < part.rounds:
            return set()
        before, self._capped = self._capped, capped_steps(self._record)
        return {*before} ^ {*self._capped}  # both ways: an answer that was asked for again may be good

    def _take_states(self, look: set[int]) -> dict[int, str]:
        # Agents that run or wait to retry change without an event, and are looked at in every step.
        changed: dict[int, str] = {}
        for agent in look:
            result = self._record.results[agent]
            state = state_at(self._record, agent, capped=agent in self._capped)
            if self._states[agent] != ord(state):
                self._states[agent] = ord(state)
                changed[agent] = state
            if not self._body.each:
                continue
            if result.status == "running" or result.waits_until_s is not None:
                self._moving.add(agent)
            else:
                self._moving.discard(agent)
        return changed

    def _only_asks(self, asked: int) -> bool:
        return bool(asked) and "r" not in self.states and self.states.count("q") <= asked

    def _head(self, now_s: float, around: Around) -> dict[str, Any]:
        phrases, source = self._phrases(now_s)
        if around.budget_usd is not None:
            phrases = [_of_budget(phrase, around.budget_usd) for phrase in phrases]
        header = counted_header(self.states, now_s, phrases=phrases, source=source, asked=around.asked)
        counts = header.counts
        if around.cap is not None:
            counts = counts.replace(" running", f" running, {plural(around.cap, 'slot')}")
        return {
            "counts": counts,
            "progress": [[state, round(share, 4)] for state, share in header.progress],
            "facts": [list(run) for run in fact_runs(header)],
            "left": "" if around.paused or around.asked else _left(around.left_s),  # a person may take any time
            "paused": around.paused,
            "took": "" if self._record.ended_s is None else header.time,
        }

    def _phrases(self, now_s: float) -> tuple[list[str], str]:
        if len(self._states) > MOST_SUMMARIZED or not self._record.events:
            over = self._record.ended_s is not None
            source = (source_of(self._record) if over else joined(self._sum.sources)) or ""
            return [*self._sum.phrases(), *([source] if source else [])], source
        late = now_s - self._numbers_at >= SUMMARY_EVERY_S * max(1.0, len(self._states) / 100)
        if self._numbers is None or late or self._record.ended_s is not None:
            self._numbers, self._numbers_at = totals_of(self._record, now_s, most=MOST_AT_ONCE), now_s
        return [*sped(self._numbers), *facts(self._numbers)], self._numbers.source or ""

    def _put_late(self, delta: dict[str, Any], *, all_: bool) -> None:
        room = MOST_CHARS
        for key, entries in self._late.items():
            said: dict[str, Any] = self.full[key]
            changed: dict[str, Any] = {}
            for place in list(entries):
                if room <= 0 and not all_:
                    break
                entry = entries.pop(place)
                if said.get(str(place)) != entry:
                    changed[str(place)] = entry
                    room -= _chars(entry)
            if changed:
                self._say(key, changed)
                delta[key] = changed

    def _say(self, key: str, changed: Mapping[str, Any]) -> None:
        said = self.full[key]
        self._again += [(key, place) for place in changed if place not in said]
        said.update(changed)

    def _repeat(self, delta: dict[str, Any]) -> None:
        for key, place in self._again[:AGAIN]:
            delta.setdefault(key, {}).setdefault(place, self.full[key][place])
        self._again = self._again[AGAIN:] + self._again[:AGAIN]

    def _set(self, delta: dict[str, Any], key: str, value: Any) -> None:
        if key not in self.full or self.full[key] != value:
            delta[key] = self.full[key] = value


def icons() -> dict[str, str]:
    return {state: look.icon for state, look in STATES.items()}


def _chars(entry: Sequence[Any] | int) -> int:
    if isinstance(entry, int):
        return 12
    return 8 + sum(len(part) + 4 if isinstance(part, str) else 30 if isinstance(part, list) else 6 for part in entry)


def _of_budget(phrase: str, budget_usd: float) -> str:
    most = f"${budget_usd:,.2f}" if budget_usd >= 0.01 else dollars(budget_usd)
    return f"{phrase} of {most}" if phrase.lstrip("≈≥ ").startswith("$") else phrase


def _left(left_s: tuple[float, float] | None) -> str:
    """Return the remaining time: `ends in 4–6 s`."""
    if left_s is None:
        return ""
    low, high = (max(1, round(one)) for one in left_s)
    if high < 100:
        return f"ends in {low}–{high} s" if low < high else f"ends in {high} s"
    low, high = max(1, round(left_s[0] / 60)), max(1, round(left_s[1] / 60))
    return f"ends in {low}–{high} min" if low < high else f"ends in {high} min"


PATH_EVERY_S = 0.5


class CardFeed:
    """Follows agents that are drawn as cards."""

    keyed = ("nodes", "bars", "flows")
    each = True

    def take(self, event: Event) -> None:
        """Do nothing: cards are read from the results."""

    def __init__(self, record: RunRecord, layout: Layout) -> None:
        self._record, self._layout = record, layout
        self._said: dict[int, list[str | float | None]] = {}
        self._ended, self._path_s = False, float("-inf")
        self.rows = {agent: row for row, agent in enumerate(rows_of(record.plan))}

    def entries(
        self, look: set[int], fresh: set[int], changed: Mapping[int, str], now_s: float, tails: Mapping[int, str]
    ) -> dict[str, dict[int, Any]]:
        results = self._record.results
        return {
            "nodes": {agent: self._node(agent, now_s, tails, grown=agent not in fresh) for agent in look},
            "bars": {self.rows[agent]: self._bars(agent) for agent in fresh if agent in self.rows},
            "flows": {agent: flow for agent in changed if (flow := flow_of(results[agent]))},
        }

    def values(self, now_s: float, *, ended: bool, over: bool) -> dict[str, Any]:
        """Return the values sent as a whole; the path is sent less often."""
        self._ended = self._ended or ended
        late = now_s - self._path_s >= PATH_EVERY_S or self._record.ended_s is not None
        if not (self._ended and late):
            return {"axis": axis_entry(now_s, over=over)}
        self._ended, self._path_s = False, now_s
        return {"path": list(worked_path(self._record, now_s)), "axis": axis_entry(now_s, over=over)}

    def _node(self, agent: int, now_s: float, tails: Mapping[int, str], *, grown: bool) -> list[str | float | None]:
        """Return the texts of a card; `grown` if only its text may have changed."""
        # The page itself counts the seconds of a running one.
        wide = self._layout.nodes[agent].w
        before = self._said.get(agent)
        if grown and before is not None and before[4] is not None:  # under way, as it was
            badge = str(before[3])
            return [before[0], fit_end(tails.get(agent, ""), tail_room(wide, badge), 11), None, badge, before[4]]
        view = node_view(self._record, agent, now_s, tail=tails.get(agent, ""))
        _, line, tail = card_texts(view, wide)
        if view.since_s is not None:
            line = line.partition(" · ")[2]
        since = None if view.since_s is None else round(view.since_s, 2)
        self._said[agent] = [line, tail, view.share, view.badge, since]
        return self._said[agent]

    def _bars(self, agent: int) -> list[list[str | float | None]]:
        return [bar_entry(bar) for bar in bars_of(self._record.results[agent])]


class GroupFeed:
    """Follows groups of agents."""

    keyed = ("groups", "bars")
    each = False

    def __init__(self, record: RunRecord, sheet: Sheet, states: str) -> None:
        self._record, self._sheet = record, sheet
        self._faces = Faces(sheet, states)
        self._boxes = sheet.layout.nodes
        self._alone = {group.agents[0]: index for index, group in enumerate(sheet.groups) if group.is_one}
        self._shades = Shades(self._faces.group_of, len(sheet.groups))
        self._drawn: list[tuple[str, bool]] = [("", False)] * len(sheet.groups)
        self._bin = (0.0, -1)
        self._told = False
        self._ended: set[int] = set()

    def take(self, event: Event) -> None:
        self._shades.take(event)
        self._ended |= self._faces.take(event, self._record)

    def entries(
        self,
        look: set[int],  # noqa: ARG002 - as `CardFeed`
        fresh: set[int],
        changed: Mapping[int, str],
        now_s: float,
        tails: Mapping[int, str],
    ) -> dict[str, dict[int, Any]]:
        touched = set(self._ended) if self._told else set(range(len(self._sheet.groups)))
        touched |= {self._faces.turn(agent, state) for agent, state in changed.items()}
        for agent, place in self._alone.items():  # a waiting one names its open parents
            result = self._record.results[agent]
            if self._ended or agent in fresh or result.working_since_s is not None or result.is_waiting:
                touched.add(place)
        self._told, self._ended = True, set()
        groups = {group: self._entry(group, now_s, tails) for group in touched}
        return {"groups": groups, "bars": {**self._rows(now_s), **self._bars(fresh)}}

    def values(self, now_s: float, *, ended: bool, over: bool) -> dict[str, Any]:  # noqa: ARG002 - as `CardFeed`
        return {"axis": axis_entry(now_s, over=over)}

    def _bars(self, fresh: set[int]) -> dict[int, list[Any]]:
        return {
            place: [bar_entry(bar) for bar in bars_of(self._record.results[agent])]
            for agent, place in self._alone.items()
            if agent in fresh
        }

    def _rows(self, now_s: float) -> dict[int, list[Any]]:
        """Return the changed rows; the page itself extends the last bar of a row."""
        bin_s = self._shades.bin_s
        here, self._bin = self._bin, (bin_s, int(now_s / bin_s))
        passed = here != self._bin
        rows: dict[int, list[Any]] = {}
        for index, group in enumerate(self._sheet.groups):
            going = self._shades.running[index] > 0
            look = (tone_of_row(self._faces.counts[index]), going)
            if group.is_one or (look == self._drawn[index] and not (passed and going)):
                continue
            self._drawn[index] = look
            rows[index] = [bar_entry(bar) for bar in self._shades.bars(index, look[0], now_s)]
        return rows

    def _entry(self, index: int, now_s: float, tails: Mapping[int, str]) -> list[Any]:
        group, box = self._sheet.groups[index], self._boxes[index]
        agent = group.agents[0]
        if group.is_one:
            capped = capped_steps(self._record) if self._faces.counts[index][part_of("m")] else {}
            face = face_of_one(node_view(self._record, agent, now_s, capped=capped, tail=tails.get(agent, "")))
        else:
            face = self._faces.face(index, self._record)
        room, wide = rest_room(box), line_room(box)
        cut = [fit(one, room, 11) for one in (face.done, face.rest)]
        below = [fit(one, wide, 11) for one in (face.who, face.answer)]
        return [list(face.counts[:TODO]), sum(face.counts), face.share, *cut, face.tone, *below]


GOOD = "API healthy"
HELD = "nothing new is sent"
ASKED = "waits for your answer"
TREND_S = 0.1
"""A smaller change of the first-token latency has no arrow."""
_MOST_REASON = 90


def strip_of(
    health: Health | None, thresholds: Thresholds | None = None, *, paused: bool = False, asked: bool = False
) -> dict[str, Any] | None:
    # If new requests are held, or everything waits for a person, good health says nothing.
    if health is None:
        return None
    thresholds = thresholds or Thresholds()
    notes = [f"{health.refusals:,} × 429"] if health.refusals else []
    notes += [f"{health.retries:,} {'retry' if health.retries == 1 else 'retries'}"] if health.retries else []
    meters = [_meter(kind, [one for one in health.limits if one.kind == kind], thresholds) for kind in DIMENSIONS]
    reason = single_line(health.reason)[:_MOST_REASON]
    return {
        "level": "none" if (paused or asked) and not reason else health.level,
        "word": reason or (HELD if paused else ASKED if asked else GOOD),
        "notes": " · ".join(notes),
        "meters": [*meters, _latency(health, thresholds)],
    }


def _meter(kind: str, limits: Sequence[LimitUse], thresholds: Thresholds) -> list[str | int | None]:
    used = max((one.used_share for one in limits if one.used_share is not None), default=None)
    words = "; ".join(map(_limit_words, limits)) or "unknown"
    if used is None:
        return [kind, "–", None, "none", f"rate limit used, {kind}: {words}"]
    level = "bad" if used > thresholds.bad_share else "warn" if used > thresholds.warn_share else "ok"
    return [kind, f"{100 * used:.0f} %", round(100 * used), level, f"rate limit used, {kind}: {words}"]


def _latency(health: Health, thresholds: Thresholds) -> list[str | int | None]:
    kind, late, trend = "first token", health.latency_s, health.latency_trend_s
    if late is None:
        return [kind, "–", None, "none", f"{kind}: no response yet"]
    arrow = "" if trend is None or abs(trend) < TREND_S else " ↗" if trend > 0 else " ↘"
    words = f"{kind}: {late:.1f} s, the median of recent responses; slow from {thresholds.warn_latency_s:g} s"
    if trend is not None:
        words += f"; {trend:+.1f} s compared with earlier ones"
    level = "warn" if late > thresholds.warn_latency_s else "ok"
    return [kind, f"{late:.1f} s{arrow}", round(100 * late / thresholds.warn_latency_s), level, words]


def _limit_words(one: LimitUse) -> str:
    share = "unknown" if one.used_share is None else f"{100 * one.used_share:.0f} %"
    of = "" if one.limit_per_min is None else f" of {count(one.limit_per_min)} a minute"
    return single_line(f"{one.model_class} {share}{of}")
