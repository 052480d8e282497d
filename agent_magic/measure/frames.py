"""A run as pandas frames. Unknown is `NA`, never 0.

Seconds and dollars are `float64` with `NaN`, tokens and counts the nullable `Int64`, names and words `string`,
yes and no `bool`. Every frame carries `attrs["plan"]`, `attrs["source"]` and `attrs["simulated"]`,
and one of a run that a cassette holds `attrs["provenance"]`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from agent_magic.measure.against import against_row
from agent_magic.measure.metrics import critical_path, slack_s, summarize, total_cost, total_tokens
from agent_magic.measure.table import make_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from agent_magic.record.attempt import Attempt
    from agent_magic.record.results import AgentResult, RunRecord

AGENTS: Mapping[str, str] = {
    "agent": "string",
    "layer": "Int64",
    "model": "string",
    "status": "string",
    "source": "string",
    "queued_s": "float64",
    "api_s": "float64",
    "backoff_s": "float64",
    "local_s": "float64",
    "total_s": "float64",
    "started_s": "float64",
    "finished_s": "float64",
    "ttft_s": "float64",
    "attempts": "Int64",
    "input_tokens": "Int64",
    "cache_read_tokens": "Int64",
    "cache_write_tokens": "Int64",
    "output_tokens": "Int64",
    "cost_usd": "float64",
    "on_critical_path": "bool",
    "slack_s": "float64",
    "stop_reason": "string",
    "error": "string",
}
ATTEMPTS: Mapping[str, str] = {
    "agent": "string",
    "attempt": "Int64",
    "model": "string",
    "status": "string",
    "source": "string",
    "held_by": "string",
    "queued_s": "float64",
    "backoff_s": "float64",
    "started_s": "float64",
    "ttft_s": "float64",
    "api_s": "float64",
    "finished_s": "float64",
    "input_tokens": "Int64",
    "cache_read_tokens": "Int64",
    "cache_write_tokens": "Int64",
    "output_tokens": "Int64",
    "usage_estimated": "bool",
    "cost_usd": "float64",
    "price": "string",
    "stop_reason": "string",
    "http_status": "Int64",
    "request_id": "string",
    "error": "string",
}
LAYERS: Mapping[str, str] = {
    "layer": "Int64",
    "agents": "Int64",
    "wall_s": "float64",
    "agent_s": "float64",
    "mean_concurrency": "float64",
    "started_s": "float64",
    "finished_s": "float64",
    "slowest": "string",
    "input_tokens": "Int64",
    "output_tokens": "Int64",
    "cost_usd": "float64",
    "succeeded": "Int64",
}
SUMMARY: Mapping[str, str] = {
    "plan": "string",
    "agents": "Int64",
    "layers": "Int64",
    "wall_s": "float64",
    "agent_s": "float64",
    "mean_concurrency": "float64",
    "critical_path_s": "float64",
    "bound": "float64",
    "efficiency": "float64",
    "verdict": "string",
    "input_tokens": "Int64",
    "output_tokens": "Int64",
    "cost_usd": "float64",
    "succeeded": "Int64",
    "failed": "Int64",
    "skipped": "Int64",
    "cancelled": "Int64",
    "source": "string",
    "speedup": "float64",
    "speedup_over": "string",
    "cost_multiple": "float64",
}


def agents_frame(record: RunRecord) -> pd.DataFrame:
    """One row per agent, in plan order; columns and dtypes are `AGENTS`."""
    path, slack = set(critical_path(record)), slack_s(record)
    rows = [
        {
            **{name: getattr(result, name) for name in ("layer", "model", "status", "source", "stop_reason", "error")},
            **_tokens(result.usage if result.attempts else None),
            **_times(result),
            "agent": result.name,
            "attempts": len(result.attempts),
            "cost_usd": result.cost_usd,
            "on_critical_path": number in path,
            "slack_s": slack[number],
        }
        for number, result in enumerate(record.results)
    ]
    return _frame(rows, AGENTS, record)


def attempts_frame(record: RunRecord) -> pd.DataFrame:
    """One row per request, in the order they were sent; columns and dtypes are `ATTEMPTS`."""
    return _frame([_attempt_row(attempt) for attempt in record.attempts], ATTEMPTS, record)


def layers_frame(record: RunRecord) -> pd.DataFrame:
    """One row per layer, from 0; columns and dtypes are `LAYERS`. `slowest` is the agent that finished last."""
    rows = [
        _layer_row(layer, [record.results[agent] for agent in agents])
        for layer, agents in enumerate(record.plan.dag.layers())
    ]
    return _frame(rows, LAYERS, record)


def summary_frame(record: RunRecord) -> pd.DataFrame:
    """One row for the run; columns and dtypes are `SUMMARY`. The speedup is measured: see `measure.against`."""
    summary, against = summarize(record), against_row(record)
    return _frame([{name: against.get(name, getattr(summary, name, None)) for name in SUMMARY}], SUMMARY, record)


def texts_series(record: RunRecord) -> pd.Series[str]:
    """Return the answers, or what had arrived of them, by agent's name."""
    import pandas as pd

    names = [result.name for result in record.results]
    texts = pd.Series([result.text for result in record.results], index=pd.Index(names, name="agent"), name="text")
    texts.attrs.update(_provenance(record))
    return texts


