"""The real SDK over real HTTP: every way a call can end, with the calls made and the rows it leaves."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false
# pyright: reportOptionalOperand=false

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from anthropic import AsyncAnthropic, DefaultAioHttpClient

from agent_magic import Agent, Claude, Policy
from agent_magic.api import Ledger, Run, start
from agent_magic.declare import Plan
from agent_magic.errors import NotConnected, Rejected
from agent_magic.live import Driver
from agent_magic.providers import as_provider, retry_after_s
from agent_magic.record import Request, Usage
from tests.providers.wire import (
    BEGIN,
    CLOSE,
    MESSAGE,
    OPEN,
    REASON,
    STOP,
    TEXT,
    WHOLE,
    delta,
    event,
    problem,
    reply,
    serving,
    tasks_left,
    until,
)

ONCE = Policy(max_attempts=1)
KEY = "a-secret-key-of-a-test"


def one(prompt="x", **options):
    """A plan of one agent."""
    return Plan((Agent("a", prompt, **options),))


async def run_at(url, plan=None, policy=ONCE, **more):
    """Run a plan against a server."""
    driver = Driver(plan or one(), policy, Claude(base_url=url, api_key=KEY), **more)
    await driver.drive()
    return driver.record


def within(work):
    """Run something on a new loop, 45 seconds at most: what hangs is found, a slow machine is not."""

    async def limited():
        async with asyncio.timeout(45):
            return await work

    return asyncio.run(limited())


def meet(answer, plan=None, policy=ONCE, **more):
    """Run against a server; return the record and what the server saw."""

    async def work():
        async with serving(answer) as server:
            record = await run_at(server.url, plan, policy, **more)
            await until(lambda: not tasks_left())  # the SDK leaves the closing of a generator to the loop
        return record, server

    return within(work())


def test_an_answer():
    """Text, tokens, stop reason, model, id and status of a whole stream; one call."""
    record, server = meet(reply(WHOLE, request_id="req_7"))
    result = record["a"]
    assert ("succeeded", "hello world", "end_turn", "live", 1) == (
        result.status,
        result.text,
        result.stop_reason,
        result.source,
        server.calls,
    )
    assert Usage(10, cache_read_tokens=3, cache_write_tokens=4, output_tokens=5) == result.usage
    assert ("claude-haiku-5-5-20261001", "req_7", 200) == (
        result.answer.model,
        result.answer.request_id,
        result.attempts[0].status_code,
    )
    assert result.ttft_s is not None


def test_what_goes_out():
    """The body of the Messages API, streamed, and the key as the SDK sends it."""
    _, server = meet(reply(WHOLE), one("hi 😀", model="claude-sonnet-5-5", max_tokens=9, system="s", effort="high"))
    assert {
        "model": "claude-sonnet-5-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi 😀"}],
        "system": "s",
        "output_config": {"effort": "high"},
        "stream": True,
    } == server.bodies[0]
    assert KEY in str(server.heads[0])
    assert "0" == server.heads[0]["x-stainless-retry-count"]


def cut(body):
    """Announce more than is sent."""
    return reply(body, length=99_999)


async def _reset(writer, _number):
    writer.transport.abort()
    await asyncio.sleep(0)


E529 = event("error", error={"type": "overloaded_error", "message": "full"})
# what is sent, calls with three attempts allowed, error class, text kept, http status, tokens (input, output)
FAULTS = {
    "F06 429 for long": (problem(429, retry_after="300"), 1, "RateLimited", "", 429, (0, 0)),
    "F06 429 for ever": (problem(429, retry_after="4294967"), 1, "RateLimited", "", 429, (0, 0)),
    "spend limit": (problem(429, code="enforced_spend_limit_reached"), 1, "RateLimited", "", 429, (0, 0)),
    "ramp limit": (problem(429, code="ramp_limit_exceeded", retry_after="300"), 1, "RateLimited", "", 429, (0, 0)),
    "F07 500": (problem(500, "api_error"), 3, "Overloaded", "", 500, (0, 0)),
    "F07 529": (problem(529, "overloaded_error"), 3, "Overloaded", "", 529, (0, 0)),
    "F07 502 page": (reply(b"<html>502", 502, "text/html"), 3, "Overloaded", "", 502, (None, None)),
    "F07 503 page": (reply(b"<html>503", 503, "text/html"), 3, "Overloaded", "", 503, (0, 0)),
    "504": (problem(504, "timeout_error"), 3, "Overloaded", "", 504, (None, None)),
    "524 page": (reply(b"<html>524", 524, "text/html"), 3, "Overloaded", "", 524, (None, None)),
    "408": (problem(408), 3, "Overloaded", "", 408, (None, None)),  # the model may have worked meanwhile
    "409": (problem(409), 3, "Overloaded", "", 409, (0, 0)),
    "F08 400": (problem(400, "invalid_request_error"), 1, "Rejected", "", 400, (0, 0)),
    "F08 401": (problem(401, "authentication_error"), 1, "Rejected", "", 401, (0, 0)),
    "402": (problem(402, "billing_error"), 1, "Rejected", "", 402, (0, 0)),
    "F08 403": (problem(403, "permission_error"), 1, "Rejected", "", 403, (0, 0)),
    "F08 404": (problem(404, "not_found_error"), 1, "Rejected", "", 404, (0, 0)),
    "413": (problem(413, "request_too_large"), 1, "Rejected", "", 413, (0, 0)),
    "418 without a body": (reply(b"", 418, None), 1, "Rejected", "", 418, (0, 0)),
    "F09 reset": (_reset, 3, "Unreachable", "", None, (None, None)),
    "F09 no HTTP": (b"hello\r\n\r\n", 3, "Unreachable", "", None, (None, None)),
    "F11 clean end": (reply(BEGIN + OPEN + TEXT), 2, "Truncated", "hello world", 200, (20, 6)),
    "F11 clean end before a text": (reply(BEGIN), 2, "Truncated", "", 200, (20, 2)),
    "F11 empty": (reply(b"", length=0), 2, "Truncated", "", 200, (None, None)),
    "F12 cut": (cut(BEGIN + OPEN + TEXT), 3, "Unreachable", "hello world", 200, (30, 9)),
    "F12 error event": (reply(BEGIN + OPEN + TEXT + E529), 3, "Overloaded", "hello world", 200, (30, 9)),
    "F12 error event of ours": (
        reply(BEGIN + event("error", error={"type": "invalid_request_error", "message": "m"})),
        1,
        "Rejected",
        "",
        200,
        (10, 1),
    ),
    "F12 unknown error event": (
        reply(BEGIN + event("error", error={"type": "new_error"})),
        3,
        "Overloaded",
        "",
        200,
        (30, 3),
    ),
    "F13 broken JSON": (reply(BEGIN + b"event: message_delta\ndata: {oops\n\n"), 2, "Unreadable", "", 200, (20, 2)),
    "F13 page": (reply(b"<html>" + b"x" * 5000, 200, "text/html"), 2, "Unreadable", "", 200, (None, None)),
    "F13 broken body": (reply(b'{"type": "mess', 200, "application/json"), 2, "Unreadable", "", 200, (None, None)),
    "a list": (reply(b"[]", 200, "application/json"), 2, "Unreadable", "", 200, (None, None)),
    "204": (reply(b"", 204, None), 2, "Unreadable", "", 204, (None, None)),
    "null delta": (
        reply(BEGIN + OPEN + event("content_block_delta", index=0, delta=None)),
        2,
        "Truncated",
        "",
        200,
        (20, 2),
    ),
    "null text": (reply(BEGIN + OPEN + delta("hi") + delta(None)), 2, "Truncated", "hi", 200, (20, 2)),
    "null ending": (
        reply(BEGIN + OPEN + TEXT + event("message_delta", delta=None, usage=None)),
        2,
        "Truncated",
        "hello world",
        200,
        (20, 6),
    ),
    "content that is a text": (
        reply(json.dumps({**MESSAGE, "content": "x"}).encode(), kind="application/json"),
        2,
        "Unreadable",
        "",
        200,
        (None, None),
    ),
    "whole, unfinished": (
        reply(json.dumps({**MESSAGE, "stop_reason": None}).encode(), kind="application/json"),
        2,
        "Truncated",
        "hello world",
        200,
        (20, 10),
    ),
}


@pytest.fixture
def quick(monkeypatch):
    """Shorten the ordinary waits between attempts, which are tested on a virtual clock."""
    from agent_magic.engine import retry

    monkeypatch.setattr(retry, "FIRST_BACKOFF_S", 0.001)


@pytest.mark.parametrize(("answer", "calls", "kind", "text", "status", "tokens"), FAULTS.values(), ids=FAULTS)
def test_faults(quick, answer, calls, kind, text, status, tokens):
    """Each fault: how many calls it costs, how it is named, what is kept of the text, the tokens of all attempts."""
    record, server = meet(answer, one(timeout_s=60.0), Policy(max_attempts=3))
    result = record["a"]
    assert ("failed", calls, calls) == (result.status, server.calls, len(result.attempts))
    assert {kind} == {attempt.kind for attempt in result.attempts}
    assert {status} == {attempt.status_code for attempt in result.attempts}
    assert (text, None) == (result.text, result.answer)
    assert tokens == (result.usage.input_tokens, result.usage.output_tokens)
    assert result.error.startswith(f"{kind}: ")
    assert len(result.error) < 500
    assert "\n" not in result.error


ANSWERS = {
    "broken after the stop reason": (cut(BEGIN + OPEN + TEXT + CLOSE + REASON), 5),
    "broken after the end": (cut(WHOLE), 5),
    "an error event after the stop reason": (reply(BEGIN + OPEN + TEXT + CLOSE + REASON + E529), 5),
    "unknown events": (
        reply(
            BEGIN
            + event("shiny", x=1)
            + OPEN
            + TEXT
            + event("content_block_delta", index=0, delta={"type": "glow"})
            + REASON
            + STOP
        ),
        5,
    ),
    "pings": (
        reply(b"event: ping\ndata: {}\n\n" + BEGIN + b"event: ping\ndata: {}\n\n" + OPEN + TEXT + REASON + STOP),
        5,
    ),
    "no message_stop": (reply(BEGIN + OPEN + TEXT + REASON), 5),
    "two endings": (
        reply(
            BEGIN
            + OPEN
            + TEXT
            + event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 4})
            + REASON
            + STOP
        ),
        5,
    ),
    "whole": (reply(json.dumps(MESSAGE).encode(), kind="application/json"), 5),
    "no usage at the end": (
        reply(BEGIN + OPEN + TEXT + event("message_delta", delta={"stop_reason": "end_turn"}) + STOP),
        3,
    ),
    "usage as text": (
        reply(
            BEGIN
            + OPEN
            + TEXT
            + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": "many"})
            + STOP
        ),
        3,
    ),
}


@pytest.mark.parametrize(("answer", "output"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_with_a_stop_reason_is_an_answer(answer, output):
    """However odd the rest is, what is complete and paid for counts, after one call."""
    record, server = meet(answer, policy=Policy(max_attempts=3))
    result = record["a"]
    assert ("succeeded", "hello world", 1) == (result.status, result.text, server.calls)
    assert (10, output) == (result.usage.input_tokens, result.usage.output_tokens)


NAMES = re.compile(rb"event: \w+\n")


@pytest.mark.parametrize("name", [b"", b"event:\n"], ids=["none", "empty"])
def test_events_without_names_are_read(name):
    """Some servers leave the `event:` lines out. The data say what they are: nothing is bought twice for that."""
    record, server = meet(
        reply(NAMES.sub(name, WHOLE) + b": a comment\n\ndata: [DONE]\n\n"), policy=Policy(max_attempts=3)
    )
    result = record["a"]
    assert ("succeeded", "hello world", 1, 5) == (result.status, result.text, server.calls, result.usage.output_tokens)


def test_an_error_event_without_a_name_is_an_error():
    """It is told from a stream that just ends."""
    record, _ = meet(reply(NAMES.sub(b"", BEGIN + OPEN + TEXT + E529)))
    assert ("Overloaded", "hello world") == (record["a"].attempts[0].kind, record["a"].text)


def test_without_usage_tokens_are_unknown():
    """A reply that never counts: unknown, not 0, and so is its cost."""
    body = (
        event("message_start", message={"model": "m"})
        + OPEN
        + TEXT
        + event("message_delta", delta={"stop_reason": "end_turn"})
    )
    record, _ = meet(reply(body))
    assert (None, None, None) == (record["a"].usage.input_tokens, record["a"].usage.output_tokens, record["a"].cost_usd)
    assert "hello world" == record["a"].text


@pytest.mark.parametrize("count", [-5, 10**30, 2.5, True, "12", None, [1]], ids=repr)
def test_a_count_that_cannot_be_is_unknown(count):
    """Nothing is priced by it, and the frames can be made."""
    usage = {"input_tokens": count, "output_tokens": count}
    start = event("message_start", message={"model": "claude-haiku-5-5", "usage": usage})
    ending = event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage)
    record, _ = meet(reply(start + OPEN + TEXT + ending + STOP))
    assert (None, None, None) == (record["a"].usage.input_tokens, record["a"].usage.output_tokens, record["a"].cost_usd)
    assert Run(record).agents["input_tokens"].isna().all()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_prompt_and_key_do_not_follow_a_redirect(status):
    """The API never sends anybody elsewhere: it is one call, and nobody else hears of it."""

    async def main():
        async with serving(reply(WHOLE)) as elsewhere, serving(reply(b"", status, location=elsewhere.url)) as server:
            driver = start(one(), Policy(max_attempts=3), client=Claude(base_url=server.url, api_key=KEY))
            await driver.drive()
            return driver.record["a"], server.calls, elsewhere.calls

    result, calls, heard = asyncio.run(main())
    assert ("Rejected", 1, 0) == (result.attempts[0].kind, calls, heard)
    assert str(status) in result.error


@pytest.mark.parametrize(("reason", "kind"), [("refusal", "Refused"), ("max_tokens", None), ("stop_sequence", None)])
def test_how_it_stopped(reason, kind):
    """F14: a refusal is a failure of one call, with its category; a cut answer is an answer, flagged."""
    details = {"stop_details": {"type": "refusal", "category": "cyber", "explanation": "e"}} if kind else {}
    ending = event("message_delta", delta={"stop_reason": reason, **details}, usage={"output_tokens": 5})
    ledger = Ledger()
    record, server = meet(reply(BEGIN + OPEN + TEXT + ending + STOP), policy=Policy(), ledger=ledger)
    result = record["a"]
    assert (kind, reason, 1) == (result.attempts[0].kind, result.stop_reason, server.calls)
    assert ("cyber" in (result.error or "")) == (kind == "Refused")
    assert "hello world" == result.text
    assert (kind is None) == bool(len(ledger)), "only a refusal is not served again"


def test_a_thought_counts_as_the_first_token():
    """Time to first token ends with the first delta of any kind, and thinking is no text."""
    thought = event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"})
    record, _ = meet(reply(BEGIN + OPEN + thought + TEXT + REASON + STOP))
    assert "hello world" == record["a"].text
    assert record["a"].ttft_s is not None


def test_a_wait_the_server_asks_for_is_kept(quick):
    """F05: after `retry-after: 1` the next call comes a second later or more, and the agent succeeds."""

    async def answer(writer, number):
        writer.write(problem(429, "rate_limit_error", retry_after="1") if number == 1 else reply(WHOLE))
        await writer.drain()

    record, server = meet(answer, policy=Policy())
    first, second = record["a"].attempts
    assert ("succeeded", 2) == (record["a"].status, server.calls)
    assert second.started_s - first.ended_s >= 1.0
    assert second.backoff_s >= 1.0


def date(seconds):
    """An HTTP date so many seconds from now."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


