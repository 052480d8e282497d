"""Identical requests of one run: bought once, shared by all that ask the same."""

# Tests take for granted what they have just made.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic import Policy, Task, first_of, tool
from agent_magic.api import Agent, Ledger, Plan, Run
from agent_magic.errors import Overloaded, Rejected
from agent_magic.live import Earlier
from agent_magic.record.results import sharers_of
from tests.live.virtual import Reply, drive

ROWS = ["x", "y", "x", "x"]
SEEDED = Policy(4, seed=1)


def rows(values=ROWS, **options):
    """A plan with a row for each value."""
    return Plan([Agent("m", "row {{ item }}", each="rows", **options)], {"rows": list(values)})


def named(prompt, number):
    """Answer with the prompt, and which of its requests this is."""
    return Reply(1.0, text=f"{prompt} {number}")


def sources(record):
    """Where each answer came from."""
    return [one.source for one in record.results]


def test_equal_rows_are_one_request():
    """The first asks, the others have its answer, its source says so, and tokens and dollars are counted once."""
    record, client = drive(rows(), named, SEEDED)
    frame = Run(record).agents
    assert ["row x", "row y"] == [one.prompt for one in client.asked]
    assert ["row x 1", "row y 1", "row x 1", "row x 1"] == [one.text for one in record.results]
    assert ["live", "live", "shared", "shared"] == sources(record)
    assert [10, 10, 0, 0] == frame["input_tokens"].tolist()
    assert Run(record).totals.cost_usd == pytest.approx(frame["cost_usd"].sum())
    assert Run(record).totals.tokens == frame["input_tokens"].sum() + frame["output_tokens"].sum()
    assert "live" == Run(record).totals.source
    assert not record.served


def test_who_shares_waits_with_a_reason_of_its_own():
    """All of its time is waiting; the reason is that the same was asked."""
    record, _ = drive(rows(), named, SEEDED)
    shared = record["m_2"]
    assert 1.0 == shared.queued_s == shared.total_s
    assert ["identical"] == [one.held_by for one in shared.attempts]
    looked = []
    drive(rows(), named, SEEDED, controls=[(0.5, "look", lambda driver: looked.append(driver.held_by(2)))])
    assert ["identical"] == looked


def test_it_takes_no_slot():
    """Rows that share an answer leave the slots to the others."""
    record, _ = drive(rows("xxxxy"), named, Policy(2, seed=1))
    assert 1.0 == record.ended_s


def test_a_row_that_comes_later_has_the_answer_at_once():
    """With one slot the first has ended when the others get their turn."""
    record, client = drive(rows(), named, Policy(1, seed=1))
    assert (2, 2.0) == (len(client.asked), record.ended_s)


def test_a_failure_is_that_of_all():
    """It is asked as often as for one row; then all fail for the same reason, and nothing else was sent."""
    record, client = drive(
        rows(), lambda prompt, _: Reply(1.0, *([Rejected("no", status=400)] * ("x" in prompt))), SEEDED
    )
    assert Counter({"row x": 1, "row y": 1}) == Counter(one.prompt for one in client.asked)
    assert ["failed", "succeeded", "failed", "failed"] == [one.status for one in record.results]
    assert 1 == len({one.error for one in record.results if one.error})
    assert {"Rejected"} == {one.kind for one in record.results if one.kind}


def test_attempts_are_those_of_one():
    """A failure that another attempt mends is tried again once for all."""
    reply = lambda _, number: Reply(1.0, Overloaded("full", status=529) if number == 1 else None)  # noqa: E731
    record, client = drive(rows("xxx"), reply, SEEDED)
    assert 2 == len(client.asked)
    assert [2, 1, 1] == [len(one.attempts) for one in record.results]
    assert {"succeeded"} == {one.status for one in record.results}


def test_all_run_again_together():
    """A retry while the run goes on asks once for all that failed."""

    def reply(prompt, number):
        return Reply(
            9.0 if "y" in prompt else 1.0, Rejected("no", status=400) if "x" in prompt and number == 1 else None
        )

    record, client = drive(rows(), reply, SEEDED, controls=[(3.0, "retry", None)])
    assert Counter({"row x": 2, "row y": 1}) == Counter(one.prompt for one in client.asked)
    assert {"succeeded"} == {one.status for one in record.results}


