"""The numbers of a run, derived from its attempts: seconds, tokens, USD; `None` where unknown."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.record.results import AgentResult, RunRecord

Verdict = Literal["CONCURRENT", "PARTIAL", "SEQUENTIAL"]
NEAR_BOUND = 1.2
"""A run within this factor of the critical path counts as concurrent."""
NEAR_SUM = 0.8
"""A run that took this share of the sum of its work counts as sequential."""
STOPPED_BY = {"BudgetExceeded": "budget", "Breaker": "breaker"}
"""The limiting reason by the kind of error. Such agents were never sent, so their waits do not show it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one row.

    Attributes:
        plan: The plan's name.
        agents: The number of agents, tasks included.
        tasks: The number of tasks among them.
        layers: The number of layers that had something to do: of a loop those of the rounds that ran.
        wall_s: First ready to last finished; up to now while the run goes on.
        agent_s: The sum of all agents' work, `api_s + tool_s + local_s`.
        mean_concurrency: `agent_s / wall_s`. Not a speedup.
        critical_path_s: The longest chain of work through the plan.
        bound: `agent_s / critical_path_s`, the mean concurrency without limits.
        efficiency: `mean_concurrency / bound`, from 0 to 1.
        verdict: `SEQUENTIAL` if the wall time is at least 0.8 of the work, else `CONCURRENT` if it is within 1.2 times
            the critical path, else `PARTIAL`. `None` if the run was stopped, nothing succeeded, or answers were reused:
            those take no time, so concurrency and bound are `None`, too.
        slots: How many requests could be under way at once; `None` where nobody kept it.
        limited_by: The limiting reason, as in `agent_magic.record.reasons`: `budget`, `breaker` or `deadline` if they
            ended agents, `dependencies` if the run came near its bound or no agent waited, else the reason of the
            longest waits. Empty without a verdict.
        queued_s: The sum of `queued_s` of the agents that have ended.
        input_tokens: Uncached input.
        cache_read_tokens: Input read from the cache.
        cache_write_tokens: Input written to the cache.
        output_tokens: Output.
        tokens: All tokens, including cached ones.
        cost_usd: Dollars; `None` if the price of an answer is unknown.
        cost_mark: `≥` if the cost of an attempt is unknown, `≈` if the tokens of a cut stream are estimated, else
            empty.
        succeeded: The number of agents that succeeded; the other statuses likewise.
        left_out: The number that was skipped because a condition was false, which `skipped` leaves out.
        unused: The number of places and rounds that were reserved and not needed, which `agents` leaves out.
        rate_limited: The number of 429 responses.
        escalated: The number of agents that the next model of their cascade was asked for.
        fell_back: The number of agents that a fallback model was asked for.
        degraded: The number of agents whose requests the policy made cheaper.
        batched: The number of requests answered by batch, at half the price.
        source: The source of all answers, of a run of tasks alone that of their results; `mixed`, or `None` without
            results; with ` + simulated` if simulated answers
            were reused or replayed.
        cut: Whether the run was stopped.
        why: The most common error, if the circuit breaker ended agents or no agent succeeded; else empty.
        speedup: The measured wall time of a baseline, divided by this run's; `None` without a baseline, or if this run
            reused answers.
        speedup_over: The baseline: `sequential`, or `one agent` if no sequential run was measured.
        cost_multiple: The cost of this run, divided by that of the single-agent baseline, measured.
    """

    plan: str
    agents: int
    tasks: int
    layers: int
    wall_s: float | None
    agent_s: float
    mean_concurrency: float | None
    critical_path_s: float
    bound: float | None
    efficiency: float | None
    verdict: Verdict | None
    slots: int | None
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
    speedup: float | None
    speedup_over: str | None
    cost_multiple: float | None


def summarize(record: RunRecord, now_s: float | None = None) -> Summary:
    """Compute the numbers of a run.

    Args:
        record: The run, finished or not.
        now_s: The time, while the run goes on. Running work counts up to it.
    """
    results = record.results
    work = [_work_s(result, now_s) for result in results]
    agent_s = sum(work)
    _, critical_path_s = record.dag.longest_path(work)
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
    return Summary(
        plan=record.plan.name,
        agents=len(results) - statuses["unused"],
        tasks=sum(result.is_task and result.status != "unused" for result in results),
        layers=len({one.layer for one in results if one.status != "unused"}),
        wall_s=wall_s,
        agent_s=agent_s,
        mean_concurrency=mean,
        critical_path_s=critical_path_s,
        bound=bound,
        efficiency=efficiency,
        verdict=verdict,
        limited_by=_limited_by(results, verdict, efficiency),
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
        rate_limited=sum(attempt.kind == "RateLimited" for result in results for attempt in result.attempts),
        escalated=moved["escalated"],
        fell_back=moved["fell back"],
        degraded=len(record.degraded),
        batched=_batched(results),
        source=source_of(record),
        cut=record.cut,
        why=_why(results),
        **_beside(record, wall_s, cost_usd),
    )


def _batched(results: Sequence[AgentResult]) -> int:
    """Count the requests that a batch of this run answered: what was bought earlier is no longer half price."""
    attempts = [one for result in results for one in result.attempts if not one.is_served]
    return sum(bool(one.answer and one.answer.batch) for one in attempts)


def source_of(record: RunRecord) -> str | None:
    """Return the source of all results; see `Summary.source`."""
    sources = sources_of(record)
    word = next(iter(sources)) if len(sources) == 1 else "mixed" if sources else None
    return f"{word} + simulated" if sources & {"ledger", "replay"} and record.simulated else word


def sources_of(record: RunRecord) -> set[str]:
    """Return where the answers came from; where no agent has one, where the results of tasks did."""
    answers = {result.source for result in record.results if result.source and not result.is_task}
    return {*answers} or {result.source for result in record.results if result.source}


def critical_path(record: RunRecord, now_s: float | None = None) -> tuple[int, ...]:
    """Return the agents on the longest chain of work, without those that did none."""
    work = [_work_s(result, now_s) for result in record.results]
    path, _ = record.dag.longest_path(work)
    return tuple(agent for agent in path if work[agent] > 0)


def slack_s(record: RunRecord) -> list[float | None]:
    """Return how much later each agent could have finished without delaying the run; `None` if it never ran.

    Waits for a slot are ignored: a queued agent is assumed to be able to start at any later time.
    """
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
    """Return how concurrent a run was; see `Summary.verdict`. `None` if nothing was done."""
    if not wall_s or not agent_s:
        return None
    if wall_s >= NEAR_SUM * agent_s:
        return "SEQUENTIAL"
    return "CONCURRENT" if wall_s <= NEAR_BOUND * critical_path_s else "PARTIAL"


def waited_s(results: Iterable[AgentResult]) -> dict[str, float]:
    """Add up the waits before attempts and calls, by reason; backoff counts with the reason of what came after."""
    waits: dict[str, float] = {}
    for result in results:
        waited = [(one.held_by, one.queued_s + one.backoff_s) for one in result.attempts]
        if result.calls:
            waited += [(one.held_by, one.backoff_s) for one in result.calls if one.backoff_s]
            lasting = [one for one in result.away() if one.kind == "queued" and one.end_s is not None]
            waited += [(one.reason, (one.end_s or 0.0) - one.start_s) for one in lasting]
        for held_by, waited_s in waited:
            cause = held_by or "slot"
            waits[cause] = waits.get(cause, 0.0) + waited_s
    return waits


def total_tokens(counts: Iterable[int | None]) -> int | None:
    """Add up the known counts; `None` if none is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def total_cost(results: Sequence[AgentResult]) -> float | None:
    """Add up the dollars; `None` if the price of an answer is unknown. What was never sent costs nothing."""
    if results and not any(result.attempts for result in results):
        return 0.0
    costs = [(result.cost_usd, result) for result in results if result.attempts]
    known = [cost for cost, _ in costs if cost is not None]
    if not known or any(cost is None and result.answer for cost, result in costs):
        return None
    return math.fsum(known)


