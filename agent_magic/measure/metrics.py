"""The numbers of a run, derived from its attempts: seconds, tokens, USD; `None` if unknown."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from agent_magic.measure.intervals import mean_interval
from agent_magic.measure.server_fit import OURS, limit_of_run
from agent_magic.record.answer import WITH_ANSWER, total_tokens, total_usd
from agent_magic.record.facts import Facts
from agent_magic.record.phases import phases_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.record.results import AgentResult, Base, RunRecord

Verdict = Literal["CONCURRENT", "PARTIAL", "SEQUENTIAL"]
SpeedupBasis = Literal["measured", "simulated"]
NEAR_BOUND = 1.2
"""A run within this factor of the critical path counts as concurrent."""
NEAR_SUM = 0.8
"""A run that took this share of the sum of its work counts as sequential."""
STOPPED_BY = {"BudgetExceeded": "budget", "Breaker": "breaker"}
"""Such agents were never sent, so their waits do not show the reason."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one row.

    Attributes:
        plan: The plan's name.
        steps: Number of agents and tasks.
        tasks: Number of tasks; the others are `agents`.
        layers: Number of layers with work; for a loop those of the rounds that ran.
        wall_s: First ready to last finished; up to now while the run is active.
        agent_s: Total work of all agents, `api_s + tool_s + local_s`.
        mean_concurrency: `agent_s / wall_s`. Not a speedup.
        critical_path_s: The longest chain of work through the plan; see `longest_chain`.
        bound: `agent_s / critical_path_s`, the mean concurrency without limits.
        efficiency: `mean_concurrency / bound`, from 0 to 1.
        verdict: `SEQUENTIAL` if the wall time is at least 0.8 of the work, else `CONCURRENT` if it is within 1.2 times
            the critical path, else `PARTIAL`. `None` if the run was stopped, nothing succeeded, or answers were reused:
            these take no time, so concurrency and bound are `None`, too.
        slots: Maximum number of concurrent requests; `None` if not recorded.
        limited_by: The limiting reason, as in `agent_magic.record.reasons`: `budget`, `breaker` or `deadline` if they
            ended agents; if the run came near its bound or no agent waited, `dependencies`, or `longest` if its longest
            chain is one step; else the reason of the longest waits. `the server (4 slots)` or `the server's speed`
            replaces slots, layers, dependencies and the longest step if requests slowed each other there. Empty
            without a verdict.
        queued_s: Total `queued_s` of ended agents.
        input_tokens: Uncached input.
        cache_read_tokens: Input read from the cache.
        cache_write_tokens: Input written to the cache.
        output_tokens: Output.
        tokens: All tokens, including cached ones.
        cost_usd: Dollars; `None` if the price of an answer is unknown.
        cost_mark: `≥` if the cost of an attempt is unknown, `≈` if tokens of a cut stream are estimated, else empty.
        succeeded: Number of steps that succeeded; likewise for other statuses.
        left_out: Number skipped by a false condition, not counted in `skipped`.
        unused: Number of unused reserved places and rounds, not counted in `steps`.
        rate_limited: Number of 429 responses.
        escalated: Number of agents that used the next model of their cascade.
        fell_back: Number of agents that used a fallback model.
        degraded: Number of agents with requests made cheaper by the policy.
        batched: Number of requests answered by batch, at half the price.
        source: The source of all answers, or for tasks alone of their results; several as `ledger + live`; `None`
            without results; with ` + simulated` if simulated answers were reused or replayed.
        cut: True if the run was stopped.
        why: The most common error, if the circuit breaker ended agents or no agent succeeded; else empty.
        success_rate: Share of the needed steps that succeeded; `None` while the run is active.
        sequential_s: Seconds of the same job one step at a time: measured by a baseline, or simulated from this run.
            `None` if nothing can be compared; see `agent_magic.forecast.whatif`.
        speedup: `sequential_s / wall_s`.
        time_saved_pct: `100 * (1 - 1 / speedup)`, in percent of `sequential_s`.
        speedup_basis: `measured` or `simulated`.
        speedup_over: `sequential`, or `one agent` if only a baseline of one agent was measured.
        cost_multiple: Cost of this run, divided by the measured cost of the single-agent baseline: the mean of those
            with equal model and token cap.
        cost_multiple_low: Lower end of its 95 % interval; `None` with fewer than two baselines.
        cost_multiple_high: Upper end.
    """

    plan: str
    steps: int
    tasks: int
    layers: int
    wall_s: float | None
    agent_s: float
    mean_concurrency: float | None
    critical_path_s: float
    bound: float | None
    efficiency: float | None
    verdict: Verdict | None
    limited_by: str
    queued_s: float
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    tokens: int | None
    cost_usd: float | None
    cost_mark: str
    succeeded: int
    failed: int
    skipped: int
    left_out: int
    unused: int
    cancelled: int
    capped: int
    running: int
    rate_limited: int
    escalated: int
    fell_back: int
    degraded: int
    batched: int
    source: str | None
    cut: bool
    why: str
    success_rate: float | None
    slots: int | None
    cost_multiple: float | None
    cost_multiple_low: float | None = None
    cost_multiple_high: float | None = None
    sequential_s: float | None = None
    speedup: float | None = None
    time_saved_pct: float | None = None
    speedup_basis: SpeedupBasis | None = None
    speedup_over: str | None = None

    @property
    def agents(self) -> int:
        return self.steps - self.tasks


def summarize(record: RunRecord, now_s: float | None = None) -> Summary:
    """Compute the numbers of a run; running work counts up to `now_s`."""
    results = record.results
    facts = Facts.of(results)
    work = [_work_s(result, now_s) for result in results]
    agent_s = sum(work)
    path, critical_path_s = longest_chain(record, work)
    wall_s = wall_time_s(results, now_s)
    timed = not record.served  # reused answers take no time
    mean, bound = (_ratio(agent_s, wall_s), _ratio(agent_s, critical_path_s)) if timed else (None, None)
    efficiency = _ratio(mean, bound)
    judged = timed and not record.cut and any(result.status == "succeeded" for result in results)
    verdict = judge(agent_s, critical_path_s, wall_s) if judged else None
    statuses = Counter(result.status for result in results)
    left_out = sum(result.is_left_out for result in results) - statuses["unused"]
    usages, moved = [result.usage for result in results], Counter(result.moved_by for result in results)
    cost_usd = total_cost(results)
    needed = len(results) - statuses["unused"] - left_out
    alone, sequence = record.bases.get("one agent"), record.bases.get("one after another")
    multiple, low, high = _multiple(cost_usd, None if record.served else alone)
    chained = sum(work[one] > 0 for one in path) > 1  # more than one step works on the critical path
    summary = Summary(
        plan=record.plan.name,
        steps=len(results) - statuses["unused"],
        tasks=sum(result.is_task and result.status != "unused" for result in results),
        layers=len({one.layer for one in results if one.status != "unused"}),
        wall_s=wall_s,
        agent_s=agent_s,
        mean_concurrency=mean,
        critical_path_s=critical_path_s,
        bound=bound,
        efficiency=efficiency,
        verdict=verdict,
        limited_by=_limited_by_all(record, _limited_by(results, verdict, efficiency, chained=chained)),
        queued_s=sum(result.queued_s or 0.0 for result in results),
        input_tokens=total_tokens(usage.input_tokens for usage in usages),
        cache_read_tokens=total_tokens(usage.cache_read_tokens for usage in usages),
        cache_write_tokens=total_tokens(usage.cache_write_tokens for usage in usages),
        output_tokens=total_tokens(usage.output_tokens for usage in usages),
        tokens=total_tokens(count for usage in usages for count in (usage.total_input_tokens, usage.output_tokens)),
        cost_usd=cost_usd,
        cost_mark=cost_mark(results),
        succeeded=statuses["succeeded"],
        failed=statuses["failed"],
        skipped=statuses["skipped"] - left_out,
        left_out=left_out,
        unused=statuses["unused"],
        cancelled=statuses["cancelled"],
        capped=statuses["capped"],
        running=statuses["running"],
        rate_limited=len(facts.rate_limited),
        escalated=moved["escalated"],
        fell_back=moved["fell back"],
        degraded=len(record.degraded),
        batched=len(facts.batched),
        source=source_of(record),
        cut=record.cut,
        why=_why(results),
        success_rate=_ratio(statuses["succeeded"], needed) if record.ended_s is not None else None,
        slots=None if record.terms is None else record.terms.policy.get("concurrency"),
        cost_multiple=multiple,
        cost_multiple_low=low,
        cost_multiple_high=high,
    )
    slow = sequence or alone
    if slow is None or record.served:
        return summary
    return with_speedup(summary, slow.wall_s, "measured", "sequential" if sequence else "one agent")


def _multiple(cost_usd: float | None, alone: Base | None) -> tuple[float | None, float | None, float | None]:
    """Divide the cost by the baselines' cost, and return it with its interval.

    Source: the interval of a mean on the scale of its logarithm, by the delta method, so that no end is below 0.
    """
    found = None if alone is None else _ratio(cost_usd, alone.cost_usd)
    if found is None or alone is None or len(alone.made) < 2:
        return found, None, None
    mean = mean_interval([cost for _, cost in alone.made.values() if cost is not None])
    factor = math.exp((mean.high - mean.value) / mean.value)
    return found, found / factor, found * factor


def with_speedup(summary: Summary, sequential_s: float, basis: SpeedupBasis, over: str = "sequential") -> Summary:
    speedup = _ratio(sequential_s, summary.wall_s)
    if not speedup:
        return summary
    return replace(
        summary,
        sequential_s=sequential_s,
        speedup=speedup,
        time_saved_pct=100 * (1 - 1 / speedup),
        speedup_basis=basis,
        speedup_over=over,
    )


def source_of(record: RunRecord) -> str | None:
    return joined({*sources_of(record), "simulated" if record.simulated else None}) or None


def joined(sources: Iterable[str | None]) -> str:
    """Join sources as in `ledger + simulated`, for header, page and frame of a run."""
    return " + ".join(sorted({source for source in sources if source}))


def sources_of(record: RunRecord) -> set[str]:
    """Return the sources of the answers, or else those of the results of tasks."""
    answers = {one.source for one in record.results if one.source and not (one.is_task or one.is_shared)}
    return {*answers} or {result.source for result in record.results if result.source}


def critical_path(record: RunRecord, now_s: float | None = None) -> tuple[int, ...]:
    work = [_work_s(result, now_s) for result in record.results]
    path, _ = longest_chain(record, work)
    return tuple(agent for agent in path if work[agent] > 0)


def longest_chain(record: RunRecord, work: Sequence[float]) -> tuple[tuple[int, ...], float]:
    """Return the longest chain of work and its length: at most the run's wall time.

    Each agent adds its work after the previous agent's end: all of it unless it speculated or the previous agent ran
    again.
    """
    results, dag = record.results, record.dag
    ahead = {one for one in range(len(results)) if _began_before(record, one)}
    if not ahead:
        return dag.longest_path(work)
    chain = [0.0] * len(results)
    before: list[int | None] = [None] * len(results)
    for agent in dag.order:
        chain[agent] = work[agent] if agent in ahead or not dag.parents[agent] else -1.0
        for parent in dag.parents[agent]:
            end_s, own = results[parent].finished_s, work[agent]
            if agent in ahead:
                own = 0.0 if end_s is None else worked_after_s(results[agent], end_s)
            if chain[parent] + own > chain[agent]:
                chain[agent], before[agent] = chain[parent] + own, parent
    last: int | None = max(range(len(chain)), key=lambda one: (chain[one], one), default=None)
    path: list[int] = []
    length = 0.0 if last is None else chain[last]
    while last is not None:
        path.append(last)
        last = before[last]
    return tuple(reversed(path)), length


def _began_before(record: RunRecord, agent: int) -> bool:
    result = record.results[agent]
    if result.granted_s is None:
        return False
    ends = [record.results[parent].finished_s for parent in record.dag.parents[agent]]
    return any(end_s is None or end_s > result.granted_s for end_s in ends)


def worked_after_s(result: AgentResult, since_s: float) -> float:
    phases = [one for one in phases_of(result) if one.kind not in {"queued", "backoff"} and one.end_s is not None]
    return math.fsum(max(0.0, (one.end_s or 0.0) - max(one.start_s, since_s)) for one in phases)


def slack_s(record: RunRecord) -> list[float | None]:
    """Return how much later each agent could have finished without delaying the run."""
    # Waits for a slot are ignored: a queued agent is assumed to be able to start later.
    results, dag = record.results, record.dag
    ends = [result.finished_s for result in results if result.granted_s is not None and result.finished_s is not None]
    latest = [max(ends, default=0.0)] * len(results)
    for agent in reversed(dag.order):
        for child in dag.children[agent]:
            result = results[child]
            if result.granted_s is not None and result.finished_s is not None:
                took = result.finished_s - result.granted_s
                latest[agent] = min(latest[agent], latest[child] - took)
    return [
        latest[agent] - result.finished_s if result.granted_s is not None and result.finished_s is not None else None
        for agent, result in enumerate(results)
    ]


def judge(agent_s: float, critical_path_s: float, wall_s: float | None) -> Verdict | None:
    if not wall_s or not agent_s:
        return None
    if wall_s >= NEAR_SUM * agent_s:
        return "SEQUENTIAL"
    return "CONCURRENT" if wall_s <= NEAR_BOUND * critical_path_s else "PARTIAL"


def waited_s(results: Iterable[AgentResult]) -> dict[str, float]:
    """Return total waits by reason; backoff counts with the next wait's reason."""
    waits: dict[str, float] = {}
    for result in results:
        waited = Facts(result.attempts).waits
        if result.calls:
            waited += [(one.held_by, one.backoff_s) for one in result.calls if one.backoff_s]
            lasting = [one for one in result.away() if one.kind == "queued" and one.end_s is not None]
            waited += [(one.reason, (one.end_s or 0.0) - one.start_s) for one in lasting]
        for held_by, waited_s in waited:
            cause = held_by or "slot"
            waits[cause] = waits.get(cause, 0.0) + waited_s
    return waits


