"""What a server says by HTTP is believed: whether and when to ask again, and that a connection is over."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import zlib
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from anthropic import AsyncAnthropic
from hypothesis import given
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import DeclarationError, RateLimited
from agent_magic.providers import retry_after_s, transport
from agent_magic.providers.responses import LONGEST_WAIT_S, bounded, words_of
from tests.providers.chat import speaking
from tests.providers.memory import asked as a_request
from tests.providers.wire import BEGIN, MESSAGE, OPEN, STOP, WHOLE, problem, reply, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from agent_magic.api import Run

ONCE = am.Policy(max_attempts=1)
LIMITED = "rate_limit_error"


async def ran(url: str, plan: am.Plan, policy: am.Policy | None = None) -> Run:
    """Run a plan on a server."""
    return await plan.run(policy or am.Policy(), client=am.Claude(base_url=url, api_key="none"))


def asked(answer: Any, **agent: Any) -> tuple[Run, int]:
    """Ask a server once. Return the run, and how many requests came."""

    async def work() -> tuple[Run, int]:
        async with serving(answer) as server:
            return await ran(server.url, am.Plan([am.Agent("a", "x", **agent)])), len(server.bodies)

    return asyncio.run(work())


@pytest.mark.parametrize("wait", [{}, {"retry_after": "0"}, {"retry_after": "1"}, {"retry_after_ms": "20"}], ids=repr)
@pytest.mark.parametrize("word", ["false", " False"])
def test_a_refusal_that_should_not_be_retried_is_final(wait: dict[str, str], word: str):
    """`x-should-retry: false` of a 429 counts more than its `retry-after`, and the error says so."""
    run, requests = asked(problem(429, LIMITED, x_should_retry=word, **wait), timeout_s=8)
    assert (1, "failed") == (requests, run["a"].status)
    assert "x-should-retry" in str(run["a"].error)


TOO_LONG = {
    "the API": "prompt is too long: 208310 tokens > 200000 maximum",
    "the API, with the answer": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "Bedrock": "Input is too long for requested model.",
    "LiteLLM": "litellm.ContextWindowExceededError: prompt is longer than the context window",
}


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("said", TOO_LONG.values(), ids=TOO_LONG)
def test_a_prompt_that_is_too_long_is_sent_once_and_says_what_to_do(said: str, status: int):
    """Also where a proxy reports it as an error of its own."""
    run, requests = asked(problem(status, "invalid_request_error", said), timeout_s=8)
    assert (1, "failed") == (requests, run["a"].status)
    assert "Send a shorter prompt" in str(run["a"].error)


@pytest.mark.parametrize("word", ["true", "maybe", ""])
def test_a_refusal_that_may_be_retried_is(word: str):
    """`true` says what a 429 says anyway; what makes no sense says nothing."""

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(reply(WHOLE) if number > 1 else problem(429, LIMITED, x_should_retry=word, retry_after_ms="20"))

    run, requests = asked(answer, timeout_s=8)
    assert (2, "succeeded") == (requests, run["a"].status)


def test_the_server_s_word_counts_more_than_a_spend_limit():
    """A spend limit ends the run, unless the server says that another try may help."""
    code = "enforced_spend_limit_reached"

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(
            reply(WHOLE) if number > 1 else problem(429, LIMITED, code=code, x_should_retry="true", retry_after_ms="20")
        )

    assert "succeeded" == asked(answer, timeout_s=8)[0]["a"].status
    assert 1 == asked(problem(429, LIMITED, code=code))[1]


CLIENTS = [am.Claude, partial(am.Chat, free=True)]


@pytest.mark.parametrize("client", CLIENTS, ids=["Claude", "Chat"])
@pytest.mark.parametrize("status", [501, 505, 506, 510, 511, 526])
def test_what_cannot_change_is_not_asked_again(client: Any, status: int):
    """A server that lacks the method, a network that wants a login: one request, whose cost is known to be nothing."""

    async def work() -> tuple[Run, int]:
        async with serving(problem(status, "api_error")) as server:
            plan = am.Plan([am.Agent("a", "x", timeout_s=8)])
            return await plan.run(client=client(base_url=server.url, api_key="none")), server.calls

    run, requests = asyncio.run(work())
    assert (1, "failed", "Rejected", 0.0) == (requests, run["a"].status, run["a"].kind, run["a"].cost_usd)


@pytest.mark.parametrize("client", CLIENTS, ids=["Claude", "Chat"])
def test_a_long_header_loses_no_answer(client: Any):
    """Gateways write cookies and policies of any length: an answer behind them is paid for."""
    body = WHOLE if client is am.Claude else speaking.WHOLE

    async def work() -> tuple[Run, int]:
        async with serving(reply(body, x_policy="a" * 100_000)) as server:
            plan = am.Plan([am.Agent("a", "x", timeout_s=8)])
            return await plan.run(client=client(base_url=server.url, api_key="none")), server.calls

    run, requests = asyncio.run(work())
    assert (1, "hello world") == (requests, run["a"].text)


def test_a_model_that_the_plan_lacks_is_asked_once():
    """Its 429 says so by a code: no wait helps, and other models go on."""
    run, requests = asked(problem(429, LIMITED, "Usage credits are required.", code="credits_required"), timeout_s=8)
    assert (1, "failed") == (requests, run["a"].status)
    assert "another model" in str(run["a"].error)


SAID: list[tuple[Any, str]] = [
    ({"error": {"message": "the words"}}, "the words"),
    ({"error": "the words"}, "the words"),
    ({"message": "the words"}, "the words"),
    ({"detail": "the words"}, "the words"),
    ([{"error": {"code": 400, "message": "the words"}}], "the words"),
    ("the words", "the words"),
    ({"detail": [{"loc": ["max_tokens"]}]}, '[{"loc": ["max_tokens"]}]'),
    ({"error": None}, '{"error": null}'),
    ("<html><title>\n502: Bad\tgateway</title>", "a web page came in place of an answer: 502: Bad gateway"),
    ("<!DOCTYPE html><p>Hi", "a web page came in place of an answer"),
    ('<?xml version="1.0"?><Error><Message>the words</Message></Error>', "the words"),
    ("", "The server gave no reason"),
    (None, "The server gave no reason"),
]


@pytest.mark.parametrize(("body", "words"), SAID)
def test_an_error_has_the_server_s_words_whatever_its_form(body: Any, words: str):
    """Gateways have forms of their own; a page is told by its title."""
    assert words == words_of(body)


REFUSED = b"HTTP/1.1 429 X\r\nretry-after: 0.02\r\ncontent-type: application/json\r\n%s\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
WORDS = b'{"error": {"message": "busy'
ENDLESS = {  # what comes behind the status: the rest of the head, the body, and whether the connection is closed
    "silent": (b"content-length: 900\r\n", WORDS, False),
    "silent chunks": (CHUNKED, b"%x\r\n%s\r\n" % (len(WORDS), WORDS), False),
    "cut": (b"content-length: 900\r\n", WORDS, True),
    "broken gzip": (b"content-encoding: gzip\r\ncontent-length: 3\r\n", b"abc", False),
    "without an end": (b"", WORDS, False),
    "too long": (b"", b"x" * 200_000, False),
}


PIECE = json.dumps(MESSAGE).encode()
STREAM, JSON = b"text/event-stream", b"application/json"
BROKEN = {"a chunk size": (CHUNKED, b"%x\r\n%s\r\nzz\r\n"), "a length": (b"content-length: %d\r\n", b"%s")}


@pytest.mark.parametrize(
    ("client", "kind", "body"),
    [
        (am.Claude, STREAM, WHOLE),
        (am.Claude, JSON, PIECE),
        (partial(am.Chat, free=True), STREAM, speaking.WHOLE),
        (partial(am.Chat, free=True), JSON, speaking.completion({"content": "hello world"})),
    ],
)
@pytest.mark.parametrize("shape", BROKEN)
@pytest.mark.parametrize("apart", [False, True], ids=["one packet", "two"])
def test_an_answer_that_arrived_is_kept_however_its_response_breaks(
    shape: str, client: Any, kind: bytes, body: bytes, *, apart: bool
):
    """What breaks it may come in the same packet, with its head or without: no size, or the connection's end."""
    more, form = BROKEN[shape]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: " + kind + b"\r\n" + (more % (len(body) + 9) if b"%" in more else more)
    whole = form % ((len(body), body) if b"%x" in form else body)

    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        for part in (head + b"\r\n", whole) if apart else (head + b"\r\n" + whole,):
            writer.write(part)
            for _ in range(9):  # of one loop: the client reads meanwhile
                await asyncio.sleep(0)

    async def work() -> tuple[Run, int]:
        async with serving(answer) as server:
            model = client(base_url=server.url, api_key="none")
            return await am.Plan([am.Agent("a", "x", timeout_s=8)]).run(client=model), len(server.bodies)

    run, requests = asyncio.run(work())
    assert ("succeeded", "hello world", 1) == (run["a"].status, run["a"].text, requests)


