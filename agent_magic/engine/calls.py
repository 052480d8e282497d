"""Scheduling of function calls.

A call waits for approval, for the calls beside it if it must run alone, and for resources: a semaphore, or a path that
it writes and others read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from agent_magic.declare.resources import overlap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.declare.content import Attachment
    from agent_magic.declare.resources import Held
    from agent_magic.record.answer import Source
    from agent_magic.record.events import Artifact, CallStatus
    from agent_magic.record.reasons import Reason

T = TypeVar("T")


class Wanted(NamedTuple):
    """A tool call requested by a response, or the call of a task, which has no `id` and no `arguments`."""

    id: str
    tool: str
    arguments: str
    alone: bool = False  # no other call of the response may run beside it
    ask: bool = False  # a person must approve it first
    holds: tuple[Held, ...] = ()
    code: str = ""


class Call(NamedTuple):
    """A call of a step."""

    step: int
    number: int
    turn: int  # number of the attempt that requested it; 0 for a task
    wanted: Wanted


class Result(NamedTuple):
    """The result of a call, as the driver reports it; see `agent_magic.record.events.CallEnded`."""

    status: CallStatus
    text: str = ""
    error: str | None = None
    kind: str | None = None
    source: Source = "live"
    value: Any = None
    packed: str | None = None  # the value as JSON; `None` if it cannot be serialised
    prints: str = ""
    trace: str = ""  # from the user's own line on
    blocks: bool = False  # True if `text` is content blocks as JSON
    attempts: int = 1  # maximum after a failure of a task
    ends: bool = False  # the agent fails with this call
    takes: str = ""
    artifacts: tuple[Artifact, ...] = ()
    files: tuple[Attachment, ...] = ()
    worker: str = ""


class Verdict(NamedTuple):
    """A person's decision about a call or an answer.

    Attributes:
        approved: True to go on.
        text: The edited arguments as JSON, or the edited answer; `None` if unchanged.
        why: The reason of a denial.
    """

    approved: bool
    text: str | None = None
    why: str = ""


EXACT: Final = 1 + 1e-9
"""Amounts are compared so closely: ten times 0.1 is 1."""


class Resources:
    """Tracks resource holders, and how much beside them each tolerates."""

    def __init__(self) -> None:
        self._held: dict[str, list[Held]] = {}

    def are_free(self, holds: Sequence[Held]) -> bool:
        if not holds:
            return True
        for one in holds:
            all_of = [one, *(each for name, held in self._held.items() if overlap(one.name, name) for each in held)]
            if math.fsum(each.amount for each in all_of) > min(each.most for each in all_of) * EXACT:
                return False
        return True

    def take(self, holds: Iterable[Held]) -> None:
        for one in holds:
            self._held.setdefault(one.name, []).append(one)

    def give_back(self, holds: Iterable[Held]) -> None:
        for one in holds:
            self._held[one.name].remove(one)
            if not self._held[one.name]:
                del self._held[one.name]


class Holding:
    """Resources that steps hold while they run, between turns too; `alone` lets only one step run."""

    def __init__(self, holds: Mapping[int, tuple[Held, ...]], resources: Resources, *, alone: bool = False) -> None:
        self._holds, self._resources, self._alone = holds, resources, alone
        self._holding: set[int] = set()

    def line(self, step: int) -> str:
        return f" {self._holds[step]}" if step in self._holds else ""

    def held_by(self, step: int) -> Reason | None:
        if step in self._holding:
            return None
        if self._alone and self._holding:
            return "schedule"
        return None if self._resources.are_free(self._holds.get(step, ())) else "resource"

    def take(self, step: int) -> None:
        if step not in self._holding and (self._alone or step in self._holds):
            self._resources.take(self._holds.get(step, ()))
            self._holding.add(step)

    def give_back(self, step: int) -> None:
        if step in self._holding:
            self._holding.discard(step)
            self._resources.give_back(self._holds.get(step, ()))


class _Asked:
    __slots__ = ("call", "free", "held_by")

    def __init__(self, call: Call, held_by: str) -> None:
        self.call, self.held_by = call, held_by
        self.free = not call.wanted.ask


class Calls:
    """Waiting and running calls of a run by step."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._waiting: dict[int, dict[int, _Asked]] = {}
        self._running: dict[int, dict[int, Call]] = {}

    def want(self, step: int, turn: int, first: int, wanted: Sequence[Wanted], held_by: str = "") -> None:
        asked = {number: _Asked(Call(step, number, turn, one), held_by) for number, one in enumerate(wanted, first)}
        self._waiting.setdefault(step, {}).update(asked)

    def questions(self, steps: Iterable[int]) -> list[Call]:
        return [one.call for step in steps for one in self._waiting.get(step, {}).values() if not one.free]

    def agree(self, call: Call, wanted: Wanted) -> Call | None:
        asked = self._waiting.get(call.step, {}).get(call.number)
        if asked is None:
            return None
        asked.call, asked.free, asked.held_by = call._replace(wanted=wanted), True, "person"
        return asked.call

    def next(self) -> tuple[Call, str] | None:
        for turn in self._waiting.values():
            for asked in turn.values():
                if (held := self._held(asked)) is None:
                    call = asked.call
                    self.take_out(call)
                    self._running.setdefault(call.step, {})[call.number] = call
                    self._resources.take(call.wanted.holds)
                    return call, asked.held_by
                asked.held_by = held
        return None

    def _held(self, asked: _Asked) -> Reason | None:
        if not asked.free:
            return "person"
        call = asked.call
        beside = self._running.get(call.step)
        if beside and (call.wanted.alone or any(one.wanted.alone for one in beside.values())):
            return "alone"
        return None if self._resources.are_free(call.wanted.holds) else "resource"

    def take_out(self, call: Call) -> bool:
        return _take(self._waiting, call)

    def ended(self, call: Call) -> None:
        _take(self._running, call)
        self._resources.give_back(call.wanted.holds)

    def drop(self, step: int) -> None:
        self._waiting.pop(step, None)

    def running(self, step: int) -> list[Call]:
        return [*self._running.get(step, {}).values()]

    def has(self, step: int) -> bool:
        return step in self._waiting or step in self._running

    def held_by(self, step: int) -> str:
        if step in self._running:
            return ""
        return next((asked.held_by for asked in self._waiting.get(step, {}).values()), "")


def _take(calls: dict[int, dict[int, T]], call: Call) -> bool:
    of_step = calls.get(call.step, {})
    found = of_step.pop(call.number, None) is not None
    if found and not of_step:
        del calls[call.step]
    return found
