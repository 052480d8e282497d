"""Races on the virtual loop: the first answer counts, the others end and are paid for; forecasts and replays agree."""

# What was asked has ended, so its times are known.
# pyright: reportOptionalOperand=false, reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic import Policy
from agent_magic.api import Run
from agent_magic.declare import BEATEN
from agent_magic.declare.race import NO_ANSWER
from agent_magic.errors import PlanError, RateLimited, Rejected, UnknownAgent
from tests.live.virtual import Reply, drive

TAKES_S = {"A": 3.0, "B": 2.0, "C": 5.0}
NO = Rejected("no", status=400)


def plan_of(*names):
    """A race, and an agent that uses its answer."""
    agents = [am.Agent(name, name.upper()) for name in names]
    return am.Plan([*agents, am.first_of("quick", names), am.Agent("end", "End {{ quick }}")])


def answering(failing=(), first_s=0.5):
    """A provider of which some agents get an error."""

    def script(prompt, _):
        takes_s = TAKES_S.get(prompt, 1.0)
        if prompt in failing:
            return Reply(takes_s, NO, status=400)
        return Reply(takes_s, text=prompt.lower(), first_s=first_s)

    return script


def ends(record):
    """How each step ended."""
    return [(one.name, one.status, one.kind, one.finished_s, one.cost_usd) for one in record.results]


def test_the_first_answer_counts():
    """Those that are later are aborted at that moment: that is no failure, and what they cost is counted."""
    record, client = drive(plan_of("a", "b", "c"), answering(), Policy(seed=1))
    assert [(one.status, one.kind) for one in record.results[:3]] == [
        ("skipped", BEATEN),
        ("succeeded", None),
        ("skipped", BEATEN),
    ]
    assert ("b", "end b", 2, 3.0) == (record["quick"].value, record["end"].text, client.cancelled, record.ended_s)
    numbers = Run(record).summary.iloc[0]
    counted = [numbers[name] for name in ("succeeded", "failed", "skipped", "not_needed", "cancelled")]
    assert ([3, 0, 0, 2, 0], 4, 1) == (counted, numbers.agents, numbers.tasks)
    sources = Run(record).agents.set_index("agent").source
    assert sources["b"] == sources["quick"]
    assert record["a"].error == "'b' answered first"
    assert record["a"].finished_s == 2.0
    assert record["a"].attempts[0].usage is not None
    assert record["a"].attempts[0].usage.estimated
    assert Run(record).ok


def test_who_has_not_begun_is_not_asked():
    """One slot: the second and the third wait for it, and cost nothing."""
    record, client = drive(plan_of("a", "b", "c"), answering(), Policy(1, seed=1))
    assert ["A", "End a"] == [one.prompt for one in client.asked]
    assert not record["b"].attempts


@pytest.mark.parametrize(("failing", "value"), [("B", "a"), ("AB", "c")])
def test_after_a_failure_the_next_answer_counts(failing, value):
    """An agent that fails has lost, however early it ended."""
    record, _ = drive(plan_of("a", "b", "c"), answering(failing), Policy(seed=1))
    assert (value, "succeeded") == (record["quick"].value, record["end"].status)


def test_where_all_fail_the_race_has_failed():
    """It says of each why; what uses it is skipped because of it."""
    record, _ = drive(plan_of("a", "b"), answering("AB"), Policy(seed=1))
    assert ("failed", NO_ANSWER) == (record["quick"].status, record["quick"].kind)
    assert record["quick"].error == "nobody answered. a: Rejected: no; b: Rejected: no"
    assert record["end"].error == "'quick' did not succeed"


def test_a_retry_runs_the_race_again():
    """All of it, or one agent: the race needs one answer only."""
    for names in (None, ["a"]):
        failing = ["A", "B"]
        script = answering(failing)

        def end(_, failing=failing):
            failing.clear()

        policy = Policy(seed=1)
        record, _ = drive(
            am.Plan([*plan_of("a", "b").agents, am.Agent("long", "L")]),
            lambda prompt, number, script=script: Reply(9.0) if prompt == "L" else script(prompt, number),
            policy,
            controls=[(4.0, "look", end), (4.0, "retry", names)],
        )
        assert "succeeded" == record["quick"].status == record["end"].status


