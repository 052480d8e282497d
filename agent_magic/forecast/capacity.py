"""Calculators: the load a rate limit carries, a token budget, the best speedup, the size of a system.

Arithmetic with its formula beside it; only a kernel's capacity was measured (see the constants).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from agent_magic.declare.validation import is_number, must_be
from agent_magic.engine.pacing.limits import KINDS, Limits
from agent_magic.errors import AgentMagicError
from agent_magic.measure.compare import record_of
from agent_magic.measure.frames import make_frame
from agent_magic.measure.server import limit_words, shortest_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from agent_magic.forecast.forecast import Forecaster


MOST = 1e100
"""Larger numbers are a mistake."""
MINUTE_S, HOUR_S = 60.0, 3600.0
DAYS_A_MONTH = 30
BUSY = 100
FORMULAS: Mapping[str, str] = {"slots": "concurrent_requests / latency_s / requests"}
CAPACITY: Mapping[str, str] = {
    "limit": "string",
    "per_minute": "Float64",
    "per_job": "Float64",
    "jobs_per_s": "Float64",
    "needed_per_minute": "Float64",
    "enough": "boolean",
    "formula": "string",
}


@dataclass(frozen=True, slots=True)
class Capacity:
    """The load that limits carry.

    Attributes:
        jobs_per_s: The most jobs a second that every given limit lets pass; `None` without a limit.
        limited_by: The limit that binds, or an empty string.
        concurrent: Requests under way at once at `jobs_per_s` (without limits: at the wanted rate), by Little's law;
            `None` without `latency_s`.
        usd_per_job: Dollars of a job; `None` if not given.
        usd_per_hour: Dollars of an hour at the same rate; `None` if unknown.
        rows: The rows of `frame`.
    """

    jobs_per_s: float | None
    limited_by: str
    concurrent: float | None = field(kw_only=True)
    usd_per_job: float | None = field(kw_only=True)
    usd_per_hour: float | None = field(kw_only=True)
    rows: tuple[Mapping[str, object], ...] = field(kw_only=True, repr=False)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per limit that was given; columns are `CAPACITY`. `needed_per_minute` and `enough` need a wish."""
        return make_frame(self.rows, CAPACITY)


def capacity(  # noqa: PLR0913 - a limit, or a number of a job, each
    limits: Limits | float | None = None,
    *,
    concurrent_requests: float | None = None,
    requests: float | None = None,
    input_tokens: float | None = None,
    output_tokens: float | None = None,
    latency_s: float | None = None,
    usd_per_job: float | None = None,
    wanted_jobs_per_s: float | None = None,
    run: HasForecaster | None = None,
) -> Capacity:
    """Return the jobs per second within rate limits, the binding limit, and the dollars of an hour.

    A limit per minute carries `limit / 60 / use` jobs a second, `use` being one job's; slots carry
    `concurrent_requests / latency_s / requests`. At a rate there are `rate * latency_s * requests` requests under way.

    Source: Little, "A Proof for the Queuing Formula L = lambda W", 1961.

    Args:
        limits: Per minute: requests, uncached input tokens, output tokens; a number is requests.
        concurrent_requests: Maximum requests at once.
        requests: Requests of one job; without a run 1.
        input_tokens: Input tokens of one job; without a run 0.
        output_tokens: Output tokens of one job; without a run 0.
        latency_s: Seconds of one request.
        usd_per_job: Dollars of one job.
        wanted_jobs_per_s: The wanted rate: `frame` shows its need of each limit. Without any limit, the requests under
            way and the dollars are those of this rate.
        run: A run that is one job: its numbers count unless others are given. The capacity of its servers is a limit
            too, if their speed depends on load: `the server (4 slots)`.

    Raises:
        AgentMagicError: Something is not a number >= 0, or `run` is no run.
    """
    if run is not None:
        record_of(run, "capacity(run=...)")
    job = _NO_JOB if run is None else _job_of(run.forecaster())
    requests = job.requests if requests is None else requests
    input_tokens = job.input_tokens if input_tokens is None else input_tokens
    output_tokens = job.output_tokens if output_tokens is None else output_tokens
    latency_s = job.latency_s if latency_s is None else latency_s
    usd_per_job = job.usd if usd_per_job is None else usd_per_job
    of_job = {"requests": requests, "input_tokens": input_tokens, "output_tokens": output_tokens}
    more = {"concurrent_requests": concurrent_requests, "latency_s": latency_s, "usd_per_job": usd_per_job}
    check_numbers(of_job, optional={**more, "wanted_jobs_per_s": wanted_jobs_per_s})
    limits = read_limits(limits)
    slots = None if concurrent_requests is None or not latency_s else concurrent_requests * MINUTE_S / latency_s
    given = [
        (kind.unit, limits.rates[name], kind.amount(requests, input_tokens, output_tokens))
        for name, kind in KINDS.items()
    ]
    given.append(("slots", slots, requests))
    given += [(name, rate * MINUTE_S * requests, requests) for name, rate in job.servers.items()]
    binding = [(name, limit, used) for name, limit, used in given if limit is not None and used]
    rates = {name: limit / MINUTE_S / used for name, limit, used in binding}
    limited_by = min(rates, key=lambda name: rates[name], default="")
    rate = rates.get(limited_by)
    load = wanted_jobs_per_s if rate is None else rate  # all figures are of one load
    return Capacity(
        rate,
        limited_by,
        concurrent=None if load is None or latency_s is None else load * requests * latency_s,
        usd_per_job=usd_per_job,
        usd_per_hour=None if load is None or usd_per_job is None else load * HOUR_S * usd_per_job,
        rows=tuple(_limit_row(name, limit, used, wanted_jobs_per_s) for name, limit, used in binding),
    )