DEMANDS = {
    "seconds": ("7", 7.0),
    "fractions": ("0.5", 0.5),
    "nothing": ("0", 0.0),
    "in the past": (date(-100), 0.0),
    "below zero": ("-5", 0.0),
    "nonsense": ("soon", None),
    "empty": ("", None),
    "no number": ("nan", None),
    "a far year": ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None),
    "no zone": ("Wed, 21 Oct 2099 07:28:00 -0000", None),
}


@pytest.mark.parametrize(("value", "seconds"), DEMANDS.values(), ids=DEMANDS)
def test_retry_after_is_read_in_all_its_forms(value, seconds):
    """Seconds or a date; what makes no sense is none."""
    assert seconds == retry_after_s({"retry-after": value})


def test_retry_after_reads_a_date_to_come():
    """A date counts from now."""
    assert 90 < retry_after_s({"retry-after": date(100)}) <= 100
    assert retry_after_s({}) is None


def test_a_401_stops_a_run_of_twenty_after_one_call():
    """F08: one call for twenty agents one after another, and every row says why."""
    plan = Plan(tuple(Agent(f"a{number}", f"x{number}") for number in range(20)))
    record, server = meet(problem(401, "authentication_error", "invalid key"), plan, Policy(1))
    assert 1 == server.calls
    assert ["failed", *["cancelled"] * 19] == [result.status for result in record.results]
    assert all("invalid key" in result.error for result in record.results)


