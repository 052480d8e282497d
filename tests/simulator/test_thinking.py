"""Thinking blocks: when they come, how they stream, and signatures that are checked when they come back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from agent_magic.simulator.api import ApiError
from tests.simulator.playing import QUESTION, TOOLS, asking, calls_of, continued, reply, result

CALLED = "Go. [[think:I need the numbers.]] [[tool:run_sql]]"
BOUND = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."


def looped(model: str = "claude-sonnet-5-5", **more: Any) -> dict[str, Any]:
    """A request whose last turn thought and called."""
    body = asking(CALLED, model=model, **more)
    message = reply(body)
    assert "thinking" == message["content"][0]["type"]
    return continued(body, message, *map(result, calls_of(message)))


def refusal(body: dict[str, Any]) -> str:
    """The message of the 400 for a request."""
    with pytest.raises(ApiError) as caught:
        reply(body)
    assert 400 == caught.value.status
    return caught.value.message


def test_thinking_streams_before_the_call(talk) -> None:
    """Text where it is to be summarized, then the signature; the SDK puts the block together."""
    thinking = {"type": "adaptive", "display": "summarized"}

    async def events(client: AsyncAnthropic) -> tuple[list[str], Any]:
        body = asking(CALLED, model="claude-sonnet-5-5", thinking=thinking)
        async with client.messages.stream(**body) as stream:
            deltas = [event.delta.type async for event in stream if event.type == "content_block_delta"]
            return deltas, await stream.get_final_message()

    deltas, message = talk.sdk(events)
    assert ["thinking_delta", "signature_delta"] == deltas[:2]
    thought, call = message.content
    assert ("I need the numbers.", "tool_use") == (thought.thinking, call.type)
    assert thought.signature
    assert 5 == message.usage.output_tokens_details.thinking_tokens
    assert message.usage.output_tokens >= 5


def test_thinking_is_hidden_by_default_where_it_is_preserved() -> None:
    """Its text is empty and billed all the same; older models show it."""
    now, before = (reply(asking(CALLED, model=name)) for name in ("claude-sonnet-5-5", "claude-sonnet-4-6"))
    assert ["", "I need the numbers."] == [message["content"][0]["thinking"] for message in (now, before)]
    assert {5} == {message["usage"]["output_tokens_details"]["thinking_tokens"] for message in (now, before)}


def test_notes_between_calls_are_thinking_on_models_that_say() -> None:
    """Where a model's notes come as thinking, its calls have no text before them; without calls it is as ever."""
    found = reply(asking(model="claude-opus-5-5"))
    assert ["thinking", "tool_use"] == [block["type"] for block in found["content"]]
    assert ["text"] == [block["type"] for block in reply(asking("Explain trees.", model="claude-opus-5-5"))["content"]]
    off = reply(asking(model="claude-opus-5-5", thinking={"type": "disabled"}))
    assert ["tool_use"] == [block["type"] for block in off["content"]]


def test_an_edited_block_is_refused_by_every_model() -> None:
    """Text or signature, old model or new: the place is named."""
    for model in ("claude-sonnet-5-5", "claude-sonnet-4-6"):
        for change in ({"thinking": "I need no numbers."}, {"signature": "AAAA"}, {"signature": "no base64!"}):
            body = copy.deepcopy(looped(model))
            body["messages"][1]["content"][0].update(change)
            assert "messages.1.content.0: Invalid `signature` in `thinking` block" == refusal(body)
    body = looped()
    del body["messages"][1]["content"][0]["signature"]
    assert "messages.1.content.0.signature: Field required" == refusal(body)


CHANGES: list[dict[str, Any]] = [
    {"system": "You are brief."},
    {"tools": TOOLS[::-1]},
    {"tools": TOOLS[:-1]},
    {"tools": [{**TOOLS[0], "description": "Run SQL."}, *TOOLS[1:]]},
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_prefix_is_refused_where_thinking_is_preserved(change) -> None:
    """Another system prompt or other tools are a 400 in the API's words; earlier models do not look."""
    assert refusal({**looped(), **change}).startswith(f"messages.1.content.0: {BOUND}")
    assert "end_turn" == reply({**looped("claude-sonnet-4-6"), **change})["stop_reason"]


def test_a_changed_message_or_result_is_refused() -> None:
    """What was said before a block is bound with it: a prompt, and an earlier result for a later block."""
    body = looped()
    body["messages"][0]["content"] = "Now go. [[think]] [[tool:run_sql]]"
    assert BOUND in refusal(body)
    first = asking("Go. [[think]] [[tool@1-2:run_sql]]", model="claude-sonnet-5-5")
    message = reply(first)
    second = continued(first, message, *map(result, calls_of(message)))
    later = reply(second)
    third = continued(second, later, *map(result, calls_of(later)))
    assert "end_turn" == reply(third)["stop_reason"]
    third["messages"][2]["content"][0]["content"] = "shortened"
    assert refusal(third).startswith("messages.3.content.0: ")


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 50},
        {"output_config": {"effort": "low"}},
        {"tool_choice": {"type": "none"}},
        {"cache_control": {"type": "ephemeral"}},
        {"tools": [{**tool, "cache_control": {"type": "ephemeral"}} for tool in TOOLS[:1]] + TOOLS[1:]},
    ],
)
def test_what_may_change(change) -> None:
    """Limits, effort, tool choice and cache marks are no part of what a block is bound to."""
    reply({**looped(), **change})


