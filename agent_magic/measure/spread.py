"""How numbers spread, over one run or several: percentiles with their `n`, and who was busy how much of the time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agent_magic.declare.validation import is_number
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.measure.metrics import summarize, total_cost
from agent_magic.measure.table import make_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from agent_magic.record.results import AgentResult, Attempt, RunRecord

PERCENTILES: Mapping[str, str] = {
    "number": "string",
    "of": "string",
    "n": "Int64",
    "mean": "float64",
    "p50": "float64",
    "p95": "float64",
    "p99": "float64",
    "max": "float64",
}
UTILIZATION: Mapping[str, str] = {
    "model": "string",
    "agents": "Int64",
    "requests": "Int64",
    "busy_s": "float64",
    "utilization": "float64",
    "peak": "Int64",
    "mean_concurrency": "float64",
    "slot_utilization": "float64",
    "requests_per_min": "float64",
    "mean_s": "float64",
    "cost_usd": "float64",
}
ENOUGH: Mapping[int, int] = {50: 1, 95: 20, 99: 100}
"""From how many values on a percentile means anything: below, the largest value would stand for it."""
ALL = "(all)"
"""The row of all together. No agent and no model can have that name."""


def percentile(values: Iterable[float], percent: int) -> float | None:
    """Return the smallest value that at least so many percent of the values do not exceed (nearest rank).

    It is one of the values. `None` where there are fewer than `ENOUGH` of them.
    """
    found = sorted(values)
    if len(found) < ENOUGH.get(percent, 1):
        return None
    return found[max(0, math.ceil(percent * len(found) / 100) - 1)]


def percentiles_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return the percentiles of what took time. One row per number; columns are `PERCENTILES`.

    `total_s`, `queued_s`, `backoff_s` are of agents that finished their work, `api_s`, `ttft_s` and
    `output_tokens_per_s` of requests that were answered. Answers served from the ledger took no time and are left out.
    P95 is `NaN` below 20 values, P99 below 100.
    """
    agents = [one for record in records for one in record.results if one.attempts and one.total_s is not None]
    agents = [one for one in agents if not one.is_served]
    attempts = [one for agent in agents for one in agent.attempts if one.status == "succeeded"]
    of_agents: dict[str, Callable[[AgentResult], float | None]] = {
        "total_s": lambda one: one.total_s,
        "queued_s": lambda one: one.queued_s,
        "backoff_s": lambda one: one.backoff_s,
    }
    of_attempts: dict[str, Callable[[Attempt], float | None]] = {
        "api_s": lambda one: one.api_s,
        "ttft_s": lambda one: one.ttft_s,
        "output_tokens_per_s": _pace,
    }
    rows = [_spread(name, "agents", [take(one) for one in agents]) for name, take in of_agents.items()]
    rows += [_spread(name, "requests", [take(one) for one in attempts]) for name, take in of_attempts.items()]
    return make_frame(rows, PERCENTILES)


def _pace(attempt: Attempt) -> float | None:
    """Output tokens a second once they came."""
    produced = attempt.usage.output_tokens if attempt.usage else None
    if produced is None or attempt.first_token_s is None or attempt.ended_s is None:
        return None
    took = attempt.ended_s - attempt.first_token_s
    return produced / took if took > 0 else None


def _spread(name: str, of: str, found: Iterable[float | None]) -> dict[str, object]:
    values = [value for value in found if value is not None]
    return {
        "number": name,
        "of": of,
        "n": len(values),
        "mean": math.fsum(values) / len(values) if values else None,
        **{f"p{percent}": percentile(values, percent) for percent in ENOUGH},
        "max": max(values, default=None),
    }


def utilization_frame(record: RunRecord, slots: int | None = None) -> pd.DataFrame:
    """Say per model, and for all together, how much of the run's time requests were under way.

    Columns are `UTILIZATION`. `busy_s` is the sum of the requests' seconds; `utilization` the share of the run's time
    in which at least one request was under way, so the rest was idle; `peak` and `mean_concurrency` how many were at
    once; `slot_utilization` is `mean_concurrency / slots`, `NaN` without `slots`; `mean_s` is of one request. Answers
    from the ledger are no requests. Times are `NaN` where nothing finished.

    Args:
        record: The run.
        slots: Its concurrency cap, if that is to be judged.

    Raises:
        DeclarationError: The slots are no number above 0.
    """
    if slots is not None and not (is_number(slots) and slots > 0):
        raise DeclarationError(f"slots={shown_value(slots)} cannot work.", hint="Give the concurrency cap, from 1.")
    wall_s = summarize(record).wall_s
    models = dict.fromkeys(result.model for result in record.results)
    rows = [
        _use(model, [one for one in record.results if one.model == model], wall_s, slots) for model in sorted(models)
    ]
    return make_frame([*rows, _use(ALL, record.results, wall_s, slots)], UTILIZATION)


def _use(model: str, results: Sequence[AgentResult], wall_s: float | None, slots: int | None) -> dict[str, object]:
    spans = sent_spans(results)
    busy_s = math.fsum(end - start for start, end in spans)
    peak, covered_s = overlap(spans)
    mean = busy_s / wall_s if wall_s else None
    return {
        "model": model,
        "agents": len(results),
        "requests": len(spans),
        "busy_s": busy_s,
        "utilization": covered_s / wall_s if wall_s else None,
        "peak": peak,
        "mean_concurrency": mean,
        "slot_utilization": mean / slots if mean is not None and slots else None,
        "requests_per_min": 60 * len(spans) / wall_s if wall_s else None,
        "mean_s": busy_s / len(spans) if spans else None,
        "cost_usd": total_cost(results),
    }


def sent_spans(results: Iterable[AgentResult]) -> list[tuple[float, float]]:
    """Return when each request was under way."""
    attempts = [one for result in results for one in result.attempts if not one.is_served]
    return [(one.started_s, one.ended_s) for one in attempts if one.ended_s is not None]


def overlap(spans: Iterable[tuple[float, float]]) -> tuple[int, float]:
    """Return how many spans lie over each other at most, and how many seconds at least one covers."""
    edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    peak, now, covered, before = 0, 0, 0.0, 0.0
    for at, step in edges:
        if now:
            covered += at - before
        now, before = now + step, at
        peak = max(peak, now)
    return peak, covered
