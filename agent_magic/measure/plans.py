"""Plans as tables: steps to do, and differences between two versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.declare.plan_json import plan_to_dict
from agent_magic.declare.units import plural
from agent_magic.measure.frames import make_frame
from agent_magic.record.display import single_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.plan import Plan

TODO: Mapping[str, str] = {
    "step": "string",
    "status": "string",
    "owner": "string",
    "after": "string",
    "layer": "Int64",
    "priority": "Int64",
    "expected_s": "Float64",
    "expected_usd": "Float64",
}
DIFF: Mapping[str, str] = {
    "step": "string",
    "change": "string",
    "field": "string",
    "before": "string",
    "after": "string",
}
_LEFT_OUT = frozenset({"name", "depends_on"})
"""`depends_on` follows from prompt and `after`."""


def todo_frame(
    plan: Plan, known: Mapping[str, str], expected: Sequence[tuple[float | None, float | None]] = ()
) -> pd.DataFrame:
    """Return a row per step, in a possible order of work, with its status."""
    rows: list[dict[str, Any]] = []
    for number in plan.dag.order:
        step = plan.agents[number]
        seconds, usd = expected[number] if expected else (None, None)
        rows.append(
            {
                "step": step.name,
                "status": known.get(step.name, "pending"),
                "owner": "function" if step.is_task else step.role or step.model or "agent",
                "after": ", ".join(plan.parents(step.name)),
                "layer": plan.dag.layer[number],
                "priority": step.priority,
                "expected_s": seconds,
                "expected_usd": usd,
            }
        )
    return make_frame(rows, TODO)


def needed_rows(frame: pd.DataFrame) -> tuple[list[dict[str, Any]], str]:
    rows: list[Any] = frame.to_dict("records")
    needed = [row for row in rows if row["status"] != "unused"]
    left = len(rows) - len(needed)
    return needed, f"and {plural(left, 'reserved place')} that {'was' if left == 1 else 'were'} not needed" * bool(left)


def todo_words(row: Mapping[str, Any]) -> str:
    after = f", after {row['after']}" if row["after"] else ""
    priority = f", priority {row['priority']}" if row["priority"] else ""
    return after + priority + ("" if row["status"] in {"pending", "succeeded"} else f": {row['status']}")


def todo_markdown(frame: pd.DataFrame) -> str:
    """Return a checklist: `- [x] name (owner), after a, b, priority 2`."""
    lines: list[str] = []
    rows, unused = needed_rows(frame)
    for row in rows:
        done = "x" if row["status"] == "succeeded" else " "
        lines.append(f"- [{done}] **{row['step']}** ({single_line(str(row['owner']))}){todo_words(row)}")
    lines += [unused] if unused else []
    return "\n".join(lines)


def diff_frame(plan: Plan, other: Plan) -> pd.DataFrame:
    (before, values), (after, others) = _parts(plan), _parts(other)
    rows = [_row(name, "removed", "", "", "") for name in before if name not in after]
    rows += [_row(name, "added", "", "", after[name].get("prompt", "")) for name in after if name not in before]
    for name in before:
        if name in after:
            rows += _changes(name, before[name], after[name])
    rows += _changes("(values)", values, others)
    return make_frame(rows, DIFF)


def _parts(plan: Plan) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    data = plan_to_dict(plan)
    return {str(row["name"]): row for row in data["agents"]}, data["values"]


def _changes(step: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, str]]:
    fields = [one for one in dict.fromkeys([*before, *after]) if one not in _LEFT_OUT]
    pairs = [(one, before.get(one), after.get(one)) for one in fields]
    return [_row(step, "changed", one, _shown(old), _shown(new)) for one, old, new in pairs if old != new]


def _shown(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _row(step: str, change: str, field: str, before: str, after: str) -> dict[str, str]:
    return {"step": step, "change": change, "field": field, "before": before, "after": after}
