"""Each fault makes the real SDK fail in its known way, and scripts and directives ask for them."""

from __future__ import annotations

import json

import anthropic
import httpx2
import pytest
from anthropic import APIConnectionError, APIStatusError, APITimeoutError, InternalServerError, OverloadedError

from agent_magic.simulator.directives import FAULTS, DirectiveError, read_script

JSON = json.JSONDecodeError
PLAIN = {
    "hang": APITimeoutError,
    "stall": APITimeoutError,
    "reset": APIConnectionError,
    "cut": APIConnectionError,
    "empty": JSON,
    "error_event": OverloadedError,
    "broken_json": JSON,
    "html": InternalServerError,
    "wrong_bytes": UnicodeDecodeError,
}
STREAMED = {
    "hang": APITimeoutError,
    "stall": httpx2.ReadTimeout,
    "reset": APIConnectionError,
    "cut": httpx2.RemoteProtocolError,
    "empty": AssertionError,
    "error_event": APIStatusError,
    "broken_json": JSON,
    "html": InternalServerError,
    "wrong_bytes": UnicodeDecodeError,
    "null_content": AttributeError,
}
LIMITS_S = {"hang": 0.25, "stall": 1.5}
"""What ends the faults that nothing else ends. A stall has to begin first; the others may take their time."""


@pytest.mark.parametrize(("fault", "error"), PLAIN.items())
def test_fault_of_a_plain_request(talk, fault, error) -> None:
    """Without streaming, a fault surfaces as the class the SDK gives it."""
    with pytest.raises(error):
        talk.create(f"Tell me about trees. [[fault:{fault}]]", timeout_s=LIMITS_S.get(fault, 30.0))
    assert fault == talk.log()["requests"][-1]["fault"]


@pytest.mark.parametrize(("fault", "error"), STREAMED.items())
def test_fault_of_a_stream(talk, fault, error) -> None:
    """In a stream, the SDK wraps only what happens before the first byte."""
    with pytest.raises(error) as caught:
        talk.stream(f"Tell me about trees. [[fault:{fault}]]", timeout_s=LIMITS_S.get(fault, 30.0))
    assert (type(caught.value) is error) or fault == "reset"


def test_every_fault_is_covered() -> None:
    """No fault is without a test."""
    silent = {"clean_end", "drip", "null_content", "no_usage"}
    assert set(FAULTS) == set(PLAIN) | silent
    assert set(FAULTS) == set(STREAMED) | silent


def test_error_event_after_200(talk) -> None:
    """An error event is an error with status 200, told by its type."""
    with pytest.raises(APIStatusError) as caught:
        talk.stream("[[fault:error_event]] trees")
    assert (200, "overloaded_error") == (caught.value.status_code, caught.value.type)


def test_clean_end_raises_nothing(talk) -> None:
    """A stream that ends early without an error leaves half a message without `stop_reason`."""
    whole, half = talk.stream("trees [[tokens:200]]"), talk.stream("trees [[tokens:200]] [[fault:clean_end]]")
    assert (None, 1) == (half.stop_reason, half.usage.output_tokens)
    assert 0 < len(half.content[0].text) < len(whole.content[0].text)
    assert talk.create("trees [[fault:clean_end]]").stop_reason is None


def test_drip_never_times_out(talk) -> None:
    """Bytes that keep coming never trip a timeout that is shorter than the whole."""
    for ask, every_s in ((talk.stream, 0.06), (talk.create, 0.004)):
        prompt = f"[[echo]] [[fault:drip every_s={every_s}]]"
        assert prompt == ask(prompt, timeout_s=1.0).content[0].text
    for entry in talk.log()["requests"]:
        assert entry["finished_s"] - entry["started_s"] > 1.0


def test_missing_fields_pass_through(talk) -> None:
    """The SDK does not validate: null content and missing usage arrive as `None`."""
    assert talk.create("[[fault:null_content]]").content is None
    assert talk.create("[[fault:no_usage]]").usage is None


def test_html_with_status_200(talk) -> None:
    """A page instead of an answer, even with status 200."""
    answer = talk.post(
        {
            "model": "claude-haiku-5-5",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "[[fault:html]] [[status:200]]"}],
        }
    )
    assert (200, "text/html; charset=utf-8") == (answer.status, answer.headers["content-type"])


def test_refusal(talk) -> None:
    """A refused answer has no content and says so."""
    found = talk.stream("[[stop:refusal]]")
    assert ("refusal", []) == (found.stop_reason, found.content)
    assert "refusal" == found.stop_details.type


