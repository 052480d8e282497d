"""The line below a run."""

from __future__ import annotations

import pytest

from agent_magic import Agent, Policy, TokenPrice, first_of
from agent_magic.api import Ledger, Run
from agent_magic.declare import Plan
from agent_magic.errors import Rejected, Unreachable
from agent_magic.measure.frames import next_step
from agent_magic.record import AgentEnded, Prices, RunEnded
from agent_magic.record.ledger.base import IN_DOUBT
from agent_magic.show import closing
from agent_magic.show.notes import FEW_ANSWERS, MOST_ANSWERS
from tests.live.virtual import Reply, drive
from tests.show.story import business_run, finished_run, layered_plan
from tests.show.test_pictures import HOSTILE
from tests.show.test_values import Seen

ONE_TRY = Policy(max_attempts=1)
PLAN = Plan((Agent("a", "x"), Agent("b", "{{ a }}"), Agent("c", "y")))


def test_failures_say_what_to_do_next():
    """How many, why, what was skipped, the command that asks again, and its price."""
    record = drive(PLAN, lambda prompt, _: Reply(error=Unreachable("gone") if prompt == "x" else None), ONE_TRY)[0]
    happened, step = closing(record, "about $0.01").text().split("\n")
    assert happened.startswith("1 failed: Unreachable, 1 skipped because of it · ")
    assert "%agents retry asks it again, about $0.01. %agents error a shows why." == step


def test_what_asking_again_cannot_help_is_to_be_mended_first():
    """A request that the API rejects is rejected again: the next step is to see why and to mend it."""
    rejected = Rejected("no such field", status=400)
    record = drive(PLAN, lambda prompt, _: Reply(error=rejected if prompt == "x" else None), ONE_TRY)[0]
    step = closing(record, "about $0.01").text().split("\n")[1]
    assert "%agents error a shows why. Fix it, then %agents run goes on, about $0.01." == step


def test_of_several_failures_those_that_asking_cannot_help_are_named():
    """One is overloaded and may be asked again, another is rejected and would be again."""
    errors = {"x": Unreachable("gone"), "y": Rejected("no such field", status=400)}
    record = drive(PLAN, lambda prompt, _: Reply(error=errors.get(prompt)), ONE_TRY)[0]
    step = closing(record, "about $0.01").text().split("\n")[1:]
    said = "%agents retry asks a again, about $0.01. Fix c first: %agents error c shows why."
    assert said == " ".join(step)


def test_what_stopped_all_others_goes_on_with_a_run():
    """Where nobody is left who could ask, those that were stopped are as much left as the one that failed."""
    plan, gone = Plan((Agent("a", "x"), Agent("b", "y"), Agent("c", "z"))), Unreachable("gone", sent=False, final=True)
    record = drive(plan, lambda prompt, _: Reply(error=gone if prompt == "x" else None), Policy(1))[0]
    assert ["failed", "cancelled", "cancelled"] == [one.status for one in record.results]
    step = closing(record, "about $0.01").text().split("\n")[1]
    assert "%agents run goes on with the 3 left, about $0.01. %agents error a shows why." == step


def test_a_call_in_doubt_is_looked_at_before_it_is_asked_again():
    """Asked again as it was it would be in doubt again."""
    record = business_run(4.6)
    for agent, result in enumerate(record.results):
        if result.status != "succeeded":
            record.add(AgentEnded(5.0, agent, "failed", f"{IN_DOUBT}: charge was called", IN_DOUBT))
    record.add(RunEnded(5.0, cut=False))
    step = " ".join(closing(record).text().split("\n")[1:])
    assert "See whether the call was made. Then %agents run --on-doubt error" in step
    assert "%agents retry" not in step


def test_what_held_a_run_is_said():
    """Three agents that could go at once, in one slot; where only the plan's own edges held it, nothing is said."""
    plan = Plan((Agent("a", "x"), Agent("b", "y"), Agent("c", "z")))
    held = closing(drive(plan, lambda *_: Reply(1.0), Policy(1))[0]).text().split("\n")[0]
    assert held.endswith(" · limited by its 1 slot (concurrency)")
    assert "limited by" not in closing(drive(plan, lambda *_: Reply(1.0))[0]).text()
    lost = drive(plan, lambda *_: Reply(error=Rejected("no", status=400)), Policy(1))[0]
    assert "limited by" not in closing(lost).text(), "what failed matters more"


def test_a_stopped_run_says_how_to_go_on():
    """What was kept, how much is left, and what goes on."""
    record = business_run(4.6)
    for agent, result in enumerate(record.results):
        if result.status != "succeeded":
            record.add(AgentEnded(5.0, agent, "cancelled", "stopped"))
    record.add(RunEnded(5.0, cut=True))
    happened, step = closing(record).text().split("\n")
    assert happened.startswith("stopped, 4 kept, 5 cancelled · ")
    assert "%agents run goes on with the 5 left." == step
    assert "%agents run goes on with the 5 left" == next_step(record, "look") == Run(record).agents.attrs["next"]


