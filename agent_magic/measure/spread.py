"""Percentiles over one or more runs, and the utilization of models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agent_magic.declare.validation import is_number
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.measure.frames import make_frame, table
from agent_magic.measure.metrics import summarize, total_cost
from agent_magic.record.attempt import ENOUGH, Facts, overlap, percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from agent_magic.record.results import AgentResult, Attempt, RunRecord

PERCENTILES = table("number of n mean p50 p95 p99 max")
UTILIZATION = table(
    "model agents requests busy_s cost_usd utilization mean_concurrency peak slot_utilization requests_per_min mean_s"
)
ALL = "(all)"
"""A name that no agent or model can have."""


def percentiles_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return one row per number, none of reused answers. P95 needs 20 values, P99 100."""
    agents = [one for record in records for one in record.results if one.attempts and one.total_s is not None]
    agents = [one for one in agents if not one.is_served]
    requests = Facts.of(agents).succeeded
    rows = [
        _spread("total_s", "agents", [one.total_s for one in agents]),
        _spread("queued_s", "agents", [one.queued_s for one in agents]),
        _spread("backoff_s", "agents", [one.backoff_s for one in agents]),
        _spread("api_s", "requests", [one.api_s for one in requests]),
        _spread("ttft_s", "requests", [one.ttft_s for one in requests]),
        _spread("output_tokens_per_s", "requests", [_pace(one) for one in requests]),
    ]
    return make_frame(rows, PERCENTILES)


def _pace(attempt: Attempt) -> float | None:
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
    """Return how busy each model and all were; raise `DeclarationError` for bad `slots`.

    `utilization` is the share of the wall time with a request in flight, `slot_utilization` `mean_concurrency / slots`.
    """
    if slots is not None and not (is_number(slots) and slots > 0):
        raise DeclarationError(f"slots must be a number above 0, got {shown_value(slots)}.")
    wall_s = summarize(record).wall_s
    agents = [result for result in record.results if not result.is_task]
    models = dict.fromkeys(result.model for result in agents)
    rows = [_use(model, [one for one in agents if one.model == model], wall_s, slots) for model in sorted(models)]
    return make_frame([*rows, _use(ALL, agents, wall_s, slots)], UTILIZATION)


def _use(model: str, results: Sequence[AgentResult], wall_s: float | None, slots: int | None) -> dict[str, object]:
    spans = Facts.of(results).spans
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