def test_what_only_a_loser_needs_ends_too():
    """A chain behind a loser is ended from its end on; a race in a race likewise."""
    agents = [am.Agent("r", "R"), am.Agent("a", "A {{ r }}"), am.Agent("b", "B"), am.Agent("d", "D")]
    plan = am.Plan([*agents, am.first_of("ab", "a,b"), am.first_of("quick", "ab,d")])
    record, client = drive(plan, lambda prompt, _: Reply(0.5 if prompt == "D" else 2.0), Policy(seed=1))
    assert ["R", "B", "D"] == [one.prompt for one in client.asked]
    assert {"r", "a", "b", "ab"} == {one.name for one in record.results if one.kind == BEATEN}
    assert record["quick"].status == "succeeded"
    assert record.ended_s == 0.5


@pytest.mark.parametrize(("score", "value"), [(1, None), (3, "b"), (5, "a")])
def test_a_race_of_conditions(score, value):
    """Who is left out has lost; where all are, so is the race, and what can do without goes on."""
    agents = [am.Agent("r", "R", returns=int), am.Agent("a", "A", when="r > 3"), am.Agent("b", "B", when="r > 2")]
    plan = am.Plan([*agents, am.first_of("quick", "a,b"), am.Agent("end", "End {{ quick | default('-') }}")])
    record, _ = drive(plan, lambda p, _: Reply(text=f'{{"value": {score}}}' if p == "R" else p.lower()), Policy(seed=1))
    assert record["end"].text == f"end {value or '-'}"
    assert record["quick"].is_left_out == (value is None)


def test_a_loser_that_is_asked_to_wait():
    """429s and backoff of a loser end with the race."""

    def script(prompt, number):
        if prompt == "B":
            return Reply(0.5, RateLimited("slow", retry_after_s=20.0), status=429)
        return Reply(TAKES_S.get(prompt, 1.0), text=prompt.lower())

    record, client = drive(plan_of("a", "b"), script, Policy(seed=1))
    assert (BEATEN, 4.0) == (record["b"].kind, record.ended_s)
    assert [one.prompt for one in client.asked].count("B") == 1


@pytest.mark.parametrize(
    ("agents", "error", "told"),
    [
        ([am.Agent("a", "A"), am.first_of("q", "a,b")], am.AgentMagicError, "b"),
        ([am.Agent("a", "A", repeat=2), am.Agent("b", "B"), am.first_of("q", "a,b")], PlanError, "single agents"),
        ([am.Agent("a", "A"), am.Agent("b", "B"), am.first_of("q", "a,b"), am.Agent("c", "{{ a }}")], PlanError, "'c'"),
    ],
)
def test_a_race_that_cannot_be_one(agents, error, told):
    """It is refused before anything runs: an unknown name, a group, an agent that somebody else needs."""
    with pytest.raises(error, match=told):
        am.Plan(agents)
    with pytest.raises(UnknownAgent, match="'b'"):
        am.Plan([am.Agent("a", "A"), am.first_of("q", "a,b")], {"b": "a variable"})


def test_a_race_needs_two():
    """Of one agent there is no first."""
    with pytest.raises(am.AgentMagicError, match="two agents or more, got 'a'"):
        am.first_of("q", "a,a")


def test_a_race_joins_as_a_part_of_a_plan():
    """In a plan in a plan its agents have that plan's names."""
    inner = am.Plan([am.Agent("a", "A"), am.Agent("b", "B"), am.first_of("quick", "a,b")])
    plan = am.Plan([am.Agent("end", "End {{ inner }}")], {"inner": inner})
    record, _ = drive(plan, answering(), Policy(seed=1))
    assert ("end b", BEATEN) == (record["end"].text, record["inner__a"].kind)


def test_a_race_in_json_runs():
    """A plan that was read from JSON, or pickled, has its races, which need no function of the user's."""
    plan = am.Plan.from_json(plan_of("a", "b").to_json())
    record, _ = drive(plan, answering(), Policy(seed=1))
    assert record["quick"].value == "b"


def test_another_model_of_the_loser_may_win():
    """A what-if takes a loser to lose again, and says so; one that asks another model has times of its own."""
    record, _ = drive(plan_of("a", "b"), answering(), Policy(seed=1))
    run = Run(record)
    assert "a: aborted, so it takes at least that long" in repr(run.forecast())
    alone, both = run.whatif(concurrency=[1, 8])["wall_s"]
    assert both == 3.0
    assert 3.0 < alone < 60.0


