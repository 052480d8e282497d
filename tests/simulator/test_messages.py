"""The Messages API as the real SDK sees it."""

from __future__ import annotations

import asyncio
import json

import pydantic
import pytest
from anthropic import AsyncAnthropic

QUESTION = "Compare trains and buses for a small town."


def events_of(raw: bytes) -> list[tuple[str, dict]]:
    """Split a body into its server-sent events."""
    found = []
    for block in raw.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def body(prompt: str = QUESTION, **more) -> dict:
    """A request as it goes over the wire."""
    messages = [{"role": "user", "content": prompt}]
    return {"model": "claude-haiku-5-5", "max_tokens": 1000, "messages": messages, **more}


def test_event_order(talk) -> None:
    """Events come in the documented order, each named twice, with usage at the start and cumulative at the end."""
    answer = talk.post(body(stream=True))
    events = events_of(answer.body)
    names = [name for name, _ in events]
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert all(name == data["type"] for name, data in events)
    assert ["message_start", "content_block_start", "ping"] == names[:3]
    assert ["content_block_stop", "message_delta", "message_stop"] == names[-3:]
    assert {"content_block_delta"} == set(names[3:-3])
    start, end = events[0][1]["message"], events[-2][1]
    assert (None, [], 1) == (start["stop_reason"], start["content"], start["usage"]["output_tokens"])
    assert start["usage"]["input_tokens"] == end["usage"]["input_tokens"]
    assert ("end_turn", True) == (end["delta"]["stop_reason"], end["usage"]["output_tokens"] > 50)


def test_stream_and_plain_answer_are_the_same(talk) -> None:
    """The same request gets the same text and usage either way, and an id of its own."""
    plain, streamed = talk.create(QUESTION), talk.stream(QUESTION)
    assert plain.content[0].text == streamed.content[0].text
    assert plain.usage.output_tokens == streamed.usage.output_tokens
    assert plain.id.startswith("msg_sim_")
    assert plain.id != streamed.id


def test_usage_is_what_count_tokens_says(talk) -> None:
    """`input_tokens` of a request equals `count_tokens` of the same request: tools, system, blocks and all."""
    tools = [{"name": "look", "description": "Look it up", "input_schema": {"type": "object", "properties": {}}}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "One ✓"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": QUESTION},
    ]
    request = {"model": "claude-haiku-5-5", "system": "You are brief.", "messages": messages, "tools": tools}

    async def both(client: AsyncAnthropic):
        counted = await client.messages.count_tokens(**request)
        return counted.input_tokens, (await client.messages.create(max_tokens=50, **request)).usage.input_tokens

    counted, billed = talk.sdk(both)
    assert counted == billed
    assert 286 + 50 < counted < 286 + 70  # with the hidden instruction on tools


def test_same_seed_same_answer(started) -> None:
    """Text depends on the seed, the model and the prompt, and on nothing else."""
    one, same, other = started(latency="none"), started(latency="none"), started(latency="none", seed=7)
    text = one.create(QUESTION).content[0].text
    assert text == same.create(QUESTION).content[0].text
    assert text == one.create(QUESTION, max_tokens=2000).content[0].text
    assert text != other.create(QUESTION).content[0].text
    assert text != one.create(QUESTION, model="claude-opus-5-5").content[0].text
    assert text != one.create(QUESTION, system="You are a planner.").content[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_max_tokens_cuts(talk, stream) -> None:
    """An answer is cut at `max_tokens` exactly, and says so."""
    whole = talk.create(QUESTION).content[0].text
    cut = (talk.stream if stream else talk.create)(QUESTION, max_tokens=20)
    assert ("max_tokens", 20) == (cut.stop_reason, cut.usage.output_tokens)
    assert whole.startswith(cut.content[0].text)


def test_stop_sequence(talk) -> None:
    """An answer ends before the stop sequence that comes first, and names it."""
    found = talk.create("[[echo]] one two three four", stop_sequences=["four", "three"])
    assert ("[[echo]] one two ", "stop_sequence", "three") == (
        found.content[0].text,
        found.stop_reason,
        found.stop_sequence,
    )


def test_structured_output(talk) -> None:
    """With a schema the answer is a JSON document that follows it."""

    class Verdict(pydantic.BaseModel):
        winner: str
        score: int = pydantic.Field(ge=1, le=5)
        reasons: list[str]

    async def parse(client: AsyncAnthropic):
        return await client.messages.parse(**body(), output_format=Verdict)

    verdict = talk.sdk(parse).parsed_output
    assert isinstance(verdict, Verdict)
    assert verdict.reasons


@pytest.mark.parametrize("credentials", [{"x-api-key": "k"}, {"authorization": "Bearer k"}])
def test_both_kinds_of_credentials(talk, credentials) -> None:
    """A key in either header is taken, whatever it is."""
    assert 200 == talk.post(body(), headers={**credentials, "anthropic-version": "2026-10-21"}).status


def test_without_credentials(talk) -> None:
    """Without a key the answer is the documented 401."""
    answer = talk.post(body(), headers={"anthropic-version": "2026-10-21"})
    assert (401, "error") == (answer.status, answer.body["type"])
    assert "authentication_error" == answer.body["error"]["type"]
    assert answer.headers["request-id"] == answer.body["request_id"]


def test_every_answer_is_labelled(talk) -> None:
    """Good or bad, an answer says that it is simulated."""
    for answer in (talk.post(body()), talk.post(b"{"), talk.get("/nowhere"), talk.get("/simulator/log")):
        assert "1" == answer.headers["x-agent-magic-simulated"]


USER = [{"role": "user", "content": "hi"}]
WRONG = [
    ({}, 400, "model: Field required"),
    ({"model": "claude-haiku-5-5"}, 400, "max_tokens: Field required"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5}, 400, "messages: Field required"),
    ({"model": 5, "max_tokens": 5, "messages": USER}, 400, "model: Input should be a valid string"),
    (
        {"model": "claude-haiku-5-5", "max_tokens": "5", "messages": USER},
        400,
        "max_tokens: Input should be a valid int",
    ),
    ({"model": "claude-haiku-5-5", "max_tokens": -1, "messages": USER}, 400, "max_tokens: Input should be greater"),
    ({"model": "claude-haiku-5-5", "max_tokens": 200_000, "messages": USER}, 400, "max_tokens: 200000 > 128000"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5, "messages": []}, 400, "messages: at least one"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5, "messages": [{"role": "bot"}]}, 400, "messages.0.role"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5, "messages": [{"role": "user", "content": ""}]}, 400, "non-empty"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5, "messages": USER, "temperature": 0.5}, 400, "temperature:"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5, "messages": USER, "stream": 1}, 400, "stream:"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5, "messages": USER, "system": 1}, 400, "system:"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5, "messages": USER, "tools": [1]}, 400, "tools.0.name"),
    ({"model": "claude-haiku-5-5", "max_tokens": 5, "messages": USER, "thread": {"type": "create"}}, 400, "thread:"),
    (
        {"model": "claude-opus-5-5", "max_tokens": 5, "messages": USER, "tool_choice": {"type": "any"}},
        400,
        "tool_choice",
    ),
    ({"model": "claude-nine", "max_tokens": 5, "messages": USER}, 404, "model: claude-nine"),
]


