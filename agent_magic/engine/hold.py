"""Not now: what holds a request, and when to ask again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal["requests", "input", "output", "backoff", "slot", "limits", "leader", "budget", "breaker", "key"]
"""What holds a request. The pacer's reasons are a limit, a refusal (`backoff`), that the first reply has not come,
which may tell the limits (`limits`), or that it told none (`slot`)."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Not now.

    Attributes:
        reason: What holds the request.
        until_s: When to ask again. Ask after every answer too: it may have brought more room than was expected.
    """

    reason: Reason
    until_s: float
