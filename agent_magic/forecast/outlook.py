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
        """Declared name per agent."""
        return declared_names(self.record.plan)

    @cached_property
    def as_it_was(self) -> Forecast:
        """The run again, nothing changed."""
        return self.ask()

    @cached_property
    def unlimited(self) -> Forecast:
        """The forecast with a slot for every agent."""
        return self.under(concurrency=max(1, len(self.record.plan)), schedule="ready")

    @cached_property
    def sequential(self) -> Forecast:
        """One agent after another."""
        return self.under(schedule="sequential")

    @property
    def seen(self) -> Sequence[Seen]:
        """Evidence about each agent, in plan order."""
        return self._forecaster.evidence.seen

    def ask(self, *, ranges: bool = False, **changes: Any) -> Forecast:
        """Forecast one scenario, with its low and high end if `ranges`."""
        return self._forecaster.forecast(Scenario(**changes), ranges=ranges)

    def under(self, **policy: Any) -> Forecast:
        """Forecast with changed policy fields."""
        return self.ask(policy=replace(self.policy, **policy))

    def saves_s(self, changed: Forecast) -> float:
        """Return the seconds a change saves."""
        return self.as_it_was.wall_s - changed.wall_s

    def saves_usd(self, changed: Forecast) -> float | None:
        """Return the dollars a change saves; `None` if a price is unknown."""
        before, after = self.as_it_was.cost_usd, changed.cost_usd
        return None if before is None or after is None else before - after

    def barrier_cost_s(self) -> float:
        """Return the seconds that barriers between layers cost."""
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
