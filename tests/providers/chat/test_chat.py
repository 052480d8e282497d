"""Runs on chat completions servers: what is sent, how they refuse, what it costs, what is kept."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

from __future__ import annotations

import asyncio
import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest

import agent_magic as am
from agent_magic.engine import Reading
from agent_magic.errors import (
    CallError,
    DeclarationError,
    Overloaded,
    RateLimited,
    Refused,
    Rejected,
    Unreachable,
)
from agent_magic.providers import Stream
from agent_magic.providers.capabilities import WORDS
from agent_magic.providers.chat.errors import duration_s, read_headers
from agent_magic.record import Message, Request
from tests.providers.chat.speaking import (
    DONE,
    KEY,
    MODEL,
    TEXT,
    WHOLE,
    answers,
    ask,
    asked,
    called,
    chunk,
    counts,
    delta,
    problem,
    run,
    said,
)
from tests.providers.wire import Server, reply, serving

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYPhfDwACggF/yWU5bAAAAABJRU5ErkJggg=="
)


def one(prompt: str = "Hello", **options: Any) -> am.Plan:
    """A plan of one agent."""
    return am.Plan([am.Agent("a", prompt, model=MODEL, **options)])


def failure(answer: Any, **options: Any) -> CallError:
    """The error of a request."""
    with pytest.raises(CallError) as caught:
        ask(answer, **options)
    return caught.value


# what is sent


def test_a_request_is_sent_as_the_api_takes_it():
    """The context and the system prompt are one; the key is a bearer; no other header of the user's is lost."""
    request = asked(context="All of it.", system="Be short.")
    _, _, server = ask(reply(WHOLE), request, api_key=KEY, headers={"X-Team": "blue"})
    assert [
        {"role": "system", "content": "All of it.\n\nBe short."},
        {"role": "user", "content": "Hello"},
    ] == server.bodies[0].pop("messages")
    assert {
        "model": MODEL,
        "max_tokens": 100,
        "stream": True,
        "stream_options": {"include_usage": True},
    } == server.bodies[0]
    head = server.heads[0]
    assert (f"bearer {KEY}".lower(), "blue") == (head["authorization"], head["x-team"])
    assert "/v1/chat/completions" == server.paths[0]


def test_sampling_and_fields_of_its_own_are_passed_on():
    """By the names that the API has for them."""
    options = {"temperature": 0.5, "top_p": 0.9, "stop": ["END"], "extra": {"min_p": 0.1}}
    done, server = run(one(**options), reply(WHOLE))
    assert done.ok
    body = server.bodies[0]
    assert (0.5, 0.9, ["END"], 0.1) == tuple(body[name] for name in ("temperature", "top_p", "stop", "min_p"))


