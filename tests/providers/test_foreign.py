"""Servers that are not the API, or not quite: proxies, gateways, servers that speak its language in their own way."""

# pyright: reportArgumentType=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from codecs import BOM_UTF8

import pytest
from anthropic import AsyncAnthropic

import agent_magic as am
from agent_magic import Claude, Policy
from agent_magic.errors import Unreadable
from agent_magic.live import Driver
from agent_magic.providers import retry_after_s
from agent_magic.providers.anthropic import stream as reading
from agent_magic.providers.responses import ABANDONED, LONGEST_WAIT_S
from agent_magic.record import Request
from tests.providers.test_claude import KEY, meet, one, quick, within  # noqa: F401 - a fixture is used by its name
from tests.providers.wire import (
    BEGIN,
    CLOSE,
    MESSAGE,
    OPEN,
    REASON,
    STOP,
    TEXT,
    USAGE,
    WHOLE,
    delta,
    event,
    problem,
    reply,
    serving,
)

BEYOND_ASCII = "héllo 🎉 wörld ☃"
RAW = json.dumps(
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": BEYOND_ASCII}},
    ensure_ascii=False,
).encode()
WRITTEN = BEGIN + OPEN + b"event: content_block_delta\ndata: " + RAW + b"\n\n" + CLOSE + REASON + STOP


def start_with(**fields):
    """The beginning of a message in which some fields are others."""
    return event("message_start", message={**MESSAGE, "content": [], **fields})


def block(index, **fields):
    """A block of another kind, whole."""
    return event("content_block_start", index=index, content_block=fields) + event("content_block_stop", index=index)


def ending(reason, **usage):
    """A `message_delta`."""
    return event("message_delta", delta={"stop_reason": reason}, usage=usage or None)


