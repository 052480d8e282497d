"""How well runs serve: percentiles, the utilization of models, service-level targets, and dead letters."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from agent_magic.declare.units import plural, seconds
from agent_magic.declare.validation import is_number, names_of
from agent_magic.errors import DeclarationError, PlanError, did_you_mean, shown_value
from agent_magic.measure.frames import ALL, frame_of, make_frame, on_the_run, table
from agent_magic.measure.metrics import summarize, total_cost
from agent_magic.record.answer import WITHOUT_ANSWER
from agent_magic.record.display import single_line
from agent_magic.record.facts import ENOUGH, Facts, overlap, percentile
from agent_magic.record.reasons import limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from agent_magic.record.results import AgentResult, Attempt, RunRecord

PERCENTILES = table("number of n mean p50 p95 p99 max")
UTILIZATION = table(
    "model agents requests busy_s cost_usd utilization mean_concurrency peak slot_utilization requests_per_min mean_s"
)


def percentiles_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return one row per number, none of reused answers. P95 needs 20 values, P99 100."""
    agents = [one for record in records for one in record.results if one.attempts and one.total_s is not None]
    agents = [one for one in agents if not one.is_served]
    requests = Facts.of(agents).succeeded
    rows = [
        _spread("total_s", "agents", [one.total_s for one in agents]),
        _spread("queued_s", "agents", [one.queued_s for one in agents]),
        _spread("backoff_s", "agents", [one.backoff_s for one in agents]),
        _spread("api_s", "requests", [one.duration_s for one in requests]),
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


SLO = table("target wanted measured unit n met why")
P95 = 95
MOST_KINDS = 3
DEFAULTS: Mapping[str, float] = {
    "concurrent": 100,
    "jobs_per_s": 5.0,
    "p95_s": 15.0,
    "succeeded": 0.995,
    "errors": 0.01,
    "usd_per_job": 2.0,
}
"""Quoted from a document, not recommended.

Source: "Agent Scaling Analysis & Solutions", https://github.com/rawjaws/anvil, targets for 100 agents.
"""


def slo_frame(record: RunRecord, targets: Mapping[str, float | None]) -> pd.DataFrame:
    """Return one row per target, those omitted from `DEFAULTS`; raise `DeclarationError` for an unknown one.

    `met` is `NA` if the run cannot decide: too few jobs for a percentile or a share (five of five do not show 99.5 %),
    fewer agents than should be concurrent, an unknown price, or reused answers. The last row is derived by Little's
    law: `jobs_per_s * mean total_s` jobs are in flight at the target rate.
    """
    for name, value in targets.items():
        if name not in DEFAULTS:
            hint = f"It takes {', '.join(DEFAULTS)}.{did_you_mean(name, DEFAULTS)}"
            raise DeclarationError(f"slo has no target {name!r}.", hint=hint)
        if value is not None and not is_number(value):
            raise DeclarationError(f"{name} must be a number or None, got {shown_value(value)}.")
    asked = {**DEFAULTS, **targets}
    facts = _Facts(record)
    tests: dict[str, Callable[[float], dict[str, Any]]] = {
        "concurrent": facts.concurrent,
        "jobs_per_s": facts.rate,
        "p95_s": facts.p95,
        "succeeded": facts.succeeded,
        "errors": facts.errors,
        "usd_per_job": facts.dollars,
    }
    rows = [tests[name](wanted) for name, wanted in asked.items() if wanted is not None]
    rate, room = asked["jobs_per_s"], asked["concurrent"]
    if rate is not None and room is not None:
        rows.append(facts.little(rate, room))
    is_missed = any(one["met"] is False for one in rows)
    told = on_the_run(record, "run.advise() says what would be faster or cheaper" if is_missed else "")
    return make_frame(rows, SLO, verdict=_verdict(rows), **told)


def _verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    missed = [one["target"].partition(",")[0] for one in rows if one["met"] is False]
    open_ = sum(one["met"] is None for one in rows)
    found = [f"{sum(one['met'] is True for one in rows)} of {plural(len(rows), 'target')} met"]
    found += [f"not met: {', '.join(missed)}"] if missed else []
    found += [f"{open_} that this run cannot tell"] if open_ else []
    return " · ".join(found)


class _Facts:
    def __init__(self, record: RunRecord) -> None:
        self._results = [one for one in record.results if not one.is_task and not one.is_left_out]
        self._summary = summarize(record)
        self._timed = not record.served
        self._done = sum(one.status == "succeeded" for one in self._results)
        done = [one.total_s for one in self._results if one.attempts]
        self._totals = [one for one in done if one is not None] if self._timed else []

    def concurrent(self, wanted: float) -> dict[str, Any]:
        spans = Facts.of(self._results).spans
        row = _row("concurrent requests, at least", wanted, overlap(spans)[0], "requests", len(spans))
        if len(self._results) < wanted:
            return _unknown(row, f"{len(self._results)} agents cannot show {wanted:g} concurrent requests")
        return _judged(row, self._held(), met=row["measured"] >= wanted)

    def rate(self, wanted: float) -> dict[str, Any]:
        wall_s, done = self._summary.wall_s, self._done
        rate = done / wall_s if wall_s and self._timed else None
        row = _row("jobs per second, at least", wanted, rate, "1/s", done)
        return _unknown(row, self._why()) if rate is None else _judged(row, self._held(), met=rate >= wanted)

    def p95(self, wanted: float) -> dict[str, Any]:
        found, n = percentile(self._totals, P95), len(self._totals)
        row = _row("95th percentile of total_s, below", wanted, found, "s", n)
        if found is not None:
            mean_s = self._summary.queued_s / len(self._results)
            return _judged(row, f"{seconds(mean_s)} of it queued, on average", met=found < wanted)
        return _unknown(row, f"{n} values, a 95th percentile needs {ENOUGH[P95]}")

    def succeeded(self, wanted: float) -> dict[str, Any]:
        n = sum(one.status not in {"pending", "queued", "running"} for one in self._results)
        lost = (one for one in self._results if one.status in WITHOUT_ANSWER)
        kinds = Counter(one.kind or one.status for one in lost)
        why = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common(MOST_KINDS))
        return _share("agents that succeeded, at least", wanted, self._done, n, why, least=True)

    def errors(self, wanted: float) -> dict[str, Any]:
        facts = Facts.of(self._results)
        kinds = Counter(one.kind or one.status for one in facts.failed)
        why = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common(MOST_KINDS))
        return _share("requests that failed, below", wanted, len(facts.failed), len(facts.ended), why, least=False)

    def dollars(self, wanted: float) -> dict[str, Any]:
        cost, n = self._summary.cost_usd, len(self._results)
        each = cost / n if cost is not None and n else None
        row = _row("dollars per job, below", wanted, each, "USD", n)
        if each is None or self._summary.cost_mark == "≥":
            return _unknown(row, "the price of a request is unknown")
        return row | {"met": each < wanted}

    def little(self, rate: float, room: float) -> dict[str, Any]:
        n = len(self._totals)
        mean_s = math.fsum(self._totals) / n if n else None
        row = _row(
            f"jobs in flight at {rate:g} per second, at most", room, mean_s and rate * mean_s, "jobs", n
        )  # L = lambda W
        return _unknown(row, self._why()) if mean_s is None else row | {"met": row["measured"] <= room}

    def _held(self) -> str:
        return limited(self._summary.limited_by, self._summary.slots)

    def _why(self) -> str:
        return "nothing finished" if self._timed else "reused answers take no time"


