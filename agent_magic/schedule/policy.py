"""A policy: how to run. A value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from agent_magic.declare.agent import is_number
from agent_magic.errors import DeclarationError, did_you_mean

Schedule = Literal["ready", "layers", "sequential"]
"""`ready`: an agent starts when its own parents are done. `layers`: when all agents of earlier layers are done, to
measure what such a barrier costs. `sequential`: one after another."""

OnLimit = Literal["fail", "warn", "allow"]
"""What becomes of an answer that was cut at `max_tokens`: not passed on, passed on with a warning, passed on."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How to run a plan.

    Args:
        concurrency: The most requests under way at once.
        schedule: Who may start when; see `Schedule`.
        max_attempts: The most requests for one agent. Only failures that another try can mend are repeated.
        timeout_s: The deadline of agents that name none: seconds from their first request to their last.
        on_max_tokens: What becomes of an answer that was cut at its `max_tokens`.
        seed: Makes the jitter of waiting times repeatable.

    Raises:
        DeclarationError: A value cannot work.
    """

    concurrency: int = 8
    schedule: Schedule = "ready"
    max_attempts: int = field(default=3, kw_only=True)
    timeout_s: float = field(default=300.0, kw_only=True)
    on_max_tokens: OnLimit = field(default="warn", kw_only=True)
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for option in ("concurrency", "max_attempts"):
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DeclarationError(f"{option}={value!r} cannot work.", hint="Give a whole number from 1.")
        if not (is_number(self.timeout_s) and 0 < self.timeout_s < math.inf):
            raise DeclarationError(f"timeout_s={self.timeout_s!r} cannot work.", hint="Give seconds above 0.")
        for option, words in (("schedule", get_args(Schedule)), ("on_max_tokens", get_args(OnLimit))):
            value = getattr(self, option)
            if value not in words:
                hint = f"One of {', '.join(words)}.{did_you_mean(str(value), words)}"
                raise DeclarationError(f"{option}={value!r} cannot work.", hint=hint)
