"""The driver on a virtual clock: what becomes of answers, failures, deadlines and stops."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given

import agent_magic as am
from agent_magic import Agent, Policy, TokenPrice
from agent_magic.api import Ledger, start
from agent_magic.declare import Plan
from agent_magic.errors import DeclarationError, Overloaded, RateLimited, Rejected, Truncated, Unreachable
from agent_magic.live import Driver
from agent_magic.measure import summarize
from agent_magic.record import AgentEnded, AgentReopened, AttemptStarted, History, Prices, PriceWarning, RunEnded, Usage
from agent_magic.show import run_line
from tests.declare.examples import E1, E2, E3, E6
from tests.live.virtual import Reply, Scripted, drive, run_virtually
from tests.record.histories import histories


def plan_of(**prompts):
    """A plan of these prompts."""
    return Plan(tuple(Agent(name, prompt) for name, prompt in prompts.items()))


def always(**reply):
    """A script that gives everybody this reply."""
    return lambda *_: Reply(**reply)


def statuses(record):
    """Status by agent."""
    return {result.name: result.status for result in record.results}


@pytest.mark.parametrize(
    ("example", "policy", "wall"),
    [
        (E1, Policy(8), 5.0),
        (E1, Policy(8, "sequential"), 9.0),
        (E2, Policy(8), 8.0),
        (E2, Policy(1), 18.0),
        (E3, Policy(8), 9.0),
        (E3, Policy(8, "layers"), 9.0),
        (E6, Policy(2), 20.0),
    ],
)
def test_the_driver_takes_the_conductor_s_time(example, policy, wall):
    """On a clock of its own a run of the worked examples takes exactly what the plan allows."""
    work = dict(zip((agent.prompt for agent in example.plan.agents), example.work_s, strict=True))
    plan = Plan(
        tuple(
            Agent(f"a{one}", f"p{one}", after=agent.after or agent.uses)
            for one, agent in enumerate(example.plan.agents)
        )
    )
    assert len(work) <= len(plan)
    record, client = drive(plan, lambda prompt, _: Reply(example.work_s[int(prompt[1:])]), policy)
    assert wall == record.ended_s
    assert client.peak <= policy.concurrency


def test_what_a_run_records_has_all_its_fields():
    """Events, requests and prices are made without their classes checking them: none lacks a field."""
    record, _ = drive(plan_of(a="x", b="y {{ a }}"), always(takes_s=1.0), Policy())
    (price,) = {attempt.price for attempt in record.attempts}
    assert price is not None
    for value in (*record.events, *(attempt.request for attempt in record.attempts), price):
        assert value == type(value)(*value)
        assert len(type(value)._fields) == len(value)


def test_the_second_run_of_a_plan_starts_the_long_one_first():
    """The first run goes by declared order; what it took decides who goes first in the next, and it ends sooner."""
    plan = plan_of(short="s1", middle="s2", long="s6")
    history = History()
    walls, order = [], []
    for _ in range(2):
        record, client = drive(plan, lambda prompt, _: Reply(float(prompt[1])), Policy(2), history=history)
        history.learn(record)
        walls.append(record.ended_s)
        order.append([request.prompt for request in client.asked])
    assert [["s1", "s2", "s6"], ["s6", "s2", "s1"]] == order
    assert [7.0, 6.0] == walls


def test_answers_go_into_the_prompts_of_children():
    """A child gets its parents' texts, as text."""
    plan = plan_of(a="first", b="<{{ a }}> {{ a }}")
    record, client = drive(plan, always(text="{{ b }} {% if %}"))
    assert ["first", "<{{ b }} {% if %}> {{ b }} {% if %}"] == [one.prompt for one in client.asked]
    assert "{{ b }} {% if %}" == record["b"].text


def test_options_go_into_the_request():
    """Model, limits, system prompt, effort and deadline are those of the agent, else of the policy and the defaults."""
    plan = Plan(
        (
            Agent("a", "x", model="claude-opus-5-5", max_tokens=7, system="s", effort="low", timeout_s=9.0),
            Agent("b", "y", role="critic"),
        )
    )
    _, client = drive(plan, always(), Policy(1, "sequential", timeout_s=33.0))
    first, second = client.asked
    assert ("claude-opus-5-5", 7, "s", "low", 9.0) == (
        first.model,
        first.max_tokens,
        first.system,
        first.effort,
        first.timeout_s,
    )
    assert ("claude-haiku-5-5", 2048, None, 33.0) == (second.model, second.max_tokens, second.effort, second.timeout_s)
    assert second.system.startswith("You are a critic")


