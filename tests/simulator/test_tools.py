"""Tools: what is refused, tool calls on demand, and tokens of pictures, as the real SDK sees them."""

from __future__ import annotations

import base64
import json
from typing import Any

import anthropic
import pytest

TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": "Look it up", "input_schema": {"type": "object", "properties": {}}}
    for name in ("look", "add")
]
ASKED = 'What is the sum? [[tool:look {"where": [1], "what": {"a": "b"}}]] [[tool:add]] [[tokens:30]]'


def answered(calls: list[Any], *results: dict[str, Any]) -> list[dict[str, Any]]:
    """A conversation in which calls were made and answered with these results."""
    return [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": [call.model_dump() for call in calls]},
        {"role": "user", "content": list(results)},
    ]


def result(call: Any, content: Any = "7") -> dict[str, Any]:
    """The result of a call."""
    return {"type": "tool_result", "tool_use_id": call.id, "content": content}


@pytest.mark.parametrize("stream", [False, True])
def test_a_directive_makes_the_model_call_tools(talk, stream) -> None:
    """Where tools are offered, the directives of the prompt become tool calls, in order, and nothing else."""
    found = (talk.stream if stream else talk.create)(ASKED, tools=TOOLS)
    assert ("tool_use", ["tool_use", "tool_use"]) == (found.stop_reason, [block.type for block in found.content])
    first, second = found.content
    assert ("look", {"where": [1], "what": {"a": "b"}}) == (first.name, first.input)
    assert ("add", {}) == (second.name, second.input)
    assert first.id != second.id
    assert found.usage.output_tokens == 10


def test_results_end_the_turn(talk) -> None:
    """Once the results are there the answer is a text, as the other directives of the question ask for it."""
    first, second = talk.create(ASKED, tools=TOOLS).content
    found = talk.create("", tools=TOOLS, messages=answered([first, second], result(first), result(second)))
    assert ("end_turn", ["text"], 30) == (
        found.stop_reason,
        [block.type for block in found.content],
        found.usage.output_tokens,
    )


@pytest.mark.parametrize("more", [{}, {"tools": TOOLS, "tool_choice": {"type": "none"}}])
def test_no_tool_is_called_that_may_not_be(talk, more) -> None:
    """Without tools, or where the choice is none, the directive is ignored."""
    found = talk.create(ASKED, **more)
    assert ("end_turn", "text") == (found.stop_reason, found.content[0].type)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_cut_at_max_tokens(talk, stream) -> None:
    """A call that does not fit is cut in the middle of its JSON, and the stop reason says so."""
    answer = talk.post(
        {
            "model": "claude-haiku-5-5",
            "max_tokens": 3,
            "tools": TOOLS,
            "stream": stream,
            "messages": [{"role": "user", "content": ASKED}],
        }
    )
    if not stream:
        assert ("max_tokens", [{}]) == (
            answer.body["stop_reason"],
            [block["input"] for block in answer.body["content"]],
        )
        return
    events = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: ")]
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert ['{"where": [1'] == pieces
    assert "max_tokens" == events[-2]["delta"]["stop_reason"]


def test_a_script_calls_tools_turn_after_turn(started, tmp_path) -> None:
    """A rule of the script holds for results too, as often as it says: a loop of two turns."""
    path = tmp_path / "script.jsonl"
    rule = {"match": "sum", "text": "I look.", "tool_use": [{"name": "look", "input": {"n": 1}}], "times": 2}
    path.write_text(json.dumps(rule))
    talk = started(latency="none", script=path)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "the sum?"}]
    reasons = []
    for _ in range(3):
        found = talk.stream("", tools=TOOLS, messages=messages)
        reasons.append((found.stop_reason, [block.type for block in found.content]))
        calls = [block for block in found.content if block.type == "tool_use"]
        messages += [
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in found.content]},
            {"role": "user", "content": [result(call) for call in calls] or "Thanks."},
        ]
    called = ("tool_use", ["text", "tool_use"])
    assert [called, called, ("end_turn", ["text"])] == reasons


SCHEMA = {"type": "object", "properties": {}}
NUMBER = {"n": {"type": "integer"}}


def strict(name: str, optional: int = 0) -> dict[str, Any]:
    """A strict tool."""
    fields = {f"f{number}": {"type": "string"} for number in range(optional)}
    schema = {"type": "object", "properties": fields, "additionalProperties": False}
    return {"name": name, "strict": True, "input_schema": schema}


