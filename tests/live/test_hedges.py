"""Hedges on the virtual loop: who is overdue is asked again, the first answer counts, and the rest is as without."""

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
from agent_magic.declare.declared import declared
from agent_magic.errors import DeclarationError, Overloaded, PlanError, Rejected
from agent_magic.show import races_note
from tests.live.virtual import Reply, drive

NO = Rejected("no", status=400)
LATE = {"A 7": 60.0, "A 33": 60.0}


def plan_of(count=40, hedge: str | float = "p95", **options):
    """Agents with a hedge, one for each item, and one that uses all answers."""
    agents = [am.Agent("a", "A {{ item }}", each="items", hedge=hedge, **options), am.Agent("end", "End {{ a }}")]
    return am.Plan(agents, {"items": list(range(count))})


def late(prompt, number):
    """Answer after a second, some first requests much later."""
    return Reply(LATE.get(prompt, 1.0) if number == 1 else 1.0, text=f"{prompt} {number}", first_s=0.5)


def statuses(record, name):
    """How the members of a group ended."""
    return [record.results[one].status for one in record.plan.groups[name].values()]


def ends(record):
    """How each step ended, and when: a place that was not used has no time."""
    return [(one.name, one.status, one.kind, one.finished_s) for one in record.results if one.status != "unused"]


def test_who_is_overdue_is_asked_again():
    """With 20 answers it is known how long they take; the second answer counts, and the first request is aborted."""
    record, client = drive(plan_of(), late, Policy(10, seed=1))
    assert (["A 7 2", "A 33 2"], 7.0) == ([record["a_7"].value, record["a_33"].value], record.ended_s)
    assert ("A 3 1", 2, 43) == (record["a_3"].value, client.cancelled, len(client.asked))
    assert ("skipped", BEATEN, "'a_hedge_7' answered first") == (
        record["a_first_7"].status,
        record["a_first_7"].kind,
        record["a_first_7"].error,
    )
    assert {"unused": 38, "succeeded": 2} == {
        one: statuses(record, "a_hedge").count(one) for one in ("unused", "succeeded")
    }
    assert Run(record).ok


def test_rows_have_the_dollars_and_seconds_of_both_requests():
    """A row adds up what was asked for it, from its first request to its answer; so rows add up to the run."""
    record, _ = drive(plan_of(), late, Policy(10, seed=1))
    rows = Run(record).each("a")
    assert "A 7 2" == rows.loc[7, "answer"]
    assert record["a_7"].finished_s - record["a_first_7"].ready_s == rows.loc[7, "total_s"]
    assert 1.0 == rows.loc[3, "total_s"]
    asked = [one.cost_usd or 0.0 for one in record.results if one.name.startswith(("a_first", "a_hedge"))]
    assert sum(asked) == pytest.approx(rows["cost_usd"].sum())
    assert rows.loc[7, "cost_usd"] > rows.loc[3, "cost_usd"] > 0


def test_what_is_not_overdue_costs_nothing_more():
    """Places that are not used are no rows, and nothing is asked for them."""
    plain, _ = drive(am.Plan([am.Agent("a", "A")]), lambda *_: Reply(), Policy(seed=1))
    record, client = drive(am.Plan([am.Agent("a", "A", hedge=30)]), lambda *_: Reply(), Policy(seed=1))
    assert (1, 1.0) == (len(client.asked), record.ended_s)
    assert plain["a"].cost_usd == record["a_first"].cost_usd
    assert ["a", "a_first"] == [one.name for one in record.rows]


def test_seconds_need_no_other_answer():
    """One agent alone is asked again after so many seconds, and the later answer is not needed."""
    record, client = drive(
        am.Plan([am.Agent("a", "A", hedge=5)]), lambda _, n: Reply(20 if n == 1 else 2), Policy(seed=1)
    )
    assert (7.0, 2, 1) == (record.ended_s, len(client.asked), client.cancelled)
    assert 5.0 == record["a_hedge"].attempts[0].begun.at_s