def _times(result: AgentResult) -> dict[str, float | None]:
    """The parts of an agent's time. They add up to `total_s` to the last bit."""
    if result.total_s is None:
        return {"started_s": result.started_s, "finished_s": None if result.ready_s is None else result.finished_s}
    return {
        "queued_s": result.queued_s,
        "api_s": result.api_s,
        "backoff_s": result.backoff_s,
        "local_s": result.local_s,
        "total_s": result.total_s,
        "started_s": result.started_s,
        "finished_s": result.finished_s,
        "ttft_s": result.ttft_s,
    }


def _tokens(usage: Any) -> dict[str, int | None]:
    names = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    return {name: getattr(usage, name, None) for name in names}


def _attempt_row(attempt: Attempt) -> dict[str, Any]:
    answer = attempt.answer
    return {
        **{name: getattr(attempt, name) for name in ("agent", "model", "status", "source", "started_s", "backoff_s")},
        **_tokens(attempt.usage),
        "attempt": attempt.number,
        "held_by": attempt.held_by or None,
        "queued_s": attempt.queued_s,
        "ttft_s": attempt.ttft_s,
        "api_s": attempt.api_s,
        "finished_s": attempt.ended_s,
        "usage_estimated": bool(attempt.usage and attempt.usage.estimated),
        "cost_usd": attempt.price.cost_usd if attempt.price else None,
        "price": attempt.price.basis if attempt.price else None,
        "stop_reason": answer.stop_reason if answer else None,
        "http_status": attempt.status_code,
        "request_id": answer.request_id if answer else None,
        "error": attempt.error,
    }


def _layer_row(layer: int, results: Sequence[AgentResult]) -> dict[str, Any]:
    starts = [result.ready_s for result in results if result.ready_s is not None]
    ended = [result for result in results if result.ready_s is not None and result.finished_s is not None]
    last = max(ended, key=lambda result: result.finished_s or 0.0, default=None)
    end = last.finished_s if last else None
    wall = end - min(starts) if end is not None and starts else None
    agent_s = math.fsum(result.work_s for result in results)
    return {
        "layer": layer,
        "agents": len(results),
        "wall_s": wall,
        "agent_s": agent_s,
        "mean_concurrency": agent_s / wall if wall else None,
        "started_s": min(starts, default=None),
        "finished_s": end,
        "slowest": last.name if last else None,
        "input_tokens": total_tokens(result.usage.input_tokens for result in results),
        "output_tokens": total_tokens(result.usage.output_tokens for result in results),
        "cost_usd": total_cost(results),
        "succeeded": sum(result.status == "succeeded" for result in results),
    }


def _frame(rows: list[dict[str, Any]], dtypes: Mapping[str, str], record: RunRecord) -> pd.DataFrame:
    return add_provenance(make_frame(rows, dtypes), record)


def add_provenance(frame: pd.DataFrame, record: RunRecord) -> pd.DataFrame:
    """Say on a frame which plan it is of, and where its answers came from."""
    frame.attrs.update(_provenance(record))
    return frame


def _provenance(record: RunRecord) -> dict[str, Any]:
    known = {"plan": record.plan.name, "source": summarize(record).source, "simulated": record.simulated}
    return {**known, "provenance": dict(record.provenance)} if record.provenance else known