def chunked(body, size):
    """A response in chunks of so many bytes, which end inside characters."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


SECOND = block(1, type="text", text="world")

# what is sent, the text, input and output tokens
ANSWERS = {
    "chunks that cut characters": (chunked(WRITTEN, 1), BEYOND_ASCII, 10, 5),
    "compressed": (reply(gzip.compress(WRITTEN), content_encoding="gzip"), BEYOND_ASCII, 10, 5),
    "compressed, its end cut": (reply(gzip.compress(WRITTEN)[:-8], content_encoding="gzip"), BEYOND_ASCII, 10, 5),
    "lines that end in CR": (reply(WHOLE.replace(b"\n", b"\r")), "hello world", 10, 5),
    "fields of other streams": (reply(b"retry: 5\nid: 1\n: x\n\nretry: x\n\n" + WHOLE), "hello world", 10, 5),
    "its kind in capitals": (reply(WHOLE, kind="Text/Event-Stream; Charset=UTF-8"), "hello world", 10, 5),
    "of no kind": (reply(WHOLE, kind=None), "hello world", 10, 5),
    "of another kind": (reply(WHOLE, kind="application/octet-stream"), "hello world", 10, 5),
    "of the kind of JSON": (reply(WHOLE, kind="application/json; charset=utf-8"), "hello world", 10, 5),
    "of the kind of a page": (reply(WHOLE, kind="text/html"), "hello world", 10, 5),
    "a byte order mark, and no names": (
        reply(BOM_UTF8 + b"".join(line + b"\n\n" for line in WHOLE.split(b"\n") if line.startswith(b"data"))),
        "hello world",
        10,
        5,
    ),
    "whole, of the kind of a stream": (reply(json.dumps(MESSAGE, indent=1).encode()), "hello world", 10, 5),
    "whole, of the kind of text": (reply(json.dumps(MESSAGE).encode(), kind="text/plain"), "hello world", 10, 5),
    "whole, of no kind": (reply(json.dumps(MESSAGE).encode(), kind=None), "hello world", 10, 5),
    "whole, with a byte order mark": (
        reply(BOM_UTF8 + json.dumps(MESSAGE).encode(), kind="application/json"),
        "hello world",
        10,
        5,
    ),
    "whole, in a response that does not end": (
        reply(json.dumps(MESSAGE).encode(), kind="application/json", length=9_999),
        "hello world",
        10,
        5,
    ),
    "counts before the end, beside no delta": (
        reply(BEGIN + OPEN + TEXT + event("message_delta", delta=None, usage={"output_tokens": 3}) + REASON + STOP),
        "hello world",
        10,
        5,
    ),
    "whole, its kind in capitals": (reply(json.dumps(MESSAGE).encode(), kind="Application/JSON"), "hello world", 10, 5),
    "text where a block begins": (
        reply(BEGIN + event("content_block_start", index=0, content_block={"type": "text", "text": "hello "}))
        + delta("world")
        + CLOSE
        + REASON
        + STOP,
        "hello world",
        10,
        5,
    ),
    "blocks that nobody knows": (
        reply(BEGIN + block(0, type="hologram") + block(5, type="thinking", thinking=None) + OPEN + TEXT + REASON),
        "hello world",
        10,
        5,
    ),
    "nesting nobody reads": (
        reply(BEGIN + b"event: ping\ndata: " + b"[" * 99_999 + b"\n\n" + OPEN + TEXT + REASON + STOP),
        "hello world",
        10,
        5,
    ),
    "counts in the last event": (
        reply(BEGIN + OPEN + TEXT + ending("end_turn") + event("message_stop", usage={"output_tokens": 7})),
        "hello world",
        10,
        7,
    ),
    "counts after the stop reason": (
        reply(BEGIN + OPEN + TEXT + ending("end_turn", output_tokens=4) + ending(None, output_tokens=9) + STOP),
        "hello world",
        10,
        9,
    ),
    "text after the stop reason": (
        reply(BEGIN + OPEN + delta("hello ") + REASON + delta("world") + STOP),
        "hello world",
        10,
        5,
    ),
    "a block after the stop reason": (
        reply(BEGIN + block(0, type="text", text="hello ") + REASON + SECOND + STOP),
        "hello world",
        10,
        5,
    ),
    "text where the message begins": (
        reply(start_with(content=[{"type": "text", "text": "hello "}], usage=USAGE) + SECOND + REASON + STOP),
        "hello world",
        10,
        5,
    ),
    "all of it where the message begins, and again": (
        reply(start_with(content=MESSAGE["content"], usage=USAGE) + OPEN + TEXT + REASON + STOP),
        "hello world",
        10,
        6,
    ),
    "begun twice, and gone on": (
        reply(BEGIN + OPEN + delta("hello ") + BEGIN + delta("world") + REASON + STOP),
        "hello world",
        10,
        5,
    ),
    "begun with each block": (
        reply(BEGIN + block(0, type="text", text="hello ") + BEGIN + SECOND + REASON + STOP),
        "hello world",
        10,
        5,
    ),
    "another message behind it": (reply(WHOLE[: -len(STOP)] + WHOLE), "hello world", 10, 5),
    "nonsense after the stop reason": (
        reply(BEGIN + OPEN + TEXT + REASON + event("message_delta", delta=None)),
        "hello world",
        10,
        5,
    ),
    "a model that is no word": (reply(start_with(model=["x"]) + OPEN + TEXT + REASON + STOP), "hello world", 10, 5),
    "bytes that are no UTF-8": (reply(WHOLE.replace(b"hello", b"h\xffllo")), "h\ufffdllo world", 10, 5),
    "a last event without its blank line": (
        reply((BEGIN + OPEN + TEXT + CLOSE + REASON).rstrip()),
        "hello world",
        10,
        5,
    ),
    "types in the names alone": (
        reply(b"\n".join(line.replace(b'"type": "message_', b'"x": "') for line in WHOLE.split(b"\n"))),
        "hello world",
        10,
        5,
    ),
    "no blank lines, and no names": (
        reply(b"".join(line + b"\n" for line in WHOLE.split(b"\n") if line.startswith(b"data"))),
        "hello world",
        10,
        5,
    ),
    "signs of life": (
        reply(
            WHOLE.replace(
                b"\n\n",
                b"\n\nevent: heartbeat\ndata: still here\n\nevent: content_block_delta\ndata: null\n\ndata:\n\n"
                b"data: []\n\ndata: keep-alive\n\n",
            )
        ),
        "hello world",
        10,
        5,
    ),
    "pieces of nothing": (
        reply(
            BEGIN
            + OPEN
            + event("content_block_delta", index=0, delta=None)
            + delta(None)
            + TEXT
            + event("message_start", message=None)
            + REASON
        ),
        "hello world",
        10,
        5,
    ),
    "counts with a point": (
        reply(WHOLE.replace(b'"input_tokens": 10', b'"input_tokens": 10.0').replace(b": 5}", b": 5.0}")),
        "hello world",
        10,
        5,
    ),
    "an error in place of a second reason": (reply(WHOLE[: -len(STOP)] + ending("error")), "hello world", 10, 5),
    "usage that is a list": (
        reply(
            start_with(usage=[1]) + OPEN + TEXT + event("message_delta", delta={"stop_reason": "end_turn"}, usage="")
        ),
        "hello world",
        None,
        None,
    ),
}


@pytest.mark.parametrize(("answer", "text", "taken", "made"), ANSWERS.values(), ids=ANSWERS)
def test_what_is_complete_is_an_answer(answer, text, taken, made):
    """However a server writes it: one call, the whole text, the tokens that were counted, and no others."""
    record, server = meet(answer, policy=Policy(max_attempts=3))
    result = record["a"]
    assert ("succeeded", text, 1) == (result.status, result.text, server.calls)
    assert (taken, made) == (result.usage.input_tokens, result.usage.output_tokens)
    assert (taken is None) == (result.cost_usd is None)
    assert isinstance(result.answer.model, str)


AGAIN = start_with(id="msg_2", usage=USAGE)
CALL = event("content_block_start", index=0, content_block={"type": "tool_use", "id": "t", "name": "f", "input": {}})
RESTARTS = {
    "in a block": OPEN + delta("hello ") + AGAIN,
    "between blocks": block(0, type="text", text="hel") + block(1, type="text", text="lo") + AGAIN,
    "under the same id": OPEN + delta("hello ") + BEGIN,
    "twice": OPEN + delta("hello ") + AGAIN + OPEN + delta("hel") + AGAIN,
    "in a call": CALL + AGAIN,
}


@pytest.mark.parametrize("before", RESTARTS.values(), ids=RESTARTS)
def test_a_message_that_starts_again_is_read_from_there(before):
    """A proxy that reconnects sends it once more. No text or call is there twice, and no count covers both."""
    record, server = meet(reply(BEGIN + before + OPEN + TEXT + CLOSE + REASON + STOP))
    result = record["a"]
    assert ("succeeded", "hello world", "end_turn", 1) == (
        result.status,
        result.text,
        result.stop_reason,
        server.calls,
    )
    assert (5, True) == (result.usage.output_tokens, result.usage.estimated)


def test_deltas_without_blocks_start_again_too():
    """Servers that leave blocks out have nothing else that tells."""
    for block_or_none in (b"", OPEN):
        record, _ = meet(reply(BEGIN + delta("hello ") + AGAIN + block_or_none + TEXT + REASON + STOP))
        assert "hello world" == record["a"].text


def test_a_thought_that_is_not_shown_goes_back_whole():
    """It has a signature alone: its empty text is one of its fields, or the next request is refused."""
    signed = event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "s"})
    begun = event("content_block_start", index=0, content_block={"type": "thinking"})
    record, _ = meet(reply(BEGIN + begun + signed + block(1, type="text", text="hello") + REASON + STOP))
    thought, _ = json.loads(record["a"].answer.content)
    assert {"type": "thinking", "thinking": "", "signature": "s"} == thought


@pytest.mark.parametrize("reason", [7, ["end_turn"], {"why": "end"}], ids=repr)
def test_a_stop_reason_that_is_no_word_ends_an_answer_all_the_same(reason):
    """The run goes on, and the frames can be made."""
    record, _ = meet(reply(BEGIN + OPEN + TEXT + ending(reason, output_tokens=5) + STOP))
    assert ("succeeded", str(reason)) == (record["a"].status, record["a"].stop_reason)


@pytest.mark.parametrize(
    ("reason", "expected"), [("stop", "end_turn"), ("length", "max_tokens"), ("MAX_TOKENS", "max_tokens")]
)
def test_a_stop_reason_of_another_vendor_is_read(reason, expected):
    """Gateways pass on the words of the model behind them: a cut answer is told as one."""
    record, _ = meet(reply(BEGIN + OPEN + TEXT + ending(reason, output_tokens=5) + STOP))
    assert ("succeeded", expected) == (record["a"].status, record["a"].stop_reason)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("reason", sorted(ABANDONED))
def test_what_a_server_gives_up_is_no_answer(reason):
    """It says so in the place of a reason: it is asked again, and nothing is kept as an answer."""
    record, server = meet(reply(BEGIN + OPEN + TEXT + ending(reason, output_tokens=5) + STOP), policy=Policy(2))
    assert ("failed", None, 3) == (record["a"].status, record["a"].stop_reason, server.calls)
    assert f"abandoned the answer ({reason})" in str(record["a"].error)


PARTS = {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 50}
WRITES = {
    "both": ({"cache_creation_input_tokens": 150, "cache_creation": PARTS}, 150, 50),
    "the parts alone": ({"cache_creation": PARTS}, 150, 50),
    "one part alone": ({"cache_creation": {"ephemeral_5m_input_tokens": 100}}, 100, 0),
    "the sum alone": ({"cache_creation_input_tokens": 150, "cache_creation": None}, 150, 0),
    "parts that are none": ({"cache_creation": {"ephemeral_5m_input_tokens": "x"}}, None, 0),
    "more in a part than in all": ({"cache_creation_input_tokens": 20, "cache_creation": PARTS}, 20, 20),
}


@pytest.mark.parametrize(("usage", "written", "long"), WRITES.values(), ids=WRITES)
def test_what_is_written_to_the_cache_is_counted_wherever_it_is_told(usage, written, long):
    """By its sum, or by its parts where a server tells no sum: it costs more than other input."""
    start = start_with(usage={"input_tokens": 10, "output_tokens": 1, **usage})
    record, _ = meet(reply(start + OPEN + TEXT + REASON + STOP))
    found = record["a"].usage
    assert (10, written, long, True) == (
        found.input_tokens,
        found.cache_write_tokens,
        found.cache_write_1h_tokens,
        found.is_final,
    )


@pytest.mark.parametrize(("later", "final"), [(0, True), (10, True), (7, False), (12, True)])
def test_an_input_that_falls_is_not_settled(later, final):
    """The larger count stays, marked as an estimate: either may be billed. 0 is no count, and counts may rise."""
    start = start_with(usage={"input_tokens": 10, "output_tokens": 1})
    record, _ = meet(reply(start + OPEN + TEXT + ending("end_turn", input_tokens=later, output_tokens=5) + STOP))
    usage = record["a"].usage
    assert (max(10, later), 5, final) == (usage.input_tokens, usage.output_tokens, usage.is_final)


def test_a_category_that_is_no_word_is_written_as_one():
    """A refusal is one, whatever its details say."""
    delta_of = {"stop_reason": "refusal", "stop_details": {"category": ["x"]}}
    record, _ = meet(reply(BEGIN + OPEN + event("message_delta", delta=delta_of) + STOP))
    assert "Refused: The model declined to answer (['x'])." == record["a"].error


def test_an_answer_does_not_wait_long_for_its_last_event(monkeypatch):
    """A server that falls silent behind the `stop_reason` costs seconds, not the whole deadline."""
    monkeypatch.setattr(reading, "ENDING_S", 0.05)

    async def answer(writer, _):
        writer.write(reply(BEGIN + OPEN + TEXT + CLOSE + REASON))
        await writer.drain()
        await asyncio.Event().wait()

    record, _ = meet(answer, one(timeout_s=60.0))
    assert ("succeeded", "hello world", 5) == (record["a"].status, record["a"].text, record["a"].usage.output_tokens)


def said(kind):
    """An error as the API writes it, behind a 200."""
    return reply(
        json.dumps({"type": "error", "error": {"type": kind, "message": "m"}}).encode(), kind="application/json"
    )


# what is sent, calls with three attempts allowed, the beginning of the error
FAULTS = {
    "an error behind a 200": (said("overloaded_error"), 3, "Overloaded: m (529)"),
    "a refused key behind a 200": (said("authentication_error"), 1, "Rejected: m (401). Check ANTHROPIC_API_KEY."),
    "an error behind a 200, of the kind of a stream": (
        reply(b'{"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}'),
        1,
        "Rejected: m (400).",
    ),
    "an error in a stream, with no type": (
        reply(BEGIN + OPEN + TEXT + b'data: {"error": {"message": "no more room", "code": "529"}}\n\n'),
        3,
        "Overloaded: no more room (500)",
    ),
    "a page of the kind of a stream": (
        reply(b"<html><body>Sign in</body></html>"),
        2,
        "Unreadable: Expected an event stream, got a web page.",
    ),
    "bytes of the kind of a stream": (
        reply(gzip.compress(WHOLE)),
        2,
        "Unreadable: Expected an event stream, got ",
    ),
    "words of the kind of a stream": (
        reply(b"upstream connect error"),
        2,
        "Unreadable: Expected an event stream, got 'upstream connect error'.",
    ),
    "a head that is none": (
        b"HTTP/1.1 200 OK\r\ncontent-length: abc\r\n\r\n",
        3,
        "Unreachable: No reply from 127.0.0.1:",
    ),
    "nested too deeply": (
        reply(b"[" * 99_999, kind="application/json"),
        2,
        "Unreadable: The response cannot be read: ",
    ),
    "nothing of no kind": (reply(b"", kind=None), 2, "Unreadable: Expected an event stream, got no content type."),
    "plain words": (reply(b"busy\n\n", kind="text/plain"), 2, "Unreadable: Expected an event stream, got text/plain."),
    "try no more": (problem(529, x_should_retry="false"), 1, "Rejected: the API's words (529)."),
    "try again": (problem(400, x_should_retry="true"), 3, "Overloaded: the API's words (400)"),
    "no HTTP": (b"hello\r\n\r\n", 3, "Unreachable: No reply from 127.0.0.1:"),
    "a wait for ever": (problem(429, retry_after="1e308"), 1, "RateLimited: the API's words (429). Lower --concurr"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("answer", "calls", "error"), FAULTS.values(), ids=FAULTS)
def test_what_is_none_is_named(answer, calls, error):
    """How many calls it costs, and the words for it, short enough to be read."""
    record, server = meet(answer, one(timeout_s=60.0), Policy(max_attempts=3))
    result = record["a"]
    assert ("failed", calls, calls) == (result.status, server.calls, len(result.attempts))
    assert result.error.startswith(error)
    assert len(result.error) < 300


def refused():
    """An address at which nobody listens."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{door.getsockname()[1]}"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("transport", [None, "the SDK's default"])
