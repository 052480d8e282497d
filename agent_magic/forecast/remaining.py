"""How much longer a run will take, as an interval, from what earlier answers took.

Without earlier answers there is no estimate: a number from nowhere would be believed.
"""

from __future__ import annotations

from statistics import quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.record.history import History, Past
    from agent_magic.record.results import AgentResult, RunRecord

LEAST_ROWS = 3
"""Fewer answers than this of an agent say too little of the next; then those of its model count."""
MOST_ROWS = 50

Span = tuple[float, float]


def remaining(record: RunRecord, now_s: float, history: History, concurrency: int) -> Span | None:
    """Estimate how many more seconds a run takes.

    An agent's answer is expected to take between the lower and the upper quartile of its last answers, or else of its
    model's, the complete ones of this run included. The rest of the run takes at least its longest path, and at least
    all its work divided by how many requests go at once; the upper end adds both, which no order of starting exceeds.
    Source of that bound: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.

    Args:
        record: The run.
        now_s: Seconds since it began.
        history: Earlier answers.
        concurrency: The most requests under way at once.

    Returns:
        The least and the most seconds, or `None` where nothing is known of an agent that is still to run, or the run
        is over.
    """
    if record.ended_s is not None:
        return None
    simulated = record.simulated
    known: dict[tuple[str, str], Span | None] = {}
    own = _own_seconds(record)
    low, high = [0.0] * len(record.results), [0.0] * len(record.results)
    for agent, result in enumerate(record.results):
        if result.finished_s is not None:
            continue
        key = (result.name, result.model) if len(history) else ("", result.model)
        if key not in known:
            known[key] = _usual(result, history, own.get(result.model, ()), simulated=simulated)
        span = known[key]
        if span is None:
            return None
        low[agent], high[agent] = _left(result, span, now_s)
    most = max(1, min(concurrency, len(record.results)))
    path_low, path_high = (max(record.plan.dag.remaining(one), default=0.0) for one in (low, high))
    return max(path_low, sum(low) / most), path_high + max(0.0, sum(high) - path_high) / most


def _own_seconds(record: RunRecord) -> dict[str, list[float]]:
    """Return what complete answers of this run took, by model."""
    found: dict[str, list[float]] = {}
    for result in record.results:
        if result.attempts and result.status == "succeeded" and result.source in {"live", "simulated"}:
            found.setdefault(result.model, []).append(result.attempts[-1].api_s or 0.0)
    return found


def _usual(result: AgentResult, history: History, own: Sequence[float], *, simulated: bool) -> Span | None:
    """Return the quartiles of what an agent's answers take; `None` where too few are known."""
    for rows in (history.of_agent(result.name, result.model), history.of_model(result.model)):
        taken = _seconds(rows, simulated=simulated)
        if len(taken) >= LEAST_ROWS:
            return _quartiles(taken)
    both = [*_seconds(history.of_model(result.model), simulated=simulated), *own]
    return _quartiles(both) if len(both) >= LEAST_ROWS else None


def _seconds(rows: Sequence[Past], *, simulated: bool) -> list[float]:
    return [row.api_s for row in rows[-MOST_ROWS:] if row.simulated == simulated]


def _quartiles(taken: Sequence[float]) -> Span:
    lower, _, upper = quantiles(taken, n=4, method="inclusive")
    return lower, upper


def _left(result: AgentResult, span: Span, now_s: float) -> Span:
    """Take off what an agent under way has behind it. One that is late has a tenth of its usual time left."""
    if result.status != "running":
        return span
    gone = now_s - result.attempts[-1].started_s
    low, high = span
    return max(low - gone, 0.0), max(high - gone, high / 10)
