"""`run.advise()`: each rule on a run where it must speak, and on one where it must not; forecasts against real runs."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalOperand=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import TokenPrice
from agent_magic.api import Run
from agent_magic.errors import DeclarationError, Overloaded, RateLimited
from agent_magic.forecast import Finding, Outlook
from agent_magic.forecast.advice import rules, structure
from agent_magic.forecast.advice.advice import ADVICE, SITUATIONS, fitting, in_situation
from agent_magic.forecast.advice.finding import NEAR, PRACTICES, UNLIMITED, practices
from agent_magic.measure import summarize
from agent_magic.record import History, Prices
from tests.declare.examples import E2, E3, E6
from tests.live.virtual import Reply, drive
from tests.measure.test_path import graphs, run_of


def advice_of(example, policy):
    """The advice on a worked example, by rule."""
    return {one.rule: one for one in Run(run_of(example.parents, example.work_s, policy)).advise()}


def outlook_of(record):
    """What forecasts say of a run."""
    return Outlook(Run(record).forecaster())


@settings(max_examples=40)
@given(graphs(most=6), st.integers(1, 3), st.data())
def test_a_change_is_forecast_as_the_driver_runs_it(graph, slots, data):
    """Half as much work of one agent, an edge cut, another concurrency: as long as a real run of that."""
    parents, work = graph
    policy = am.Policy(slots, seed=1)
    outlook = outlook_of(run_of(parents, work, policy))
    assert summarize(run_of(parents, work, policy)).wall_s == outlook.as_it_was.wall_s
    agent = data.draw(st.integers(0, len(parents) - 1))
    halved = [seconds / 2 if one == agent else seconds for one, seconds in enumerate(work)]
    assert summarize(run_of(parents, halved, policy)).wall_s == outlook.ask(faster={agent: 0.5}).wall_s
    edges = [(before, after) for after, row in enumerate(parents) for before in row]
    if edges:
        edge = data.draw(st.sampled_from(edges))
        left = [[one for one in row if (one, after) != edge] for after, row in enumerate(parents)]
        assert summarize(run_of(left, work, policy)).wall_s == outlook.ask(cut=frozenset({edge})).wall_s
    most = summarize(run_of(parents, work, am.Policy(100, seed=1))).wall_s
    assert most == outlook.unlimited.wall_s
    enough = outlook.enough_slots
    assert summarize(run_of(parents, work, am.Policy(enough, seed=1))).wall_s <= NEAR * most
    barrier = summarize(run_of(parents, work, am.Policy(slots, "layers", seed=1))).wall_s
    assert barrier - outlook.as_it_was.wall_s == outlook.barrier_cost_s()


def seen_at(concurrency):
    """What a run of twelve alike showed of the server."""
    return History.beside([run_of([[]] * 12, [2.0] * 12, am.Policy(concurrency))])


def slots_advised(example, policy, history=None):
    """What the advice on a worked example says of slots."""
    advice = Run(run_of(example.parents, example.work_s, policy), history=history).advise()
    return {one.rule: one for one in advice}["wall time near the critical path, not the sum"]


def test_a_faster_run_says_where_rate_limits_are_unknown():
    """More at once may meet limits that nobody has seen: what is advised without them says so."""
    assert UNLIMITED in slots_advised(E3, am.Policy(1), seen_at(12)).assumed
    assert UNLIMITED not in slots_advised(E3, am.Policy(100)).assumed


def test_more_slots_are_advised_where_slots_were_short():
    """Six chains on two slots: six save eight seconds, a seventh none, where the server was seen to bear them."""
    found = slots_advised(E3, am.Policy(2), seen_at(6))
    assert "concurrency=6" in found.change
    assert (8.0, 9.0, 0.0, "measured") == (found.saves_s, found.forecast_s, found.saves_usd, found.basis)


def test_what_nobody_has_seen_is_not_advised_but_tried():
    """Where no run had so many requests at once, advice names the small runs that decide, and what they cost."""
    found = slots_advised(E3, am.Policy(2))
    assert "%agents sweep --at 2,6" == found.edit
    assert found.change.startswith("Find out whether concurrency=6 is faster, about $")
    assert (None, None, "assumed", {}) == (found.saves_s, found.forecast_s, found.basis, found.apply)
    assert "more than 2 at once was never seen" in found.assumed


def test_rules_that_compare_with_more_at_once_say_what_nobody_has_seen():
    """The rule of five and the half that is saved rest on the same assumption, and say so."""
    rules = "three to five agents at once", "half of the time saved"
    for history, basis in ((None, "assumed"), (seen_at(6), "measured")):
        advice = Run(run_of(E3.parents, E3.work_s, am.Policy(2)), history=history).advise()
        said = [one for one in advice if one.rule in rules]
        assert [basis] * 2 == [one.basis for one in said]
        assert [history is None] * 2 == ["as if the server kept its speed" in one.measured for one in said]
        assert not any("more slots would help" in one.measured for one in said if history is None)


def test_a_run_at_its_bound_is_left_alone():
    """Near the critical path: keep."""
    assert "" == advice_of(E2, am.Policy(8))["wall time near the critical path, not the sum"].change


def test_barriers_are_advised_against_where_they_cost():
    """Two chains, long-short and short-long: the barrier costs eight seconds, and is named."""
    parents, work = [[], [], [0], [1]], [9.0, 1.0, 1.0, 9.0]
    found = {one.rule: one for one in Run(run_of(parents, work, am.Policy(4, "layers"))).advise()}["no barriers"]
    assert "ready" in found.change
    assert (8.0, 10.0) == (found.saves_s, found.forecast_s)
    free = Run(run_of(parents, work, am.Policy(4)))
    assert 8.0 == free.barrier_cost_s
    assert "" == {one.rule: one for one in free.advise()}["no barriers"].change


def test_the_longest_is_to_be_split_and_the_needless_edge_cut():
    """A 5 -> C 10 -> E 5: halving C saves 5 s; so does cutting A -> C, whose text nobody uses."""
    found = advice_of(E6, am.Policy(2))
    assert (5.0, True) == (found["balance the load"].saves_s, "a1" in found["balance the load"].change)
    edge = found["only necessary dependencies"]
    assert (5.0, True) == (edge.saves_s, "a0 -> a1 costs 5.0 s" in edge.measured)


def test_edges_that_carry_text_are_never_called_needless():
    """A prompt that takes its parent's answer has to wait."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "{{ a }}")])
    rules = {one.rule for one in Run(drive(plan, lambda *_: Reply(2.0))[0]).advise()}
    assert "only necessary dependencies" not in rules


