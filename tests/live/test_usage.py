"""Usage: the last count of a server, an estimate where it told no last one, unknown where it told nothing."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import json
from typing import Any

import pandas as pd
import pytest

import agent_magic as am
from agent_magic.providers import Provider
from agent_magic.record import Answer, Usage
from tests.providers.wire import BEGIN, CLOSE, OPEN, STOP, delta, event, reply, serving

MOST = 100


def begin(**usage: Any) -> bytes:
    """The first event of an answer."""
    message = {"type": "message", "model": "claude-haiku-5-5", "content": []}
    return event("message_start", message={**message, "usage": usage} if usage else message)


def piece(kind: str, field: str, text: str, **block: Any) -> bytes:
    """A block that is no text, with one piece of it."""
    return event("content_block_start", index=0, content_block=block) + event(
        "content_block_delta", index=0, delta={"type": kind, field: text}
    )


def end(**usage: Any) -> bytes:
    """The end of an answer."""
    return event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage or None) + STOP


def on_the_way(count: Any) -> bytes:
    """A count before the end."""
    return event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": count})


TEXT = OPEN + delta("word" * 10) + CLOSE
START = begin(input_tokens=7, output_tokens=1)
THINKING = piece("thinking_delta", "thinking", "word" * 20, type="thinking", thinking="")
CALL = piece("input_json_delta", "partial_json", "word" * 30, type="tool_use", id="t", name="f", input={})
KNOWN = (7, 23, False)
SHOWN: dict[str, tuple[bytes, tuple[int | None, int | None, bool]]] = {
    "the last count": (START + TEXT + end(output_tokens=23), KNOWN),
    "a later one still": (START + TEXT + end(output_tokens=9)[: -len(STOP)] + end(output_tokens=23), KNOWN),
    "counts that grow": (START + on_the_way(20) + TEXT + end(output_tokens=23), KNOWN),
    "input at the end": (begin(input_tokens=0, output_tokens=0) + TEXT + end(input_tokens=7, output_tokens=23), KNOWN),
    "no last count": (START + TEXT + end(), (7, 10, True)),
    "null": (START + TEXT + end(output_tokens=None), (7, 10, True)),
    "other counts": (START + TEXT + end(completion_tokens=23), (7, 10, True)),
    "zero": (begin(input_tokens=7, output_tokens=0) + TEXT + end(output_tokens=0), (7, 10, True)),
    "one that falls": (START + on_the_way(50) + TEXT + end(output_tokens=9), (7, 50, True)),
    "one below 0": (START + TEXT + end(output_tokens=-9), (7, 10, True)),
    "more than was asked for": (START + TEXT + end(output_tokens=MOST + 1), (7, 10, True)),
    "a text": (START + TEXT + end(output_tokens="23"), (7, 10, True)),
    "zeros": (begin(input_tokens=0, output_tokens=0) + TEXT + end(output_tokens=0), (16, 10, True)),
    "cut": (START + TEXT, (7, 10, True)),
    "cut, counted so far": (START + on_the_way(60) + TEXT, (7, 60, True)),
    "cut while it thinks": (START + THINKING, (7, 20, True)),
    "cut in a call": (START + CALL, (7, 30, True)),
    "cut after more than was asked for": (START + OPEN + delta("word" * 300), (7, MOST, True)),
    "all that came before it began again": (
        START + THINKING + TEXT + START + TEXT + end(output_tokens=23),
        (7, 40, True),
    ),
    "letters of three bytes": (START + OPEN + delta("語" * 40), (7, 30, True)),
    "nothing told": (begin() + TEXT + end(), (None, None, False)),
    "nothing told, and cut": (begin() + TEXT, (None, None, False)),
}


def asked(page: bytes) -> am.Run:
    """Ask a server once."""

    async def work() -> am.Run:
        async with serving(page) as server:
            client = am.Claude(base_url=server.url, api_key="any")
            plan = am.Plan([am.Agent("a", "q", max_tokens=MOST)])
            return await plan.run(am.Policy(max_attempts=1), client=client)

    return asyncio.run(work())


@pytest.mark.parametrize(("body", "shown"), SHOWN.values(), ids=SHOWN)
def test_what_is_shown_of_a_request(body, shown):
    """The last count as it is; else an estimate of all that came, from the running count to what was asked for."""
    row = asked(reply(body)).attempts.iloc[0]
    found = [None if pd.isna(value) else value for value in (row.input_tokens, row.output_tokens)]
    assert shown == (*found, row.usage_estimated)
    assert (shown[0] is None) == pd.isna(row.cost_usd)


def test_a_message_in_one_piece_is_counted_alike():
    """Its count is the last; 0 beside a text is none."""
    message: dict[str, Any] = {"type": "message", "model": "claude-haiku-5-5", "stop_reason": "end_turn"}
    message["content"] = [{"type": "text", "text": "word" * 10}]
    for count, shown in ((23, (23, False)), (0, (10, True))):
        body = json.dumps({**message, "usage": {"input_tokens": 7, "output_tokens": count}}).encode()
        usage = asked(reply(body, kind="application/json"))["a"].usage
        assert shown == (usage.output_tokens, usage.estimated)


class Counting(Provider):
    """A provider of one's own that says what its answers used."""

    endpoint = "counting"
    is_limited = False

    def __init__(self, usage: Usage) -> None:
        self.usage, self.asked = usage, 0

    async def send(self, request, stream):
        """Answer with 40 letters."""
        self.asked += 1
        stream.add("word" * 10)
        return Answer(stream.text, "end_turn", usage=self.usage, model=request.model)