def _share(target: str, wanted: float, count: int, n: int, missed: str, *, least: bool) -> dict[str, Any]:
    # Without a counterexample fewer than `1 / (1 - wanted)` cases show nothing.
    share = count / n if n else None
    row = _row(target, wanted, share, "share", n)
    others = n - count if least else count
    rare = 1 - wanted if least else wanted
    if share is None or (not others and rare > 0 and n * rare < 1):
        return _unknown(row, f"{n} cases are too few to show less than 1 in {1 / rare:.0f}" if rare > 0 else "no cases")
    return _judged(row, missed, met=share >= wanted if least else share < wanted or not (share or wanted))


def _row(target: str, wanted: float, measured: float | None, unit: str, n: int) -> dict[str, Any]:
    return {"target": target, "wanted": wanted, "measured": measured, "unit": unit, "n": n, "why": ""}


def _judged(row: dict[str, Any], missed: str, *, met: bool) -> dict[str, Any]:
    return row | {"met": met, "why": "" if met else missed}


def _unknown(row: dict[str, Any], why: str) -> dict[str, Any]:
    return row | {"met": None, "why": why}


DEAD = table("agent error_class error attempts transient request model http_status started_s finished_s")
"""`request` is the first line of the last prompt; `transient` if the request is not to blame for the failure."""
ALL_DEAD = {**table("run began_at plan"), **DEAD}
TRANSIENT = frozenset(
    {"RateLimited", "Overloaded", "Unreachable", "Truncated", "Unreadable", "NotInBatch", "Late", "BudgetExceeded"}
)
MOST_REQUEST = 100
"""Characters shown of a prompt's first line."""