def test_times_are_told_apart():
    """Queue, request, first token and wall time of two agents on one slot."""
    record, _ = drive(
        plan_of(a="x", b="y"), lambda prompt, _: Reply(2.0 if prompt == "x" else 3.0, first_s=0.5), Policy(1)
    )
    first, second = record.results
    assert (0.0, 2.0, 0.0, 2.0, 0.5) == (first.queued_s, first.api_s, first.local_s, first.total_s, first.ttft_s)
    assert (2.0, 3.0, 0.0, 5.0, 0.5) == (second.queued_s, second.api_s, second.local_s, second.total_s, second.ttft_s)
    assert ["", "slot"] == [one.held_by for one in record.attempts]


def test_a_failed_attempt_is_a_row_and_the_next_one_too():
    """Retries are rows of their own; the wait between them is `backoff_s`, at least what the server demands."""

    def script(_, number):
        return Reply(1.0, RateLimited("busy", retry_after_s=4.0), status=429) if number < 3 else Reply(2.0)

    record, client = drive(plan_of(a="x"), script)
    result = record["a"]
    assert (3, "succeeded", 4.0) == (len(client.asked), result.status, result.api_s)
    assert ["RateLimited", "RateLimited", None] == [one.kind for one in result.attempts]
    assert [429, 429, 200] == [one.status_code for one in result.attempts]
    assert 8.0 <= result.backoff_s <= 10.5
    assert [0.0, 0.0] == [one.price.cost_usd for one in result.attempts[:2]]
    assert [1, 2, 3] == [one.number for one in result.attempts]


def test_what_was_cut_keeps_its_text_and_an_estimate_of_its_tokens():
    """A stream that breaks: the text that came, the input as counted, the output estimated from the text."""
    error = Truncated("cut")
    record, _ = drive(
        plan_of(a="x"), always(takes_s=2.0, first_s=1.0, error=error, text="x" * 80), Policy(max_attempts=1)
    )
    attempt = record.attempts[0]
    assert ("failed", "x" * 40) == (record["a"].status, record["a"].text)
    assert Usage(10, output_tokens=10, estimated=True) == attempt.usage
    assert attempt.price.cost_usd > 0
    assert "Truncated: cut" == attempt.error == record["a"].error


def test_without_any_reply_nothing_is_known():
    """No connection: no tokens, no dollars, no source; unknown is not 0."""
    record, _ = drive(plan_of(a="x"), always(error=Unreachable("gone"), status=None), Policy(max_attempts=1))
    attempt = record.attempts[0]
    assert (None, None, None, None) == (attempt.usage, attempt.price.cost_usd, attempt.source, attempt.status_code)
    assert record["a"].cost_usd is None


def test_a_request_turned_away_costs_nothing():
    """The API bills nothing for an error status: that is known."""
    record, _ = drive(plan_of(a="x"), always(error=Rejected("no", status=400), status=400))
    assert (0, 0, 0.0, "not billed") == (
        record["a"].usage.input_tokens,
        record["a"].usage.output_tokens,
        record["a"].cost_usd,
        record.attempts[0].price.basis,
    )


@pytest.mark.parametrize("status", [502, 504, 520, 524])
def test_what_a_gateway_had_passed_on_may_have_been_billed(status):
    """It lost the answer, or waited too long for it: what that cost is unknown, and the answer's sum a lower bound."""
    script = {1: Reply(error=Overloaded("a page", status=status), status=status), 2: Reply()}
    record, _ = drive(plan_of(a="x"), lambda _, number: script[number])
    first, second = record.attempts
    assert (None, None, True) == (first.usage, first.price.cost_usd, second.price.cost_usd > 0)
    assert ("≥", record["a"].cost_usd) == (summarize(record).cost_mark, second.price.cost_usd)


@pytest.mark.parametrize("status", [500, 503, 521, 522, 523, 529])
def test_what_never_got_to_the_model_costs_nothing(status):
    """The service says itself that it failed or is full, or a gateway that it reached nobody."""
    record, _ = drive(plan_of(a="x"), always(error=Overloaded("no", status=status), status=status))
    assert 0.0 == record["a"].cost_usd


