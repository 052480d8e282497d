"""Reading a cassette into values. A bad file raises only `CassetteError`."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from agent_magic.errors import CassetteError
from agent_magic.record.codec import data_of, event_from_json, from_json, line_of
from agent_magic.record.events import (
    AgentEnded,
    AgentReady,
    AgentReopened,
    AttemptEnded,
    AttemptStarted,
    BackoffStarted,
    CallEnded,
    CallStarted,
)
from agent_magic.record.files import check_regular, given_path, real_path
from agent_magic.record.results import Base, Kind
from agent_magic.record.terms import Terms, checked_terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from agent_magic.declare.plan import Plan
    from agent_magic.record.answer import Source
    from agent_magic.record.events import Event

T = TypeVar("T")
SECONDS = cast("type[float | None]", float | None)
FORMAT = 1
ENDING = ".cassette.jsonl"
TEXT_ENDING = ".cassette.txt"
"""For JupyterLite: its drive parses every file with `.json` in its name as one JSON value."""
ANYWHERE = ""
"""The endpoint in the keys of a cassette: calls are equal wherever they were answered."""
MOST_BYTES = 4 << 30
"""A longer file is not a cassette."""
MOST_S = 1e9
"""Later times, 30 years after the beginning of the run, are damage."""
MOST_USD = 1e12
NO_AGENT = 0
"""Stands for the number of an agent, which a plan gives."""
BESIDES_CALLS = (AgentReady, BackoffStarted, CallStarted, CallEnded, AgentEnded, AgentReopened)


class Call(NamedTuple):
    """One recorded request; `key` leaves out the endpoint, `then` are the events until the next."""

    agent: str
    number: int
    key: str
    ready_s: float | None
    started: AttemptStarted
    first_token_s: float | None
    ended: AttemptEnded | None
    then: tuple[Event, ...]

    @property
    def source(self) -> Source | None:
        return self.ended.source if self.ended else None


@dataclass(frozen=True, slots=True)
class RecordedAgent:
    """The recording of one agent; `None` marks a damaged line.

    `events` are those before the first request, `like` is the first identical agent.
    """

    name: str
    calls: tuple[Call, ...]
    events: tuple[Event, ...] | None
    expected: int | None
    like: str = ""

    @property
    def whole(self) -> bool:
        if [call.number for call in self.calls] != list(range(1, len(self.calls) + 1)):
            return False
        if self.expected is not None:
            return self.expected == len(self.calls)
        return any(isinstance(event, AgentEnded) for call in self.calls[-1:] for event in call.then)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One recorded run; `gaps` if lines about agents are missing."""

    plan: str
    recorded: str
    simulated: bool
    ended_s: float | None
    cut: bool
    agents: tuple[RecordedAgent, ...]
    gaps: bool
    terms: Terms | None = None
    bases: Mapping[Kind, Base] = field(default_factory=dict[Kind, Base])
    redacted: bool = False

    def same(self, plan: Plan) -> tuple[int | None, ...] | None:
        like = {one.name: one.like for one in self.agents if one.like}
        numbers = {name: number for number, name in enumerate(plan.names)}
        return tuple(numbers.get(like.get(name, "")) for name in plan.names) if like else None


@dataclass(frozen=True, slots=True)
class Cassette:
    """The content of a file, with damaged line numbers and the number of missing lines."""

    name: str
    sha256: str
    made_with: Mapping[str, str]
    runs: tuple[RecordedRun, ...]
    damaged: tuple[int, ...] = ()
    missing: int = 0

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(call for run in self.runs for agent in run.agents for call in agent.calls)

    @property
    def recorded(self) -> str:
        return max((run.recorded for run in self.runs), default="")

    @property
    def recorded_words(self) -> str:
        try:
            began = datetime.fromisoformat(self.recorded)
            began = began.astimezone(UTC) if began.tzinfo is not None else began
            return f"{began:%Y-%m-%d %H:%M} UTC"
        except ValueError:
            return self.recorded or "at an unknown time"

    @property
    def simulated(self) -> bool:
        return any(run.simulated for run in self.runs)

    @property
    def redacted(self) -> bool:
        return any(run.redacted for run in self.runs)


