"""Tokens, timing and prose: pure parts."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.simulator import latency, tokens
from agent_magic.simulator.structured import Filler
from agent_magic.simulator.topic import subject_of
from agent_magic.simulator.writer import role_of, write


@settings(deadline=None)
@given(text=st.text(), limit=st.integers(0, 50), seed=st.integers())
def test_tokens_add_up(text, limit, seed) -> None:
    """A cut text has at most the tokens asked for and begins the text; pieces joined are the text."""
    cut = tokens.cut(text, limit)
    assert tokens.count(cut) <= limit
    assert text.startswith(cut)
    assert text == "".join(tokens.pieces(text, Random(seed)))


def test_token_length() -> None:
    """A token is four bytes, the last one may be shorter."""
    assert [0, 1, 1, 2, 1] == [tokens.count(text) for text in ("", "a", "abcd", "abcde", "é")]


@pytest.mark.parametrize(
    ("prompt", "topic"),
    [
        ("You know Python well. Which would you pick for a public web API, and why?", "a public web API"),
        ("You are an expert on databases. Compare the choices for a small notebook app.", "a small notebook app"),
        ("Write an article about small bakeries in winter.", "small bakeries in winter"),
        ("Topic: night trains in Europe\n\nWrite a brief.", "night trains in Europe"),
        ("Give me a list of three risks of cloud hosting.", "cloud hosting"),
        ("Explain tides.", "tides"),
        ("hi", "the question at hand"),
        ("", "the question at hand"),
        (
            "Review this.\n<draft>The harbour bridge needs paint. The harbour bridge is old.</draft>",
            "harbour bridge",
        ),
    ],
)
def test_topic(prompt, topic) -> None:
    """The topic is what follows the first leading preposition, else the most telling phrase."""
    assert topic == subject_of(prompt, "").topic


def test_named_inputs_are_found() -> None:
    """Blocks in tags are inputs with names; the instruction is what is left."""
    subject = subject_of("Compare.\n<python>Flask web apps</python>\n<rust_side>Axum</rust_side>", "")
    assert (("python", "rust side"), "Compare.") == (subject.sources, subject.instruction)


@pytest.mark.parametrize(
    ("prompt", "system", "role"),
    [
        ("Go.", "You are a careful researcher.", "researcher"),
        ("Go.", "You are a critic who compares.", "critic"),
        ("Plan the move.", "", "planner"),
        ("Compare tea and coffee.", "", "analyst"),
        ("Compare.\n<a>x</a><b>y</b>", "", "synthesiser"),
        ("Draft an article on tea.", "", "writer"),
        ("Which tea?", "", "adviser"),
    ],
)
def test_role(prompt, system, role) -> None:
    """The system prompt names the role, else the instruction."""
    assert role == role_of(subject_of(prompt, system), system)


@pytest.mark.parametrize(
    "prompt", ["Compare tea and coffee for a small office.", "Write an essay on tides.", "Plan a trip."]
)
def test_answers_have_a_realistic_length_and_keep_to_the_topic(prompt) -> None:
    """An answer has 100 to 450 words, names its topic and leaves no template open."""
    topic = subject_of(prompt, "").topic
    for seed in range(50):
        text = write(prompt, "", Random(seed))
        assert 100 <= len(text.split()) <= 450
        assert topic in text
        assert "{" not in text
        assert text == write(prompt, "", Random(seed))


def test_a_chain_of_answers_keeps_its_topic() -> None:
    """An answer that is handed on does not make its own phrases the topic."""
    first = write("Which framework would you pick for a public web API?", "", Random(1))
    second = write(f"Compare these.\n<one>{first}</one>\n<two>{first}</two>", "", Random(2))
    assert "web API" in second


@pytest.mark.parametrize(
    ("prompt", "words"),
    [("Is tea good? Answer yes or no.", 1), ("Name it in one word: tea", 1), ("One sentence on tea.", 60)],
)
def test_short_answers_are_short(prompt, words) -> None:
    """A prompt that asks for a word or a sentence gets that."""
    assert len(write(prompt, "", Random(1)).split()) <= words


def test_schema_is_followed() -> None:
    """References, alternatives, enumerations and bounds are kept, endless recursion ends."""
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "count": {"type": "integer", "minimum": 3, "maximum": 4},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "node": {"$ref": "#/$defs/node"},
            "pair": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        },
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "const": {"const": 7}}}},
    }
    found = json.loads(Filler(schema, subject_of("trees", ""), Random(1)).text())
    assert {"kind", "count", "maybe", "node", "pair"} == set(found)
    assert found["kind"] in ("a", "b")
    assert 3 <= found["count"] <= 4
    assert isinstance(found["maybe"], bool)
    assert 7 == found["node"]["next"]["const"]
    assert 2 == len(found["pair"])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("none", (0.0, 0.0)),
        ("real", (0.4, 1 / 150)),
        ("fast", (0.04, 0.1 / 150)),
        ("x0.5", (0.2, 0.5 / 150)),
        ("ttft=0.3,pace=200", (0.3, 1 / 200)),
    ],
)
def test_latency_medians(spec, expected) -> None:
    """Without spread an answer takes the medians of its family, scaled or replaced."""
    model = latency.parse(spec)
    plain = latency.Latency(model.factor, model.ttft_s, model.pace, 0.0)
    timing = plain.draw("haiku", Random(1))
    assert pytest.approx(expected) == (timing.ttft_s, timing.per_token_s)


def test_latency_is_drawn_and_repeatable() -> None:
    """Two requests take different times, the same request the same; exact wishes are exact."""
    real = latency.parse("real")
    assert real.draw("opus", Random(1)) == real.draw("opus", Random(1))
    assert real.draw("opus", Random(1)) != real.draw("opus", Random(2))
    assert latency.Timing(2.0, 0.01) == real.draw("opus", Random(1), ttft_s=2.0, pace=100.0)


@pytest.mark.parametrize(
    "spec", ["", "soon", "x", "x-1", "ttft", "ttft=a", "pace=0", "ttft=1,colour=2", "xnan", "xinf"]
)
def test_wrong_latency(spec) -> None:
    """What cannot be read is refused with what can."""
    with pytest.raises(ValueError, match="use none, fast, real"):
        latency.parse(spec)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 10**30},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "object", "properties": {name: {"$ref": "#"} for name in "abc"}},
        {"type": "number", "minimum": 10**400},
        {"type": "integer", "minimum": 1e308, "maximum": float("inf")},
    ],
    ids=["many", "nested", "itself", "huge", "endless"],
)
def test_no_schema_holds_the_server_up(schema) -> None:
    """Whatever a schema asks for, a document of it is there at once: all requests share one loop."""
    text = Filler(schema, subject_of("trees", ""), Random(1)).text()
    assert len(text) < 1_000_000
    json.loads(text)