@pytest.mark.parametrize("address", [refused, lambda: "http://no-such-host.invalid"], ids=["refused", "no name"])
def test_what_never_left_has_used_nothing(address, transport):
    """Its attempts cost $0 and take nothing of a budget: an agent is tried as often as without one."""

    async def work():
        given = AsyncAnthropic(api_key=KEY, base_url=address())
        client = Claude(client=given) if transport else Claude(base_url=address(), api_key=KEY)
        driver = Driver(one(max_tokens=1000), Policy(max_attempts=3, budget_usd=0.001), client)
        await driver.drive()
        await given.close()
        return driver.record

    result = within(work())["a"]
    assert ["Unreachable"] * 3 == [attempt.kind for attempt in result.attempts]
    assert (0, 0, 0.0) == (result.usage.input_tokens, result.usage.output_tokens, result.cost_usd)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("transport", [None, "the SDK's default"])
def test_what_may_have_arrived_has_an_unknown_cost(transport):
    """The connection was made, and broke before an answer: the request may be billed."""

    async def work():
        async with serving(b"") as server:
            given = AsyncAnthropic(api_key=KEY, base_url=server.url)
            client = Claude(client=given) if transport else Claude(base_url=server.url, api_key=KEY)
            driver = Driver(one(), Policy(max_attempts=1), client)
            await driver.drive()
            await given.close()
            return driver.record

    result = within(work())["a"]
    assert ("Unreachable", None) == (result.attempts[0].kind, result.cost_usd)