@dataclass(slots=True)
class _Lines:
    head: dict[str, Any] = field(default_factory=dict[str, Any])
    agents: dict[str, dict[str, Any] | None] = field(default_factory=dict[str, dict[str, Any] | None])
    calls: dict[str, list[Call]] = field(default_factory=dict[str, list[Call]])

    def run(self, files: Mapping[str, bytes]) -> RecordedRun:
        if files:
            self.calls = {name: [_with_files(call, files) for call in calls] for name, calls in self.calls.items()}
        agents = tuple(_agent(name, line, self.calls.get(name, [])) for name, line in self.agents.items())
        sources = {call.source for calls in self.calls.values() for call in calls}
        ended_s: Any = self.head.get("ended_s")
        return RecordedRun(
            str(self.head.get("plan", "agents")),
            str(self.head.get("recorded", "")),
            bool(self.head.get("simulated")) or "simulated" in sources,
            ended_s if isinstance(ended_s, float) else None,
            bool(self.head.get("cut")),
            agents,
            gaps=_count(self.head, "agents") > len(agents),
            terms=_terms(self.head.get("terms")),
            bases=_kept(dict[Kind, Base], self.head.get("bases")) or {},
            redacted=bool(self.head.get("redacted")),
        )


def _with_files(call: Call, files: Mapping[str, bytes]) -> Call:
    def file_of(name: str) -> bytes:
        return files.get(name, b"")

    request = call.started.request.with_files(file_of)
    then = tuple(one.with_files(file_of) if isinstance(one, CallEnded) else one for one in call.then)
    return call._replace(started=call.started._replace(request=request), then=then)


def _terms(data: object) -> Terms | None:
    with suppress(ValueError):
        return None if data is None else checked_terms(from_json(Terms, data))
    return None


def _kept(kind: type[T], data: object) -> T | None:
    with suppress(ValueError):
        return from_json(kind, data)
    return None


def read_cassette(path: str | Path) -> Cassette:
    path = given_path(path, CassetteError)
    name, path = path.name, real_path(path, CassetteError)
    check_regular(path, CassetteError)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CassetteError(f"{name!r} is larger than {MOST_BYTES >> 30} GiB. Is it the right file?")
        with path.open("rb") as file:
            return _read(name, enumerate(file, 1))
    except OSError as error:
        raise CassetteError(f"{name!r} cannot be read: {error.strerror}. Check the name.") from None


def is_cassette(path: Path) -> bool:
    with path.open("rb") as file:
        return isinstance(_head(file.readline(1 << 20)).get("cassette"), int)


def checked(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "check": _check(line)}


def _check(line: dict[str, Any]) -> str:
    return hashlib.sha256(line_of(line).encode()).hexdigest()[:16]


def _head(row: bytes) -> dict[str, Any]:
    try:
        return data_of(row.decode("utf-8", "replace"))
    except ValueError:
        return {}


def _read(name: str, rows: Iterator[tuple[int, bytes]]) -> Cassette:
    _, first = next(rows, (1, b""))
    head, digest = _head(first), hashlib.sha256(first)
    version = head.get("cassette")
    if not isinstance(version, int):
        raise CassetteError(f"{name!r} is no cassette: its first line does not say so. Check the name.")
    if version > FORMAT:
        raise CassetteError(f"{name!r} has format {version}; this version reads up to {FORMAT}. Update agent-magic.")
    runs: dict[int, _Lines] = {}
    files: dict[str, bytes] = {}
    damaged: list[int] = []
    for number, row in rows:
        digest.update(row)
        if row.strip() and not _add(row, runs, files):
            damaged.append(number)
    expected = sum(_count(run.head, "agents") + _count(run.head, "calls") for run in runs.values())
    found = sum(sum(map(bool, run.agents.values())) + sum(map(len, run.calls.values())) for run in runs.values())
    lost = max(0, expected - found) + max(0, _count(head, "runs") - sum(bool(run.head) for run in runs.values()))
    made_with: Any = head.get("made_with")
    return Cassette(
        name,
        digest.hexdigest(),
        cast("dict[str, str]", made_with) if isinstance(made_with, dict) else {},
        tuple(runs[number].run(files) for number in sorted(runs)),
        tuple(damaged),
        max(0, lost - len(damaged)),
    )