def test_the_published_chooser_is_answered_with_seconds():
    """Which word the rule says, and what both ways take."""
    chain = Run(run_of([[], [0], [1]], [2.0, 2.0, 2.0])).advise()
    words = " ".join(str(chain).split())
    assert "the rule says sequential" in words
    assert " s, as long as this run." in words, "not 1 times as long"
    found = advice_of(E2, am.Policy(8))["sequential, hybrid or parallel"].measured
    assert "the rule says parallel" in found
    assert "18.0 s, 2.2 times as long as this run" in found


def test_what_takes_hours_is_told_in_hours():
    """No text counts the seconds of a long run: three steps of three hours are `9 h 00 min`."""
    told = str(Run(run_of([[], [0], [1]], [10_800.0] * 3, am.Policy(timeout_s=20_000))).advise())
    assert "Advice on a run of 9 h 00 min" in told
    assert [] == re.findall(r"\d{3,}(?:\.\d)? s\b", told)


def test_dollars_against_seconds_needs_a_measured_baseline():
    """Without one the rule is silent; dearer and no faster than one agent is advised against."""
    plan = am.Plan([am.Agent("a", "x", model="m"), am.Agent("b", "{{ a }}", model="m")])
    prices = Prices({"m": TokenPrice(1_000_000.0, 1_000_000.0)})
    run = Run(drive(plan, lambda *_: Reply(2.0), prices=prices)[0])
    assert "dollars against seconds" not in {one.rule for one in run.advise()}
    run.against(Run(drive(plan.baseline(), lambda *_: Reply(3.0), prices=prices)[0]))
    found = {one.rule: one for one in run.advise()}["dollars against seconds"]
    assert found.change
    assert (1.0, 15.0, 3.0, 15.0) == (found.saves_s, found.saves_usd, found.forecast_s, found.forecast_usd)