WRONG = [
    ({"tools": [{"name": "a b", "input_schema": SCHEMA}]}, "tools.0.custom.name: String should match pattern"),
    ({"tools": [*TOOLS, TOOLS[0]]}, "tools: Tool names must be unique."),
    ({"tools": [{"name": "a"}]}, "tools.0.custom.input_schema: Field required"),
    ({"tools": [{"name": "a", "input_schema": {}}]}, "tools.0.custom.input_schema.type: Input should be 'object'"),
    ({"tools": TOOLS, "tool_choice": {"type": "some"}}, "tool_choice.type: Input should be one of auto"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name: tool 'x' not found"),
    ({"tools": TOOLS, "tool_choice": "auto"}, "tool_choice: Input should be an object"),
    ({"tools": [], "tool_choice": {"type": "any"}}, "may only be specified while providing tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "disable_parallel_tool_use"),
    (
        {"tools": TOOLS, "tool_choice": {"type": "none", "disable_parallel_tool_use": True}},
        "none.disable_parallel_tool_use",
    ),
    ({"tools": [{**TOOLS[0], "description": 7}]}, "tools.0.custom.description: Input should be a valid string"),
    ({"tools": [{**TOOLS[0], "defer_loading": True}]}, "At least one tool must have defer_loading=false"),
    ({"tools": [{**TOOLS[0], "name": "x" * 129}]}, "String should match pattern"),
    ({"tools": [{"name": "a", "input_schema": {"type": "object", "required": "b"}}]}, "JSON schema is invalid"),
    ({"tools": [{"type": "web_serch_20260318", "name": "web_serch"}]}, "Input tag 'web_serch_20260318' found using"),
    (
        {"tools": [{"type": "web_search_20260318", "name": "search"}]},
        "web_search_20260318.name: Input should be 'web_search'",
    ),
    (
        {"tools": [{**TOOLS[0], "input_examples": [{}, {"n": "1"}], "input_schema": {**SCHEMA, "properties": NUMBER}}]},
        "tools.0.custom.input_examples.1: does not match the input_schema: n: '1' is not of type integer",
    ),
    ({"tools": [{**TOOLS[0], "strict": True}]}, "tools.0.custom.input_schema: .*'additionalProperties' must be"),
    ({"tools": [strict(f"t{n}") for n in range(21)]}, "Too many strict tools .21"),
    ({"tools": [strict(f"t{n}", optional=13) for n in range(2)]}, "too many optional parameters .limit: 24."),
]


@pytest.mark.parametrize(("more", "message"), WRONG)
def test_wrong_tools_are_refused(talk, more, message) -> None:
    """What is wrong with tools is a 400 that names it."""
    with pytest.raises(anthropic.BadRequestError, match=message):
        talk.create("trees", **more)


def test_a_tool_of_the_server_needs_no_schema(talk) -> None:
    """A tool with a type of its own has its schema on the server."""
    assert "end_turn" == talk.create("trees", tools=[{"type": "web_search_20260318", "name": "web_search"}]).stop_reason


def test_every_call_needs_its_result_and_every_result_its_call(talk) -> None:
    """A call without a result in the next message, and a result without a call before it, are refused by id."""
    first, second = talk.create(ASKED, tools=TOOLS).content
    with pytest.raises(anthropic.BadRequestError, match=f"without `tool_result` blocks immediately after: {second.id}"):
        talk.create("", tools=TOOLS, messages=answered([first, second], result(first)))
    with pytest.raises(anthropic.BadRequestError, match=r"messages.2: unexpected `tool_use_id`"):
        talk.create("", tools=TOOLS, messages=answered([first], result(first), result(second)))


def picture(width: int, height: int) -> dict[str, Any]:
    """A picture of which only the header is read."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4) + height.to_bytes(4) + b"\0" * 9000
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(head).decode()},
    }


def test_pictures_and_documents_are_counted(talk) -> None:
    """A PNG costs its patches, in a result too, a text document its text; what cannot be measured a fixed number."""

    def tokens(*blocks: dict[str, Any], model: str = "claude-haiku-5-5") -> int:
        messages: Any = [{"role": "user", "content": [{"type": "text", "text": "See"}, *blocks]}]
        return talk.sdk(lambda client: client.messages.count_tokens(model=model, messages=messages)).input_tokens

    bare = tokens()
    assert bare + 414 == tokens(picture(640, 480))
    assert bare + 3588 == tokens(picture(1920, 1440))
    assert bare + 1564 == tokens(picture(1920, 1440), model="claude-haiku-4-5")
    assert bare + 1500 == tokens({"type": "image", "source": {"type": "url", "url": "https://example.com/x.png"}})
    text = {"type": "text", "media_type": "text/plain", "data": "four" * 25}
    assert bare + 25 == tokens({"type": "document", "source": text})
    first, second = talk.create(ASKED, tools=TOOLS).content
    plain, pictured = (
        talk.create("", tools=TOOLS, messages=answered([first, second], result(first, content), result(second)))
        for content in ([{"type": "text", "text": "four"}], [picture(640, 480)])
    )
    assert 413 == pictured.usage.input_tokens - plain.usage.input_tokens