@pytest.mark.parametrize(
    ("usage", "shown", "sent"),
    [
        (Usage(7, output_tokens=10), Usage(7, output_tokens=10), 9),
        (Usage(0, output_tokens=0), Usage(16, output_tokens=10, estimated=True), 3),
        (Usage(7, output_tokens=10**9), Usage(7, output_tokens=10, estimated=True), 3),
        (Usage(10**9, output_tokens=10), Usage(16, output_tokens=10, estimated=True), 3),
        (Usage(), Usage(), 3),
    ],
    ids=str,
)
def test_a_provider_of_ones_own_is_read_alike(usage, shown, sent):
    """What it cannot know, or gets wrong, keeps its reserve: a budget for three requests at worst sends three."""
    client = Counting(usage)
    plan = am.Plan([am.Agent("a", "q {{ item }}", each="rows", max_tokens=MOST)], {"rows": list(range(9))})
    policy = am.Policy(budget_usd=0.0000599 * 3.2, concurrency=1)
    run = asyncio.run(plan.run(policy, client=client, prices={"claude-haiku-5-5": am.TokenPrice(0.1, 0.5)}))
    assert (sent, shown) == (client.asked, run.record.attempts[0].usage)


def test_a_dearer_model_than_was_asked_is_reserved_for_once_it_is_known():
    """A server that answers in its name is asked no more than the budget holds at its price."""
    body = BEGIN.replace(b"claude-haiku-5-5-20261001", b"claude-opus-4-1") + TEXT + end(output_tokens=MOST)

    async def work() -> tuple[am.Run, int]:
        async with serving(reply(body)) as server:
            client = am.Claude(base_url=server.url, api_key="any")
            plan = am.Plan([am.Agent("a", "q {{ item }}", each="rows", max_tokens=MOST)], {"rows": list(range(9))})
            policy = am.Policy(budget_usd=0.012, concurrency=1)
            return await plan.run(policy, client=client), server.calls

    run, calls = asyncio.run(work())
    assert (1, "claude-opus-4-1") == (calls, run.record.results[0].model_used)
    assert run.totals.cost_usd == pytest.approx((10 * 15 + 3 * 1.5 + 4 * 18.75 + MOST * 75) / 1e6)
