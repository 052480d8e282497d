"""A run against the same job done another way, both measured: `speedup` and `cost_multiple`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.declare.baseline import BASELINE, TASKS, one_agent
from agent_magic.declare.plan_json import asks_the_same
from agent_magic.errors import AgentMagicError
from agent_magic.measure.metrics import summarize
from agent_magic.measure.spread import overlap, sent_spans
from agent_magic.record.base import Base

if TYPE_CHECKING:
    from agent_magic.declare.plan import Plan
    from agent_magic.record.base import Kind
    from agent_magic.record.results import RunRecord


def measure_against(record: RunRecord, other: RunRecord) -> Kind:
    """Keep with a run what the same job took and cost when it was done another way.

    Args:
        record: The run.
        other: A run of `plan.baseline()`, or of the same plan with never two requests at once.

    Returns:
        Which of the two it was.

    Raises:
        AgentMagicError: It was another job, it did not succeed, or its answers came from the ledger and took no time.
    """
    kind = _kind(record.plan, other)
    summary = summarize(other)
    wrong = f"{other.plan.name!r} is no measure:"
    if summary.succeeded < summary.agents or summary.wall_s is None:
        raise AgentMagicError(f"{wrong} {summary.succeeded} of {summary.agents} agents succeeded. Run it again.")
    if any(result.is_served for result in other.results):
        raise AgentMagicError(f"{wrong} its answers were bought before and took no time. Run it with fresh=True.")
    record.measured(kind, Base(summary.wall_s, summary.cost_usd, summary.tokens, other.simulated))
    return kind


def _kind(plan: Plan, other: RunRecord) -> Kind:
    if other.plan.names == (BASELINE,) and other.plan.values.get(TASKS) == one_agent(plan).values[TASKS]:
        return "one agent"
    if asks_the_same(other.plan, plan):
        if overlap(sent_spans(other.results))[0] <= 1:
            return "one after another"
        raise AgentMagicError(
            "Both runs did things at once, so neither measures the other: see compare(a, b). "
            "A run with schedule='sequential' does one thing after another."
        )
    raise AgentMagicError(
        f"{other.plan.name!r} is another job than {plan.name!r}. Run plan.baseline(), or the same plan sequentially."
    )


def against_row(record: RunRecord) -> dict[str, Any]:
    """Return what a run's summary says of its measures: `speedup`, `speedup_over`, `cost_multiple`.

    `speedup` is the wall time of the sequential run over this one's, or of the single agent where no sequential run
    was made: `speedup_over` says which. `cost_multiple` is this run's dollars over the single agent's. Each is unknown
    until it was measured, and where this run's own answers were bought before.
    """
    alone, sequence = record.bases.get("one agent"), record.bases.get("one after another")
    slow = sequence or alone
    if slow is None or any(result.is_served for result in record.results):
        return {}
    summary = summarize(record)
    paid = alone.cost_usd if alone is not None else None
    return {
        "speedup": slow.wall_s / summary.wall_s if summary.wall_s else None,
        "speedup_over": "one after another" if sequence else "one agent",
        "cost_multiple": summary.cost_usd / paid if summary.cost_usd is not None and paid else None,
    }
