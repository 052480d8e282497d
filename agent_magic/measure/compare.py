"""Comparisons as tables: two runs, a run with its baseline, two versions of a plan; and the steps of a plan to do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from agent_magic.declare.agent import Agent
from agent_magic.declare.baseline import BASELINE, TASKS, one_agent
from agent_magic.declare.plan_json import asks_the_same, plan_to_dict
from agent_magic.declare.step import models_text
from agent_magic.declare.units import plural
from agent_magic.errors import AgentMagicError, DeclarationError, shown_value
from agent_magic.measure.frames import ALL, make_frame, table
from agent_magic.measure.metrics import summarize
from agent_magic.record.answer import WITH_ANSWER
from agent_magic.record.display import single_line
from agent_magic.record.facts import Facts, overlap
from agent_magic.record.results import Base, RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.plan import Plan
    from agent_magic.record.results import AgentResult, Kind

COMPARISON = table(
    "agent status_a status_b seconds_a seconds_b diff_s tokens_a tokens_b diff_tokens cost_usd_a cost_usd_b diff_usd "
    "model_a model_b prompt_changed text_changed"
)


class Recorded(Protocol):
    """Anything with a record, such as a `Run`."""

    record: RunRecord


def compared(a: RunRecord, b: RunRecord) -> pd.DataFrame:
    """Return a row per agent, those of `a` first, then `(all)`; differences are `b` minus `a`.

    `seconds` are an agent's `total_s`, for `(all)` the wall time; `NA` if a run lacks it.
    """
    rows = differences(a, b)
    one, other = summarize(a), summarize(b)
    total = {
        "agent": ALL,
        **_pair("seconds", "diff_s", one.wall_s, other.wall_s),
        **_pair("tokens", "diff_tokens", one.tokens, other.tokens),
        **_pair("cost_usd", "diff_usd", one.cost_usd, other.cost_usd),
        "prompt_changed": _any(row["prompt_changed"] for row in rows),
        "text_changed": _any(row["text_changed"] for row in rows),
    }
    return make_frame([*rows, total], COMPARISON)


def differences(a: RunRecord, b: RunRecord) -> list[dict[str, Any]]:
    """Return the rows of `compared` without `(all)`, as plain values."""
    first, second = ({one.name: one for one in run.results} for run in (a, b))
    models = [
        {one.name: models_text(step, one.model) for step, one in zip(run.plan.agents, run.results, strict=True)}
        for run in (a, b)
    ]
    return [
        {
            **_row(first.get(name), second.get(name)),
            "agent": name,
            "model_a": models[0].get(name),
            "model_b": models[1].get(name),
        }
        for name in dict.fromkeys([*first, *second])
    ]


def bought_again(before: RunRecord, record: RunRecord) -> Counter[str]:
    earlier = {one.name: one for one in before.results if one.status in WITH_ANSWER and one.attempts}
    found: Counter[str] = Counter()
    for now in record.results:
        was = earlier.get(now.name)
        if was is None or not now.attempts or now.is_served:
            continue
        if _asked(was) != _asked(now):
            found["another prompt"] += 1
        elif was.model != now.model:
            found["another model"] += 1
        elif was.status == "capped":
            found["an answer that was cut before"] += 1
    return found


def measure_against(record: RunRecord, other: RunRecord) -> Kind:
    kind = _kind(record.plan, other)
    summary = summarize(other)
    wrong = f"{other.plan.name!r} is not a baseline:"
    if summary.succeeded < summary.steps or summary.wall_s is None:
        raise AgentMagicError(f"{wrong} {summary.succeeded} of {summary.steps} agents succeeded. Run it again.")
    if other.served:
        raise AgentMagicError(f"{wrong} its answers were reused and took no time. Run it with fresh=True.")
    one, wall_s, cost_usd = other.plan.agents[0], summary.wall_s, summary.cost_usd
    asked = f"{one.model} {one.max_tokens}" if kind == "one agent" and isinstance(one, Agent) else ""
    base = Base(wall_s, cost_usd, summary.tokens, other.simulated, asked, {other.uid: (wall_s, cost_usd)})
    record.measured(kind, base.repeated(record.bases.get(kind)))
    return kind


def record_of(run: object, what: str) -> RunRecord:
    record: Any = getattr(run, "record", None)
    if not isinstance(record, RunRecord):
        hint = "Pass what plan.run(...) or %agents run returned."
        raise DeclarationError(f"{what} expects a run, got {shown_value(run)}.", hint=hint)
    return record


def check_runs(given: Iterable[object], what: str) -> None:
    for run in given:
        record_of(run, what)


def _kind(plan: Plan, other: RunRecord) -> Kind:
    if other.plan.names == (BASELINE,) and other.plan.values.get(TASKS) == one_agent(plan).values[TASKS]:
        return "one agent"
    if asks_the_same(other.plan, plan):
        if overlap(Facts.of(other.results).spans)[0] <= 1:
            return "one after another"
        raise AgentMagicError(
            "Both runs are concurrent, so neither is a baseline. "
            "Use compare(a, b), or run one with schedule='sequential'."
        )
    raise AgentMagicError(
        f"{other.plan.name!r} does another job than {plan.name!r}. Run plan.baseline(), or the same plan sequentially."
    )


def _row(a: AgentResult | None, b: AgentResult | None) -> dict[str, Any]:
    texts = [one.text if one is not None and one.status == "succeeded" else None for one in (a, b)]
    asked = [_asked(one) for one in (a, b)]
    return {
        "status_a": a and a.status,
        "status_b": b and b.status,
        **_pair("seconds", "diff_s", a and a.total_s, b and b.total_s),
        **_pair("tokens", "diff_tokens", _tokens(a), _tokens(b)),
        **_pair("cost_usd", "diff_usd", a and a.cost_usd, b and b.cost_usd),
        "prompt_changed": None if None in asked else asked[0] != asked[1],
        "text_changed": None if None in texts else texts[0] != texts[1],
    }


def _pair(name: str, difference: str, a: float | None, b: float | None) -> dict[str, float | None]:
    return {f"{name}_a": a, f"{name}_b": b, difference: None if a is None or b is None else b - a}


def _asked(result: AgentResult | None) -> tuple[str, str, str] | None:
    if result is None or not result.attempts:
        return None
    request = result.attempts[-1].request
    return (request.prompt, request.context or "", request.system or "")


def _tokens(result: AgentResult | None) -> int | None:
    if result is None or not result.attempts:
        return None
    given, made = result.usage.total_input_tokens, result.usage.output_tokens
    return None if given is None or made is None else given + made


def _any(changes: Iterable[bool | None]) -> bool | None:
    known = [one for one in changes if one is not None]
    return any(known) if known else None


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
    rows = [_change(name, "removed", "", "", "") for name in before if name not in after]
    rows += [_change(name, "added", "", "", after[name].get("prompt", "")) for name in after if name not in before]
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
    return [_change(step, "changed", one, _shown(old), _shown(new)) for one, old, new in pairs if old != new]


def _shown(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _change(step: str, change: str, field: str, before: str, after: str) -> dict[str, str]:
    return {"step": step, "change": change, "field": field, "before": before, "after": after}