def test_one_that_runs_again_alone_asks_itself():
    """Who is named in a retry is asked; the others have failed."""

    def reply(prompt, number):
        return Reply(
            9.0 if "y" in prompt else 1.0, Rejected("no", status=400) if "x" in prompt and number == 1 else None
        )

    record, client = drive(rows(), reply, SEEDED, controls=[(3.0, "retry", ["m_3"])])
    assert ["failed", "succeeded", "failed", "succeeded"] == [one.status for one in record.results]
    assert 3 == len(client.asked)


def test_the_next_one_buys_where_the_first_is_stopped():
    """Stopping one row stops that row."""
    record, client = drive(rows("xxx"), named, SEEDED, stops=[(0.5, ["m_0"])])
    assert ["cancelled", "succeeded", "succeeded"] == [one.status for one in record.results]
    assert (2, 1.5) == (len(client.asked), record.ended_s)
    assert [None, "live", "shared"] == [record[f"m_{one}"].attempts[-1].source for one in range(3)]


def test_what_is_stopped_while_it_waits_takes_nothing():
    """The others are not concerned."""
    record, client = drive(rows("xxx"), named, SEEDED, stops=[(0.5, ["m_1"])])
    assert ["succeeded", "cancelled", "succeeded"] == [one.status for one in record.results]
    assert 1 == len(client.asked)


@pytest.mark.parametrize(
    ("options", "policy", "asked"),
    [
        ({}, replace(SEEDED, identical="each"), 4),
        ({"hedge": 50.0}, SEEDED, 2),
        ({"hedge": 0.5}, SEEDED, 4),
    ],
)
def test_what_is_to_be_asked_more_than_once(options, policy, asked):
    """`identical="each"` buys each row; the second request of a hedge is not the first, and is shared by equal rows."""
    record, client = drive(rows(**options), named, policy)
    assert {"succeeded"} == {record[f"m_{one}"].status for one in range(4)}
    assert asked == len(client.asked)


def test_repetitions_are_independent():
    """`repeat` asks each time anew, whatever the prompt."""
    _, client = drive(Plan([Agent("m", "row x", repeat=3)]), named, SEEDED)
    assert 3 == len(client.asked)


def test_a_race_is_between_requests():
    """Equal agents of a race are asked each: the first answer of several is what is wanted."""
    _, client = drive(
        Plan([Agent("a", "say x"), Agent("b", "say x"), first_of("quick", ["a", "b"])]),
        lambda _, number: Reply(float(number)),
        SEEDED,
    )
    assert 2 == len(client.asked)


def test_rounds_are_independent():
    """Each round of a loop asks, although it asks the same."""
    plan = Plan([Agent("d", "Roll a die", until="d == 'six'", rounds=3)])
    _, client = drive(plan, lambda _, number: Reply(text="six" if number == 3 else "one"), SEEDED)
    assert 3 == len(client.asked)


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(pure=True)
def half(amount: int) -> str:
    """Halve."""
    return str(amount / 2)


@pytest.mark.parametrize(("tools", "asked"), [([pay], 3), ([half], 1)])
def test_agents_with_tools_that_may_act_are_not_merged(tools, asked):
    """Each call of a tool with effects is wanted; pure tools have none, so one agent answers for all."""
    _, client = drive(rows("xxx", tools=tools), named, SEEDED)
    assert asked == len(client.asked)


def test_agents_that_were_declared_apart_are_asked_each():
    """Several writers for one judge are several answers, also where their prompts are the same."""
    _, client = drive(Plan([Agent("a", "say x"), Agent("b", "say x")]), named, SEEDED)
    assert 2 == len(client.asked)


def test_what_follows_is_shared_too():
    """A chain of equal rows is one chain."""
    agents = [Agent("m", "row {{ item }}", each="rows"), Agent("n", "sum {{ m }}", each="rows")]
    record, client = drive(Plan(agents, {"rows": ROWS}), lambda prompt, _: Reply(text=prompt), SEEDED)
    assert 4 == len(client.asked)
    assert "sum row x" == record["n_3"].text


def test_a_budget_reserves_once():
    """A budget for two requests is enough for four rows of which two differ."""
    price = 1_000
    plan = rows(max_tokens=100)
    record, client = drive(plan, named, replace(SEEDED, budget_tokens=price))
    assert {"succeeded"} == {one.status for one in record.results}
    assert 2 == len(client.asked)


