"""Speculation on the virtual loop: begun before its condition, kept where it holds, thrown away and paid where not."""

# What was asked has ended, so its times are known.
# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy
from agent_magic.api import Run
from agent_magic.declare import CONDITION
from agent_magic.engine import Abort, Conductor, Done, Failure, PlanRequests, Skipped, kinds_of
from agent_magic.engine.candidates import Candidates, candidates_of
from agent_magic.engine.requests import PlanChoices
from agent_magic.errors import DeclarationError, PlanError, Rejected
from agent_magic.record import ModelFacts, Prices
from agent_magic.show import races_note
from tests.live.virtual import Reply, drive

NO = Rejected("no", status=400)
FACTS = ModelFacts("", None)


def plan_of(*, speculate=True):
    """A draft, a slow review of it, and a fix that needs the draft alone."""
    return am.Plan(
        [
            am.Agent("draft", "D"),
            am.Agent("review", "R {{ draft }}", returns=int),
            am.Agent("fix", "F {{ draft }}", when="review < 4", speculate=speculate),
            am.Agent("end", "End {{ fix | default(draft) }}"),
        ]
    )


def scripted(score, *, review_s=4.0, fix_s=3.0, fix=None):
    """A provider whose review gives a score."""

    def script(prompt, _):
        if prompt.startswith("R"):
            if score is None:
                return Reply(review_s, NO, status=400)
            return Reply(review_s, text=f'{{"value": {score}}}')
        if prompt.startswith("F"):
            return fix or Reply(fix_s, text="fixed", first_s=0.5)
        return Reply(1.0, text=prompt.lower())

    return script


def ends(record):
    """How each step ended, and when."""
    return [(one.name, one.status, one.kind, one.finished_s) for one in record.results]


def parts_are_whole(record):
    """Whether the parts of every step's time add up."""
    every = [one for one in record.results if one.total_s is not None]
    return all(
        one.total_s == pytest.approx(one.queued_s + one.api_s + one.tool_s + one.backoff_s + one.local_s)
        and one.local_s >= -1e-9
        for one in every
    )


@pytest.mark.parametrize(("score", "begun", "done"), [(3, 20, 20), (5, 8, 0)])
def test_rows_tell_what_is_likely_of_other_rows(score, begun, done):
    """Once five conditions are decided and most were false, the fixes of the other rows wait for theirs."""
    rows = [
        am.Agent("draft", "{{ item }}", each="rows"),
        am.Agent("review", "R {{ draft }}", each="rows", returns=int),
        am.Agent("fix", "F {{ draft }}", each="rows", when="review < 4", speculate=True),
    ]
    other = scripted(score)

    def script(prompt, number):
        return Reply(float(prompt) + 1, text=prompt) if prompt.isdecimal() else other(prompt, number)

    record, client = drive(am.Plan(rows, {"rows": list(range(20))}), script, Policy(60, seed=1))
    assert begun == sum(one.prompt.startswith("F") for one in client.asked)  # the fifth is decided after eight drafts
    assert done == sum(one.status == "succeeded" for one in record.results if one.name.startswith("fix"))
    assert parts_are_whole(record)
    assert ends(record) == ends(Run(record).forecast().record)


@pytest.mark.parametrize(("speculate", "ended_s"), [(True, 6.0), (False, 9.0)])
def test_a_condition_that_holds_costs_no_time(speculate, ended_s):
    """The fix runs beside the review, and its answer waits for that."""
    record, client = drive(plan_of(speculate=speculate), scripted(3), Policy(seed=1))
    assert (ended_s, "end fixed", 4) == (record.ended_s, record["end"].text, len(client.asked))
    assert parts_are_whole(record)
    if speculate:
        assert (5.0, 1.0, 3.0) == (record["fix"].finished_s, record["fix"].queued_s, record["fix"].api_s)