class HasForecaster(Protocol):
    """A run."""

    def forecaster(self) -> Forecaster: ...


class _Job(NamedTuple):
    """The needs of one job, and the jobs a second that each of its servers carries."""

    requests: float
    input_tokens: float
    output_tokens: float
    latency_s: float | None = None
    usd: float | None = None
    servers: Mapping[str, float] = MappingProxyType({})


_NO_JOB = _Job(1.0, 0.0, 0.0)


def _job_of(forecaster: Forecaster) -> _Job:
    totals, record = forecaster.totals, forecaster.record
    taken_s = [one.duration_s for one in record.facts.answered if one.duration_s is not None]
    carried: dict[str, float] = {}
    for at, known in forecaster.evidence.servers.items():
        needs = [one for one in forecaster.evidence.needs_of(at, known.likely) if any(one)]
        if needs and not known.likely.is_constant:
            name = limit_words(known.likely)
            few, many = (math.ceil(times * max(BUSY, 4 * known.most) / len(needs)) for times in (1, 2))
            walls_s = [
                shortest_s([*needs] * jobs, [()] * (jobs * len(needs)), known.most, known.likely)
                for jobs in (few, many)
            ]
            carried[name] = min(carried.get(name, math.inf), (many - few) / (walls_s[1] - walls_s[0]))
    tokens = float(totals.input_tokens or 0), float(totals.output_tokens or 0)
    latency_s = fmean(taken_s) if taken_s else None
    return _Job(float(len(taken_s) or 1), *tokens, latency_s, totals.cost_usd, carried)


def read_limits(limits: object) -> Limits:
    if limits is None or isinstance(limits, Limits):
        return limits or Limits()
    if is_number(limits):
        return Limits(cast("float", limits))
    raise must_be("limits", "requests per minute or Limits(requests, input_tokens, output_tokens=...)", limits)


def check_numbers(given: Mapping[str, Any], *, optional: Mapping[str, Any] | None = None) -> None:
    said = {name: value for name, value in (optional or {}).items() if value is not None}
    for name, value in {**given, **said}.items():
        if not (is_number(value) and 0 <= value < MOST):
            raise must_be(name, "a number >= 0", value, error=AgentMagicError)


def _limit_row(name: str, per_minute: float, used: float, wanted: float | None) -> dict[str, object]:
    needed = None if wanted is None else wanted * MINUTE_S * used
    return {
        "limit": name,
        "per_minute": per_minute,
        "per_job": used,
        "jobs_per_s": per_minute / MINUTE_S / used,
        "needed_per_minute": needed,
        "enough": None if needed is None else needed <= per_minute,
        "formula": FORMULAS.get(
            name, "requests served a minute / 60 / use" if "server" in name else "limit / 60 / use"
        ),
    }


@dataclass(frozen=True, slots=True)
class Monthly:
    """The runs of a monthly token budget.

    Attributes:
        runs: Whole runs in a month.
        runs_a_day: The same by day, of 30.
        runs_left: Whole runs with the rest of the budget.
        tokens_left: The rest of the budget.
        days_left: Until the budget is used up at the pace so far; `None` if nothing was used yet.
        usd: Dollars of all runs of a month; `None` if not given.
    """

    runs: int
    runs_a_day: float
    runs_left: int = field(kw_only=True)
    tokens_left: float = field(kw_only=True)
    days_left: float | None = field(kw_only=True)
    usd: float | None = field(kw_only=True)


