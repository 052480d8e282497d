"""Requests: the fingerprint under which answers are kept, and the conversation they carry."""

from __future__ import annotations

import json

import pytest

from agent_magic.record import Message, Request, from_json, to_json
from agent_magic.record.request import continued

SAID = '[{"type":"text","text":"a"}]'
KEYS = {
    "d53de574516ce2c13b176bfbb63ac06f4916034b0152871720f11aee1520bf9c": Request("m", "p", 5),
    "0d708bdbdfa4df2221c7ce5129c7f737b83d744254359d21a6b1f76b2a38ed81": Request("m", "p", 5, "s"),
    "a210bd760089817eb2e59a1cc18a66c30b22d121a455066cbfbc7de02f578d42": Request("m", "p", 5, "s", "c"),
    "c170683b21844c5e1483571e6ac5451fb6356c503fac8df873a89864e2171d44": Request(
        "m", "p", 5, None, "c", cached=True, effort="high", timeout_s=9.0, ttl="1h"
    ),
    "52f718b16ac14886636183133fc64c7e3396f46b9d48899eb28130dfee5e054d": Request("m", "hé 😀", 800, effort="low"),
    "6256e2d071462785a0193ea2275c8688d31cdeed90a0db6114648bd20738d8d9": Request(
        "m", "p", 5, messages=(Message("assistant", SAID),)
    ),
}
"""Fingerprints as the first release wrote them."""


@pytest.mark.parametrize(("key", "request_"), KEYS.items(), ids=[key[:8] for key in KEYS])
def test_a_fingerprint_never_changes(key: str, request_: Request):
    """An answer that was bought is found for ever: by the key it was stored under."""
    assert key == request_.key("https://x")


def test_a_request_written_before_conversations_reads_the_same():
    """Its paused turn, a field of its own then, is the message of the assistant that it was."""
    old = to_json(Request("m", "p", 5))
    assert Request("m", "p", 5) == from_json(Request, {**old, "so_far": ""})
    assert Request("m", "p", 5, messages=(Message("assistant", SAID),)) == from_json(Request, {**old, "so_far": SAID})


def test_a_conversation_comes_back_from_a_file():
    """Messages and tools byte for byte."""
    request = Request("m", "p", 5, messages=(Message("assistant", SAID), Message("user", "[ ]")), tools="[{}]")
    assert request == from_json(Request, json.loads(json.dumps(to_json(request))))


def test_turns_of_the_assistant_in_a_row_are_one_message():
    """Their blocks stand one behind the other, each byte as it came: a provider may have signed them."""
    odd = '[ {"type": "x",  "signature":"\\u00e9\\/"} ]'
    once = continued((), odd)
    assert (Message("assistant", odd),) == once
    twice = continued(once, SAID)
    assert [Message("assistant", '[ {"type": "x",  "signature":"\\u00e9\\/"} ,{"type":"text","text":"a"}]')] == [*twice]
    assert [*json.loads(odd), *json.loads(SAID)] == json.loads(twice[0].content)
    asked = (*twice, Message("user", SAID))
    assert (*asked, Message("assistant", odd)) == continued(asked, odd)


def test_tools_and_messages_are_part_of_what_is_asked():
    """Two requests that differ in either are never served each other's answer."""
    plain = Request("m", "p", 5)
    others = [plain._replace(tools='[{"name":"t"}]'), plain._replace(messages=(Message("user", SAID),))]
    assert 3 == len({one.key("x") for one in (plain, *others)})


def test_messages_that_were_left_out_of_a_file_have_a_fingerprint_still():
    """A cassette without its texts is read: what stands in their place is no JSON."""
    assert Request("m", "p", 5, messages=(Message("assistant", "[9 characters left out]"),)).key("x")
