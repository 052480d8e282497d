"""Tokens, timing and simulated texts: pure parts."""

from __future__ import annotations

import json
from datetime import date
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magic.simulator import api, content, models, writer
from agent_magic.simulator.structured import fill, schema_of
from agent_magic.simulator.writer import subject_of


def write(prompt: str, system: str, rng: Random) -> str:
    """The answer to a prompt."""
    return writer.write(subject_of(prompt, system), system, rng)


@settings(deadline=None)
@given(text=st.text(), limit=st.integers(0, 50), seed=st.integers())
def test_tokens_add_up(text, limit, seed) -> None:
    """A cut text has at most the tokens asked for and begins the text; pieces joined are the text."""
    cut = api.cut_text(text, limit)
    assert api.count_tokens(cut) <= limit
    assert text.startswith(cut)
    assert text == "".join(api.pieces_of(text, Random(seed)))


def test_token_length() -> None:
    """A token is four bytes, the last one may be shorter."""
    assert [0, 1, 1, 2, 1] == [api.count_tokens(text) for text in ("", "a", "abcd", "abcde", "é")]


@pytest.mark.parametrize(
    ("size", "current", "earlier"),
    [((640, 480), 414, 414), ((1280, 960), 1610, 1564), ((1920, 1440), 3588, 1564), ((9000, 2), 92, 56)],
)
def test_tokens_of_pictures(size, current, earlier) -> None:
    """A picture costs a token per patch of 28 pixels, scaled down to what its model sees; the size is in its header."""
    head = content.PNG_HEADER + b"\0\0\0\rIHDR" + size[0].to_bytes(4) + size[1].to_bytes(4)
    of_picture = content.tokens_of_picture
    assert ("image/png", size) == content.picture_size(head + b"rest")
    assert (current, earlier) == (of_picture(size, 2576, 4784), of_picture(size, 1568, 1568))


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
    """Blocks in tags are inputs whose names are key phrases; the instruction is what is left."""
    subject = subject_of("Compare.\n<python>Flask web apps</python>\n<rust_side>Axum</rust_side>", "")
    assert ({"python", "rust side"}, "Compare.") == (set(subject.terms), subject.instruction)


@pytest.mark.parametrize(
    ("prompt", "system", "section"),
    [
        ("Go.", "You are a careful researcher.", "Findings"),
        ("Go.", "You are a critic who combines.", "Verdict"),
        ("Plan the move.", "", "Risks"),
        ("Combine.\n<a>x</a><b>y</b>", "", "Where the views differ"),
        ("Draft an article on tea.", "", "In practice"),
        ("Which tea?", "", "What speaks for it"),
    ],
)
def test_sections_follow_the_role(prompt, system, section) -> None:
    """The role that the system prompt names, else the instruction, decides the sections of an answer."""
    text = write(prompt, system, Random(1))
    assert f"## {section}\n\n" in text
    assert 3 <= text.count("## ")


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


@pytest.mark.parametrize("prompt", ["One sentence on tea.", "Name the tea in one word."])
def test_short_answers_are_short(prompt) -> None:
    """A prompt that asks for a word or a sentence gets that."""
    assert len(write(prompt, "", Random(1)).split()) <= (1 if "word" in prompt else 60)


LABELS = {"positive", "negative", "mixed"}


@pytest.mark.parametrize(
    ("prompt", "offered"),
    [
        ("Is tea good? Answer yes or no.", {"yes", "no"}),
        ("Answer Yes/No: is tea good?", {"Yes", "No"}),
        ("Sentiment in one word, positive, negative or mixed.\n\nCold and late, or so it seemed.", LABELS),
        ("Is this review positive, negative or mixed? One word.\nCold and late, or so it seemed.", LABELS),
        ("Classify the review as positive, negative or mixed: it was late, because or so I think.", LABELS),
        ("Reply with one word (positive, negative, mixed).", LABELS),
        ("Answer with exactly one of 'positive', 'negative' or 'mixed'. Text: 'x'", LABELS),
        ("Which label fits: positive/negative/mixed? Answer with a single word.", LABELS),
        ("Return one of: bug, feature request, question.\nIt crashes.", {"bug", "feature request", "question"}),
        ("Rate it from 1 to 3. Answer with only a number.", {"1", "2", "3"}),
    ],
)
def test_one_of_the_offered_words_is_picked(prompt, offered) -> None:
    """A prompt that offers words to choose from gets each of them by seed, as it is written, without a full stop."""
    assert offered == {write(prompt, "", Random(str(seed))) for seed in range(60)}


