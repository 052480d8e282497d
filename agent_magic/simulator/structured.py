"""Filling a JSON schema with plausible values, for requests with `output_config.format`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random
from typing import TypeAlias

from agent_magic.simulator.shapes import Json, as_int, as_list, as_number, as_object
from agent_magic.simulator.topic import Subject

MAX_DEPTH = 12
MOST_VALUES = 2_000
"""A document of more values ends early: a schema that asks for millions would hold up every other request."""
# The SDK moves the bounds that the API does not take into the description, as in `{minimum: 1, maximum: 5}`.
_TOLD_BOUND = re.compile(r"\b(minimum|maximum)\W{1,3}(-?\d+(?:\.\d+)?)")
JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


class Filler:
    """Fills one schema; text comes from the phrases of the prompt."""

    def __init__(self, schema: Json, subject: Subject, rng: Random) -> None:
        """Prepare to fill one schema."""
        self._root = schema
        self._rng = rng
        self._phrases = self._endless((*subject.terms, subject.topic))
        self._left = MOST_VALUES

    def text(self) -> str:
        """Return a JSON document that follows the schema."""
        return json.dumps(self._value(self._root, "answer", 0), ensure_ascii=False)

    @staticmethod
    def _endless(phrases: tuple[str, ...]) -> Iterator[str]:
        while True:
            yield from phrases

    def _value(self, schema: Json, name: str, depth: int) -> JsonValue:
        self._left -= 1
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if choices := as_list(schema.get("enum")):
            return self._rng.choice(choices)
        kind = self._kind(schema)
        if depth > MAX_DEPTH or self._left < 0 or kind == "null":
            return None
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, name, depth)
        return self._scalar(schema, kind, name)

    def _resolved(self, schema: Json) -> Json:
        """Follow references and take the first alternative, until the schema says what it is."""
        for _ in range(MAX_DEPTH):
            alternatives = as_list(schema.get("anyOf")) or as_list(schema.get("oneOf")) or as_list(schema.get("allOf"))
            if isinstance(schema.get("$ref"), str):
                schema = self._referenced(schema["$ref"])
            elif alternatives:
                schema = as_object(alternatives[0]) or {}
            else:
                break
        return schema

    def _referenced(self, reference: str) -> Json:
        found: Json = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            found = as_object(found.get(part)) or {} if part else found
        return found

    @staticmethod
    def _kind(schema: Json) -> str:
        kind = schema.get("type")
        if kinds := as_list(kind):
            kind = kinds[0]
        return kind if isinstance(kind, str) else ("object" if "properties" in schema else "string")

    def _object(self, schema: Json, depth: int) -> dict[str, JsonValue]:
        properties = as_object(schema.get("properties")) or {}
        return {key: self._value(as_object(inner) or {}, key, depth + 1) for key, inner in properties.items()}

    def _array(self, schema: Json, name: str, depth: int) -> list[JsonValue]:
        fewest = as_int(schema.get("minItems")) or 0
        most = as_int(schema.get("maxItems"))
        size = max(fewest, self._rng.randint(2, 4))
        size = min(size, self._left + 1, size if most is None else most)
        inner = as_object(schema.get("items")) or {}
        return [self._value(inner, name, depth + 1) for _ in range(size)]

    def _scalar(self, schema: Json, kind: str, name: str) -> JsonValue:
        if kind == "boolean":
            return self._rng.random() < 0.5
        if kind in ("integer", "number"):
            low = _bound(schema, "minimum", 1.0)
            number = self._rng.uniform(low, max(low, _bound(schema, "maximum", low + 4)))
            return round(number) if kind == "integer" else round(number, 2)
        return f"{name.replace('_', ' ').capitalize()}: {next(self._phrases)}"


def _bound(schema: Json, name: str, otherwise: float) -> float:
    """Return a bound of a number: the schema's own, else the one told in its description."""
    told = {key: float(value) for key, value in _TOLD_BOUND.findall(str(schema.get("description", "")))}
    given = as_number(schema.get(name))
    return told.get(name, otherwise) if given is None else given
