"""The texts on a card: counts, failed or slowest agent, an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.subplan import BOX
from agent_magic.declare.units import count, dollars
from agent_magic.record.events import AgentEnded
from agent_magic.record.results import capped_steps
from agent_magic.show.graph.groups import Face, counted, group_texts, part_of, tone_of
from agent_magic.show.states import OF_STATUS, STATES, unmet
from agent_magic.show.text import answer_line, took

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.declare.plan import Plan
    from agent_magic.record.events import Event
    from agent_magic.record.results import RunRecord
    from agent_magic.show.graph.groups import Sheet
    from agent_magic.show.graph.scene import Estimates, NodeView

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
        if unmet := self._unmet(group, record):
            return unmet
        slowest = self._slowest[group]
        if slowest is None or not record.results[slowest].work_s:
            return ""
        return f"slowest: {self._name(group, record, slowest)}, {took(record.results[slowest])}"

    def _unmet(self, group: int, record: RunRecord) -> str:
        last = [agent for agent in self._sheet.groups[group].agents if self._states[agent] == CAPPED]
        capped = capped_steps(record) if last else {}
        return unmet(next((capped[agent] for agent in last if agent in capped), None))

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
        face_of_one(views[group.agents[0]]) if group.is_one else faces.face(place, record)
        for place, group in enumerate(sheet.groups)
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
        yield one._replace(counts=counts, share=share, who=_expected(group.agents, plan, estimates) or one.who)


def _expected(agents: Iterable[int], plan: Plan, estimates: Estimates) -> str:
    asked = (plan.names[agent] for agent in agents if not plan.agents[agent].is_task)
    found = [estimates[name] for name in asked if name in estimates]
    tokens: list[Any] = [one for one, _ in found if one is not None]
    prices: list[Any] = [one for _, one in found if one is not None]
    if not found:
        return ""
    return f"≈ {count(sum(tokens) if tokens else None)} tok · ≈ {dollars(sum(prices) if prices else None)}"
