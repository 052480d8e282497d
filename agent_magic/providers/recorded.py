"""Replay of a plan's run from a cassette: no network, no key, the recorded clock.

Each agent's prompt is rendered from the recorded answers of its parents, and its request looked up.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_magic.declare.declared import asked_apart
from agent_magic.declare.task import Task
from agent_magic.declare.tool import Tools, recorded_tools
from agent_magic.declare.validation import is_number, must_be
from agent_magic.engine.requests import ask, model_of
from agent_magic.errors import CassetteError, DeclarationError, NotConnected, ReplayMiss
from agent_magic.providers.base import EVERYTHING, Provider
from agent_magic.record.answer import WITH_ANSWER
from agent_magic.record.cassette.reading import ANYWHERE
from agent_magic.record.events import AgentReady, AttemptEnded, CallEnded, CallStarted, Event, FirstToken, RunEnded
from agent_magic.record.request import going_on
from agent_magic.record.results import RunRecord, conversation_of
from agent_magic.record.task_inputs import Taken, differing, read

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from agent_magic.declare.plan import Plan
    from agent_magic.providers.base import Stream
    from agent_magic.record.answer import Answer
    from agent_magic.record.cassette.reading import Call, Cassette, RecordedAgent, RecordedRun
    from agent_magic.record.request import Request
    from agent_magic.record.terms import Terms

ASKED = (
    *("model", "max_tokens", "effort", "system", "context", "tools", "schema", "prompt", "attachments", "cite"),
    "options",
)
COMPARED = 2000
"""Characters of prompts, to find the nearest."""
LONGEST_S = 1e9
"""A deadline is not part of a request, so a replay needs none."""


class Shelf:
    """The agents of a recorded run by request, each handed out once."""

    def __init__(self, run: RecordedRun, plan: Plan) -> None:
        self._agents = {agent.name: agent for agent in run.agents}
        self._by_key: dict[str, list[str]] = {}
        for agent in run.agents:
            if agent.calls:
                first = agent.calls[0].started.request._replace(tool_choice="")  # the budget of a run decides that
                self._by_key.setdefault(first.key(ANYWHERE), []).append(agent.name)
        self._wanted, self._gaps, self._redacted = set(plan.names), run.gaps, run.redacted
        self._fallbacks = {one.name: one.fallback for one in plan.agents if one.fallback}
        self._degrades = run.terms is not None and bool(run.terms.policy.get("degrade"))

    def silent(self, name: str) -> RecordedAgent | None:
        found = self._agents.get(name)
        return found if found is not None and found.whole and not found.calls else None

    def answering(self, name: str, request: Request) -> RecordedAgent | None:
        """Return the agent with that name, or else the next with that request."""
        if self._redacted:
            return self._named(name, request)
        names = self._by_key.get(self._first_asked(name, request).key(ANYWHERE), [])
        if name not in names and (never := self.silent(name)) is not None:
            return never  # stopped before it was asked
        for one in sorted(names, key=lambda other: (other != name, other in self._wanted)):
            if self._agents[one].whole:
                names.remove(one)
                return self._agents[one]
        return None

    def _first_asked(self, name: str, request: Request) -> Request:
        """Return the agent's first request, with another model or effort if the run allowed it."""
        calls = self._agents[name].calls[:1] if name in self._agents else ()
        for first in (call.started.request for call in calls):
            if self._degrades:
                return request._replace(model=first.model, effort=first.effort)
            if first.model in self._fallbacks.get(name, ()):
                return request._replace(model=first.model)
        return request

    def _named(self, name: str, request: Request) -> RecordedAgent | None:
        """Return the agent with that name if texts were removed."""
        found = self._agents.get(name)
        if found is None or not found.whole:
            return None
        asked, request = [call.started.request for call in found.calls[:1]], self._first_asked(name, request)
        return found if all(_shape(one) == _shape(request) for one in asked) else None

    def lacks(self, name: str) -> ReplayMiss:
        """Return the error of an agent without a complete recording."""
        nearest = name if name in self._agents else None
        return ReplayMiss(name, nearest=nearest, differences={}, damaged=self._broken(name))

    def miss(self, name: str, request: Request) -> ReplayMiss:
        """Name the nearest recording and its differences."""
        calls = [agent.calls[0] for agent in self._agents.values() if agent.calls]
        own = [call for call in calls if call.agent == name]
        if not own and self._broken(name):
            return self.lacks(name)
        near = own[0] if own else max(calls, key=lambda call: _likeness(call, request), default=None)
        if near is None:
            return ReplayMiss(name, nearest=None, differences={})
        asked, recorded = request._asdict(), near.started.request._asdict()
        asked["attachments"], recorded["attachments"] = _files(request), _files(near.started.request)
        differences = {field: (recorded[field], asked[field]) for field in ASKED if recorded[field] != asked[field]}
        damaged = not differences and self._broken(near.agent)
        return ReplayMiss(name, nearest=near.agent, differences=differences, damaged=damaged)

    def _broken(self, name: str) -> bool:
        return not self._agents[name].whole if name in self._agents else self._gaps