def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch):
    """The key of another seller in the environment is none of a server's business."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, _, server = ask(reply(WHOLE))
    assert "authorization" not in server.heads[0]


def test_calls_and_their_results_go_back():
    """A result is a message; numbers keep their digits; a picture of a tool follows in a user's message."""
    picture = am.image(DOT)
    image = picture.block(picture.sha256)
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}}
    turn = json.dumps([{"type": "text", "text": "See."}, use]).replace("1}", "1.50000000000000000001}")
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "no tea", "is_error": True},
        {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "a dot"}, image]},
        {"type": "text", "text": "Answer now."},
    ]
    messages = (Message("assistant", turn), Message("user", json.dumps(results)))
    tools = json.dumps([{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}])
    request = asked(messages=messages, tools=tools, tool_choice="none", returned=(picture,))
    _, _, server = ask(reply(WHOLE), request)
    body = server.bodies[0]
    _, assistant, first, second, user = body["messages"]
    call = {"name": "look", "arguments": '{"n":1.50000000000000000001}'}
    assert {
        "role": "assistant",
        "content": "See.",
        "tool_calls": [{"id": "a", "type": "function", "function": call}],
    } == assistant
    assert {"role": "tool", "tool_call_id": "a", "content": "no tea"} == first
    assert {"role": "tool", "tool_call_id": "b", "content": "a dot\n(its pictures follow)"} == second
    assert ["image_url", "text"] == [part["type"] for part in user["content"]]
    assert user["content"][0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    function = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    assert [{"type": "function", "function": function}] == body["tools"]
    assert "none" == body["tool_choice"]


def test_a_schema_is_strict_where_it_can_be():
    """Where each object is closed and each field required; else the server does what it can."""

    def wanted(schema: dict[str, Any]) -> dict[str, Any]:
        _, _, server = ask(reply(said("{}")), asked(schema=json.dumps(schema)))
        return server.bodies[0]["response_format"]["json_schema"]

    closed = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert {"name": "answer", "schema": closed} == wanted(closed)
    closed |= {"additionalProperties": False}
    assert {"name": "answer", "schema": closed, "strict": True} == wanted(closed)
    loose = closed | {"properties": {**closed["properties"], "m": {"type": "integer"}}}
    assert {"name": "answer", "schema": loose} == wanted(loose)


@pytest.mark.parametrize(
    ("refusal", "left"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", {"max_completion_tokens"}),
        ("Extra inputs are not permitted: stream_options", {"max_tokens"}),
        ("This response_format type is unavailable now", {"max_tokens", "stream_options"}),
    ],
)
def test_a_field_that_is_refused_by_name_is_left_out(refusal: str, left: set[str]):
    """The agent sees no failure, and no later request has it."""
    answer = answers(problem(400, refusal), reply(said('{"value": 7}')))
    plan = am.Plan([am.Agent(name, name, model=MODEL, returns=int) for name in "ab"])
    done, server = run(plan, answer, policy=am.Policy(1))
    assert [7, 7] == [done[name].value for name in "ab"]
    assert 3 == server.calls
    fields = {"max_tokens", "max_completion_tokens", "stream_options"}
    assert left <= {*server.bodies[1]} & fields
    assert {*server.bodies[1]} == {*server.bodies[2]} < {*server.bodies[0], "max_completion_tokens"}
    assert 2 == len(done.attempts)


def test_a_server_that_does_not_hold_to_schemas_is_asked_in_words(recwarn: pytest.WarningsRecorder):
    """Noticed at the first answer, said once, and in the prompt of all that follow."""

    async def free(writer: Any, number: int) -> None:
        told = server.bodies[number - 1]["messages"]
        text = '{"value": 7}' if any("JSON schema" in str(one["content"]) for one in told) else "It is seven."
        writer.write(reply(said(text)))
        await writer.drain()

    notes: list[str] = []

    async def main() -> am.Run:
        nonlocal server
        async with serving(free) as server:
            chat = am.Chat(server.url, free=True)
            plan = am.Plan([am.Agent(name, name, model=MODEL, returns=int, system="Be kind.") for name in "abc"])
            done = await plan.run(am.Policy(1), client=chat)
            notes.extend(chat.take_notes())
            return done

    server: Server = Server(None)
    done = asyncio.run(main())
    assert [7, 7, 7] == [done[name].value for name in "abc"]
    assert 4 == server.calls
    schema = json.dumps(server.bodies[1]["response_format"]["json_schema"]["schema"], separators=(",", ":"))
    assert f"Be kind.\n\n{WORDS.format(schema=schema)}" == server.bodies[1]["messages"][0]["content"]
    assert "Be kind." == server.bodies[0]["messages"][0]["content"]
    assert not recwarn.list


# how it fails

REFUSALS: dict[str, tuple[bytes, type[CallError], str]] = {
    "a wrong key": (problem(401, "Incorrect API key provided", code="invalid_api_key"), Rejected, "Check the key"),
    "a wrong key as a 400": (problem(400, "bad key", code="invalid_api_key"), Rejected, r"\(401\). Check the key"),
    "no money": (problem(402, "Insufficient Balance"), Rejected, "billing"),
    "no model": (problem(404, "model 'x' not found"), Rejected, "Check the model's name"),
    "a limit": (problem(429, "Rate limit reached for requests per min (RPM)"), RateLimited, "Lower --concurrency"),
    "a quota": (problem(429, "You exceeded", code="insufficient_quota"), RateLimited, "quota is used up"),
    "a quota, with another word": (
        problem(429, "You exceeded", code="insufficient_quota", x_should_retry="true"),
        RateLimited,
        "Lower --concurrency",
    ),
    "a limit, and no more": (problem(429, "used up", x_should_retry="false"), RateLimited, "x-should-retry"),
    "a filter": (problem(400, "filtered", code="content_filter"), Refused, "filter refused this"),
    "a model that loads": (problem(503, "Loading model", type="unavailable_error"), Overloaded, "Loading model"),
    "FastAPI": (reply(b'{"detail":[{"msg":"bad"}]}', 422, "application/json"), Rejected, "bad"),
    "Ollama": (reply(b'{"error":"model is broken"}', 500, "application/json"), Overloaded, "model is broken"),
    "Gemini": (reply(b'[{"error":{"code":400,"message":"bad list"}}]', 400, "application/json"), Rejected, "bad list"),
    "a page": (reply(b"<html>502</html>", 502, "text/html"), Overloaded, "a web page came"),
    "another place": (reply(b"", 307, location="http://127.0.0.1:9/"), Rejected, "redirects"),
    "nothing": (reply(b"", 400), Rejected, "gave no reason"),
}


@pytest.mark.parametrize(("answer", "kind", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_has_its_kind(answer: bytes, kind: type[CallError], words: str):
    """Whatever form the server writes it in."""
    found = failure(answer, api_key=KEY)
    assert kind is type(found)
    with pytest.raises(kind, match=words):
        raise found


LONG: dict[str, tuple[bytes, str]] = {
    "OpenAI": (
        problem(
            400,
            "This model's maximum context length is 4,097 tokens. However, you requested 5010 tokens (1010 in the "
            "messages, 4000 in the completion).",
            code="context_length_exceeded",
        ),
        "1,010 tokens, and the model's context 4,097",
    ),
    "vLLM": (
        problem(
            400,
            "This model's maximum context length is 2048 tokens. However, your request has 3000 input tokens.",
            type="BadRequestError",
        ),
        "3,000 tokens, and the model's context 2,048",
    ),
    "llama.cpp": (
        problem(
            400,
            "the request exceeds the available context size",
            type="exceed_context_size_error",
            n_prompt_tokens=900,
            n_ctx=512,
        ),
        "900 tokens, and the model's context 512",
    ),
    "an older one, as a 500": (
        problem(500, "request (700 tokens) exceeds the available context size (512 tokens)"),
        "700 tokens, and the model's context 512",
    ),
    "one that does not say": (problem(400, "prompt is too long"), "about 1 tokens, and the model's context fewer"),
    "Bedrock": (
        problem(400, "Input is too long for requested model."),
        "about 1 tokens, and the model's context fewer",
    ),
}


@pytest.mark.parametrize(("answer", "words"), LONG.values(), ids=LONG)
def test_a_prompt_that_is_too_long_says_how_long_both_are(answer: bytes, words: str):
    """It is never sent again."""
    found = failure(answer)
    assert Rejected is type(found)
    assert f"The prompt has {words}, with the answer." in str(found)


def test_a_refusal_says_how_long_to_wait():
    """In its header, or in its sentence; the limit is named by either."""
    told = "Rate limit reached for tokens per min (TPM). Please try again in 1m2.5s."
    found = failure(problem(429, told))
    assert isinstance(found, RateLimited)
    assert (62.5, "input", False) == (found.retry_after_s, found.limit, found.final)
    found = failure(problem(429, told, retry_after="3"))
    assert isinstance(found, RateLimited)
    assert 3.0 == found.retry_after_s
    found = failure(problem(429, "Slow down.", x_ratelimit_remaining_requests="0"))
    assert isinstance(found, RateLimited)
    assert (None, "requests") == (found.retry_after_s, found.limit)


def test_where_no_key_was_given_a_refusal_says_so():
    """Also where a gateway has other words for it."""
    assert "No key was given; if the server wants one: am.Chat(api_key=...)." in str(failure(problem(401, "denied")))
    assert "No key was given" in str(failure(problem(400, "No connected db.", type="no_db_connection")))


def test_nobody_there_is_unreachable_and_unsent():
    """Nothing can have been billed."""

    async def main() -> None:
        chat = am.Chat("http://127.0.0.1:9")
        async with chat.open():
            await chat.send(asked(), Stream())

    with pytest.raises(Unreachable, match=r"No connection to 127\.0\.0\.1:9: .*Check that the server runs") as caught:
        asyncio.run(main())
    assert not caught.value.sent


ECHOES = {
    "an error": problem(400, f"bad header Bearer {KEY} and team-secret-blue-0815"),
    "a stream": reply(TEXT + chunk(error={"message": f"key {KEY}, team-secret-blue-0815", "code": 400})),
    "no JSON": reply(f"data: {KEY} team-secret-blue-0815\n\n".encode()),
}


@pytest.mark.parametrize("answer", ECHOES.values(), ids=ECHOES)
def test_no_key_is_in_an_error_a_frame_or_a_recording(answer: bytes, tmp_path: Path):
    """Whatever a server says back."""
    options = {"api_key": KEY, "headers": {"X-Team": "team-secret-blue-0815"}, "free": True}
    done, _ = run(one(), answer, chat=options, policy=am.Policy(max_attempts=1))
    done.save(tmp_path / "run.cassette.jsonl")
    shown = [str(done["a"].error), done.agents.to_csv(), done.attempts.to_csv(), repr(am.Chat("http://h", **options))]
    shown.append((tmp_path / "run.cassette.jsonl").read_text(encoding="utf-8"))
    for secret in (KEY, "team-secret-blue-0815"):
        assert not any(secret in text for text in shown)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"base_url": "127.0.0.1:8000"}, "is not the address of a server"),
        ({"base_url": f"http://me:{KEY}@host/v1"}, "holds a user name or a password"),
        ({"base_url": f"http://host/v1?key={KEY}"}, "has more behind its path"),
        ({"base_url": "http://host", "api_key": f"{KEY}\n"}, "not one line of plain characters"),
        ({"base_url": "http://host", "headers": {"X-Key": f"{KEY}\n"}}, "The header 'X-Key' cannot be sent"),
        ({"base_url": "http://host", "prices": {"m": 3}}, "prices must map models to"),
        ({"base_url": "http://host", "prices": {"m": (1, 2)}, "free": True}, "Give either prices= or free=True"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(given: dict[str, Any], words: str):
    """And no key is in the message."""
    with pytest.raises(DeclarationError, match=words) as caught:
        am.Chat(**given)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://host:8000", "http://host:8000/v1"),
        ("http://host:8000/", "http://host:8000/v1"),
        ("http://host:8000/v1/", "http://host:8000/v1"),
        ("http://host/openai/v1/chat/completions", "http://host/openai/v1"),
        ("http://host/v1beta/openai", "http://host/v1beta/openai"),
    ],
)
def test_the_address_is_read_as_servers_document_it(url: str, address: str):
    """With the path of the API, without it, or with all of it."""
    assert address == am.Chat(url).endpoint


