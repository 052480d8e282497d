"""The states of an agent on the screen: one character each, with a shape and a colour.

The same characters are class names in the picture (`s-r`), the synced string of the live view, and the keys here.
A state can be told by its shape alone: no icon has its outline from another one by colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_magic.record.answer import Source
    from agent_magic.record.attempt import Attempt
    from agent_magic.record.results import AgentResult


@dataclass(frozen=True, slots=True)
class State:
    """How a state looks.

    Attributes:
        word: What it is called.
        icon: The outline of its icon, in a box of 12 by 12.
    """

    word: str
    icon: str


STATES = {
    "p": State("pending", "M6 2.2a3.8 3.8 0 1 0 .01 0"),
    "q": State("queued", "M4 2.4v7.2M8 2.4v7.2"),
    "r": State("running", "M3.4 2v8L10 6z"),
    "s": State("succeeded", "M2 6.5l2.8 2.9L10 3"),
    "l": State("succeeded", "M2.6 4.2A4 4 0 1 1 2.2 7.3M2.2 1.6v2.8H5"),
    "y": State("succeeded", "M2.4 2.6L5.8 6 2.4 9.4M6.6 2.6L10 6 6.6 9.4"),
    "f": State("failed", "M2.6 2.6l6.8 6.8M9.4 2.6L2.6 9.4"),
    "k": State("skipped", "M6 1.9a4.1 4.1 0 1 0 .01 0M3.2 8.8l5.6-5.6"),
    "c": State("cancelled", "M2.6 2.6h6.8v6.8H2.6z"),
    "m": State("capped", "M2 2h8M2.4 7.4l2.5 2.4 4.6-4.9"),
}
"""Per character. `l` and `y` are successes that were not bought now: out of the ledger, out of a cassette."""

DONE = frozenset("slym")
LOST = frozenset("fkc")
OF_STATUS = {
    "pending": "p",
    "queued": "q",
    "running": "r",
    "succeeded": "s",
    "failed": "f",
    "skipped": "k",
    "cancelled": "c",
    "capped": "m",
}
OF_SOURCE = {"ledger": "l", "replay": "y"}
BADGES = {"simulated": "sim", "ledger": "ledger", "replay": "replay"}


def state_of(result: AgentResult) -> str:
    """Return the character of an agent's state."""
    if result.status == "succeeded":
        return OF_SOURCE.get(result.source or "", "s")
    return OF_STATUS[result.status]


def tone_of(attempt: Attempt) -> str:
    """Return the character of an attempt's state."""
    if attempt.status == "succeeded":
        return OF_SOURCE.get(attempt.source or "", "s")
    return OF_STATUS[attempt.status]


def badge_of(source: Source | str | None) -> str:
    """Return the short mark of a source that is not the live API; empty for the live one."""
    return BADGES.get(source or "", "")