def _files(request: Request) -> str:
    every = (one.attachment for one in request.attachments)
    return ", ".join(f"{one.label} {one.facts} sha256 {one.sha256[:8]}" for one in every)


def _shape(request: Request) -> tuple[object, ...]:
    empty = (request.system is None, request.context is None, not request.schema)
    return (request.model, request.max_tokens, request.effort, request.options, *empty)


def _likeness(call: Call, request: Request) -> float:
    recorded = call.started.request
    same = (recorded.model == request.model) + (recorded.system == request.system)
    return (
        same / 10 + difflib.SequenceMatcher(None, recorded.prompt[:COMPARED], request.prompt[:COMPARED]).quick_ratio()
    )


class Match:
    """A plan matched with one recorded run; `record` has the matched part by agent, not in order of time."""

    def __init__(self, plan: Plan, run: RecordedRun, *, timeout_s: float) -> None:
        self.plan, self.run = plan, run
        self.record = RunRecord(plan, began_at=_began(run), models=map(model_of, plan.agents), origin="cassette")
        self.record.replays_simulation = run.simulated
        self.misses: dict[int, ReplayMiss] = {}
        self.unknown: set[int] = set()
        self.texts: dict[str, Any] = {}
        self._taken = Taken(self.record)
        self._recorded_places = {agent.name: index for index, agent in enumerate(run.agents)}
        self._places: dict[int, int] = {}
        shelf = Shelf(run, plan)
        for agent in plan.dag.order:
            self._find(agent, shelf, timeout_s)

    @property
    def missing(self) -> tuple[int, ...]:
        """Agents that were not found, and their descendants, in the order of the plan's graph."""
        return tuple(agent for agent in self.plan.dag.order if agent in self.misses or agent in self.unknown)

    @property
    def ended_s(self) -> float:
        return max((event.at_s for event in self.record.events), default=0.0)

    def found(self) -> RunRecord:
        models = map(model_of, self.plan.agents)
        record = RunRecord(self.plan, began_at=self.record.began_at, models=models, origin="cassette")
        record.replays_simulation, record.replayed = self.run.simulated, self.record.replayed
        record.redacted, record.same = self.run.redacted, self.run.same(self.plan) if self.run.redacted else None
        for event in self.events():
            record.add(event)
        return record

    def events(self) -> list[Event]:
        """Sort by time; an agent's events of one time keep their order."""
        return sorted(self.record.events, key=lambda event: event.at_s)

    def whole(self) -> RunRecord:
        """Raise `ReplayMiss` if an agent asks for something that was not recorded."""
        if self.misses:
            first, *others = self.misses.values()
            raise first.beside(len(others) + len(self.unknown))
        record = self.found()
        is_whole = len(self.run.agents) == len(self.plan)
        record.add(RunEnded((is_whole and self.run.ended_s) or self.ended_s, cut=self.run.cut))
        if is_whole:
            record.terms, record.bases = self._terms(), dict(self.run.bases)
        return record

    def _terms(self) -> Terms | None:
        """The policy it ran under, its expected seconds in the order of this plan."""
        terms, count = self.run.terms, len(self.plan)
        if terms is None or terms.work_s is None:
            return terms
        known = len(terms.work_s) == count
        return terms._replace(work_s=tuple(terms.work_s[self._places[one]] for one in range(count)) if known else None)

    def _find(self, agent: int, shelf: Shelf, timeout_s: float) -> None:
        declared, inputs = self.plan.agents[agent], self.plan.inputs[agent]
        parents = self.plan.dag.parents[agent]
        lost = [self.plan.agents[one].name for one in parents if one in self.misses or one in self.unknown]
        if any(name in inputs for name in lost):
            self.unknown.add(agent)
            return
        flow = self.plan.flow
        can_miss = () if flow is None else {*flow.optional.get(agent, ()), *flow.ahead_of.get(agent, ())}
        needed = [self.plan.agents[one].name for one in parents if one not in can_miss]
        if any(name not in self.texts and name not in lost for name in needed):
            found = shelf.silent(declared.name)  # it was never asked: an ancestor had failed
            if found is None:
                self.misses[agent] = shelf.lacks(declared.name)
        else:
            found = self._asking(agent, shelf, timeout_s)
        if found is not None:
            self._take(agent, found)

    def _asking(self, agent: int, shelf: Shelf, timeout_s: float) -> RecordedAgent | None:
        name = self.plan.agents[agent].name
        if self.plan.agents[agent].is_task:
            found = shelf.silent(name)
            miss = shelf.lacks(name) if found is None else None if self.run.redacted else self._other_task(agent, found)
            if miss is not None:
                self.misses[agent] = miss
            return found if miss is None else None
        try:
            request = self._request(agent, timeout_s)
        except DeclarationError:  # its prompt cannot be written with these answers: nothing was sent then either
            found, miss = shelf.silent(name), shelf.lacks(name)
        else:
            found = shelf.answering(name, request)
            miss = shelf.miss(name, request) if found is None else None
        if found is None and miss is not None:
            self.misses[agent] = miss
        return found

    def _request(self, agent: int, timeout_s: float) -> Request:
        request, name = ask(self.plan, agent, self.texts, timeout_s), self.plan.continued(agent, self.texts)
        before = None if name is None else conversation_of(self.record.results[self.plan.index[name]])
        return request if before is None else going_on(request, before)

    def _other_task(self, agent: int, found: RecordedAgent) -> ReplayMiss | None:
        """Return how a task differs from the recorded one."""
        # A plan that was read from a record has neither functions nor variables that could differ.
        task, events = self.plan.agents[agent], found.events or ()
        if not isinstance(task, Task) or task.is_recorded:
            return None
        code = next((one.code for one in events if isinstance(one, CallStarted)), "")
        takes = read(next((one.takes for one in reversed(events) if isinstance(one, CallEnded)), ""))
        differences: dict[str, tuple[object, object]] = {}
        if code and task.source_sha and code != task.source_sha:
            differences["its code"] = code, task.source_sha
        now = self._taken.of(agent)
        differences |= {f"what it takes as {name!r}": (takes[name], now[name]) for name in differing(takes, now)}
        return ReplayMiss(task.name, nearest=task.name, differences=differences, is_task=True) if differences else None

    def _take(self, agent: int, found: RecordedAgent) -> None:
        self._places[agent] = self._recorded_places[found.name]
        for event in _events(agent, found):
            self.record.add(_replayed(event))
        for call in found.calls:
            self.record.replayed[agent, call.number] = call.source
        result = self.record.results[agent]
        if result.is_task and result.status == "succeeded":
            here = result.has_value and not self.run.redacted
            self.texts[result.name] = result.meaning if here else result.text
        elif result.status in WITH_ANSWER and result.answer is not None:
            self.texts[result.name] = self.plan.meaning_of(agent, result.text)