def test_status_directive_holds_so_many_times(talk) -> None:
    """A directive with `times` holds for so many requests with this message, then the answer comes."""
    prompt = "trees [[status:429 retry_after=3 times=2 error_code=ramp_limit_exceeded]]"
    for _ in range(2):
        with pytest.raises(anthropic.RateLimitError) as caught:
            talk.create(prompt)
        assert "3" == caught.value.response.headers["retry-after"]
        assert "ramp_limit_exceeded" == caught.value.error_code
    assert "end_turn" == talk.create(prompt).stop_reason


@pytest.mark.parametrize(("status", "kind"), [(402, "billing_error"), (500, "api_error"), (529, "overloaded_error")])
def test_status_directive_has_the_documented_type(talk, status, kind) -> None:
    """An asked-for status carries its documented error type and no `retry-after` of its own."""
    with pytest.raises(APIStatusError) as caught:
        talk.create(f"[[status:{status}]]")
    assert (status, kind) == (caught.value.status_code, caught.value.type)
    assert "retry-after" not in caught.value.response.headers


def test_length_and_echo_directives(talk) -> None:
    """The length of an answer is exact, longer or shorter than usual; an echo is verbatim."""
    for tokens in (1, 50, 3000):
        found = talk.create(f"trees [[tokens:{tokens}]]", max_tokens=5000)
        assert ("end_turn", tokens) == (found.stop_reason, found.usage.output_tokens)
    assert "[[echo]] déjà ✓" == talk.create("[[echo]] déjà ✓").content[0].text


def test_time_to_first_token_is_exact(talk) -> None:
    """An asked-for delay holds for streams and for errors."""
    talk.stream("trees [[ttft:0.2]]")
    with pytest.raises(OverloadedError):
        talk.create("trees [[ttft:0.2]] [[status:529]]")
    for entry in talk.log()["requests"]:
        assert entry["first_byte_s"] - entry["started_s"] >= 0.2


def test_directives_of_earlier_messages_are_ignored(talk) -> None:
    """Only the last user message is looked at: not the system prompt, not what was said before."""
    messages = [
        {"role": "user", "content": "[[status:529]]"},
        {"role": "assistant", "content": "[[fault:reset]]"},
        {"role": "user", "content": "trees"},
    ]
    assert "end_turn" == talk.create("", messages=messages, system="[[status:500]]").stop_reason


@pytest.mark.parametrize(
    "directive",
    ["[[fault:nonsense]]", "[[status:7]]", "[[tokens]]", "[[status:429 sometimes=2]]", "[[tool:look {'a': 1}]]"],
)
def test_a_wrong_directive_is_a_400_that_says_so(talk, directive) -> None:
    """A typing error in a directive is not silently an ordinary answer."""
    with pytest.raises(anthropic.BadRequestError, match="simulator: "):
        talk.create(directive)


def test_script(started, tmp_path) -> None:
    """The first line that matches and is not used up wins; a directive overrides it."""
    lines = [
        {"match": "apples", "status": 529, "times": 1},
        {"match": "apples", "text": "Apples, then."},
        {"match": "/pe(ar|ach)s?/", "text": "Stone or not.", "stop_reason": "max_tokens"},
    ]
    path = tmp_path / "script.jsonl"
    path.write_text("# fruit\n\n" + "\n".join(map(json.dumps, lines)))
    talk = started(latency="none", script=path)
    with pytest.raises(OverloadedError):
        talk.create("apples")
    assert "Apples, then." == talk.create("apples").content[0].text
    assert "max_tokens" == talk.stream("a peach").stop_reason
    assert "[[echo]] apples" != talk.create("[[echo]] apples").content[0].text
    assert "fruit" in talk.create("[[echo]] fruit").content[0].text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"fault": "nonsense"}', "fault='nonsense' must be one of hang"),
        ('{"txt": "a"}', "unknown key 'txt'"),
        ('{"match": "/(/"}', "line 1"),
        ('{"tool_use": [{"name": "look"}]}', "tool_use=[{'name': 'look'}] must be a list of"),
        ("[]", "must be a JSON object"),
        ("{", "line 1"),
    ],
)
def test_a_wrong_script_is_refused(tmp_path, line, message) -> None:
    """A line that cannot be read is named, with what would be right."""
    path = tmp_path / "script.jsonl"
    path.write_text(line)
    with pytest.raises(DirectiveError) as caught:
        read_script(str(path))
    assert message in str(caught.value)