@pytest.mark.parametrize(("review_s", "fix_s"), [(4.0, 3.0), (3.0, 4.0), (1.0, 9.0)])
def test_the_longest_chain_counts_no_second_twice(review_s, fix_s):
    """What was worked beside a condition's parents adds nothing to their chain: no run beats its bound."""
    numbers = Run(drive(plan_of(), scripted(3, review_s=review_s, fix_s=fix_s))[0]).totals
    assert 2.0 + max(review_s, fix_s) == numbers.critical_path_s == numbers.wall_s
    assert (1.0, numbers.bound) == (numbers.efficiency, numbers.mean_concurrency)


def test_a_condition_that_is_false_throws_it_away():
    """The request is aborted at that moment; it is skipped, no failure, and what it cost is on the bill."""
    record, client = drive(plan_of(), scripted(5, review_s=2.0), Policy(seed=1))
    fix = record["fix"]
    assert ("skipped", CONDITION, 3.0, 1) == (fix.status, fix.kind, fix.finished_s, client.cancelled)
    assert fix.attempts[0].usage is not None
    assert ("end d", 4.0) == (record["end"].text, record.ended_s)
    assert races_note(record).startswith("Begun before the condition was known, which is false: fix; cost ")
    assert Run(record).ok


def test_an_answer_that_is_there_is_thrown_away_too():
    """It came before the condition: nobody has used it, and it is paid for."""
    record, client = drive(plan_of(), scripted(5), Policy(seed=1))
    assert ("skipped", 0, 5.0) == (record["fix"].status, client.cancelled, record["fix"].finished_s)
    assert record["fix"].attempts[0].answer.text == "fixed"
    assert record["end"].text == "end d"
    assert parts_are_whole(record)


@pytest.mark.parametrize(("score", "status"), [(3, "failed"), (5, "skipped")])
def test_a_failure_counts_only_where_the_condition_holds(score, status):
    """What would not have run has not failed."""
    record, _ = drive(plan_of(), scripted(score, fix=Reply(1.0, NO, status=400)), Policy(seed=1, max_attempts=1))
    assert (status, 5.0) == (record["fix"].status, record["fix"].finished_s)


@pytest.mark.parametrize("fix_s", [3.0, 4.0, 20.0])
def test_a_condition_that_nobody_can_decide(fix_s):
    """Its parent failed: it is skipped because of that, whether it was under way or done."""
    record, _ = drive(plan_of(), scripted(None, fix_s=fix_s), Policy(seed=1, max_attempts=1))
    assert ("skipped", "'review' did not succeed", 5.0) == (
        record["fix"].status,
        record["fix"].error,
        record["fix"].finished_s,
    )
    assert record["end"].status == "skipped"


def test_an_answer_that_comes_while_it_is_aborted():
    """It is whole, and nobody can decide whether it counts: it ends as skipped all the same, and so does the run."""
    plan = plan_of()
    assert plan.flow is not None
    requests = PlanRequests(plan, Policy(), [""] * len(plan), {"": FACTS}, Prices())
    conductor = Conductor(
        plan.dag,
        Policy(),
        timeouts_s=[99.0] * len(plan),
        kinds=kinds_of(plan),
        flow=PlanChoices(plan.flow, {}),
        candidates=candidates_of(plan, requests, kinds_of(plan)),
    )
    draft, review, fix, end = range(4)
    conductor.start(0.0)
    requests.answered(draft, "d")
    conductor.succeeded(draft, 1.0)
    assert [Abort(fix, "stopped")] == [
        one for one in conductor.failed(review, Failure("no", kind="Rejected"), 2.0) if isinstance(one, Abort)
    ]
    last: Any = conductor.succeeded(fix, 2.0)
    assert last[0] == Skipped(fix, review)
    assert Skipped(end, fix) in last
    assert isinstance(last[-1], Done)


def test_what_is_kept_back_is_not_late():
    """Its deadline is about its own request."""
    plan = plan_of()
    agents = [
        am.Agent("fix", "F {{ draft }}", when="review < 4", speculate=True, timeout_s=3.5) if one.name == "fix" else one
        for one in plan.agents
    ]
    record, _ = drive(am.Plan(agents), scripted(3, review_s=20.0), Policy(seed=1))
    assert ("succeeded", 21.0) == (record["fix"].status, record["fix"].finished_s)