class Deck:
    """Plays the runs of a cassette in turn, `pace` recorded seconds in a second; `fill` buys missing answers."""

    def __init__(self, cassette: Cassette, *, fill: bool = False, pace: float | None = None) -> None:
        if fill and cassette.redacted:
            raise CassetteError(
                f"{cassette.name!r} was recorded without its texts: nothing can be bought on top of it."
            )
        if pace is not None and not (is_number(pace) and 0 < pace < math.inf):
            raise must_be("pace", "a number above 0", pace, " Give recorded seconds in a second, such as 1.")
        self.cassette, self.fill, self.pace = cassette, fill, pace
        self.served: set[int] = set()

    def play(self, plan: Plan, *, timeout_s: float) -> RunRecord:
        """Return the next recorded run of this plan, or raise the nearest `ReplayMiss`."""
        return self.whole(self.find(plan, timeout_s=timeout_s))

    def whole(self, match: Match) -> RunRecord:
        record = match.whole()
        record.provenance = self.provenance(match.run)
        return record

    def find(self, plan: Plan, *, timeout_s: float) -> Match:
        # One that has not been played goes first, and after the last it begins again: a cell that runs twice
        # replays its first run, unless two runs of it were recorded.
        best: tuple[tuple[int, bool, int], Match] | None = None
        for number, run in enumerate(self.cassette.runs):
            is_each = run.terms is not None and run.terms.policy.get("identical") == "each"
            match = Match(asked_apart(type(plan), plan) if is_each else plan, run, timeout_s=timeout_s)
            rank = (len(match.missing), number in self.served, number)
            if best is None or rank < best[0]:
                best = rank, match
            if rank[:2] == (0, False):
                break
        if best is None:
            raise ReplayMiss(plan.names[0], nearest=None, differences={}, others=len(plan) - 1)
        (_, again, number), match = best
        if again:
            self.served.clear()
        self.served.add(number)
        return match

    @property
    def models(self) -> dict[str, str]:
        """Those asked first, by agent."""
        every = (one for run in self.cassette.runs for one in run.agents if one.calls)
        return {one.name: one.calls[0].started.request.model for one in every}

    def schema_of(self, agent: str) -> str:
        of_group = re.compile(rf"{re.escape(agent)}(_\d+)?")
        recorded = (one for run in self.cassette.runs for one in run.agents if of_group.fullmatch(one.name))
        found = next((one.calls[0].started.request.schema for one in recorded if one.calls), "")
        return found if found.startswith("{") else ""  # it may have been left out

    def tools_of(self, agent: str) -> Tools:
        """Return the recorded tools of an agent, or of its group, without functions."""
        of_group = re.compile(rf"{re.escape(agent)}(_\d+)?")
        recorded = (one for run in self.cassette.runs for one in run.agents if of_group.fullmatch(one.name))
        found = next((one.calls[0].started.request.tools for one in recorded if one.calls), "")
        try:
            return recorded_tools(json.loads(found or "[]"))
        except (AttributeError, KeyError, TypeError, ValueError):
            return Tools()  # they were left out

    def provenance(self, run: RecordedRun) -> dict[str, Any]:
        return {
            "cassette": self.cassette.name,
            "sha256": self.cassette.sha256,
            "recorded": run.recorded,
            "simulated": run.simulated,
            "made_with": dict(self.cassette.made_with),
        }