def _count(line: dict[str, Any], name: str) -> int:
    value = line.get(name)
    return value if type(value) is int else 0


def _add(row: bytes, runs: dict[int, _Lines], files: dict[str, bytes]) -> bool:
    try:
        line = data_of(row.decode())
        check = line.pop("check", None)
        number = line.get("run")
        if check != _check(line) or type(number) is not int:
            return False
        if "call" in line:
            run = runs.setdefault(number, _Lines())
            call = _call(line, run.calls.get(str(line["agent"]), []))
            run.agents.setdefault(call.agent, None)
            run.calls.setdefault(call.agent, []).append(call)
        elif "agent" in line:
            _events(line["events"])
            runs.setdefault(number, _Lines()).agents[str(line["agent"])] = line
        elif "file" in line:
            data = base64.b64decode(line["data"], validate=True)
            files[hashlib.sha256(data).hexdigest()] = data  # never under the name in the file
        elif "plan" in line:
            runs.setdefault(number, _Lines()).head = line
    except (KeyError, TypeError, ValueError, StopIteration):
        return False
    return True


def _call(line: dict[str, Any], earlier: Sequence[Call]) -> Call:
    """Read a call, which has only the new part of a conversation; raise if it is impossible in a run."""
    place = {"agent": NO_AGENT, "number": line["call"]}
    started = from_json(AttemptStarted, {**line, **place, "at_s": line["started_s"]})
    if "continues" in line:
        before = next(one for one in earlier if one.number == line["continues"]).started.request.messages
        request = started.request
        started = started._replace(request=request._replace(messages=(*before, *request.messages)))
    ended = None
    if line["ended_s"] is not None:
        ended = from_json(AttemptEnded, {**line, **place, "at_s": line["ended_s"]})
    ready_s, first_token_s = (from_json(SECONDS, line[name]) for name in ("ready_s", "first_token_s"))
    _check_times(started.granted_s, started.at_s, first_token_s, ended.at_s if ended else None)
    _check_times(ready_s)
    if ended is not None and not 0 <= (ended.price.cost_usd or 0.0) <= MOST_USD:
        raise ValueError("not a cost")
    return Call(
        from_json(str, line["agent"]),
        started.number,
        started.request.key(ANYWHERE),  # never from the file, where it could belong to another request
        ready_s,
        started,
        first_token_s,
        ended,
        _events(line["then"]),
    )


def _events(data: list[dict[str, Any]]) -> tuple[Event, ...]:
    events = tuple(event_from_json({**one, "agent": NO_AGENT}) for one in data)
    if not all(isinstance(event, BESIDES_CALLS) for event in events):
        raise ValueError("an event that cannot stand alone")
    _check_times(*(event.at_s for event in events))
    return events


def _check_times(*times_s: float | None) -> None:
    """Raise `ValueError` unless these times are possible in a run and in order."""
    known = [0.0, *(one for one in times_s if one is not None), MOST_S]
    if known != sorted(known):
        raise ValueError("times that no run has")


def _agent(name: str, line: dict[str, Any] | None, calls: list[Call]) -> RecordedAgent:
    calls.sort(key=lambda call: call.number)
    if line is None:
        return RecordedAgent(name, tuple(calls), None, None)
    like = str(line.get("like") or "")
    return RecordedAgent(name, tuple(calls), _events(line["events"]), _count(line, "calls"), like)
