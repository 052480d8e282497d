"""Answers of admission: a request's needs, and whether it must wait or can never be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from agent_magic.engine.admission.budget import Worst
    from agent_magic.record.reasons import Reason

FOREVER: Final = float("inf")


class Hold(NamedTuple):
    """The request must wait.

    Attributes:
        until_s: When to try again. Try after every answer too, which may free more than expected.
        falls_back: True if its model does not answer now and another may.
    """

    reason: Reason
    until_s: float
    falls_back: bool = False


class Never(NamedTuple):
    """The request can never be sent in this run.

    Attributes:
        kind: Its class, such as `BudgetExceeded`.
        keeps: True to end as `capped`, passing on the partial answer.
        falls_back: True if its model does not answer and another may.
    """

    why: str
    kind: str
    keeps: bool = False
    falls_back: bool = False


class Need(NamedTuple):
    """The needs of a request.

    Attributes:
        output_tokens: Expected output; the pacer learns the real distribution.
        worst: The most it can use.
        least: The most with the shortest possible input; `None` if only `worst` is known.
        free: True if its answer is available and nothing is sent.
        shared_tokens: Input that may be read from the cache, outside of limits.
        keeps: True if a partial answer can be passed on if the budget does not allow the rest.
    """

    model: str
    input_tokens: int
    output_tokens: int
    worst: Worst
    free: bool = False
    shared_tokens: int = 0
    least: Worst | None = None
    keeps: bool = False


class Room(Protocol):
    """Admits agents."""

    def line(self, agent: int) -> str:
        """Return the name of the agent's queue. Agents of one queue share limits."""
        ...

    def enter(self, agent: int, now: float) -> Hold | Never | None:
        """Reserve for the agent and return `None`, or return the hold."""
        ...