def test_a_deadline_ends_an_agent_on_time():
    """F10: an agent that hangs fails as `Late` at its deadline; its descendants are skipped, others go on."""
    plan = Plan((Agent("slow", "slow", timeout_s=7.0), Agent("after", "{{ slow }}"), Agent("other", "x")))
    record, client = drive(plan, lambda prompt, _: Reply(1e6, first_s=1.0) if prompt == "slow" else Reply(9.0))
    assert {"slow": "failed", "after": "skipped", "other": "succeeded"} == statuses(record)
    assert (7.0, 9.0) == (record["slow"].total_s, record.ended_s)
    assert "Late" == record["slow"].attempts[0].kind
    assert "ans" == record["slow"].text
    assert "'slow' did not succeed" == record["after"].error
    assert 1 == client.cancelled


def test_a_deadline_counts_over_all_attempts():
    """Attempts and waits share one deadline; a wait that would go past it is not begun."""
    plan = Plan((Agent("a", "x", timeout_s=5.0),))
    record, client = drive(plan, always(takes_s=2.0, error=Overloaded("full", status=529)), Policy(max_attempts=99))
    assert 2 == len(client.asked)
    assert record["a"].total_s <= 5.0
    record, client = drive(plan, always(takes_s=1.0, error=RateLimited("busy", retry_after_s=300.0)))
    assert (1, 1.0) == (len(client.asked), record["a"].total_s)
    assert "after the deadline" in record["a"].error


def test_an_answer_from_before_the_deadline_counts_though_its_connection_lingers():
    """The answer was complete in time; only the connection was still open."""
    plan = Plan((Agent("a", "x", timeout_s=5.0), Agent("b", "<{{ a }}>")))
    record, client = drive(plan, lambda prompt, _: Reply(3.0, lingers_s=100.0 if prompt == "x" else 0.0))
    assert {"a": "succeeded", "b": "succeeded"} == statuses(record)
    assert "<answer>" == client.asked[1].prompt
    assert (10, 5) == (record["a"].usage.input_tokens, record["a"].usage.output_tokens)


@pytest.mark.parametrize(
    ("stop", "status"), [("refusal", "failed"), ("max_tokens", "succeeded"), ("end_turn", "succeeded")]
)
def test_how_an_answer_ends_decides(stop, status):
    """F14: a refusal fails and is flagged; an answer cut at `max_tokens` is passed on, and flagged."""
    record, client = drive(
        plan_of(a="x", b="{{ a }}"), lambda prompt, _: Reply(stop_reason=stop if prompt == "x" else "end_turn")
    )
    assert status == record["a"].status
    assert stop == record["a"].stop_reason
    assert ("skipped" if status == "failed" else "succeeded") == record["b"].status
    assert (1 if status == "failed" else 2) == len(client.asked)
    assert "answer" == record["a"].text


def test_a_policy_can_refuse_cut_answers():
    """`on_max_tokens="fail"`: not passed on, not repeated, its text and its cost kept."""
    record, client = drive(plan_of(a="x", b="{{ a }}"), always(stop_reason="max_tokens"), Policy(on_max_tokens="fail"))
    assert {"a": "failed", "b": "skipped"} == statuses(record)
    assert ("Capped", 1, "answer") == (record.attempts[0].kind, len(client.asked), record["a"].text)
    assert record["a"].cost_usd > 0


def test_a_refused_key_costs_one_call():
    """F08: 401 stops the whole run: what had not been sent is never sent."""
    plan = plan_of(**{f"a{one}": f"x{one}" for one in range(20)})
    record, client = drive(plan, always(error=Rejected("bad key", status=401), status=401), Policy(1))
    assert 1 == len(client.asked)
    assert {"failed": 1, "cancelled": 19} == {
        word: list(statuses(record).values()).count(word) for word in set(statuses(record).values())
    }
    assert all("bad key" in result.error for result in record.results)


def test_a_bug_of_a_client_is_a_result_of_that_agent():
    """Whatever a client raises costs that agent and its descendants only."""
    plan = plan_of(a="x", b="{{ a }}", c="y")
    record, _ = drive(plan, lambda prompt, _: Reply(error=ZeroDivisionError("oops") if prompt == "x" else None))
    assert {"a": "failed", "b": "skipped", "c": "succeeded"} == statuses(record)
    assert "ZeroDivisionError: oops" == record["a"].error


