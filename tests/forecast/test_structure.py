"""The rules on the shape of a plan, asked of an estimate and of a run."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalOperand=false, reportArgumentType=false, reportOptionalMemberAccess=false

from __future__ import annotations

import pytest

import agent_magic as am
from agent_magic.api import Ledger, Run
from agent_magic.forecast import Forecaster, Outlook, rows_of, several_or_one
from agent_magic.forecast.advice.structure import awaits_in_loops
from agent_magic.record import History
from agent_magic.show import advice_page
from tests.live.virtual import Reply, Scripted, drive

A, B = am.Agent("a", "x"), am.Agent("b", "y")


def findings(agents, values=None):
    """What lint says of a plan, by rule."""
    return {one.rule: one for one in am.Plan(agents, values or {}).lint()}


def test_needless_edges_are_named_with_their_seconds():
    """An edge that only orders costs what the run takes longer; the edit says what to write."""
    found = findings([A, am.Agent("b", "y", after="a"), am.Agent("c", "{{ b }}")])["only necessary dependencies"]
    assert "a -> b costs" in found.measured
    assert found.saves_s > 0
    assert ("a -> b", "b without --after a", "assumed") == (found.where, found.edit, found.basis)


def test_nothing_changed_is_the_run_that_was_foreseen():
    """What-ifs of an estimate take the seconds that it foresees, those of earlier answers too."""
    plan = am.Plan([A, B, am.Agent("c", "{{ a }} {{ b }}")])
    record = drive(plan, lambda *_: Reply(7.0))[0]
    found = plan.estimate(history=History(rows_of(record)))
    outlook = Outlook(Forecaster(found.likely))
    assert found.likely["c"].work_s == 7.0
    assert (14.0, 21.0) == (outlook.as_it_was.wall_s, outlook.sequential.wall_s)


def test_a_text_that_was_wanted_is_no_needless_edge():
    """A prompt that speaks of an agent it only waits for surely wanted its answer."""
    found = findings([am.Agent("the_facts", "x"), am.Agent("b", "Use what the facts say.", after="the_facts")])
    assert "only necessary dependencies" not in found
    assert "{{ the_facts }} in place of --after the_facts" == found["wanted answers are sent"].edit


def test_a_condition_is_no_needless_edge():
    """It reads the answer, whatever the prompt takes."""
    yes = am.Agent("yes", "x", returns=bool)
    assert "only necessary dependencies" not in findings([yes, am.Agent("b", "y", when="yes == True")])


def test_unused_answers_are_named():
    """Where another agent joins the rest. What changes files is of use without being read."""
    join = am.Agent("join", "{{ a }} {{ b }}")
    found = findings([A, B, am.Agent("lost", "{{ a }}"), join])["every answer is used"]
    assert "Let join take {{ lost }}, or leave lost out." == found.change
    assert found.saves_usd > 0
    assert "every answer is used" not in findings([A, B, am.Agent("lost", "{{ a }}", writes="out.md"), join])
    assert "every answer is used" not in findings([A, B])


def test_text_that_arrives_twice_is_named():
    """An answer that is sent itself and through another one."""
    found = findings([A, am.Agent("b", "{{ a }}"), am.Agent("c", "{{ a }} {{ b }}")])["no dead context"]
    assert "c gets a directly and again through b" in found.measured
    assert "no dead context" not in findings([A, B, am.Agent("c", "{{ a }} {{ b }}")])


def test_an_answer_that_a_prompt_never_speaks_of_is_named():
    """As `depends_on` adds it behind the prompt."""
    plan = am.Plan.from_dict(
        {"agents": [{"name": "a", "task": "x"}, {"name": "b", "task": "Do something else.", "depends_on": ["a"]}]}
    )
    found = {one.rule: one for one in plan.lint()}["no dead context"]
    assert "b gets a but never mentions it" in found.measured


def test_a_long_value_of_several_prompts_should_be_a_context():
    """With the dollars of a cached text, if that pays."""
    text = "word " * 20_000
    agents = [am.Agent(f"a{one}", f"{one} {{{{ text }}}}") for one in range(4)]
    found = findings(agents, {"text": text})["shared text is a context"]
    assert "stands in 4 prompts, 25,000 tokens each time" in found.measured
    assert found.saves_usd > 0
    assert "--context text" == found.edit
    assert "shared text is a context" not in findings(agents, {"text": "short"})


def test_who_writes_what_others_use_is_named():
    """They run one after the other, and no edge says so."""
    found = findings([am.Agent("a", "x", writes="f.md"), am.Agent("b", "x", writes="f.md")])
    assert "a and b both change or use f.md" in found["nobody writes what others use"].measured
    assert "--writes f_2.md, or --after a" == found["nobody writes what others use"].edit


def test_many_tiny_requests_are_named():
    """After a run says how short they are. Rows that share an answer make none."""
    plan = am.Plan([am.Agent("rate", "One word: {{ item }}", each="rows")], {"rows": [*range(10), 0, 0, 1]})
    record = drive(plan, lambda *_: Reply(1.0, tokens=(10, 3, 0, 0)))[0]
    found = {one.rule: one for one in Run(record).advise()}["not too many tiny agents"]
    assert "10 requests" in found.measured
    assert found.edit.startswith("--group 5 --returns str")  # of a text nobody can tell where an answer ends
    assert "8 requests fewer" in found.change


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("for x in y:\n    await plan.run()", True),
        ("while True:\n    get_ipython().run_line_magic('agents', 'run a')", True),
        ("await plan.run()\nfor x in y:\n    x.run()", False),
        ("for x in y:\n    await other(x)", False),
        ("no python", False),
    ],
)
def test_a_loop_that_awaits_runs_is_named(cell, names):
    """By its number; what a cell does apart from that is no matter."""
    found = awaits_in_loops(["", cell])
    assert names == (found is not None and "In [1]" == found.where)


def test_rules_are_the_same_before_and_after_a_run():
    """What lint names, advise names too."""
    plan = am.Plan([A, B, am.Agent("lost", "{{ a }}"), am.Agent("join", "{{ a }} {{ b }}")])
    after = {one.rule for one in Run(drive(plan, lambda *_: Reply(2.0))[0]).advise()}
    assert {one.rule for one in plan.lint()} <= after


@pytest.mark.parametrize(
    ("agents", "values", "words"),
    [
        ([A], {}, "take one: one agent runs beside nobody"),
        ([A, am.Agent("b", "{{ a }}"), am.Agent("c", "{{ b }}")], {}, "take one: a chain"),
        ([A, B], {}, "take several: parts that do not need each other"),
        ([am.Agent("a", "{{ item }}", each="r")], {"r": [*"abcdefghi"]}, "take several: one job for many items"),
        ([am.Agent(n, "x", context="t") for n in "abc"], {"t": "long"}, "take several: several views of one text"),
    ],
)
def test_whether_several_agents_are_worth_it(agents, values, words):
    """The situation is named, with the plan's seconds and dollars."""
    said = several_or_one(am.Plan(agents, values).estimate())
    assert said.startswith(words)
    assert "Time: " in said
    assert "Money: $" in said


