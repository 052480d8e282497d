"""One request or one call made for an agent, and facts of many requests, defined once for all that count them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

from agent_magic.record.answer import ESCALATED, PAID_BEFORE, SHARED, TIMED, TURNS, is_same_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent_magic.record.answer import Answer, Price, Source, Usage
    from agent_magic.record.events import Artifact, AttemptEnded, AttemptStarted, CallEnded, CallStarted
    from agent_magic.record.request import Request

APPROVAL: Final = "approval"
"""In place of a function's name: a person's review of an answer."""
SAVE: Final = "save"
"""In place of a function's name: writing an answer to a file."""


Began = TypeVar("Began", bound="AttemptStarted | CallStarted")
Ended = TypeVar("Ended", bound="AttemptEnded | CallEnded")


@dataclass(slots=True, repr=False)
class Timed(Generic[Began, Ended]):
    """A view of the first and last event of a request or call. Seconds since the run began; `None` means unknown.

    Attributes:
        free_s: When its agent could have begun it: ready, or done with the attempt or call before.
        backoff_s: Seconds of backoff from then on after a failure.
    """

    agent: str
    begun: Began
    free_s: float
    backoff_s: float = 0.0
    ended: Ended | None = None

    @property
    def number(self) -> int:
        return self.begun.number

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
        """The reason the agent waited before."""
        return self.begun.held_by

    @property
    def error(self) -> str | None:
        return None if self.ended is None else self.ended.error

    @property
    def kind(self) -> str | None:
        """The class of the error, such as `RateLimited`, or `cancelled`; `None` for a success."""
        return None if self.ended is None else self.ended.kind

    @property
    def source(self) -> Source | None:
        return None if self.ended is None else self.ended.source

    @property
    def worker(self) -> str:
        return "" if self.ended is None else self.ended.worker


@dataclass(slots=True, repr=False)
class ToolCall(Timed["CallStarted", "CallEnded"]):
    """A call of a function: by a response, of a task, or in place of one. `prints` is the output so far."""

    prints: str = ""

    def __repr__(self) -> str:
        return f"ToolCall({self.agent!r}, {self.tool}: {self.status})"

    def printed(self, text: str) -> None:
        self.prints += text

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
    def result(self) -> str:
        return "" if self.ended is None else self.ended.result

    @property
    def is_own(self) -> bool:
        """True if no response requested it: a task, a person's review, or saving an answer."""
        return not self.begun.id

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return () if self.ended is None else self.ended.artifacts

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


@dataclass(slots=True, repr=False)
class Attempt(Timed["AttemptStarted", "AttemptEnded"]):
    """One request. `turn` is of its conversation, from 1; a retry has the turn of the failed attempt."""

    turn: int = 1
    first_token_s: float | None = None

    def __repr__(self) -> str:
        return f"Attempt({self.agent!r}, number {self.number}: {self.status})"

    @property
    def request(self) -> Request:
        return self.begun.request

    @property
    def model(self) -> str:
        return self.begun.request.model

    @property
    def model_used(self) -> str:
        """The model that answered, under the requested name if it is an alias of it."""
        found = self.answer.model if self.answer is not None else ""
        return found if found and not is_same_model(self.model, found) else self.model

    @property
    def queued_s(self) -> float:
        return self.begun.granted_s - self.free_s - self.backoff_s

    @property
    def granted_s(self) -> float:
        return self.begun.granted_s

    @property
    def answer(self) -> Answer | None:
        return None if self.ended is None else self.ended.answer

    @property
    def partial(self) -> str:
        return "" if self.ended is None else self.ended.partial

    @property
    def usage(self) -> Usage | None:
        return None if self.ended is None else self.ended.usage

    @property
    def price(self) -> Price | None:
        return None if self.ended is None else self.ended.price

    @property
    def cost_usd(self) -> float | None:
        return None if self.ended is None else self.ended.price.cost_usd

    @property
    def is_served(self) -> bool:
        """True if the answer was bought before, or by an identical step."""
        ended = self.ended
        return ended is not None and (ended.source == "ledger" or ended.price in {PAID_BEFORE, SHARED})

    @property
    def is_shared(self) -> bool:
        return self.ended is not None and self.ended.price == SHARED

    @property
    def is_timed(self) -> bool:
        """True if its seconds are a model's work: it was sent, and not by batch."""
        answer = self.answer
        return self.source in TIMED and not self.is_served and not (answer is not None and answer.batch)

    @property
    def asks_for_more(self) -> bool:
        """True for a turn of a conversation that goes on."""
        return self.answer is not None and self.answer.stop_reason in TURNS

    @property
    def status_code(self) -> int | None:
        return None if self.ended is None else self.ended.status_code

    @property
    def endpoint(self) -> str:
        return self.begun.endpoint

    @property
    def status(self) -> str:
        """`running`, `succeeded`, `escalated`, `failed` or `cancelled`."""
        if self.ended is None:
            return "running"
        if self.ended.error is None:
            return "succeeded"
        return self.ended.kind.lower() if self.ended.kind in {"cancelled", ESCALATED} else "failed"

    @property
    def is_answered(self) -> bool:
        """True if the answer is complete, even if the next model of a cascade was asked."""
        return self.answer is not None and self.kind in {None, ESCALATED}

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_s is None else self.first_token_s - self.begun.at_s


