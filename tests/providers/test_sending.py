"""Requests go out alike, whether as bytes of ours or by the SDK's method; who watches the method sees them all."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import json
import warnings

import pytest
from anthropic.resources import AsyncMessages

import agent_magic as am
from agent_magic.declare import Placed
from agent_magic.declare.values import text_document
from agent_magic.providers import Stream, body_text
from agent_magic.providers.anthropic.client import _is_unwatched, body
from agent_magic.record import Message, Request
from tests.providers.wire import WHOLE, reply, serving

DOCUMENT = text_document("Grass is green – ja.", "rules")
CALLS = (
    Message(
        "assistant", '[{"type":"text","text":"I look. \\u00e9"},{"type":"tool_use","id":"a","name":"f","input":{}}]'
    ),
    Message("user", '[{"type": "tool_result", "tool_use_id": "a", "content": "found \\ud83d\\ude00"}]'),
)
REQUESTS = {
    "a prompt": Request("claude-haiku-5-5", "Hello – ça va?", 100),
    "system and context": Request("claude-haiku-5-5", "x", 100, "Be brief.", "A context.", cached=True, ttl="1h"),
    "turns": Request("claude-haiku-5-5", "x", 100, messages=CALLS, cached_turns=True, tool_choice="none"),
    "tools": Request(
        "claude-haiku-5-5",
        "x",
        100,
        messages=CALLS,
        tools='[{"name":"f","input_schema":{"type":"object"}},{"type":"web_search","name":"web_search"}]',
    ),
    "a type": Request("claude-haiku-5-5", "x", 100, schema='{"type":"object"}', effort="low"),
    "a document": Request(
        "claude-haiku-5-5", "[document rules]\nx", 100, cached=True, attachments=(Placed(0, DOCUMENT),), messages=CALLS
    ),
    "a text where blocks were": Request("claude-haiku-5-5", "x", 100, messages=(Message("assistant", "left out"),)),
    "a returned document": Request(
        "claude-haiku-5-5",
        "x",
        100,
        returned=(DOCUMENT,),
        messages=(
            CALLS[0],
            Message("user", json.dumps([{"type": "tool_result", "content": [DOCUMENT.block(DOCUMENT.sha256)]}])),
        ),
    ),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_a_body_as_text_is_the_body(case):
    """Member for member, in UTF-8, with the word that asks for a stream."""
    request = REQUESTS[case]
    assert {**body(request), "stream": True} == json.loads(body_text(request))
    assert "ça va" in json.dumps(json.loads(body_text(REQUESTS["a prompt"])), ensure_ascii=False)
    assert b"\\u2013" not in body_text(REQUESTS["a prompt"])


def test_what_was_said_goes_back_byte_for_byte():
    """A provider may have signed it."""
    assert all(one.content.encode() in body_text(REQUESTS["turns"]) for one in CALLS)


def ask(request, claude):
    """Send a request with a client of ours; return the head and the body that came."""

    async def work():
        async with serving(reply(WHOLE)) as server:
            client = claude(server.url)
            async with client.open():
                answer = await client.send(request, Stream())
            assert "hello world" == answer.text
            return server.heads[0], server.bodies[0]

    return asyncio.run(work())


def ours(url):
    """A client that is made here."""
    return am.Claude(base_url=url, api_key="k" * 20)


@pytest.mark.parametrize("case", ["a prompt", "tools", "a document"])
def test_both_ways_send_the_same(case, monkeypatch):
    """Headers and body, whoever writes them."""
    head, sent = ask(REQUESTS[case], ours)
    monkeypatch.setattr("agent_magic.providers.anthropic.client._is_unwatched", lambda *_: False)
    other, theirs = ask(REQUESTS[case], ours)
    assert theirs == sent
    drop = {"host", "content-length"}  # JSON may be written with other white space
    assert {name: one for name, one in other.items() if name not in drop} == {
        name: one for name, one in head.items() if name not in drop
    }


def test_what_stands_in_the_place_of_the_method_is_called(monkeypatch):
    """Tools that watch or log requests put something there, for all clients."""
    seen = []
    before = AsyncMessages.create

    async def create(self, **asked):
        seen.append(asked["model"])
        return await before(self, **asked)

    ask(REQUESTS["a prompt"], ours)
    assert [] == seen
    monkeypatch.setattr(AsyncMessages, "create", create)
    ask(REQUESTS["a prompt"], ours)
    assert ["claude-haiku-5-5"] == seen


def test_who_traces_sees_the_method():
    """With OpenTelemetry set up the SDK makes a span in it; without, or set up to do nothing, nobody would see one."""
    from opentelemetry import trace

    class Recording(trace.TracerProvider):
        """Whatever records."""

        def get_tracer(self, *_, **__):
            """Return a tracer."""
            return trace.NoOpTracer()

    async def work():
        client = ours("http://localhost:1")
        async with client.open():
            return [
                _is_unwatched(client._sdk(), "claude-haiku-5-5"),
                *(_with(provider, client) for provider in (Recording(), trace.NoOpTracerProvider())),
            ]

    def _with(provider, client):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trace, "_TRACER_PROVIDER", provider)
            return _is_unwatched(client._sdk(), "claude-haiku-5-5")

    assert [True, False, True] == asyncio.run(work())


def test_the_sdk_still_warns_of_old_models():
    """What it says of a model that will be gone is said."""
    from anthropic.resources.messages import DEPRECATED_MODELS

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ask(Request(next(iter(DEPRECATED_MODELS)), "x", 100), ours)
    assert any("deprecated" in str(one.message) for one in told)