def _limited_by(results: Sequence[AgentResult], verdict: Verdict | None, efficiency: float | None) -> str:
    """Return the limiting reason; see `Summary.limited_by`."""
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
        return "dependencies"
    return max(waits, key=lambda cause: waits[cause])


def _why(results: Sequence[AgentResult]) -> str:
    """Return the error for which the breaker ended agents, or the most common one if no agent succeeded."""
    given_up = [result.error for result in results if result.error and result.kind == "Breaker"]
    if not given_up and any(result.status in {"succeeded", "capped"} for result in results):
        return ""
    failed = [result.error for result in results if result.error and result.status == "failed"]
    return Counter(found).most_common(1)[0][0] if (found := given_up or failed) else ""


def _beside(record: RunRecord, wall_s: float | None, cost_usd: float | None) -> dict[str, Any]:
    """Return the slots of a run, and compare it with its measured baselines."""
    slots = None if record.terms is None else record.terms.policy.get("concurrency")
    alone, sequence = record.bases.get("one agent"), record.bases.get("one after another")
    slow = sequence or alone
    if slow is None or any(result.is_served for result in record.results):
        return {"slots": slots, "speedup": None, "speedup_over": None, "cost_multiple": None}
    return {
        "slots": slots,
        "speedup": _ratio(slow.wall_s, wall_s),
        "speedup_over": "sequential" if sequence else "one agent",
        "cost_multiple": _ratio(cost_usd, alone.cost_usd) if alone is not None else None,
    }


def cost_mark(results: Sequence[AgentResult]) -> str:
    """Return what stands before the dollars of agents; see `Summary.cost_mark`."""
    attempts = [attempt for result in results for attempt in result.attempts if attempt.ended_s is not None]
    if any(attempt.price is None or attempt.price.cost_usd is None for attempt in attempts):
        return "≥"
    return "≈" if any(attempt.usage and attempt.usage.estimated for attempt in attempts) else ""


def _work_s(result: AgentResult, now_s: float | None) -> float:
    return result.work_s if now_s is None else result.work_s_until(now_s)


def wall_time_s(results: Sequence[AgentResult], now_s: float | None = None) -> float | None:
    """Return the time from the first agent that was ready to the last that ended; up to now, while one works."""
    starts = [result.ready_s for result in results if result.ready_s is not None]
    ends = [result.finished_s for result in results if result.finished_s is not None]
    if now_s is not None and len(ends) < len(results):
        ends.append(now_s)
    return max(ends) - min(starts) if starts and ends else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