def test_a_stop_ends_what_is_kept_back():
    """Nothing is left behind."""
    record, _ = drive(plan_of(), scripted(3, review_s=20.0), Policy(seed=1), stops=[(6.0, None)])
    assert ("cancelled", 6.0) == (record["fix"].status, record.ended_s)


def test_it_begins_at_once_where_its_prompt_needs_nobody():
    """Then it is one of the first requests of the run."""
    plan = am.Plan([am.Agent("ask", "R", returns=int), am.Agent("fix", "F", when="ask < 4", speculate=True)])
    record, _ = drive(plan, scripted(3), Policy(seed=1))
    assert (0.0, 4.0) == (record["fix"].started_s, record.ended_s)


def test_replay_and_forecast_end_the_same(tmp_path):
    """A file of the run, and the engine on virtual time, have what the run had."""
    for score in (3, 5):
        record, _ = drive(plan_of(), scripted(score), Policy(seed=1))
        Run(record).save(tmp_path / f"{score}.jsonl")
        assert ends(record) == ends(plan_of().replay(tmp_path / f"{score}.jsonl").record)
        assert ends(record) == ends(Run(record).forecast().record)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "speculate and no when"),
        ({"when": "x", "tools": ["web_search"]}, "speculate and tools"),
        ({"when": "x", "save": "f.txt"}, "speculate and save"),
        ({"when": "x", "hedge": 5}, "speculate and hedge"),
    ],
)
def test_what_cannot_be_thrown_away(options, told):
    """It is refused where it is declared."""
    with pytest.raises(DeclarationError, match=told):
        am.Agent("a", "A", speculate=True, **options)


def test_a_prompt_that_needs_the_same_answer():
    """There is nothing to begin before: the plan says so."""
    agents = [am.Agent("r", "R", returns=int), am.Agent("a", "A {{ r }}", when="r < 4", speculate=True)]
    with pytest.raises(PlanError, match="cannot begin before its condition"):
        _ = am.Plan(agents).flow


def test_cells_and_json_keep_it():
    """It is written as a switch, and read again."""
    plan = am.Plan([am.Agent("review", "R"), am.Agent("fix", "F", when="review", speculate=True)])
    assert "## fix --when review --speculate\nF" in plan.to_cell()
    assert am.Plan.from_json(plan.to_json()).agents[1].speculate


@st.composite
def drawn(draw):
    """Plans of agents with conditions, some of which speculate."""
    agents: list[am.Agent] = []
    for number in range(draw(st.integers(2, 8))):
        names = [one.name for one in agents]
        uses = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
        free = [one for one in names if one not in uses]
        about = draw(st.none() | st.sampled_from(free)) if free else None
        prompt = " ".join([f"S{number}", *(f"{{{{ {one} | default('-') }}}}" for one in uses)])
        when = None if about is None else f"({about} | default('t5') | last) in '01234'"
        agents.append(am.Agent(f"s{number}", prompt, when=when, speculate=when is not None and draw(st.booleans())))
    return am.Plan(agents)


def by_prompt(prompt, _):
    """Take a time, and fail or not, as the prompt says."""
    number = zlib.crc32(prompt.encode())
    takes_s = 0.5 + number % 24 / 4
    if number % 9 == 0:
        return Reply(takes_s, NO, status=400)
    return Reply(takes_s, text=f"t{number % 97}", first_s=0.25)


def test_what_is_aborted_since_its_parent_failed_is_skipped_because_of_it():
    """As a step is that had not begun: its kind is no stop that somebody asked for."""
    record, _ = drive(plan_of(), scripted(None, fix_s=9.0), Policy(2, seed=1, max_attempts=1))
    assert ("skipped", "Skipped", "'review' did not succeed") == (
        record["fix"].status,
        record["fix"].kind,
        record["fix"].error,
    )
    assert record["fix"].attempts