@pytest.mark.parametrize(("request_body", "status", "message"), WRONG)
def test_wrong_requests(talk, request_body, status, message) -> None:
    """What is wrong is named, in the documented body."""
    answer = talk.post(request_body)
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    assert (status, kind) == (answer.status, answer.body["error"]["type"])
    assert message in answer.body["error"]["message"]


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff\xfe", b""])
def test_bodies_that_are_no_object(talk, raw) -> None:
    """Bytes that are no JSON object are a 400."""
    assert (400, "invalid_request_error") == ((answer := talk.post(raw)).status, answer.body["error"]["type"])


def test_sampling_is_taken_by_earlier_models(talk) -> None:
    """Sampling parameters are refused by current models only."""
    assert 200 == talk.post(body(model="claude-haiku-4-5", temperature=0.5)).status


def test_threads_are_declined_as_the_sdk_expects(talk) -> None:
    """A message thread gets the error code on which the SDK goes on without one."""
    answer = talk.post(body(thread={"type": "create"}))
    assert "thread_unsupported_request" == answer.body["error"]["details"]["error_code"]


def test_models(talk) -> None:
    """The list and one model parse with the SDK; an unknown one is a 404."""
    names = [model.id for model in talk.sdk(lambda client: client.models.list()).data]
    assert {"claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"} <= set(names)
    found = talk.sdk(lambda client: client.models.retrieve("claude-haiku-4-5"))
    assert (200_000, 64_000) == (found.max_input_tokens, found.max_tokens)
    assert 404 == talk.get("/v1/models/claude-nine").status


def test_many_streams_at_once(started) -> None:
    """Two hundred streams run at the same time, each complete and its own."""
    talk = started(latency="ttft=2,pace=400,spread=0", unlimited=True)

    async def one(client: AsyncAnthropic, number: int) -> str:
        prompt = f"[[echo]] Stream {number} " + "and so on " * 20
        async with client.messages.stream(**body(prompt)) as stream:
            message, text = await stream.get_final_message(), await stream.get_final_text()
        assert ("end_turn", prompt) == (message.stop_reason, text)
        return message.id

    async def all_of_them(client: AsyncAnthropic) -> list[str]:
        return await asyncio.gather(*(one(client, number) for number in range(200)))

    assert 200 == len(set(talk.sdk(all_of_them, timeout_s=60.0)))
    log = talk.log()
    assert (200, 0, 200) == (log["finished"], log["aborted"], len(log["requests"]))
    assert log["peak_overlap"] > 50


def test_a_body_that_is_nested_too_deeply_is_refused(talk) -> None:
    """It is wrong as any other that cannot be read: a 400, not an error of the server."""
    answer = talk.post(b"[" * 200_000)
    assert 400 == answer.status
    assert "not valid JSON" in answer.body["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_misspelt_field_is_refused(talk, path: str) -> None:
    """It is named, as by the API; fields of the SDK are taken."""
    known = {"metadata": {"user_id": "x"}} if path == "/v1/messages" else {}
    counted = {name: value for name, value in body("Hi.").items() if path == "/v1/messages" or name != "max_tokens"}
    assert 200 == talk.post(counted | known, path=path).status
    answer = talk.post(counted | {"temprature": 1}, path=path)
    assert (400, "temprature: Extra inputs are not permitted") == (answer.status, answer.body["error"]["message"])


def test_models_come_page_by_page(talk) -> None:
    """A page has as many as are asked for, and says whether more follow."""
    first = talk.get("/v1/models?limit=3").body
    assert (3, True) == (len(first["data"]), first["has_more"])
    rest = talk.get(f"/v1/models?limit=1000&after_id={first['last_id']}").body
    assert not rest["has_more"]
    assert not {one["id"] for one in first["data"]} & {one["id"] for one in rest["data"]}


def test_the_older_name_of_a_form_is_understood(talk) -> None:
    """Clients of other projects still send `output_format`."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    answer = talk.post(body("Count.", output_format={"type": "json_schema", "schema": schema}))
    assert isinstance(json.loads(answer.body["content"][0]["text"])["a"], int)