def test_a_dear_agent_may_try_the_default_model():
    """Its share of the dollars, and what the other model would cost; quality is left to the reader."""
    plan = am.Plan([am.Agent("a", "x", model="claude-opus-5-5"), am.Agent("b", "y")])
    found = {one.rule: one for one in Run(drive(plan, lambda *_: Reply(2.0))[0]).advise()}["the model by the task"]
    assert "quality is not measured" in found.change
    assert 0 < found.saves_usd
    assert "measured" != found.basis


def test_agents_that_cost_alike_may_try_it_together():
    """Four reviewers of one price are one proposal, not the dearest of them by a hair; a cheap agent is not in it."""
    dear = [am.Agent(f"d{one}", "x", model="claude-opus-5-5") for one in range(6)]
    plan = am.Plan([*dear, am.Agent("cheap", "y", model="claude-sonnet-5-5")])
    run = Run(drive(plan, lambda *_: Reply(2.0))[0])
    found = {one.rule: one for one in run.advise()}["the model by the task"]
    assert "asked by d0, d1, d2, d3 and 2 more." in found.measured
    assert "--model claude-haiku-5-5" == found.edit
    assert "Try claude-haiku-5-5 for d0, d1, d2, d3 and 2 more, and" in found.change
    asked = run.whatif(model={f"d{one}": "claude-haiku-5-5" for one in range(6)})
    assert run.totals.cost_usd - asked["cost_usd"][0] == pytest.approx(found.saves_usd)


def test_a_shared_beginning_is_named():
    """Two prompts with the same long beginning: how much, and whose; short ones are not worth a word."""
    text = "word " * 4000
    plan = am.Plan([am.Agent(name, f"{text}{name}") for name in ("a", "b", "c")])
    found = {one.rule: one for one in Run(drive(plan, lambda *_: Reply(2.0))[0]).advise()}
    assert "3 prompts begin with the same 5,000 tokens" in found["shared text is paid for once"].measured
    assert "assumed" == found["shared text is paid for once"].basis
    short = am.Plan([am.Agent(name, f"word {name}") for name in ("a", "b")])
    assert "shared text is paid for once" not in {one.rule for one in Run(drive(short, lambda *_: Reply())[0]).advise()}