def test_a_word_that_is_not_offered_varies() -> None:
    """One word without a list is another one by seed; a question for the sentiment gets sentiments."""
    words = {write("One word for the sentiment: it was cold.", "", Random(str(seed))) for seed in range(60)}
    assert {"positive", "negative", "neutral", "mixed"} == words
    assert 1 < len({write("Name a gift in one word: books, flowers.", "", Random(str(seed))) for seed in range(60)})


def test_an_explained_choice_is_prose() -> None:
    """Who asks for reasons gets more than a word."""
    for prompt in ("Choose one of tea or coffee and explain why.", "You are one of three critics. Review the tea."):
        assert len(write(prompt, "", Random(1)).split()) > 50


def json_for(prompt: str, system: str = "", seed: int = 1) -> Any:
    """The answer to a prompt that asks for JSON."""
    subject = subject_of(prompt, system)
    schema = schema_of(subject, system)
    assert schema
    return json.loads(fill(schema, subject, Random(str(seed))))


@pytest.mark.parametrize(
    "prompt",
    [
        'Label it. Answer as JSON: {"sentiment": "positive|negative", "score": 1-5, "reasons": ["..."]}\nIt was cold.',
        "Reply with valid JSON only, with keys sentiment (positive or negative), score (1 to 5) and reasons.",
        "Return a JSON object with the fields `sentiment` (positive or negative), `score` (1-5), `reasons`.",
    ],
)
def test_json_has_the_keys_that_the_prompt_names(prompt) -> None:
    """A prompt that asks for JSON gets a document of the keys, the values and the ranges it names."""
    for seed in range(20):
        found = json_for(prompt, seed=seed)
        assert ["sentiment", "score", "reasons"] == list(found)
        assert found["sentiment"] in ("positive", "negative")
        assert 1 <= found["score"] <= 5
        assert all(isinstance(each, str) for each in found["reasons"])


def test_json_without_keys_is_an_object_and_a_list_is_a_list() -> None:
    """JSON is an object even where no key is named, and a list of objects where that is asked for."""
    assert json_for("Summarise the tea. Output JSON.")
    (first, *_) = json_for("Give me a JSON array of objects with keys title and is_open.")
    assert (str, bool) == (type(first["title"]), type(first["is_open"]))
    assert schema_of(subject_of("Explain how parsers of JSON work.", ""), "") is None
    assert json_for("Go.", "You answer only in JSON, with keys a and b.").keys() == {"a", "b"}


def test_schema_is_followed() -> None:
    """References, alternatives, enumerations and bounds are kept, endless recursion ends."""
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "count": {"type": "integer", "minimum": 3, "maximum": 4},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "node": {"$ref": "#/$defs/node"},
            "day": {"type": "string", "format": "date"},
            "pair": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        },
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "const": {"const": 7}}}},
    }
    found = json.loads(fill(schema, subject_of("trees", ""), Random(1)))
    assert {"kind", "count", "maybe", "node", "day", "pair"} == set(found)
    assert date.fromisoformat(found["day"])
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
    model = models.parse_latency(spec)
    plain = models.Latency(model.factor, model.ttft_s, model.pace, 0.0)
    timing = plain.draw("haiku", Random(1))
    assert pytest.approx(expected) == (timing.ttft_s, timing.per_token_s)


def test_latency_is_drawn_and_repeatable() -> None:
    """Two requests take different times, the same request the same; exact wishes are exact."""
    real = models.parse_latency("real")
    assert real.draw("opus", Random(1)) == real.draw("opus", Random(1))
    assert real.draw("opus", Random(1)) != real.draw("opus", Random(2))
    assert models.Timing(2.0, 0.01) == real.draw("opus", Random(1), ttft_s=2.0, pace=100.0)


@pytest.mark.parametrize(
    "spec", ["", "soon", "x", "x-1", "ttft", "ttft=a", "pace=0", "ttft=1,colour=2", "xnan", "xinf"]
)
def test_wrong_latency(spec) -> None:
    """What cannot be read is refused with what can."""
    with pytest.raises(ValueError, match="use none, fast, real"):
        models.parse_latency(spec)


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
    text = fill(schema, subject_of("trees", ""), Random(1))
    assert len(text) < 1_000_000
    json.loads(text)
