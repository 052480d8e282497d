"""`run.whatif`: seconds and dollars of a run under other policies; and one step at a time, the base of `speedup`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agent_magic.declare.declared import askers
from agent_magic.declare.options import AGENT, EFFORTS, SENT, check_option
from agent_magic.declare.step import models_text
from agent_magic.declare.validation import check_integer, is_number, must_be
from agent_magic.engine.pacing.limits import KINDS, Limits
from agent_magic.engine.pacing.pacer import as_route
from agent_magic.engine.policy import POLICY_WORDS as POLICY_TERMS
from agent_magic.engine.policy import as_policy
from agent_magic.errors import DeclarationError, did_you_mean
from agent_magic.forecast.evidence import OTHERS, facts_of
from agent_magic.forecast.forecast import Forecaster, Scenario
from agent_magic.forecast.provider import Outage
from agent_magic.measure.frames import make_frame
from agent_magic.measure.metrics import summarize, with_speedup
from agent_magic.record.prices import Prices, checked_prices, listed_models, near_model

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    import pandas as pd

    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.calibration import Forecasts
    from agent_magic.forecast.forecast import Answering, Forecast
    from agent_magic.measure.metrics import Summary
    from agent_magic.record.results import RunRecord

_MOST_COMPARED: Final = 300
THE_REST: Final = "the rest"
ASKED: Final[Mapping[str, str]] = {
    "concurrency": "Int64",
    "schedule": "string",
    "batch": "string",
    "rounds": "Int64",
    "most": "Int64",
}
"""The dtypes of the columns of arguments; others are `string`, or as given."""
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
"""The columns after the arguments."""
ANSWERS: Final = "answers"
AS_IF: Final = "as if all were bought"


def whatif_frame(
    forecaster: Answering,
    given: Mapping[str, Any],
    *,
    tell: Callable[[int, int], None] | None = None,
    log: Forecasts | None = None,
) -> pd.DataFrame:
    """Forecast every combination: one row each, in the order of the arguments, the last one changing fastest.

    First a column per given argument, then `NUMBERS`. `attrs["unchanged"]` has the omitted arguments,
    `attrs["recorded"]` seconds and dollars of the run or the plan, `attrs["planned"]` how sure those of a plan are,
    `attrs["lacking"]` the number of answers that a forecast has and the run lacks.

    A forecast asks for all answers, so for a run with answers from the ledger the last row is the run as it was, and
    the row before it the same with all answers bought.
    """
    found = whatif_rows(forecaster, given, tell=tell, log=log)
    if not reused(forecaster.record):
        return rows_frame(found, forecaster)
    as_it_was, all_bought = _compared_rows(forecaster)
    rows = [*({**row, ANSWERS: AS_IF} for row in found.rows), all_bought, as_it_was]
    frame = rows_frame(found._replace(rows=rows), forecaster)
    frame.attrs["recorded"] = {name: all_bought[name] for name in ("wall_s", "cost_usd")}
    frame.attrs["as_it_was"] = {name: as_it_was[name] for name in (ANSWERS, "wall_s", "cost_usd")}
    return frame


def _compared_rows(forecaster: Answering) -> tuple[dict[str, Any], dict[str, Any]]:
    asked = scenarios_of(forecaster, {})[0]
    bought = {**_policy_row(forecaster, asked), **_number_row(forecaster.forecast(asked.scenario), forecaster)}
    totals = summarize(forecaster.record)
    numbers = {name: getattr(totals, name) for name in NUMBERS if hasattr(totals, name)}
    alone = dict.fromkeys(("wall_low_s", "wall_high_s"), totals.wall_s)
    alone |= dict.fromkeys(("cost_low_usd", "cost_high_usd"), totals.cost_usd)
    none = {"cost_multiple": None, "limited_by": totals.limited_by or None, "basis": "measured", "assumed": None}
    return {**bought, **numbers, **alone, **none, ANSWERS: reused(forecaster.record)}, {**bought, ANSWERS: AS_IF}


def reused(record: RunRecord) -> str:
    if not record.served:
        return ""
    return f"{sum(one.is_served and not one.is_shared for one in record.results):,} of {len(record.rows):,} reused"


class Rows(NamedTuple):
    """Scenarios, with the seconds and dollars of each."""

    asked: Sequence[str]
    rows: Sequence[Mapping[str, Any]]


def nearby(record: RunRecord, models: Sequence[str]) -> dict[str, Any]:
    # Models are left out for more than 300 steps, since each scenario takes time.
    most = len(record.plan)
    small = most <= _MOST_COMPARED
    used = {models_text(step, one.model) for step, one in zip(record.plan.agents, record.results, strict=True)}
    return {
        "model": [None, *(model for model in models if {model} != used)] if small else [None],
        "concurrency": [number for number in ((1, 2, 4, 8, 16) if small else (1, 4, 16)) if number <= most] or [1],
    }


def recorded_models(record: RunRecord, apart: Container[str] = ()) -> str:
    steps = zip(record.plan.agents, record.results, strict=True)
    return ", ".join(
        sorted({models_text(step, one.model) for step, one in steps if one.model and one.name not in apart})
    )


def whatif_rows(
    forecaster: Answering,
    given: Mapping[str, Any],
    *,
    tell: Callable[[int, int], None] | None = None,
    log: Forecasts | None = None,
) -> Rows:
    asked = scenarios_of(forecaster, given)
    rows: list[dict[str, Any]] = []
    for number, one in enumerate(asked, 1):
        found = forecaster.forecast(one.scenario)
        rows.append({**_policy_row(forecaster, one), **_number_row(found, forecaster)})
        if log is not None:
            log.add(forecaster.record, found)
        if tell is not None:
            tell(number, len(asked))
    return Rows([name for name in ARGUMENTS if given.get(name) is not None], rows)


def forecast_one(forecaster: Answering, policy: Policy | None, changes: Mapping[str, Any]) -> Forecast:
    asked = scenarios_of(forecaster, changes, None if policy is None else as_policy(policy))
    if len(asked) > 1:
        raise DeclarationError("forecast takes one value of each argument.", hint="For several use whatif.")
    return forecaster.forecast(asked[0].scenario)


def rows_frame(found: Rows, forecaster: Answering) -> pd.DataFrame:
    (asked, rows), record = found, forecaster.record
    summary = forecaster.totals
    dtypes = {name: ASKED.get(name) or _dtype([row[name] for row in rows]) for name in asked}
    unchanged = {name: rows[0][name] for name in ARGUMENTS if name not in asked and rows[0][name] is not None}
    answers = {ANSWERS: "string"} if rows and ANSWERS in rows[0] else {}
    return make_frame(
        rows,
        {**dtypes, **answers, **NUMBERS},
        run=record.uid,
        plan=record.plan.name,
        source="forecast",
        simulated=forecaster.evidence.simulated,
        subject=forecaster.subject,
        unchanged=unchanged,
        recorded={"wall_s": summary.wall_s, "cost_usd": summary.cost_usd},
        planned=_planned(forecaster),
        lacking=summary.steps - summary.succeeded - summary.capped - summary.left_out,
    )


def _planned(forecaster: Answering) -> dict[str, Any]:
    if isinstance(forecaster, Forecaster):
        return {}
    note = forecaster.forecast(Scenario()).note
    return {"wall_s": note.wall_range_s, "cost_usd": note.cost_range_usd, "basis": note.basis}


def _dtype(values: list[Any]) -> str:
    kinds: set[type] = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return "string"
    return "Float64" if kinds <= {int, float} else "object"


def _policy_row(forecaster: Answering, asked: Asked) -> dict[str, Any]:
    given, policy = asked.given, asked.scenario.policy or forecaster.policy
    return {
        "model": _models_text(forecaster, given["model"]),
        "concurrency": policy.concurrency,
        "schedule": policy.schedule,
        "limits": _text(given["limits"]),
        "cache": policy.cache if given["cache"] is None else given["cache"],
        "cache_ttl": policy.cache_ttl,
        "batch": policy.batch,
        "effort": _text(given["effort"]),
        "drop": _text(given["drop"]),
        "rounds": given["rounds"],
        "most": given["most"],
        "prices": _text(given["prices"]),
        "route": given["route"] or forecaster.route or None,
        "outage": _outage_text(given["outage"]),
        **{name: _text(given[name]) for name in PASSING},
    }


def _models_text(forecaster: Answering, given: Any) -> Any:
    value: object = given
    named = set(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else set[str]()
    rest = recorded_models(forecaster.record, named)
    if value is None:
        return rest
    return f"{_text(given)}; {rest} for {THE_REST}" if named and rest else _text(given)


def _text(value: object) -> Any:
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


def _number_row(found: Forecast, forecaster: Answering) -> dict[str, Any]:
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


PASSING: Final = tuple(name for name in SENT if AGENT[name].form != "pairs")
"""The pass-through options that a what-if takes; a mapping is by agent, so `extra` is not among them."""
ARGUMENTS: Final = (
    "model",
    "concurrency",
    "schedule",
    "limits",
    "cache",
    "batch",
    "effort",
    "drop",
    "prices",
    "cache_ttl",
    "rounds",
    "most",
    "route",
    "outage",
    *PASSING,
)
POLICY_WORDS: Final = ("concurrency", "schedule", "cache", "cache_ttl", "batch")
MOST: Final = 100_000
"""More scenarios are a mistake."""
LIMIT_WORDS: Final = (*(kind.field for kind in KINDS.values()), "burst_s")
ROUTED: Final = "Endpoints are forecast with the limits of each; limits=... are those of all together."
NO_LIMITS: Final = ("off", "none")
PAIR: Final = 2
BATCH: Final = POLICY_TERMS["batch"]
CACHE: Final[dict[Any, str]] = {True: "on", False: "off", "auto": "auto", "on": "on", "off": "off"}


class Asked(NamedTuple):
    """One scenario, and the arguments that asked for it."""

    given: Mapping[str, Any]
    scenario: Scenario


def scenarios_of(forecaster: Answering, given: Mapping[str, Any], policy: Policy | None = None) -> list[Asked]:
    """Multiply arguments out: a list is several values, anything else is one; as recorded if `None`."""
    for name in given:
        if name not in ARGUMENTS:
            hint = f"It takes {', '.join(ARGUMENTS)}.{did_you_mean(name, ARGUMENTS)}"
            raise DeclarationError(f"whatif has no argument {name!r}.", hint=hint)
    apart = [name for name in ("route", "outage") if given.get(name) is not None]
    if apart and forecaster.route and given.get("limits") is not None:
        raise DeclarationError(f"{apart[0]} and limits cannot be asked together.", hint=ROUTED)
    values = [_several(name, given.get(name)) for name in ARGUMENTS]
    count = math.prod(map(len, values))
    if count > MOST:
        raise DeclarationError(f"These are {count:,} scenarios.", hint=f"Ask for at most {MOST:,} at once.")
    reader = _Reader(forecaster, policy or forecaster.policy, given.get("prices"))
    read = [[reader.read(name, value) for value in each] for name, each in zip(ARGUMENTS, values, strict=True)]
    found: list[Asked] = []
    names: tuple[str, ...] = ARGUMENTS
    for places in product(*(range(len(each)) for each in values)):
        chosen, meant = _pick(names, values, places), _pick(names, read, places)
        found.append(Asked(chosen, reader.scenario(meant)))
    return found


def _pick(names: Sequence[str], values: Sequence[Sequence[Any]], places: Sequence[int]) -> dict[str, Any]:
    return {name: each[place] for name, each, place in zip(names, values, places, strict=True)}


def _several(name: str, value: object) -> Sequence[Any]:
    if isinstance(value, list | range):
        found: list[Any] = [*cast("Sequence[Any]", value)]
    elif hasattr(value, "tolist") and not isinstance(value, str):  # a NumPy array or a pandas Series
        given: Any = cast("Any", value).tolist()
        found = cast("list[Any]", given) if isinstance(given, list) else [given]
    else:
        return [value]
    if not found:
        raise DeclarationError(f"{name}=[] asks for nothing.", hint="Leave it out, or give it a value.")
    return found


def _by_agent(options: Mapping[str, Mapping[int, Any]]) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for name, values in options.items():
        for agent, value in values.items():
            found.setdefault(agent, {})[name] = value
    return found


class _Reader:
    def __init__(self, forecaster: Answering, policy: Policy, prices: object) -> None:
        self.plan, self.forecaster, self.policy = forecaster.record.plan, forecaster, policy
        tables = cast("list[object]", prices) if isinstance(prices, list) else [prices]
        priced: set[str] = set()
        for table in tables:
            priced |= set(cast("Mapping[str, object]", table)) if isinstance(table, Mapping) else set()
        self.known = forecaster.evidence.models | priced
        self._policies: dict[tuple[object, ...], Any] = {}

    def read(self, name: str, value: object) -> Any:
        if value is None:
            return None
        readers: dict[str, Callable[[Any], Any]] = {
            "model": self._models,
            "effort": self._efforts,
            "drop": self._dropped,
            "limits": self._limits,
            "cache": _cache,
            "batch": _batch,
            "prices": _prices,
            "rounds": self._rounds,
            "most": self._items,
            "route": self._route,
            "outage": self._outages,
        }
        if name in readers:
            return readers[name](value)
        if name in PASSING:
            return self._passing(name, value)
        if not isinstance(value, str | int | float):
            raise must_be(name, "one value for all agents, or a list of values", value)
        return value

    def scenario(self, meant: Mapping[str, Any]) -> Scenario:
        words = {name: meant[name] for name in POLICY_WORDS if meant[name] is not None}
        key = tuple(sorted(words.items()))
        policy = self._policies.get(key)
        if policy is None:
            policy = self._policies[key] = replace(self.policy, **words)
        return Scenario(
            policy,
            models=meant["model"] or {},
            efforts=meant["effort"] or {},
            dropped=meant["drop"] or frozenset(),
            limits=meant["limits"],
            prices=meant["prices"],
            rounds=meant["rounds"],
            most=meant["most"],
            route=meant["route"] or "",
            outages=meant["outage"] or {},
            sent=_by_agent({name: meant[name] or {} for name in PASSING}),
        )

    def _models(self, value: object) -> dict[int, str]:
        found = self._per_agent("model", value)
        for model in found.values():
            if not isinstance(model, str):
                raise must_be("model", "the name of a model", model)
            if model not in self.known and not self.forecaster.prices.has(model):
                near = near_model(model, self.known)
                hint = f"Nothing is known of it, not even a price: give one with prices=.{near}"
                raise DeclarationError(f"model={model!r} is not known.", hint=hint)
        seen = self.forecaster.evidence.seen
        agents = self.forecaster.record.plan.agents
        same = {agent for agent in found if not (seen[agent].moved or agents[agent].cascade)}
        return {agent: model for agent, model in found.items() if agent not in same or seen[agent].model != model}

    def _efforts(self, value: object) -> dict[int, str | None]:
        found = self._per_agent("effort", value)
        for effort in found.values():
            if effort not in EFFORTS:
                raise must_be("effort", f"one of {', '.join(EFFORTS)}", effort, did_you_mean(str(effort), EFFORTS))
        seen = self.forecaster.evidence.seen
        return {agent: effort for agent, effort in found.items() if seen[agent].effort != effort}

    def _passing(self, name: str, value: object) -> dict[int, Any]:
        asked: Any = cast("Any", value) if isinstance(value, Mapping) else dict.fromkeys(self.plan.names, value)
        named: dict[str, Any] = {one: check_option(name, each) for one, each in asked.items()}
        found = {number: each for one, each in named.items() for number in askers(self.plan, self.plan.numbers([one]))}
        agents = {number: self.plan.agents[number] for number in found}
        return {
            number: each
            for number, each in found.items()
            if not agents[number].is_task and getattr(agents[number], name) != each
        }

    def _per_agent(self, name: str, value: object) -> dict[int, Any]:
        if isinstance(value, Mapping):
            named = cast("Mapping[str, Any]", value).items()
            return {number: each for name, each in named for number in askers(self.plan, self.plan.numbers([name]))}
        if not isinstance(value, str):
            raise must_be(name, "a name, or a mapping of agents to names", value)
        return {number: value for number, agent in enumerate(self.plan.agents) if not agent.is_task}

    def _dropped(self, value: object) -> frozenset[int]:
        names: list[object] = [value] if isinstance(value, str) else []
        if isinstance(value, tuple | list | set | frozenset):
            names = list(cast("Sequence[object]", value))
        known = [name for name in names if isinstance(name, str)]
        if not names or len(known) < len(names):
            raise must_be("drop", "an agent's name, or a tuple of them", cast("object", value))
        found = frozenset(self.plan.numbers(known))
        if len(found) == len(self.plan):
            raise DeclarationError("drop leaves no agent.", hint="Keep at least one.")
        return found

    def _rounds(self, value: Any) -> int:
        reserved = max((one.part.rounds for one in self.plan.agents if one.part is not None), default=0)
        return _reserved("rounds", value, reserved, 'a loop: --until "critic.ok" --rounds 3')

    def _items(self, value: Any) -> int:
        reserved = max((one.part.most for one in self.plan.agents if one.part is not None), default=0)
        return _reserved("most", value, reserved, "a map over an answer: --each planner.steps --most 40")

    def _route(self, value: object) -> str:
        if not self.forecaster.route:
            hint = "A pool has several: am.Pool({...}), or %agents connect ... --name NAME."
            raise DeclarationError(f"route={value!r} changes nothing: the run had one endpoint.", hint=hint)
        return as_route(value)

    def _outages(self, value: object) -> dict[str, Outage]:
        """Read outages: start in seconds of the run, and duration; for all, or by endpoint."""
        if not isinstance(value, Mapping):
            return {"": _outage(value)}
        known, found = self.forecaster.endpoints, cast("Mapping[object, object]", value)
        for name in found:
            if name not in known:
                hint = (
                    "Its endpoints are " + ", ".join(known)
                    if known
                    else "The run had one endpoint: write outage=(10, 60)"
                )
                near = did_you_mean(name, known)
                raise DeclarationError(
                    f"outage={{{name!r}: ...}}: the run had no such endpoint.", hint=f"{hint}.{near}"
                )
        return {str(name): _outage(each) for name, each in found.items()}

    def _limits(self, value: object) -> dict[str, Limits]:
        if value is False or (isinstance(value, str) and value in NO_LIMITS):
            return {}
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            if all(name in LIMIT_WORDS for name in fields):
                return {OTHERS: Limits(**fields)}
            return {self._class(name): self._limits(each).get(OTHERS) or Limits() for name, each in fields.items()}
        if isinstance(value, Limits):
            return {OTHERS: value}
        if is_number(value):
            return {OTHERS: Limits(cast("float", value))}
        raise must_be("limits", "requests per minute, Limits(...), a mapping of models to them, or 'off'", value)

    def _class(self, name: object) -> str:
        if isinstance(name, str) and (name in self.known or self.forecaster.prices.has(name)):
            return facts_of(self.forecaster.record.terms, name).limit_class
        near = did_you_mean(name, [*LIMIT_WORDS, *self.known, *listed_models()])
        hint = f"Limits have {', '.join(LIMIT_WORDS)}, or are given by model.{near}"
        raise DeclarationError(f"limits={{{name!r}: ...}} is not known.", hint=hint)


def _reserved(name: str, value: Any, reserved: int, declared: str) -> int:
    check_integer(name, value)
    if not reserved:
        raise DeclarationError(f"{name}={value} changes nothing: the plan has not {declared}.")
    if value > reserved:
        hint = f"Declare it with more, then ask again: {declared}."
        raise DeclarationError(f"{name}={value} is more than the plan has places for: {reserved}.", hint=hint)
    return int(value)


def _outage(value: Any) -> Outage:
    pair = cast("Sequence[Any]", value) if isinstance(value, tuple | list) else ()
    if len(pair) != PAIR or not all(map(is_number, pair)) or not (pair[0] >= 0 and pair[1] > 0):
        what = (
            "(from_s, for_s), such as (10, 60): seconds into the run, and how many; or a mapping of endpoints to that"
        )
        raise must_be("outage", what, cast("object", value))
    return Outage(float(pair[0]), float(pair[0] + pair[1]))


def _outage_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Sequence[float]]", value).items()
        return ", ".join(f"{name} from {from_s:g} s for {for_s:g} s" for name, (from_s, for_s) in pairs)
    return f"from {value[0]:g} s for {value[1]:g} s"


def _cache(value: object) -> str:
    if isinstance(value, str | bool) and value in CACHE:
        return CACHE[value]
    raise must_be("cache", "True, False, auto, on or off", value, did_you_mean(str(value), ("auto", "on", "off")))


def _batch(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str) and value in BATCH:
        return value
    raise must_be("batch", "True, False, on, off or auto", value, did_you_mean(str(value), BATCH))


def _prices(value: object) -> Prices:
    table = checked_prices(value)
    if not table:
        raise must_be("prices", "a mapping of models to TokenPrice(input=..., output=...)", value)
    return Prices(table)


MOST_AT_ONCE: Final = 1_000
"""The line at the end of a run compares at most this many steps: more would take noticeable time."""


# Only the record counts, so a run and its replay give equal numbers.
class OneByOne(NamedTuple):
    """A run one step at a time, with each step's end over the run's and minus the run's; `None` if it did no work."""

    wall_s: float
    speedups: tuple[float | None, ...]
    saved_s: tuple[float | None, ...]