def test_failures_and_limits_are_counted():
    """Failed requests with their kind; a 429 as a limit."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y")])
    record, _ = drive(plan, lambda _, number: Reply(1.0, Overloaded("full", status=529) if number == 1 else None))
    found = {one.rule: one for one in Run(record).advise()}["failures do not cascade"]
    assert "2 of 4 requests failed (Overloaded), after 2.0 s in all." == found.measured
    assert found.change
    busy = Reply(1.0, RateLimited("busy", retry_after_s=9.0), status=429)
    refused, _ = drive(plan, lambda _, number: busy if number == 1 else Reply(1.0))
    assert (
        "2 requests were refused" in {one.rule: one for one in Run(refused).advise()}["inside the rate limits"].measured
    )


def test_nothing_to_improve_is_said():
    """Agents side by side, equally long, with slots for all: nothing pays, and the repr says so."""
    plan = am.Plan([am.Agent(f"a{one}", f"p{one}") for one in range(4)])
    advice = Run(drive(plan, lambda *_: Reply(2.0))[0]).advise()
    assert () == advice.changes
    assert "Nothing to improve" in repr(advice)
    assert ["keep"] * len(advice) == list(advice.frame["action"])


def test_nothing_ran_nothing_said():
    """An empty run has no rows, and its columns."""
    advice = Run(drive(am.Plan(()), None)[0]).advise()
    assert 0 == len(advice) == len(advice.frame)
    assert ADVICE == {name: str(kind) for name, kind in advice.frame.dtypes.items()}


@settings(max_examples=30)
@given(graphs(), st.integers(1, 3), st.sampled_from(["ready", "layers", "sequential"]))
def test_every_finding_has_numbers_and_a_source(graph, slots, schedule):
    """Whatever the run: a number and a source in each row, what saves most first, and savings that add up."""
    parents, work = graph
    run = Run(run_of(parents, work, am.Policy(slots, schedule)))
    advice = run.advise()
    assert ADVICE == {name: str(kind) for name, kind in advice.frame.dtypes.items()}
    savings = [one.saves_s or 0.0 for one in advice.changes]
    assert sorted(savings, reverse=True) == savings
    for one in advice:
        assert any(letter.isdigit() for letter in one.measured)
        assert one.source
        if one.forecast_s is not None and one.basis == "measured":
            assert math.isclose(run.totals.wall_s - one.saves_s, one.forecast_s, abs_tol=1e-9)
    assert all(one.rule in repr(advice) for one in advice)


@pytest.mark.parametrize("policy", [am.Policy(1), am.Policy(3, "layers"), am.Policy(2, "sequential")])
def test_advice_that_is_followed_comes_true(policy):
    """Run it as advised: the wall time is the one forecast."""
    found = slots_advised(E3, policy, seen_at(6))
    slots = int(found.change.split("concurrency=")[1].split(";")[0])
    assert found.forecast_s == summarize(run_of(E3.parents, E3.work_s, am.Policy(slots))).wall_s


def test_the_ten_practices_are_checked_by_rules_that_name_them():
    """Each is the source of a rule; the page that lists them has the rules' names."""
    sources = "".join(inspect.getsource(one) for one in (rules, structure))
    named = {int(one) for call in re.findall(r"practices\(([\d, ]+)\)", sources) for one in call.split(",")}
    assert {*PRACTICES} == named == {*range(1, 11)}
    assert practices(5) == '"Parallel Execution - Deep Dive": practice 5, have tasks of a group take about as long'
    page = (Path(__file__).parents[2] / "docs/how_to/know_if_it_was_worth_it.md").read_text()
    rows = re.findall(r"^\| (\d+) .* \| ([^;:|]+?)(?:[;:,].*)? \|$", page, re.MULTILINE)
    assert [*map(str, range(1, 11))] == [number for number, _ in rows]
    assert [] == [rule for _, rule in rows if f'"{rule}' not in sources]


def test_what_saves_dollars_may_come_first():
    """The order is by seconds or by dollars, changes before what is fine; another word is an error."""
    run = Run(drive(E3.plan, lambda *_: Reply(2.0, tokens=(5000, 900, 0, 0)), am.Policy(1))[0])
    for by, name in (("seconds", "saves_s"), ("dollars", "saves_usd")):
        saved = [getattr(one, name) or 0.0 for one in run.advise(by).changes]
        assert sorted(saved, reverse=True) == saved
    with pytest.raises(DeclarationError, match="seconds, dollars"):
        run.advise("usd")


def test_one_agent_is_advised_only_where_it_is_no_slower():
    """A chain gains nothing over one after another; one agent that takes three times as long is no advice for that."""
    plan = am.Plan([am.Agent("a", "A", model="m"), am.Agent("b", "B {{ a }}", model="m")])
    prices = Prices({"m": TokenPrice(1_000_000.0, 1_000_000.0)})

    def told(alone_s):
        def once(what, takes_s, policy=None):
            return Run(drive(what, lambda *_: Reply(takes_s, tokens=(10, 5, 0, 0)), policy, prices=prices)[0])

        run = once(plan, 2.0).against(once(plan, 2.0, am.Policy(schedule="sequential")))
        run.against(once(plan.baseline(), alone_s))
        return next(one.change for one in run.advise() if one.rule == "dollars against seconds")

    assert "" == told(12.0)
    assert "One agent does the same job" in told(4.0)