def dead_frame(record: RunRecord) -> pd.DataFrame:
    """Leave out steps that were skipped because of a failed one, or stopped by the user."""
    return frame_of(map(_dead_row, _dead(record)), DEAD, record)


def all_dead_frame(runs: Iterable[tuple[int, RunRecord]]) -> pd.DataFrame:
    """Leave out requests answered since."""
    rows: list[Mapping[str, Any]] = []
    later: set[tuple[str, str]] = set()  # a later request: its newest outcome counts
    for number, record in runs:
        head = {"run": number, "began_at": record.began_at, "plan": record.plan.name}
        rows += [head | _dead_row(one) for one in _dead(record) if _asked(one) not in later]
        later |= {_asked(one) for one in record.results if one.status in {"succeeded", "failed"}}
    return make_frame(rows, ALL_DEAD)


def to_requeue(record: RunRecord, names: str | Iterable[str] | None, before: Iterable[str] = ()) -> list[str]:
    """Return the named steps, or those with a transient error."""
    dead = {one.name: one for one in _dead(record)}
    if names is not None:
        asked = [record.plan.names[number] for number in record.plan.numbers(names)]
        known = dead.keys() | {one for one in before if one in record.plan.index and record[one].status != "succeeded"}
        if found := [name for name in asked if name in known]:
            return found
        raise PlanError(f"None of {', '.join(names_of(names))} failed for good. run.dead lists what did.")
    found = [name for name, one in dead.items() if _class_of(one) in TRANSIENT]
    if not found and dead:
        known = ", ".join(sorted({_class_of(one) or "error" for one in dead.values()}))
        raise PlanError(f"Asking again will not help ({known}). Fix the cause, or name the agents to ask anyway.")
    if not found:
        raise PlanError("No step of this run failed for good, so there is nothing to ask again.")
    return found


def _dead(record: RunRecord) -> list[AgentResult]:
    return [one for one in record.results if one.status == "failed"]


def _class_of(result: AgentResult) -> str | None:
    """Return the error class; in a killed run only the last attempt has it."""
    return result.kind or (result.attempts[-1].kind if result.attempts else None)


def _prompt(result: AgentResult) -> str:
    return result.attempts[-1].request.prompt if result.attempts else ""


def _asked(result: AgentResult) -> tuple[str, str]:
    return result.name, _prompt(result)


def _dead_row(result: AgentResult) -> dict[str, Any]:
    lines = _prompt(result).strip().splitlines() or [""]
    last = result.attempts[-1] if result.attempts else None
    return {
        "agent": result.name,
        "error_class": _class_of(result),
        "error": result.error,
        "attempts": len(result.calls if result.is_task else result.attempts),
        "transient": _class_of(result) in TRANSIENT,
        "request": single_line(lines[0])[:MOST_REQUEST] or None,
        "model": None if result.is_task else result.model,
        "http_status": last.status_code if last else None,
        "started_s": result.started_s,
        "finished_s": result.finished_s,
    }
