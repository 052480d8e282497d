"""What is said at the door: what a request needs, and whether it may go, has to wait, or never will go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from agent_magic.engine.admission.budget import Worst
    from agent_magic.record.reasons import Reason

FOREVER: Final = float("inf")


class Hold(NamedTuple):
    """Not now.

    Attributes:
        reason: What holds the request; see `agent_magic.record.reasons`.
        until_s: When to ask again. Ask after every answer too: it may have brought more room than was expected.
        falls_back: Whether its model does not answer at the moment, where another one may.
    """

    reason: Reason
    until_s: float
    falls_back: bool = False


class Never(NamedTuple):
    """There will be no room for the agent in this run.

    Attributes:
        why: In one line.
        kind: What that is, such as `BudgetExceeded`.
        keeps: Whether it ends as `capped`: what there is of its answer is passed on.
        falls_back: Whether its model does not answer, where another one may.
    """

    why: str
    kind: str
    keeps: bool = False
    falls_back: bool = False


class Need(NamedTuple):
    """What a request will use.

    Attributes:
        model: The model.
        input_tokens: Its input, estimated.
        output_tokens: Its output, expected. The pacer learns what answers really have.
        worst: The most it can use.
        least: The most it can use if its input is as short as can be; `None` where `worst` is all that can be known.
        free: Whether its answer is there already, so that nothing is sent.
        shared_tokens: The part of its input that may come from the cache, which no limit counts then.
        keeps: Whether a part of its answer is there, to be passed on where the budget has no room for the rest.
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
    """Whoever says when an agent may go."""

    def line(self, agent: int) -> str:
        """Name the line the agent waits in: agents of one line share limits."""
        ...

    def enter(self, agent: int, now: float) -> Hold | Never | None:
        """Take room for the agent, or say what it waits for. `None` means that it may go."""
        ...
