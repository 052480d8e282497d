"""The numbers of a run, each derived from its attempts. Seconds, tokens and USD; `None` where unknown."""

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
"""A run within this factor of the critical path used the concurrency its plan allows."""
NEAR_SUM = 0.8
"""A run that took this share of the sum of its work was as good as sequential."""
STOPPED_BY = {"BudgetExceeded": "budget", "Breaker": "breaker"}
"""What held a run whose agents ended with these errors: they were never sent, so nothing shows in their waits."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one row.

    Attributes:
        plan: The plan's name.
        agents: How many agents it has.
        layers: How many layers.
        wall_s: First ready to last finished; so far, while it goes on.
        agent_s: Sum of every agent's own work, `api_s + tool_s + local_s`.
        mean_concurrency: `agent_s / wall_s`: how much ran at once. Not a speedup.
        critical_path_s: The longest chain of work through the plan.
        bound: `agent_s / critical_path_s`: what unlimited concurrency could reach.
        efficiency: `mean_concurrency / bound`, from 0 to 1.
        verdict: `SEQUENTIAL` from 0.8 of the work's sum, else `CONCURRENT` within 1.2 times the critical path, else
            `PARTIAL`. `None` where the run was stopped, nothing succeeded, or answers came from the ledger: those took
            no time of their own, so concurrency and bound are `None` too.
        limited_by: What kept the run from being faster, in the words of `agent_magic.record.reasons`: `budget`,
            `breaker` or `deadline` where they ended agents; `dependencies` where it came near its bound, or nobody
            waited; else what agents waited for most. Empty where there is no verdict.
        queued_s: Sum over agents of `queued_s`, of those that have ended.
        input_tokens: Uncached input.
        cache_read_tokens: Input read from the cache.
        cache_write_tokens: Input written to it.
        output_tokens: Output.
        tokens: All tokens, cached ones included.
        cost_usd: Dollars; `None` where the price of an answer is unknown.
        cost_mark: `≥` where an attempt may have cost what nobody counted, `≈` where tokens of a cut stream are
            estimated, else empty.
        succeeded: How many agents succeeded; the other statuses likewise.
        rate_limited: How many requests were answered by a 429.
        source: Where all results came from, `mixed`, or `None` where nobody answered; with ` + simulated` where
            simulated answers were served from the ledger, or replayed.
        cut: Whether the run was stopped.
        why: Why agents were given up together, or why all failed that were asked: the commonest error, in one line;
            else empty.
        speedup: Wall time of the same job done another way, measured, over this run's; `None` until it was, and where
            this run's own answers were bought before.
        speedup_over: Which way that was: `sequential`, or `one agent` where no sequential run was made.
        cost_multiple: This run's dollars over those of one agent that did the same job, measured.
    """

    plan: str
    agents: int
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
    cancelled: int
    capped: int
    running: int
    rate_limited: int
    source: str | None
    cut: bool
    why: str
    speedup: float | None
    speedup_over: str | None
    cost_multiple: float | None


def summarize(record: RunRecord, now_s: float | None = None) -> Summary:
    """Add a run up.

    Args:
        record: The run, finished or not.
        now_s: The time of a run that goes on. Work under way counts up to it.
    """
    results = record.results
    work = [_work_s(result, now_s) for result in results]
    agent_s = sum(work)
    _, critical_path_s = record.dag.longest_path(work)
    wall_s = _wall_s(results, now_s)
    timed = not record.served  # answers that were bought before took no time of their own
    mean = _ratio(agent_s, wall_s) if timed else None
    bound = _ratio(agent_s, critical_path_s) if timed else None
    efficiency = _ratio(mean, bound)
    judged = timed and not record.cut and any(result.status == "succeeded" for result in results)
    verdict = judge(agent_s, critical_path_s, wall_s) if judged else None
    statuses = Counter(result.status for result in results)
    usages = [result.usage for result in results]
    cost_usd = total_cost(results)
    return Summary(
        plan=record.plan.name,
        agents=len(results),
        layers=record.plan.depth,
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
        cost_mark=_cost_mark(results),
        succeeded=statuses["succeeded"],
        failed=statuses["failed"],
        skipped=statuses["skipped"],
        cancelled=statuses["cancelled"],
        capped=statuses["capped"],
        running=statuses["running"],
        rate_limited=sum(attempt.kind == "RateLimited" for result in results for attempt in result.attempts),
        source=source_of(record),
        cut=record.cut,
        why=_why(results),
        **_against(record, wall_s, cost_usd),
    )


def source_of(record: RunRecord) -> str | None:
    """Say where all results came from; see `Summary.source`."""
    sources = {result.source for result in record.results if result.source}
    word = next(iter(sources)) if len(sources) == 1 else "mixed" if sources else None
    return f"{word} + simulated" if sources & {"ledger", "replay"} and record.simulated else word