def test_the_ledger_knows_what_was_saved_by_the_users_own_prices():
    """In the list of runs as below the run: a model that no list has saves what the user says it costs."""
    ledger, prices = Ledger(":memory:"), Prices({"mine": TokenPrice(2.0, 0.0)})
    plan = Plan([Agent("a", "x", model="mine")])
    for _ in range(2):
        drive(plan, lambda *_: Reply(1.0, tokens=(1_000_000, 0, 0, 0)), ledger=ledger, prices=prices)
    assert {2.0} == set(ledger.runs()["saved_usd"].dropna())


def test_a_run_that_a_budget_held_goes_on_with_more_of_it():
    """Asked again under the same budget it would ask nobody."""
    plan = Plan(tuple(Agent(f"a{number}", "x") for number in range(4)))
    record = drive(plan, lambda *_: Reply(1.0, tokens=(1_000_000, 0, 0, 0)), Policy(1, budget_usd=0.6))[0]
    assert "once --budget allows more." in closing(record).text()


def test_what_was_reused_and_saved_is_said():
    """How many of how many, the dollars, and how to ask again."""
    ledger = Ledger(":memory:")
    drive(PLAN, lambda *_: Reply(1.0, tokens=(1_000_000, 0, 0, 0)), ledger=ledger)
    happened, step = closing(drive(PLAN, lambda *_: Reply(1.0), ledger=ledger)[0]).text().split("\n")
    assert happened.startswith("all 3 reused, $1.50 saved · $0")
    assert "%agents run --fresh asks all again." == step


def test_a_run_that_went_well_says_what_there_is_to_look_at():
    """One line of what happened and what it cost, one of what comes next; no line is wider than 80 columns."""
    record = drive(PLAN, lambda *_: Reply(1.0))[0]
    lines = closing(record).text().split("\n")
    assert lines[0].startswith("3 agents done · ")
    assert "%agents advise" in lines[1]
    assert max(map(len, lines)) <= 80


def test_answers_are_folded_in_without_a_script():
    """A page without a kernel opens them; of a large run the first ones."""
    seen = Seen(closing(business_run()).bundle()["text/html"])
    assert {"style", "div", "details", "summary", "pre"} == seen.tags
    assert 9 == seen.text.count("Good.")
    large = finished_run(layered_plan(2 * MOST_ANSWERS, 10))
    folded = Seen(closing(large).bundle()["text/html"])
    assert FEW_ANSWERS == folded.text.count("Good.")
    assert "run.texts has the others." in folded.text
    assert "run.texts has the others." not in Seen(closing(finished_run(layered_plan(4, 2))).bundle()["text/html"]).text


@pytest.mark.parametrize("text", HOSTILE)
def test_answers_and_errors_stay_text(text: str):
    """Whatever a model or a server wrote, nothing of it becomes markup."""
    record = drive(PLAN, lambda prompt, _: Reply(text=text, error=Unreachable(text) if prompt == "y" else None))[0]
    assert Seen(closing(record, text).bundle()["text/html"]).tags <= {"style", "div", "details", "summary", "pre"}


def test_why_answers_were_bought_again_is_said():
    """Another prompt, by itself or by what it reads, another model, an answer that was cut; --fresh needs no reason."""

    def run(prompt, model="claude-haiku-5-5"):
        plan = Plan((Agent("a", prompt), Agent("b", "{{ a }}"), Agent("c", "y", model=model)))
        return drive(plan, lambda asked, _: Reply(1.0, text=asked))[0]

    first = run("x")
    assert "asked again: 2 with another prompt." == closing(run("other"), "", first).text().split("\n")[1]
    told = closing(run("x", "claude-opus-5-5"), "", first).text()
    assert "asked again: 1 with another model." in told
    assert "asked again" not in closing(run("x"), "", first).text()
    assert "asked again" not in closing(run("x")).text()


def test_more_items_than_places_are_not_asked_again():
    """There would be as many: the line says what to raise."""
    agents = [Agent("plan", "x", returns=list[str]), Agent("work", "{{ item }}", each="plan", most=1)]
    record = drive(Plan(agents), lambda *_: Reply(1.0, text='{"value": ["a", "b"]}'))[0]
    told = " ".join(closing(record, "about $0").text().split())
    assert "Raise --most in its cell, then %agents run goes on, about $0." in told
    assert "%agents retry" not in told


def test_what_a_condition_left_out_is_skipped_here_as_on_its_card():
    """One word for it in the picture and below; it is no failure."""
    plan = Plan((Agent("a", "x"), Agent("b", "{{ a }}", when="a == 'never'")))
    assert closing(drive(plan, lambda *_: Reply(1.0))[0]).text().startswith("1 agent done, 1 skipped by a condition")
    race = Plan((Agent("a", "x"), Agent("b", "y"), first_of("q", "a,b")))
    told = closing(drive(race, lambda prompt, _: Reply(1.0 if prompt == "x" else 2.0))[0]).text()
    assert told.startswith("1 agent and 1 task done, 1 not needed: another answered first")