def test_the_first_may_still_win():
    """The second request is then the one that was not needed."""
    record, _ = drive(am.Plan([am.Agent("a", "A", hedge=5)]), lambda _, n: Reply(6 if n == 1 else 9), Policy(seed=1))
    assert (6.0, "a_first answered first") == (record.ended_s, record["a_hedge"].error.replace("'", ""))
    note = races_note(record)
    assert note.startswith("Asked a second time, since the answer was overdue: a_hedge; 0 of them answered first.")


def test_a_failure_is_that_of_the_first():
    """A request that fails is no straggler: retries are its own, and its failure is that of the agent."""
    record, client = drive(am.Plan([am.Agent("a", "A", hedge=5)]), lambda *_: Reply(1, NO, status=400), Policy(seed=1))
    assert ("failed", "Rejected: no", 1) == (record["a"].status, record["a"].error, len(client.asked))


def test_no_second_request_while_the_first_waits_to_try_again():
    """An overloaded service is not asked twice at once."""

    def script(_, number):
        return Reply(1, Overloaded("busy", retry_after_s=30.0), status=529) if number == 1 else Reply(1)

    record, client = drive(am.Plan([am.Agent("a", "A", hedge=5)]), script, Policy(seed=1))
    assert ("succeeded", 2) == (record["a"].status, len(client.asked))


def test_a_failed_second_request_leaves_the_first():
    """It has lost, and the first goes on."""

    def script(_, number):
        return Reply(20.0, text="first") if number == 1 else Reply(1.0, NO, status=400)

    record, _ = drive(am.Plan([am.Agent("a", "A", hedge=5)]), script, Policy(seed=1))
    assert ("first", 20.0, "failed") == (record["a"].value, record.ended_s, record["a_hedge"].status)


def test_no_slot_no_second_request():
    """It waits as any request does; an answer meanwhile leaves its place unused."""
    plan = am.Plan([am.Agent("a", "A", hedge=5), am.Agent("b", "B")])
    record, client = drive(plan, lambda prompt, _: Reply(20 if prompt == "A" else 30), Policy(1, seed=1))
    assert ("unused", 2) == (record["a_hedge"].status, len(client.asked))


@pytest.mark.parametrize("what", ["skip", "cancel"])
def test_a_stop_leaves_no_place_behind(what):
    """What was never sent is unused, however its agent ended; the agent ends as its request did."""
    more = {"stops": [(3.0, None)]} if what == "cancel" else {"controls": [(3.0, "skip", ["a_first"])]}
    record, _ = drive(
        am.Plan([am.Agent("a", "A", hedge=5), am.Agent("end", "{{ a }}")]), lambda *_: Reply(20), Policy(seed=1), **more
    )
    assert ("unused", 3.0) == (record["a_hedge"].status, record.ended_s)
    assert record["a"].status in {"skipped", "cancelled"}
    assert "end" in {one.name for one in record.rows}


@pytest.mark.parametrize("prompt", ["A", "A {{ p }}"])
@pytest.mark.parametrize("schedule", ["ready", "layers"])
def test_a_hedge_that_loses_a_race(prompt, schedule):
    """Agent, request and place end, each once, begun or not: the run goes on until the race's reader has answered."""
    raced = [
        am.Agent("p", "P"),
        am.Agent("a", prompt, hedge=5),
        am.Agent("b", "B {{ p }}" if "p" not in prompt else "B"),
    ]
    plan = am.Plan([*raced, am.first_of("quick", "a,b"), am.Agent("end", "E {{ quick }}")])
    record, _ = drive(plan, lambda p, _: Reply(9.0 if p[0] in "AP" else 1.0), Policy(schedule=schedule, seed=1))
    assert {"succeeded"} == {record[one].status for one in ("quick", "end")}
    assert "unused" == record["a_hedge"].status or prompt == "A"


