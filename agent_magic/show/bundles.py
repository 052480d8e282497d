"""The displayed form of each public class. Importing this module registers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agent_magic.forecast.advice.advice import Advice
from agent_magic.forecast.estimate.value import Estimate
from agent_magic.forecast.sweep import Sweep
from agent_magic.measure.path import CriticalPath
from agent_magic.measure.trial import Trial
from agent_magic.record.display import ShownFrame, bundle_of
from agent_magic.record.results import AgentResult
from agent_magic.show.advice import advice_page
from agent_magic.show.estimates import estimate_page
from agent_magic.show.frames import frame_bundle
from agent_magic.show.trials import trial_page
from agent_magic.show.values import result_bundle

if TYPE_CHECKING:
    import pandas as pd

bundle_of.register(AgentResult, result_bundle)


@bundle_of.register(Advice)
def _advice(advice: Advice) -> dict[str, str]:
    return advice_page(advice).bundle()


@bundle_of.register(Estimate)
def _estimate(estimate: Estimate) -> dict[str, str]:
    return estimate_page(estimate).bundle()


@bundle_of.register(Trial)
def _trial(trial: Trial) -> dict[str, str]:
    return trial_page(trial).bundle()


@bundle_of.register(ShownFrame)
def _frame(frame: ShownFrame) -> dict[str, str]:
    return frame_bundle(cast("pd.DataFrame", frame))


@bundle_of.register(CriticalPath)
@bundle_of.register(Sweep)
def _with_frame(value: CriticalPath | Sweep[Any]) -> dict[str, str]:
    return frame_bundle(value.frame)
