"""What has to be said of a run in words, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_magic.record.answer import PAID_BEFORE
from agent_magic.record.ledger import saved_usd
from agent_magic.show.units import dollars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.record.results import RunRecord
    from agent_magic.schedule.policy import Policy


def capped_note(record: RunRecord, policy: Policy) -> str:
    """Say which answers were cut, or refused, and passed on; empty where the policy wants no word of it."""
    notes: list[str] = []
    if policy.on_max_tokens == "warn" and record.capped:
        names = _some(record.capped)
        notes.append(
            f"Cut at max_tokens, and passed on as they were: {names}. Give more with max_tokens, or --max-tokens."
        )
    if policy.on_refusal == "warn" and record.refused:
        notes.append(f"Refused, and passed on all the same: {_some(record.refused)}. %agents show NAME has them.")
    return " ".join(notes)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")  # noqa: RUF100


def served_note(record: RunRecord) -> str:
    """Say how many answers were there before the run; an empty string where none was."""
    served = sum(bool(one.attempts) and one.attempts[-1].price == PAID_BEFORE for one in record.results)
    if not served:
        return ""
    saved = saved_usd(record)
    worth = "" if saved is None else f", {dollars(saved)} saved"
    of = f"{served} of {len(record.results)} answers"
    return f"{of} came from the ledger or the run before: $0{worth}. --fresh buys anew."


def ledger_notes(ledger: object) -> list[str]:
    """Take what a ledger has to say, once: a damaged file, a full disk, calls that were under way at a kill."""
    notes: list[str] = getattr(ledger, "notes", [])
    taken = list(notes)
    notes.clear()
    return taken
