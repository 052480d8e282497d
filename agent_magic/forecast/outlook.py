"""Forecasts of a finished run with one change each, and of the run as it was."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent_magic.declare.declared import declared_names
from agent_magic.forecast.forecast import Scenario
from agent_magic.measure.path import works

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.forecast.evidence import Seen
    from agent_magic.forecast.forecast import Forecast, Forecaster
    from agent_magic.measure.trial import Trial

NEAR = 1.02
"""Two forecasts within this factor count as the same: they repeat a recorded run no better."""


class Outlook:
    """Answers the effect of one change on a run."""

    # Savings are differences of two forecasts, so that common errors cancel out.

    def __init__(self, forecaster: Forecaster, trials: Sequence[Trial] = ()) -> None:
        self._forecaster, self.record, self.policy = forecaster, forecaster.record, forecaster.policy
        self.prices, self.trials = forecaster.prices, trials

    @cached_property
    def names(self) -> Sequence[str]:
        return declared_names(self.record.plan)

    @cached_property
    def as_it_was(self) -> Forecast:
        return self.ask()

    @cached_property
    def unlimited(self) -> Forecast:
        return self.under(concurrency=max(1, len(self.record.plan)), schedule="ready")

    @cached_property
    def sequential(self) -> Forecast:
        return self.under(schedule="sequential")

    @property
    def seen(self) -> Sequence[Seen]:
        return self._forecaster.evidence.seen

    def ask(self, *, ranges: bool = False, **changes: Any) -> Forecast:
        return self._forecaster.forecast(Scenario(**changes), ranges=ranges)

    def under(self, **policy: Any) -> Forecast:
        return self.ask(policy=replace(self.policy, **policy))

    def saves_s(self, changed: Forecast) -> float:
        return self.as_it_was.wall_s - changed.wall_s

    def saves_usd(self, changed: Forecast) -> float | None:
        before, after = self.as_it_was.cost_usd, changed.cost_usd
        return None if before is None or after is None else before - after

    def barrier_cost_s(self) -> float:
        return self.under(schedule="layers").wall_s - self.under(schedule="ready").wall_s

    @cached_property
    def enough_slots(self) -> int:
        """The smallest concurrency about as good as a slot for every agent."""
        most, best_s = max(1, len(self.record.plan)), NEAR * self.unlimited.wall_s
        # Fewer cannot do all the work in that time.
        least = min(most, max(1, int(sum(works(self.record)) / best_s))) if best_s else 1
        while least < most:  # more slots are rarely slower, and then by little: good enough to search by halves
            middle = (least + most) // 2
            if self.under(concurrency=middle, schedule="ready").wall_s <= best_s:
                most = middle
            else:
                least = middle + 1
        return most