def users_own(**options: Any) -> am.Claude:
    """Return a client of the SDK that the user made."""
    return am.Claude(client=AsyncAnthropic(**options))


@pytest.mark.parametrize("client", [am.Claude, users_own, partial(am.Chat, free=True)], ids=["Claude", "SDK", "Chat"])
@pytest.mark.parametrize("shape", ENDLESS)
def test_an_error_counts_however_its_body_ends(shape: str, client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    """Its status is believed soon, whatever comes behind it, or does not."""
    monkeypatch.setattr(transport, "ERROR_S", 0.03)
    more, body, closes = ENDLESS[shape]

    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(REFUSED % more + body)
        await writer.drain()
        if not closes:
            await asyncio.Event().wait()

    async def work() -> Run:
        async with serving(answer) as server:
            return await am.Plan([am.Agent("a", "x", timeout_s=8)]).run(
                ONCE, client=client(base_url=server.url, api_key="none")
            )

    assert str(asyncio.run(work())["a"].error).startswith("RateLimited")


@pytest.mark.parametrize(
    "ask", [lambda one: one.count_tokens(a_request(1)), lambda one: one.batches.state("b")], ids=["count", "batch"]
)
def test_counts_and_batches_believe_an_error_as_soon(ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    """Through a client that the user made too."""
    monkeypatch.setattr(transport, "ERROR_S", 0.03)

    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(REFUSED % b"" + WORDS)
        await asyncio.Event().wait()

    async def work() -> None:
        async with serving(answer) as server, asyncio.timeout(8):
            await ask(users_own(base_url=server.url, api_key="none"))

    with pytest.raises(RateLimited):
        asyncio.run(work())


def http_date(shift_s: float, zone: str = "GMT") -> str:
    """Write the time in so many seconds as HTTP does."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=shift_s), usegmt=True).replace("GMT", zone)


@given(shift_s=st.integers(-(10**8), 10**8), wait_s=st.integers(-100, 10**6))
def test_a_date_is_of_the_server_s_clock(shift_s: int, wait_s: int):
    """However far its clock is off: the wait is the date minus the response's own `date`, never below nothing."""
    now = datetime(2026, 5, 17, 23, 59, 30, tzinfo=UTC) + timedelta(seconds=shift_s)
    then = now + timedelta(seconds=wait_s)
    headers = {"retry-after": format_datetime(then, usegmt=True), "date": format_datetime(now, usegmt=True)}
    assert max(0.0, wait_s) == retry_after_s(headers)


@pytest.mark.parametrize("own", ["", "yesterday", "Wed, 21 Oct 2099 07:28:00 -0000", "1790000000"])
def test_a_date_counts_from_our_clock_where_the_server_s_is_not_told(own: str):
    """A `date` that is none says nothing."""
    assert 90 < (retry_after_s({"retry-after": http_date(100), "date": own}) or 0.0) <= 100


@given(now=st.integers(1_700_000_000, 4_000_000_000), wait_s=st.integers(-100, 10**6))
def test_a_unix_time_is_a_time(now: int, wait_s: int):
    """No server asks for fifty years: what reads as a moment is one, of the server's clock."""
    headers = {"retry-after": str(now + wait_s), "date": format_datetime(datetime.fromtimestamp(now, UTC), usegmt=True)}
    assert max(0.0, wait_s) == retry_after_s(headers)


def test_seconds_need_no_clock():
    """Only a date is compared with a date."""
    assert (7.0, 0.25) == (
        retry_after_s({"retry-after": "7", "date": http_date(-9999)}),
        retry_after_s({"retry-after-ms": "250", "date": http_date(-9999)}),
    )


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_demand_breaks_a_client(demand: str, own: str):
    """Whatever stands in the headers is a wait, or none."""
    found = retry_after_s({"retry-after": demand, "date": own})
    assert found is None or 0 <= found <= LONGEST_WAIT_S


ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(WHOLE) + WHOLE


class Closing:
    """A server whose connections last for one request: the next one finds its end.

    Attributes:
        requests: How many came.
        connections: How many connections were opened.
    """

    def __init__(self, last: bytes = b"", *, fresh: bool = False, after_s: float = 0.0) -> None:
        self._last, self._fresh, self._after_s = last, fresh, after_s
        self.requests = self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the first request; of the second, or where it is to break all, send the last words and reset."""
        self.connections += 1
        answered = self._fresh
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
                self.requests += 1
                if answered:
                    await asyncio.sleep(self._after_s)
                    writer.write(self._last)
                    await writer.drain()
                    if not self._last:
                        raw = writer.get_extra_info("socket")
                        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                writer.write(ANSWER)
                await writer.drain()
                answered = True
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Closing]:
        """Serve."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self


def meet(server: Closing, plan: am.Plan, policy: am.Policy | None = None) -> Run:
    """Run a plan on it."""

    async def work() -> Run:
        async with server.open():
            return await ran(server.url, plan, policy)

    return asyncio.run(work())


CHAIN = am.Plan([am.Agent("a", "x"), am.Agent("b", "{{ a }}"), am.Agent("c", "{{ b }}")])


TIRED = b"HTTP/1.1 408 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("last", [b"", TIRED], ids=["reset", "408"])
def test_a_kept_connection_that_was_closed_is_opened_again(last: bytes):
    """No attempt is used up, nobody waits, and each request is sent on one new connection."""
    server = Closing(last)
    run = meet(server, CHAIN, ONCE)
    frame = run.agents
    assert (["succeeded"] * 3, [1] * 3) == (frame["status"].tolist(), frame["attempts"].tolist())
    assert [0.0] * 3 == frame["backoff_s"].tolist()
    assert (5, 3) == (server.requests, server.connections)


def test_many_kept_connections_that_were_closed_are_opened_again():
    """A crowd left several behind: the next request finds none of them, and the last is a new one."""
    agents = [am.Agent(f"a{number}", f"x {number}") for number in range(4)]
    last = am.Agent("z", " ".join(f"{{{{ {one.name} }}}}" for one in agents))
    run = meet(Closing(), am.Plan([*agents, last]), ONCE)
    assert ("succeeded", 1) == (run["z"].status, len(run["z"].attempts))


def test_a_new_connection_that_is_reset_is_a_failed_attempt():
    """What was never used was not closed for its age."""
    server = Closing(fresh=True)
    run = meet(server, am.Plan([am.Agent("a", "x")]), am.Policy(max_attempts=2))
    assert ("failed", 2, 2) == (run["a"].status, len(run["a"].attempts), server.requests)


def test_a_response_that_has_begun_is_not_asked_for_again():
    """A byte of it came: the request may have been worked on, and be billed."""
    server = Closing(b"HTTP/1.1 200 OK\r\ncontent-ty")
    run = meet(server, CHAIN, ONCE)
    assert ("succeeded", "failed", 2) == (run["a"].status, run["b"].status, server.requests)


def test_a_request_that_was_worked_on_is_not_sent_again(monkeypatch: pytest.MonkeyPatch):
    """A connection that ends long after the request arrived was not closed for its age."""
    monkeypatch.setattr(transport, "STALE_S", 0.05)
    server = Closing(after_s=0.3)
    run = meet(server, CHAIN, ONCE)
    assert ("succeeded", "failed", 2) == (run["a"].status, run["b"].status, server.requests)


@pytest.mark.parametrize("blank", ["", " ", "\n"], ids=repr)
def test_a_blank_address_of_the_environment_is_none(monkeypatch: pytest.MonkeyPatch, blank: str):
    """The API is meant, as where the variable is not set: nothing is sent to an address without a host."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", blank)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    claude = am.Claude(api_key="x")
    assert ("https://api.anthropic.com", None) == (claude.endpoint, claude.settings()["base_url"])
    run = asyncio.run(am.Plan([am.Agent("a", "x", timeout_s=6)]).run(ONCE, client=claude))
    assert "No connection to api.anthropic.com" in str(run["a"].error)


WRONG_KEYS = {
    "double quotes": ('"sk-pw-1"', "quot"),
    "single quotes": ("'sk-pw-1'", "quot"),
    "backticks": ("`sk-pw-1`", "quot"),
    "one quote": ("sk-pw-1'", "quot"),
    "a blank": ("sk-pw-1 sk-pw-1", "blank"),
    "its scheme": ("Bearer sk-pw-1", "blank"),
}


@pytest.mark.parametrize(("key", "word"), WRONG_KEYS.values(), ids=WRONG_KEYS)
@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "api_key"])
def test_a_key_that_was_copied_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, key: str, word: str):
    """Before a request, with the variable's name, and without showing it."""
    if name != "api_key":
        monkeypatch.setenv(name, key)

    async def work() -> int:
        async with serving(reply(WHOLE)) as server:
            with pytest.raises(DeclarationError, match=name) as told:
                await am.Plan([am.Agent("a", "x")]).run(
                    client=am.Claude(base_url=server.url, api_key=key if name == "api_key" else None)
                )
            assert word in str(told.value)
            assert "pw-1" not in str(told.value)
            return len(server.bodies)

    assert 0 == asyncio.run(work())


ENCODED = b"\x28\xb5\x2f\xfd" + bytes(range(200, 256)) * 4
"""What no decoder here can read, and no text."""


@pytest.mark.parametrize(
    ("encoding", "body"), [("zstd", ENCODED), ("br", ENCODED), ("gzip, x-own", ENCODED), ("gzip", WHOLE)]
)
def test_an_answer_in_an_encoding_that_cannot_be_read_is_bought_once(encoding: str, body: bytes):
    """The next one would be paid and lost too. The failure names the encoding."""
    run, requests = asked(reply(gzip.compress(body) if "," in encoding else body, content_encoding=encoding))
    assert (1, "failed") == (requests, run["a"].status)
    assert f"content-encoding {encoding!r}" in str(run["a"].error)
    assert run["a"].cost_usd is None or run["a"].cost_usd > 0


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_refusal_in_an_encoding_that_cannot_be_read_says_so(kind: str):
    """In place of its bytes. Its status counts as ever."""
    run, requests = asked(reply(ENCODED, 400, kind, content_encoding="zstd"))
    assert (1, "failed") == (requests, run["a"].status)
    assert "content-encoding 'zstd', which cannot be decoded (400)" in str(run["a"].error)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(WHOLE)),
        ("x-gzip", gzip.compress(WHOLE)),
        ("deflate", zlib.compress(WHOLE)),
        ("gzip, gzip", gzip.compress(gzip.compress(WHOLE))),
        ("x-own", WHOLE),  # a wrong name of what can be read
    ],
)
def test_an_answer_that_can_be_read_is_read(encoding: str, body: bytes):
    """Whatever its encoding is called."""
    run, requests = asked(reply(body, content_encoding=encoding))
    assert ("hello world", 1) == (run["a"].text, requests)


@pytest.mark.parametrize("begins", [BEGIN + OPEN + b": ", b'{"type": "message", "content": "'])
def test_a_response_that_unpacks_without_end_is_left(begins: bytes, monkeypatch: pytest.MonkeyPatch):
    """A few bytes may unpack to more than fits into memory; what no answer is long enough for is not read on."""
    monkeypatch.setattr(bounded, "__kwdefaults__", None)
    monkeypatch.setattr(bounded, "__defaults__", (1 << 20,))
    run, requests = asked(reply(gzip.compress(begins + bytes(1 << 22)), content_encoding="gzip"))
    assert (1, "failed") == (requests, run["a"].status)
    assert "longer than 1 MB" in str(run["a"].error)
    run, _ = asked(reply(gzip.compress(WHOLE.removesuffix(STOP) + b": " + bytes(1 << 22)), content_encoding="gzip"))
    assert "hello world" == run["a"].text  # its end was there
