"""Replay: a plan's run as a cassette recorded it. No network, no key, the recorded clock.

Each agent's prompt is written anew from the recorded answers of its parents and looked up by what it asks. The times
are the recorded ones, so the frames, the timeline and the retries come out as they were. Nothing is run again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_magic.errors import ReplayMiss
from agent_magic.record.cassette import ANYWHERE
from agent_magic.record.events import (
    AgentEnded,
    AgentReady,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    Event,
    FirstToken,
    RunEnded,
)
from agent_magic.record.results import RunRecord
from agent_magic.run.asking import ask, model_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_magic.declare.plan import Plan
    from agent_magic.record.cassette import Call, Cassette, End
    from agent_magic.record.request import Request


def replay(plan: Plan, cassette: Cassette, *, timeout_s: float) -> RunRecord:
    """Return the run that the cassette recorded of this plan.

    Args:
        plan: What was run. It may have been renamed, not changed.
        cassette: The recording.
        timeout_s: The deadline of agents that name none.

    Raises:
        ReplayMiss: An agent asks for something that was not recorded.
    """
    began = datetime.fromisoformat(cassette.recorded) if cassette.recorded else datetime.now(UTC)
    record = RunRecord(plan, began_at=began, models=[model_of(agent) for agent in plan.agents], origin="cassette")
    record.replays_simulation = cassette.simulated
    shelf = _Shelf(cassette)
    events: list[Event] = []
    texts: dict[str, str] = {}
    for agent in plan.dag.order:
        calls, end = shelf.take(plan, agent, texts, timeout_s)
        if calls and calls[-1].answer is not None and calls[-1].error is None:
            texts[plan.agents[agent].name] = calls[-1].answer.text
        events.extend(_events(agent, calls, end))
    events.sort(key=lambda event: event.at_s)  # stable: what happened at one time stays in order
    for event in events:
        record.add(event)
    record.add(RunEnded(max((event.at_s for event in events), default=0.0), cut=False))
    return record


class _Shelf:
    """The calls of a cassette, by what they ask, each handed out once."""

    def __init__(self, cassette: Cassette) -> None:
        self._calls = cassette.calls
        self._ends = {end.agent: end for end in cassette.ends}
        self._by_agent: dict[str, list[Call]] = {}
        for call in cassette.calls:
            self._by_agent.setdefault(call.agent, []).append(call)
        self._by_key: dict[str, list[str]] = {}
        for name, calls in self._by_agent.items():
            self._by_key.setdefault(calls[0].key, []).append(name)

    def take(self, plan: Plan, agent: int, texts: dict[str, str], timeout_s: float) -> tuple[list[Call], End]:
        """Return the calls and the end of one agent.

        Raises:
            ReplayMiss: There are none.
        """
        declared = plan.agents[agent]
        if any(plan.agents[parent].name not in texts for parent in plan.dag.parents[agent]):
            end = self._ends.get(declared.name)
            if end is not None:  # it was never asked: an ancestor had failed
                return [], end
        request = ask(plan, agent, texts, timeout_s)
        names = self._by_key.get(request.key(ANYWHERE), [])
        if not names:
            raise self._miss(declared.name, request)
        name = declared.name if declared.name in names else names[0]
        names.remove(name)
        return self._by_agent[name], self._ends[name]

    def _miss(self, agent: str, request: Request) -> ReplayMiss:
        """Name the nearest recording and what differs from it."""
        near = self._by_agent.get(agent) or [call for call in self._calls if call.request.model == request.model]
        if not near:
            return ReplayMiss(agent, nearest=None, differences={})
        asked, recorded = request.body(), near[0].request.body()
        fields = sorted({*asked, *recorded})
        differences = {
            name: (recorded.get(name), asked.get(name)) for name in fields if recorded.get(name) != asked.get(name)
        }
        return ReplayMiss(agent, nearest=near[0].agent, differences=differences)


def _events(agent: int, calls: list[Call], end: End) -> Iterator[Event]:
    """Write the events of an agent as they were."""
    if end.ready_s is not None:
        yield AgentReady(end.ready_s, agent)
    for before, call in zip([None, *calls], calls, strict=False):
        if before is not None:
            yield BackoffStarted(before.ended_s, agent, before.ended_s + call.backoff_s, before.error or "")
        yield AttemptStarted(call.started_s, agent, call.number, call.granted_s, call.held_by, call.request)
        if call.first_token_s is not None:
            yield FirstToken(call.first_token_s, agent, call.number)
        yield AttemptEnded(
            call.ended_s,
            agent,
            call.number,
            answer=replace(call.answer, source="replay") if call.answer else None,
            error=call.error,
            kind=call.kind,
            partial=call.partial,
            usage=call.usage,
            price=call.price,
            source="replay",
            status_code=call.status_code,
        )
    status: Any = end.status
    yield AgentEnded(end.finished_s, agent, status, end.error)
