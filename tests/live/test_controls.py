"""Steering a run: retry, skip, pause and resume, on a virtual clock and from other threads."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_magic import Agent, Controls, Policy
from agent_magic.api import Ledger
from agent_magic.declare import Plan
from agent_magic.errors import Overloaded, Rejected, UnknownAgent
from agent_magic.live import Driver
from agent_magic.measure import agents_frame, attempts_frame
from tests.live.virtual import Reply, Scripted, drive, run_virtually
from tests.providers.wire import until

WRONG = Rejected("wrong", status=400)


def plan_of(**prompts):
    """A plan of these prompts."""
    return Plan(tuple(Agent(name, prompt) for name, prompt in prompts.items()))


def statuses(record):
    """Status by agent."""
    return {result.name: result.status for result in record.results}


def fails_once(name, takes_s=1.0):
    """A script in which one agent's first request is turned away."""

    def script(prompt, number):
        bad = prompt.split()[0] == name and number == 1
        return Reply(takes_s if prompt.split()[0] != "long" else 20.0, error=WRONG if bad else None, status=200)

    return script


def test_a_failed_agent_runs_again_while_the_run_goes_on():
    """F25: a failed agent and what was skipped because of it run again; nothing else is asked twice."""
    plan = plan_of(bad="bad", child="child {{ bad }}", grandchild="grandchild {{ child }}", long="long")
    record, client = drive(plan, fails_once("bad"), controls=[(5.0, "retry", None)])
    assert {"succeeded"} == set(statuses(record).values())
    assert 5 == len(client.asked)
    assert [1, 2] == [one.number for one in record["bad"].attempts]
    assert 8.0 == record["grandchild"].finished_s
    assert record["bad"].error is None


def test_the_parts_of_an_agent_that_ran_again_add_up():
    """What lies between the failure and the second try counts as waiting: `total_s` is still the sum of its parts."""
    plan = plan_of(bad="bad", long="long")
    record, _ = drive(plan, fails_once("bad"), controls=[(5.0, "retry", ["bad"])])
    frame = agents_frame(record).set_index("agent")
    row = frame.loc["bad", ["queued_s", "api_s", "backoff_s", "local_s", "total_s"]]
    assert [4.0, 2.0, 0.0, 0.0, 6.0] == list(row)
    assert ["failed", "succeeded"] == list(attempts_frame(record).query("agent == 'bad'")["status"])


def test_an_agent_that_ran_again_has_its_attempts_and_its_deadline_anew():
    """Two tries were used up; two more are made after the retry, numbered on, and the deadline begins again."""
    plan = plan_of(bad="bad", long="long")

    def script(prompt, number):
        full = prompt == "bad" and number < 4
        return Reply(1.0 if prompt == "bad" else 20.0, error=Overloaded("full", status=529) if full else None)

    policy = Policy(max_attempts=2, timeout_s=25.0, seed=1)
    record, _ = drive(plan, script, policy, controls=[(9.0, "retry", ["bad"])])
    assert [1, 2, 3, 4] == [one.number for one in record["bad"].attempts]
    assert "succeeded" == record["bad"].status


def test_what_succeeded_is_never_asked_again():
    """Retrying an agent that has its answer, or runs, changes nothing."""
    record, client = drive(plan_of(a="a", long="long"), fails_once("none"), controls=[(5.0, "retry", ["a", "long"])])
    assert 2 == len(client.asked)
    assert {"succeeded"} == set(statuses(record).values())


def test_a_skipped_agent_costs_its_descendants_and_nothing_else():
    """Pending, queued or running: it is skipped by the user, its descendants because of it, and others go on."""
    plan = plan_of(a="a", b="b {{ a }}", c="c {{ b }}", runs="runs", after="after {{ runs }}", long="long")
    record, client = drive(
        plan, lambda prompt, _: Reply(9.0 if "runs" in prompt else 2.0), controls=[(1.0, "skip", ["b", "runs"])]
    )
    expected = {"a": "succeeded", "b": "skipped", "c": "skipped", "runs": "skipped", "after": "skipped"}
    assert expected | {"long": "succeeded"} == statuses(record)
    assert "skipped by the user" == record["b"].error == record["runs"].error
    assert "'b' did not succeed" == record["c"].error
    assert 1 == client.cancelled
    assert "cancelled" == record["runs"].attempts[0].status
    assert not record.cut


def test_a_skipped_agent_comes_back_by_name():
    """A retry of everything brings it back too; its descendants follow."""
    plan = plan_of(a="a", b="b {{ a }}", long="long")
    record, _ = drive(plan, fails_once("none"), controls=[(0.5, "skip", ["a"]), (3.0, "retry", ["a"])])
    assert {"succeeded"} == set(statuses(record).values())
    assert 2 == len(record["a"].attempts)


def test_a_retry_that_meets_a_request_that_is_being_stopped_waits_for_its_end():
    """Stop and retry in one breath: the request ends, then the agent runs again. The last one too."""
    record, client = drive(plan_of(a="a"), fails_once("none"), controls=[(0.5, "skip", ["a"]), (0.5, "retry", ["a"])])
    assert {"a": "succeeded"} == statuses(record)
    assert [1, 2] == [one.number for one in record["a"].attempts]
    assert 1 == client.peak


