"""A finished run simulated one step at a time: the baseline of `speedup` of a run and of its steps.

The same engine runs the recorded work under `schedule="sequential"`. Only the record counts, so a run and its replay
give equal numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.forecast.forecast import Forecaster, Scenario
from agent_magic.measure.metrics import summarize, with_speedup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.measure.metrics import Summary
    from agent_magic.record.results import RunRecord

MOST_AT_ONCE: Final = 1_000
"""The line at the end of a run compares at most this many steps: more would take noticeable time."""


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
