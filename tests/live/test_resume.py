"""A run that was cut goes on: only what did not succeed, or has changed, is asked again."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false

from __future__ import annotations

import asyncio

import pytest

import agent_magic as am
from agent_magic.api import Agent, Ledger, Plan, Policy, Run, start
from agent_magic.errors import Rejected, UnknownAgent
from agent_magic.record import History
from agent_magic.show import closing
from tests.live.virtual import Reply, Scripted, run_virtually

SEVEN = '{"value": 7}'


def plan_of(**prompts):
    """A plan of these prompts."""
    return Plan(tuple(Agent(name, prompt) for name, prompt in prompts.items()))


CHAIN = plan_of(a="a", b="b {{ a }}", c="c {{ b }}", d="d")


def broken(*names, source="simulated", **more):
    """A script in which the first requests of these fail. Answers name their agent."""

    def script(prompt, number):
        name = prompt[0]
        error = Rejected("wrong", status=400) if name in names and number == 1 else None
        return Reply(1.0, error=error, source=source, text=f"answer of {name}", **more.get(name, {}))

    return Scripted(script)


def run(plan, client, policy=None, **more):
    """Run on a virtual clock."""

    async def work(loop):
        driver = start(plan, policy or Policy(seed=1), client=client, **more)
        driver._clock = loop.time
        await driver.drive()
        return Run(driver.record)

    return run_virtually(work)


def asked(client):
    """The agents asked, in order."""
    return [request.prompt[0] for request in client.asked]


@pytest.mark.parametrize("source", ["simulated", "live"])
def test_only_what_did_not_succeed_runs_again(source):
    """F25: 0 repeated. What succeeded keeps its answer, says where it is from, and costs nothing."""
    client = broken("b", source=source)
    first = run(CHAIN, client)
    assert ["succeeded", "failed", "skipped", "succeeded"] == list(first.agents["status"])
    second = run(CHAIN, client, resume=first)
    assert ["a", "d", "b", "b", "c"] == asked(client)
    assert second.ok
    kept = second["a"].attempts[0]
    assert ("paid before", 0.0) == (kept.price.basis, kept.price.cost_usd)
    assert ("ledger" if source == "live" else "simulated") == kept.source
    assert first["a"].text == second["a"].text
    assert 2.0 == second.record.ended_s
    assert (source == "simulated") == second.record.simulated
    assert "2 of 4 reused" in closing(second.record).text()


def test_it_goes_on_from_a_run_that_went_on():
    """Answers are taken over again and again."""
    client = broken("b", "c")
    first = run(CHAIN, client)
    second = run(CHAIN, client, resume=first)
    third = run(CHAIN, client, resume=second)
    assert third.ok
    assert ["a", "d", "b", "b", "c", "c"] == asked(client)


def test_a_changed_prompt_is_asked_and_its_descendants_where_its_text_differs():
    """An edit runs again; a descendant only if its prompt comes out different."""
    client = broken("d")
    first = run(CHAIN, client)
    edited = plan_of(a="a", b="b changed {{ a }}", c="c {{ b }}", d="d")
    second = run(edited, client, resume=first)
    assert ["a", "d", "b", "c", "d", "b"] == asked(client)  # b answers the same, so c is not asked
    assert second.ok
    other = broken()
    other.script = lambda prompt, _: Reply(1.0, source="simulated", text=prompt.upper())
    run(plan_of(a="a", b="b anew {{ a }}", c="c {{ b }}", d="d"), other, resume=second)
    assert ["b", "c"] == asked(other)


def test_an_option_that_changes_the_request_is_a_change():
    """Another model or another `max_tokens` is another request; another timeout is not."""
    client = broken()
    first = run(plan_of(a="a"), client)
    run(Plan((Agent("a", "a", timeout_s=7.0),)), client, resume=first)
    assert ["a"] == asked(client)
    run(Plan((Agent("a", "a", max_tokens=7),)), client, resume=first)
    assert ["a", "a"] == asked(client)


def test_the_answers_of_another_server_are_not_taken_over():
    """What the stand-in made up is no answer of the API."""
    first = run(plan_of(a="a"), broken())
    elsewhere = broken(source="live")
    elsewhere.endpoint = "https://elsewhere"
    run(plan_of(a="a"), elsewhere, resume=first)
    assert ["a"] == asked(elsewhere)


@pytest.mark.parametrize("policy", ["warn", "fail"])
def test_refusals_are_asked_again_and_cut_answers_are_not(policy):
    """The model may answer next time; the same request would be cut at `max_tokens` the same."""
    client = broken(a={"stop_reason": "max_tokens"}, b={"stop_reason": "refusal"})
    plan = plan_of(a="a", b="b")
    first = run(plan, client, Policy(on_max_tokens=policy))
    second = run(plan, client, Policy(on_max_tokens=policy), resume=first)
    assert ["a", "b", "b"] == asked(client)
    assert first["a"].status == second["a"].status
    assert 0 == second["a"].cost_usd
    assert run(plan, client, Policy(on_max_tokens="allow"), resume=first)["a"].status == "succeeded"


def test_named_agents_run_again_and_nothing_else():
    """One that failed by name; one that succeeded by name is asked anew, and not served from the ledger."""
    client, ledger = broken("a", "d", source="live"), Ledger()
    first = run(CHAIN, client, ledger=ledger)
    second = run(CHAIN, client, ledger=ledger, resume=first, again=["b"])
    assert ["succeeded", "succeeded", "succeeded", "skipped"] == list(second.agents["status"])
    assert ["a", "d", "a", "b", "c"] == asked(client)
    third = run(CHAIN, client, ledger=ledger, resume=second, again=["b"])
    assert ["b"] == asked(client)[5:]
    assert "skipped" == third["d"].status
    with pytest.raises(UnknownAgent):
        start(CHAIN, client=client, resume=third, again=["nobody"])


def test_what_is_there_needs_no_budget_and_no_slot_of_the_limits():
    """A budget that is too small for one request is no obstacle to what was bought before."""
    client = broken(source="live")
    first = run(plan_of(a="a", b="b {{ a }}"), client, ledger=(ledger := Ledger()))
    small = Policy(budget_usd=1e-9, seed=1)
    assert run(plan_of(a="a", b="b {{ a }}"), client, small, resume=first).ok
    assert run(plan_of(a="a", b="b {{ a }}"), client, small, ledger=ledger).ok
    assert not run(plan_of(a="a", b="b {{ a }}"), client, small).ok


def test_what_the_ledger_has_waits_for_no_rate_limit():
    """Ten requests at a limit of five a second take a while, and no time again."""
    ledger = Ledger(reuse_simulated=True)
    plan = am.Plan([am.Agent("a", "Say {{ item }}.", each="rows", max_tokens=5)], {"rows": [*range(10)]})
    with am.Simulator(latency="none", rpm=300) as server:
        session = am.Session(client=am.Claude(base_url=server.url, api_key="any"), ledger=ledger)
        first, again = (asyncio.run(plan.run(am.Policy(10), session=session)) for _ in range(2))
    assert first.totals.wall_s > 1
    assert again.totals.wall_s < 1
    assert set() == set(again.attempts["held_by"].dropna()) - {"slot"}


def test_what_was_taken_over_is_not_measured_again():
    """The history of durations learns nothing from answers that took no time."""
    client = broken("d")
    first = run(CHAIN, client)
    second = run(CHAIN, client, resume=first)
    history = History()
    history.learn(first.record)
    history.learn(second.record)
    assert 4 == len(history)
    assert {1.0} == {row.api_s for row in history}


def test_a_cut_run_goes_on():
    """Stopped in the middle: what had finished is kept, the rest runs."""
    client = broken()

    async def work(loop):
        driver = start(CHAIN, Policy(1, seed=1), client=client)
        driver._clock = loop.time
        loop.call_later(1.5, driver.stop)
        await driver.drive()
        return Run(driver.record)

    first = run_virtually(work)
    assert first.record.cut
    before = len(client.asked)
    second = run(CHAIN, client, resume=first)
    assert second.ok
    assert 3 == len(client.asked) - before


def test_by_the_front_door():
    """`await plan.run(resume=run)`."""
    client = broken("b")

    async def work():
        first = await CHAIN.run(client=client)
        return await CHAIN.run(client=client, resume=first)

    slow = client.script
    client.script = lambda prompt, number: _at_once(slow(prompt, number))
    assert asyncio.run(work()).ok
    assert 5 == len(client.asked)


def _at_once(reply):
    return Reply(0.0, error=reply.error, source=reply.source, text=reply.text)


@pytest.mark.parametrize("texts", [("no number", "no number", SEVEN), ("no number", "no number", "none")])
def test_an_answer_that_did_not_fit_is_bought_again(texts):
    """Though the ledger has it: the same one would not fit either."""
    ledger, plan = Ledger(), Plan([Agent("a", "Go", returns=int)])
    client = Scripted(lambda _, number: Reply(1.0, source="live", text=texts[min(number, 3) - 1]))
    first = run(plan, client, ledger=ledger)
    second = run(plan, client, ledger=ledger, resume=first)
    assert ("InvalidAnswer", 2) == (first["a"].kind, len(first["a"].attempts))
    assert len(client.asked) > 2
    assert second.ok == (texts[-1] == SEVEN)


def test_an_answer_is_not_bought_again_for_a_mistake_in_its_check():
    """Mended, the check gets the answer that is there."""

    def wrong(value):
        raise KeyError(value)

    def mended(value):
        del value

    ledger, client = Ledger(), Scripted(lambda *_: Reply(1.0, source="live", text=SEVEN))
    first = run(Plan([Agent("a", "Go", returns=int, check=wrong)]), client, ledger=ledger)
    second = run(Plan([Agent("a", "Go", returns=int, check=wrong)]), client, ledger=ledger, resume=first)
    third = run(Plan([Agent("a", "Go", returns=int, check=mended)]), client, ledger=ledger, resume=second)
    assert (1, 7) == (len(client.asked), third["a"].value)
    assert ("InvalidAnswer", "InvalidAnswer") == (first["a"].kind, second["a"].kind)
