"""Service targets against what a run did. A target that the run could not show either way is unknown, not met."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from agent_magic.declare.validation import is_number
from agent_magic.errors import DeclarationError, did_you_mean
from agent_magic.measure.metrics import summarize
from agent_magic.measure.spread import ENOUGH, overlap, percentile, sent_spans
from agent_magic.measure.table import make_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from agent_magic.record.results import RunRecord

SLO: Mapping[str, str] = {
    "target": "string",
    "wanted": "float64",
    "measured": "float64",
    "unit": "string",
    "n": "Int64",
    "met": "boolean",
    "why": "string",
}
P95 = 95
TARGETS = ("concurrent", "jobs_per_s", "p95_s", "succeeded", "errors", "usd_per_job")
"""What can be asked."""


def slo_of(record: RunRecord, targets: Mapping[str, float | None]) -> pd.DataFrame:
    """Hold a run against targets by name; see `slo_frame`.

    Raises:
        DeclarationError: A target is not known, or is no number.
    """
    for name, value in targets.items():
        if name not in TARGETS:
            hint = f"It takes {', '.join(TARGETS)}.{did_you_mean(name, TARGETS)}"
            raise DeclarationError(f"slo has no target {name!r}.", hint=hint)
        if value is not None and not is_number(value):
            raise DeclarationError(f"{name}={value!r} cannot work.", hint="Give a number, or None to leave it out.")
    return slo_frame(record, **targets)


def slo_frame(
    record: RunRecord,
    *,
    concurrent: float | None = 100,
    jobs_per_s: float | None = 5.0,
    p95_s: float | None = 15.0,
    succeeded: float | None = 0.995,
    errors: float | None = 0.01,
    usd_per_job: float | None = 2.0,
) -> pd.DataFrame:
    """Hold a run against service targets. One row per target; columns are `SLO`; an agent is a job.

    `met` is `NA` where the run cannot tell, and `why` says so: too few jobs for a percentile or for a share (100 % of
    five is no 99.5 %), fewer agents than are to be at once, an unknown price, answers from the ledger, which took no
    time. The last row is no target of its own: by Little's law, `jobs_per_s * mean total_s` jobs are under way at the
    wanted rate, and `met` tells whether `concurrent` leaves room for them.

    Source of the defaults: "Agent Scaling Analysis & Solutions", https://github.com/rawjaws/anvil, targets for 100
    agents. They are that document's, not a recommendation.

    Args:
        record: The run.
        concurrent: Requests under way at once, at least.
        jobs_per_s: Agents that succeeded a second, at least.
        p95_s: 95th percentile of `total_s`, waiting included, below.
        succeeded: Share of agents that succeeded, at least.
        errors: Share of requests that failed, below; 0 is none.
        usd_per_job: Dollars an agent, below.

    A target of `None` is left out.
    """
    facts = _Facts(record)
    rows = [
        None if concurrent is None else facts.concurrent(concurrent),
        None if jobs_per_s is None else facts.rate(jobs_per_s),
        None if p95_s is None else facts.p95(p95_s),
        None if succeeded is None else facts.succeeded(succeeded),
        None if errors is None else facts.errors(errors),
        None if usd_per_job is None else facts.dollars(usd_per_job),
        None if concurrent is None or jobs_per_s is None else facts.little(jobs_per_s, concurrent),
    ]
    return make_frame([row for row in rows if row is not None], SLO)


class _Facts:
    def __init__(self, record: RunRecord) -> None:
        self._results = record.results
        self._summary = summarize(record)
        self._timed = not record.served
        done = [one.total_s for one in record.results if one.attempts]
        self._totals = [one for one in done if one is not None] if self._timed else []

    def concurrent(self, wanted: float) -> dict[str, Any]:
        spans = sent_spans(self._results)
        row = _row("requests at once, at least", wanted, overlap(spans)[0], "requests", len(spans))
        if len(self._results) < wanted:
            return _unknown(row, f"{len(self._results)} agents cannot show {wanted:g} at once")
        return row | {"met": row["measured"] >= wanted}

    def rate(self, wanted: float) -> dict[str, Any]:
        wall_s, done = self._summary.wall_s, self._summary.succeeded
        rate = done / wall_s if wall_s and self._timed else None
        row = _row("jobs a second, at least", wanted, rate, "1/s", done)
        return _unknown(row, self._why()) if rate is None else row | {"met": rate >= wanted}

    def p95(self, wanted: float) -> dict[str, Any]:
        found, n = percentile(self._totals, P95), len(self._totals)
        row = _row("95th percentile of total_s, below", wanted, found, "s", n)
        if found is not None:
            return row | {"met": found < wanted}
        return _unknown(row, f"{n} values are too few for a 95th percentile, which needs {ENOUGH[P95]}")

    def succeeded(self, wanted: float) -> dict[str, Any]:
        n = sum(one.status not in {"pending", "queued", "running"} for one in self._results)
        return _share("agents that succeeded, at least", wanted, self._summary.succeeded, n, least=True)

    def errors(self, wanted: float) -> dict[str, Any]:
        attempts = [one for result in self._results for one in result.attempts if one.ended_s is not None]
        failed = sum(one.status == "failed" for one in attempts)
        return _share("requests that failed, below", wanted, failed, len(attempts), least=False)

    def dollars(self, wanted: float) -> dict[str, Any]:
        cost, n = self._summary.cost_usd, len(self._results)
        each = cost / n if cost is not None and n else None
        row = _row("dollars a job, below", wanted, each, "USD", n)
        if each is None or self._summary.cost_mark == "≥":
            return _unknown(row, "the price of a request is unknown")
        return row | {"met": each < wanted}

    def little(self, rate: float, room: float) -> dict[str, Any]:
        n = len(self._totals)
        mean_s = math.fsum(self._totals) / n if n else None
        row = _row(
            f"jobs under way at {rate:g} a second, at most", room, mean_s and rate * mean_s, "jobs", n
        )  # L = lambda W
        return _unknown(row, self._why()) if mean_s is None else row | {"met": row["measured"] <= room}

    def _why(self) -> str:
        return "nothing finished" if self._timed else "answers from the ledger or the run before took no time"


def _share(target: str, wanted: float, count: int, n: int, *, least: bool) -> dict[str, Any]:
    """Judge a share. Without one case the other way, fewer than `1 / (1 - wanted)` cases say nothing."""
    share = count / n if n else None
    row = _row(target, wanted, share, "share", n)
    others = n - count if least else count
    rare = 1 - wanted if least else wanted
    if share is None or (not others and rare > 0 and n * rare < 1):
        return _unknown(row, f"{n} cases are too few: one in {1 / rare:.0f} may go wrong" if rare > 0 else "no cases")
    return row | {"met": share >= wanted if least else share < wanted or not (share or wanted)}


def _row(target: str, wanted: float, measured: float | None, unit: str, n: int) -> dict[str, Any]:
    return {"target": target, "wanted": wanted, "measured": measured, "unit": unit, "n": n, "why": ""}


def _unknown(row: dict[str, Any], why: str) -> dict[str, Any]:
    return row | {"met": None, "why": why}