def test_the_ledger_has_one_answer_which_serves_all():
    """A later run buys nothing, a row that is added shares; `fresh` buys each different one once more."""
    ledger = Ledger(":memory:")
    drive(rows(), named, SEEDED, ledger=ledger)
    again, client = drive(rows([*ROWS, "x"]), named, SEEDED, ledger=ledger)
    assert not client.asked
    assert ["ledger", "ledger", "shared", "shared", "shared"] == sources(again)
    _, client = drive(rows(), named, SEEDED, ledger=ledger, fresh=True)
    assert 2 == len(client.asked)


def test_a_stopped_leader_leaves_no_gap_in_the_ledger():
    """What another one bought in its place is found again."""
    ledger = Ledger(":memory:")
    drive(rows("xx"), named, SEEDED, ledger=ledger, stops=[(0.5, ["m_0"])])
    record, client = drive(rows("xx"), named, SEEDED, ledger=ledger)
    assert not client.asked
    assert {"succeeded"} == {one.status for one in record.results}


def test_each_answer_of_a_run_that_bought_each_is_found_again():
    """The answers of `identical="each"` serve a run that buys each."""
    ledger, each = Ledger(":memory:"), replace(SEEDED, identical="each")
    first, _ = drive(rows(), named, each, ledger=ledger)
    again, client = drive(rows(), named, each, ledger=ledger)
    assert not client.asked
    assert [one.text for one in first.results] == [one.text for one in again.results]


def test_a_run_that_goes_on_keeps_each_its_own_answer():
    """Rows that had answers of their own keep them; the others share."""
    ledger, each = Ledger(":memory:"), replace(SEEDED, identical="each")
    first, _ = drive(rows("xxxx"), lambda _, number: Reply(float(number), text=f"{number}"), each, stops=[(2.5, None)])
    assert 2 == sum(one.status == "succeeded" for one in first.results)
    plan = rows("xxxx")
    again, client = drive(plan, named, SEEDED, ledger=ledger, earlier=Earlier(first, "scripted", plan=plan))
    assert ["1", "2", "row x 1", "row x 1"] == [one.text for one in again.results]
    assert 1 == len(client.asked)


def test_a_run_that_goes_on_shares_what_failed_again():
    """Rows that shared an answer that does not do share it once more, for nothing."""
    plan, strict = rows(), replace(SEEDED, on_max_tokens="fail")
    first, _ = drive(plan, lambda *_: Reply(stop_reason="max_tokens"), strict)
    again, client = drive(plan, named, strict, earlier=Earlier(first, "scripted", plan=plan))
    assert ([], ["failed"] * 4) == (client.asked, [one.status for one in again.results])


def test_a_replay_is_as_it_was(tmp_path):
    """A cassette replays all rows, those that share an answer too."""
    record, _ = drive(rows(), named, SEEDED)
    Run(record).save(tmp_path / "rows.jsonl")
    run = rows().replay(tmp_path / "rows.jsonl")
    assert [one.text for one in record.results] == [one.text for one in run.record.results]
    assert 2 == sum(one.is_shared for one in run.record.results)
    assert not run.record.served


def test_forecasts_count_the_same_way():
    """A what-if as it was has the seconds and dollars of the run, and one that buys each has those of each."""
    record, _ = drive(rows(), lambda *_: Reply(1.0, first_s=0.5, tokens=(1_000_000, 0, 0, 0)), SEEDED)
    run = Run(record)
    assert run.totals.cost_usd == run.whatif(concurrency=4)["cost_usd"][0]
    assert 2 * run.totals.cost_usd == run.forecast(replace(SEEDED, identical="each")).totals.cost_usd
    assert 1.0 == run.forecast().totals.wall_s
    assert 2.0 == run.forecast(concurrency=1).totals.wall_s


def test_a_forecast_of_rows_that_failed_together():
    """Rows that shared a failure share it again: they end when the one ends that asked."""
    no = Rejected("no", status=400)
    record, _ = drive(rows(), lambda prompt, _: Reply(3.0, no, status=400) if "x" in prompt else Reply(1.0), SEEDED)
    found = Run(record).forecast().record
    assert [(one.status, one.finished_s) for one in record.results] == [
        (one.status, one.finished_s) for one in found.results
    ]


def test_an_estimate_counts_the_same_way():
    """A plan says how many rows there are and how many differ, and prices these."""
    four, two = rows().estimate(SEEDED), rows(["x", "y"]).estimate(SEEDED)
    assert ["m: 4 rows, 2 different"] == four.identical
    assert not two.identical
    assert two.cost == four.cost
    assert two.most_usd == four.most_usd
    each = rows().estimate(replace(SEEDED, identical="each"))
    assert 2 * two.cost.likely == pytest.approx(each.cost.likely)