def test_a_paused_run_starts_nothing_and_goes_on():
    """What runs ends; what waits is held by `paused`, says so afterwards, and starts at `resume`."""
    plan = plan_of(a="a", b="b {{ a }}")
    seen = []
    controls = [(0.5, "pause", None), (4.0, "look", lambda driver: seen.append((driver.paused, driver.held_by(1))))]
    record, _ = drive(plan, fails_once("none"), controls=[*controls, (6.0, "resume", None)])
    assert [(True, "paused")] == seen
    assert 6.0 == record["b"].started_s
    assert "paused" == record["b"].attempts[0].held_by
    assert 5.0 == record["b"].queued_s
    assert {"succeeded"} == set(statuses(record).values())


def test_a_paused_run_can_be_stopped():
    """A stop ends what waits, paused or not."""
    record, _ = drive(
        plan_of(a="a", b="b {{ a }}"), fails_once("none"), controls=[(0.5, "pause", None)], stops=[(9.0, None)]
    )
    assert {"a": "succeeded", "b": "cancelled"} == statuses(record)
    assert record.cut


def test_a_stopped_run_starts_nothing_again():
    """After a stop of everything a retry starts nothing, while requests are still ending."""
    record, client = drive(
        plan_of(a="a", b="b"), fails_once("none"), stops=[(0.5, None)], controls=[(0.5, "retry", None)]
    )
    assert {"cancelled"} == set(statuses(record).values())
    assert 2 == len(client.asked)


def test_any_thread_steers():
    """`Controls` of another thread: pause, resume, skip and stop reach the loop; a wrong name is told to the caller."""
    client = Scripted(lambda *_: Reply(1000.0))
    driver = Driver(plan_of(a="a", b="b", c="c"), Policy(), client)
    controls = Controls(driver)
    told: list[BaseException] = []

    def elsewhere():
        try:
            controls.skip(["nobody"])
        except UnknownAgent as error:
            told.append(error)
        controls.pause()
        controls.skip(["a"])
        controls.stop()

    async def work():
        running = asyncio.create_task(driver.drive())
        await until(lambda: client.running == 3)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await running
        thread.join()

    asyncio.run(asyncio.wait_for(work(), 20))
    assert 1 == len(told)
    assert controls.paused
    assert {"a": "skipped", "b": "cancelled", "c": "cancelled"} == statuses(driver.record)


def test_steering_before_the_start_and_after_the_end():
    """A run that has not begun can be skipped into; one that is over stays as it is."""
    client = Scripted(lambda *_: Reply(1.0))

    async def work(loop):
        driver = Driver(plan_of(a="a", b="b {{ a }}", c="c"), Policy(), client, clock=loop.time)
        Controls(driver).skip(["a"])
        await driver.drive()
        before = list(driver.record.events)
        for what in ("stop", "retry"):
            getattr(Controls(driver), what)()
        assert before == driver.record.events
        return driver.record

    assert {"a": "skipped", "b": "skipped", "c": "succeeded"} == statuses(run_virtually(work))
    assert 1 == len(client.asked)


@pytest.mark.parametrize("what", ["stop", "retry", "skip"])
def test_a_wrong_name_changes_nothing(what):
    """`UnknownAgent`, with what is meant."""
    driver = Driver(plan_of(alpha="a"), Policy(), Scripted(lambda *_: Reply(1.0)))
    with pytest.raises(UnknownAgent, match="alpha"):
        getattr(Controls(driver), what)(["alpa"])


def test_a_name_alone_is_one_name():
    """`controls.skip("alpha")` means the agent, not its letters."""
    driver = Driver(plan_of(alpha="a", beta="b"), Policy(), Scripted(lambda *_: Reply(1.0)))
    Controls(driver).skip("alpha")
    assert ["skipped", "pending"] == [result.status for result in driver.record.results]


def test_an_attempt_that_never_left_is_not_counted():
    """Skipped in the moment it was let go, and wanted again: its first request is its first attempt."""

    def in_one_breath(driver):
        driver.resume()
        driver.skip(["b"])
        driver.retry(["b"])

    controls = [(0.5, "pause", None), (3.0, "look", in_one_breath)]
    record, client = drive(plan_of(a="a", b="b {{ a }}"), fails_once("none"), controls=controls)
    assert {"a": "succeeded", "b": "succeeded"} == statuses(record)
    assert [1] == [one.number for one in record["b"].attempts]
    assert 2 == len(client.asked)


def test_a_prompt_that_cannot_be_written_is_no_attempt():
    """Nothing was sent the first time, nor the second: there is no attempt, and the reason is told."""
    plan = plan_of(a="a", b="{{ 10 // (a|length - 6) }}", long="long")  # the answer has six letters
    record, client = drive(plan, fails_once("none"), controls=[(5.0, "retry", None)])
    assert {"a": "succeeded", "b": "failed", "long": "succeeded"} == statuses(record)
    assert [] == record["b"].attempts
    assert 2 == len(client.asked)


def test_an_answer_that_is_bought_anew_has_a_reserve():
    """What did not fit is in the ledger and is not served again: the budget has to have room for the new one."""
    plan = Plan([Agent("a", "x", returns=float, max_tokens=100), Agent("b", "slow", max_tokens=100)])
    script = lambda prompt, _: Reply(9.0 if prompt == "slow" else 1.0, text="no number", tokens=(10, 100, 0, 0))  # noqa: E731
    policy = Policy(2, seed=1, max_turns=1, budget_tokens=325)
    record, client = drive(plan, script, policy, ledger=Ledger(), controls=[(3.0, "retry", ["a"])])
    assert ["slow", "x"] == sorted(one.prompt for one in client.asked)
    assert "BudgetExceeded" == record["a"].kind
