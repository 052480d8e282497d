"""Servers that speak the Messages API in their own way: local ones without headers or counts, and the clouds."""

# pyright: reportUnknownMemberType=false
# pyright: reportArgumentType=false

# Tests take for granted what they have just checked, and the SDK hands its clients of other clouds out lazily.
# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportOperatorIssue=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import asyncio
import base64
import json
import struct
import sys
from binascii import crc32
from pathlib import Path
from typing import Any

import pytest
from anthropic import (
    AsyncAnthropicAWS,
    AsyncAnthropicBedrock,
    AsyncAnthropicBedrockMantle,
    AsyncAnthropicFoundry,
    AsyncAnthropicVertex,
)

import agent_magic as am
from agent_magic.api import Run
from agent_magic.record import Request
from tests.providers.wire import CLOSE, OPEN, STOP, TEXT, WHOLE, Server, event, reply, serving

MODEL = "qwen3:8b"
PLAN = am.Plan([am.Agent("a", "Hello", model=MODEL), am.Agent("b", "More of {{ a }}", model=MODEL)])


def start(model: str = MODEL, **usage: int) -> bytes:
    """The first event of an answer."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    return event("message_start", message=message)


def end(**usage: int) -> bytes:
    """The last events of an answer."""
    return event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage) + STOP


SAID = OPEN + TEXT + CLOSE
# what each server streams, and what it answers to a count, as its documentation or its source says
OLLAMA = start(input_tokens=0, output_tokens=0) + SAID + end(input_tokens=9, output_tokens=4)
VLLM = start(input_tokens=9, output_tokens=0) + SAID + end(input_tokens=9, output_tokens=4) + b"data: [DONE]\n\n"
LLAMA_CPP = start("qwen3-8b-q4.gguf", input_tokens=9, cache_read_input_tokens=0) + SAID + end(output_tokens=4)
LITELLM = start(input_tokens=9, output_tokens=0) + SAID + end(prompt_tokens=9, output_tokens=4)
NOT_FOUND = {
    "Ollama": (OLLAMA, reply(b"404 page not found", 404, "text/plain")),
    "vLLM": (VLLM, reply(b'{"detail":"Not Found"}', 404, "application/json")),
    "llama.cpp": (
        LLAMA_CPP,
        reply(b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}', 404, "application/json"),
    ),
    "LiteLLM": (LITELLM, reply(b'{"detail":"Method Not Allowed"}', 405, "application/json")),
}


def answering(answer: bytes, count: bytes) -> Any:
    """Answer messages and counts."""

    async def handle(writer: Any, number: int) -> None:
        writer.write(count if found.server.paths[number - 1].endswith("/count_tokens") else reply(answer))
        await writer.drain()

    found: Any = handle  # whose `server` is set when it serves
    return found


@pytest.mark.parametrize(("answer", "count"), NOT_FOUND.values(), ids=NOT_FOUND)
@pytest.mark.filterwarnings("ignore:No price is known")
def test_a_local_server_answers(answer: bytes, count: bytes, caplog: pytest.LogCaptureFixture, tmp_path: Path):
    """Without a key, limits, counts or prices: answers are kept, and what is left out is said once, in one line."""

    async def work() -> tuple[Run, Run, Server, str]:
        handle = answering(answer, count)
        async with serving(handle) as found:
            handle.server = found
            claude, ledger = am.Claude(base_url=found.url), am.Ledger(tmp_path / "l.sqlite3")
            assert [None, None] == await PLAN.count_tokens(client=claude)
            first = await PLAN.run(client=claude, ledger=ledger)
            second = await PLAN.run(client=claude, ledger=ledger)
            return first, second, found, found.url

    first, second, server, url = asyncio.run(work())
    assert (True, "hello world", [9, 9]) == (first.ok, first["a"].text, list(first.agents["input_tokens"]))
    assert first.agents["cost_usd"].isna().all()
    assert {"ledger"} == set(second.agents["source"])
    assert 2 == sum(path.endswith("/messages") for path in server.paths)
    said = f"{url} leaves out token counts (estimated) and rate limits (learned from refusals)."
    assert [said] == [one.getMessage() for one in caplog.records]


def test_another_model_than_asked_is_what_is_paid():
    """A gateway that answers with another model bills that one."""
    other = start("claude-opus-5-5", input_tokens=1_000_000) + SAID + end(output_tokens=2_000)

    async def work() -> Run:
        async with serving(reply(other)) as found:
            return await am.Plan([am.Agent("a", "x")]).run(client=am.Claude(base_url=found.url))

    run = asyncio.run(work())
    assert 4.04 == run["a"].cost_usd
    assert "claude-opus-5-5" == run.record["a"].answer.model  # pyright: ignore[reportOptionalMemberAccess]


def test_what_a_server_tells_is_not_missed(caplog: pytest.LogCaptureFixture):
    """One header of a limit is enough: there is nothing to say."""
    limits = {"anthropic_ratelimit_requests_limit": 50, "anthropic_ratelimit_requests_remaining": 49}

    async def work() -> Run:
        async with serving(reply(WHOLE, **limits)) as found:
            return await am.Plan([am.Agent("a", "x")]).run(client=am.Claude(base_url=found.url))

    assert asyncio.run(work()).ok
    assert [] == caplog.records


def frame(data: bytes) -> bytes:
    """A message of Amazon's event stream: lengths, a checksum, headers, the payload, a checksum."""
    names = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in names.items()
    )
    payload = json.dumps({"bytes": base64.b64encode(data).decode()}).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return message + struct.pack(">I", crc32(message))