@settings(max_examples=150, deadline=None)
@given(drawn(), st.integers(1, 4), st.none() | st.integers(1, 24))
def test_speculation_changes_no_outcome(plan, concurrency, stopped_at):
    """Whatever begins early, the same steps end in the same way with the same answers, and all parts of time count."""
    policy = Policy(concurrency, seed=1, max_attempts=1)
    plain = am.Plan([am.Agent(one.name, one.prompt, when=one.when) for one in plan.agents])
    expected, _ = drive(plain, by_prompt, policy)
    record, _ = drive(plan, by_prompt, policy)
    assert [
        (one.name, one.status, one.kind, one.text if one.status == "succeeded" else "") for one in expected.results
    ] == [(one.name, one.status, one.kind, one.text if one.status == "succeeded" else "") for one in record.results]
    assert parts_are_whole(record)
    numbers = Run(record).totals
    assert numbers.critical_path_s <= (numbers.wall_s or 0.0)
    assert 0.0 <= (numbers.efficiency or 0.0) <= 1.0 + 1e-9
    assert ends(record) == ends(Run(record).forecast().record)
    if stopped_at is not None:
        cut, _ = drive(plan, by_prompt, policy, stops=[(stopped_at / 4 + 0.1, None)])
        assert all(one.finished_s is not None for one in cut.results)
        assert parts_are_whole(cut)


@pytest.mark.parametrize("policy", [Policy(8), Policy(8, "sequential")])
def test_a_step_that_waits_for_its_condition_holds_nothing(policy):
    """What its condition needs may use the same resource, or go one step at a time."""
    am.resource("one of", 1)
    plan = am.Plan(
        [
            am.Agent("early", "E"),
            am.Agent("review", "R {{ early }}", returns=int, uses_resources=["one of"]),
            am.Agent("fix", "F", when="review < 4", speculate=True, uses_resources=["one of"], priority=1),
        ]
    )
    record, _ = drive(plan, scripted(1), policy)
    assert ["succeeded"] * 3 == [one.status for one in record.results]


def test_a_step_does_not_begin_early_if_its_condition_is_at_hand():
    """In a run again, the answers that decide come from the ledger: what they make needless is not bought once more."""
    draft, review = am.Agent("draft", "D"), am.Agent("review", "R {{ draft }}", returns=int)
    plan = am.Plan([draft, review, am.Agent("fix", "F", when="review < 4", speculate=True)])
    ledger = am.Ledger(":memory:")
    for asked in (3, 0):
        record, client = drive(plan, scripted(5, fix_s=60.0), Policy(seed=1), ledger=ledger)
        assert asked == len(client.asked)
        assert ("skipped", CONDITION) == (record["fix"].status, record["fix"].kind)


def test_a_race_that_is_decided_buys_nothing_for_the_others():
    """Not even what comes before a candidate: the answer that won is at hand."""
    steps = [
        am.Agent("before", "slow 1"),
        am.Agent("a", "slow {{ before }}"),
        am.Agent("b", "quick"),
        am.first_of("first", ["a", "b"]),
    ]
    ledger = am.Ledger(":memory:")
    for asked in (2, 0):
        _, client = drive(
            am.Plan(steps), lambda prompt, _: Reply(9.0 if "slow" in prompt else 1.0), Policy(seed=1), ledger=ledger
        )
        assert asked == len(client.asked)


def test_steps_that_are_put_off_are_looked_at_once_per_answer(monkeypatch):
    """In a run again of many rows, each end concerns its own row: the looks grow with the rows, not their square."""
    looks, look_at = [0], Candidates._look_at

    def counted(*given):
        looks[0] += 1
        look_at(*given)

    monkeypatch.setattr(Candidates, "_look_at", counted)
    review = am.Agent("review", "R {{ draft }}", each="rows", returns=int)
    fix = am.Agent("fix", "F {{ item }}", each="rows", when="review < 4", speculate=True)
    plan = am.Plan([am.Agent("draft", "D {{ item }}", each="rows"), review, fix], {"rows": list(range(100))})
    ledger = am.Ledger(":memory:")
    for _ in range(2):
        looks[0] = 0
        drive(plan, scripted(5, fix_s=60.0), Policy(60, seed=1), ledger=ledger)
        assert 100 <= looks[0] <= 600
