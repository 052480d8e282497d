"""Conditions, maps over answers and loops, case by case: what runs, what it costs, what goes on after a failure."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypedDict

import pandas as pd
import pytest

import agent_magic as am
from agent_magic import Policy
from agent_magic.api import Ledger
from agent_magic.errors import DeclarationError, Rejected
from agent_magic.live import foresee, unbought
from agent_magic.record import History, answers_of
from tests.live.virtual import Reply, Scripted, drive


class Review(TypedDict):
    score: int
    notes: str


ONCE = Policy(seed=1, max_attempts=1)


def typed(value: Any) -> Reply:
    """An answer of a type that is no object."""
    return Reply(text=json.dumps({"value": value}))


def script(**answers: Any):
    """Answer by the first word of a prompt; an exception fails, lists are typed answers."""

    def reply(prompt: str, _: int) -> Reply:
        found = answers.get(prompt.split(maxsplit=1)[0], prompt)
        if isinstance(found, Exception):
            return Reply(error=found, status=400)
        if isinstance(found, dict):
            return Reply(text=json.dumps(found))
        return Reply(text=found) if isinstance(found, str) else typed(found)

    return reply


def ends(record: Any) -> dict[str, str]:
    """The status of each step that has a row."""
    return {one.name: one.status for one in record.rows}


def mapped(most: int = 3) -> am.Plan:
    """A list, an agent for each item, and one for all."""
    return am.Plan(
        [
            am.Agent("plan", "plan it", returns=list[str]),
            am.Agent("work", "do {{ item }}", each="plan", most=most),
            am.Agent("join", "join {{ work }}"),
        ]
    )


def test_a_map_over_nothing_is_a_success():
    """What takes the whole group goes on with nothing."""
    record, client = drive(mapped(), script(plan=[]), ONCE)
    assert {"plan": "succeeded", "join": "succeeded"} == ends(record)
    assert "join " == client.asked[-1].prompt
    assert am.Run(record).ok


def test_a_map_over_more_than_its_places_runs_none():
    """Nothing is cut in silence: the error names both numbers."""
    record, client = drive(mapped(2), script(plan=["a", "b", "c"]), ONCE)
    assert 1 == len(client.asked)
    assert {"plan": "succeeded", "work_0": "failed", "join": "skipped"} == ends(record)
    error = record["work_0"].error
    assert error is not None
    assert "plan has 3 items, and most=2" in error


def test_an_item_that_fails():
    """The others are done; a retry asks for the one item, and for what takes the group."""
    answers, tries = script(plan=["a", "b"]), list[str]()

    def reply(prompt: str, number: int) -> Reply:
        tries.append(prompt)
        if prompt == "do b" and tries.count("do b") == 1:
            return Reply(error=Rejected("no", status=400), status=400)
        return Reply(3.0, text="A") if prompt == "do a" else answers(prompt, number)

    record, _ = drive(mapped(), reply, ONCE, controls=[(2.5, "retry", None)])
    assert {"plan": "succeeded", "work_0": "succeeded", "work_1": "succeeded", "join": "succeeded"} == ends(record)
    assert (1, 2) == (tries.count("do a"), tries.count("do b"))


def test_a_task_s_frame_is_mapped():
    """An agent for each row, whose prompt takes the columns."""
    plan = am.Plan(
        [
            am.Task("rows", lambda: pd.DataFrame({"text": ["a", "b"]}, index=[7, 9])),
            am.Agent("label", "label {{ item.text }} {{ key }}", each="rows", most=5),
        ]
    )
    _, client = drive(plan, script(), ONCE)
    assert ["label a 7", "label b 9"] == sorted(one.prompt for one in client.asked)


@pytest.mark.parametrize("variable", [True, False])
def test_a_task_runs_per_item_of_what_a_task_returned(*, variable: bool):
    """Its item is read from there, also where a notebook has a variable of that name: the function of the task."""

    @am.task
    def load() -> pd.DataFrame:
        return pd.DataFrame({"eur": [1.5, 2.5]})

    def double(item: Any) -> float:
        return item.eur * 2

    steps: list[Any] = [load, am.Task("double", double, each="load", most=3)]
    plan = am.Plan(steps, {"load": load} if variable else {})
    record, _ = drive(plan, script(), ONCE)
    assert [3.0, 5.0] == [record[f"double_{one}"].value for one in range(2)]
    assert "unused" == record["double_2"].status


def looped(rounds: int = 3, *more: Any) -> am.Plan:
    """A draft, its critic, who reads the draft, and more."""
    return am.Plan(
        [
            am.Agent(
                "draft",
                "draft{% if critic %} {{ critic.notes }} after {{ draft }}{% endif %}",
                until="critic.score > 8",
                rounds=rounds,
            ),
            am.Agent("critic", "rate {{ draft }}", returns=Review),
            am.Agent("page", "page {{ draft }}"),
            *more,
        ]
    )


def scores(*numbers: int):
    """A critic that says these scores in turn."""
    left = iter(numbers)

    def reply(prompt: str, _: int) -> Reply:
        if prompt.startswith("rate"):
            return Reply(text=json.dumps({"score": next(left), "notes": "shorter"}))
        return Reply(text=f"<{prompt}>")

    return reply


def test_a_loop_ends_when_its_condition_holds():
    """The last draft is passed on; rounds that were not needed are no rows and cost nothing."""
    record, client = drive(looped(), scores(3, 9), ONCE)
    assert "page <draft shorter after <draft>>" == client.asked[-1].prompt
    assert ["draft_1", "draft_2", "critic_1", "critic_2", "page"] == list(ends(record))
    assert "draft_2" == record["draft"].name
    run = am.Run(record)
    assert run.ok
    assert [1, 2, 1, 2] == list(run.agents["round"].dropna())


def test_a_loop_at_its_cap_passes_on_the_last_round(caplog: pytest.LogCaptureFixture):
    """And says so."""
    plan, client = looped(2), Scripted(scores(3, 4))
    run = asyncio.run(plan.run(client=client))
    assert "draft_2" == run["draft"].name
    assert run.ok
    assert "draft capped: it ran all its rounds and critic.score > 8 does not hold." in caplog.text
    assert [False, True, False, True, False] == list(run.agents["capped"])
    met = drive(looped(2), scores(3, 9), ONCE)[0]
    assert "capped" not in am.Run(met).agents, "its condition holds in the last round"


def test_one_round_is_a_draft_and_a_critic():
    """Nothing is repeated, and nothing is unused."""
    record, _ = drive(looped(1), scores(3), ONCE)
    assert ["draft_1", "critic_1", "page"] == list(ends(record))


def test_a_critic_that_fails_ends_the_loop():
    """Later rounds cannot be decided: they are skipped, and what waits for the last of them too."""
    record, client = drive(looped(), script(draft="text", rate=Rejected("no", status=400)), ONCE)
    assert 2 == len(client.asked)
    assert {"succeeded", "failed", "skipped"} == set(ends(record).values())
    assert not am.Run(record).ok


def conditional(**more: Any) -> am.Plan:
    """A review, and a fix where it is bad."""
    return am.Plan(
        [
            am.Agent("review", "rate it", returns=Review),
            am.Agent("fix", "fix it", when="review.score < 4"),
            am.Agent("only", "use {{ fix }}"),
            am.Agent("both", "send {{ fix | default('as it was') }}"),
        ],
        **more,
    )


def test_a_condition_that_is_false_is_no_failure():
    """What needs the step is skipped for the same reason; what can do without it goes on."""
    record, client = drive(conditional(), script(rate={"score": 9, "notes": ""}), ONCE)
    assert {"review": "succeeded", "fix": "skipped", "only": "skipped", "both": "succeeded"} == ends(record)
    assert "condition is false: review.score < 4" == record["only"].error
    assert "send as it was" == client.asked[-1].prompt
    run = am.Run(record)
    assert run.ok
    run.raise_for_failures()
    assert 2 == run.totals.left_out
    assert 0 == run.totals.skipped


def test_a_condition_that_is_true():
    """Changes nothing."""
    record, _ = drive(conditional(), script(rate={"score": 1, "notes": ""}), ONCE)
    assert {"succeeded"} == set(ends(record).values())


def test_a_prompt_that_is_empty_without_a_step_is_an_error():
    """With a hint at what decides that."""
    plan = am.Plan([*conditional().agents[:2], am.Agent("end", "{{ fix | default('') }}")])
    record, _ = drive(plan, script(rate={"score": 9, "notes": ""}), ONCE)
    assert "failed" == record["end"].status
    assert "empty when rendered" in str(record["end"].error)


@pytest.mark.parametrize("plan", [mapped(), looped(), conditional()], ids=["map", "loop", "condition"])
def test_the_next_run_buys_nothing(plan: am.Plan):
    """What was decided of answers is decided again of the same answers, out of the ledger."""
    ledger = Ledger()
    answers = script(plan=["a", "b"], rate={"score": 9, "notes": "n"}, draft="text")
    first, _ = drive(plan, answers, ONCE, ledger=ledger)
    second, client = drive(plan, answers, ONCE, ledger=ledger)
    assert [] == client.asked
    assert ends(first) == ends(second)
    ledger.close()


@pytest.mark.parametrize("plan", [mapped(), looped(), conditional()], ids=["map", "loop", "condition"])
def test_nothing_is_stale_after_a_run(plan: am.Plan):
    """What the ledger has decides ahead of the next run: nothing is left to buy, and an estimate costs nothing."""
    ledger = Ledger()
    answers = script(plan=["a", "b"], rate={"score": 9, "notes": "n"}, draft="text")
    drive(plan, answers, ONCE, ledger=ledger)
    client: Any = Scripted(answers)
    assert [] == unbought(plan, client.endpoint, ledger, None, fresh=False, timeout_s=300.0)
    assert None not in foresee(plan, client, ledger)[1]
    ledger.close()


def test_priorities_go_first():
    """With all that has to be done for them, whatever the longest path is."""
    steps = [am.Agent("a", "a"), am.Agent("b", "b {{ a }}"), am.Agent("c", "c"), am.Agent("d", "d {{ c }}", priority=1)]
    _, client = drive(am.Plan(steps), script(), Policy(1, seed=1))
    assert ["c", "d", "a", "b"] == [one.prompt.split()[0] for one in client.asked]


def test_what_if_with_fewer_rounds():
    """Rounds beyond are left out, as if the loop had ended there; a round and its critic are not paid."""
    record, _ = drive(looped(3), scores(3, 4, 9), ONCE)
    found = am.Run(record).whatif(rounds=[1, 2, 3])
    assert [1, 2, 3] == found["rounds"].tolist()
    assert [3, 5, 7] == found["succeeded"].tolist()
    assert found["cost_usd"].is_monotonic_increasing
    assert found["wall_s"].iloc[2] == am.Run(record).totals.wall_s


def test_places_that_were_not_used_have_no_row_in_a_timeline():
    """Nor a name in what is said of models, which a task has none of."""
    record, _ = drive(looped(3, am.Task("count", lambda page: f"{page}!")), scores(3, 9), ONCE)
    run = am.Run(record)
    drawn = run.timeline().svg
    assert ["draft_1", "draft_2"] == [name for name in ("draft_1", "draft_2", "draft_3") if name in drawn]
    (said,) = run.whatif(model=[{"page": "claude-opus-5-5"}])["model"]
    assert "claude-opus-5-5 for page; claude-haiku-5-5 for the rest" == said


def test_what_if_with_fewer_items():
    """Places beyond are left out."""
    record, _ = drive(mapped(3), script(plan=["a", "b", "c"]), ONCE)
    assert [3, 4, 5] == am.Run(record).whatif(most=[1, 2, 3])["succeeded"].tolist()


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"rounds": 4}, "more than the plan has places for: 3"), ({"most": 2}, "has not a map"), ({"rounds": 0}, ">= 1")],
)
def test_what_if_beyond_what_is_reserved(asked: dict[str, int], said: str):
    """Nobody knows what more rounds would have said; and a plan without maps has no items."""
    record, _ = drive(looped(3), scores(9), ONCE)
    with pytest.raises(DeclarationError, match=said):
        am.Run(record).whatif(**asked)


def test_a_plan_not_run_knows_one_likely_and_all():
    """By what earlier runs answered; a what-if says each number of rounds, and no more than are likely to be needed."""
    ledger, plan = Ledger(), looped(3)
    client: Any = Scripted(scores(3, 9))
    before = plan.estimate(client=client, ledger=ledger)
    assert any("as if all were needed, of 4 reserved places" in one for one in before.notes)
    record, _ = drive(plan, scores(3, 9), ONCE)
    after = plan.estimate(client=client, ledger=ledger, history=History(answers_of(record)))
    assert any("4 reserved places: 2 likely to be needed, by earlier runs" in one for one in after.notes)
    assert [3, 5, 5] == after.whatif(rounds=[1, 2, 3])["succeeded"].tolist()
    ledger.close()