def framed(stream: bytes) -> bytes:
    """The events of a stream as Bedrock sends them."""
    data = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: ")]
    return b"".join(map(frame, data))


def bedrock(url: str) -> Any:
    """Amazon Bedrock."""
    return AsyncAnthropicBedrock(api_key="a-bedrock-key", aws_region="eu-west-1", base_url=url)


def vertex(url: str) -> Any:
    """Google Vertex AI."""
    return AsyncAnthropicVertex(region="r", project_id="p", access_token="a-vertex-token", base_url=url)


def foundry(url: str) -> Any:
    """Microsoft Foundry."""
    return AsyncAnthropicFoundry(api_key="a-foundry-key", base_url=f"{url}/anthropic/")


def mantle(url: str) -> Any:
    """Bedrock's own Messages API."""
    return AsyncAnthropicBedrockMantle(api_key="a-mantle-key", aws_region="eu-west-1", base_url=url)


def aws(url: str) -> Any:
    """Claude Platform on AWS."""
    return AsyncAnthropicAWS(api_key="an-aws-key", workspace_id="w", aws_region="eu-west-1", base_url=url)


CLOUDS = {
    "vertex": (vertex, "/projects/p/locations/r/publishers/anthropic/models/claude-haiku-5-5:streamRawPredict"),
    "foundry": (foundry, "/anthropic/v1/messages"),
    "mantle": (mantle, "/v1/messages"),
    "aws": (aws, "/v1/messages"),
}


async def asked(make: Any, answer: Any, model: str = "claude-haiku-5-5") -> tuple[Run, Server, Any]:
    """Run one agent through a client of a cloud."""
    async with serving(answer) as found, make(found.url) as sdk:
        plan = am.Plan([am.Agent("a", "Hello", model=model)])
        return await plan.run(am.Policy(max_attempts=1), client=sdk), found, sdk


@pytest.mark.parametrize(("make", "path"), CLOUDS.values(), ids=CLOUDS)
def test_a_cloud_answers(make: Any, path: str):
    """Its client is accepted as it is: its address, its credentials, its way to write the request."""
    run, server, _ = asyncio.run(asked(make, reply(WHOLE)))
    assert ("hello world", 1) == (run["a"].text, len(server.bodies))
    assert server.paths[0].endswith(path)
    assert [{"role": "user", "content": "Hello"}] == server.bodies[0]["messages"]


@pytest.mark.parametrize("make", [bedrock, *(one for one, _ in CLOUDS.values())])
def test_no_message_shows_a_credential_of_a_cloud(make: Any):
    """A server that sends them back in an error is not quoted."""

    async def echo(writer: Any, number: int) -> None:
        said = json.dumps({"error": {"message": f"no: {server.heads[number - 1]}"}})
        writer.write(reply(said.encode(), 400, "application/json"))
        await writer.drain()

    async def work() -> Run:
        nonlocal server
        async with serving(echo) as server, make(server.url) as sdk:
            return await am.Plan([am.Agent("a", "x")]).run(client=sdk)

    server: Any = None
    error = asyncio.run(work())["a"].error or ""
    assert error.startswith("Rejected: no: ")
    assert "-key" not in error.replace("[key]", "")
    assert "-token" not in error


def test_bedrock_answers():
    """Its event stream is read by the decoder of the SDK, which needs botocore."""
    pytest.importorskip("botocore")
    model = "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
    run, server, _ = asyncio.run(asked(bedrock, reply(framed(WHOLE), kind="application/vnd.amazon.eventstream"), model))
    assert "hello world" == run["a"].text, run["a"].error
    assert run["a"].cost_usd  # by Amazon's list
    assert server.paths[0].endswith("/invoke-with-response-stream")
    assert "messages" in server.bodies[0]
    assert "model" not in server.bodies[0]


def test_bedrock_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    """The SDK's own error names a module, not what to do."""
    for name in [one for one in sys.modules if one.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setitem(sys.modules, "botocore.parsers", None)
    run, _, _ = asyncio.run(asked(bedrock, reply(framed(WHOLE), kind="application/vnd.amazon.eventstream")))
    assert "Install its extra for this cloud, such as anthropic[bedrock]" in (run["a"].error or "")
    assert 1 == len(run["a"].attempts)


def test_bedrock_counts_no_tokens():
    """The SDK says so by an error: that is an estimate, not a failure."""

    async def work() -> int | None:
        claude = am.Claude(client=bedrock("http://127.0.0.1:9"))
        return await claude.count_tokens(Request("m", "x", 5))

    assert asyncio.run(work()) is None