def test_a_prompt_that_fails_on_the_real_answer_costs_that_agent_only():
    """An expression that works on the stand-in text and not on the answer: failed, with no request."""
    plan = Plan((Agent("a", "x"), Agent("b", "{{ 1 // (a|length - 6) }}"), Agent("c", "y")))
    record, client = drive(plan, always(text="answer"))
    assert {"a": "succeeded", "b": "failed", "c": "succeeded"} == statuses(record)
    assert (2, 0) == (len(client.asked), len(record["b"].attempts))
    assert "The prompt of agent 'b' cannot be rendered: line 1" in record["b"].error


def test_a_prompt_that_cannot_work_fails_before_any_spend():
    """The whole run is refused, and nothing is sent."""
    client = Scripted(always())
    with pytest.raises(DeclarationError):
        start(Plan((Agent("a", "x"), Agent("b", "{{ v.no.no }}")), {"v": 1}), client=client)
    assert not client.asked


def test_stopping_the_run_keeps_what_is_done():
    """Done stays done, what runs is cancelled with its text, what waits is cancelled, the run is cut."""
    plan = plan_of(done="fast", slow="slow", after="{{ slow }}")
    record, client = drive(
        plan, lambda prompt, _: Reply(1.0 if prompt == "fast" else 50.0, first_s=0.5), stops=[(3.0, None)]
    )
    assert {"done": "succeeded", "slow": "cancelled", "after": "cancelled"} == statuses(record)
    assert (3.0, True) == (record.ended_s, record.cut)
    slow = record["slow"]
    assert ("ans", "cancelled", "stopped") == (slow.text, slow.attempts[0].kind, slow.attempts[0].error)
    assert Usage(10, output_tokens=1, estimated=True) == slow.usage
    assert 1 == client.cancelled