def critical_path(record: RunRecord, now_s: float | None = None) -> tuple[int, ...]:
    """Return the agents on the longest chain of work, those that did none left out."""
    work = [_work_s(result, now_s) for result in record.results]
    path, _ = record.dag.longest_path(work)
    return tuple(agent for agent in path if work[agent] > 0)


def slack_s(record: RunRecord) -> list[float | None]:
    """Return per agent how much later it could have finished without delaying the run; `None` where it never ran.

    Waiting for a slot is not passed on: an agent that was queued is taken to have been startable at any later time.
    """
    results, dag = record.results, record.dag
    ends = [result.finished_s for result in results if result.attempts and result.finished_s is not None]
    latest = [max(ends, default=0.0)] * len(results)
    for agent in reversed(dag.order):
        for child in dag.children[agent]:
            result = results[child]
            if result.attempts and result.finished_s is not None:
                took = result.finished_s - result.attempts[0].granted_s
                latest[agent] = min(latest[agent], latest[child] - took)
    return [
        latest[agent] - result.finished_s if result.attempts and result.finished_s is not None else None
        for agent, result in enumerate(results)
    ]


def judge(agent_s: float, critical_path_s: float, wall_s: float | None) -> Verdict | None:
    """Say how concurrent a run was; see `Summary.verdict`. `None` where nothing was done."""
    if not wall_s or not agent_s:
        return None
    if wall_s >= NEAR_SUM * agent_s:
        return "SEQUENTIAL"
    return "CONCURRENT" if wall_s <= NEAR_BOUND * critical_path_s else "PARTIAL"


def waited_s(results: Iterable[AgentResult]) -> dict[str, float]:
    """Add up what agents waited before their attempts, by reason; a wait before a retry counts as a whole."""
    waits: dict[str, float] = {}
    for result in results:
        for attempt in result.attempts:
            cause = attempt.held_by or "slot"
            waits[cause] = waits.get(cause, 0.0) + attempt.queued_s + attempt.backoff_s
    return waits


def total_tokens(counts: Iterable[int | None]) -> int | None:
    """Add up the counts that are known; `None` where none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def total_cost(results: Sequence[AgentResult]) -> float | None:
    """Add up the dollars; `None` where the price of an answer is unknown, or nothing was asked."""
    costs = [(result.cost_usd, result) for result in results if result.attempts]
    known = [cost for cost, _ in costs if cost is not None]
    if not known or any(cost is None and result.answer for cost, result in costs):
        return None
    return math.fsum(known)


def _limited_by(results: Sequence[AgentResult], verdict: Verdict | None, efficiency: float | None) -> str:
    """Name what kept a run from being faster; see `Summary.limited_by`."""
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
    """Return the error of agents that the breaker gave up, or the commonest one of a run in which none succeeded."""
    given_up = [result.error for result in results if result.error and result.kind == "Breaker"]
    if not given_up and any(result.status in {"succeeded", "capped"} for result in results):
        return ""
    failed = [result.error for result in results if result.error and result.status == "failed"]
    return Counter(found).most_common(1)[0][0] if (found := given_up or failed) else ""


def _against(record: RunRecord, wall_s: float | None, cost_usd: float | None) -> dict[str, Any]:
    """Compare a run with what the same job took and cost in another way, where that was measured."""
    alone, sequence = record.bases.get("one agent"), record.bases.get("one after another")
    slow = sequence or alone
    if slow is None or any(result.is_served for result in record.results):
        return {"speedup": None, "speedup_over": None, "cost_multiple": None}
    return {
        "speedup": _ratio(slow.wall_s, wall_s),
        "speedup_over": "sequential" if sequence else "one agent",
        "cost_multiple": _ratio(cost_usd, alone.cost_usd) if alone is not None else None,
    }


def _cost_mark(results: Sequence[AgentResult]) -> str:
    attempts = [attempt for result in results for attempt in result.attempts if attempt.ended_s is not None]
    if any(attempt.price is None or attempt.price.cost_usd is None for attempt in attempts):
        return "≥"
    return "≈" if any(attempt.usage and attempt.usage.estimated for attempt in attempts) else ""


def _work_s(result: AgentResult, now_s: float | None) -> float:
    if result.finished_s is None and now_s is not None and result.attempts:
        last = result.attempts[-1]
        running = now_s - last.started_s if last.ended_s is None else 0.0
        return result.api_s + max(0.0, running)
    return result.work_s


def _wall_s(results: Sequence[AgentResult], now_s: float | None) -> float | None:
    starts = [result.ready_s for result in results if result.ready_s is not None]
    ends = [result.finished_s for result in results if result.finished_s is not None]
    if now_s is not None and len(ends) < len(results):
        ends.append(now_s)
    return max(ends) - min(starts) if starts and ends else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
