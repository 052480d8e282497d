"""Scheduling of function calls: which of the requested calls may begin now.

A call may wait for approval, for the calls beside it if it must run alone, and for resources: a semaphore with limited
units, or a path that it writes and others read. Calls begin in the order of the requests, each as soon as it can.
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
    """A tool call requested by a response, or the call of a task.

    Attributes:
        id: The provider's id; empty for a task.
        arguments: The model's arguments as JSON text; empty for a task.
        alone: True if no other call of the response may run beside it.
        ask: True if a person must approve it first.
    """

    id: str
    tool: str
    arguments: str
    alone: bool = False
    ask: bool = False
    holds: tuple[Held, ...] = ()
    code: str = ""


class Call(NamedTuple):
    """A call of a step.

    Attributes:
        number: 1 for the step's first call.
        turn: Number of the attempt that requested it; 0 for a task.
    """

    step: int
    number: int
    turn: int
    wanted: Wanted


class Result(NamedTuple):
    """The result of a call, as the driver reports it; see `agent_magic.record.events.CallEnded`.

    Attributes:
        text: The result sent to the model; a task's value as text.
        packed: The value as JSON; `None` if it cannot be serialised.
        trace: Traceback of an error, from the user's own line on.
        blocks: True if `text` is content blocks as JSON.
        attempts: Maximum attempts after a failure of a task.
        ends: True if the agent fails with this call.
    """

    status: CallStatus
    text: str = ""
    error: str | None = None
    kind: str | None = None
    source: Source = "live"
    value: Any = None
    packed: str | None = None
    prints: str = ""
    trace: str = ""
    blocks: bool = False
    attempts: int = 1
    ends: bool = False
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
"""Amounts of a resource are compared so closely: ten times 0.1 is 1."""


class Resources:
    """Tracks resource holders, and how much beside them each tolerates."""

    def __init__(self) -> None:
        self._held: dict[str, list[Held]] = {}

    def are_free(self, holds: Sequence[Held]) -> bool:
        """Return whether all of these can be held beside the current holders."""
        if not holds:
            return True
        for one in holds:
            all_of = [one, *(each for name, held in self._held.items() if overlap(one.name, name) for each in held)]
            if math.fsum(each.amount for each in all_of) > min(each.most for each in all_of) * EXACT:
                return False
        return True

    def take(self, holds: Iterable[Held]) -> None:
        """Acquire these."""
        for one in holds:
            self._held.setdefault(one.name, []).append(one)

    def give_back(self, holds: Iterable[Held]) -> None:
        """Release these."""
        for one in holds:
            self._held[one.name].remove(one)
            if not self._held[one.name]:
                del self._held[one.name]


class Holding:
    """Resources that the steps of a run hold while they run: between turns and before retries too.

    `alone` lets only one step run at a time.
    """

    def __init__(self, holds: Mapping[int, tuple[Held, ...]], resources: Resources, *, alone: bool = False) -> None:
        self._holds, self._resources, self._alone = holds, resources, alone
        self._holding: set[int] = set()

    def line(self, step: int) -> str:
        """Return the part of a queue's name that stands for the step's resources; empty without any."""
        return f" {self._holds[step]}" if step in self._holds else ""

    def held_by(self, step: int) -> Reason | None:
        """Return the reason a step may not run now, or `None` if it may."""
        if step in self._holding:
            return None
        if self._alone and self._holding:
            return "schedule"
        return None if self._resources.are_free(self._holds.get(step, ())) else "resource"

    def take(self, step: int) -> None:
        """Acquire a step's resources, unless it holds them already."""
        if step not in self._holding and (self._alone or step in self._holds):
            self._resources.take(self._holds.get(step, ()))
            self._holding.add(step)

    def give_back(self, step: int) -> None:
        """Release a step's resources."""
        if step in self._holding:
            self._holding.discard(step)
            self._resources.give_back(self._holds.get(step, ()))


class _Asked:
    """A waiting call, with the reason it waits."""

    __slots__ = ("call", "free", "held_by")

    def __init__(self, call: Call, held_by: str) -> None:
        self.call, self.held_by = call, held_by
        self.free = not call.wanted.ask
        """True if no approval is needed any more."""


class Calls:
    """Waiting and running calls of a run by step."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._waiting: dict[int, dict[int, _Asked]] = {}
        self._running: dict[int, dict[int, Call]] = {}

    def want(self, step: int, turn: int, first: int, wanted: Sequence[Wanted], held_by: str = "") -> None:
        """Add the calls of a turn (0 for a task), numbered from `first`."""
        asked = {number: _Asked(Call(step, number, turn, one), held_by) for number, one in enumerate(wanted, first)}
        self._waiting.setdefault(step, {}).update(asked)

    def questions(self, steps: Iterable[int]) -> list[Call]:
        """Return the calls of these steps that need approval."""
        return [one.call for step in steps for one in self._waiting.get(step, {}).values() if not one.free]

    def agree(self, call: Call, wanted: Wanted) -> Call | None:
        """Record the approval of a call in its current form. Return `None` if it no longer waits."""
        asked = self._waiting.get(call.step, {}).get(call.number)
        if asked is None:
            return None
        asked.call, asked.free, asked.held_by = call._replace(wanted=wanted), True, "person"
        return asked.call

    def next(self) -> tuple[Call, str] | None:
        """Begin the first call that may begin. Return it with the reason it waited, or `None`."""
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
        """Return the reason a call waits, or `None` if it may begin."""
        if not asked.free:
            return "person"
        call = asked.call
        beside = self._running.get(call.step)
        if beside and (call.wanted.alone or any(one.wanted.alone for one in beside.values())):
            return "alone"
        return None if self._resources.are_free(call.wanted.holds) else "resource"

    def take_out(self, call: Call) -> bool:
        """Remove a waiting call. Return False if it has begun."""
        return _take(self._waiting, call)

    def ended(self, call: Call) -> None:
        """Remove a finished call."""
        _take(self._running, call)
        self._resources.give_back(call.wanted.holds)

    def drop(self, step: int) -> None:
        """Remove the waiting calls of a step."""
        self._waiting.pop(step, None)

    def running(self, step: int) -> list[Call]:
        """Return the running calls of a step."""
        return [*self._running.get(step, {}).values()]

    def has(self, step: int) -> bool:
        """Return whether a step has waiting or running calls."""
        return step in self._waiting or step in self._running

    def held_by(self, step: int) -> str:
        """Return the reason all calls of a step wait; empty if one runs or there are none."""
        if step in self._running:
            return ""
        return next((asked.held_by for asked in self._waiting.get(step, {}).values()), "")


def _take(calls: dict[int, dict[int, T]], call: Call) -> bool:
    """Remove a call from its step. Return False if it is not there."""
    of_step = calls.get(call.step, {})
    found = of_step.pop(call.number, None) is not None
    if found and not of_step:
        del calls[call.step]
    return found
