"""The agents of a recorded run, found by what they ask."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from agent_magic.errors import ReplayMiss
from agent_magic.record.cassette.reading import ANYWHERE

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan
    from agent_magic.record.cassette.reading import Call, RecordedAgent, RecordedRun
    from agent_magic.record.request import Request

ASKED = ("model", "max_tokens", "effort", "system", "context", "schema", "prompt")
"""The fields in which requests differ."""
COMPARED = 2000
"""How many characters of prompts are compared to find the nearest."""


class Shelf:
    """The agents of a recorded run, by what they ask, each handed out once."""

    def __init__(self, run: RecordedRun, plan: Plan) -> None:
        self._agents = {agent.name: agent for agent in run.agents}
        self._by_key: dict[str, list[str]] = {}
        for agent in run.agents:
            if agent.calls:
                self._by_key.setdefault(agent.calls[0].key, []).append(agent.name)
        self._wanted, self._gaps, self._redacted = set(plan.names), run.gaps, run.redacted

    def silent(self, name: str) -> RecordedAgent | None:
        """Return an agent that was never asked."""
        found = self._agents.get(name)
        return found if found is not None and found.whole and not found.calls else None

    def answering(self, name: str, request: Request) -> RecordedAgent | None:
        """Return what was recorded of this request: of the agent of that name, or else of the next that asked it."""
        if self._redacted:
            return self._named(name, request)
        names = self._by_key.get(request.key(ANYWHERE), [])
        if name not in names and (never := self.silent(name)) is not None:
            return never  # stopped before it was asked
        for one in sorted(names, key=lambda other: (other != name, other in self._wanted)):
            if self._agents[one].whole:
                names.remove(one)
                return self._agents[one]
        return None

    def _named(self, name: str, request: Request) -> RecordedAgent | None:
        """Return the agent of that name, where texts are no guide; what is no text has to be the same."""
        found = self._agents.get(name)
        if found is None or not found.whole:
            return None
        asked = [call.started.request for call in found.calls[:1]]
        return found if all(_shape(one) == _shape(request) for one in asked) else None

    def lacks(self, name: str) -> ReplayMiss:
        """Say that nothing whole was recorded of an agent that asks nothing."""
        nearest = name if name in self._agents else None
        return ReplayMiss(name, nearest=nearest, differences={}, damaged=self._broken(name))

    def miss(self, name: str, request: Request) -> ReplayMiss:
        """Name the nearest recording and what differs from it."""
        calls = [agent.calls[0] for agent in self._agents.values() if agent.calls]
        own = [call for call in calls if call.agent == name]
        if not own and self._broken(name):
            return self.lacks(name)
        near = own[0] if own else max(calls, key=lambda call: _likeness(call, request), default=None)
        if near is None:
            return ReplayMiss(name, nearest=None, differences={})
        asked, recorded = request._asdict(), near.started.request._asdict()
        differences = {field: (recorded[field], asked[field]) for field in ASKED if recorded[field] != asked[field]}
        damaged = not differences and self._broken(near.agent)
        return ReplayMiss(name, nearest=near.agent, differences=differences, damaged=damaged)

    def _broken(self, name: str) -> bool:
        """Tell whether lines about an agent are damaged or gone."""
        return not self._agents[name].whole if name in self._agents else self._gaps


def _shape(request: Request) -> tuple[object, ...]:
    """Return what a request asks besides its texts."""
    empty = (request.system is None, request.context is None, not request.schema)
    return (request.model, request.max_tokens, request.effort, *empty)


def _likeness(call: Call, request: Request) -> float:
    recorded = call.started.request
    same = (recorded.model == request.model) + (recorded.system == request.system)
    return (
        same / 10 + difflib.SequenceMatcher(None, recorded.prompt[:COMPARED], request.prompt[:COMPARED]).quick_ratio()
    )
