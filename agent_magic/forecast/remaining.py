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
    """What an answer usually takes, in seconds: the lower quartile, the mean, the upper quartile."""

    low: float
    mean: float
    high: float


def remaining(record: RunRecord, now_s: float, history: History, concurrency: int) -> Span | None:
    """Estimate how many more seconds a run takes.

    An agent's answer is expected to take between the lower and the upper quartile of the complete answers that its
    declaration has had for other items in this run, or else of its last answers; or half to twice as long as its
    `expect`, times what steps of its kind took over theirs; or as long as answers of its model. The rest of the run
    takes at least its longest path, and at least all its work divided by how many requests go at once; the upper end
    adds both, which no order of starting exceeds. Of many answers the fast ones make up for the slow: their work is the
    sum of means, give or take the root of the summed squares of half the quartile ranges. The sum of quartiles was
    tried and lost: of 300 labels it left a factor of three between the ends.
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
    """Return the length of the longest path of what is left."""
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
    """Return what steps with `expect` take: that, times what those of their kind took over what they declared."""
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
    """Return what an agent's answers take; `None` where too few are known."""
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
    """Take off what an agent under way has behind it. One that is late has a tenth of its usual time left."""
    if result.status != "running":
        return usual
    gone = now_s - (result.calls if result.is_task else result.attempts)[-1].started_s
    low, mean, high = usual
    return Usual(max(low - gone, 0.0), max(mean - gone, mean / 10), max(high - gone, high / 10))
