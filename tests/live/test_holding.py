"""Runs that meet a sick service, a refused key, a limit or a rate of spending: what they cost, and what they say."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import asyncio

import pytest

from agent_magic import Limits, TokenPrice
from agent_magic.api import Agent, Claude, Ledger, Plan, Policy, Run
from agent_magic.engine import Key, Pacer
from agent_magic.errors import Overloaded, RateLimited, Rejected
from agent_magic.live import Driver
from agent_magic.record import Prices
from agent_magic.show import capped_note
from tests.live.virtual import MODEL, Reply, Scripted, drive, run_virtually
from tests.providers.wire import serving

FULL = Overloaded("full", status=529)
REFUSED = (
    b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    b'{"type":"error","error":{"type":"authentication_error","message":"invalid key"}}'
)


def many(count):
    """So many agents, each with its own prompt."""
    return Plan(tuple(Agent(f"a{one}", f"p{one}") for one in range(count)))


def test_a_dead_service_costs_a_few_calls():
    """100 agents, everything fails: not 300 calls but what finds it out, and a probe now and then for a minute."""
    policy = Policy(8, seed=1)
    record, client = drive(many(100), lambda *_: Reply(0.2, error=FULL, status=529), policy, pacer=Pacer(seed=1))
    assert len(client.asked) <= 40
    assert 60 <= record.ended_s <= 100
    told = [result.error for result in record.results if result.status == "cancelled"]
    assert len(told) > 60
    assert all(error.startswith("Breaker: the service has failed for") for error in told)
    assert all("Run it again later" in error for error in told)


def test_without_a_breaker_every_agent_has_its_attempts():
    """`breaker_share=None`: three calls for each."""
    policy = Policy(8, breaker_share=None, seed=1)
    _, client = drive(many(20), lambda *_: Reply(0.2, error=FULL, status=529), policy, pacer=Pacer(seed=1))
    assert 60 == len(client.asked)


def test_a_service_that_recovers_is_used_again():
    """Five seconds of failures: one at a time until it answers, then all; nobody fails."""
    seen = []

    def look(driver):
        seen.append((driver.health().level, driver.health().breakers, {driver.held_by(one) for one in range(40)}))

    async def work(loop):
        began = loop.time()

        def script(*_):
            sick = loop.time() - began < 5.0
            return Reply(0.2, error=FULL if sick else None, status=529 if sick else 200)

        client = Scripted(script)
        policy = Policy(8, max_attempts=8, seed=1)
        driver = Driver(many(40), policy, client, clock=loop.time, pacer=Pacer(seed=1))
        loop.call_later(3.0, look, driver)
        await driver.drive()
        return driver, client

    driver, client = run_virtually(work)
    assert {"succeeded"} == {result.status for result in driver.record.results}
    assert ("bad", "breaker" in seen[0][2]) == (seen[0][0], True)
    assert "attempts failed" in seen[0][1][0]
    assert len(client.asked) <= 40 + 40
    assert () == driver.health().breakers


def test_dollars_a_minute_are_kept():
    """Ten requests of at most a dollar, two dollars a minute: the run takes the minutes it needs."""
    price = Prices({MODEL: TokenPrice(input=0.0, output=1_000_000 / 2048)})
    policy = Policy(8, max_usd_per_min=2.0, seed=1)
    record, _ = drive(many(6), lambda *_: Reply(1.0, tokens=(1, 2048, 0, 0)), policy, prices=price)
    assert {"succeeded"} == {result.status for result in record.results}
    ends = sorted(one.ended_s for one in record.attempts)
    assert all(later - first >= 60.0 for first, later in zip(ends, ends[2:], strict=False))
    assert 120.0 <= record.ended_s <= 125.0


def test_a_refusal_of_the_key_costs_one_call_whatever_the_concurrency(monkeypatch):
    """F08: twenty agents leave at once, the key is wrong: one call, and all the others say why they were not sent."""
    monkeypatch.setattr("agent_magic.engine.admission.pool.PATIENCE_S", 60.0)  # a slow machine answers late

    async def work():
        async with serving(REFUSED) as server:
            run = await many(20).run(Policy(20), client=Claude(base_url=server.url, api_key="wrong-key"))
            again = await many(3).run(Policy(20), client=Claude(base_url=server.url, api_key="wrong-key"))
            return run, again, server.calls

    run, again, calls = asyncio.run(work())
    assert 2 == calls
    assert ["failed"] + ["cancelled"] * 19 == sorted(run.agents["status"], reverse=True)
    assert "ANTHROPIC_API_KEY" in " ".join(run.agents["error"])
    assert not again.ok


def test_the_first_request_of_a_client_goes_ahead_and_no_other():
    """The rest leave when its reply begins, at the latest after half a second; a second run waits for nothing."""

    def client(first_s):
        scripted = Scripted(lambda *_: Reply(2.0, first_s=first_s))
        scripted.credentials = Key()
        return scripted

    slow = client(1.5)
    record, _ = drive(many(4), slow, Policy(4, seed=1))
    assert [0.0, 0.5, 0.5, 0.5] == [one.started_s for one in record.attempts]
    assert {"", "key"} == {one.held_by for one in record.attempts}
    assert slow.credentials.accepted
    record, _ = drive(many(4), slow, Policy(4, seed=1))
    assert [0.0] * 4 == [one.started_s for one in record.attempts]


def test_a_refused_key_is_refused_for_the_next_run_too():
    """Nothing is known of it afterwards: the next run sends one request ahead again."""
    client = Scripted(lambda *_: Reply(0.1, error=Rejected("key", status=401), status=401))
    client.credentials = Key()
    for calls in (1, 2):
        drive(many(9), client, Policy(9, seed=1))
        assert calls == len(client.asked)


def test_being_told_to_wait_uses_up_no_attempt():
    """F05: five refusals in a row with `retry-after` and two attempts allowed: it waits, and succeeds."""

    def script(_, number):
        return Reply(0.1, error=RateLimited("busy", retry_after_s=2.0) if number <= 5 else None)

    record, client = drive(many(1), script, Policy(max_attempts=2, seed=1))
    assert ("succeeded", 6) == (record["a0"].status, len(client.asked))
    assert all(one.backoff_s >= 2.0 for one in record["a0"].attempts[1:])
    assert {"backoff"} == {one.held_by for one in record["a0"].attempts[1:]}


def test_being_told_to_wait_ends_at_the_deadline():
    """F06: it never clears, and the agent fails at its deadline, not after; other failures still count."""

    def script(_, number):
        return Reply(0.1, error=RateLimited("busy", retry_after_s=2.0) if number != 2 else FULL)

    record, _ = drive(many(1), script, Policy(max_attempts=2, timeout_s=30.0, seed=1))
    assert "failed" == record["a0"].status
    assert record.ended_s <= 30.0
    record, client = drive(many(1), lambda *_: Reply(0.1, error=FULL), Policy(max_attempts=2, seed=1))
    assert 2 == len(client.asked)


def test_being_told_to_wait_for_longer_than_there_is_ends_the_rest_at_once():
    """Nobody sits there until a date far away: those who wait are cancelled, and the next run is told the same."""

    def script(*_):
        return Reply(0.1, error=RateLimited("busy", retry_after_s=1e11), status=429)

    pacer = Pacer()
    record, client = drive(many(20), script, Policy(2, timeout_s=60.0, seed=1), pacer=pacer)
    assert record.ended_s < 1.0
    assert len(client.asked) == 1  # until its reply begins, nothing is known of limits
    assert ["failed"] + ["cancelled"] * 19 == [one.status for one in record.results]
    assert "retry-after is" in record.results[-1].error
    _, client = drive(many(3), script, Policy(2, timeout_s=60.0, seed=1), pacer=pacer)
    assert not client.asked
    later, client = drive(many(3), lambda *_: Reply(0.1), Policy(2, timeout_s=3700.0, seed=1), pacer=pacer)
    assert {"succeeded"} == {one.status for one in later.results}  # who has the time waits, an hour at most
    assert 3500 < later.ended_s < 3700


def test_one_attempt_is_one_attempt():
    """`max_attempts=1` sends one request, whatever the answer."""
    record, client = drive(
        many(1), lambda *_: Reply(0.1, error=RateLimited("busy", retry_after_s=1.0)), Policy(max_attempts=1)
    )
    assert ("failed", 1) == (record["a0"].status, len(client.asked))


@pytest.mark.parametrize(("counts", "status", "ended_s"), [("work", "succeeded", 12.0), ("total", "failed", 8.0)])
def test_a_deadline_counts_work_or_everything(counts, status, ended_s):
    """Waiting six seconds for a slot is free, or it is not."""
    policy = Policy(1, timeout_s=8.0, timeout_counts=counts)
    record, _ = drive(many(2), lambda *_: Reply(6.0), policy)
    assert (status, ended_s) == (record["a1"].status, record.ended_s)


def test_health_of_a_quiet_run_and_of_a_busy_one():
    """The limit, what is used of it, and whether the user gave it; refusals and retries; the level and its reason."""
    plan = many(12)

    def script(prompt, number):
        refused = prompt == "p3" and number == 1
        return Reply(
            1.0, first_s=None if refused else 0.5, error=RateLimited("x", retry_after_s=1.0) if refused else None
        )

    pacer = Pacer({MODEL: Limits(15, 1_000_000, burst_s=60)}, seed=1)
    seen = []
    record, _ = drive(plan, script, Policy(12, seed=1), pacer=pacer, controls=[(0.9, "look", seen.append)])
    driver = seen.pop()
    health = driver.health()
    assert health is driver.health()
    requests = health.limits[0]
    assert ("requests", MODEL, 15, "given") == (
        requests.kind,
        requests.model_class,
        requests.limit_per_min,
        requests.source,
    )
    assert (1, 1, 0.5) == (health.refusals, health.retries, health.latency_s)
    assert "bad" == health.level
    assert "of the limit" in health.reason
    assert "429s 1 · retries 1" in str(health)
    assert health == Run(record, driver).health
    quiet, _ = drive(many(2), lambda *_: Reply(1.0, first_s=0.25))
    alone = Run(quiet).health
    assert ("ok", "", 0, 0, 0.25) == (alone.level, alone.reason, alone.refusals, alone.retries, alone.latency_s)
    assert "Health(ok · limits unknown · first token 0.2 s" in repr(alone)


def test_slower_answers_are_a_trend():
    """The median of recent answers against those before."""
    record, _ = drive(many(20), lambda prompt, _: Reply(9.0, first_s=1.0 if int(prompt[1:]) < 10 else 4.0), Policy(1))
    health = Run(record).health
    assert (4.0, 3.0, "warn") == (health.latency_s, health.latency_trend_s, health.level)
    assert "first tokens take 4.0 s" == health.reason


@pytest.mark.parametrize(("policy", "statuses"), [("fail", ["failed", "skipped"]), ("warn", ["succeeded"] * 2)])
def test_a_refusal_is_passed_on_where_the_policy_says_so(policy, statuses):
    """F14: the row is flagged, the descendants get the text or are skipped, and it is never served again."""
    plan = Plan((Agent("a", "a"), Agent("b", "b {{ a }}")))
    ledger = Ledger()

    def script(prompt, _):
        return Reply(1.0, text="I must decline.", stop_reason="refusal" if prompt == "a" else "end_turn")

    record, client = drive(plan, script, Policy(on_refusal=policy), ledger=ledger)
    assert statuses == [one.status for one in record.results]
    assert "refusal" == record["a"].stop_reason
    assert ("Refused: a." in capped_note(record, Policy(on_refusal="warn"))) == (policy == "warn")
    assert "" == capped_note(record, Policy(on_refusal="allow"))
    before = len(client.asked)
    drive(plan, client, Policy(on_refusal=policy), ledger=ledger)
    assert "a" in [one.prompt for one in client.asked[before:]]


def test_answers_that_are_there_do_not_hold_up_an_untried_key():
    """Nothing of them is sent, so nothing is learned of the key: the first that is really sent goes ahead at once."""
    from agent_magic.api import Ledger
    from agent_magic.engine import Key

    ledger, texts = Ledger(), {f"a{one}": f"question {one}" for one in range(6)}
    drive(Plan([Agent(name, text) for name, text in list(texts.items())[:4]]), lambda *_: Reply(1.0), ledger=ledger)
    client = Scripted(lambda *_: Reply(2.0, first_s=0.25))
    client.credentials = Key()
    record, _ = drive(Plan([Agent(name, text) for name, text in texts.items()]), client, ledger=ledger)
    assert [0.0] * 5 == [one.started_s for one in record.results[:5]]
    assert ["ledger"] * 4 + ["live"] * 2 == [one.source for one in record.results]
    assert 0.0 < record["a5"].started_s <= 0.5


def test_what_was_stopped_before_it_left_gives_its_room_back():
    """A stop may come between a launch and its request: the pacer counts nothing, and the key is still untried."""
    pacer, key = Pacer(seed=1), Key()
    client = Scripted(lambda *_: Reply(1.0))
    client.credentials = key

    async def work(loop):
        client.loop = loop
        driver = Driver(many(3), Policy(3, seed=1), client, pacer=pacer, clock=loop.time)
        run = loop.create_task(driver.drive())
        loop.call_soon(driver.stop)
        await run
        return driver.record

    record = run_virtually(work)
    assert [] == client.asked
    assert {"cancelled"} == {result.status for result in record.results}
    assert 0 == sum(one.under_way for one in pacer.health(1.0).values())
    assert key.wait_until_s(0.0) is None


def test_an_empty_answer_is_said():
    """An answer without text is passed on, and named: its children ask with nothing in its place."""
    record, _ = drive(many(2), lambda prompt, _: Reply(0.1, text="" if prompt.endswith("1") else "x"), Policy(seed=1))
    assert ["succeeded"] * 2 == [one.status for one in record.results]
    assert "Empty answer: a1." in capped_note(record, Policy())
