"""Named loads of an account: a plan under each of them, on virtual time.

By default the account allows as many requests per minute as the plan has. `off_peak` has all of it, `near_rpm` lacks
room for two requests, `tpm_hit` begins with twice the input tokens it has room for, and `colleague` shares the account
with another user who takes a constant part.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final, Literal

from agent_magic.declare.flow import is_reserved
from agent_magic.declare.units import plural
from agent_magic.declare.validation import check_word, is_number, must_be
from agent_magic.engine.pacing.limits import Limits
from agent_magic.forecast.forecast import Scenario
from agent_magic.measure.frames import make_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from agent_magic.forecast.estimate.value import Estimate
    from agent_magic.forecast.forecast import Forecast

Load = Literal["off_peak", "near_rpm", "tpm_hit", "colleague"]
OnRateLimit = Literal["queue", "reject"]
LOADS: Final[Mapping[Load, str]] = {
    "off_peak": "nobody else uses the account",
    "near_rpm": "all but two of the requests have room in this minute",
    "tpm_hit": "half of the input tokens of the first requests have room in this minute",
    "colleague": "a colleague uses a part of the account all the time",
}
ON_RATE_LIMIT: Final[Mapping[OnRateLimit, str]] = {
    "queue": "requests wait until the limit has room, as in a run",
    "reject": "requests are sent at once; one that is refused has failed",
}
MINUTE_S: Final = 60.0
SCENARIOS: Final[Mapping[str, str]] = {
    "load": "string",
    "on_limit": "string",
    "wall_s": "Float64",
    "queued_s": "Float64",
    "refused": "Int64",
    "succeeded": "Int64",
    "failed": "Int64",
    "skipped": "Int64",
    "cost_usd": "Float64",
}


def under_load(
    estimate: Estimate,
    load: Load,
    *,
    on_limit: OnRateLimit = "queue",
    rpm: float | None = None,
    colleague: float = 0.5,
) -> Forecast:
    check_word("load", load, LOADS)
    check_word("on_limit", on_limit, ON_RATE_LIMIT)
    if rpm is not None and not (is_number(rpm) and rpm > 0):
        raise must_be("rpm", "a number above 0", rpm)
    if not (is_number(colleague) and 0 <= colleague < 1):
        raise must_be("colleague", "a number from 0 to below 1", colleague)
    forecaster = estimate.repeat()
    alone = forecaster.forecast(Scenario(limits={}), ranges=False)
    sent = [] if alone.record is None else [one for one in alone.record.facts.ended if one.usage is not None]
    first = {one.name for one in forecaster.record.results if not one.layer}
    tokens = sum((one.usage.input_tokens or 0) for one in sent if one.usage is not None and one.agent in first)
    rpm = rpm or max(1.0, float(len(sent)))
    limits = {
        "off_peak": _holding(Limits(rpm), rpm),
        "near_rpm": _holding(Limits(rpm), len(sent) - 2),
        "tpm_hit": _holding(Limits(input_tokens=max(2.0, tokens / 2)), tokens / 2),
        "colleague": _holding(Limits(rpm * (1 - colleague)), rpm * (1 - colleague)),
    }[load]
    asked = replace(alone.scenario, limits={"*": limits})
    if on_limit == "reject" and asked.policy is not None:
        asked = replace(asked, policy=replace(asked.policy, max_attempts=1), paced=False)
    found = forecaster.forecast(asked)
    words = [f"{load}: {LOADS[load]}; {on_limit}: {ON_RATE_LIMIT[on_limit]}", f"the estimate ({estimate.stands_on})"]
    words += filter(None, [places_words(estimate)])
    note = found.note._replace(basis=estimate.basis, assumed="; ".join([*words, found.note.assumed]))
    if found.record is not None:
        found.record.label_forecast(note)
    return replace(found, note=note)


def places_words(estimate: Estimate) -> str:
    likely = estimate.likely
    reserved = [step for step, one in enumerate(likely.plan.agents) if is_reserved(one) and one.hedges is None]
    if not reserved:
        return ""
    needed = sum(not likely.results[step].is_left_out for step in reserved)
    told = "all count" if needed == len(reserved) else f"{needed:,} count, as many as are likely by earlier runs"
    return f"of {len(reserved):,} reserved places {told}"


def _holding(limits: Limits, amount: float) -> Limits:
    per_minute = limits.requests or limits.input_tokens or 1.0
    return replace(limits, burst_s=max(1.0, amount) * MINUTE_S / per_minute)


def verdict_on(frame: pd.DataFrame, option: str) -> str:
    if len({*frame["wall_s"]}) > 1:
        return ""
    return f"no load holds this plan up: an account lets the first request pass. Declare more, or say {option}."


def loads_frame(estimate: Estimate, *, rpm: float | None = None, colleague: float = 0.5) -> pd.DataFrame:
    """Forecast a plan under each load, queued and rejected: one row each, columns are `SCENARIOS`."""
    rows: list[dict[str, object]] = []
    for load, on_limit in product(LOADS, ON_RATE_LIMIT):
        totals = under_load(estimate, load, on_limit=on_limit, rpm=rpm, colleague=colleague).totals
        names = ("wall_s", "queued_s", "succeeded", "failed", "skipped", "cost_usd")
        row = {name: getattr(totals, name) for name in names}
        rows.append({"load": load, "on_limit": on_limit, **row, "refused": totals.rate_limited})
    told = f"{plural(len(rows), 'forecast')}, nothing sent · %agents scenario LOAD returns one of them as a run"
    return make_frame(rows, SCENARIOS, verdict=told)