def one_by_one(record: RunRecord) -> OneByOne | None:
    """Simulate a run one step at a time, once per set of events."""
    known = record.sequential
    if known is None or known[0] != len(record.events):
        known = record.sequential = len(record.events), _simulated(record) if _is_comparable(record) else None
    return known[1]


def totals_of(record: RunRecord, now_s: float | None = None, *, most: int | None = None) -> Summary:
    found = summarize(record, now_s)
    if found.speedup is not None or (most is not None and len(record.plan) > most and record.sequential is None):
        return found
    slow = one_by_one(record)
    return found if slow is None else with_speedup(found, slow.wall_s, "simulated")


def _is_comparable(record: RunRecord) -> bool:
    results = record.results
    return not (
        not record.is_complete
        or record.served
        or record.forecast is not None
        or record.facts.batched
        or "person" in record.facts.reasons
        or any(one.held_by == "person" for result in results for one in result.calls)
        or any(phase.reason == "person" for result in results if result.calls for phase in result.away())
    )


def _simulated(record: RunRecord) -> OneByOne | None:
    forecaster = Forecaster(record)
    # Caps ended nothing in a run that is complete, and are no part of a schedule's time.
    policy = replace(forecaster.policy, schedule="sequential", deadline_s=None, budget_usd=None, budget_tokens=None)
    slow = forecaster.forecast(Scenario(policy), ranges=False)
    if slow.record is None or not slow.wall_s:
        return None
    pairs = list(zip(_ends_s(slow.record), _ends_s(record), strict=True))
    return OneByOne(
        slow.wall_s,
        tuple(slow_s / fast_s if slow_s is not None and fast_s else None for slow_s, fast_s in pairs),
        tuple(slow_s - fast_s if slow_s is not None and fast_s else None for slow_s, fast_s in pairs),
    )


def _ends_s(record: RunRecord) -> Sequence[float | None]:
    begun_s = min((one.ready_s for one in record.results if one.ready_s is not None), default=0.0)
    return [
        None if one.finished_s is None or one.ready_s is None or one.is_left_out else one.finished_s - begun_s
        for one in record.results
    ]
