"""Dead letters: steps that failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.declare.validation import names_of
from agent_magic.errors import PlanError
from agent_magic.measure.frames import frame_of, make_frame, table
from agent_magic.record.display import single_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from agent_magic.record.results import AgentResult, RunRecord

DEAD = table("agent error_class error attempts transient request model http_status started_s finished_s")
"""`request` is the first line of the last prompt; `transient` if the request is not to blame for the failure."""
ALL_DEAD = {**table("run began_at plan"), **DEAD}
TRANSIENT = frozenset(
    {"RateLimited", "Overloaded", "Unreachable", "Truncated", "Unreadable", "NotInBatch", "Late", "BudgetExceeded"}
)
MOST_REQUEST = 100
"""Characters shown of a prompt's first line."""


def dead_frame(record: RunRecord) -> pd.DataFrame:
    """Leave out steps that were skipped because of a failed one, or stopped by the user."""
    return frame_of(map(_row, _failed(record)), DEAD, record)


def all_dead_frame(runs: Iterable[tuple[int, RunRecord]]) -> pd.DataFrame:
    """Leave out requests answered since."""
    rows: list[Mapping[str, Any]] = []
    later: set[tuple[str, str]] = set()  # a later request: its newest outcome counts
    for number, record in runs:
        head = {"run": number, "began_at": record.began_at, "plan": record.plan.name}
        rows += [head | _row(one) for one in _failed(record) if _asked(one) not in later]
        later |= {_asked(one) for one in record.results if one.status in {"succeeded", "failed"}}
    return make_frame(rows, ALL_DEAD)


def to_requeue(record: RunRecord, names: str | Iterable[str] | None, before: Iterable[str] = ()) -> list[str]:
    """Return the named steps, or those with a transient error."""
    dead = {one.name: one for one in _failed(record)}
    if names is not None:
        asked = [record.plan.names[number] for number in record.plan.numbers(names)]
        known = dead.keys() | {one for one in before if one in record.plan.index and record[one].status != "succeeded"}
        if found := [name for name in asked if name in known]:
            return found
        raise PlanError(f"None of {', '.join(names_of(names))} failed for good. run.dead lists what did.")
    found = [name for name, one in dead.items() if _class_of(one) in TRANSIENT]
    if not found and dead:
        known = ", ".join(sorted({_class_of(one) or "error" for one in dead.values()}))
        raise PlanError(f"Asking again will not help ({known}). Fix the cause, or name the agents to ask anyway.")
    if not found:
        raise PlanError("No step of this run failed for good, so there is nothing to ask again.")
    return found


def _failed(record: RunRecord) -> list[AgentResult]:
    return [one for one in record.results if one.status == "failed"]


def _class_of(result: AgentResult) -> str | None:
    """Return the error class; in a killed run only the last attempt has it."""
    return result.kind or (result.attempts[-1].kind if result.attempts else None)


def _prompt(result: AgentResult) -> str:
    return result.attempts[-1].request.prompt if result.attempts else ""


def _asked(result: AgentResult) -> tuple[str, str]:
    return result.name, _prompt(result)


def _row(result: AgentResult) -> dict[str, Any]:
    lines = _prompt(result).strip().splitlines() or [""]
    last = result.attempts[-1] if result.attempts else None
    return {
        "agent": result.name,
        "error_class": _class_of(result),
        "error": result.error,
        "attempts": len(result.calls if result.is_task else result.attempts),
        "transient": _class_of(result) in TRANSIENT,
        "request": single_line(lines[0])[:MOST_REQUEST] or None,
        "model": None if result.is_task else result.model,
        "http_status": last.status_code if last else None,
        "started_s": result.started_s,
        "finished_s": result.finished_s,
    }