# limits


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("6m0s", 360.0), ("1h2m3.5s", 3723.5), ("250ms", 0.25), ("7", 7.0), ("soon", None)],
)
def test_a_duration_is_read(text: str, seconds: float | None):
    """As servers write it."""
    assert seconds == duration_s(text)


def test_limits_are_read_from_headers():
    """Requests and tokens a minute; nothing of what makes no sense, nor of limits an hour or a day."""

    def read(limit: str, left: str, reset: str = "") -> Any:
        return read_headers(
            {
                "x-ratelimit-limit-requests": limit,
                "x-ratelimit-remaining-requests": left,
                "x-ratelimit-reset-requests": reset,
            }
        )

    assert {"requests": Reading(60.0, 59.0)} == read("60", "59", "1s")
    assert {"requests": Reading(60.0, 59.0)} == read("60", "59")
    assert {"requests": Reading(60.0, 60.0)} == read("60", "80", "0s")
    assert {} == read("many", "59")
    assert {} == read("14400", "14370", "2m59.56s"), "a day's"
    assert {} == read("14400", "14399", "6s"), "a day's, nearly unused"
    tokens = {"x-ratelimit-limit-tokens": "6000", "x-ratelimit-remaining-tokens": "5000"}
    assert {"input": Reading(6000.0, 5000.0)} == read_headers(tokens)