class Nobody(Provider):
    """Answers nothing: planning while a recording answers needs no network either."""

    endpoint = "cassette"
    is_limited = False
    capabilities = EVERYTHING  # everything recorded is played

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        raise NotConnected
        yield  # pyright: ignore[reportUnreachable] - this makes it a generator

    async def send(self, request: Request, stream: Stream) -> Answer:
        del request, stream
        raise NotConnected

    async def count_tokens(self, request: Request) -> int:
        del request
        raise NotConnected


def _began(run: RecordedRun) -> datetime:
    try:
        began = datetime.fromisoformat(run.recorded)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return began if began.tzinfo is not None else began.replace(tzinfo=UTC)


def recorded_run(plan: Plan, run: RecordedRun) -> RunRecord:
    """Return a recorded run for a plan with the same names and any prompts."""
    names = tuple(agent.name for agent in run.agents)
    if names != plan.names:
        raise CassetteError(f"The recording is of another plan: it has {names!r}, the plan {plan.names!r}.")
    record = RunRecord(plan, began_at=_began(run), models=map(model_of, plan.agents), origin="cassette")
    events = [event for agent, found in enumerate(run.agents) for event in _events(agent, found)]
    for event in sorted(events, key=lambda one: one.at_s):
        record.add(event)
    ended_s = max((event.at_s for event in events), default=0.0) if run.ended_s is None else run.ended_s
    record.add(RunEnded(ended_s, cut=run.cut))
    record.replays_simulation, record.redacted = run.simulated, run.redacted
    record.same = run.same(plan) if run.redacted else None  # otherwise its requests tell
    record.terms, record.bases = run.terms, dict(run.bases)
    return record


def _events(agent: int, found: RecordedAgent) -> Iterator[Event]:
    before = found.events
    if before is None:  # its line is damaged, and its calls are whole: they know when it was ready
        ready_s = found.calls[0].ready_s
        before = () if ready_s is None else (AgentReady(ready_s, agent),)
    for event in before:
        yield event._replace(agent=agent)
    for call in found.calls:
        yield call.started._replace(agent=agent)
        if call.first_token_s is not None:
            yield FirstToken(call.first_token_s, agent, call.number)
        if call.ended is not None:
            yield call.ended._replace(agent=agent)
        for event in call.then:
            yield event._replace(agent=agent)


def _replayed(event: Event) -> Event:
    if isinstance(event, CallEnded):
        return event._replace(source="replay")
    if not isinstance(event, AttemptEnded):
        return event
    if event.answer is not None and event.answer.edited:  # the user's own, now as then
        return event._replace(answer=replace(event.answer, source="edited"), source="edited")
    answer = replace(event.answer, source="replay") if event.answer else None
    return event._replace(answer=answer, source="replay")
