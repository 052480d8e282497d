"""Accuracy of forecasts, each compared with the measurement of a later run; and sweeps, real runs beside forecasts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from agent_magic.declare.step import models_text
from agent_magic.declare.units import plural, seconds
from agent_magic.engine.pacing.limits import KINDS, Limits
from agent_magic.engine.policy import policy_from
from agent_magic.errors import DeclarationError, shown_value
from agent_magic.forecast.forecast import Forecaster, Scenario
from agent_magic.measure.compare import check_runs
from agent_magic.measure.frames import as_made, make_frame
from agent_magic.measure.metrics import summarize
from agent_magic.record.display import Shown
from agent_magic.record.history import MEASURED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import pandas as pd

    from agent_magic.declare.step import Step
    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.forecast import Forecast
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.results import RunRecord
    from agent_magic.record.terms import Ceiling, Ceilings


COLUMNS: Final[Mapping[str, str]] = {
    "plan": "string",
    "model": "string",
    "concurrency": "Int64",
    "predicted_wall_s": "Float64",
    "measured_wall_s": "Float64",
    "wall_error": "Float64",
    "wall_in_range": "boolean",
    "predicted_cost_usd": "Float64",
    "measured_cost_usd": "Float64",
    "cost_error": "Float64",
    "predicted_rate_limited": "Int64",
    "measured_rate_limited": "Int64",
    "schedule": "string",
    "cache": "string",
    "cache_ttl": "string",
    "batch": "string",
    "limits": "string",
    "drop": "string",
    "basis": "string",
    "made": "string",
    "simulated": "bool",
    "left_out": "string",
}
"""The sources of answers made in a run itself: only those took the forecast time."""
CHANGED: Final = frozenset({"model", "cascade", "escalate", "effort"})
"""Options of a step that a forecast may change; they are compared by their requested values."""


class Prediction(NamedTuple):
    """One forecast, made `before` the compared run, or `afterwards`."""

    record: RunRecord
    forecast: Forecast
    made: str = "before"


class Forecasts:
    """Forecasts, the oldest first, and the runs that came after them."""

    def __init__(self) -> None:
        self.made: list[Prediction] = []
        self._runs: list[RunRecord] = []

    def add(self, record: RunRecord, forecast: Forecast) -> None:
        self.made.append(Prediction(record, replace(forecast, record=None)))

    def ran(self, record: RunRecord) -> None:
        self._runs.append(record)

    def matched(self, runs: Iterable[RunRecord] = ()) -> list[tuple[Prediction, RunRecord]]:
        return [
            (one, record)
            for record in (*self._runs, *runs)
            for one in self.made
            if _is_of(one.record, one.forecast.scenario, record)
        ]


class Holder(Protocol):
    """A run with its forecasts."""

    record: RunRecord
    forecasts: Any
    """`Forecasts`; a cached property is none to a type checker."""


def calibration(*runs: Holder) -> pd.DataFrame:
    """Compare forecasts with measurements: one row per forecast and run.

    Columns: `plan`, `model` and the settings `concurrency`, `schedule`, `cache`, `cache_ttl`, `batch`, `limits`,
    `drop`; `predicted_`, `measured_` and the error of `wall_s` and `cost_usd`, and `wall_in_range`; 429s, `predicted_`
    and `measured_rate_limited`; `basis`, `made`, `simulated` and `left_out`.

    A run without an earlier `run.whatif` is forecast now, from the earliest run it repeats under another policy, model
    or effort: `made` is `afterwards`.

    Errors are relative to the measurement: 0.02 is 2 % too long or too expensive. A run that was stopped, or took its
    answers from the ledger or a cassette, measures nothing: `left_out` gives the reason, and its measurements are `NA`.

    Args:
        *runs: The original and the later runs, in any order.

    Raises:
        DeclarationError: One of them is no run.
    """
    check_runs(runs, "calibration")
    logs: Iterable[Forecasts] = {id(run.forecasts): run.forecasts for run in runs}.values()
    records = sorted({run.record.uid: run.record for run in runs}.values(), key=lambda record: record.began_at)
    found = [pair for log in logs for pair in log.matched(records)]
    forecast_before = {record.uid for _, record in found}
    for index, record in enumerate(records):
        if record.uid not in forecast_before and (late := _forecast_now(records[:index], record)) is not None:
            found.append((late, record))
    rows = {(id(prediction), record.uid): _row(prediction, record) for prediction, record in found}
    simulated = any(row["simulated"] for row in rows.values())
    verdict = "" if rows else "none of these runs repeats another of them: run the plan again, under another policy"
    found_frame = make_frame(rows.values(), COLUMNS, simulated=simulated, verdict=verdict)
    return as_made(found_frame.drop_duplicates(ignore_index=True))


def _forecast_now(earlier: Iterable[RunRecord], record: RunRecord) -> Prediction | None:
    for base in earlier:
        scenario = _scenario_of(base, record)
        if scenario is not None and _is_of(base, scenario, record):
            return Prediction(base, Forecaster(base).forecast(scenario), "afterwards")
    return None


def _scenario_of(base: RunRecord, record: RunRecord) -> Scenario | None:
    if record.terms is None or base.terms is None or not set(record.plan.names) <= set(base.plan.names):
        return None
    number = base.plan.index
    agents = zip(record.plan.agents, record.results, strict=True)
    changed = [(number[agent.name], agent.effort, _models_of(agent, result.model)) for agent, result in agents]
    before = [_models_of(agent, result.model) for agent, result in zip(base.plan.agents, base.results, strict=True)]
    limits = _limits_of(record.terms.after)
    return Scenario(
        policy_from(record.terms.policy),
        models={one: asked[0][0] for one, _, asked in changed if before[one] != asked and len(asked[0]) == 1},
        efforts={one: effort for one, effort, _ in changed if base.plan.agents[one].effort != effort},
        dropped=frozenset(range(len(base.plan))) - {one for one, _, _ in changed},
        limits=None if limits == _limits_of(base.terms.after) else limits,
    )


def _limits_of(ceilings: Ceilings) -> dict[str, Limits]:

    def rates(known: dict[str, Ceiling]) -> dict[str, Any]:
        return {kind.field: round(known[name].per_minute) or None for name, kind in KINDS.items() if name in known}

    return {pool: Limits(**rates(known)) for pool, known in ceilings.items()}


def _row(prediction: Prediction, record: RunRecord) -> dict[str, Any]:
    forecast, measured = prediction.forecast, summarize(record)
    policy, dropped = forecast.scenario.policy, sorted(forecast.scenario.dropped)
    low_s, high_s = forecast.note.wall_range_s
    asked = [(step, one.model) for step, one in zip(record.plan.agents, record.results, strict=True)]
    why = _left_out(record)
    wall_s, cost_usd = (None, None) if why else (measured.wall_s, measured.cost_usd)
    return {
        "plan": record.plan.name,
        "model": ", ".join(sorted({models_text(*each) for each in asked if each[1]})),
        "concurrency": policy.concurrency if policy else None,
        "schedule": policy.schedule if policy else None,
        "cache": policy.cache if policy else None,
        "cache_ttl": policy.cache_ttl if policy else None,
        "batch": policy.batch if policy else None,
        "limits": _limits_text(forecast.scenario.limits) or None,
        "drop": ", ".join(prediction.record.plan.names[agent] for agent in dropped) or None,
        "predicted_wall_s": forecast.wall_s,
        "measured_wall_s": wall_s,
        "wall_error": forecast.wall_s / wall_s - 1 if wall_s else None,
        "wall_in_range": None if wall_s is None else low_s <= wall_s <= high_s,
        "predicted_cost_usd": forecast.cost_usd,
        "measured_cost_usd": cost_usd,
        "cost_error": forecast.cost_usd / cost_usd - 1 if forecast.cost_usd and cost_usd else None,
        "predicted_rate_limited": forecast.totals.rate_limited,
        "measured_rate_limited": None if why else measured.rate_limited,
        "basis": forecast.note.basis,
        "made": prediction.made,
        "simulated": record.simulated,
        "left_out": why,
    }


def _left_out(record: RunRecord) -> str | None:
    if record.cut:
        return "it was stopped"
    others = [
        one for one in record.results if not one.is_shared and (one.is_served or one.source not in {*MEASURED, None})
    ]
    served = ["run before" if one.source in MEASURED else one.source for one in others]
    return f"{len(served)} of {len(record.results)} answers from the {served[0]}" if served else None


def _is_of(base: RunRecord, scenario: Scenario, record: RunRecord) -> bool:
    if record is base or record.began_at < base.began_at or record.terms is None or scenario.policy is None:
        return False
    ran = policy_from(record.terms.policy)
    if replace(ran, seed=None) != replace(scenario.policy, seed=None):
        return False
    if scenario.limits is not None and not _keeps(record.terms.after, scenario.limits):
        return False
    kept = [number for number in range(len(base.plan)) if number not in scenario.dropped]
    agents = zip(record.plan.agents, record.results, strict=True)
    return len(kept) == len(record.plan) and all(
        _same(base, scenario, number, agent, result.model) for number, (agent, result) in zip(kept, agents, strict=True)
    )


def _same(base: RunRecord, scenario: Scenario, number: int, agent: Step, model: str) -> bool:
    """Return whether an agent that ran is the forecast one."""
    asked, other = base.plan.agents[number], scenario.models.get(number)
    effort = scenario.efforts.get(number, asked.effort)
    models = _models_of(asked, base.results[number].model) if other is None else ((other,), None)
    if (asked.name, models, effort) != (agent.name, _models_of(agent, model), agent.effort):
        return False
    return bool(scenario.dropped) or _same_but_for_model(asked, agent)


def _models_of(agent: Step, model: str) -> tuple[Sequence[str], str | None]:
    return (agent.cascade, agent.escalate) if agent.cascade else ((model,), None)


def _same_but_for_model(one: Step, other: Step) -> bool:
    # Compared field by field, since a copy with another model may be an invalid step beside a cascade.
    if one.is_task != other.is_task:
        return False
    names = [each.name for each in fields(one) if each.compare and each.name not in CHANGED]
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _keeps(after: Ceilings, asked: Mapping[str, Limits]) -> bool:
    if not asked:
        return not after
    for pool, found in _limits_of(after).items():
        wanted, rates = (asked.get(pool) or asked.get("*") or Limits()).rates, found.rates
        if any(value is not None and rates[name] != round(value) for name, value in wanted.items()):
            return False
    return bool(after)


def _limits_text(limits: Mapping[str, Limits] | None) -> str:
    if limits is None:
        return ""
    parts = [
        f"{'' if pool == '*' else f'{pool}: '}{value:g} {name}"
        for pool, each in limits.items()
        for name, value in each.rates.items()
        if value is not None
    ]
    return ", ".join(parts) or "off"


SWEEP: Mapping[str, str] = {
    "concurrency": "Int64",
    "wall_s": "Float64",
    "forecast_s": "Float64",
    "wall_error": "Float64",
    "speedup": "Float64",
    "tokens": "Int64",
    "cost_usd": "Float64",
    "mean_concurrency": "Float64",
    "efficiency": "Float64",
    "agent_s": "Float64",
    "rate_limited": "Int64",
    "succeeded": "Int64",
}


class Forecastable(Protocol):
    """A run with a record and what-ifs."""

    @property
    def record(self) -> RunRecord: ...

    def forecast(self, policy: Policy | None = None) -> Forecastable: ...


R = TypeVar("R", bound=Forecastable)


@dataclass(frozen=True, slots=True, repr=False)
class Sweep(Shown, Generic[R]):
    """Real runs of one plan, one per concurrency.

    Attributes:
        runs: The runs, in the order they were made.
        frame: One row per run; columns are `SWEEP`; see `sweep_frame`.
    """

    runs: tuple[R, ...]
    frame: pd.DataFrame

    def __repr__(self) -> str:
        return f"Sweep: {len(self.runs)} runs\n{self.frame.round(4).to_string(index=False)}"


def sweep_frame(
    records: Sequence[RunRecord], concurrency: Sequence[int], forecast_s: Sequence[float | None]
) -> pd.DataFrame:
    """Compare measured runs with their forecasts; one row per run, columns are `SWEEP`.

    `forecast_s` is from the durations of the first run; `wall_error` includes the provider's variation between runs;
    `speedup` is `NA` without a run at 1.
    """
    summaries = [summarize(record) for record in records]
    slow_s = next((one.wall_s for one, slots in zip(summaries, concurrency, strict=True) if slots == 1), None)
    rows = [
        {
            **asdict(summary),
            "concurrency": slots,
            "forecast_s": guess,
            "wall_error": guess / summary.wall_s - 1 if guess is not None and summary.wall_s else None,
            "speedup": slow_s / summary.wall_s if slow_s is not None and summary.wall_s else None,
        }
        for summary, slots, guess in zip(summaries, concurrency, forecast_s, strict=True)
    ]
    return make_frame(rows, SWEEP, verdict=_verdict(summaries, concurrency))


def _verdict(summaries: Sequence[Summary], concurrency: Sequence[int]) -> str:
    known = [(one.wall_s, place) for place, one in enumerate(summaries) if one.wall_s is not None]
    if not known:
        return f"{plural(len(summaries), 'run')}, none finished"
    wall_s, place = min(known)
    fastest = f"concurrency {concurrency[place]:,} is the fastest, {seconds(wall_s)}: sweep.runs[{place}] is that run"
    return f"{plural(len(summaries), 'run')} · {fastest}"


async def make_sweep(
    run: Callable[[Policy], Awaitable[R]],
    concurrency: Iterable[int],
    policy: Policy,
) -> Sweep[R]:
    if not isinstance(concurrency, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DeclarationError(f"concurrency must be a list such as [1, 2, 4], got {shown_value(concurrency)}.")
    slots = list(concurrency)
    policies = [replace(policy, concurrency=each) for each in slots]
    runs = [await run(each) for each in policies]
    guesses = [summarize(runs[0].forecast(each).record).wall_s for each in policies] if runs else []
    return Sweep(tuple(runs), sweep_frame([one.record for one in runs], slots, guesses))