class Asker(Protocol):
    """The result of a step."""

    @property
    def attempts(self) -> Sequence[Attempt]: ...


@dataclass(frozen=True, slots=True)
class Facts:
    """The requests of a step, of several, or of a run, served answers included."""

    # Computed on access, since an active run grows.

    attempts: Sequence[Attempt]

    @classmethod
    def of(cls, results: Iterable[Asker]) -> Self:
        return cls([attempt for result in results for attempt in result.attempts])

    @property
    def sent(self) -> list[Attempt]:
        """Those that went to a provider, not to the ledger or an identical step."""
        return [one for one in self.attempts if not one.is_served]

    @property
    def answered(self) -> list[Attempt]:
        return [one for one in self.sent if one.is_answered]

    @property
    def batched(self) -> list[Attempt]:
        return [one for one in self.sent if one.answer is not None and one.answer.batch]

    @property
    def timed(self) -> list[Attempt]:
        """Those with seconds of a model's work."""
        return [one for one in self.attempts if one.is_timed]

    @property
    def paid_before(self) -> list[Attempt]:
        return [one for one in self.attempts if one.price == PAID_BEFORE]

    @property
    def shared(self) -> list[Attempt]:
        return [one for one in self.attempts if one.is_shared]

    @property
    def running(self) -> list[Attempt]:
        return [one for one in self.attempts if one.ended is None]

    @property
    def ended(self) -> list[Attempt]:
        return [one for one in self.attempts if one.ended is not None]

    @property
    def succeeded(self) -> list[Attempt]:
        """Served ones included."""
        return [one for one in self.attempts if one.status == "succeeded"]

    @property
    def failed(self) -> list[Attempt]:
        """Not those that were cancelled, or passed to a dearer model."""
        return [one for one in self.attempts if one.status == "failed"]

    @property
    def rate_limited(self) -> list[Attempt]:
        return [one for one in self.attempts if one.kind == "RateLimited"]

    @property
    def unpriced(self) -> list[Attempt]:
        return [one for one in self.ended if one.cost_usd is None]

    @property
    def estimated(self) -> list[Attempt]:
        return [one for one in self.sent if one.usage is not None and one.usage.estimated]

    @property
    def requests(self) -> list[Request]:
        return [one.request for one in self.attempts]

    @property
    def usages(self) -> list[Usage]:
        return [one.usage for one in self.attempts if one.usage is not None]

    @property
    def costs_usd(self) -> list[float | None]:
        return [one.cost_usd for one in self.attempts]

    @property
    def api_s(self) -> float:
        return sum(one.duration_s or 0.0 for one in self.attempts)

    @property
    def backoff_s(self) -> float:
        return sum(one.backoff_s for one in self.attempts)

    @property
    def queued_s(self) -> float:
        return sum(one.queued_s for one in self.attempts)

    @property
    def spans(self) -> list[tuple[float, float]]:
        return [(one.started_s, one.ended_s) for one in self.sent if one.ended_s is not None]

    @property
    def turns(self) -> int:
        """The longest conversation's turns."""
        return max((one.turn for one in self.attempts), default=0)

    @property
    def waits(self) -> list[tuple[str, float]]:
        """Reasons and seconds of waits; backoff counts with the next wait's reason."""
        return [(one.held_by, one.queued_s + one.backoff_s) for one in self.attempts]

    @property
    def peak(self) -> int:
        """The most that were under way at once."""
        return overlap([(one.granted_s, math.inf if one.ended_s is None else one.ended_s) for one in self.attempts])[0]

    @property
    def agents(self) -> list[str]:
        """In the order of their first requests."""
        return list(dict.fromkeys(one.agent for one in self.attempts))

    @property
    def models(self) -> set[str]:
        return {one.model for one in self.attempts}

    @property
    def reasons(self) -> set[str]:
        return {one.held_by for one in self.attempts}

    @property
    def kinds(self) -> set[str | None]:
        return {one.kind for one in self.attempts}

    @property
    def sources(self) -> set[Source | None]:
        return {one.source for one in self.attempts}


def overlap(spans: Iterable[tuple[float, float]]) -> tuple[int, float]:
    """Return the maximum overlap of spans, and the seconds covered by at least one."""
    edges = sorted([(at, step) for start, end in spans for at, step in ((start, 1), (end, -1))])
    peak, now, covered, before = 0, 0, 0.0, 0.0
    for at, step in edges:
        if now:
            covered += at - before
        now, before = now + step, at
        peak = max(peak, now)
    return peak, covered


ENOUGH: Mapping[int, int] = {50: 1, 95: 20, 99: 100}
"""With fewer values it would be the largest of them."""


def percentile(values: Iterable[float], percent: int) -> float | None:
    """Return a percentile by nearest rank; `None` if there are fewer values than `ENOUGH`."""
    found = sorted(values)
    if len(found) < ENOUGH.get(percent, 1):
        return None
    return found[max(0, math.ceil(percent * len(found) / 100) - 1)]
