"""Streams in which fields are missing, or are what nobody expects: each request ends in an answer or in plain words."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_magic as am
from agent_magic.errors import CallError
from agent_magic.providers import Stream
from agent_magic.record import Request
from tests.conftest import NIGHTLY
from tests.providers.chat import speaking
from tests.providers.wire import BEGIN, CLOSE, OPEN, REASON, STOP, TEXT, event, reply, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from agent_magic.record import Answer

REQUESTS = 40
"""Of one example."""
ODD: list[Any] = [
    *(None, True, False, 0, -1, 7.0, 0.5, 10**30, "", "x", "error", "stop", "\ud800", "é🎉"),
    *([], {}, [None], [[]], ["a"], {"a": 1}, {"type": "text", "text": "y"}, {"message": "w", "code": "500"}),
]
PYTHON = ("object has no attribute", "NoneType", "unhashable", "subscriptable", "Traceback", "expected str")
"""Words that say nothing to a person."""


def pieces(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """A block, whole."""
    parts = [event("content_block_delta", index=index, delta=one) for one in deltas]
    return event("content_block_start", index=index, content_block=begun) + b"".join(parts)


CITED = {"type": "page_location", "document_title": "t", "start_page_number": 1, "end_page_number": 2}
CLAUDE = b"".join(
    [
        BEGIN + OPEN + TEXT,
        event("content_block_delta", index=0, delta={"type": "citations_delta", "citation": CITED}) + CLOSE,
        pieces(
            1,
            {"type": "tool_use", "id": "a", "name": "look", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"n": 1}'},
        ),
        pieces(2, {"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "s"}),
        REASON + STOP,
    ]
)
CHAT = b"".join(
    [
        speaking.TEXT + speaking.delta(content=[{"type": "text", "text": "!"}], reasoning_content="hm"),
        speaking.delta(tool_calls=[speaking.called(0, "look", '{"n"', "a")]),
        speaking.delta(tool_calls=[speaking.called(0, "", ": 1}")]) + speaking.delta("tool_calls"),
        speaking.chunk(**speaking.counts(prompt_tokens_details={"cached_tokens": 1})),
    ]
)


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value in JSON."""
    yield before
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inside:
        yield from places(one, (*before, name))


def changed(value: Any, path: tuple[Any, ...], random: Random) -> Any:
    """Return JSON with another value at a place, or without it."""
    if not path:
        return random.choice(ODD)
    found, *rest = path
    if not rest and random.random() < 0.3:
        del value[found]
    else:
        value[found] = changed(value[found], tuple(rest), random)
    return value


def odd(stream: bytes, random: Random) -> bytes:
    """Return a stream in which up to three things are other than they should be."""
    events = [json.loads(line[6:]) for line in stream.decode().split("\n") if line.startswith("data: {")]
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(events))
        events[at] = changed(copy.deepcopy(events[at]), random.choice([*places(events[at])]), random)
    match random.randrange(8):
        case 0:
            random.shuffle(events)
        case 1:
            events.insert(random.randrange(len(events)), random.choice(events))
        case _:
            pass
    body = b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in events)
    at = random.randrange(len(body))
    return random.choice([body, body, body, body[:at], body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]])


def check(answer: Answer) -> None:
    """Whatever an answer has can be written down, sent back and counted."""
    json.loads(answer.content or "null")
    texts = [answer.text, answer.stop_reason, answer.model, answer.content or ""]
    texts += [text for one in answer.citations for text in one]
    assert all(isinstance(one, str) and one.encode() is not None for one in texts)
    usage = answer.usage
    counts = [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens]
    assert all(one is None or (type(one) is int and 0 <= one <= 20_000_000) for one in counts)


async def ask(stream: bytes, random: Random, vendor: Any) -> list[str]:
    """Send requests, each answered oddly; return the words of the errors."""
    said: list[str] = []

    async def answer(writer: Any, _: int) -> None:
        writer.write(reply(odd(stream, random)))
        await writer.drain()

    async with serving(answer) as server, asyncio.timeout(60):
        provider = vendor(base_url=server.url, api_key="none")
        async with provider.open():
            for _ in range(REQUESTS):
                try:
                    check(await provider.send(Request("m", "x", 100), Stream()))
                except CallError as error:
                    said.append(str(error))
    return said


@pytest.mark.parametrize(("vendor", "stream"), [(am.Claude, CLAUDE), (am.Chat, CHAT)], ids=["Claude", "Chat"])
@settings(max_examples=100 if NIGHTLY else 5, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_whatever_a_server_sends_is_an_answer_or_an_error_in_words(vendor: Any, stream: bytes, random: Random):
    """Nothing else is raised, and no answer has what a recording could not hold or a budget could not count."""
    said = asyncio.run(ask(stream, random, vendor))
    assert [] == [one for one in said if any(word in one for word in PYTHON)]
