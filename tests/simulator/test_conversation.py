"""The rules of conversations with tools: what the mock says is accepted back, what breaks a rule is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent_magic.simulator.api import ApiError
from agent_magic.simulator.request import parse
from tests.simulator.playing import QUESTION, SEARCH, TOOLS, asking, calls_of, continued, play, reply, result

TWO = 'Go. [[tool:run_sql {"query": "SELECT 1"}]] [[tool:get_weather {"city": "Oslo"}]]'


def accepted(body: dict[str, Any]) -> None:
    """Parse a request."""
    parse(json.dumps(body).encode())


def refusal(body: dict[str, Any]) -> str:
    """The message of the 400 for a request."""
    with pytest.raises(ApiError) as caught:
        accepted(body)
    assert 400 == caught.value.status
    return caught.value.message


def two_calls() -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A request, its reply of two calls, and their results."""
    body = asking(TWO)
    message = reply(body)
    return body, message, [result(call) for call in calls_of(message)]


def test_calls_without_results_are_named() -> None:
    """A 400 names the ids, whether a result is missing or all are."""
    body, message, (first, second) = two_calls()
    assert f"without `tool_result` blocks immediately after: {second['tool_use_id']}." in refusal(
        continued(body, message, first)
    )
    both = f"{first['tool_use_id']}, {second['tool_use_id']}"
    assert both in refusal(continued(body, message))
    assert both in refusal(continued(body, message, {"type": "text", "text": "And?"}))


def test_results_come_first_in_the_next_message() -> None:
    """Text before or between them hides the results behind it; text after them is legal; their order is free."""
    body, message, (first, second) = two_calls()
    text = {"type": "text", "text": "Here."}
    assert f"immediately after: {first['tool_use_id']}, " in refusal(continued(body, message, text, first, second))
    assert f"immediately after: {second['tool_use_id']}." in refusal(continued(body, message, first, text, second))
    accepted(continued(body, message, first, second, text))
    accepted(continued(body, message, second, first))


def test_a_message_per_result_is_refused() -> None:
    """All results of a turn are in one message."""
    body, message, (first, second) = two_calls()
    apart = continued(body, message, first)
    apart["messages"].append({"role": "user", "content": [second]})
    assert (
        f"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {second['tool_use_id']}"
        in refusal(apart)
    )


def test_results_without_a_call_and_results_given_twice_are_refused() -> None:
    """Each result has its call in the message before, and each call one result."""
    body, message, (first, second) = two_calls()
    assert "messages.2: unexpected `tool_use_id` found in `tool_result` blocks: toolu_x" in refusal(
        continued(body, message, first, second, {**first, "tool_use_id": "toolu_x"})
    )
    assert "Found multiple `tool_result` blocks" in refusal(continued(body, message, first, second, first))


CALL = {"type": "tool_use", "id": "toolu_1", "name": "run_sql", "input": {}}
WRONG_BLOCKS = [
    ("user", [CALL], "`tool_use` blocks can only be in `assistant` messages"),
    ("assistant", [{"type": "tool_result", "tool_use_id": "x"}], "`tool_result` blocks can only be in `user` messages"),
    ("assistant", [{"type": "document", "source": {}}], "`document` blocks can only be in `user` messages"),
    ("user", [{"type": "sound"}], "Input tag 'sound' found using 'type' does not match"),
    ("user", [{"type": "text", "text": " \n"}], "text content blocks must contain non-whitespace text"),
    ("user", [{"type": "text", "text": ""}], "text content blocks must be non-empty"),
    ("user", [{"type": "text", "text": "x", "citations": [{}]}], "citations are only allowed on text of the assistant"),
    ("user", [], "non-empty list of blocks"),
    ("assistant", [{**CALL, "input": "{}"}], "tool_use.input: Input should be a valid dictionary"),
    ("assistant", [{**CALL, "id": "a b"}], "tool_use.id: String should match pattern"),
    ("assistant", [{**CALL, "name": None}], "tool_use.name: Field required"),
    ("assistant", [CALL, CALL], "`tool_use` ids must be unique"),
    ("user", [{"type": "tool_result", "content": "7"}], "tool_result.tool_use_id: Field required"),
]