def test_no_error_recolours_a_terminal():
    """What a server writes into its error is shown without control characters."""
    record, _ = meet(problem(400, message="\x1b[31mred\x07 \x9b2J"))
    assert "Rejected: [31mred 2J (400)." == record["a"].error


WAITS = {
    "milliseconds first": ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    "milliseconds that are none": ({"retry-after-ms": "nan", "retry-after": "9"}, 9.0),
    "longer than anybody waits": ({"retry-after": "1e308"}, LONGEST_WAIT_S),
    "the end of time": ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, LONGEST_WAIT_S),
}


@pytest.mark.parametrize(("headers", "seconds"), WAITS.values(), ids=WAITS)
def test_a_demand_is_read_as_the_sdk_reads_it(headers, seconds):
    """Milliseconds are the more exact word; a wait has an end."""
    assert seconds == retry_after_s(headers)


def test_a_prompt_of_megabytes_is_sent_where_warnings_are_errors():
    """The transport warns of large bodies: that breaks no request."""
    record, server = meet(reply(WHOLE), one("y" * 1_200_000))
    assert ("succeeded", 1) == (record["a"].status, server.calls)


@pytest.mark.parametrize(
    "body",
    [
        b'{"input_tokens": "12"}',
        b'{"input_tokens": -5}',
        b'{"input_tokens": 0}',
        b'{"input_tokens": 1e400}',
        b"{}",
        b"[1]",
        b"<html>",
    ],
)
def test_a_count_that_is_none_is_an_error(body):
    """Nothing is planned by it."""

    async def work():
        async with serving(reply(body, kind="text/html" if body[:1] == b"<" else "application/json")) as server:
            claude = Claude(base_url=server.url, api_key=KEY)
            async with claude.open():
                await claude.count_tokens(Request("claude-haiku-5-5", "x", 5))

    with pytest.raises(Unreadable, match="token count is no number"):
        asyncio.run(work())


