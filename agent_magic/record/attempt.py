"""One request made for an agent, as its two events tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_magic.record.answer import ESCALATED, PAID_BEFORE, SHARED, TIMED, TURNS
from agent_magic.record.model_names import is_same_model

if TYPE_CHECKING:
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
