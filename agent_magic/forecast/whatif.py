"""`run.whatif`: what a run would have taken and cost under other policies, as a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from agent_magic.engine.pacing.limits import KINDS, Limits
from agent_magic.engine.policy import as_policy
from agent_magic.errors import DeclarationError
from agent_magic.forecast.scenarios import ARGUMENTS, scenarios_of
from agent_magic.measure.frames import make_frame
from agent_magic.measure.metrics import summarize

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.calibration import Forecasts
    from agent_magic.forecast.forecast import Forecast, Forecaster
    from agent_magic.forecast.scenarios import Asked

ASKED: Final[Mapping[str, str]] = {"concurrency": "Int64", "schedule": "string", "batch": "bool"}
"""The dtypes of columns that hold what was asked; others are `string`, or as they were given."""
NUMBERS: Final[Mapping[str, str]] = {
    "wall_s": "Float64",
    "cost_usd": "Float64",
    "input_tokens": "Int64",
    "output_tokens": "Int64",
    "mean_concurrency": "Float64",
    "limited_by": "string",
    "queued_s": "Float64",
    "rate_limited": "Int64",
    "succeeded": "Int64",
    "wall_low_s": "Float64",
    "wall_high_s": "Float64",
    "cost_low_usd": "Float64",
    "cost_high_usd": "Float64",
    "cost_multiple": "Float64",
    "bound": "Float64",
    "cache_read_tokens": "Int64",
    "cache_write_tokens": "Int64",
    "basis": "string",
    "assumed": "string",
}
"""The columns behind those of what was asked, and their dtypes."""


def whatif_frame(
    forecaster: Forecaster,
    given: Mapping[str, Any],
    *,
    tell: Callable[[int, int], None] | None = None,
    log: Forecasts | None = None,
) -> pd.DataFrame:
    """Forecast every combination: one row each, in the order of the arguments, the last one changing fastest.

    First a column per argument that was given, named as it, then `NUMBERS`. Unknown is `NA`, never 0. What was not
    given stays as recorded, and stands in `attrs["unchanged"]`; `attrs["recorded"]` has seconds and dollars of
    the run. A batch has no concurrency, schedule, limits or cache of ours: those are `NA`, and what differs in them is
    one row. `cost_multiple` is over the dollars of one agent that did the whole job; `NA` until that was measured.

    Args:
        forecaster: The run.
        given: The arguments of `run.whatif`.
        tell: Told after each scenario how many are done, and of how many.
        log: Keeps each forecast, to compare it with a later run.
    """
    asked = scenarios_of(forecaster, given)
    rows: list[dict[str, Any]] = []
    batches: set[str] = set()
    for number, one in enumerate(asked, 1):
        policy = _policy_row(forecaster, one)
        if one.scenario.batch:
            if str(policy) in batches:
                continue
            batches.add(str(policy))
        found = forecaster.forecast(one.scenario)
        rows.append({**policy, **_number_row(found, forecaster)})
        if log is not None:
            log.add(forecaster.record, found)
        if tell is not None:
            tell(number, len(asked))
    return _frame(rows, forecaster, [name for name in ARGUMENTS if given.get(name) is not None])


def forecast_one(forecaster: Forecaster, policy: Policy | None, changes: Mapping[str, Any]) -> Forecast:
    """Forecast one combination, as a value.

    Args:
        forecaster: The run.
        policy: How to run; `None` is as recorded. What `changes` say of concurrency, schedule and cache comes on top.
        changes: Arguments of `run.whatif`, one value each.

    Raises:
        DeclarationError: An argument or a value is not known, or there are several.
    """
    asked = scenarios_of(forecaster, changes, None if policy is None else as_policy(policy))
    if len(asked) > 1:
        raise DeclarationError("forecast takes one value of each argument.", hint="For several use whatif.")
    return forecaster.forecast(asked[0].scenario)


def _frame(rows: list[dict[str, Any]], forecaster: Forecaster, asked: list[str]) -> pd.DataFrame:
    record, summary = forecaster.record, summarize(forecaster.record)
    dtypes = {name: ASKED.get(name) or _dtype([row[name] for row in rows]) for name in asked}
    unchanged = {name: rows[0][name] for name in ARGUMENTS if name not in asked and rows[0][name] is not None}
    return make_frame(
        rows,
        {**dtypes, **NUMBERS},
        run=record.uid,
        plan=record.plan.name,
        source="forecast",
        simulated=forecaster.evidence.simulated,
        unchanged=unchanged,
        recorded={"wall_s": summary.wall_s, "cost_usd": summary.cost_usd},
    )


def _dtype(values: list[Any]) -> str:
    kinds: set[type] = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return "string"
    return "Float64" if kinds <= {int, float} else "object"


def _policy_row(forecaster: Forecaster, asked: Asked) -> dict[str, Any]:
    """Return what was asked, in words; what was not, as it was recorded."""
    given, policy = asked.given, asked.scenario.policy or forecaster.policy
    ours = {
        "concurrency": policy.concurrency,
        "schedule": policy.schedule,
        "limits": _text(given["limits"]),
        "cache": policy.cache if given["cache"] is None else given["cache"],
        "cache_ttl": policy.cache_ttl,
    }
    return {
        "model": _models_text(forecaster, given["model"]),
        **(dict.fromkeys(ours) if asked.scenario.batch else ours),
        "batch": asked.scenario.batch,
        "effort": _text(given["effort"]),
        "drop": _text(given["drop"]),
        "prices": _text(given["prices"]),
    }


def _models_text(forecaster: Forecaster, given: Any) -> Any:
    """Return the models in words, those of agents that a mapping leaves out too."""
    value: object = given
    named = set(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else set[str]()
    rest = ", ".join(sorted({one.model for one in forecaster.evidence.seen if one.name not in named}))
    if value is None:
        return rest
    return f"{_text(given)}; {rest} for the rest" if named and rest else _text(given)


def _text(value: object) -> Any:
    """Return a value that is not a plain one as text, so that it can be read and compared."""
    if isinstance(value, Mapping):
        names: dict[str, list[str]] = {}
        for name, each in cast("Mapping[str, object]", value).items():
            names.setdefault(str(_text(each)), []).append(name)
        return "; ".join(f"{each} for {', '.join(those)}" for each, those in names.items())
    if isinstance(value, Limits):
        return ", ".join(f"{KINDS[name].field}={each:g}" for name, each in value.rates.items() if each is not None)
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    known = value is None or isinstance(value, str | int | float)
    return "off" if value is False else value if known else str(value)


def _number_row(found: Forecast, forecaster: Forecaster) -> dict[str, Any]:
    totals, cost = found.totals, found.totals.cost_usd
    alone = forecaster.record.bases.get("one agent")
    low, high = found.note.cost_range_usd or (None, None)
    return {
        **{name: getattr(totals, name) for name in NUMBERS if hasattr(totals, name)},
        "cost_multiple": cost / alone.cost_usd if cost is not None and alone is not None and alone.cost_usd else None,
        "limited_by": totals.limited_by or None,
        "wall_low_s": found.note.wall_range_s[0],
        "wall_high_s": found.note.wall_range_s[1],
        "cost_low_usd": low,
        "cost_high_usd": high,
        "basis": found.note.basis,
        "assumed": found.note.assumed or None,
    }
