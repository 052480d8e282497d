"""The content of a picture: words, numbers and states of a plan and its record, by card and by group."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.race import BEATEN
from agent_magic.declare.subplan import BOX
from agent_magic.declare.units import UNKNOWN, count, dollars, seconds
from agent_magic.forecast.whatif import MOST_AT_ONCE, totals_of
from agent_magic.measure.metrics import longest_chain, source_of
from agent_magic.record.answer import WITH_ANSWER, WITHOUT_ANSWER, total_tokens, total_usd
from agent_magic.record.display import single_line
from agent_magic.record.events import AgentEnded
from agent_magic.record.results import capped_steps
from agent_magic.show.graph.groups import Face, counted, group_texts, is_stacked, part_of, sheet_of, tone_of
from agent_magic.show.graph.timeline import grouped_timeline, timeline_of
from agent_magic.show.states import DONE, OF_STATUS, STATES, badge_of, state_at, states_of, unmet
from agent_magic.show.text import (
    answer_line,
    counts_line,
    facts,
    how_sure,
    sped,
    steps_of,
    took,
    total_tokens_of,
    why_not,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from agent_magic.declare.plan import Plan
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.events import Event
    from agent_magic.record.results import AgentResult, RunRecord
    from agent_magic.show.graph.groups import Sheet
    from agent_magic.show.graph.timeline import Timeline

    Estimates: TypeAlias = Mapping[str, tuple[int | None, float | None]]
    # Per agent's name, expected tokens and dollars, if known.


MOST_CARDS: Final = 200
"""More agents are drawn as groups and cells."""
FLOW_STEPS: Final = (200, 800, 3200)
"""Output tokens from which an edge is thicker, the same for every plan, so pictures can be compared."""
PARTS: Final = (("s", DONE - {"m"}), ("m", frozenset("m")), ("f", frozenset("f")), ("k", frozenset("kc")))
NOT_CAPPED: Final[Mapping[int, str]] = MappingProxyType({})
MOST_HINT: Final = 240


@dataclass(frozen=True, slots=True)
class NodeView:
    """The view of one agent.

    Attributes:
        state: A character of `agent_magic.show.states.STATES`.
        line: Its numbers, or its reason to wait.
        tail: The end of the arriving text, the start of the answer, or the error.
        share: Finished share of its work, 0 to 1; `None` while it is running.
        badge: `ledger` or `replay` for a reused answer.
        hint: All of it, for the tooltip and for screen readers.
        since_s: Start of the current request or calls, if any.
    """

    state: str
    title: str
    line: str = field(default="", kw_only=True)
    tail: str = field(default="", kw_only=True)
    share: float | None = field(default=0.0, kw_only=True)
    badge: str = field(default="", kw_only=True)
    hint: str = field(default="", kw_only=True)
    since_s: float | None = field(default=None, kw_only=True)
    is_task: bool = field(default=False, kw_only=True)

    @property
    def icon(self) -> str:
        return STATES[self.state].icon


@dataclass(frozen=True, slots=True)
class Header:
    """`progress` has states with their shares of all agents; the last of `facts` is the source."""

    counts: str
    time: str = field(default="", kw_only=True)
    progress: tuple[tuple[str, float], ...] = field(default=(), kw_only=True)
    facts: tuple[str, ...] = field(default=(), kw_only=True)
    source: str = field(default="", kw_only=True)

    @property
    def line(self) -> str:
        return " · ".join(filter(None, [self.counts, self.time]))


@dataclass(frozen=True, slots=True)
class Scene:
    """The content of a picture; `flows` is the thickness of the edges from each agent."""

    title: str
    header: Header
    nodes: tuple[NodeView, ...] = field(kw_only=True)
    path: tuple[int, ...] = field(default=(), kw_only=True)
    flows: tuple[int, ...] = field(default=(), kw_only=True)
    timeline: Timeline | None = field(default=None, kw_only=True)
    sheet: Sheet | None = field(default=None, kw_only=True)
    faces: tuple[Face, ...] = field(default=(), kw_only=True)


def is_large(plan: Plan) -> bool:
    return len(plan) > MOST_CARDS or is_stacked(plan)


def scene_of(
    plan: Plan,
    record: RunRecord | None = None,
    *,
    now_s: float | None = None,
    estimates: Estimates | None = None,
    path: Sequence[str] = (),
    sheet: Sheet | None = None,
) -> Scene:
    """Build the scene; `now_s=None` is the end of the run, or its last event."""
    estimates = estimates or {}
    title = single_line(plan.name)
    if record is None:
        nodes = tuple(planned_view(plan, agent, estimates) for agent in range(len(plan)))
        numbers = tuple(plan.index[name] for name in path)
        bold = () if len(numbers) == len(plan) else numbers  # if every agent is on it, bold means nothing
        header = planned_header(plan, estimates)
        if not is_large(plan):
            return Scene(title, header, nodes=nodes, path=bold)
        sheet = sheet or sheet_of(plan)
        faces = tuple(planned_faces(sheet, plan, nodes, estimates))
        return Scene(title, header, nodes=nodes, sheet=sheet, faces=faces)
    moment = moment_of(record, now_s)
    header = header_of(record, moment, numbers=totals_of(record, moment, most=MOST_AT_ONCE))
    over = record.ended_s is not None
    if is_large(plan):
        return _grouped_scene(record, moment, header, sheet or sheet_of(plan), estimates)
    nodes = tuple(node_view(record, agent, moment, estimates=estimates) for agent in range(len(plan)))
    return Scene(
        title,
        header,
        nodes=nodes,
        path=worked_path(record, moment),
        flows=tuple(map(flow_of, record.results)),
        timeline=timeline_of(plan, record.results, until_s=moment, over=over),
    )


def _grouped_scene(record: RunRecord, moment: float, header: Header, sheet: Sheet, estimates: Estimates) -> Scene:
    capped = capped_steps(record)
    alone = {group.agents[0] for group in sheet.groups if group.is_one}
    nodes = tuple(
        node_view(record, agent, moment, capped=capped, estimates=estimates)
        if agent in alone
        else NodeView(state, record.results[agent].name)
        for agent, state in enumerate(states_of(record))
    )
    faces = faces_of(sheet, record, nodes)
    tallies = [face.counts for face in faces]
    timeline = grouped_timeline(sheet, record, tallies, until_s=moment, over=record.ended_s is not None)
    title = single_line(record.plan.name)
    return Scene(title, header, nodes=nodes, timeline=timeline, sheet=sheet, faces=faces)


def moment_of(record: RunRecord, now_s: float | None) -> float:
    if record.ended_s is not None:
        return record.ended_s
    if now_s is not None:
        return now_s
    return record.events[-1].at_s if record.events else 0.0


def node_view(
    record: RunRecord,
    agent: int,
    now_s: float,
    *,
    capped: Mapping[int, str] = NOT_CAPPED,
    tail: str = "",
    estimates: Estimates | None = None,
) -> NodeView:
    result = record.results[agent]
    state = state_at(record, agent, capped=agent in capped)
    if state == "p":
        expected, waits = _expected(record.plan, agent, estimates or {}), _waits_for(record, agent)
        line, tail = (expected, waits) if expected else (waits, "")
    else:
        line, tail = _line(record, agent, now_s), unmet(capped.get(agent)) or _tail(result, state, tail)
    badge = badge_of(record.source_at(agent))
    kind = "task" if result.is_task else ""
    hint = " · ".join(part for part in (result.name, kind, STATES[state].word, line, badge, tail) if part)
    share = {"r": None, "p": 0.0, "q": 0.0, "k": 0.0}.get(state, 1.0)
    since = result.working_since_s if state == "r" else None
    hint = single_line(hint)[:MOST_HINT]
    view = NodeView(state, result.name, line=line, tail=tail, share=share, badge=badge, hint=hint, since_s=since)
    return replace(view, is_task=True) if result.is_task else view


def flow_of(result: AgentResult) -> int:
    """Return 0 before an answer, 1 to 4 by its output tokens."""
    answer = result.answer
    if answer is None or result.status not in WITH_ANSWER:
        return 0
    return 1 + bisect_right(FLOW_STEPS, answer.usage.output_tokens or 0)


def planned_view(plan: Plan, agent: int, estimates: Estimates) -> NodeView:
    one = plan.agents[agent]
    line = _expected(plan, agent, estimates)
    parents = [plan.agents[parent].name for parent in plan.dag.parents[agent]]
    kind = "first answer" if one.race else "if overdue" if one.hedges else "task" if one.is_task else one.model or ""
    tail = f"if {single_line(one.when)}" if one.when else kind
    words = (one.name, "task" if one.is_task else "", line, "after " + ", ".join(parents) if parents else "")
    hint = single_line(" · ".join(filter(None, words)))[:MOST_HINT]
    line, tail = (line, tail) if line else (tail, "")
    return NodeView("p", one.name, line=line, tail=tail, hint=hint, is_task=one.is_task)


def header_of(record: RunRecord, now_s: float, *, numbers: Summary | None = None) -> Header:
    states = states_of(record)
    source = source_of(record) or ""
    return counted_header(states, now_s, phrases=_phrases(record, numbers, source), source=source)


def counted_header(states: str, now_s: float, *, phrases: Sequence[str], source: str, asked: int = 0) -> Header:
    total = len(states) - states.count("u") or 1
    return Header(
        counts_line(states, asked),
        time=seconds(now_s),
        progress=tuple((state, sum(map(states.count, counts)) / total) for state, counts in PARTS),
        facts=tuple(phrases),
        source="" if source == "live" else source,
    )


def planned_header(plan: Plan, estimates: Estimates) -> Header:
    parts = [estimates[name] for name in plan.names if name in estimates]
    tokens = [one for one, _ in parts if one is not None]
    prices = [one for _, one in parts if one is not None]
    phrases = [f"≈ {count(sum(tokens))} tokens"] if tokens else []
    if prices:
        unpriced = len(plan) - len(prices)
        phrases.append(f"≈ {dollars(sum(prices))}" + (f" and {unpriced} without a price" if unpriced else ""))
    return Header(steps_of(plan), facts=(*phrases, "estimate" if phrases else "not run"))


def worked_path(record: RunRecord, now_s: float) -> tuple[int, ...]:
    """Find the critical path so far; agents at work take at least as long as the mean."""
    if not record.events:
        return ()
    known = [result.work_s for result in record.results if result.work_s]
    usual = sum(known) / len(known) if known else 1.0
    work = [
        result.work_s if result.finished_s is not None else max(result.work_s_until(now_s), usual)
        for result in record.results
    ]
    path = longest_chain(record, work)[0]
    if len(path) == len(record.plan):
        return ()  # if every agent is on it, bold means nothing
    never = {"skipped", "cancelled", "unused", *(["pending"] if record.ended_s is not None else [])}
    results = record.results
    return tuple(agent for agent in path if results[agent].granted_s is not None or results[agent].status not in never)


def _phrases(record: RunRecord, numbers: Summary | None, source: str) -> list[str]:
    if numbers is not None:
        return [*sped(numbers), *facts(numbers), *how_sure(record)]
    tokens = total_tokens(total_tokens_of(result) for result in record.results)
    words = [f"{count(tokens)} tokens", dollars(total_usd(result.cost_usd for result in record.results))]
    return [*words, source] if source else words


def _line(record: RunRecord, agent: int, now_s: float) -> str:
    result = record.results[agent]
    if result.working_since_s is not None:
        doing = doing_of(result)
        return seconds(max(0.0, now_s - result.working_since_s)) + (f" · {doing}" if doing else "")
    if result.is_waiting:
        if result.waits_until_s is None or result.waits_until_s <= now_s:
            return "queued"
        return f"retries in {max(1, round(result.waits_until_s - now_s))} s"
    if result.status in {"skipped", "unused"}:
        return _why_skipped(record, agent)
    if result.started_s is None:
        return result.status
    if result.status in {"failed", "cancelled"}:
        again = f"{len(result.attempts)} × " if len(result.attempts) > max(1, result.turns) else ""
        return f"{seconds(result.work_s + result.backoff_s)} · {again}{_kind(result) or result.status}"
    if result.is_task:
        return seconds(result.work_s)
    words = [took(result), f"{count(total_tokens_of(result))} tok", dollars(result.cost_usd)]
    return " · ".join(words if words[0] == seconds(result.work_s) else words[::2])


def _why_skipped(record: RunRecord, agent: int) -> str:
    result = record.results[agent]
    parents = (record.results[one] for one in record.plan.dag.parents[agent])
    lost = next((one.name for one in parents if one.status in WITHOUT_ANSWER), "")
    if result.is_left_out:
        why = result.error if result.kind == BEATEN else "condition is false"
        return "not needed" if result.status == "unused" else why or ""
    return f"needs {lost}" if lost else "skipped"


def doing_of(result: AgentResult) -> str:
    calls = result.calls_under_way
    if calls and not result.is_task:
        return single_line(calls[0].tool) if len(calls) == 1 else f"{len(calls)} tools"
    if result.is_task:
        again = calls[-1].number if calls else 1
    else:
        again = sum(one.turn == result.turns for one in result.attempts)
    words = [f"turn {result.turns}"] if result.turns > 1 else []
    return " · ".join([*words, *([f"attempt {again}"] if again > 1 else [])])


def _kind(result: AgentResult) -> str:
    if result.status != "failed":
        return ""
    return (result.attempts[-1].kind if result.attempts else result.kind) or ""


def _tail(result: AgentResult, state: str, tail: str) -> str:
    if state == "r":
        return tail
    if state in {"f", "q"}:
        return why_not(result).removeprefix(f"{_kind(result)}: ") or tail  # the line above names the class
    if state == "m" and result.stop_reason:
        return f"stopped at {result.stop_reason}"
    return answer_line(result, MOST_HINT) if state in DONE else ""


def _waits_for(record: RunRecord, agent: int) -> str:
    steps, results = record.plan.agents, record.results
    open_ = (one for one in record.plan.dag.parents[agent] if results[one].finished_s is None)
    parts = ((results[one].name, steps[one].part) for one in open_)
    names = list(dict.fromkeys(part.group if part is not None else name for name, part in parts))
    more = f" +{len(names) - 2}" if len(names) > 2 else ""
    return "waits: " + ", ".join(names[:2]) + more if names else ""


def _expected(plan: Plan, agent: int, estimates: Estimates) -> str:
    one = plan.agents[agent]
    if one.is_task or one.name not in estimates:
        return ""  # a function uses no tokens: "≈ 0 tok" would only be noise
    tokens, price = estimates[one.name]
    shown = f"≈ {count(tokens)} tok" if tokens is not None else f"{UNKNOWN} tok"
    return f"{shown} · " + (f"≈ {dollars(price)}" if price is not None else dollars(None))


MOST_CHARS: Final = 80
"""The drawing may cut it further."""
MOST_NAMED: Final = 2
UNUSED: Final = OF_STATUS["unused"]
CAPPED: Final = OF_STATUS["capped"]


class Faces:
    """Follows the groups of a run."""

    def __init__(self, sheet: Sheet, states: str) -> None:
        self._sheet = sheet
        self.group_of = sheet.group_of()
        self.counts = [counted("".join(states[agent] for agent in group.agents)) for group in sheet.groups]
        self._states = list(states)
        self._failed: list[list[int]] = [[] for _ in sheet.groups]
        self._slowest: list[int | None] = [None for _ in sheet.groups]
        self._answer: list[int | None] = [None for _ in sheet.groups]

    def take(self, event: Event, record: RunRecord) -> set[int]:
        if not isinstance(event, AgentEnded):
            return set()
        agent, group, result = event.agent, self.group_of[event.agent], record.results[event.agent]
        slowest = self._slowest[group]
        if slowest is None or result.work_s > record.results[slowest].work_s:
            self._slowest[group] = agent
        if event.status == "failed":
            self._failed[group].append(agent)
        elif result.text and self._tells(group, agent):
            self._answer[group] = agent
        return {group}

    def _tells(self, group: int, agent: int) -> bool:
        shown, one = self._answer[group], self._sheet.groups[group]
        return shown is None or ((one.is_box or one.rounds > 0) and agent > shown)

    def turn(self, agent: int, state: str) -> int:
        group = self.group_of[agent]
        for one, by in ((self._states[agent], -1), (state, 1)):
            if one != UNUSED:  # unneeded ones are in no count
                self.counts[group][part_of(one)] += by
        self._states[agent] = state
        return group

    def face(self, group: int, record: RunRecord) -> Face:
        counts = tuple(self.counts[group])
        share, done, rest = group_texts(self._sheet.groups[group], counts)
        return Face(counts, share, done, rest, tone_of(counts), self._who(group, record), self._said(group, record))

    def _who(self, group: int, record: RunRecord) -> str:
        failed = [agent for agent in dict.fromkeys(self._failed[group]) if self._states[agent] == "f"]
        if failed:
            more = f" +{len(failed) - MOST_NAMED:,}" if len(failed) > MOST_NAMED else ""
            return "failed: " + ", ".join(self._name(group, record, agent) for agent in failed[:MOST_NAMED]) + more
        last = [agent for agent in self._sheet.groups[group].agents if self._states[agent] == CAPPED]
        capped = capped_steps(record) if last else {}
        if missed := unmet(next((capped[agent] for agent in last if agent in capped), None)):
            return missed
        slowest = self._slowest[group]
        if slowest is None or not record.results[slowest].work_s:
            return ""
        return f"slowest: {self._name(group, record, slowest)}, {took(record.results[slowest])}"

    def _said(self, group: int, record: RunRecord) -> str:
        agent = self._answer[group]
        if agent is None:
            return ""
        return f"{self._name(group, record, agent)}: {answer_line(record.results[agent], MOST_CHARS)}"

    def _name(self, group: int, record: RunRecord, agent: int) -> str:
        one, part = self._sheet.groups[group], record.plan.agents[agent].part
        if one.rounds and part is not None:
            return f"round {part.number}"
        return record.results[agent].name.removeprefix(f"{one.label}{BOX}" if one.is_box else "")


def face_of_one(view: NodeView) -> Face:
    sign = STATES[view.state].signs[0]
    rest = "" if view.state in "sly" else view.tail
    answer = view.tail if view.state in "sly" else ""
    return Face(tuple(counted(view.state)), sign, "", rest, view.state, view.line, answer)


def faces_of(sheet: Sheet, record: RunRecord, views: Sequence[NodeView]) -> tuple[Face, ...]:
    faces = Faces(sheet, "".join(view.state for view in views))
    for event in record.events:
        faces.take(event, record)
    return tuple(
        face_of_one(views[group.agents[0]]) if group.is_one else faces.face(index, record)
        for index, group in enumerate(sheet.groups)
    )


def planned_faces(sheet: Sheet, plan: Plan, views: Sequence[NodeView], estimates: Estimates) -> Iterable[Face]:
    for group in sheet.groups:
        one = face_of_one(views[group.agents[0]])
        one = one._replace(done=one.rest, rest="")  # the model
        if group.is_one:
            yield one
            continue
        counts = tuple(counted("p" * len(group.agents)))
        share = f"{'≤ ' if group.is_reserved else ''}{len(group.agents):,}"
        yield one._replace(counts=counts, share=share, who=_expected_of(group.agents, plan, estimates) or one.who)


def _expected_of(agents: Iterable[int], plan: Plan, estimates: Estimates) -> str:
    asked = (plan.names[agent] for agent in agents if not plan.agents[agent].is_task)
    found = [estimates[name] for name in asked if name in estimates]
    tokens: list[Any] = [one for one, _ in found if one is not None]
    prices: list[Any] = [one for _, one in found if one is not None]
    if not found:
        return ""
    return f"≈ {count(sum(tokens) if tokens else None)} tok · ≈ {dollars(sum(prices) if prices else None)}"