def test_answers_that_are_there_already_are_no_chain():
    """Nothing is asked, so nothing waits for anything; with one that is left to ask, only that is."""
    agent, client, ledger = am.Agent("a", "{{ item }}", each="r"), Scripted(lambda *_: Reply(2.0)), Ledger()
    drive(am.Plan([agent], {"r": range(9)}), client, ledger=ledger)

    def said(rows):
        return several_or_one(am.Plan([agent], {"r": range(rows)}).estimate(client=client, ledger=ledger))

    assert said(9).startswith("all answers are in the ledger")
    assert not {"Time", "chain"} & set(said(9).replace(":", "").split())
    assert said(10).startswith("it depends: all answers but one are in the ledger")
    assert "take several: one job" in said(18)


def test_one_agent_is_not_advised_to_become_one():
    """A plan of one agent has nothing to change about how many there are."""
    for agents, changes in (([A], 0), ([A, am.Agent("b", "{{ a }}")], 1)):
        advice = Run(drive(am.Plan(agents), lambda *_: Reply(2.0))[0]).advise()
        assert changes == sum(one.rule == "several agents or one" for one in advice.changes)


def test_a_lint_is_a_page_and_a_frame():
    """Its headline says that nothing has run, and the edits are folded."""
    found = am.Plan([A, am.Agent("b", "y", after="a")]).lint()
    text = advice_page(found).text()
    assert "is expected to take" in text
    assert "b without --after a" in text
    assert {"where", "edit"} <= set(found.frame.columns)
    assert str(found).startswith("Lint of a plan of")


@pytest.mark.parametrize("many", [2, 5, 11])
def test_what_a_lint_says_adds_up(many):
    """The seconds and dollars of the plan, less what a change saves, are those of the plan with the change."""
    rows = [am.Agent(f"row_{one}", f"{'One long beginning. ' * 900}Question {one}") for one in range(many)]
    told = " ".join(f"{{{{ row_{one} }}}}" for one in range(many))
    plan = am.Plan([*rows, am.Agent("join", told), am.Agent("last", f"{{{{ join }}}} {told}")])
    found, estimate = plan.lint(), plan.estimate()
    seen = found.frame.dropna(subset=["saves_s", "forecast_s"])
    assert len(seen) > 0
    assert found.wall_s == estimate.wall_s.likely
    assert [estimate.wall_s.likely] * len(seen) == pytest.approx((seen["saves_s"] + seen["forecast_s"]).tolist())
    priced = seen.dropna(subset=["saves_usd"])
    assert [estimate.cost.likely] * len(priced) == pytest.approx(
        (priced["saves_usd"] + priced["forecast_usd"]).tolist()
    )
