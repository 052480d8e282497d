"""A run owns its tasks: when it is over none is left, and a bug in one surfaces."""

# pyright: reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from agent_magic import Agent, Policy
from agent_magic.declare import Plan
from agent_magic.engine import Pacer
from agent_magic.live import Driver
from agent_magic.live.tasks import Tasks
from agent_magic.providers import Provider
from agent_magic.record import Answer, Usage
from tests.providers.test_claude import within
from tests.providers.wire import tasks_left


class Hanging(Provider):
    """A client that answers `quick` at once and everything else never.

    Attributes:
        stopped: The prompts whose request was stopped.
    """

    endpoint = "test://"

    def __init__(self):
        self.stopped = []

    async def send(self, request, stream):
        """Answer, or wait."""
        if request.prompt == "slow":
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append(request.prompt)
        return Answer("x", "end_turn", usage=Usage(1, output_tokens=1), model="m")


def driver_of(timeout_s=60.0, **prompts):
    """Make ready to run a plan of agents that do not wait for each other."""
    client = Hanging()
    plan = Plan(tuple(Agent(name, prompt, timeout_s=timeout_s) for name, prompt in prompts.items()))
    return Driver(plan, Policy(concurrency=10), client), client


@pytest.mark.parametrize("limits", [None, Pacer()], ids=["free", "paced"])
def test_a_run_that_is_over_leaves_nothing_to_the_garbage_collector(limits):
    """What a run held, 10,000 answers maybe, is free the moment nobody needs it."""
    plan = Plan((Agent("a", "quick"), Agent("b", "{{ a }}")))
    Driver(plan, Policy(), Hanging(), pacer=limits)
    gc.collect()
    gc.disable()
    try:
        driver = Driver(plan, Policy(), Hanging(), pacer=limits)
        within(driver.drive())
        health = driver.health()
        held = [weakref.ref(one) for one in (driver.record, driver.engine, driver.engine._requests)]
        assert ["succeeded"] * 2 == [one.status for one in driver.record.results]
        del driver
        assert [None] * 3 == [one() for one in held]
        assert "ok" == health.level
    finally:
        gc.enable()


def fail(*_args, **_more):
    """Be a bug."""
    raise LookupError("a bug")


@pytest.mark.parametrize("place", ["succeeded", "start", "wake"])
def test_a_bug_breaks_the_run_off_and_surfaces(place):
    """Wherever a bug shows itself, in a task or a timer, it is raised, and nothing goes on meanwhile."""
    driver, client = driver_of(0.05 if place == "wake" else 60.0, a="slow", b="quick")
    setattr(driver.engine.conductor, place, fail)

    async def work():
        with pytest.raises((ExceptionGroup, LookupError)) as caught:
            await driver.drive()
        return caught.value, tasks_left(), asyncio.current_task().cancelling()

    bug, left, pushed = within(work())
    assert 0 == pushed
    bugs = bug.exceptions if isinstance(bug, ExceptionGroup) else [bug]
    assert ["a bug"] == [str(one) for one in bugs]
    assert set() == left
    assert ([] if place == "start" else ["slow"]) == client.stopped
    assert (True, True) == (driver.record.ended_s is not None, driver.record.cut)
    assert {} == driver.streams


def test_a_bug_keeps_what_other_agents_had():
    """What had been answered before the bug is in the record."""
    driver, _ = driver_of(a="quick", b="quick")
    succeeded, calls = driver.engine.conductor.succeeded, []

    def once(agent, now):
        calls.append(agent)
        return fail() if len(calls) > 1 else succeeded(agent, now)

    driver.engine.conductor.succeeded = once
    with pytest.raises(ExceptionGroup):
        within(driver.drive())
    assert ["succeeded", "cancelled"] == [one.status for one in driver.record.results]
    assert ["x", "x"] == [one.text for one in driver.record.results]


def test_an_interrupt_in_a_task_reaches_the_loop():
    """`KeyboardInterrupt` is no bug of ours: the loop sees it, and no task is left all the same."""
    driver, client = driver_of(a="slow", b="quick")

    def interrupt(*_):
        raise KeyboardInterrupt

    driver.engine.conductor.succeeded = interrupt
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(driver.drive())
    assert ["slow"] == client.stopped
    assert driver.record.cut


def test_to_finish_waits_for_every_task_however_often_it_is_cancelled():
    """A task that cleans up is waited for, and stopped once only."""
    seen = []

    async def careful(done):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("stopped")
            await done.wait()
            seen.append("clean")
            raise

    async def work():
        tasks, done = Tasks(lambda: None), asyncio.Event()
        tasks.begin(0, careful(done))
        await asyncio.sleep(0)
        finishing = asyncio.create_task(tasks.finish())
        for _ in range(3):
            await asyncio.sleep(0)
            finishing.cancel()
        done.set()
        with pytest.raises(asyncio.CancelledError):
            await finishing
        return tasks_left()

    assert set() == within(work())
    assert ["stopped", "clean"] == seen


def test_nothing_begins_once_the_run_is_finishing():
    """A launch that a stopped agent's end would cause does not happen any more."""
    ran = []

    async def work():
        tasks = Tasks(lambda: None)
        await tasks.finish()
        tasks.begin(0, asyncio.sleep(0, ran.append(1) or None))
        await asyncio.sleep(0)
        return tasks_left()

    assert set() == within(work())


def test_a_task_that_was_stopped_before_its_first_step_is_reported_once():
    """Nothing of it ran, so somebody else has to tell; one that ran tells by itself."""
    told = []

    async def waits():
        await asyncio.Event().wait()

    async def ends(tasks):
        try:
            await asyncio.Event().wait()
        finally:
            tasks.left(1)

    async def work():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        tasks = Tasks(lambda: None)
        tasks.begin(1, ends(tasks))
        await asyncio.sleep(0)
        tasks.begin(0, waits())
        for agent in (0, 0, 1):
            tasks.cancel(agent, lambda agent=agent: told.append(agent))
        await asyncio.sleep(0)
        await tasks.finish()
        await asyncio.sleep(0)

    within(work())
    assert [0] == told


def test_a_bug_in_that_report_surfaces_too():
    """The report is called by the loop, which would only log it."""

    async def work():
        tasks = Tasks(lambda: None)
        tasks.begin(0, asyncio.sleep(60))
        tasks.cancel(0, fail)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ExceptionGroup, match="ended the run"):
            await tasks.finish()
        assert tasks.broken

    within(work())
