"""Answers of admission: a request's needs, and whether it must wait or can never be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from agent_magic.engine.admission.budget import Worst
    from agent_magic.record.reasons import Reason

FOREVER: Final = float("inf")


class Hold(NamedTuple):
    """The request must wait."""

    reason: Reason
    until_s: float  # try again then, and after every answer, which may free more than expected
    falls_back: bool = False  # its model does not answer now and another may


class Never(NamedTuple):
    """The request can never be sent in this run."""

    why: str
    kind: str  # its class, such as `BudgetExceeded`
    keeps: bool = False  # end as `capped`, passing on the partial answer
    falls_back: bool = False  # its model does not answer and another may


class Need(NamedTuple):
    """The needs of a request."""

    model: str
    input_tokens: int
    output_tokens: int  # expected; the pacer learns the real distribution
    worst: Worst
    free: bool = False  # its answer is available and nothing is sent
    shared_tokens: int = 0  # input that may be read from the cache, outside of limits
    least: Worst | None = None  # the most with the shortest possible input; `None` if only `worst` is known
    keeps: bool = False  # a partial answer can be passed on if the budget does not allow the rest


class Room(Protocol):
    """Admits agents."""

    def line(self, agent: int) -> str: ...

    def enter(self, agent: int, now: float) -> Hold | Never | None:
        """Reserve for the agent and return `None`, or return the hold."""
        ...
