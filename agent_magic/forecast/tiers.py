"""The size of a system for a rate of jobs, on paper: agents, kernels, workers, limits, dollars.

Arithmetic over Little's law. A kernel's capacity is measured (see the constants); the rest is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_magic.declare.validation import must_be
from agent_magic.engine.pacing.limits import KINDS, Limits
from agent_magic.errors import AgentMagicError
from agent_magic.forecast.capacity import HOUR_S, MINUTE_S, capacity, check_numbers, read_limits
from agent_magic.measure.frames import make_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

STREAMS_PER_KERNEL: Final = 200
"""Live streams of 50 events a second that one kernel carries on a core; 300 saturate it. Measured on two cores."""
STREAMS_PER_WORKER: Final = 200
STREAMS_OVER_WORKERS: Final = 2_000
"""Live streams that one kernel carries if workers read them: the highest number measured, not the limit."""
TIERS: Mapping[str, str] = {
    "jobs_per_s": "Float64",
    "agents": "Int64",
    "kernels": "Int64",
    "workers": "Int64",
    "connections": "Int64",
    "requests_per_min": "Float64",
    "input_tokens_per_min": "Float64",
    "output_tokens_per_min": "Float64",
    "limited_by": "string",
    "accounts": "Int64",
    "usd_per_hour": "Float64",
    "usd_per_job": "Float64",
}
LOST: Mapping[str, str] = {
    "jobs_per_s": "Float64",
    "cut": "Float64",
    "waiting": "Float64",
    "drained_s": "Float64",
    "lost": "Int64",
    "paid_twice_usd": "Float64",
}
TARGET_JOBS_PER_S = (5.0, 10.0)
"""The document's promises. Source: "Agent Scaling Analysis & Solutions", https://github.com/rawjaws/anvil."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """The needs of each rate of jobs, one row per rate.

    Attributes:
        seconds_per_job: How long a job takes.
        usd_per_job: Dollars of a job; `None` if not given.
        rows: The rows of `frame`.
    """

    seconds_per_job: float
    usd_per_job: float | None = field(kw_only=True)
    rows: tuple[Mapping[str, Any], ...] = field(kw_only=True, repr=False)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per rate; columns are `TIERS`. `workers` is 0 if one kernel does, `accounts` the number of limits."""
        return make_frame(self.rows, TIERS)

    @property
    def claims(self) -> tuple[str, ...]:
        """Computed contradictions in the document that promises 100 agents, one sentence each."""
        return contradictions()

    def __repr__(self) -> str:
        lines = [[name, *(_shown(row[name]) for row in self.rows)] for name in TIERS]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join([line[0].ljust(wide[0]), *map(str.rjust, line[1:], wide[1:])]) for line in lines)

    def without_region(self, regions: int, *, lost_s: float = 60.0, utilization: float = 0.8) -> pd.DataFrame:
        """Return the effect of losing one region. One row per rate; columns are `LOST`.

        Jobs come evenly, and each region has an equal part of the capacity, `jobs_per_s / utilization`. Jobs under way
        in the lost one are `cut`, and sent again elsewhere: it may have been billed, `paid_twice_usd` at most. Jobs
        beyond the others' capacity wait, until `drained_s` seconds after the region is back. A ledger loses nothing.

        Args:
            regions: How many there are.
            lost_s: For how long one is lost.
            utilization: The part of the capacity that is used before, above 0 and below 1.

        Raises:
            AgentMagicError: There are fewer than 2 regions, or something is not in its range.
        """
        check_numbers({"regions": regions, "lost_s": lost_s, "utilization": utilization})
        if regions < 2:
            raise must_be("regions", "at least 2", regions, error=AgentMagicError)
        if not 0 < utilization < 1:
            raise must_be("utilization", "above 0 and below 1", utilization, error=AgentMagicError)
        rows: list[dict[str, object]] = []
        for row in self.rows:
            rate = row["jobs_per_s"]
            could, cut = rate / utilization, rate * self.seconds_per_job / regions
            waiting = max(0.0, rate - could * (regions - 1) / regions) * lost_s
            rows.append(
                {
                    "jobs_per_s": rate,
                    "cut": cut,
                    "waiting": waiting,
                    "drained_s": waiting / (could - rate),
                    "lost": 0,
                    "paid_twice_usd": None if self.usd_per_job is None else cut * self.usd_per_job,
                }
            )
        return make_frame(rows, LOST)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def tiers(
    jobs_per_s: float | Iterable[float],
    seconds_per_job: float,
    *,
    requests: float = 1.0,
    input_tokens: float | None = None,
    output_tokens: float | None = None,
    limits: Limits | float | None = None,
    usd_per_job: float | None = None,
) -> Tiers:
    """Size a system for a rate of jobs.

    Agents are jobs under way: `jobs_per_s * seconds_per_job`, by Little's law. A kernel carries up to 200 of them;
    above, workers read the streams, 200 each, up to 2,000 per kernel. Nothing here is measured in your system: give the
    seconds and tokens of a run, such as `run.totals`.

    Source: Little, "A Proof for the Queuing Formula L = lambda W", 1961.

    Args:
        jobs_per_s: Jobs per second, or several rates to compare.
        seconds_per_job: Seconds of a job, waiting included.
        requests: Requests of one job.
        input_tokens: Uncached input tokens of one job. Columns that need an omitted value are `NA`.
        output_tokens: Output tokens of one job.
        limits: The rate limits of one account: requests a minute, or `am.Limits`. Then `accounts` is the number of such
            accounts needed, and `limited_by` the deciding limit; `NA` if a counted token number is unknown.
        usd_per_job: Dollars of one job.

    Raises:
        AgentMagicError: Something is not a number >= 0.
    """
    rates = [jobs_per_s] if isinstance(jobs_per_s, int | float) else list(jobs_per_s)
    tokens = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    of_job = {"requests": requests, **tokens}
    for rate in rates:
        check_numbers({"jobs_per_s": rate, "seconds_per_job": seconds_per_job, "requests": requests})
    check_numbers({}, optional={**tokens, "usd_per_job": usd_per_job})
    given = read_limits(limits)
    rows = tuple(_row(rate, seconds_per_job, of_job, given, usd_per_job) for rate in rates)
    return Tiers(seconds_per_job, usd_per_job=usd_per_job, rows=rows)


