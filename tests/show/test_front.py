"""Dollars against score: what was measured with whiskers, forecasts as rings, labels that do not collide."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from agent_magic.api import Run
from agent_magic.errors import DeclarationError
from agent_magic.measure import Setting, Trial
from agent_magic.show import front_chart, trial_page
from tests.measure.test_trial import CHEAP, GOOD, trial
from tests.show.story import business_run
from tests.show.test_charts import frame

FOUND = trial([1.0] * 38 + [0.0] * 2, [1.0] * 28 + [0.0] * 12, [1.0] * 20 + [0.0] * 20)


def labels(svg: str) -> list[str]:
    """The texts of a picture."""
    return re.findall(r">([^<>]+)</text>", svg)


def test_settings_stand_at_their_dollars_and_score():
    """Each with its numbers; the one that costs more and is worth less is not on the front."""
    chart = front_chart(FOUND, theme="light")
    assert {"cheap: 0.70, $10.00", "good: 0.95, $100.00", "other: 0.50, $50.00"} <= set(labels(chart.svg))
    assert "2 of 3 settings, joined: no other is both cheaper and better" in chart.text
    assert "$100.00          0.95  good" in chart.text
    assert "simulated" not in chart.text
    json.dumps(chart.spec, allow_nan=False)


def test_measured_points_have_whiskers_and_forecasts_are_rings():
    """A scenario whose model was tried stands at its measured score; the others are counted."""
    run = Run(business_run())
    run.trials.append(replace(FOUND, target=run.plan.names[0]))
    scenarios = frame([{"model": name, "wall_s": 1.0, "cost_usd": usd} for name, usd in (("cheap", 8.0), ("new", 3.0))])
    chart = run.tradeoff(scenarios, by="score", theme="light")
    layers = chart.spec["vconcat"][0]["layer"]
    rows = [row for layer in layers for row in layer["data"]["values"]]
    assert ["forecast dollars"] == [row["verdict"] for row in rows if row.get("verdict") == "forecast dollars"]
    assert "1 scenario nobody has graded, not shown" in " ".join(chart.text.split())
    low = FOUND.frame.set_index("model").loc["good", "low"]
    assert any(row.get("y") == pytest.approx(low) for row in rows)


def test_the_axis_of_scores_begins_where_they_do():
    """Shares end at 1; what lies between 0.9 and 1 can be told apart."""
    chart = front_chart(trial([1.0] * 400, [1.0] * 390 + [0.0] * 10), theme="light")
    domain = chart.spec["vconcat"][0]["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    assert (0.9, 1.0) == (round(domain[0], 6), round(domain[1], 6))


def test_the_chosen_setting_is_marked():
    """As a diamond, by its setting."""
    assert "chosen" in front_chart(FOUND, chosen=GOOD).text
    assert "chosen" not in front_chart(FOUND, chosen=Setting("nobody", None)).text


def test_without_a_score_there_is_no_front():
    """Nothing forecasts one: the error says what would fill it."""
    run = Run(business_run())
    assert "Cost against time" in run.tradeoff().text, "without a trial it asks the run for what is around it"
    assert "Cost against time" in run.tradeoff(by="seconds").text
    with pytest.raises(DeclarationError, match=r"await run\.trial"):
        run.tradeoff(by="score")
    with pytest.raises(DeclarationError, match=r"await run\.trial"):
        run.tradeoff(frame(), by="score")
    with pytest.raises(DeclarationError, match="by must be seconds or score, got 'x'"):
        run.tradeoff(frame(), by="x")
    with pytest.raises(DeclarationError, match="has both a score"):
        front_chart(trial([None], [None]))
    run.trials.append(FOUND)
    assert "Dollars against score" in run.tradeoff().text
    assert "Cost against time" in run.tradeoff(frame()).text


def test_scenarios_have_the_score_of_their_models_or_none():
    """What nobody graded is unknown, with the call that would tell."""
    run = Run(business_run())
    run.trials.append(tried_with(run))
    found = run.whatif(model=["claude-haiku-5-5", "claude-opus-5-5", "claude-sonnet-5-5"])
    assert [0.5, 1.0] == list(found["score"])[:2]
    assert found["score"].isna().iloc[2]
    assert "model=['claude-sonnet-5-5'], ...)" in found["to_score"].iloc[2]
    assert found["to_score"].isna().iloc[0]
    assert ["haiku-5-5", "opus-5-5"] == list(found["score_of"])[:2]


def tried_with(run: Run) -> Trial:
    """A trial of two models on an agent of the run."""
    settings = (Setting("claude-haiku-5-5", None), Setting("claude-opus-5-5", None))
    made = trial([1.0, 0.0], [1.0, 1.0])
    return Trial(run.plan.names[0], settings, made.tried, rows=2, margin=0.1, error_rate=0.05)


def test_a_trial_is_shown_as_a_page():
    """A sentence, a row per setting, what is noise, and what it cost."""
    text = trial_page(trial([1.0] * 20, [1.0] * 18 + [0.0] * 2, spent_usd=0.25, simulated=True)).text(100)
    assert "not decided: good scores best, 1.00 (0.71 to 1.00), from only 20; cheap within noise" in text
    assert "It cost $0.2500 (simulated)." in text
    assert re.search(r"cheap +0\.90 +0\.\d+ to [01]\.\d+ +20 +\$0\.0100 +2\.0 s +\$10\.00 +within noise", text)
    assert CHEAP.label in text