def test_advice_fits_a_terminal_and_says_what_to_write():
    """Lines of at most 80 columns: the change, what it is worth, why, what to write where, and whose rule it is."""
    told = str(Run(run_of(E3.parents, E3.work_s, am.Policy(2)), history=seen_at(6)).advise())
    assert 80 >= max(map(len, told.splitlines()))
    first = told.split("\n1. ")[1].split("\n2. ", maxsplit=1)[0].splitlines()
    assert "Run it with concurrency=6; more slots would not help." == first[0]
    assert "   It saves 8.0 s. The run then takes 9.0 s. Measured: the rate limits are" == first[1]
    assert "   Write: %agents run --concurrency 6 (where: the run)" in first


def test_barriers_and_slots_are_changed_together():
    """Where the forecast is of a run without barriers, the edit takes them away too."""
    run = Run(run_of([[], [], [0], [1]], [9.0, 1.0, 1.0, 9.0], am.Policy(4, "layers")))
    told = {one.rule: one for one in run.advise()}["wall time near the critical path, not the sum"]
    assert "%agents run --concurrency 2 --schedule ready" == told.edit
    applied = run.apply(told).policy
    assert ("ready", 2) == (applied.schedule, applied.concurrency)


def test_a_situation_answers_first_and_says_on_which_numbers():
    """An emergency takes several at any price; a night takes a batch; each names its row, share and thresholds."""
    run = Run(run_of(E2.parents, E2.work_s, am.Policy(8)))
    first = {name: run.advise(situation=name).findings[0] for name in SITUATIONS}
    assert 8 == len(first)
    assert all(one.rule == f"situation: {name}" and one.action == "keep" for name, one in first.items())
    assert first["emergency fix"].measured.startswith("take several: ")
    assert "saves 56% of the time (it asks for 5%)" in first["emergency fix"].measured  # 18 s of work in 8 s
    assert first["nightly job"].measured.startswith("send a batch: ")
    assert not any(one.rule == structure.WORTH_IT for one in run.advise(situation="release"))
    with pytest.raises(DeclarationError, match=r"emergency fix.*got 'emergency'\. Did you mean 'emergency fix'\?"):
        run.advise(situation="emergency")


def test_no_situation_is_answered_by_a_run_that_took_no_time():
    """All answers were there: neither several agents nor one would be better, whatever it is for."""
    plan = am.Plan([am.Agent("a", "x"), am.Agent("b", "y")])
    served = Run(drive(plan, lambda *_: Reply(1.0, source="ledger"))[0])
    rules = [one.rule for one in served.advise(situation="release")]
    assert structure.WORTH_IT in rules
    assert "situation: release" not in rules


def test_little_saved_or_many_dollars_take_one_agent():
    """A chain saves no time; three times the dollars are too much where dollars count."""
    chain = outlook_of(run_of([[], [0], [1]], [1.0, 1.0, 1.0], am.Policy(8)))
    assert in_situation(chain, "emergency fix", 1.0).measured.startswith("take one: ")
    wide = outlook_of(run_of([[], [], []], [1.0, 1.0, 1.0], am.Policy(8)))
    assert in_situation(wide, "exploration", None).measured.startswith("it depends on the dollars: ")
    assert in_situation(wide, "emergency fix", None).measured.startswith("take several: ")
    assert in_situation(wide, "exploration", 3.0).measured.startswith("take one: ")
    assert in_situation(wide, "emergency fix", 3.0).measured.startswith("take several: ")


def test_a_change_that_costs_what_counts_is_told_and_not_recommended():
    """Dearer is no advice to somebody who counts dollars, nor slower to somebody who waits."""
    dearer = Finding("a", "b", change="c", source="d", saves_s=2.0, saves_usd=-0.5)
    left = fitting(dearer, SITUATIONS["cost-sensitive"])
    assert ("keep", "b Its change is left out, as it costs $0.5000: c") == (left.action, left.measured)
    assert dearer == fitting(dearer, SITUATIONS["emergency fix"])
