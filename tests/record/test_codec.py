"""The codec: what is written comes back equal, and data from a stranger makes nothing but plain values."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false

from __future__ import annotations

import enum
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magic.declare import Attachment, Placed
from agent_magic.record import (
    AgentEnded,
    Answer,
    AttemptEnded,
    AttemptStarted,
    Price,
    Request,
    Usage,
    from_json,
    line_of,
    to_json,
)
from agent_magic.record.codec import EVENTS, data_of, event_from_json, event_to_json
from tests.record.histories import histories


class Word(enum.StrEnum):
    """A text with a class of its own."""

    X = "x"


class Number(enum.IntEnum):
    """A number with a class of its own."""

    ONE = 1


texts = st.text(st.characters(codec=None, categories=None)) | st.sampled_from(
    ["\ud800", "\x00", "a\u2028b\x85", "\u202e"]
)
counts = st.none() | st.integers(0, 10**9)
usages = st.builds(
    Usage,
    counts,
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    output_tokens=counts,
    cache_write_1h_tokens=st.integers(0, 99),
    estimated=st.booleans(),
)
answers = st.builds(
    Answer,
    texts,
    texts,
    usage=usages,
    model=texts,
    source=st.sampled_from(["live", "ledger", "replay", "simulated"]),
    request_id=st.none() | texts,
    refusal=st.none() | texts,
)
sizes = st.integers(0, 10**9)
attachments = st.builds(
    Attachment,
    st.sampled_from(["image", "document"]),
    texts,
    texts,
    texts,
    sizes,
    sizes,
    sizes,
    sizes,
    data=st.just(b""),
)
requests = st.builds(
    Request,
    texts,
    texts,
    st.integers(1, 10**6),
    system=st.none() | texts,
    context=st.none() | texts,
    cached=st.booleans(),
    effort=st.none() | texts,
    timeout_s=st.floats(0, 1e6),
    opening=st.integers(0, 99),
    attachments=st.lists(st.builds(Placed, st.integers(0, 99), attachments)).map(tuple),
    returned=st.lists(attachments).map(tuple),
    shared=sizes,
)


@given(st.one_of(answers, requests, usages))
def test_values_come_back_equal(value):
    """Lone surrogates, NUL, separators of lines and all: one line of ASCII, and the same value again."""
    line = line_of(to_json(value))
    assert line.isascii()
    assert "\n" not in line
    assert value == from_json(type(value), data_of(line))


@given(histories())
def test_events_come_back_equal(history):
    """Every event of a run, in the class it was."""
    record, _ = history
    for event in record.events:
        back = event_from_json(data_of(line_of(event_to_json(event))))
        assert event == back
        assert type(event) is type(back)


def test_the_same_value_makes_the_same_bytes():
    """Keys are in order, whatever the order of the class or the dictionary."""
    assert '{"a": 1, "b": 2}' == line_of({"b": 2, "a": 1})
    assert line_of({"b": [{"y": 1, "x": 2}]}) == line_of({"b": [{"x": 2, "y": 1}]})


def test_what_is_no_number_is_unknown():
    """JSON has no `nan`: a price that is none is unknown."""
    assert {"cost_usd": None, "basis": "given"} == to_json(Price(math.nan, "given"))


@pytest.mark.parametrize("value", [np.str_("x"), Word.X, np.float64(0.5), Number.ONE], ids=repr)
def test_texts_and_numbers_of_a_class_of_their_own_are_plain(value):
    """A user's function returned them: the same line as for Python's own, and no bug of a run."""
    plain = {"x": "x", 0.5: 0.5, 1: 1}[value]
    assert line_of({"it": plain}) == line_of(to_json({"it": value}))
    assert type(plain) is type(to_json(value))


def test_only_plain_data_is_written():
    """Anything else is an error, not its `repr`."""
    with pytest.raises(TypeError, match="object is not plain data"):
        to_json({"x": object()})


REVIVALS = [
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "x"}},
    {"__type__": "os.system", "args": ["x"]},
    {"$ref": "file:///etc/passwd"},
    {"py/object": "subprocess.Popen"},
    {"__class__": "Exception", "event": "RunEnded"},
]


@pytest.mark.parametrize("data", REVIVALS)
def test_keys_in_the_data_choose_no_class(data):
    """Keys that revive objects elsewhere are unknown fields here, and left out; alone they are no value."""
    good = to_json(Answer("t", "end_turn", usage=Usage(1), model="m"))
    assert Answer("t", "end_turn", usage=Usage(1), model="m") == from_json(Answer, {**data, **good})
    with pytest.raises(ValueError, match="is missing"):
        from_json(Answer, data)
    with pytest.raises(ValueError, match="expected an object for Answer"):
        from_json(Answer, [data])


@pytest.mark.parametrize("data", REVIVALS)
def test_text_that_looks_like_data_stays_text(data):
    """An answer whose text is JSON is text."""
    answer = Answer(json.dumps(data), "end_turn", usage=Usage(1), model="m")
    assert json.dumps(data) == from_json(Answer, data_of(line_of(to_json(answer)))).text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": 5}, "text: expected str, got int"),
        ({"text": ["a"]}, "text: expected str, got list"),
        ({"usage": None}, "usage: expected an object for Usage, got"),
        ({"usage": {"input_tokens": True}}, "usage: input_tokens: expected int, got bool"),
        ({"usage": {"estimated": 1}}, "usage: estimated: expected bool, got int"),
        ({"source": "bank"}, "source: an unknown word"),
        ({"source": ["live"]}, "source: an unknown word"),
    ],
)
def test_wrong_fields_are_named(change, message):
    """The message names the field, never its content."""
    good = to_json(Answer("t", "end_turn", usage=Usage(1), model="m"))
    with pytest.raises(ValueError, match=message):
        from_json(Answer, {**good, **change})


def test_missing_fields_take_the_default():
    """A file from before a field existed opens."""
    data = {"text": "t", "stop_reason": "end_turn", "usage": {}, "model": "m"}
    assert Answer("t", "end_turn", usage=Usage(), model="m") == from_json(Answer, data)


@pytest.mark.parametrize(
    "line", ["", "[]", "5", "{", "[" * 100_000, '{"x": NaN}', '{"x": Infinity}', '{"x": ' + "9" * 5000 + "}", "\x00"]
)
def test_lines_that_are_no_object_are_one_kind_of_error(line):
    """Broken, too deep, not a number: `ValueError`."""
    with pytest.raises(ValueError, match=r".+"):
        data_of(line)


@pytest.mark.parametrize("data", [None, 5, {}, {"event": "Popen"}, {"event": ["RunEnded"]}, {"event": "RunEnded"}])
def test_events_of_unknown_kinds_are_errors(data):
    """The kinds are a closed table."""
    with pytest.raises(ValueError, match=r".+"):
        event_from_json(data)
    assert {"AgentReady", "AttemptStarted", "AttemptEnded", "AgentEnded", "RunEnded"} < set(EVENTS)


def test_numbers_are_finite():
    """A number beyond the range of floats is damaged data."""
    with pytest.raises(ValueError, match="at_s: number not finite"):
        from_json(AgentEnded, {"at_s": float("inf"), "agent": 0, "status": "failed", "error": None})
    assert 3.0 == from_json(AgentEnded, {"at_s": 3, "agent": 0, "status": "failed", "error": None}).at_s


def test_nested_values_are_checked_too():
    """The request of an attempt, the price of its end."""
    start = event_to_json(AttemptStarted(0.0, 0, 1, 0.0, "", Request("m", "p", 5)))
    end = event_to_json(
        AttemptEnded(1.0, 0, 1, None, "late", "Late", "", None, Price(None, "unknown"), None, None),
    )
    with pytest.raises(ValueError, match="request: max_tokens"):
        event_from_json({**start, "request": {**start["request"], "max_tokens": "5"}})
    with pytest.raises(ValueError, match="price: basis is missing"):
        event_from_json({**end, "price": {"cost_usd": 1.0}})