@pytest.mark.parametrize(("role", "blocks", "message"), WRONG_BLOCKS)
def test_wrong_blocks_are_refused(role, blocks, message) -> None:
    """Each role has its blocks, and each block its fields."""
    messages = [{"role": "user", "content": "x"}, {"role": role, "content": blocks}, {"role": "user", "content": "y"}]
    assert message in refusal(asking(messages=messages))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"content": [{"type": "tool_use", "id": "x"}]}, "`tool_use` blocks can only be in `assistant` messages"),
        ({"content": 7}, "tool_result.content: Input should be a valid string"),
        ({"content": [{"type": "image", "source": {}}], "is_error": True}, "all content must be type `text`"),
    ],
)
def test_wrong_results_are_refused(more, message) -> None:
    """A result has a text or blocks of some kinds; one of an error has text only."""
    body, reply_, (first, second) = two_calls()
    assert message in refusal(continued(body, reply_, {**first, **more}, second))


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": "7"}]])
def test_a_result_may_be_empty(content) -> None:
    """No content, an empty one, and blocks are all results."""
    body, message, (first, second) = two_calls()
    accepted(continued(body, message, {**first, "content": content}, second))


def test_only_results_follow_an_open_call_of_a_server_tool() -> None:
    """A server tool's call beside one of ours waits: results alone follow, and its own opens the next reply."""
    prompt = 'Go. [[tool:web_search {"query": "x"}]] [[tool:run_sql {"query": "SELECT 1"}]]'
    body = asking(prompt, tools=[*TOOLS, SEARCH])
    message = reply(body)
    (call,) = calls_of(message)
    searched = next(block for block in message["content"] if block["type"] == "server_tool_use")
    more = {"type": "text", "text": "Go on."}
    expected = f"`web_search` tool use with id `{searched['id']}` was found without a corresponding"
    assert expected in refusal(continued(body, message, result(call), more))
    after = reply(continued(body, message, result(call)))
    assert ("web_search_tool_result", searched["id"]) == (
        after["content"][0]["type"],
        after["content"][0]["tool_use_id"],
    )
    done = continued(continued(body, message, result(call)), after)
    done["messages"].append({"role": "user", "content": "Thanks."})
    accepted(done)


