"""JSON answers: a document for a schema, from `output_config.format` or inferred from the prompt."""

from __future__ import annotations

import json
import re
from itertools import cycle
from random import Random
from typing import TypeAlias

from agent_magic.simulator.choices import SENTIMENTS, options_of
from agent_magic.simulator.json_types import Json, as_int, as_list, as_number, as_object
from agent_magic.simulator.topic import Subject

MAX_DEPTH = 12
MOST_VALUES = 2_000
"""Documents are cut at so many values. A schema that asks for millions would delay all other requests."""
FORMATS = {
    "date": "2026-11-22",
    "date-time": "2026-11-22T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "uri": "https://example.com/",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
# The SDK moves the bounds that the API does not accept into the description, as in `{minimum: 1, maximum: 5}`.
_TOLD_BOUND = re.compile(r"\b(minimum|maximum)\W{1,3}(-?\d+(?:\.\d+)?)")
_WANTED = re.compile(
    r"\b(?:as|in|return|reply|respond|answer|output|with|only|valid|strict|raw|emit|give|produce)\b"
    r"(?: \w+){0,4} json\b|\bjson (?:only|object|array|list)\b",
    re.IGNORECASE,
)
_LIST = re.compile(r"\b(?:json (?:array|list)|(?:array|list) of (?:json )?objects)\b", re.IGNORECASE)
_QUOTED_KEY = re.compile(r"[\"']([A-Za-z_][\w-]{0,40})[\"']\s*:\s*([^,}\n]*)")
_KEYS = re.compile(
    r"\b(?:keys?|fields?|properties|attributes)\b(?: (?:named|called|are|of))?\W{0,3}(.+?)(?:\.(?:\s|$)|\n\s*\n|$)",
    re.IGNORECASE | re.DOTALL,
)
_KEY = re.compile(r"[`\"'*-]*([A-Za-z_][\w-]{0,40})[`\"'*]*(?:\s*[(:]\s*([^()]*)\)?)?")
_RANGE = re.compile(r"(\d+)\s*(?:to|-|–)\s*(\d+)")
_KINDS = {
    r"^(?:is|has|should|can)_|^(?:valid|approved|urgent|correct|ok|done)$": {"type": "boolean"},
    r"confidence|probability|likelihood": {"type": "number", "minimum": 0.0, "maximum": 1.0},
    r"score|rating|stars|priority|severity|rank": {"type": "integer", "minimum": 1, "maximum": 5},
    r"count|number|amount|price|total|age|minutes|hours|days|cost|usd": {
        "type": "integer",
        "minimum": 1,
        "maximum": 90,
    },
    r"^(?:sentiment|tone|mood)$": {"enum": [*SENTIMENTS]},
    r"(?<![sui])s$|list$": {"type": "array", "items": {"type": "string"}},
}
"""The schema of a value, by its key."""
JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


def schema_of(subject: Subject, system: str) -> Json | None:
    """Return a schema with the keys that the prompt names, or `None` if it does not ask for JSON."""
    if not (_WANTED.search(subject.request) or _WANTED.search(system)):
        return None
    text = f"{subject.instruction}\n{system}"
    keys = dict(_QUOTED_KEY.findall(text))
    if not keys and (listed := _KEYS.search(text)):
        parts = re.split(r",(?![^(]*\))|\band\b|\n|;", listed[1])
        keys = {key[1]: key[2] or "" for part in parts if (key := _KEY.match(part.strip()))}
    keys = keys or dict.fromkeys(("summary", "points", "confidence"), "")
    schema = {"type": "object", "properties": {key: _value_schema(key, hint) for key, hint in keys.items()}}
    return {"type": "array", "items": schema} if _LIST.search(text) else schema


def _value_schema(key: str, hint: str) -> Json:
    """Return the schema of a value, from its hint in the prompt or else from its key."""
    options = options_of(f":{hint}")
    if bounds := _RANGE.search(hint):
        return {"type": "integer", "minimum": int(bounds[1]), "maximum": int(bounds[2])}
    if len(options) > 1:
        return {"enum": options}
    if hint.lstrip().startswith("["):
        return {"type": "array", "items": {"type": "string"}}
    for kind, words in {"boolean": r"\bbool|true|false", "number": r"\bfloat|number", "integer": r"\bint"}.items():
        if re.search(words, hint, re.IGNORECASE):
            return {"type": kind}
    return next((schema for words, schema in _KINDS.items() if re.search(words, key.lower())), {"type": "string"})


def fill(schema: Json, subject: Subject, rng: Random) -> str:
    """Return a JSON document that follows a schema; its texts are phrases of the prompt."""
    return json.dumps(_Filler(schema, subject, rng).value(schema, 0), ensure_ascii=False)


class _Filler:
    """Fills one schema."""

    def __init__(self, schema: Json, subject: Subject, rng: Random) -> None:
        self._root = schema
        self._rng = rng
        self._phrases = cycle(rng.sample(phrases := (*subject.terms[:8], subject.topic), len(phrases)))
        self._left = MOST_VALUES

    def value(self, schema: Json, depth: int) -> JsonValue:
        self._left -= 1
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if choices := as_list(schema.get("enum")):
            return self._rng.choice(choices)
        kind = schema.get("type")
        if kinds := as_list(kind):
            kind = kinds[0]
        kind = kind if isinstance(kind, str) else ("object" if "properties" in schema else "string")
        if depth > MAX_DEPTH or self._left < 0 or kind == "null":
            return None
        if kind == "object":
            properties = as_object(schema.get("properties")) or {}
            return {key: self.value(as_object(inner) or {}, depth + 1) for key, inner in properties.items()}
        if kind == "array":
            inner = as_object(schema.get("items")) or {}
            return [self.value(inner, depth + 1) for _ in range(self._size(schema))]
        return self._scalar(schema, kind)

    def _resolved(self, schema: Json) -> Json:
        """Resolve references, and the first of alternatives."""
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

    def _size(self, schema: Json) -> int:
        most = as_int(schema.get("maxItems"))
        size = max(as_int(schema.get("minItems")) or 0, self._rng.randint(2, 4))
        return min(size, self._left + 1, size if most is None else most)

    def _scalar(self, schema: Json, kind: str) -> JsonValue:
        if kind == "boolean":
            return self._rng.random() < 0.5
        if kind in ("integer", "number"):
            low = _bound(schema, "minimum", 1.0)
            number = self._rng.uniform(low, max(low, _bound(schema, "maximum", low + 4)))
            return round(number) if kind == "integer" else round(number, 2)
        phrase = next(self._phrases)
        return FORMATS.get(str(schema.get("format")), phrase[:1].upper() + phrase[1:])


def _bound(schema: Json, name: str, otherwise: float) -> float:
    """Return a bound of a number, from the schema or else from its description."""
    told = {key: float(value) for key, value in _TOLD_BOUND.findall(str(schema.get("description", "")))}
    given = as_number(schema.get(name))
    return told.get(name, otherwise) if given is None else given
