"""How much longer a run will take, as an interval, from what earlier answers took.

Without earlier answers, and with nothing declared, there is no estimate: a number from nowhere would be believed.
"""

from __future__ import annotations

from math import sqrt
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, NamedTuple

from agent_magic.engine.expected import Factors, kinds_of
from agent_magic.forecast.pace import UNSURE
from agent_magic.record.history import MEASURED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent_magic.record.history import History, Past
    from agent_magic.record.results import AgentResult, RunRecord

LEAST_ROWS = 3
"""Fewer answers than this of an agent say too little of the next; then those of its model count."""
MOST_ROWS = 50

Span = tuple[float, float]


class Usual(NamedTuple):
    """Usual seconds of an answer: lower quartile, mean, upper quartile."""

    low: float
    mean: float
    high: float


def remaining(record: RunRecord, now_s: float, history: History, concurrency: int) -> Span | None:
    """Estimate the remaining seconds of a run.

    An agent's answer is expected between the lower and upper quartile of complete answers of its declaration's other
    items in this run, or of its own last answers; or at half to twice its `expect`, corrected by its kind in this run;
    or like answers of its model. The rest of the run takes at least its longest path, and at least all its work divided
    by the concurrency; the upper end adds both, which no order of starts exceeds. Over many answers fast ones
    compensate slow ones: their work is the sum of means, plus or minus the root of the summed squares of half the
    quartile ranges. The sum of quartiles was tried and lost: for 300 labels, the ends differed by a factor of three.
    Source of that bound: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.

    Args:
        record: The run.
        now_s: Seconds since it began.
        history: Earlier answers.
        concurrency: Maximum requests at once.

    Returns:
        The fewest and most seconds, or `None` if nothing is known about a remaining agent, or the run is over.
    """
    if record.ended_s is not None:
        return None
    own, known, declared = _own_seconds(record), dict[tuple[str, str], Usual | None](), _declared(record)
    left: dict[int, Usual] = {}
    for agent, result in enumerate(record.results):
        if result.finished_s is not None:
            continue
        group = _group(record, agent)
        key = (group or (result.name if len(history) or agent in declared else ""), result.model)
        if key not in known:
            known[key] = _usual(result, history, own, group, declared.get(agent), simulated=record.simulated)
        usual = known[key]
        if usual is None:
            return None
        left[agent] = _left(result, usual, now_s)
    most = max(1, min(concurrency, len(record.results)))
    path_low, path_high = (_longest(record, {agent: one[end] for agent, one in left.items()}) for end in (0, 2))
    work = sum(one.mean for one in left.values())
    spread = sqrt(sum(((one.high - one.low) / 2) ** 2 for one in left.values()))
    return max(path_low, (work - spread) / most), path_high + max(0.0, work + spread - path_high) / most


def _longest(record: RunRecord, left: Mapping[int, float]) -> float:
    """Return the length of the longest remaining path."""
    return max(record.plan.dag.remaining([left.get(agent, 0.0) for agent in range(len(record.results))]), default=0.0)


def _group(record: RunRecord, agent: int) -> str:
    part = record.plan.agents[agent].part
    return "" if part is None else part.group


def _own_seconds(record: RunRecord) -> dict[tuple[str, str], list[float]]:
    """Return what complete answers of this run took, by group and model; of all together the group is empty."""
    found: dict[tuple[str, str], list[float]] = {}
    for agent, result in enumerate(record.results):
        if result.attempts and result.status == "succeeded" and result.source in MEASURED:
            for group in {_group(record, agent), ""}:
                found.setdefault((group, result.model), []).append(result.attempts[-1].api_s or 0.0)
    return found


def _declared(record: RunRecord) -> dict[int, Usual]:
    """Return durations of steps with `expect`, corrected by the actual durations of their kind."""
    expects = {number: one.expect for number, one in enumerate(record.plan.agents) if one.expect is not None}
    if not expects:
        return {}
    kinds, factors = kinds_of(record.plan), Factors()
    for number, expect in expects.items():
        result = record.results[number]
        took_s = result.tool_s if result.is_task else result.api_s
        is_measured = result.is_task or result.source in MEASURED
        if result.status == "succeeded" and is_measured and took_s > 0:
            factors.add(kinds[number], took_s, expect)
    likely = {number: expect * factors.of(kinds[number]) for number, expect in expects.items()}
    return {number: Usual(one * UNSURE[0], one, one * UNSURE[1]) for number, one in likely.items()}


def _usual(
    result: AgentResult,
    history: History,
    own: Mapping[tuple[str, str], list[float]],
    group: str,
    declared: Usual | None,
    *,
    simulated: bool,
) -> Usual | None:
    """Return the usual duration of an agent's answers; `None` if too few are known."""
    alike = own.get((group, result.model), []) if group else []
    if len(alike) >= LEAST_ROWS:
        return _spread(alike)
    earlier = _seconds(history.of_agent(result.name, result.model), simulated=simulated)
    if len(earlier) >= LEAST_ROWS:
        return _spread(earlier)
    if declared is not None:
        return declared
    of_model = _seconds(history.of_model(result.model), simulated=simulated)
    if len(of_model) >= LEAST_ROWS:
        return _spread(of_model)
    both = [*of_model, *own.get(("", result.model), [])]
    return _spread(both) if len(both) >= LEAST_ROWS else None


def _seconds(rows: Sequence[Past], *, simulated: bool) -> list[float]:
    return [row.api_s for row in rows[-MOST_ROWS:] if row.simulated == simulated and not row.elsewhere]


def _spread(taken: Sequence[float]) -> Usual:
    lower, _, upper = quantiles(taken, n=4, method="inclusive")
    return Usual(lower, fmean(taken), upper)


def _left(result: AgentResult, usual: Usual, now_s: float) -> Usual:
    """Return the rest of a running agent's duration: a late one has a tenth of its usual time left."""
    if result.status != "running":
        return usual
    gone = now_s - (result.calls if result.is_task else result.attempts)[-1].started_s
    low, mean, high = usual
    return Usual(max(low - gone, 0.0), max(mean - gone, mean / 10), max(high - gone, high / 10))
