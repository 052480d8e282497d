"""Runs as arguments: what is none is answered before anything is worked out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.errors import DeclarationError, shown_value
from agent_magic.record.results import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable


def record_of(held: object, what: str) -> RunRecord:
    """Return the record of a run.

    Args:
        held: The run.
        what: What it was given to, for the message.

    Raises:
        DeclarationError: It is no run.
    """
    record: Any = getattr(held, "record", None)
    if not isinstance(record, RunRecord):
        hint = "Give what plan.run(...) or %agents run returned."
        raise DeclarationError(f"{what} takes runs, and {shown_value(held)} is none.", hint=hint)
    return record


def check_runs(given: Iterable[object], what: str) -> None:
    """Raise `DeclarationError` for the first that is no run."""
    for held in given:
        record_of(held, what)
