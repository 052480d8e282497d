"""How far forecasts were off: each one whose scenario was really run later, beside what that run measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from agent_magic.engine.policy import policy_from
from agent_magic.measure.metrics import summarize
from agent_magic.measure.recorded import check_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from agent_magic.declare.agent import Agent
    from agent_magic.engine.pacing.limits import Limits
    from agent_magic.forecast.forecast import Forecast, Scenario
    from agent_magic.record.results import RunRecord

COLUMNS: Final[Mapping[str, str]] = {
    "plan": "string",
    "model": "string",
    "concurrency": "Int64",
    "schedule": "string",
    "cache": "string",
    "cache_ttl": "string",
    "limits": "string",
    "drop": "string",
    "predicted_wall_s": "float64",
    "measured_wall_s": "float64",
    "wall_error": "float64",
    "wall_in_range": "boolean",
    "predicted_cost_usd": "float64",
    "measured_cost_usd": "float64",
    "cost_error": "float64",
    "predicted_429": "Int64",
    "measured_429": "Int64",
    "basis": "string",
    "simulated": "bool",
    "left_out": "string",
}
OWN: Final = frozenset({"live", "simulated"})
"""The sources of answers that were made in a run itself: only those took the time that was forecast."""


class Prediction(NamedTuple):
    """One forecast, as it was made.

    Attributes:
        record: The run it was made from.
        forecast: What it said.
        drop: The agents that were left out, in words.
    """

    record: RunRecord
    forecast: Forecast
    drop: str


class Forecasts:
    """The forecasts that were made, and the runs that came after them.

    Attributes:
        made: The forecasts, oldest first.
    """

    def __init__(self) -> None:
        self.made: list[Prediction] = []
        self._runs: list[RunRecord] = []

    def add(self, record: RunRecord, forecast: Forecast) -> None:
        """Take in a forecast. Those of batches are left out: no run is one."""
        if not forecast.scenario.batch:
            names = [record.plan.agents[agent].name for agent in sorted(forecast.scenario.dropped)]
            self.made.append(Prediction(record, replace(forecast, record=None), ", ".join(names)))

    def ran(self, record: RunRecord) -> None:
        """Take in a run."""
        self._runs.append(record)

    def matched(self, runs: Iterable[RunRecord] = ()) -> list[tuple[Prediction, RunRecord]]:
        """Return each forecast with each later run of what it asked for."""
        found: list[tuple[Prediction, RunRecord]] = []
        for record in (*self._runs, *runs):
            if record.terms is not None:
                found += [(one, record) for one in self.made if _is_of(one, record)]
        return found


class Holder(Protocol):
    """Whoever has a record and made forecasts: a run."""

    record: RunRecord
    forecasts: Forecasts


def calibration(*runs: Holder) -> pd.DataFrame:
    """Put forecasts beside what was measured: one row per forecast and run; columns and dtypes are `COLUMNS`.

    Errors are relative to what was measured: 0.02 is 2 % too long or too dear. A run that was cut, or whose answers
    came from the ledger or a cassette, measures nothing: `left_out` says so, and what it measured is `NA`.

    Args:
        *runs: The runs that forecasts were made from, and those that were run afterwards, in any order.

    Raises:
        DeclarationError: One of them is no run.
    """
    check_runs(runs, "calibration")
    logs = list({id(run.forecasts): run.forecasts for run in runs}.values())
    records = list({id(run.record): run.record for run in runs}.values())
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for log in logs:
        for prediction, record in log.matched(records):
            rows[id(prediction), id(record)] = _row(prediction, record)
    return _frame(list(rows.values())).drop_duplicates(ignore_index=True)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in COLUMNS.items()})
    frame.attrs["simulated"] = any(row["simulated"] for row in rows)
    return frame


def _row(prediction: Prediction, record: RunRecord) -> dict[str, Any]:
    forecast, measured = prediction.forecast, summarize(record)
    policy = forecast.scenario.policy
    low_s, high_s = forecast.note.wall_range_s
    why = _left_out(record)
    wall_s, cost_usd = (None, None) if why else (measured.wall_s, measured.cost_usd)
    return {
        "plan": record.plan.name,
        "model": ", ".join(sorted({result.model for result in record.results})),
        "concurrency": policy.concurrency if policy else None,
        "schedule": policy.schedule if policy else None,
        "cache": policy.cache if policy else None,
        "cache_ttl": policy.cache_ttl if policy else None,
        "limits": _limits_text(forecast.scenario.limits) or None,
        "drop": prediction.drop or None,
        "predicted_wall_s": forecast.wall_s,
        "measured_wall_s": wall_s,
        "wall_error": forecast.wall_s / wall_s - 1 if wall_s else None,
        "wall_in_range": None if wall_s is None else low_s <= wall_s <= high_s,
        "predicted_cost_usd": forecast.cost_usd,
        "measured_cost_usd": cost_usd,
        "cost_error": forecast.cost_usd / cost_usd - 1 if forecast.cost_usd and cost_usd else None,
        "predicted_429": forecast.totals.rate_limited,
        "measured_429": None if why else sum(attempt.kind == "RateLimited" for attempt in record.attempts),
        "basis": forecast.note.basis,
        "simulated": record.simulated,
        "left_out": why,
    }


def _left_out(record: RunRecord) -> str | None:
    """Say why a run measures nothing; `None` where it does."""
    if record.cut:
        return "it was cut"
    others = [one for one in record.results if one.is_served or one.source not in {*OWN, None}]
    served = ["run before" if one.source in OWN else one.source for one in others]
    return f"{len(served)} of {len(record.results)} answers from the {served[0]}" if served else None


def _is_of(prediction: Prediction, record: RunRecord) -> bool:
    """Tell whether a run is what a forecast asked for, and came after the run it was made from."""
    base, scenario = prediction.record, prediction.forecast.scenario
    if record is base or record.began_at < base.began_at or record.terms is None or scenario.policy is None:
        return False
    ran = policy_from(record.terms.policy)
    if replace(ran, seed=None) != replace(scenario.policy, seed=None):
        return False
    if scenario.limits is not None and not _keeps(record, scenario.limits):
        return False
    kept = [number for number in range(len(base.plan)) if number not in scenario.dropped]
    agents = zip(record.plan.agents, record.results, strict=True)
    return len(kept) == len(record.plan) and all(
        _same(base, scenario, number, agent, result.model) for number, (agent, result) in zip(kept, agents, strict=True)
    )


def _same(base: RunRecord, scenario: Scenario, number: int, agent: Agent, model: str) -> bool:
    """Tell whether an agent that ran is one that was forecast. Without a dropped one prompts have to differ."""
    asked = base.plan.agents[number]
    effort = scenario.efforts.get(number, asked.effort)
    if (agent.name, model, agent.effort) != (
        asked.name,
        scenario.models.get(number, base.results[number].model),
        effort,
    ):
        return False
    return bool(scenario.dropped) or replace(asked, model=agent.model, effort=effort) == agent


def _keeps(record: RunRecord, asked: Mapping[str, Limits]) -> bool:
    """Tell whether a run found the limits that were asked for."""
    after = record.terms.after if record.terms is not None else {}
    if not asked:
        return not after
    for pool, known in after.items():
        limits = asked.get(pool) or asked.get("*")
        if limits is None:
            continue
        for name, value in (
            ("requests", limits.requests),
            ("input", limits.input_tokens),
            ("output", limits.output_tokens),
        ):
            if value is not None and (name not in known or round(known[name].per_minute) != round(value)):
                return False
    return bool(after)


def _limits_text(limits: Mapping[str, Limits] | None) -> str:
    if limits is None:
        return ""
    parts = [
        f"{'' if pool == '*' else f'{pool}: '}{value:g} {name}"
        for pool, each in limits.items()
        for name, value in (("requests", each.requests), ("input", each.input_tokens), ("output", each.output_tokens))
        if value is not None
    ]
    return ", ".join(parts) or "off"