SEVEN = BEGIN + OPEN + delta('{"value": 7}') + CLOSE + REASON + STOP
LOOSE = BEGIN + OPEN + delta("It is seven.") + CLOSE + REASON + STOP
REFUSED = problem(400, "invalid_request_error", "output_config: Extra inputs are not permitted")
IN_WORDS = "JSON schema"


def typed_run(answer):
    """Three typed agents and one of text, one after the other, at a server that answers what a request's body gets."""

    async def work():
        served = []

        async def write(writer, number):
            writer.write(reply(found) if (found := answer(served[0].bodies[number - 1])) is not REFUSED else found)

        async with serving(write) as server:
            served.append(server)
            client = Claude(base_url=server.url, api_key=KEY)
            agents = [am.Agent(name, name, model="tiny", returns=int, system="Be kind.") for name in "abc"]
            agents.append(am.Agent("plain", "d", model="tiny", system="Be kind."))
            return await am.Plan(agents).run(Policy(1), client=client), server.bodies

    run, bodies = asyncio.run(work())
    assert [7, 7, 7] == [run[name].value for name in "abc"]
    assert all(one["system"].startswith("Be kind.") for one in bodies)
    return run, bodies


@pytest.mark.filterwarnings("ignore::agent_magic.record.prices.PriceWarning")
def test_a_server_that_ignores_a_schema_is_asked_in_words(caplog):
    """Noticed at the first answer, said once, and in the prompt of all that follow."""
    _, bodies = typed_run(lambda body: SEVEN if IN_WORDS in body["system"] else LOOSE)
    assert [False, True, True, True, False] == [IN_WORDS in one["system"] for one in bodies]
    assert 1 == caplog.text.count("the schema of an answer for 'tiny'")


@pytest.mark.filterwarnings("ignore::agent_magic.record.prices.PriceWarning")
def test_a_server_that_refuses_a_schema_is_asked_in_words_at_once():
    """Its refusal of the field is no failure of the request, which goes out once more without it, like later ones."""
    run, bodies = typed_run(lambda body: REFUSED if "output_config" in body else SEVEN)
    assert [1, 1, 1, 1] == run.agents["attempts"].tolist()
    assert [True, False, False, False, False] == ["output_config" in one for one in bodies]
    assert [False, True, True, True, False] == [IN_WORDS in one["system"] for one in bodies]


@pytest.mark.filterwarnings("ignore::agent_magic.record.prices.PriceWarning")
def test_a_server_that_holds_to_schemas_is_not_told_them_twice(caplog):
    """The words are for those that need them."""
    _, bodies = typed_run(lambda body: SEVEN)
    assert not any(IN_WORDS in one["system"] for one in bodies)
    assert "schema" not in caplog.text
