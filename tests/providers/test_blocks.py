"""What a stream says, block by block, through the real SDK over real HTTP: order, digits, blanks, a full context."""

# Tests take for granted what they have just checked.
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_magic import Agent, Policy
from agent_magic.declare import Plan
from agent_magic.providers.responses import with_own_ids
from agent_magic.show import capped_note
from tests.providers.test_claude import meet, one
from tests.providers.wire import BEGIN, REASON, STOP, delta, event, reply


def opened(index: Any, **block: Any) -> bytes:
    """The beginning of a block; of text where nothing else is said."""
    return event("content_block_start", index=index, content_block=block or {"type": "text", "text": ""})


def piece(index: Any, text: str) -> bytes:
    """A piece of text of a block."""
    return event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})


def stopped(reason: str) -> bytes:
    """The end of a message."""
    return event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 5}) + STOP


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=9))
def test_blocks_keep_their_order(order: list[int]):
    """In whatever order their pieces come, the text is that of one block after the other."""
    pieces = [(block, f"{block}.{at} ") for at, block in enumerate(order)]
    body = BEGIN + b"".join(map(opened, range(3))) + b"".join(piece(*one) for one in pieces) + REASON + STOP
    record, _ = meet(reply(body))
    assert "".join(text for _, text in sorted(pieces, key=lambda one: one[0])) == record["a"].text


@pytest.mark.parametrize(
    "body",
    [
        opened(0) + piece(0, "a") + opened(0) + piece(0, "b"),
        piece(0, "a") + piece(0, "b"),
        opened(None) + piece(None, "a") + opened(None) + piece(None, "b"),
        opened(3) + piece(7, "a") + piece(3, "b"),
        piece(0, "a") + opened(1) + piece(1, "b"),
    ],
    ids=["one number for all", "no beginning", "no number", "a wrong number", "before the first"],
)
def test_servers_that_number_blocks_in_their_own_way_lose_no_text(body: bytes):
    """Each piece is in the answer, in the order in which they came."""
    record, _ = meet(reply(BEGIN + body + REASON + STOP))
    assert "ab" == record["a"].text


def test_a_call_has_the_digits_that_the_model_wrote():
    """A `Decimal` argument is what stands in the stream."""
    seen: list[Any] = []

    def pay(total: Decimal, at: int) -> str:
        """Pay."""
        seen.append((total, at))
        return "paid"

    text = '{"total": 10000000000000000.01, "at": 9007199254740993}'
    block = opened(0, type="tool_use", id="t1", name="pay", input={})
    written = event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": text})
    bodies = [BEGIN + block + written + stopped("tool_use"), BEGIN + opened(0) + delta("done") + REASON + STOP]

    async def answer(writer: Any, number: int) -> None:
        writer.write(reply(bodies[number - 1]))
        await writer.drain()

    record, _ = meet(answer, Plan((Agent("a", "x", tools=[pay]),)))
    assert "done" == record["a"].text
    assert [(Decimal("10000000000000000.01"), 9007199254740993)] == seen


CALLS = st.fixed_dictionaries(
    {
        "type": st.just("tool_use"),
        "id": st.sampled_from(["a", "call_0", "call_1", "", None]),
        "name": st.sampled_from("fg"),
        "input": st.sampled_from([{}, {"n": 1}, {"n": 2}]),
    }
)


@given(st.lists(CALLS | st.just({"type": "text", "text": "x"}), max_size=6))
def test_each_call_has_an_id_of_its_own_and_is_made_once(blocks: list[dict[str, Any]]):
    """Whatever ids a server gives: what it sends again under one id is one call, and no other call is lost."""
    kept = with_own_ids(deepcopy(blocks))
    calls = [one for one in kept if one["type"] == "tool_use"]
    assert len(calls) == len({one["id"] for one in calls})
    assert all(one["id"] for one in calls)
    assert [one for one in blocks if one["type"] == "text"] == [one for one in kept if one["type"] == "text"]
    asked = [one for one in blocks if one["type"] == "tool_use"]
    said = {(one["id"], one["name"], one["input"].get("n")) for one in asked if one["id"]}
    nameless = [one for one in asked if not one["id"]]
    told = {(id_, name) for id_, name, _ in said}
    least = sum(max(1, len({n for i, f, n in said if (i, f) == (id_, name) and n})) for id_, name in told)
    assert least + len(nameless) == len(calls)


def test_a_call_that_is_sent_twice_is_made_once():
    """Under one id, by a gateway that repeats it: a mail is sent once."""
    seen: list[int] = []

    def send(n: int) -> str:
        """Send a mail."""
        seen.append(n)
        return "sent"

    block = event(
        "content_block_start", index=0, content_block={"type": "tool_use", "id": "t", "name": "send", "input": {"n": 1}}
    )
    again = block.replace(b'"index": 0', b'"index": 1')
    bodies = [BEGIN + block + again + stopped("tool_use"), BEGIN + opened(0) + delta("done") + REASON + STOP]

    async def answer(writer: Any, number: int) -> None:
        writer.write(reply(bodies[number - 1]))
        await writer.drain()

    _, server = meet(answer, Plan((Agent("a", "x", tools=[send]),)))
    assert ([1], 2) == (seen, server.calls)


def test_a_typed_answer_stands_in_several_blocks():
    """Words before JSON in a fence are no failure: one request."""

    class Ticket(BaseModel):
        title: str
        tags: list[str] = []

    blocks = opened(0) + piece(0, "Sure:\n") + opened(1) + piece(1, '```json\n{"title": "x"}\n```')
    record, server = meet(reply(BEGIN + blocks + REASON + STOP), one(returns=Ticket))
    assert Ticket(title="x") == record["a"].value
    assert record["a"].value.model_fields_set == {"title"}
    assert 1 == server.calls


@pytest.mark.parametrize("text", ["", " ", " \n\t", "\u00a0"])
def test_an_answer_of_blanks_is_noted_as_an_empty_one(text: str):
    """It is passed on as it is, and the note says what to do."""
    record, _ = meet(reply(BEGIN + opened(0) + piece(0, text) + REASON + STOP))
    assert "Empty answer: a. Passed on as it is" in capped_note(record, Policy())


def test_a_full_context_has_its_own_words():
    """Nothing advises more tokens, which could not help."""
    body = BEGIN + opened(0) + delta("part") + stopped("model_context_window_exceeded")
    record, _ = meet(reply(body))
    assert "Cut, since the model's context is full: a." in capped_note(record, Policy())
    assert "max-tokens" not in capped_note(record, Policy())
    record, _ = meet(reply(body), policy=Policy(max_attempts=1, on_max_tokens="fail"))
    assert "Give it a shorter prompt" in str(record["a"].error)
    assert "Capped" == record["a"].kind