def total_cost(results: Sequence[AgentResult]) -> float | None:
    """Return the cost of all requests; those that were not sent cost nothing."""
    if results and not any(result.attempts for result in results):
        return 0.0
    costs = [(result.cost_usd, result) for result in results if result.attempts]
    if any(cost is None and result.answer for cost, result in costs):
        return None
    return total_usd(cost for cost, _ in costs)


def _limited_by_all(record: RunRecord, limit: str) -> str:
    if limit not in OURS or record.ended_s is None:
        return (record.forecast and record.forecast.limited_by) or limit
    return limit_of_run(record) or limit


def _limited_by(
    results: Sequence[AgentResult], verdict: Verdict | None, efficiency: float | None, *, chained: bool
) -> str:
    ended_by = {STOPPED_BY.get(result.kind or "") for result in results}
    if stopped := [word for word in STOPPED_BY.values() if word in ended_by]:
        return stopped[0]
    if any(result.kind == "Late" and result.status == "cancelled" for result in results):
        return "deadline"
    if verdict is None:
        return ""
    waits = waited_s(results)
    near_bound = verdict == "CONCURRENT" or (efficiency is not None and efficiency * NEAR_BOUND >= 1)
    if near_bound or not any(waits.values()):
        return "dependencies" if chained else "longest"
    return max(waits, key=lambda cause: waits[cause])


def _why(results: Sequence[AgentResult]) -> str:
    given_up = [result.error for result in results if result.error and result.kind == "Breaker"]
    if not given_up and any(result.status in WITH_ANSWER for result in results):
        return ""
    failed = [result.error for result in results if result.error and result.status == "failed"]
    return Counter(found).most_common(1)[0][0] if (found := given_up or failed) else ""


def cost_mark(results: Sequence[AgentResult]) -> str:
    facts = Facts.of(results)
    return "≥" if facts.unpriced else "≈" if facts.estimated else ""


def _work_s(result: AgentResult, now_s: float | None) -> float:
    return result.work_s if now_s is None else result.work_s_until(now_s)


def wall_time_s(results: Sequence[AgentResult], now_s: float | None = None) -> float | None:
    """Return the time from the first ready agent to the last ended, or to now."""
    starts = [result.ready_s for result in results if result.ready_s is not None]
    ends = [result.finished_s for result in results if result.finished_s is not None]
    if now_s is not None and len(ends) < len(results):
        ends.append(now_s)
    return max(ends) - min(starts) if starts and ends else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