def test_an_estimate_counts_the_losers():
    """Its high end pays all agents of a race in full; the low end does not."""
    plan = am.Plan([am.Agent("a", "A"), am.Agent("b", "B"), am.first_of("quick", "a,b")])
    both = am.Plan([am.Agent("a", "A"), am.Agent("b", "B")])
    raced, alone = (one.estimate(client=am.Claude(api_key="none")) for one in (plan, both))
    assert raced.cost.high == alone.cost.high
    assert raced.cost.low <= alone.cost.low


def test_a_race_that_was_won_is_won_again_for_nothing():
    """The winner's answer comes from the ledger before another request has left."""
    ledger = am.Ledger()
    drive(plan_of("a", "b", "c"), answering(), Policy(seed=1), ledger=ledger)
    again, client = drive(plan_of("a", "b", "c"), answering(), Policy(seed=1), ledger=ledger)
    assert "b" == again["quick"].value
    assert [] == client.asked


@pytest.mark.parametrize("budget", [2100, 4300, 9000])
def test_no_race_crosses_a_budget(budget):
    """All agents of a race are reserved for; those without room lose, whoever else answers."""
    record, _ = drive(plan_of("a", "b", "c"), answering(), Policy(seed=1, budget_tokens=budget))
    used = [one.usage.total_input_tokens + one.usage.output_tokens for one in record.attempts]
    assert sum(used) <= budget
    assert record["quick"].status == "succeeded"


@st.composite
def drawn(draw):
    """Plans of agents and races of earlier ones, each of which has one reader at most."""
    agents: list = []
    free: list[str] = []
    for number in range(draw(st.integers(2, 9))):
        name = f"s{number}"
        if len(free) > 1 and draw(st.booleans()):
            raced = draw(st.lists(st.sampled_from(free), min_size=2, max_size=3, unique=True))
            agents.append(am.first_of(name, raced))
            free = [one for one in free if one not in raced]
        else:
            uses = draw(st.lists(st.sampled_from(free), max_size=2, unique=True)) if free else []
            agents.append(am.Agent(name, " ".join([name, *(f"{{{{ {one} }}}}" for one in uses)])))
            free = [one for one in free if one not in uses] if draw(st.booleans()) else free
            free = [one for one in free if one not in uses]
        free.append(name)
    return am.Plan(agents)


def scripted(prompt, _):
    """Take a time, and fail or not, as the prompt says."""
    number = zlib.crc32(prompt.encode())
    takes_s = 1.0 + number % 16 / 4
    if number % 7 == 0:
        return Reply(takes_s, NO, status=400)
    return Reply(takes_s, text=f"t{number % 97}", first_s=0.25)


@settings(max_examples=100, deadline=None)
@given(drawn(), st.integers(1, 4), st.none() | st.integers(1, 24))
def test_races_drawn_by_lot(tmp_path_factory, plan, concurrency, stopped_at):
    """Every race has the first answer there is; no loser outlives it; forecast and replay end the same."""
    stops = [] if stopped_at is None else [(stopped_at / 4 + 0.1, None)]
    record, _ = drive(plan, scripted, Policy(concurrency, seed=1, max_attempts=1), stops=stops)
    assert all(one.finished_s is not None for one in record.results)
    for step in (one for one in plan.agents if one.race):
        race, raced = record[step.name], [record[name] for name in step.parameters]
        winners = [one for one in raced if one.status == "succeeded"]
        if race.status == "succeeded":
            assert [race.value] == [one.value for one in winners]
            assert all(one.finished_s <= winners[0].finished_s for one in raced)
        elif not record.cut and race.status == "failed":
            assert not winners
            assert {"failed", "skipped"} >= {one.status for one in raced}
    path = tmp_path_factory.mktemp("races") / "run.jsonl"
    Run(record).save(path)
    assert ends(record) == ends(plan.replay(path).record)
    if not record.cut and all(one.attempts or one.kind != BEATEN for one in record.results):
        forecast = Run(record).forecast().record
        assert [one[:4] for one in ends(record)] == [one[:4] for one in ends(forecast)]
        assert [one.price for one in record.attempts] == [one.price for one in forecast.attempts]