def test_a_failed_parent_skips_both():
    """The agent is skipped as it would be without a hedge."""
    plan = am.Plan([am.Agent("p", "P"), am.Agent("a", "A {{ p }}", hedge=5), am.Agent("end", "{{ a }}")])
    record, _ = drive(plan, lambda *_: Reply(1, NO, status=400), Policy(seed=1))
    assert ("skipped", "'p' did not succeed") == (record["a"].status, record["a"].error)
    assert ("unused", "skipped") == (record["a_hedge"].status, record["end"].status)


def test_a_condition_that_is_false():
    """Nothing is asked, and the agent is skipped because of its condition."""
    plan = am.Plan(
        [
            am.Agent("p", "P", returns=int),
            am.Agent("a", "A", when="p > 3", hedge=5),
            am.Agent("end", "{{ a | default('-') }}"),
        ]
    )
    record, client = drive(plan, lambda prompt, _: Reply(text='{"value": 1}' if prompt == "P" else "x"), Policy(seed=1))
    assert (True, "unused", 2) == (record["a"].is_left_out, record["a_hedge"].status, len(client.asked))
    assert record["end"].status == "succeeded"


def test_a_retry_asks_once():
    """After both have failed, the first runs again, and its place is kept again."""
    failing = [True]
    plan = am.Plan([am.Agent("a", "A", hedge=5), am.Agent("long", "L")])

    def script(prompt, number):
        if prompt == "L":
            return Reply(60.0)
        return Reply(20.0 if number == 1 else 3.0, NO if failing else None, status=400 if failing else 200)

    controls = [(25.0, "look", lambda _: failing.clear()), (25.0, "retry", None)]
    record, client = drive(plan, script, Policy(seed=1), controls=controls)
    assert ("succeeded", 28.0) == (record["a"].status, record["a"].finished_s)
    assert [one.prompt for one in client.asked].count("A") == 3


def test_an_answer_of_either_is_paid_once():
    """Run again, the ledger has one answer of the two: it serves the first request."""
    ledger, plan = am.Ledger(), plan_of(3, hedge=5)
    slow = lambda prompt, n: Reply(60.0 if prompt == "A 1" and n == 1 else 1.0, text=f"{prompt} {n}")  # noqa: E731
    drive(plan, slow, Policy(seed=1), ledger=ledger)
    again, client = drive(plan, slow, Policy(seed=1), ledger=ledger)
    assert ("A 1 2", []) == (again["a_1"].value, client.asked)


@pytest.mark.parametrize("concurrency", [40, 400])
def test_quick_answers_make_nobody_late(concurrency):
    """Of many that leave at once the quick ones answer first. Who is asked again is about one in ten with `p90`."""
    items = 400
    takes_s = [1.0 + (one * 7919 % 100) / 10 for one in range(items)]  # evenly from 1 to 10.9 s

    def script(prompt, number):
        return Reply(takes_s[int(prompt.split()[1])] if number == 1 and prompt.startswith("A") else 30.0)

    record, _ = drive(plan_of(items, hedge="p90"), script, Policy(concurrency, seed=1))
    asked = sum(status != "unused" for status in statuses(record, "a_hedge"))
    assert 1 <= asked <= 0.1 * items


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"hedge": "95"}, "'p50' to 'p99', or seconds"),
        ({"hedge": "p100"}, "'p50' to 'p99'"),
        ({"hedge": 0}, "hedge of agent 'a'"),
        ({"hedge": "p95", "repeat": 3}, "hedge='p95' and repeat"),
        ({"hedge": "p95", "ask": True}, "and ask"),
        ({"hedge": "p95", "batch": True}, "and batch"),
        ({"hedge": "p95", "tools": ["web_search"]}, "and tools"),
    ],
)
def test_what_cannot_be_hedged(options, told):
    """What must not be done twice is refused where it is declared."""
    with pytest.raises(DeclarationError, match=told):
        am.Agent("a", "A", **options)