# whole runs


def test_a_run_with_tools_typed_answers_and_two_agents():
    """A tool is called, its result goes back, the typed answer reaches the next prompt."""

    def price(item: str) -> int:
        """Return the price of an item."""
        return len(item)

    calls = delta(tool_calls=[called(0, "price", '{"item": "tea"}', "a")]) + delta("tool_calls") + chunk(**counts())
    plan = am.Plan(
        [
            am.Agent("clerk", "What is tea?", model=MODEL, tools=[am.tool(price)], returns=int),
            am.Agent("next", "Twice {{ clerk }}?", model=MODEL),
        ]
    )
    done, server = run(
        plan, answers(reply(calls + DONE), reply(said('{"value": 3}')), reply(WHOLE)), chat={"prices": {MODEL: (1, 2)}}
    )
    assert (3, "hello world") == (done["clerk"].value, done["next"].text)
    assert {"role": "tool", "tool_call_id": "a", "content": "3"} == server.bodies[1]["messages"][-1]
    assert "Twice 3?" == server.bodies[2]["messages"][-1]["content"]
    assert 3 * (7 * 1 + 3 * 2) / 1e6 == pytest.approx(done.totals.cost_usd)


@pytest.mark.filterwarnings("ignore:No price is known")
@pytest.mark.parametrize(
    ("given", "cost"),
    [
        ({"prices": {MODEL: (10, 100)}}, 370 / 1e6),
        ({"prices": {MODEL: am.TokenPrice(10, 0)}}, 70 / 1e6),
        ({"free": True}, 0.0),
        ({}, math.nan),
        ({"prices": {"another": (10, 100)}}, math.nan),
    ],
)
def test_what_an_answer_costs(given: dict[str, Any], cost: float):
    """The price that was given, nothing where it is free, and unknown else: never 0 by itself."""
    done, _ = run(one(), reply(WHOLE), chat=given)
    assert cost == pytest.approx(math.nan if done.totals.cost_usd is None else done.totals.cost_usd, nan_ok=True)


