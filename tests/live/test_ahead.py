"""What a run will have to buy: said before it begins, and then asked."""

from __future__ import annotations

import json

import pytest

from agent_magic import Task
from agent_magic.api import Agent, Ledger, Plan, Policy, Run, start
from agent_magic.errors import Rejected
from agent_magic.live import Earlier, unbought
from tests.live.virtual import Reply, Scripted, run_virtually

AGENTS = (Agent("a", "a {{ x }}"), Agent("b", "b"), Agent("c", "c {{ a }}"), Agent("d", "d", after="c"))


def plan_of(x="1"):
    """Two roots, one that uses the first, and one that only waits for that."""
    return Plan(AGENTS, {"x": x})


def scripted(*failing):
    """Answer, but for these the first time, unless the value has changed."""

    def script(prompt, number):
        fails = prompt[0] in failing and number == 1 and "2" not in prompt
        return Reply(1.0, error=Rejected("wrong", status=400) if fails else None, text=f"answer of {prompt}")

    return Scripted(script)


def run(plan, client, **more):
    """Run on a virtual clock."""

    async def work(loop):
        driver = start(plan, Policy(seed=1), client=client, **more)
        driver._clock = loop.time
        await driver.drive()
        return Run(driver.record)

    return run_virtually(work)


def said(plan, *, ledger=None, earlier=None, fresh=False):
    """Name what is going to be bought."""
    found = unbought(plan, "scripted", ledger, earlier, fresh=fresh, timeout_s=600.0)
    return sorted(plan.agents[number].name for number in found)


@pytest.mark.parametrize(
    ("x", "fresh", "names"), [("1", False, ""), ("2", False, "ac"), ("1", True, "abcd")], ids=["all", "edited", "fresh"]
)
def test_what_is_in_the_ledger_is_not_bought(x, fresh, names):
    """All is there; where a value has changed, who uses it and who uses the answer; with `fresh`, everybody."""
    ledger = Ledger()
    run(plan_of(), scripted(), ledger=ledger)
    assert list(names) == said(plan_of(x), ledger=ledger, fresh=fresh)


def count(a, y):
    """Use an answer and a value."""
    return f"{a} {y}"


@pytest.mark.parametrize(("y", "names"), [("1", []), ("2", ["count", "e"])])
def test_a_task_is_as_it_was_where_all_it_takes_is(y, names):
    """So what uses it is not stale after a good run; a value that has changed makes it so."""
    steps = [*AGENTS, Task("count", count), Agent("e", "e {{ count }}")]
    done = run(Plan(steps, {"x": "1", "y": "1"}), scripted())
    plan = Plan(steps, {"x": "1", "y": y})
    assert names == said(plan, earlier=Earlier(done.record, "scripted", plan=plan))


def test_answers_of_a_request_for_several_rows_are_as_they_were():
    """Each is taken out of the same reply."""
    plan = Plan(
        [Agent("row", "{{ item }}", each="rows", returns=int, group=2), Agent("e", "e {{ row }}")],
        {"rows": ["1", "2", "3"]},
    )

    def reply(prompt: str, _: int) -> Reply:
        rows = [{"item": number, "answer": 3 + number} for number in range(1, 1 + prompt.count("<item"))]
        return Reply(text=json.dumps({"answers": rows}) if rows else "end")

    done = run(plan, Scripted(reply))
    assert done.ok
    assert [] == said(plan, earlier=Earlier(done.record, "scripted", plan=plan))


@pytest.mark.parametrize(("x", "names"), [("1", "cd"), ("2", "acd")])
@pytest.mark.parametrize("again", [None, ["c"], ["b"]], ids=str)
def test_what_is_said_is_what_a_resumed_run_asks(x, names, again):
    """What succeeded is taken over, what was named is asked again, what is left out is not asked."""
    client = scripted("c")
    first = run(plan_of(), client)
    earlier = Earlier(first.record, "scripted", plan=plan_of(x), again=again)
    expected = said(plan_of(x), earlier=earlier)
    assert again is not None or list(names) == expected
    client.asked.clear()
    run(plan_of(x), client, resume=first, again=again)
    assert expected == sorted(request.prompt[0] for request in client.asked)
