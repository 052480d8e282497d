"""What-ifs of a plan before it runs, by the engine for runs on imagined ones.

Changes of model, effort or dropped agents redraw requests and answers, so that a what-if of another model equals the
estimate of the plan with that model. Everything else is a what-if of the imagined runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent_magic.forecast.estimate.drawing import Change, grounds, weakest
from agent_magic.forecast.forecast import Forecast, Forecaster, Imagined, Scenario
from agent_magic.measure.metrics import summarize
from agent_magic.record.results import ForecastNote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_magic.engine.policy import Policy
    from agent_magic.forecast.estimate.drawing import Drawing
    from agent_magic.forecast.estimate.value import Estimate
    from agent_magic.forecast.work import Evidence
    from agent_magic.record.prices import Prices


def of_estimate(stands_on: str) -> str:
    """Return the basis of numbers before a run, in words."""
    return f"the estimate ({stands_on})"


class Ahead:
    """Answers many what-ifs of one plan, as a `Forecaster` does of a run.

    Args:
        estimate: The estimate of the plan as declared.
        drawing: The inputs of its runs.
        batch_times_s: Seconds of earlier batches.

    Attributes:
        record: The likely run.
        totals: Its numbers.
        subject: The subject of the questions, in words.
    """

    subject = "the plan"

    def __init__(self, estimate: Estimate, drawing: Drawing, batch_times_s: Sequence[float] = ()) -> None:
        self._drawing, self._batch_times_s = drawing, batch_times_s
        self._simulated = estimate.simulated
        self._by_change: dict[tuple[object, ...], Forecaster] = {}
        self._declared = self._forecaster(Scenario())
        self._itself = self._as_declared(estimate)
        self.record, self.totals = self._declared.record, self._itself.totals

    @property
    def evidence(self) -> Evidence:
        """Evidence about its agents."""
        return self._declared.evidence

    @property
    def policy(self) -> Policy:
        """How it will run."""
        return self._declared.policy

    @property
    def prices(self) -> Prices:
        """What tokens cost."""
        return self._declared.prices

    @property
    def route(self) -> str:
        """Routing between several endpoints; empty if there is only one."""
        return self._declared.route

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Names of the endpoints; empty if there is only one."""
        return self._declared.endpoints

    def forecast(self, scenario: Scenario, *, ranges: bool = True) -> Forecast:
        """Answer one what-if. Without changes, the answer is the estimate.

        Args:
            scenario: The changes.
            ranges: True to compute low and high ends.
        """
        scenario = replace(scenario, policy=scenario.policy or self.policy)
        if scenario == Scenario(self.policy):
            return self._itself
        rest = replace(scenario, models={}, efforts={})
        return replace(self._forecaster(scenario).forecast(rest, ranges=ranges), scenario=scenario)

    def _as_declared(self, estimate: Estimate) -> Forecast:
        low, likely, high = estimate.wall_s
        cost = estimate.cost
        totals = replace(summarize(estimate.likely), wall_s=likely, cost_usd=None if cost is None else cost.likely)
        range_usd = None if cost is None else (cost.low, cost.high)
        note = ForecastNote(
            estimate.basis, of_estimate(estimate.stands_on), (low, high), range_usd, simulated=estimate.simulated
        )
        return Forecast(Scenario(self.policy), estimate.likely, totals, note)

    def _forecaster(self, scenario: Scenario) -> Forecaster:
        """Return who answers a scenario: runs are drawn once for all that change the same of requests and answers."""
        drawing, flow = self._drawing, self._drawing.plan.flow
        beyond = {} if flow is None else flow.at_most(scenario.rounds, scenario.most)
        changed = {*scenario.models, *scenario.efforts, *scenario.sent}
        models, efforts = tuple(scenario.models.items()), tuple(scenario.efforts.items())
        key = (models, efforts, scenario.dropped, frozenset(beyond), frozenset(changed))
        found = self._by_change.get(key)
        if found is None:
            drawn = drawing.alone(Change(scenario.models, scenario.efforts, scenario.dropped, beyond))
            held = drawing.still_held({*changed, *scenario.dropped, *beyond})
            known = Imagined(drawn.works[1], drawing.servers.fits, held)
            asked = [one for step, one in enumerate(drawn.guesses) if not (one.is_task or step in held)]
            words = of_estimate(grounds((one.input_basis, one.output_basis, one.seconds_basis) for one in asked))
            note = ForecastNote(weakest(asked), words, (0.0, 0.0), None, simulated=self._simulated)
            for end in drawn.ends:
                end.label_forecast(note)
            low, likely, high = drawn.ends
            common = drawing.rows, drawing.prices, self._batch_times_s
            ends = (
                Forecaster(low, *common, imagined=known._replace(works=drawn.works[0])),
                Forecaster(high, *common, imagined=known._replace(works=drawn.works[2])),
            )
            found = Forecaster(likely, *common, imagined=known._replace(ends=ends))
            self._by_change[key] = found
        return found
