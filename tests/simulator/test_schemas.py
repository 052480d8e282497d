"""Structured answers of the mock server: schemas that the API refuses, and answers that read like a model's."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from agent_magic.simulator.child import SimulatorError, start
from agent_magic.simulator.structured import fill
from agent_magic.simulator.writer import subject_of

OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED: dict[str, Any] = {**OPEN, "additionalProperties": False}


def of(field: Any, **more: Any) -> dict[str, Any]:
    """An object with one field."""
    fields = {"type": "object", "properties": {"a": field}, "required": ["a"], "additionalProperties": False}
    return {**fields, **more}


def asking(schema: Any, **more: Any) -> dict[str, Any]:
    """A request for an answer of this schema."""
    messages = [{"role": "user", "content": "Label this review: great"}]
    config = {"format": {"type": "json_schema", "schema": schema}}
    return {"model": "claude-haiku-5-5", "max_tokens": 200, "messages": messages, "output_config": config, **more}


MANY = {f"f{n}": {"type": "string"} for n in range(25)}
UNIONS = {f"f{n}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for n in range(17)}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (OPEN, "'additionalProperties' must be explicitly set to false"),
        (of(OPEN), "'additionalProperties' must be explicitly set to false"),
        (of({"type": "integer", "minimum": 1}), "For 'integer' type, property 'minimum' is not supported"),
        (of({"type": "string", "maxLength": 1}), "property 'maxLength' is not supported"),
        (of({"type": "array", "items": {"type": "string"}, "maxItems": 3}), "property 'maxItems' is not supported"),
        (of({"type": "array", "items": {"type": "string"}, "minItems": 2}), "'minItems' values other than 0 or 1"),
        (of({"type": "string", "pattern": r"\bx"}), "Pattern .* is not supported"),
        (of({"type": "string", "format": "color"}), "String format 'color' is not supported"),
        (of({"type": "tuple"}), "Schema type 'tuple' is not supported"),
        (of({}), "Schema type None is not supported"),
        (of({"$ref": "#/$defs/n"}, **{"$defs": {"n": of({"$ref": "#/$defs/n"})}}), "Circular reference"),
        (of({"$ref": "#"}), "Circular reference: #"),
        (of({"$ref": "#/$defs/x"}), "Unknown reference"),
        ({**CLOSED, "properties": MANY}, "too many optional parameters .limit: 24."),
        (
            {**CLOSED, "properties": UNIONS, "required": list(UNIONS)},
            "too many parameters with union types .limit: 16.",
        ),
    ],
)
def test_a_schema_the_api_refuses(talk, schema, message) -> None:
    """A 400 that says what it does not support."""
    found = talk.post(asking(schema))
    assert 400 == found.status
    assert json.dumps(found.body).find("output_config.format.schema") > 0
    import re

    assert re.search(message, found.body["error"]["message"])


def test_no_prefill_beside_a_schema(talk) -> None:
    """The answer begins with the document."""
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "{"}]
    assert 400 == talk.post(asking(CLOSED, messages=messages)).status


def test_a_schema_counts_as_input(talk) -> None:
    """With the instruction that comes with it, in the count as in the bill."""
    plain = {key: value for key, value in asking(CLOSED).items() if key != "output_config"}
    sizes = [talk.post(body).body["usage"]["input_tokens"] for body in (plain, asking(CLOSED))]
    assert sizes[1] > sizes[0] + 40
    body = {key: value for key, value in asking(CLOSED).items() if key != "max_tokens"}
    assert sizes[1] == talk.post(body, path="/v1/messages/count_tokens").body["input_tokens"]


FIELDS: dict[str, Any] = {
    "sentiment": {"enum": ["positive", "negative", "mixed"]},
    "topic": {"enum": ["delivery", "price", "quality"]},
    "stars": {"type": "integer", "description": "{minimum: 1, maximum: 5}"},
    "confidence": {"type": "number"},
    "quote": {"type": "string"},
    "reason": {"type": "string"},
    "author": {"type": "string"},
    "day": {"type": "string", "format": "date"},
    "maybe": {"anyOf": [{"type": "null"}, {"type": "string"}]},
}


def answers(review: str, count: int = 60) -> list[dict[str, Any]]:
    """Answers to a review."""
    schema = {"type": "object", "properties": FIELDS}
    subject = subject_of(f"Label this review.\n{review}", "")
    return [json.loads(fill(schema, subject, Random(f"{seed}"))) for seed in range(count)]


@pytest.mark.parametrize(
    ("review", "tone", "topic"),
    [
        ("I love it, great quality.", "positive", "quality"),
        ("Broken on delivery, awful.", "negative", "delivery"),
        ("Great light, but the switch is stiff for the price.", "mixed", "price"),
    ],
)
def test_a_choice_follows_the_words_of_the_prompt(review, tone, topic) -> None:
    """Mostly: a model slips now and then, in one of the two at least."""
    found = answers(review)
    right = [(one["sentiment"] == tone) + (one["topic"] == topic) for one in found]
    assert 1.6 * len(found) < sum(right) < 2 * len(found)


def test_values_vary_and_fit_their_fields() -> None:
    """Numbers in their range, a quote that is in the review, sentences for reasons, some nothing where that may be."""
    found = answers("The lamp came on Monday. It hums at night.")
    assert {1, 2, 3, 4, 5} >= {one["stars"] for one in found} > {3}
    assert all(0 <= one["confidence"] <= 1 for one in found)
    assert {"It hums at night."} == {one["quote"] for one in found}
    assert all(one["reason"].endswith(".") for one in found)
    assert len({one["author"] for one in found}) > 2
    assert len({one["day"] for one in found}) > 10
    assert 0 < sum(one["maybe"] is None for one in found) < len(found) / 2


def test_how_often_a_choice_slips_is_said_by_family(started) -> None:
    """The same question with the same seed: one family is always wrong, the other never."""
    talk = started(latency="none", unlimited=True, slips="haiku=1,opus=0")
    schema = of({"type": "string", "enum": ["positive", "negative", "mixed"]})
    said = {
        model: [
            json.loads(
                talk.post(asking(schema, model=model, messages=[{"role": "user", "content": text}])).body["content"][0][
                    "text"
                ]
            )["a"]
            for text in (f"Label this review: great, I love it {number}" for number in range(5))
        ]
        for model in ("claude-haiku-5-5", "claude-opus-5-5")
    }
    assert "positive" not in said["claude-haiku-5-5"]
    assert ["positive"] * 5 == said["claude-opus-5-5"]


@pytest.mark.parametrize("slips", ["haiku", "haiku=x", "haiku=2", "gpt=0.1"])
def test_slips_that_are_none_are_said(slips) -> None:
    """When the server starts, with what they may be."""
    with pytest.raises(SimulatorError, match=r"slips are .*got"):
        start(latency="none", slips=slips)
