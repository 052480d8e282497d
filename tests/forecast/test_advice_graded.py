"""Advice from trials: a setting that was graded as good and costs less, with score, interval and n."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import agent_magic as am
from agent_magic.api import Run
from agent_magic.measure import Setting, Trial
from tests.live.virtual import Reply, drive
from tests.measure.test_trial import trial

HAIKU, OPUS = "claude-haiku-5-5", "claude-opus-5-5"
RIGHT, HALF = [1.0] * 200, [1.0, 0.0] * 100


def ran(model: str, effort: str | None = None, tokens: tuple[int, int, int, int] = (400, 20, 0, 0)) -> Run:
    """Six rows, answered by a model."""
    agent = am.Agent("label", "Label {{ item }}.", each="rows", model=model, effort=effort)
    return Run(drive(am.Plan([agent], {"rows": list("abcdef")}), lambda *_: Reply(2.0, tokens=tokens, text="a"))[0])


def graded(run: Run, settings: tuple[Setting, ...], *scores: Any, cost: tuple[float, ...] = (0.1, 0.01)) -> Trial:
    """The trial of these settings with the scores of each, and dollars of an answer."""
    found = trial(*scores)
    tried = tuple(
        tuple(one._replace(cost_usd=usd) for one in each) for each, usd in zip(found.tried, cost, strict=False)
    )
    made = replace(found, target="label", settings=settings, tried=tried)
    run.trials.append(made)
    return made


def advice(run: Run) -> dict[str, Any]:
    """What is advised, by rule."""
    return {one.rule: one for one in run.advise()}


def test_a_cheaper_model_that_was_graded_as_good_is_advice():
    """With both scores, their intervals and n; what it saves is forecast, and it can be applied."""
    run = ran(OPUS)
    graded(run, (Setting(OPUS, None), Setting(HAIKU, None)), RIGHT, RIGHT)
    told = advice(run)["the setting by its grades"]
    assert "Take haiku-5-5 for label: it was graded as good, and costs less." == told.change
    assert "opus-5-5 scores 1.00 (0.96 to 1.00) (n 200)" in told.measured
    assert "haiku-5-5 scores 1.00 (0.96 to 1.00) (n 200), the best" in told.measured  # of equal ones the cheapest
    then, now = run.forecast(model=HAIKU).totals.cost_usd, run.forecast().totals.cost_usd
    assert (now or 0.0) - (then or 0.0) == told.saves_usd
    assert {HAIKU} == {one.model for one in run.apply(told).plan.agents}
    assert ("label", f"--model {HAIKU}") == (told.where, told.edit)
    assert "the model by the task" not in advice(run)  # it would say that quality is not measured


def test_a_model_that_was_graded_worse_is_not_recommended():
    """The rule on models says the score in place of "quality is not measured"."""
    run = ran(OPUS)
    assert advice(run)["the model by the task"].change
    graded(run, (Setting(OPUS, None), Setting(HAIKU, None)), RIGHT, HALF)
    told = advice(run)
    assert not told["the model by the task"].change
    assert "haiku-5-5 scores 0.50" in told["the model by the task"].measured
    assert not told["the setting by its grades"].change
    assert "as in this run. Tried beside it: haiku-5-5 scores 0.50" in told["the setting by its grades"].measured


def test_noise_is_said_with_how_many_more_answers_would_tell():
    """It may be tried, and what is known of it stands beside."""
    run = ran(OPUS)
    graded(run, (Setting(OPUS, None), Setting(HAIKU, None)), RIGHT[:9], [*RIGHT[:8], 0.0])
    told = advice(run)["the model by the task"]
    assert told.change
    assert "haiku-5-5 scores 0.89 (0.46 to 1.00), from only 9, within noise" in told.change
    assert "more answers would decide" in told.change


def test_a_better_model_that_is_dearer_is_said_and_not_advised():
    """Whether better is worth the dollars, nobody but the user knows."""
    run = ran(HAIKU)
    graded(run, (Setting(OPUS, None), Setting(HAIKU, None)), RIGHT, HALF)
    told = advice(run)["the setting by its grades"]
    assert not told.change
    assert "opus-5-5 is graded better, and is dearer: run.apply(trial) takes it" in told.measured


def test_an_effort_that_was_graded_is_advice_by_its_grades():
    """And the rule on effort no longer asks for a trial."""
    run = ran(OPUS, "high", (50, 2_000, 0, 0))
    assert "run.trial('label'" in advice(run)["effort by the task"].change
    graded(run, (Setting(None, "high"), Setting(None, "medium")), RIGHT, RIGHT)
    told = advice(run)
    assert "effort by the task" not in told
    assert "Take medium for label: it was graded as good, and costs less." == told["the setting by its grades"].change


def test_a_trial_without_the_run_s_own_setting_advises_nothing():
    """Nobody knows whether another one is as good as what was not graded."""
    run = ran(OPUS)
    graded(run, (Setting("claude-sonnet-5-5", None), Setting(HAIKU, None)), RIGHT, RIGHT)
    assert "the setting by its grades" not in advice(run)
