"""The numbers of a run, each derived from its attempts. All in seconds, tokens and USD; `None` where unknown."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent_magic.record.results import AgentResult, RunRecord

Verdict = Literal["CONCURRENT", "PARTIAL", "SEQUENTIAL"]
NEAR_BOUND = 1.2
"""A run within this factor of the critical path used the concurrency its plan allows."""
NEAR_SUM = 0.8
"""A run that took this share of the work's sum ran as good as one after another."""
DONE = frozenset({"succeeded", "failed", "skipped", "cancelled", "capped"})


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one row.

    Attributes:
        wall_s: First ready to last finished; so far, while it goes on.
        agent_s: Sum of every agent's own work, `api_s + local_s`.
        mean_concurrency: `agent_s / wall_s`: how much ran at once. Not a speedup.
        critical_path_s: The longest chain of work through the plan.
        bound: `agent_s / critical_path_s`: what unlimited concurrency could reach.
        efficiency: `mean_concurrency / bound`, from 0 to 1.
        verdict: `SEQUENTIAL` from 0.8 of the work's sum, else `CONCURRENT` within 1.2 times the critical path, else
            `PARTIAL`. `None` where the run was stopped, nothing succeeded, or answers came from the ledger: those took
            no time of their own, so concurrency and bound are `None` too.
        limited_by: What kept the run from its bound: `dependencies`, or else what held it most: `slot`, `barrier`,
            `requests`, `input`, `output`, `budget`, `leader`, `backoff`, ...; an empty string where nothing did.
        tokens: All tokens, cached ones included.
        queued_s: Sum over agents of waiting for a slot, a limit, a leader, the budget or a barrier.
        rate_limited: Requests that the provider refused for their rate (429).
        cost_usd: Dollars; `None` where the price of an answer is unknown.
        cost_mark: `≥` where an attempt may have cost what nobody counted, `≈` where tokens of a cut stream are
            estimated, else empty.
        source: Where all results came from, `mixed`, or `None` where nobody answered; with ` + simulated` where made-up
            answers were served from the ledger, or replayed.
        why: Why agents were given up together, or why all failed that were asked: the commonest error, in one line;
            else empty.
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
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    tokens: int | None
    cost_usd: float | None
    cost_mark: str
    queued_s: float
    rate_limited: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    capped: int
    running: int
    source: str | None
    cut: bool
    why: str


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
    timed = not record.served  # served answers took no time of their own
    mean = _ratio(agent_s, wall_s) if timed else None
    bound = _ratio(agent_s, critical_path_s) if timed else None
    efficiency = _ratio(mean, bound)
    judged = timed and not record.cut and any(result.status == "succeeded" for result in results)
    verdict = judge(agent_s, critical_path_s, wall_s) if judged else None
    counts = _count(result.status for result in results)
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
        input_tokens=total_tokens(result.usage.input_tokens for result in results),
        output_tokens=total_tokens(result.usage.output_tokens for result in results),
        cache_read_tokens=total_tokens(result.usage.cache_read_tokens for result in results),
        cache_write_tokens=total_tokens(result.usage.cache_write_tokens for result in results),
        tokens=total_tokens([*_whole_inputs(results), *(result.usage.output_tokens for result in results)]),
        cost_usd=total_cost(results),
        cost_mark=_cost_mark(results),
        queued_s=sum(result.queued_s or 0.0 for result in results),
        rate_limited=sum(one.kind == "RateLimited" for result in results for one in result.attempts),
        succeeded=counts.get("succeeded", 0),
        failed=counts.get("failed", 0),
        skipped=counts.get("skipped", 0),
        cancelled=counts.get("cancelled", 0),
        capped=counts.get("capped", 0),
        running=counts.get("running", 0),
        source=_source(record),
        cut=record.cut,
        why=_why(results),
    )


def _why(results: Sequence[AgentResult]) -> str:
    """Name the error of agents that the breaker gave up, or the commonest one of a run in which none succeeded."""
    errors = [result.error for result in results if result.error and result.status in {"failed", "cancelled"}]
    given_up = [error for error in errors if error.startswith("Breaker: ")]
    if not given_up and any(result.status in {"succeeded", "capped"} for result in results):
        return ""
    failed = [result.error for result in results if result.error and result.status == "failed"]
    return Counter(found).most_common(1)[0][0] if (found := given_up or failed) else ""


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


def total_tokens(counts: Iterable[int | None]) -> int | None:
    """Add up the counts that are known; `None` where none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def total_cost(results: Sequence[AgentResult]) -> float | None:
    """Add up the dollars; `None` where the price of an answer is unknown, or nothing was asked."""
    costs = [result.cost_usd for result in results if result.attempts]
    unpriced = any(result.answer and result.cost_usd is None for result in results)
    known = [cost for cost in costs if cost is not None]
    return None if unpriced or not known else math.fsum(known)


def _whole_inputs(results: Sequence[AgentResult]) -> list[int | None]:
    return [result.usage.total_input_tokens for result in results]


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


def judge(agent_s: float, critical_path_s: float, wall_s: float | None) -> Verdict | None:
    """Say how concurrent a run was; see `Summary.verdict`. `None` where nothing was done."""
    if not wall_s or not agent_s:
        return None
    if wall_s >= NEAR_SUM * agent_s:
        return "SEQUENTIAL"
    return "CONCURRENT" if wall_s <= NEAR_BOUND * critical_path_s else "PARTIAL"


def _limited_by(results: Sequence[AgentResult], verdict: Verdict | None, efficiency: float | None) -> str:
    """Name what cost the most waiting; where nothing was waited for, the plan itself is the limit."""
    if verdict is None or verdict == "CONCURRENT":
        return ""
    if efficiency is not None and efficiency * NEAR_BOUND >= 1:
        return "dependencies"
    waits = waited_s(results)
    return max(waits, key=lambda cause: waits[cause], default="")


def waited_s(results: Iterable[AgentResult]) -> dict[str, float]:
    """Add up what agents waited before their attempts, by reason; a wait before a retry counts as a whole."""
    waits: dict[str, float] = {}
    for result in results:
        for attempt in result.attempts:
            cause = attempt.held_by or "slot"
            waits[cause] = waits.get(cause, 0.0) + attempt.queued_s + attempt.backoff_s
    return waits


def _count(words: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found


def _source(record: RunRecord) -> str | None:
    sources = {result.source for result in record.results if result.source}
    word = next(iter(sources)) if len(sources) == 1 else "mixed" if sources else None
    return f"{word} + simulated" if sources & {"ledger", "replay"} and record.simulated else word
