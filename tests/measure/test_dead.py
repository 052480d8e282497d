"""Dead letters: what failed for good, across runs, and what is asked again."""

from __future__ import annotations

import asyncio

import pytest

import agent_magic as am
from agent_magic.errors import Overloaded, PlanError, Rejected, UnknownAgent
from agent_magic.measure import to_requeue
from agent_magic.measure.service import ALL_DEAD, DEAD
from tests.live.virtual import Reply, Scripted, drive

PLAN = am.Plan(
    [
        am.Agent("good", "Fine."),
        am.Agent("busy", "First line.\nSecond line."),
        am.Agent("wrong", "Wrong."),
        am.Agent("after", "Use {{ busy }}"),
    ]
)


def replies(prompt: str, _count: int) -> Reply:
    """Fail the one that meets a busy service, and the one that is wrong."""
    if prompt.startswith("First"):
        return Reply(error=Overloaded("busy", status=529), status=529)
    wrong = prompt.startswith("Wrong")
    return Reply(error=Rejected("no", status=400) if wrong else None, status=400 if wrong else 200)


def run_of(script, ledger: am.Ledger | None = None) -> am.Run:
    """Run the plan with known answers."""
    record, _ = drive(PLAN, script, am.Policy(max_attempts=2), ledger=ledger)
    return am.Run(record, session=am.Session(client=Scripted(lambda *_: Reply())))


def test_what_failed_for_good_has_a_row_with_request_attempts_and_reason() -> None:
    """What was skipped because of it has none; only the first line of a prompt is shown."""
    dead = run_of(replies).dead
    assert DEAD == {name: str(kind) for name, kind in dead.dtypes.items()}
    assert ["busy", "wrong"] == list(dead["agent"])
    assert ["Overloaded", "Rejected"] == list(dead["error_class"])
    assert ["First line.", "Wrong."] == list(dead["request"])
    assert [2, 1] == list(dead["attempts"])
    assert [529, 400] == list(dead["http_status"])
    assert [True, False] == list(dead["transient"])


def test_every_failed_request_has_its_category() -> None:
    """`error_class` of the attempts; a success has none."""
    attempts = run_of(replies).attempts
    assert {"Overloaded": 2, "Rejected": 1} == attempts["error_class"].value_counts().to_dict()


def test_requeue_asks_again_what_asking_can_help() -> None:
    """The busy one and what waits for it run; the wrong one only by its name; what succeeded is kept."""
    run = run_of(replies)
    again = asyncio.run(run.requeue())
    statuses = {one.name: one.status for one in again.record.results}
    assert {"busy": "succeeded", "after": "succeeded"} == {name: statuses[name] for name in ("busy", "after")}
    assert "succeeded" != statuses["wrong"]
    named = asyncio.run(run.requeue("wrong"))
    assert "succeeded" == named["wrong"].status
    assert "succeeded" != named["busy"].status


def test_requeue_says_what_is_not_dead() -> None:
    """A name that did not fail, one that is not there, and a run in which only wrong requests failed."""
    run = run_of(replies)
    with pytest.raises(PlanError, match="None of good failed"):
        asyncio.run(run.requeue("good"))
    with pytest.raises(UnknownAgent):
        asyncio.run(run.requeue("gone"))
    only = run_of(lambda prompt, _: Reply(error=Rejected("no", status=400) if prompt.startswith("Wrong") else None))
    with pytest.raises(PlanError, match=r"will not help \(Rejected\)"):
        asyncio.run(only.requeue())
    with pytest.raises(PlanError, match="failed for good"):
        asyncio.run(run_of(lambda *_: Reply()).requeue())


def test_a_ledger_lists_the_dead_of_all_runs_until_they_are_answered() -> None:
    """The newest outcome of a request counts, whatever kernel asked."""
    ledger = am.Ledger(":memory:")
    run_of(replies, ledger)
    run_of(replies, ledger)
    frame = ledger.dead()
    assert ALL_DEAD == {name: str(kind) for name, kind in frame.dtypes.items()}
    assert [(2, "busy"), (2, "wrong")] == list(zip(frame["run"], frame["agent"], strict=True))
    run_of(lambda prompt, _: Reply(error=Rejected("no", status=400) if prompt.startswith("Wrong") else None), ledger)
    assert [(3, "wrong")] == [(row.run, row.agent) for row in ledger.dead().itertuples()]
    ledger.close()


def test_what_a_requeue_has_left_out_can_be_named() -> None:
    """A requeue leaves out what it was not asked for, so that has failed in an earlier run only."""
    run = run_of(replies)
    again = asyncio.run(run.requeue())
    with pytest.raises(PlanError, match="None of wrong failed"):
        to_requeue(again.record, "wrong")
    assert ["wrong"] == to_requeue(again.record, "wrong", list(run.dead["agent"]))
    with pytest.raises(PlanError, match="None of busy failed"):
        to_requeue(again.record, "busy", list(run.dead["agent"]))