def test_a_name_on_a_list_has_no_price_on_a_server_of_ones_own():
    """What the maker takes for it elsewhere is not what it costs here."""
    assert "none" == am.Chat("http://127.0.0.1:8000").price_list
    assert "groq" == am.Chat("https://api.groq.com/openai/v1").price_list
    session = am.Session(client=am.Chat("http://127.0.0.1:8000"))
    assert ((), "") == session.price_book().tariff_of("gpt-5")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effort": "low"}, "has no setting for effort"),
        ({"tools": ["web_search"]}, "runs no tools itself"),
        ({"attach": "rules", "cite": True}, "takes no documents"),
        ({"batch": True}, "has no batches"),
    ],
)
def test_what_the_api_lacks_is_refused_by_name(options: dict[str, Any], words: str, tmp_path: Path):
    """Before anything is sent."""
    (tmp_path / "rules.md").write_text("Be kind.", encoding="utf-8")
    values = {"rules": am.text_file(tmp_path / "rules.md")}
    plan = am.Plan([am.Agent("a", "Hello", model=MODEL, **options)], values=values)
    chat = am.Chat("http://127.0.0.1:9", free=True)
    with pytest.raises(DeclarationError, match=words):
        asyncio.run(plan.run(client=chat, ledger=am.Ledger(tmp_path / "l.sqlite3")))


def test_limits_of_a_server_are_kept():
    """The pacer knows them after the first response."""
    head = {"x_ratelimit_limit_requests": "600", "x_ratelimit_remaining_requests": "599"}
    done, _ = run(one(), reply(WHOLE, **head))
    assert 600.0 == done.record.terms.after[MODEL]["requests"].per_minute