@pytest.mark.parametrize(
    "options",
    [{"texts": False}, {"redact": lambda _: ""}, {"redact": str.upper}, {}],
    ids=["hashes", "nothing", "capitals", "all"],
)
def test_a_recording_tells_which_rows_share_whatever_it_leaves_out(tmp_path, options):
    """Texts that were replaced no longer tell, so the recording does; a what-if of its replay counts like the run's."""
    record, _ = drive(rows("xyxxy"), named, SEEDED)
    run, path = Run(record), tmp_path / "rows.cassette.jsonl"
    run.save(path, **options)
    replayed = run.plan.replay(path)
    played = asyncio.run(run.plan.play(path))
    assert [0, 1, 0, 0, 1] == sharers_of(replayed.record) == sharers_of(played.record)
    asked = {"model": "claude-opus-4-5", "concurrency": 1}
    assert run.whatif(**asked)["cost_usd"].tolist() == pytest.approx(replayed.whatif(**asked)["cost_usd"].tolist())


fates = st.lists(st.sampled_from(["ok", "ok", "529", "400"]), min_size=1, max_size=3)
hands = st.lists(
    st.tuples(
        st.sampled_from([0.25, 0.75, 1.5, 2.5]),
        st.sampled_from(["retry", "skip", "stop", "pause", "resume"]),
        st.lists(st.integers(0, 5), min_size=1, max_size=3),
    ),
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=6, max_size=6), st.dictionaries(st.sampled_from("abc"), fates), hands, st.integers(1, 4), st.sampled_from(["ready", "layers", "sequential"]), st.booleans())  # fmt: skip # noqa: E501
def test_whatever_happens(values, fates, hands, slots, schedule, keeps):
    """No request is under way twice; each step ends; what is shared is the answer of another one; frames add up."""

    def script(prompt, number):
        mine = fates.get(prompt[-1], ["ok"])
        fate = mine[min(number, len(mine)) - 1]
        error = {"529": Overloaded("full", status=529), "400": Rejected("no", status=400)}.get(fate)
        return Reply(1.0, error, text=f"{prompt} {number}")

    plan = Plan([Agent("m", "row {{ item }}", each="rows"), Agent("n", "then {{ m }}", each="rows")], {"rows": values})
    controls = [
        (at_s, what, None if what in {"pause", "resume"} else [f"m_{one}" for one in who]) for at_s, what, who in hands
    ]
    controls.append((50.0, "resume", None))
    policy = Policy(slots, schedule, max_attempts=2, seed=1)
    record, client = drive(plan, script, policy, controls=controls, ledger=Ledger(":memory:") if keeps else None)
    assert record.ended_s is not None
    assert all(one.finished_s is not None for one in record.results)
    sent = [one for one in record.attempts if not one.is_served]
    for prompt in {one.prompt for one in client.asked}:
        spans = sorted((one.started_s, one.ended_s) for one in sent if one.request.prompt == prompt)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans)), f"{prompt} twice"
    bought = {one.answer.text for one in sent if one.answer is not None}
    for one in record.results:
        if one.is_shared:
            assert one.text in bought
            assert 0 == one.usage.output_tokens == one.cost_usd
        if one.ready_s is not None:
            assert one.total_s == pytest.approx(one.queued_s + one.api_s + one.tool_s + one.backoff_s + one.local_s)
    run = Run(record)
    for name in ("input_tokens", "output_tokens"):
        used = sum(getattr(one.usage, name) or 0 for one in record.attempts if one.usage)
        assert used == run.agents[name].sum() == run.attempts[name].sum() == (getattr(run.totals, name) or 0)
    assert len(client.asked) == sum(not one.is_served for one in record.attempts)
    if run.attempts["cost_usd"].notna().all():
        dollars = pytest.approx(run.attempts["cost_usd"].sum())
        assert dollars == run.agents["cost_usd"].sum()
        assert dollars == (run.totals.cost_usd or 0.0)


def test_a_task_asks_nobody():
    """Functions are not requests."""
    calls = []
    plan = Plan([Task("t", lambda: calls.append(1)), Task("u", lambda: calls.append(1))])
    drive(plan, named, SEEDED)
    assert 2 == len(calls)