def _row(
    rate: float, seconds: float, of_job: Mapping[str, float | None], limits: Limits, usd_per_job: float | None
) -> dict[str, Any]:
    agents = math.ceil(rate * seconds)
    carried = agents <= STREAMS_PER_KERNEL
    of_kind = {name: of_job[kind.field] for name, kind in KINDS.items()}
    needed = {name: None if one is None else rate * MINUTE_S * one for name, one in of_kind.items()}
    parts = {
        KINDS[name].unit: None if (part := needed[name]) is None else part / limit
        for name, limit in limits.rates.items()
        if limit
    }
    known = {unit: part for unit, part in parts.items() if part is not None}
    limited_by = max(known, key=lambda unit: known[unit]) if known and len(known) == len(parts) else None
    return {
        "jobs_per_s": rate,
        "agents": agents,
        "kernels": 1 if carried else math.ceil(agents / STREAMS_OVER_WORKERS),
        "workers": 0 if carried else math.ceil(agents / STREAMS_PER_WORKER),
        "connections": agents,
        **{f"{kind.field}_per_min": needed[name] for name, kind in KINDS.items()},
        "limited_by": limited_by,
        "accounts": None if limited_by is None else max(1, math.ceil(known[limited_by])),
        "usd_per_hour": None if usd_per_job is None else rate * HOUR_S * usd_per_job,
        "usd_per_job": usd_per_job,
    }


def contradictions() -> tuple[str, ...]:
    """Return the contradictions in the document of the 100 agents, each with both of its numbers.

    Source: "Agent Scaling Analysis & Solutions", https://github.com/rawjaws/anvil: 50 requests a minute and 2 to 4
    requests a second needed; targets of 5 to 10 jobs a second in 2 to 15 s with 100 agents; $500 to $2,000 an hour for
    the API in one place, $200 to $800 in another, $250 to $900 in all; less than $2 a job.
    """
    low, high = TARGET_JOBS_PER_S
    has = capacity(50).jobs_per_s or 0.0
    dear = [(capacity(usd_per_job=2.0, wanted_jobs_per_s=rate).usd_per_hour or 0.0) / 1000 for rate in (low, high)]
    agents = low * 2, high * 15
    return (
        f"50 requests a minute are {has:.2f} a second. It needs 2 to 4, and promises {low:g} to {high:g} jobs.",
        f"{low:g} to {high:g} jobs a second, one request each, are {low * MINUTE_S:g} to {high * MINUTE_S:g} a minute.",
        f"$250 to $900 an hour at that rate are ${250 / high / HOUR_S:.3f} to ${900 / low / HOUR_S:.2f} a job.",
        f"Its $2 a job would be ${dear[0]:,.0f}K to ${dear[1]:,.0f}K an hour at that rate.",
        "The API alone is $500 to $2,000 an hour in one place and $200 to $800 in another.",
        f"At 2 to 15 s a job that rate keeps {agents[0]:g} to {agents[1]:g} agents busy (Little's law), not 100.",
    )
