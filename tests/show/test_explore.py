"""`run.explore()`: what the controls ask is what `run.whatif` is asked, and the picture says what the forecast says."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from typing import Any

import pytest

import agent_magic as am
from agent_magic import Agent, Policy
from agent_magic.api import Run
from agent_magic.declare import Plan, seconds
from agent_magic.errors import AgentMagicError
from agent_magic.live import Earlier
from agent_magic.measure import Setting, Trial
from agent_magic.show import Choice, Explorer, Panel
from agent_magic.show.explore import RECORDED, cell_of, choice_of
from tests.live.virtual import Reply, drive
from tests.measure.test_trial import trial
from tests.show.story import business_run, finished_run, layered_plan
from tests.show.test_pictures import HOSTILE

OPUS = "claude-opus-5-5"


@pytest.fixture
def panel() -> Panel:
    """The panel of the business plan, not shown."""
    return Panel(Explorer(Run(business_run()).forecaster()))


def test_a_panel_opens_when_it_is_asked():
    """Until then nothing is forecast; what cannot be forecast is told beside the button."""
    made: list[Explorer] = []
    closed = Panel(lambda: made.append(explorer()) or made[0])
    assert ({}, []) == (closed.widget.setup, made)
    closed.widget.choice = {"seq": 0, "open": True}
    assert explorer().record.plan.name == closed.widget.setup["title"]
    assert closed.widget.shown["line"] == explorer().answer(Choice()).line

    def fails() -> Explorer:
        raise AgentMagicError("No prices.")

    closed = Panel(fails)
    closed.widget.choice = {"seq": 0, "open": True}
    assert ({}, "No prices.") == (closed.widget.setup, closed.widget.shown["error"])


def test_many_times_are_written_out():
    """An hour by batch is no power of ten beside a second."""
    fast = finished_run(layered_plan(1, 1))
    line = explorer(fast).answer(Choice(batch=True)).line
    assert re.search(r"\([\d,]{3,} times the run's", line), line


def explorer(record: Any = None) -> Explorer:
    """Return what answers for a run."""
    return Explorer(Run(record or business_run()).forecaster())


@pytest.mark.parametrize(
    ("choice", "changes"),
    [
        (Choice(), {}),
        (Choice(concurrency=2, schedule="layers"), {"concurrency": 2, "schedule": "layers"}),
        (Choice(rpm=50.0), {"limits": 50.0}),
        (Choice(rpm=0.0), {"limits": "off"}),
        (Choice(cache="off", batch=True), {"cache": "off", "batch": True}),
        (Choice(models={"summary": OPUS}), {"model": {"summary": OPUS}}),
    ],
)
def test_the_answer_is_the_forecast(choice: Choice, changes: dict[str, Any]):
    """A choice asks `run.whatif` for just what it says, and shows the seconds of that row."""
    run = Run(business_run())
    assert changes == choice.changes
    wall_s = run.whatif(**changes)["wall_s"].iloc[0]
    answer = Explorer(run.forecaster()).answer(choice)
    assert answer.line.startswith(seconds(wall_s))
    head = answer.bundle["text/plain"].partition("\n\n")[0]
    assert f"forecast, {choice.words or RECORDED}: {answer.line}" == " ".join(head.split())
    assert seconds(wall_s) in answer.bundle["image/svg+xml"]


def test_a_plan_was_not_recorded():
    """Before the first run, what a choice leaves as it is is as planned: in the controls, and above the picture."""
    plan = am.Plan([am.Agent("a", "One?"), am.Agent("b", "Two {{ a }}")])
    shown = Panel(Explorer(plan.estimate().ahead())).widget
    assert ["as planned", "as planned", "no limits"] == [shown.setup["unchanged"], *shown.setup["limits"][:2]]
    assert shown.shown["still"]["text/plain"].startswith("forecast, as planned: ")


def test_the_page_makes_the_choice():
    """Each control is a part of the choice, and what the page leaves out is as recorded."""
    assert "" == choice_of({}).words
    asked = {"concurrency": 2, "schedule": "layers", "limits": "50", "cache": "off", "batch": True}
    assert Choice(2, "layers", {}, 50.0, "off", batch=True) == choice_of(asked)
    assert 0.0 == choice_of({"limits": "no limits"}).rpm
    assert {"summary": OPUS} == choice_of({"models": {"summary": OPUS}}).models


def test_the_numbers_follow(panel: Panel):
    """What the page is sent changes with the choice, and names the request it answers."""
    before = panel.widget.shown
    panel.widget.choice = {"concurrency": 1, "seq": 1}
    after = panel.widget.shown
    assert 1 == after["seq"]
    assert after["line"] != before["line"]
    assert after["picture"] != before["picture"]
    assert f"forecast: {after['line']}"[:40] in after["still"]["image/svg+xml"]


def test_a_wrong_choice_is_said(panel: Panel):
    """What cannot be forecast is an error in the panel, and the last picture stays."""
    before = panel.widget.shown
    panel.widget.choice = {"concurrency": 0, "seq": 1}
    after = panel.widget.shown
    assert "concurrency" in after["error"]
    assert (1, before["picture"]) == (after["seq"], after["picture"])


def test_a_choice_is_written_as_a_cell():
    """The cell applies what was chosen; nothing chosen is no cell."""
    assert "" == cell_of(Choice())
    assert "chosen = {'concurrency': 2}\n%agents apply chosen" == cell_of(Choice(concurrency=2))


def test_it_answers_at_once():
    """A change of a plan of 100 agents is answered; how fast is printed."""
    asked = explorer(finished_run(layered_plan(100, 10)))
    asked.answer(Choice())
    took: list[float] = []
    for at_once in range(1, 9):
        began = time.perf_counter()
        answer = asked.answer(Choice(concurrency=at_once))
        took.append(time.perf_counter() - began)
        assert len(answer.bundle["image/svg+xml"]) < 100_000
    print(f"100 agents: a change is answered in {1000 * sorted(took)[4]:.0f} ms (median of 8)")


def test_a_run_that_reused_its_answers_is_no_measure():
    """Its 0.0 s and $0 are told and compared with nothing; forecasts are, with the run as if all were bought."""
    plan = Plan([Agent("a", "x"), Agent("b", "y {{ a }}")])
    first, _ = drive(plan, lambda *_: Reply(4.0, first_s=1.0, tokens=(100, 300, 0, 0)), Policy(2, seed=7))
    assert " times the run's" not in explorer(first).answer(Choice()).line
    again, _ = drive(plan, lambda *_: Reply(4.0), Policy(2, seed=7), earlier=Earlier(first, "scripted", plan=plan))
    answer = explorer(again).answer(Choice())
    took, cost, *_ = answer.line.split(" · ")
    assert took.endswith(" s (as if all were bought)")
    assert re.fullmatch(r"\$[\d.]+ \(as if all were bought\)", cost)
    assert answer.line.endswith(" · as it was: 0.0 s · $0 (2 of 2 reused)")
    one = explorer(again).answer(Choice(models={"b": "claude-haiku-4-5"})).line.split(" · ")[1]
    assert re.fullmatch(r"\$[\d.]+ \([\d.]+ times \$[\d.]+, as if all were bought\)", one)
    assert "this run" not in answer.bundle["image/svg+xml"]
    assert "this run" in explorer(first).answer(Choice()).bundle["image/svg+xml"]


@pytest.mark.parametrize("payload", HOSTILE)
def test_names_stay_texts(payload: str):
    """A name in the picture of a scenario is text, and the picture is well-formed."""
    record = business_run()
    object.__setattr__(record.plan, "name", payload)
    svg = explorer(record).answer(Choice(concurrency=2)).bundle["image/svg+xml"]
    tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(svg).iter()}
    assert tags <= {"svg", "style", "g", "rect", "text", "path", "circle", "title"}


def test_a_score_is_measured_or_unknown():
    """After a trial the line has the score of the chosen models, the picture the front, and goals are answered."""
    record = business_run()
    name = record.plan.names[0]
    made = trial([1.0] * 20, [0.0] * 20)
    models = record[name].model, OPUS
    settings = tuple(Setting(model, None) for model in models)
    given = Trial(name, settings, made.tried[:2], rows=1, margin=0.1, error_rate=0.05)
    explorer = Explorer(Run(record).forecaster(), given)
    assert "score 1.00 (0.84 to 1.00), from only 20 (measured)" in explorer.answer(Choice()).line
    assert "score 0.00 (0.00 to 0.16)" in explorer.answer(Choice(models={name: OPUS})).line
    answer = explorer.answer(Choice(models={name: "claude-sonnet-5-5"}))
    assert "score unknown (run.trial(...) would measure it)" in answer.line
    assert "Dollars against score" in answer.bundle["text/plain"]
    assert (
        f"best score under $50.00: {settings[0].label} · cheapest at 0.9 or more: {settings[0].label}"
        in explorer.goal(50, 0.9)
    )
    panel = Panel(explorer)
    panel.widget.choice = {"seq": 1, "under": 50.0, "least": 1.0}
    assert "cheapest at 1 or more" in panel.widget.shown["goal"]
    assert "" == Explorer(Run(record).forecaster()).goal(5, 0.9)
