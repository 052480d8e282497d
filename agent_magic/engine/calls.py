"""Calls of functions: which of those that steps ask for may begin now.

A call holds no slot and none of the provider's limits. It waits for a person where one has to agree, for the calls
beside it where it runs alone, and for what it holds: a resource that only so many may hold at once, or a thing that it
writes and others read. Calls begin in the order in which they were asked for, each as soon as it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.declare.content import Attachment
    from agent_magic.declare.resources import Held
    from agent_magic.record.answer import Source
    from agent_magic.record.events import Artifact, CallStatus
    from agent_magic.record.reasons import Reason

T = TypeVar("T")


class Wanted(NamedTuple):
    """A call that a response asks for, or that a task is.

    Attributes:
        id: The provider's id of it; empty for a task.
        tool: The name of the function.
        arguments: What the model gave it, as JSON text; empty for a task.
        alone: Whether no other call of its response runs beside it.
        ask: Whether a person has to agree first.
        holds: What it holds while it runs.
        code: The fingerprint of the function's source; empty where nobody knows it.
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
        number: 1 for the step's first.
        turn: The number of the attempt whose response asked for it; 0 for a task.
    """

    step: int
    number: int
    turn: int
    wanted: Wanted


class Result(NamedTuple):
    """What came of a call, as its driver reports it.

    Attributes:
        status: See `agent_magic.record.events.CallEnded`.
        text: What the model gets; a task's value as text.
        error: What went wrong, in one line.
        kind: The class of the error.
        source: Where the result came from.
        value: A task's value.
        packed: The same as JSON; `None` where it cannot be written.
        prints: What the function printed.
        trace: The traceback of an error, from the user's own line on.
        blocks: Whether `text` is content blocks as JSON.
        attempts: How many tries a failure of a task is worth.
        ends: Whether the agent cannot go on with it: it has failed.
        takes: What a task took; see `agent_magic.record.taken`.
        artifacts: The files it wrote.
        files: The pictures and PDFs in `text`; see `CallEnded.files`.
        worker: The worker process that made the call; empty where the kernel's machine did.
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
    """What a person said of a call, or of an answer.

    Attributes:
        approved: Whether it may go on.
        text: What was changed: the arguments as JSON, or the answer; `None` leaves it as it was.
        why: Why it may not.
    """

    approved: bool
    text: str | None = None
    why: str = ""


class Resources:
    """Knows who holds what: for each name, how many others each of its holders bears."""

    def __init__(self) -> None:
        self._held: dict[str, list[float]] = {}

    def are_free(self, holds: Sequence[Held]) -> bool:
        """Tell whether all of these can be held beside those who hold them now."""
        if not holds:
            return True
        beside = [(one.most, self._held.get(one.name, ())) for one in holds]
        return all(len(held) < min([most, *held]) for most, held in beside)

    def take(self, holds: Iterable[Held]) -> None:
        """Hold these."""
        for one in holds:
            self._held.setdefault(one.name, []).append(one.most)

    def give_back(self, holds: Iterable[Held]) -> None:
        """Hold these no longer."""
        for one in holds:
            self._held[one.name].remove(one.most)


class Holding:
    """What the steps of a run hold while they run. One that goes on with another turn keeps what it has.

    Args:
        holds: Per step that holds something, what that is.
        resources: Who holds what; calls of tools count there too.
    """

    def __init__(self, holds: Mapping[int, tuple[Held, ...]], resources: Resources) -> None:
        self._holds, self._resources = holds, resources
        self._holding: set[int] = set()

    def line(self, step: int) -> str:
        """Name what a step holds, as a part of the name of its line; empty for one that holds nothing."""
        return f" {self._holds[step]}" if step in self._holds else ""

    def is_free(self, step: int) -> bool:
        """Tell whether a step could have what it holds now."""
        return step in self._holding or self._resources.are_free(self._holds.get(step, ()))

    def take(self, step: int) -> None:
        """Let a step have what it holds, if it has it not."""
        if step in self._holds and step not in self._holding:
            self._resources.take(self._holds[step])
            self._holding.add(step)

    def give_back(self, step: int) -> None:
        """Take from a step what it has."""
        if step in self._holding:
            self._holding.discard(step)
            self._resources.give_back(self._holds[step])


class _Asked:
    """A call that waits, with the word for what it waits for."""

    __slots__ = ("call", "free", "held_by")

    def __init__(self, call: Call, held_by: str) -> None:
        self.call, self.held_by = call, held_by
        self.free = not call.wanted.ask
        """Whether no person has to agree to it any more."""


class Calls:
    """The calls of a run that wait or run, by step: the calls of a turn are asked for together.

    Args:
        resources: Who holds what, steps included.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._waiting: dict[int, dict[int, _Asked]] = {}
        self._running: dict[int, dict[int, Call]] = {}

    def want(self, step: int, turn: int, first: int, wanted: Sequence[Wanted], held_by: str = "") -> None:
        """Add the calls of a turn.

        Args:
            step: Whose they are.
            turn: The number of the attempt whose response asked for them; 0 for a task.
            first: The number of the first of them.
            wanted: The calls.
            held_by: What they have waited for already.
        """
        asked = {number: _Asked(Call(step, number, turn, one), held_by) for number, one in enumerate(wanted, first)}
        self._waiting.setdefault(step, {}).update(asked)

    def questions(self, steps: Iterable[int]) -> list[Call]:
        """Return the calls of these steps that a person has to agree to."""
        return [one.call for step in steps for one in self._waiting.get(step, {}).values() if not one.free]

    def agree(self, call: Call, wanted: Wanted) -> Call | None:
        """Record that a person has agreed to a call, as it is now; `None` where it does not wait any more."""
        asked = self._waiting.get(call.step, {}).get(call.number)
        if asked is None:
            return None
        asked.call, asked.free, asked.held_by = call._replace(wanted=wanted), True, "person"
        return asked.call

    def next(self) -> tuple[Call, str] | None:
        """Begin the first call that may: return it, and what it had waited for; `None` where none may."""
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
        """Return what a call waits for; `None` where it may begin."""
        if not asked.free:
            return "person"
        call = asked.call
        beside = self._running.get(call.step)
        if beside and (call.wanted.alone or any(one.wanted.alone for one in beside.values())):
            return "alone"
        return None if self._resources.are_free(call.wanted.holds) else "resource"

    def take_out(self, call: Call) -> bool:
        """Forget a call that has not begun; `False` where it has."""
        return _take(self._waiting, call)

    def ended(self, call: Call) -> None:
        """Record that a call has ended."""
        _take(self._running, call)
        self._resources.give_back(call.wanted.holds)

    def drop(self, step: int) -> None:
        """Forget the calls of a step that have not begun."""
        self._waiting.pop(step, None)

    def running(self, step: int) -> list[Call]:
        """Return the calls of a step that run."""
        return [*self._running.get(step, {}).values()]

    def has(self, step: int) -> bool:
        """Tell whether a step has calls that wait or run."""
        return step in self._waiting or step in self._running

    def held_by(self, step: int) -> str:
        """Return what a step waits for whose calls all wait; an empty string where one runs, or there is none."""
        if step in self._running:
            return ""
        return next((asked.held_by for asked in self._waiting.get(step, {}).values()), "")


def _take(calls: dict[int, dict[int, T]], call: Call) -> bool:
    """Take a call out of those of its step; `False` where it is not among them."""
    of_step = calls.get(call.step, {})
    found = of_step.pop(call.number, None) is not None
    if found and not of_step:
        del calls[call.step]
    return found