ECHOES = {"the key": KEY, "a key by its looks": "sk-ant-api03-abc_DEF-123", "a header": "Bearer whatever-it-is"}


def _echoes():
    for form in ("error", "page", "event"):
        for name, secret in ECHOES.items():
            yield pytest.param(secret, form, id=f"{form}, {name}")


@pytest.mark.parametrize(("secret", "form"), list(_echoes()))
def test_a_key_that_a_server_sends_back_is_not_shown(secret, form, monkeypatch):
    """No message, repr or row has it, whatever part of a reply it was in."""
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another-secret-token")
    said = f"wrong: {secret} and another-secret-token"
    answer = {
        "error": problem(400, message=said),
        "page": reply(said.encode(), 200, "text/html"),
        "event": reply(BEGIN + event("error", error={"type": "invalid_request_error", "message": said})),
    }[form]
    record, _ = meet(answer)
    for text in (record["a"].error, repr(record.results), repr(record.events)):
        assert "wrong" in text
        assert secret not in text
        assert "another-secret-token" not in text


def test_surrogates_neither_break_a_request_nor_leave_an_answer():
    """F29: halves of characters in prompts, system prompts, answers and error messages are joined or replaced."""
    record, server = meet(
        reply(BEGIN + OPEN + delta("\ud83d") + delta("\ude00\ud800") + REASON + STOP), one("p\ud800", system="s\ud800")
    )
    assert ("p\ufffd", "s\ufffd") == (server.bodies[0]["messages"][0]["content"], server.bodies[0]["system"])
    assert "😀\ufffd" == record["a"].text
    record, _ = meet(problem(400, message="bad \ud800"))
    assert record["a"].error.encode()


