"""The states of an agent on the screen: one character each, with a shape and a colour.

The characters are also class names in the picture (`s-r`) and the synced string of the live view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agent_magic.record.display import single_line
from agent_magic.record.results import capped_steps

if TYPE_CHECKING:
    from agent_magic.record.facts import Attempt
    from agent_magic.record.results import AgentResult, RunRecord


class State(NamedTuple):
    """The look of a state, in a picture and in a terminal (in Unicode and in ASCII)."""

    word: str
    icon: str
    ink: str
    signs: str
    style: str


STATES = {
    "p": State("pending", "M6 2.2a3.8 3.8 0 1 0 .01 0", "idle", "·.", "dim"),
    "q": State("queued", "M4 2.4v7.2M8 2.4v7.2", "idle", "==", "dim"),
    "r": State("running", "M3.4 2v8L10 6z", "run", "▶>", "bold cyan"),
    "s": State("succeeded", "M2 6.5l2.8 2.9L10 3", "done", "✓+", "green"),
    "l": State("succeeded", "M2.6 4.2A4 4 0 1 1 2.2 7.3M2.2 1.6v2.8H5", "kept", "↺o", "magenta"),
    "y": State("succeeded", "M2.4 2.6L5.8 6 2.4 9.4M6.6 2.6L10 6 6.6 9.4", "tape", "»@", "blue"),
    "f": State("failed", "M2.6 2.6l6.8 6.8M9.4 2.6L2.6 9.4", "fail", "✗X", "bold red"),
    "k": State("skipped", "M6 1.9a4.1 4.1 0 1 0 .01 0M3.2 8.8l5.6-5.6", "idle", "--", "dim"),
    "u": State("not needed", "M2.2 6h1.4M5.3 6h1.4M8.4 6h1.4", "idle", "○_", "dim"),
    "c": State("cancelled", "M2.6 2.6h6.8v6.8H2.6z", "idle", "■#", "dim"),
    "m": State("capped", "M2 2h8M2.4 7.4l2.5 2.4 4.6-4.9", "wait", "≡~", "yellow"),
}
"""`l` and `y` are reused answers: from the ledger, from a cassette."""

DONE = frozenset("slym")
LOST = frozenset("fkc")
OF_STATUS = {
    "pending": "p",
    "queued": "q",
    "running": "r",
    "succeeded": "s",
    "failed": "f",
    "skipped": "k",
    "unused": "u",
    "cancelled": "c",
    "capped": "m",
    "escalated": "m",
}
SOURCES = {
    "live": "s",
    "simulated": "s",
    "forecast": "s",
    "ledger": "l",
    "shared": "l",
    "edited": "l",
    "replay": "y",
}
"""The state of a succeeded answer by source; its word is the badge, unless it was bought now (`s`)."""
MEANINGS = {
    "l": "not paid again: from the ledger, shared with an equal row, or edited",
    "y": "from a recording",
    "k": "skipped: an input is missing, or its condition is false",
}


def _of_source(source: str | None) -> str:
    return SOURCES[source or "live"]


def state_of(result: AgentResult, source: str | None = None) -> str:
    """Return queued if all its calls wait. `source` is from `source_at`."""
    if result.is_waiting:
        return OF_STATUS["queued"]
    if result.status == "succeeded":
        return _of_source(source or result.source)
    return OF_STATUS[result.status]


def states_of(record: RunRecord) -> str:
    """Return all characters; a loop that ended at its cap is capped in its last round."""
    capped = capped_steps(record)
    return "".join(state_at(record, number, capped=number in capped) for number in range(len(record.results)))


def unmet(until: str | None) -> str:
    return f"not met: {single_line(until)}" if until else ""


def state_at(record: RunRecord, number: int, *, capped: bool) -> str:
    """Return a step's state; `capped` if it is in a last round and the condition does not hold."""
    state = state_of(record.results[number], record.source_at(number))
    return OF_STATUS["capped"] if capped and state in DONE else state


def meaning_of(state: str) -> str:
    return MEANINGS.get(state, STATES[state].word)


def tone_of(attempt: Attempt) -> str:
    if attempt.status == "succeeded":
        return _of_source(attempt.source)
    return OF_STATUS[attempt.status]


def badge_of(source: str | None) -> str:
    """Return `ledger`, `replay`, `shared` or `edited` for a reused answer."""
    return source if source and _of_source(source) != "s" else ""


def source_word(source: str | None) -> str:
    """Return the source of an answer; empty for the live API."""
    return "" if source is None or source == "live" else source