def test_blocks_may_be_missing_at_the_beginning_but_not_in_between() -> None:
    """Without any, or without the first, a conversation is accepted; a gap is refused."""
    body = asking("Go. [[think]] [[tool@1-3:run_sql]]", model="claude-sonnet-5-5")
    for _ in range(3):
        message = reply(body)
        body = continued(body, message, *map(result, calls_of(message)))
    reply(body)
    without = {place: copy.deepcopy(body) for place in (1, 3)}
    for place, each in without.items():
        del each["messages"][place]["content"][0]
    assert "end_turn" == reply(without[1])["stop_reason"]
    assert BOUND in refusal(without[3])


def test_a_block_of_another_model_is_dropped_without_a_word() -> None:
    """It costs nothing and is not checked against the conversation."""
    body = looped()
    here = reply(body)["usage"]["input_tokens"]
    there = reply({**body, "model": "claude-haiku-5-5"})["usage"]["input_tokens"]
    assert 5 == here - there


def test_a_block_costs_its_thinking_when_it_comes_back() -> None:
    """Hidden or not: the signature tells how long it was."""
    body = looped()
    bare = copy.deepcopy(body)
    del bare["messages"][1]["content"][0]
    assert 5 == reply(body)["usage"]["input_tokens"] - reply(bare)["usage"]["input_tokens"]


def test_redacted_thinking_comes_back_as_it_is() -> None:
    """Its data is checked as a signature is."""
    body = asking("Go. [[think:redacted]] [[tool:run_sql]]")
    message = reply(body)
    assert "redacted_thinking" == message["content"][0]["type"]
    after = continued(body, message, *map(result, calls_of(message)))
    assert "end_turn" == reply(after)["stop_reason"]
    after["messages"][1]["content"][0]["data"] = "AAAA"
    assert "Invalid `signature` in `redacted_thinking` block" in refusal(after)


def test_results_after_a_turn_without_thinking_are_refused_where_it_is_enabled_by_hand() -> None:
    """`enabled` wants the thinking of the last turn back; `adaptive` does without."""
    body = asking("Go. [[tool:run_sql]]", model="claude-sonnet-4-6")
    message = reply(body)
    after = continued(body, message, *map(result, calls_of(message)))
    by_hand = {"type": "enabled", "budget_tokens": 2000}
    assert "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`" in refusal(
        {**after, "thinking": by_hand}
    )
    assert "end_turn" == reply({**after, "thinking": {"type": "adaptive"}})["stop_reason"]


WRONG = [
    ("claude-sonnet-5-5", {"type": "enabled", "budget_tokens": 2000}, '"thinking.type.enabled" is not supported'),
    ("claude-haiku-4-5", {"type": "adaptive"}, "adaptive thinking is not supported"),
    ("claude-haiku-4-5", {"type": "enabled"}, "budget_tokens: Input should be greater than or equal to 1024"),
    ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 4000}, "`max_tokens` must be greater than"),
    ("claude-haiku-5-5", {"type": "deep"}, "thinking.type: Input should be one of adaptive"),
]


@pytest.mark.parametrize(("model", "thinking", "message"), WRONG)
def test_wrong_thinking_is_refused(model, thinking, message) -> None:
    """Each model has its ways to think."""
    assert message in refusal(asking(QUESTION, model=model, thinking=thinking))


def test_no_forced_tool_beside_thinking_by_hand() -> None:
    """`enabled` allows a free choice or none."""
    thinking = {"type": "enabled", "budget_tokens": 2000}
    body = asking(QUESTION, model="claude-haiku-4-5", thinking=thinking, tool_choice={"type": "any"})
    assert "Thinking may not be enabled when tool_choice forces tool use." == refusal(body)