TEXTS = ["a\0b", "\u202eab", "é😀\U0010ffff", "\x7f\x1b[31m", "\r\n\t", "{{ x }}", "x" * 200_000]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:12]))
def test_texts_pass_unchanged(text):
    """F29: what a model writes arrives byte for byte, and a prompt leaves so."""
    record, server = meet(
        reply(BEGIN + OPEN + delta(text) + REASON + STOP), Plan((Agent("a", "{{ t }}!"),), {"t": text})
    )
    assert text == record["a"].text
    assert f"{text}!" == server.bodies[0]["messages"][0]["content"]


async def _hang(_writer, _number):
    await asyncio.Event().wait()


async def _stall(writer, _number):
    writer.write(reply(BEGIN + OPEN + TEXT))
    await writer.drain()
    await asyncio.Event().wait()


async def _drip(writer, _number):
    writer.write(reply(BEGIN + OPEN))
    while True:
        writer.write(delta("x"))
        await writer.drain()
        await asyncio.sleep(0.02)


async def _linger(writer, _number):
    writer.write(reply(WHOLE))
    await writer.drain()
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answer", "text"), [(_hang, ""), (_stall, "hello world"), (_drip, None)], ids=["hang", "stall", "drip"]
)
def test_a_deadline_ends_what_hangs_stalls_or_drips(answer, text):
    """F10: `Late` at the deadline, one call, the text so far kept, and the server sees the client go."""
    record, server = meet(answer, one(timeout_s=2.0), Policy())  # what is sent at once has arrived by then
    result = record["a"]
    assert ("failed", "Late", 1) == (result.status, result.attempts[0].kind, server.calls)
    assert result.total_s >= 2.0
    assert text is None or text == result.text
    assert (result.usage.estimated, result.usage.input_tokens) == ((True, 10) if answer is not _hang else (False, None))


