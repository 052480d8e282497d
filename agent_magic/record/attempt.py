"""One request made for an agent, as its two events tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_magic.record.answer import ESCALATED, PAID_BEFORE

if TYPE_CHECKING:
    from agent_magic.record.answer import Answer, Price, Source, Usage
    from agent_magic.record.events import AttemptEnded, AttemptStarted
    from agent_magic.record.request import Request


@dataclass(slots=True, repr=False)
class Attempt:
    """One request made for an agent. Times in seconds since the run began; `None` is unknown.

    It holds its events and reads everything else from them: nothing is copied.

    Attributes:
        agent: The agent's name.
        begun: The event of its start.
        free_s: Since when its agent could have gone: ready, or done with the attempt before.
        backoff_s: How long it waited from then on because that one had failed.
        turn: Which turn of the conversation it asks for: 1 for the first. A retry asks for the same one again.
        ended: The event of its end; `None` while it runs.
        first_token_s: When the first token of its answer came; `None` where none has.
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
        """1 for the first."""
        return self.begun.number

    @property
    def request(self) -> Request:
        """What was asked."""
        return self.begun.request

    @property
    def model(self) -> str:
        """The model asked."""
        return self.begun.request.model

    @property
    def queued_s(self) -> float:
        """Seconds it waited to be let go, the backoff left out."""
        return self.begun.granted_s - self.free_s - self.backoff_s

    @property
    def granted_s(self) -> float:
        """When the agent was let go."""
        return self.begun.granted_s

    @property
    def started_s(self) -> float:
        """When the request was sent."""
        return self.begun.at_s

    @property
    def held_by(self) -> str:
        """What the agent waited for before."""
        return self.begun.held_by

    @property
    def ended_s(self) -> float | None:
        """When its answer was complete, or it failed; `None` while it runs."""
        return None if self.ended is None else self.ended.at_s

    @property
    def answer(self) -> Answer | None:
        """The complete reply, or `None`."""
        return None if self.ended is None else self.ended.answer

    @property
    def error(self) -> str | None:
        """What went wrong, in one line; `None` for a success."""
        return None if self.ended is None else self.ended.error

    @property
    def kind(self) -> str | None:
        """The class of the error, such as `RateLimited`, or `cancelled`; `None` for a success."""
        return None if self.ended is None else self.ended.kind

    @property
    def partial(self) -> str:
        """The text that had arrived where there is no complete answer."""
        return "" if self.ended is None else self.ended.partial

    @property
    def usage(self) -> Usage | None:
        """Its tokens, answered or not."""
        return None if self.ended is None else self.ended.usage

    @property
    def price(self) -> Price | None:
        """What it cost."""
        return None if self.ended is None else self.ended.price

    @property
    def source(self) -> Source | None:
        """Where its answer came from; `None` where nobody answered."""
        return None if self.ended is None else self.ended.source

    @property
    def is_served(self) -> bool:
        """Whether nothing was sent: its answer was bought before, and came from the ledger or the run before."""
        ended = self.ended
        return ended is not None and (ended.source == "ledger" or ended.price == PAID_BEFORE)

    @property
    def status_code(self) -> int | None:
        """The HTTP status; `None` where there was none."""
        return None if self.ended is None else self.ended.status_code

    @property
    def endpoint(self) -> str:
        """To which of several endpoints it went; empty where there is one."""
        return self.begun.endpoint

    @property
    def worker(self) -> str:
        """The worker process that made it; empty where the kernel did, and while it runs."""
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
        """Whether a whole answer came, also one after which the next model of a cascade was asked."""
        return self.answer is not None and self.kind in {None, ESCALATED}

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the request to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.begun.at_s

    @property
    def api_s(self) -> float | None:
        """Seconds from the request to the end of the reply."""
        return None if self.ended is None else self.ended.at_s - self.begun.at_s