def test_stop_closes_the_connection():
    """So the server stops generating."""

    async def slow(writer: Any, number: int) -> None:
        writer.write(reply(TEXT))
        await writer.drain()
        await asyncio.Event().wait()

    async def main() -> Server:
        async with serving(slow) as server:
            work = asyncio.create_task(one().run(client=am.Chat(server.url, free=True)))
            await server.asked.wait()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await server.left.wait()
            return server

    assert 1 == asyncio.run(main()).gone


def test_its_answers_are_bought_once_and_replayed(tmp_path: Path):
    """A second run takes them from the ledger at $0, and a cassette plays without a server."""
    ledger = am.Ledger(tmp_path / "l.sqlite3")

    async def main() -> tuple[am.Run, am.Run, int]:
        async with serving(answers(reply(WHOLE))) as server:
            chat = am.Chat(server.url, prices={MODEL: (1, 2)})
            first = await one().run(client=chat, ledger=ledger)
            return first, await one().run(client=chat, ledger=ledger), server.calls

    first, second, sent = asyncio.run(main())
    assert (1, 0.0) == (sent, second.totals.cost_usd)
    first.save(tmp_path / "c.cassette.jsonl")
    again = one().replay(tmp_path / "c.cassette.jsonl")
    assert "hello world" == again["a"].text
    assert first.totals.cost_usd == again.totals.cost_usd


def test_a_what_if_and_a_trial_reach_across_vendors():
    """A pool asks each maker for its models: an answer is forecast and really tried on a model of another API."""
    plan = am.Plan(
        [am.Agent("label", "Is {{ item }} good?", each="rows", returns=bool)], values={"rows": ["a", "b", "c"]}
    )

    async def main(simulator: Any) -> tuple[Any, Any, Server]:
        async with serving(answers(reply(said('{"value": true}')))) as server:
            claude = am.Claude(base_url=simulator.url, api_key="any", own_models=False)
            own = am.Chat(server.url, prices={MODEL: (1, 2)}, models=[MODEL])
            session = am.Session(client=am.Pool({"claude": claude, "own": own}))
            first = await plan.run(session=session)
            truth = [True, True, True]
            tried = await first.trial("label", model=["claude-haiku-5-5", MODEL], n=3, truth=truth, session=session)
            return first.whatif(model=[MODEL], prices={MODEL: am.TokenPrice(1, 2)}), tried, server

    with am.Simulator(latency="none") as simulator:
        what, tried, server = asyncio.run(main(simulator))
    assert [MODEL] * 3 == [one["model"] for one in server.bodies]
    assert 1 == len(what)
    assert {"claude-haiku-5-5", MODEL} == {*tried.frame["model"]}
    assert tried.frame["cost_usd"].notna().all()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, {"data": [{"id": MODEL}, {"id": "other"}]}, f"it listed {MODEL}, other"),
        (200, {"data": [{"id": "other"}]}, f"it listed other; {MODEL} is none of them"),
        (200, {"data": [{"id": "\x1b[31mred\n"}, {"id": MODEL}]}, f"it listed [31mred, {MODEL}"),
        (200, {"data": [{"id": str(one)} for one in range(40)]}, f"it listed 40 models; {MODEL} is none of them"),
        (200, "Hello", "it answered (200), without a list of models"),
        (404, {"error": {"message": "not found"}}, "it answered (404), without a list of models"),
        (401, {"error": {"message": f"wrong key {KEY}"}}, Rejected),
        (503, {"error": {"message": "loading the model"}}, Overloaded),
        (302, "", Rejected),
    ],
)
def test_a_server_is_reached_by_its_list_of_models(status, body, told) -> None:
    """No model is asked; a refusal is an error as of a request, and shows no key."""

    async def reached() -> str:
        async with serving(reply(json.dumps(body).encode(), status, "application/json")) as server:
            client = am.Chat(f"{server.url}/v1", api_key=KEY)
            async with client.open():
                return await client.reach(Request(MODEL, "x", 1))

    if isinstance(told, str):
        assert told == asyncio.run(reached())
        return
    with pytest.raises(told) as error:
        asyncio.run(reached())
    assert KEY not in str(error.value)