def test_an_answer_does_not_wait_for_its_connection_to_close():
    """A server that holds the connection behind `message_stop` costs no time up to the deadline."""
    record, server = meet(_linger, one(timeout_s=60.0))
    assert ("succeeded", "hello world", 1) == (record["a"].status, record["a"].text, server.calls)


def test_stopping_a_run_ends_every_request():
    """Cancelled mid-flight: rows complete, text and estimated tokens kept, no task left, every connection closed."""
    plan = Plan((*(Agent(f"a{number}", f"x{number}") for number in range(5)), Agent("late", "{{ a0 }}")))

    async def work():
        async with serving(_stall) as server:
            driver = Driver(plan, Policy(3), Claude(base_url=server.url, api_key=KEY))
            task = asyncio.ensure_future(driver.drive())
            await until(lambda: sum(bool(stream.parts) for stream in driver.streams.values()) == 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not tasks_left()
        return driver.record, server

    record, server = within(work())
    assert {"cancelled"} == {result.status for result in record.results}
    assert (True, 3, 3) == (record.cut, server.calls, server.gone)
    sent = [result for result in record.results if result.attempts]
    assert ["hello world"] * 3 == [result.text for result in sent]
    assert [(10, 3, True)] * 3 == [
        (result.usage.input_tokens, result.usage.output_tokens, result.usage.estimated) for result in sent
    ]
    assert all(result.cost_usd > 0 for result in sent)


def test_stopping_one_agent_leaves_the_others():
    """One request ends, its child is skipped, the others get their answers."""

    async def answer(writer, _number):
        writer.write(reply(BEGIN + OPEN + TEXT))
        await writer.drain()
        await release.wait()
        writer.write(REASON + STOP)
        await writer.drain()

    async def work():
        nonlocal release
        release = asyncio.Event()
        plan = Plan((Agent("a", "x"), Agent("b", "y"), Agent("c", "{{ a }}")))
        async with serving(answer) as server:
            driver = Driver(plan, Policy(), Claude(base_url=server.url, api_key=KEY))
            task = asyncio.ensure_future(driver.drive())
            await until(lambda: sum(bool(stream.parts) for stream in driver.streams.values()) == 2)
            driver.stop(["a"])
            await server.left.wait()
            release.set()
            await task
        return driver.record

    release = None
    record = within(work())
    assert ["cancelled", "succeeded", "skipped"] == [result.status for result in record.results]
    assert not record.cut


def test_the_server_never_sees_more_than_the_cap():
    """With a concurrency of 4, twenty agents are at most four requests at once, each on the wire."""

    async def answer(writer, _number):
        await asyncio.sleep(0.01)
        writer.write(reply(WHOLE))
        await writer.drain()

    plan = Plan(tuple(Agent(f"a{number}", f"x{number}") for number in range(20)))
    record, server = meet(answer, plan, Policy(4))
    assert (20, 4) == (server.calls, server.peak)
    assert {"succeeded"} == {result.status for result in record.results}


def test_a_client_of_one_s_own_is_used_and_left_open():
    """An `AsyncAnthropic` keeps its settings, makes no retries of its own, and can be used again afterwards."""

    async def work():
        async with (
            serving(problem(529)) as server,
            AsyncAnthropic(
                api_key=KEY,
                base_url=server.url,
                max_retries=7,
                default_headers={"x-mine": "1"},
                http_client=DefaultAioHttpClient(trust_env=False),
            ) as sdk,
        ):
            for calls in (1, 2):
                driver = start(one(), ONCE, client=sdk)
                await driver.drive()
                assert calls == server.calls
            assert not sdk.is_closed()
            assert as_provider(sdk).endpoint.rstrip("/") == server.url
            assert 7 == sdk.max_retries
        return server

    assert "1" == asyncio.run(work()).heads[0]["x-mine"]


def test_a_client_without_an_api_key_attribute_is_used():
    """Clients of other platforms, such as `AsyncAnthropicBedrock`, keep their credentials elsewhere."""

    class Elsewhere:
        base_url = "http://x"

        def __init__(self, sdk):
            self.messages = sdk.messages

        def with_options(self, **_):
            return self

    async def work():
        async with (
            serving(reply(WHOLE)) as server,
            AsyncAnthropic(api_key=KEY, base_url=server.url, max_retries=0) as sdk,
        ):
            driver = Driver(one(), ONCE, Claude(client=Elsewhere(sdk)))
            await driver.drive()
            return driver.record

    assert "hello world" == within(work())["a"].text


def test_one_claude_on_two_loops():
    """Each event loop has connections of its own, one after another or at the same time."""
    import threading

    async def work(claude, url):
        driver = Driver(one(), ONCE, claude)
        await driver.drive()
        return driver.record["a"].status

    async def host():
        async with serving(reply(WHOLE)) as server:
            claude = Claude(base_url=server.url, api_key=KEY)
            found = []
            threads = [
                threading.Thread(target=lambda: found.append(asyncio.run(work(claude, server.url)))) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            found.append(await work(claude, server.url))
            await until(lambda: not any(thread.is_alive() for thread in threads))
            assert not claude._open
            return found

    assert ["succeeded"] * 4 == within(host())


def test_two_runs_on_one_loop_share_connections():
    """The client is closed when the last run ends, not before."""

    async def work():
        async with serving(reply(WHOLE)) as server:
            claude = Claude(base_url=server.url, api_key=KEY)
            async with claude.open():
                await Driver(one(), ONCE, claude).drive()
                await asyncio.gather(*(Driver(one(), ONCE, claude).drive() for _ in range(3)))
                assert claude._open
            assert not claude._open
            return server.calls

    assert 4 == asyncio.run(work())


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    """An environment without any credentials."""
    import os

    for name in list(os.environ):
        if name.startswith("ANTHROPIC_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_without_a_key_nothing_is_sent(nobody):
    """No key: `NotConnected`, which says three ways on, and no attempt."""
    driver = Driver(one(), Policy(), Claude())
    with pytest.raises(NotConnected) as caught:
        asyncio.run(driver.drive())
    text = str(caught.value)
    for way in ("ANTHROPIC_API_KEY", "%agents connect simulator", "%agents replay"):
        assert way in text
    assert not driver.record.attempts


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_the_environment_s_key_is_used(nobody, monkeypatch, name):
    """The SDK reads the key, and the server to send to, when the run begins."""

    async def work():
        async with serving(reply(WHOLE)) as server:
            monkeypatch.setenv(name, "key-of-the-environment")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            claude = Claude()
            assert server.url == claude.endpoint
            await Driver(one(), ONCE, claude).drive()
            return server

    assert "key-of-the-environment" in str(asyncio.run(work()).heads[0])


def test_an_sdk_that_another_thread_is_importing_is_waited_for_beside_the_loop(monkeypatch):
    """A notebook warms it up while the user writes: a stop must be heard meanwhile."""
    import sys
    import threading

    where = []
    monkeypatch.setattr("importlib.import_module", lambda _: where.append(threading.current_thread()))
    monkeypatch.setattr(sys.modules["anthropic"].__spec__, "_initializing", True)

    async def work():
        async with Claude(base_url="http://127.0.0.1:9", api_key=KEY).open():
            assert 1 == len(where)
        monkeypatch.setattr(sys.modules["anthropic"].__spec__, "_initializing", False)
        async with Claude(base_url="http://127.0.0.1:9", api_key=KEY).open():
            assert 1 == len(where)

    within(work())
    assert threading.main_thread() is not where[0]


def test_a_proxy_does_not_stand_between_us_and_the_stand_in(monkeypatch):
    """A server on this machine is reached directly, whatever proxy the environment names."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    record, _ = meet(reply(WHOLE))
    assert "succeeded" == record["a"].status


def test_keys_and_prompts_are_in_no_repr():
    """Neither a client, nor a request's error, shows a secret."""
    claude = Claude(base_url="http://127.0.0.1:1", api_key=KEY)
    assert KEY not in repr(claude)
    assert KEY not in repr(vars(claude))
    assert "Claude('https://api.anthropic.com')" == repr(Claude())


def test_tokens_are_counted_by_the_api():
    """`count_tokens` asks the count endpoint, with no `max_tokens`; its failures are ours."""

    async def work(answer):
        async with serving(answer) as server:
            claude = Claude(base_url=server.url, api_key=KEY)
            async with claude.open():
                return await claude.count_tokens(Request("claude-haiku-5-5", "x", 5, system="s")), server

    count, server = asyncio.run(work(reply(b'{"input_tokens": 42}', kind="application/json")))
    assert 42 == count
    assert {
        "model": "claude-haiku-5-5",
        "messages": [{"role": "user", "content": "x"}],
        "system": "s",
    } == server.bodies[0]
    with pytest.raises(Rejected, match="the API's words"):
        asyncio.run(work(problem(400)))


LIMITS = {
    "requests": {"anthropic_ratelimit_requests_remaining": "0"},
    "output": {
        "anthropic_ratelimit_requests_remaining": "5",
        "anthropic_ratelimit_output_tokens_remaining": "0",
    },
}


@pytest.mark.parametrize(("limit", "headers"), LIMITS.items(), ids=LIMITS)
def test_a_429_says_which_limit_is_empty(limit, headers):
    """The limit that the headers show as used up is on the error."""
    from agent_magic.errors import RateLimited
    from agent_magic.providers import Stream

    async def work():
        async with serving(problem(429, "rate_limit_error", retry_after="3", **headers)) as server:
            claude = Claude(base_url=server.url, api_key=KEY)
            async with claude.open():
                with pytest.raises(RateLimited) as caught:
                    await claude.send(Request("claude-haiku-5-5", "x", 5), Stream())
                return caught.value

    error = asyncio.run(work())
    assert (limit, 3.0, False) == (error.limit, error.retry_after_s, error.final)
