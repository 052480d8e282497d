"""Not now: what holds a request, and when to ask again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_magic.record.reasons import Reason


@dataclass(frozen=True, slots=True)
class Hold:
    """Not now.

    Attributes:
        reason: What holds the request; see `agent_magic.record.reasons`.
        until_s: When to ask again. Ask after every answer too: it may have brought more room than was expected.
    """

    reason: Reason
    until_s: float
