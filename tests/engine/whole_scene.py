"""What the simulated runs are made of: agents, what comes of their requests, limits, hands, and runs beside others."""

# Tests hand over wrong types on purpose.
# pyright: reportArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent_magic import Policy
from agent_magic.errors import Overloaded, RateLimited, Refused, Rejected, Truncated, Unreachable

FAULTS: dict[str, Any] = {
    "429": RateLimited("busy"),
    "429 after 3": RateLimited("busy", retry_after_s=3.0),
    "429 for good": RateLimited("spent", final=True),
    "529": Overloaded("full", status=529),
    "500 after 2": Overloaded("broken", status=500, retry_after_s=2.0),
    "reset": Unreachable("reset"),
    "nowhere": Unreachable("no connection", sent=False),
    "cut": Truncated("cut"),
    "refusal": Refused("no"),
    "400": Rejected("wrong", status=400),
    "401": Rejected("key", status=401),
}
"""What can go wrong with an attempt, besides `hang`, which ends by a deadline only."""
ANSWERS = frozenset({"ok", "turn", "capped"})
"""An answer, one that goes on with another request, and one that is to have no more of them."""
PRODUCES = frozenset({"reset", "cut", "refusal"})
"""Faults of an answer that had begun. The others come at once, and cost nothing."""


@dataclass(frozen=True)
class Asked:
    """One agent: what its requests take, and what comes of each in turn, the last one for ever."""

    takes_s: float = 1.0
    input_tokens: int = 100
    output_tokens: int = 100
    fates: tuple[str, ...] = ("ok",)
    model: str = "claude-haiku-5-5"
    group: str | None = None
    timeout_s: float = 100.0
    guess: float = 1.0
    first: float = 0.25

    @property
    def worst_tokens(self) -> int:
        """The most it can use."""
        return self.input_tokens + self.output_tokens

    @property
    def is_misled(self) -> bool:
        """Whether the server refuses it for no reason that its limits explain."""
        return any(fate.startswith("429") for fate in self.fates)


@dataclass(frozen=True)
class Scene:
    """What a run is made of.

    Attributes:
        parents: Per agent, the agents it waits for.
        asked: Per agent, its requests.
        limits: Requests, input and output tokens per minute; `None` is a server without limits or headers.
        burst_s: Seconds' worth of them that may pass at once.
        told: Whether the user has told the pacer the limits.
        key: Whether nobody has seen yet that the key is taken.
        began_s: When the run begins on the pacer's clock.
        controls: (time, what, agents or None): `cancel`, `skip`, `retry`, `pause`, `resume`.
        others: Further runs of the session, each with when it begins. They share its slots, its pacer, its key and the
            server: of these only this scene's own count.
    """

    parents: tuple[tuple[int, ...], ...]
    asked: tuple[Asked, ...]
    policy: Policy = field(default_factory=lambda: Policy(seed=1))
    limits: tuple[float, float, float] | None = None
    burst_s: float = 1.0
    told: bool = False
    controls: tuple[tuple[float, str, tuple[int, ...] | None], ...] = ()
    key: bool = False
    began_s: float = 0.0
    others: tuple[tuple[float, Scene], ...] = ()
