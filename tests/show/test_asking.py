"""A question to a person as it is shown: all that would happen, and nothing hidden."""

from __future__ import annotations

import pytest

from agent_magic import Question
from agent_magic.show import asked_text
from agent_magic.show.asking import asked, verdict_of


def shown(kind, text):
    """Return a question as the page gets it."""
    return asked({7: Question(kind, "a\x1b[2J", "send", text, 600.0)})[0]


def test_arguments_are_rows_and_json():
    """Each argument has its row; the text to change has the same."""
    one = shown("call", '{"to": "x", "many": [1, {"b": null}]}')
    assert [["to", "x"], ["many", '[\n 1,\n {\n  "b": null\n }\n]']] == one["rows"]
    assert one["start"] == one["text"]
    assert "Without an answer within 10 min 00 s it is denied." == one["limit"]


@pytest.mark.parametrize("text", ["", "[1]", "no JSON", "{"])
def test_what_is_no_object_is_shown_as_it_is(text):
    """Whatever a model wrote is shown, and nothing raises."""
    one = shown("call", text)
    assert [] == one["rows"]
    assert "".join((text or "{}").split()) == "".join(one["text"].split())


def test_what_hides_is_written_out():
    """Characters that turn text around or steer a terminal are seen as escapes, in names, values and answers."""
    one = shown("call", '{"to\\u202e": "a\\u202e\\u001b[2J"}')
    assert [["to\\u202e", "a\\u202e\\u001b[2J"]] == one["rows"]
    assert "x\\u202ey" == shown("answer", "x\u202ey")["text"]
    lines = asked_text(1, Question("call", "a\x1b[2J", "t", '{"x": "\u202e"}', 5.0))
    assert not set("\x1b\u202e") & set(lines)


def test_a_doubt_has_its_own_ways_on():
    """What may have happened is called again, gets a result, or counts as failed; the result begins empty."""
    one = shown("doubt", "{}")
    assert (["Call again", "Give a result", "It failed"], "") == (one["ways"], one["start"])


def test_only_the_word_approves():
    """A message that is not understood denies."""
    assert (True, None) == verdict_of("approve", "x")[:2]
    assert (True, "x") == verdict_of("edit", "x")[:2]
    assert [False, False] == [verdict_of(way, "").approved for way in ("deny", "Approve")]