def test_places_and_rounds_cannot_be_hedged():
    """Neither items of an answer nor rounds of a loop: the plan says so."""
    with pytest.raises(PlanError, match="hedge=5 and each='p', the items of an answer"):
        am.Plan([am.Agent("p", "P", returns=list[str]), am.Agent("a", "{{ item }}", each="p", most=3, hedge=5)])
    loop = [am.Agent("a", "{{ b }}", until="b", rounds=2), am.Agent("b", "{{ a }}", returns=bool, hedge=5)]
    with pytest.raises(PlanError, match="a hedge"):
        am.Plan(loop)


def test_it_is_one_agent_again():
    """As cells, and in JSON, a plan with hedges is what was declared."""
    plan = plan_of(3, hedge="p90")
    assert ["a", "end"] == [one.name for one in declared(plan)]
    assert "## a --each items --hedge p90\nA {{ item }}" in plan.to_cell()
    again = am.Plan.from_json(plan.to_json())
    assert (plan.names, plan.agents[6].hedges) == (again.names, again.agents[6].hedges)


@st.composite
def drawn(draw):
    """Plans of agents, some with a hedge."""
    agents: list[am.Agent] = []
    for number in range(draw(st.integers(1, 8))):
        uses = draw(st.lists(st.sampled_from([one.name for one in agents]), max_size=2, unique=True)) if agents else []
        hedge = draw(st.none() | st.sampled_from([1.0, 2.5]))
        agents.append(
            am.Agent(f"s{number}", " ".join([f"S{number}", *(f"{{{{ {one} }}}}" for one in uses)]), hedge=hedge)
        )
    return am.Plan(agents)


def scripted(prompt, number):
    """Take a time, and fail or not, as the prompt and the number of the request say."""
    drawn_by = zlib.crc32(f"{prompt} {number}".encode())
    takes_s = 0.5 + drawn_by % 24 / 4
    if drawn_by % 7 == 0:
        return Reply(takes_s, NO, status=400)
    return Reply(takes_s, text=f"t{zlib.crc32(prompt.encode()) % 97}", first_s=0.25)


@settings(max_examples=100, deadline=None)
@given(drawn(), st.integers(1, 4), st.none() | st.integers(1, 24))
def test_hedges_drawn_by_lot(tmp_path_factory, plan, concurrency, stopped_at):
    """Every step ends; the agent has the answer of whoever was first; replay and forecast end the same."""
    stops = [] if stopped_at is None else [(stopped_at / 4 + 0.1, None)]
    record, client = drive(plan, scripted, Policy(concurrency, seed=1, max_attempts=1), stops=stops)
    assert all(one.finished_s is not None for one in record.results)
    for step in (one for one in plan.agents if one.hedges):
        first, place = record[step.hedges], record[step.name]
        agent = record[step.name.removesuffix("_hedge")]
        answered = [one for one in (first, place) if one.status == "succeeded"]
        assert (agent.status == "succeeded") == bool(answered) or record.cut
        assert not (first.status == place.status == "succeeded")
        if place.attempts:
            assert place.attempts[0].begun.at_s >= first.attempts[0].begun.at_s + step.hedge
        else:
            assert place.status == "unused"
    assert len(client.asked) == len(record.attempts)
    path = tmp_path_factory.mktemp("hedges") / "run.jsonl"
    Run(record).save(path)
    assert ends(record) == ends(plan.replay(path).record)
    if not record.cut and all(one.kind != BEATEN for one in record.results):
        forecast = Run(record).forecast().record
        assert ends(record) == ends(forecast)


def test_a_forecast_with_more_slots_sends_what_had_none():
    """A hedge that was overdue and found no slot is sent where there is one: what it costs is in the forecast."""
    plan = am.Plan([am.Agent("a", "A", hedge=2.0), am.Agent("b", "B")])
    record, client = drive(plan, lambda prompt, _: Reply(9.0 if prompt == "A" else 1.0, first_s=0.5), Policy(1, seed=1))
    assert (2, 10.0) == (len(client.asked), record.ended_s)
    found = Run(record).forecast(concurrency=2).record
    assert 2.0 == found["a_hedge"].attempts[0].started_s
    assert "unused" == Run(record).forecast().record["a_hedge"].status