RESULTS = st.sampled_from(
    [
        {"content": "north, -12.4"},
        {"content": [{"type": "text", "text": "CREATE TABLE orders(id INTEGER, region TEXT, amount REAL)"}]},
        {"content": []},
        {},
        {"content": "no such column", "is_error": True},
        {"content": "Denied by the user.", "is_error": True},
    ]
)
MODELS = ["claude-haiku-5-5", "claude-opus-5-5", "claude-sonnet-4-6", "claude-haiku-4-5"]
PROMPTS = st.sampled_from(
    [
        QUESTION,
        "What is the weather in Oslo? Then send_mail it to Ada.",
        "Search the web for news on trains. Briefly.",
        "Explain trees in one sentence.",
        TWO + " [[tool@2:send_mail]] [[text@2:I send it.]] [[tool@3-4:nothing_such {}]] [[text@5:]]",
        "Go. [[think:redacted]] [[tool:run_sql]] [[think@2:Hm.]] [[tool@2:run_sql]]",
        "Go. [[stop@1:pause_turn times=2]] Briefly.",
        'Both. [[tool:web_search {"query": "x"}]] [[tool:run_sql]] [[think]]',
        "Answer as JSON with fields region and amount, after a look at the sales database.",
    ]
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The requests of a conversation that was made of the mock's own replies."""
    model = draw(st.sampled_from(MODELS))
    kind = "enabled" if model == "claude-haiku-4-5" else "adaptive"
    thinking = {"type": kind, **({"budget_tokens": 1024} if kind == "enabled" else {})}
    if draw(st.booleans()):
        thinking["display"] = "summarized"
    more = draw(st.sampled_from([{}, {"thinking": thinking}, {"system": "You are brief."}]))
    body = asking(draw(PROMPTS), model=model, tools=[*TOOLS, SEARCH], **more)
    requests, replies = play(body, lambda call: {**result(call), "content": None, **draw(RESULTS)})
    assert replies[-1]["stop_reason"] == "end_turn"
    assert 5 >= len([message for message in replies if message["stop_reason"] == "tool_use"])
    return requests


@settings(deadline=None, max_examples=60)
@given(requests=conversations(), data=st.data())
def test_what_the_mock_says_is_accepted_back(requests, data) -> None:
    """Whatever is appended is accepted, and so is another limit, cache mark, effort or choice."""
    body = copy.deepcopy(requests[-1])
    change = data.draw(st.sampled_from(["max_tokens", "mark", "effort", "choice", "nothing"]))
    if change == "max_tokens":
        body["max_tokens"] += 1
    elif change == "mark":
        body["cache_control"] = {"type": "ephemeral"}
        body["tools"][0]["cache_control"] = {"type": "ephemeral"}
    elif change == "effort":
        body["output_config"] = {"effort": "low"}
    elif change == "choice":
        body["tool_choice"] = {"type": "none"}
    accepted(body)


def _last_results(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["messages"][-1]["content"]


def _thoughts(body: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = [block for message in body["messages"] if message["role"] == "assistant" for block in message["content"]]
    return [block for block in blocks if block["type"] == "thinking"]


def _reworded(body: dict[str, Any]) -> None:
    body["tools"][0]["description"] += " Quickly."


def _edited_signature(body: dict[str, Any]) -> None:
    thought = _thoughts(body)[0]
    thought["signature"] = "A" + thought["signature"][1:] if thought["signature"][0] != "A" else "B"


ALWAYS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a result is missing": lambda body: _last_results(body).pop(),
    "text stands before the results": lambda body: _last_results(body).insert(0, {"type": "text", "text": "So:"}),
    "a result is given twice": lambda body: _last_results(body).append(_last_results(body)[0]),
    "a result has no call": lambda body: _last_results(body).append({"type": "tool_result", "tool_use_id": "no"}),
    "the results are missing": lambda body: body["messages"].pop(),
    "the calls are missing": lambda body: body["messages"].pop(-2),
    "text is empty": lambda body: _last_results(body).append({"type": "text", "text": ""}),
}
WITH_THOUGHTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "thinking is edited": lambda body: _thoughts(body)[0].update(thinking="Something else."),
    "a signature is edited": _edited_signature,
}
PRESERVED: dict[str, Callable[[dict[str, Any]], object]] = {
    "the system prompt changes": lambda body: body.update(system="You are verbose."),
    "a tool is reworded": _reworded,
    "a tool is added": lambda body: body["tools"].append({**TOOLS[0], "name": "more"}),
    "tools change places": lambda body: body["tools"].reverse(),
    "the prompt changes": lambda body: body["messages"][0].update(content=body["messages"][0]["content"] + " Please."),
}


@settings(deadline=None, max_examples=100)
@given(requests=conversations(), data=st.data())
def test_what_breaks_a_rule_is_refused(requests, data) -> None:
    """Each change to a conversation that the API refuses is a 400."""
    turns = [
        body
        for body in requests
        if isinstance(last := body["messages"][-1]["content"], list) and last[0]["type"] == "tool_result"
    ]
    assume(turns)
    body = copy.deepcopy(data.draw(st.sampled_from(turns)))
    table = dict(ALWAYS)
    if _thoughts(body):
        table |= WITH_THOUGHTS | (PRESERVED if "5-5" in body["model"] else {})
    accepted(body)
    data.draw(st.sampled_from(list(table.items())))[1](body)
    refusal(body)