def monthly(
    tokens_per_run: float,
    budget_tokens: float = 5_000_000,
    *,
    used_tokens: float = 0,
    days_gone: float = 0,
    usd_per_run: float | None = None,
) -> Monthly:
    """Return the number of runs in a monthly token budget: `budget // tokens_per_run`.

    Args:
        tokens_per_run: Input and output tokens of one run, such as `run.totals.tokens`.
        budget_tokens: Tokens a month. The default is the example of "Token Usage & Cost Analysis" (svrnty,
            claude-skills, 2025), no recommendation.
        used_tokens: Tokens used this month.
        days_gone: Days of this month that are over.
        usd_per_run: Dollars of one run.

    Raises:
        AgentMagicError: A run needs more than 0 tokens, the rest at least 0.
    """
    needed = {"tokens_per_run": tokens_per_run, "budget_tokens": budget_tokens, "used_tokens": used_tokens}
    check_numbers({**needed, "days_gone": days_gone}, optional={"usd_per_run": usd_per_run})
    if not tokens_per_run:
        raise AgentMagicError(
            "tokens_per_run must be above 0, got 0. Give the tokens of a run, such as run.totals.tokens."
        )
    runs, left = math.floor(budget_tokens / tokens_per_run), max(0.0, budget_tokens - used_tokens)
    pace = used_tokens / days_gone if days_gone else 0.0
    return Monthly(
        runs,
        budget_tokens / tokens_per_run / DAYS_A_MONTH,
        runs_left=math.floor(left / tokens_per_run),
        tokens_left=left,
        days_left=left / pace if pace else None,
        usd=None if usd_per_run is None else runs * usd_per_run,
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a plan's speedup with some slots.

    Attributes:
        best: Work over the longest of the critical path and an even share of the work: no schedule beats it.
        worst: The minimum of every schedule that leaves no slot idle while an agent is ready.
        work_s: All work.
        path_s: The critical path.
    """

    best: float
    worst: float
    work_s: float = field(kw_only=True)
    path_s: float = field(kw_only=True)


def speedup_bounds(work_s: float, path_s: float, concurrency: int) -> Bounds:
    """Return bounds, in closed form, of a plan's speedup over one agent at a time.

    `best = W / max(C, W / n)` and `worst = W / (C + (W - C) / n)`. The second is Amdahl's formula with the critical
    path as the serial part: for a graph it is a lower bound, because side chains run beside that path.

    Source: Graham, "Bounds for Certain Multiprocessing Anomalies", 1966; Amdahl, "Validity of the single processor
    approach", 1967.

    Args:
        work_s: All work, `agent_s` of a run.
        path_s: The critical path, `critical_path_s` of a run.
        concurrency: Slots.

    Raises:
        AgentMagicError: The path is not between 0 and the work, or there is no slot.
    """
    check_numbers({"work_s": work_s, "path_s": path_s, "concurrency": concurrency})
    if not (0 < path_s <= work_s and concurrency >= 1):
        raise AgentMagicError(
            f"It must be 0 < path_s <= work_s and concurrency >= 1, got path_s={path_s!r}, work_s={work_s!r}, "
            f"concurrency={concurrency!r}."
        )
    best, worst = work_s / max(path_s, work_s / concurrency), work_s / (path_s + (work_s - path_s) / concurrency)
    return Bounds(best, worst, work_s=work_s, path_s=path_s)


@dataclass(frozen=True, slots=True)
class Roi:
    """The value of answers against their cost.

    Attributes:
        accepted: Answers that can be used.
        cost_per_accepted_usd: Dollars of one of those, review included; `None` if there is none.
        value_usd: Their value.
        cost_usd: The cost of all answers, review included.
        net_usd: The difference.
        roi: `net_usd / cost_usd`; `None` if nothing was spent.
        break_even_share: The accepted share at which `net_usd` is 0; above 1 it never pays.
    """

    accepted: float
    cost_per_accepted_usd: float | None
    value_usd: float = field(kw_only=True)
    cost_usd: float = field(kw_only=True)
    net_usd: float = field(kw_only=True)
    roi: float | None = field(kw_only=True)
    break_even_share: float | None = field(kw_only=True)


def roi(
    *,
    value_per_answer: float,
    cost_usd: float,
    answers: float,
    accepted_share: float,
    review_usd_per_answer: float | None = None,
) -> Roi:
    """Return the value of answers and the cost of an accepted one, from your numbers.

    Args:
        value_per_answer: Your value of an accepted answer in dollars.
        cost_usd: Dollars of all answers, such as `run.totals.cost_usd`.
        answers: Number of answers.
        accepted_share: The usable share, such as a score; the lower end of its interval is the cautious choice.
        review_usd_per_answer: Dollars to review one answer, if you do.

    Raises:
        AgentMagicError: Something is not a number >= 0, there are no answers, or the share is above 1.
    """
    given = {"value_per_answer": value_per_answer, "cost_usd": cost_usd, "answers": answers}
    check_numbers(
        {**given, "accepted_share": accepted_share}, optional={"review_usd_per_answer": review_usd_per_answer}
    )
    if not answers:
        raise must_be("answers", "above 0", answers, error=AgentMagicError)
    if accepted_share > 1:
        raise must_be("accepted_share", "a share from 0 to 1", accepted_share, error=AgentMagicError)
    accepted, cost = answers * accepted_share, cost_usd + answers * (review_usd_per_answer or 0.0)
    value = accepted * value_per_answer
    return Roi(
        accepted,
        cost / accepted if accepted else None,
        value_usd=value,
        cost_usd=cost,
        net_usd=value - cost,
        roi=(value - cost) / cost if cost else None,
        break_even_share=cost / (answers * value_per_answer) if value_per_answer else None,
    )


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
    requests a second needed; targets of 5 to 10 jobs a second in 2 to 15 s; $500 to $2,000 an hour for the API in one
    place, $200 to $800 in another, $250 to $900 in all; less than $2 a job.
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
