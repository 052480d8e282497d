"""One call of a function: of a tool that a response asks for, or of a task."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent_magic.record.answer import Source
    from agent_magic.record.events import Artifact, CallEnded, CallStarted


APPROVAL: Final = "approval"
"""In place of a function's name: a person's review of an answer."""
SAVE: Final = "save"
"""In place of a function's name: writing an answer to a file."""


@dataclass(slots=True, repr=False)
class ToolCall:
    """A view of the events of one call. Times in seconds since the run began; `None` means unknown.

    `free_s` is when it could have begun, `prints` the output so far.
    """

    agent: str
    begun: CallStarted
    free_s: float
    backoff_s: float = 0.0
    ended: CallEnded | None = None
    prints: str = ""

    def __repr__(self) -> str:
        return f"ToolCall({self.agent!r}, {self.tool}: {self.status})"

    def printed(self, text: str) -> None:
        self.prints += text

    @property
    def number(self) -> int:
        return self.begun.number

    @property
    def turn(self) -> int:
        """Number of the attempt that requested it; 0 for a task."""
        return self.begun.turn

    @property
    def tool(self) -> str:
        """The name of the function."""
        return self.begun.tool

    @property
    def arguments(self) -> str:
        return self.begun.arguments

    @property
    def started_s(self) -> float:
        return self.begun.at_s

    @property
    def ended_s(self) -> float | None:
        return None if self.ended is None else self.ended.at_s

    @property
    def duration_s(self) -> float | None:
        """Seconds from its start to its end."""
        return None if self.ended is None else self.ended.at_s - self.begun.at_s

    @property
    def held_by(self) -> str:
        return self.begun.held_by

    @property
    def result(self) -> str:
        return "" if self.ended is None else self.ended.result

    @property
    def error(self) -> str | None:
        return None if self.ended is None else self.ended.error

    @property
    def kind(self) -> str | None:
        return None if self.ended is None else self.ended.kind

    @property
    def source(self) -> Source | None:
        return None if self.ended is None else self.ended.source

    @property
    def is_own(self) -> bool:
        """True if no response requested it: a task, a person's review, or saving an answer."""
        return not self.begun.id

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return () if self.ended is None else self.ended.artifacts

    @property
    def worker(self) -> str:
        return "" if self.ended is None else self.ended.worker

    @property
    def is_served(self) -> bool:
        return self.source == "ledger"

    @property
    def status(self) -> str:
        """`running`, `succeeded`, `failed`, `denied` by a person, or `cancelled`: it may have finished."""
        return "running" if self.ended is None else self.ended.status


class Stretch(NamedTuple):
    """A span of an agent's time between two requests; in tools, the reason is their names."""

    kind: Literal["tool", "queued"]
    reason: str
    start_s: float
    end_s: float | None


def stretches(calls: Sequence[ToolCall], since_s: float) -> Iterator[Stretch]:
    """Yield the time of calls that began together: tools' while any runs, else waiting."""
    running = [one for one in calls if one.ended is None]
    marks = {one.started_s for one in calls} | {one.ended.at_s for one in calls if one.ended is not None}
    for start_s, end_s in pairwise(sorted({since_s, *(mark for mark in marks if mark > since_s)})):
        ran = [one for one in calls if one.started_s <= start_s and (one.ended is None or one.ended.at_s > start_s)]
        if ran:
            yield Stretch("tool", tools_of(ran), start_s, end_s)
        else:
            held = next((one.held_by for one in calls if one.started_s == end_s), "")
            yield Stretch("queued", held, start_s, end_s)
    if running:
        yield Stretch("tool", tools_of(running), max(since_s, *marks), None)


def own_text(calls: Sequence[ToolCall], turn: int) -> str:
    """Return a task's result (turn 0), or an answer as edited by a person; empty for neither."""
    own = [one for one in calls if one.is_own and one.turn == turn]
    return next((one.result for one in reversed(own) if not turn or one.tool == APPROVAL), "")


def tools_of(calls: Sequence[ToolCall]) -> str:
    return ", ".join(dict.fromkeys(one.tool for one in calls))
