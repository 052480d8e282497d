"""One request made for an agent, and facts of many, defined once for all that count or sum them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from agent_magic.record.answer import ESCALATED, PAID_BEFORE, SHARED, TIMED, TURNS, is_same_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_magic.record.answer import Answer, Price, Source, Usage
    from agent_magic.record.events import AttemptEnded, AttemptStarted
    from agent_magic.record.request import Request


@dataclass(slots=True, repr=False)
class Attempt:
    """A view of the events of one request. Times in seconds since the run began; `None` means unknown.

    Attributes:
        free_s: When its agent could have sent it: ready, or done with the attempt before.
        backoff_s: Seconds of backoff from then on after a failure.
        turn: Turn of the conversation, from 1. A retry has the turn of the failed attempt.
    """

    agent: str
    begun: AttemptStarted
    free_s: float
    backoff_s: float = 0.0
    turn: int = 1
    ended: AttemptEnded | None = None
    first_token_s: float | None = None

    def __repr__(self) -> str:
        return f"Attempt({self.agent!r}, number {self.number}: {self.status})"

    @property
    def number(self) -> int:
        return self.begun.number

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
    def started_s(self) -> float:
        return self.begun.at_s

    @property
    def held_by(self) -> str:
        """The reason the agent waited before."""
        return self.begun.held_by

    @property
    def ended_s(self) -> float | None:
        return None if self.ended is None else self.ended.at_s

    @property
    def answer(self) -> Answer | None:
        return None if self.ended is None else self.ended.answer

    @property
    def error(self) -> str | None:
        return None if self.ended is None else self.ended.error

    @property
    def kind(self) -> str | None:
        """The class of the error, such as `RateLimited`, or `cancelled`; `None` for a success."""
        return None if self.ended is None else self.ended.kind

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
    def source(self) -> Source | None:
        return None if self.ended is None else self.ended.source

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
    def worker(self) -> str:
        return "" if self.ended is None else self.ended.worker

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

    @property
    def api_s(self) -> float | None:
        return None if self.ended is None else self.ended.at_s - self.begun.at_s


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
        return sum(one.api_s or 0.0 for one in self.attempts)

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