def test_cancelling_the_task_is_a_stop_and_is_passed_on():
    """`CancelledError` is never swallowed, and the record is complete."""
    client = Scripted(always(takes_s=50.0))

    async def work(loop):
        driver = Driver(plan_of(a="x", b="{{ a }}"), Policy(), client, clock=loop.time)
        task = loop.create_task(driver.drive())
        loop.call_later(2.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        return driver.record

    record = run_virtually(work)
    assert {"cancelled"} == set(statuses(record).values())
    assert (2.0, True) == (record.ended_s, record.cut)
    assert not client.running


def test_stopping_one_agent():
    """It is cancelled, its descendants skipped, all others finish; the run is not cut."""
    plan = plan_of(a="a", b="{{ a }}", c="c")
    record, _ = drive(plan, always(takes_s=5.0), stops=[(2.0, ["a"])])
    assert {"a": "cancelled", "b": "skipped", "c": "succeeded"} == statuses(record)
    assert (5.0, False) == (record.ended_s, record.cut)


def test_stopping_an_agent_that_is_done_changes_nothing():
    """Its child goes on, and the run ends in good order."""
    record, _ = drive(plan_of(a="a", b="b {{ a }}"), always(takes_s=5.0), stops=[(7.0, ["a"])])
    assert {"a": "succeeded", "b": "succeeded"} == statuses(record)


def test_a_complete_answer_survives_a_stop():
    """A stop between the `stop_reason` and the end of the connection: paid for, so kept, and in the ledger."""
    ledger = Ledger()
    record, _ = drive(
        plan_of(a="a", b="{{ a }}"), always(takes_s=1.0, lingers_s=9.0), stops=[(5.0, None)], ledger=ledger
    )
    assert {"a": "succeeded", "b": "cancelled"} == statuses(record)
    assert 1 == len(ledger)
    record, _ = drive(plan_of(a="a", b="b {{ a }}"), always(takes_s=1.0, lingers_s=9.0), stops=[(5.0, ["a"])])
    assert {"a": "succeeded", "b": "succeeded"} == statuses(record)


@pytest.mark.parametrize("moment", [0.0, 1e-7], ids=["at the start", "before its first step"])
def test_stopping_before_anything_was_sent(moment):
    """A stop before the first request leaves a complete record without attempts."""
    client = Scripted(always())

    async def work(loop):
        driver = Driver(plan_of(a="x", b="{{ a }}"), Policy(), client, clock=loop.time)
        if moment:
            task = loop.create_task(driver.drive())
            await asyncio.sleep(0)
            driver.stop()
            await task
        else:
            driver.stop()
            await driver.drive()
        return driver.record

    record = run_virtually(work)
    assert {"cancelled"} == set(statuses(record).values())
    assert 1 == sum(isinstance(event, RunEnded) for event in record.events)
    assert not client.asked


def test_a_second_cancellation_changes_nothing():
    """Stop pressed twice: the record is complete, no task is left."""

    class Clinging(Scripted):
        async def send(self, request, stream):
            try:
                return await super().send(request, stream)
            finally:
                await asyncio.sleep(1.0)

    async def work(loop):
        driver = Driver(plan_of(a="x", b="y"), Policy(), Clinging(always(takes_s=50.0)), clock=loop.time)
        task = loop.create_task(driver.drive())
        loop.call_later(2.0, task.cancel)
        loop.call_later(2.5, task.cancel)
        await asyncio.wait({task})
        assert task.cancelled()
        return driver.record

    record = run_virtually(work)
    assert {"cancelled"} == set(statuses(record).values())
    assert record.ended_s is not None


class Stubborn(Scripted):
    """A client that answers a cancellation in its own way."""

    def __init__(self, way):
        super().__init__(always())
        self.way = way

    async def send(self, request, stream):
        """Answer a request."""
        try:
            await asyncio.sleep(100.0)
        except asyncio.CancelledError:
            return self.way()


def _breaks():
    raise Unreachable("closed")


def _answers():
    from agent_magic.record import Answer

    return Answer("after all", "end_turn", usage=Usage(1, output_tokens=1), model="m")


@pytest.mark.parametrize(("way", "status"), [(_breaks, "failed"), (_answers, "succeeded")])
def test_a_client_that_takes_a_cancellation_in_its_own_way(way, status):
    """An error or an answer in place of the cancellation is one result, and nothing complains afterwards."""
    record, _ = drive(Plan((Agent("a", "x", timeout_s=5.0),)), Stubborn(way))
    assert {"a": status} == statuses(record)
    assert 1 == sum(isinstance(event, AgentEnded) for event in record.events)


def test_what_was_bought_is_served_again():
    """A second run of the same plan sends nothing, has the same texts and costs nothing."""
    plan, ledger = plan_of(a="x", b="<{{ a }}>"), Ledger()
    first, _ = drive(plan, always(), ledger=ledger)
    second, client = drive(plan, always(text="other"), ledger=ledger)
    assert not client.asked
    assert [one.text for one in first.results] == [one.text for one in second.results]
    assert {"ledger"} == {one.source for one in second.results}
    assert [0.0, 0.0] == [one.cost_usd for one in second.results]
    assert first["a"].cost_usd > 0
    assert "paid before" == second.attempts[0].price.basis


def test_fresh_buys_again():
    """`fresh` sends all requests, and the new answers take the place of the old ones."""
    plan, ledger = plan_of(a="x"), Ledger()
    drive(plan, always(text="old"), ledger=ledger)
    fresh, client = drive(plan, always(text="new"), ledger=ledger, fresh=True)
    again, _ = drive(plan, always(text="never"), ledger=ledger)
    assert (1, "new", "new") == (len(client.asked), fresh["a"].text, again["a"].text)


def test_repeated_requests_have_answers_of_their_own():
    """Three agents with one prompt buy three answers, and get the same three again."""
    plan, ledger = plan_of(a="same", b="same", c="same"), Ledger()

    def script(_, number):
        return Reply(text=f"answer {number}")

    first, client = drive(plan, script, Policy(1, "sequential"), ledger=ledger)
    second, none = drive(plan, script, Policy(1, "sequential"), ledger=ledger)
    assert (3, 0, 3) == (len(client.asked), len(none.asked), len(ledger))
    assert ["answer 1", "answer 2", "answer 3"] == [one.text for one in second.results]
    assert [one.text for one in first.results] == [one.text for one in second.results]


CHANGES = {
    "model": {"model": "claude-opus-5-5"},
    "max_tokens": {"max_tokens": 5},
    "system": {"system": "s"},
    "effort": {"effort": "low"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_request_is_bought(change):
    """What changes the request changes its key; the deadline does not."""
    ledger = Ledger()
    drive(Plan((Agent("a", "x"),)), always(), ledger=ledger)
    _, client = drive(Plan((Agent("a", "x", **change),)), always(), ledger=ledger)
    assert 1 == len(client.asked)
    _, client = drive(Plan((Agent("b", "x", timeout_s=5.0),)), always(), ledger=ledger)
    assert 0 == len(client.asked)
    _, client = drive(Plan((Agent("a", "x"),)), Scripted(always(), endpoint="elsewhere"), ledger=ledger)
    assert 1 == len(client.asked)


@pytest.mark.parametrize("reply", [{"stop_reason": "refusal"}, {"source": "simulated"}], ids=str)
def test_what_must_not_be_served_again_is_not(reply):
    """Refusals and simulated answers are asked for again."""
    plan, ledger = plan_of(a="x"), Ledger()
    for _ in range(2):
        _, client = drive(plan, always(**reply), ledger=ledger)
        assert 1 == len(client.asked)


@pytest.mark.parametrize("policy", ["warn", "fail"])
def test_an_answer_cut_at_max_tokens_is_served_again(policy):
    """The same request would be cut the same: it is bought once, and again only with `fresh`."""
    plan, ledger = plan_of(a="x"), Ledger()
    asked = []
    for fresh in (False, False, True):
        cut = always(stop_reason="max_tokens")
        record, client = drive(plan, cut, Policy(on_max_tokens=policy), ledger=ledger, fresh=fresh)
        asked.append(len(client.asked))
        assert ("succeeded" if policy == "warn" else "failed") == record["a"].status
    assert [1, 0, 1] == asked


def test_own_prices_and_unknown_models():
    """The user's price counts; a model nobody knows costs unknown, with one warning for many agents."""
    plan = Plan((Agent("a", "x", model="mine"),))
    record, _ = drive(plan, always(tokens=(1_000_000, 1_000, 0, 0)), prices=Prices({"mine": TokenPrice(3, 4)}))
    assert (3.004, "given") == (record["a"].cost_usd, record.attempts[0].price.basis)
    plan = Plan(tuple(Agent(f"a{one}", f"x{one}", model="nobody's") for one in range(5)))
    with pytest.warns(PriceWarning) as caught:
        record, _ = drive(plan, always())
    assert 1 == len(caught)
    assert [None] * 5 == [one.cost_usd for one in record.results]


def test_the_cap_on_concurrency_holds():
    """At most so many requests are under way at once, waits between attempts left out."""
    plan = plan_of(**{f"a{one}": f"x{one}" for one in range(30)})

    def script(_, number):
        return Reply(1.0, Overloaded("full", status=529)) if number == 1 else Reply(1.0)

    for cap in (1, 3, 8):
        _, client = drive(plan, script, Policy(cap, seed=1))
        assert (cap, 60) == (client.peak, len(client.asked))


def test_an_empty_plan_runs():
    """Nothing to do is done at once."""
    record, _ = drive(Plan(()), always())
    assert (0.0, False) == (record.ended_s, record.cut)


def test_a_chain_of_two_thousand_runs():
    """Nothing recurses from one agent to the next."""
    agents = [Agent("n0", "x"), *(Agent(f"n{one}", "x", after=f"n{one - 1}") for one in range(1, 2000))]
    record, _ = drive(Plan(tuple(agents)), always())
    assert 2000.0 == record.ended_s


@given(histories())
def test_nobody_is_asked_before_its_parents_answered(history):
    """In every run each request goes out after the answers it is made from."""
    record, _ = history
    plan = record.plan
    done = {}
    for event in record.events:
        if isinstance(event, AgentEnded):
            done[event.agent] = event.status
        if isinstance(event, AgentReopened):
            assert "succeeded" != done.pop(event.agent)
        if isinstance(event, AttemptStarted):
            assert all(done.get(one) == "succeeded" for one in plan.dag.parents[event.agent])
            assert event.agent not in done


def busy_once(prompt, number):
    """A server that takes no request at first."""
    return Reply(1.0, RateLimited("busy", retry_after_s=3.0) if number == 1 and prompt == "a" else None)


def test_sequential_waits_for_a_step_that_waits():
    """Before its retry, and while its tool runs: the next step begins when it has ended, held by the schedule."""

    @am.task
    async def slow():
        await asyncio.sleep(5)

    plan = am.Plan([am.Agent("a", "a"), slow, am.Agent("b", "b"), am.Agent("c", "c")])
    record, _ = drive(plan, busy_once, Policy(8, "sequential", seed=1))
    a, slow_one, b, c = record.results
    assert [a.finished_s, slow_one.finished_s, b.finished_s] == [slow_one.started_s, b.started_s, c.started_s]
    assert 5.0 <= a.finished_s <= 5.3
    assert ["schedule"] * 3 == [slow_one.calls[0].held_by, b.attempts[0].held_by, c.attempts[0].held_by]
    assert "limited by its schedule, one step at a time" in run_line(record)
