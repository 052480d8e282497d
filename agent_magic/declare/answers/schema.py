"""The schema of a typed answer, within the limits of the API's grammars.

A type becomes a JSON schema once, when it is declared (`sent_as`). From then on the schema is the type: answers are
read by it, so a record needs no class.

Types that no grammar can hold, such as a dict or a class that contains itself, are described in words: the schema has
its JSON schema beside it, for the prompt (`IN_WORDS`), and `{}` for each place that may be anything. An answer that is
no object is sent as the only field of an object titled `value`; a user's class with that title gets a capital letter.

Source: the vendor's page on structured outputs: supported schemas, and the number of optional and union properties.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from agent_magic.declare.validation import find_name
from agent_magic.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Schema = dict[str, Any]
VALUE = "value"
"""Titles the object that an answer is wrapped in, and names its only field."""
BY_ITEM = "answers_by_item"
"""Title of the object with answers for several items, with the only field `answers`: each `item` and `answer`."""
IN_WORDS: Final = "x-in-words"
"""Names the JSON schema in the prompt, if none can be sent."""
MOST_OPTIONAL = 24
MOST_UNIONS = 16
FORMATS = frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split())
BYTES = frozenset({"binary", "base64url"})
BOUNDS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
)
"""Keys beyond grammars: they are told in the description, and checked in the answer."""
SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})
_HARD_PATTERN = re.compile(r"\(\?|\\[bB1-9]")
"""Lookaround, word boundaries and back references: a grammar has none."""
_REFERENCE = re.compile(r'"\$ref": "[^"]*/([^"/]+)"')
_MOST_WORDS = 4
TYPICAL_CHARS = {"boolean": 5, "integer": 2, "number": 4, "null": 4}
TYPICAL_TEXT, TYPICAL_ITEMS = 60, 3
"""Assumed characters of an unseen text, and items of an unseen list."""


def sent_as(schema: Schema, name: str) -> tuple[Schema, str]:
    """Return a schema within the API's limits, or else for words; and why it is."""
    if IN_WORDS in schema:
        return schema, ""
    try:
        return narrow(schema, name), ""
    except DeclarationError as error:
        why = str(error)
    try:
        found = _Narrowing(cast("dict[str, Schema]", schema.get("$defs") or {}), is_loose=True).one(schema, name, ())
    except RecursionError:
        found = Schema()
    title = str(schema.get("title") or name)
    title = title.capitalize() if title in {VALUE, BY_ITEM} else title
    return {**found, "title": title, IN_WORDS: schema}, why


def narrow(schema: Schema, name: str) -> Schema:
    """Return a schema within the API's limits; the error names the field and its replacement."""
    narrowing = _Narrowing(cast("dict[str, Schema]", schema.get("$defs") or {}))
    try:
        found = narrowing.one(schema, name, ())
    except RecursionError:
        raise DeclarationError(f"{name} is nested too deeply for a schema.") from None
    if found.get("type") == "object":
        found = {"title": str(schema.get("title") or name), **found}
        if found["title"] in (VALUE, BY_ITEM) and not (schema == found and (is_wrapper(found) or of_item(found))):
            found["title"] = found["title"].capitalize()
    else:
        found = {"title": VALUE, **_object({VALUE: found}, [VALUE])}
    optional, unions = counted(found, name)
    for most, names, what, instead in (
        (MOST_OPTIONAL, optional, "optional fields", "Take the default from some"),
        (MOST_UNIONS, unions, "fields of several types (X | Y)", "Give them one type"),
    ):
        if len(names) > most:
            over = ", ".join(names[most : most + 3])
            message = f"{name} has {len(names)} {what}, and a schema of the API holds {most}."
            raise DeclarationError(message, hint=f"{instead}, such as {over}; or split it into two agents.")
    return found


class _Narrowing:
    def __init__(self, definitions: Mapping[str, Schema], *, is_loose: bool = False) -> None:
        self._definitions, self._is_loose = definitions, is_loose
        self._endless = _endless(definitions) if is_loose else frozenset[str]()

    def one(self, schema: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        """Return the schema of one place; where anything may be, `{}` if that is allowed."""
        try:
            return self._one(schema, where, inside)
        except DeclarationError:
            if not self._is_loose:
                raise
            return {}

    def _one(self, schema: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        while isinstance(reference := schema.get("$ref"), str):
            key = reference.rpartition("/")[2]
            endless = key in self._endless and not self._endless.isdisjoint(inside)
            if key in inside or key not in self._definitions or endless:
                again = f"contains {key} again, so the type never ends"
                raise _refused(where, again, "Name the inner ones by a text, such as an id, in a list[str]")
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            schema, inside = {**self._definitions[key], **rest}, (*inside, key)
        for part in schema.get("allOf") or ():
            schema = {**self.one(part, where, inside), **{k: v for k, v in schema.items() if k != "allOf"}}
        found = self._bare(schema, where, inside)
        if "default" in schema:
            found["default"] = schema["default"]
        told = {name: schema[name] for name in BOUNDS if name in schema and name not in found}
        told |= {name: schema[name] for name in ("format", "pattern") if name in schema and name not in found}
        said = [str(schema["description"])] if schema.get("description") else []
        order = [brief(self.one(each, where, inside)) for each in schema.get("prefixItems") or ()]
        said += [f"{{in this order: {', '.join(order)}}}"] if len({*order}) > 1 else []
        said += ["{" + ", ".join(f"{name}: {_plain(value)}" for name, value in told.items()) + "}"] if told else []
        return {**found, "description": " ".join(said)} if said else found

    def _bare(self, schema: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        if "const" in schema or "enum" in schema:
            words = [schema["const"]] if "const" in schema else list(schema["enum"])
            if not words or not all(isinstance(one, str | int | float | None) for one in words):
                raise _refused(where, "has choices that are no text and no number", "Give them such values")
            return {"type": schema["type"], "enum": words} if schema.get("type") in SCALARS else {"enum": words}
        alternatives = schema.get("anyOf") or schema.get("oneOf")
        if alternatives:
            return {"anyOf": [self.one(each, where, inside) for each in alternatives]}
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, where, inside)
        if kind == "array":
            return self._array(schema, where, inside)
        if kind not in SCALARS:
            raise _refused(where, "may be anything (Any, object)", "Name its type, such as str, or str | int")
        return _scalar(schema, kind, where)

    def _object(self, schema: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        fields = cast("dict[str, Schema]", schema.get("properties") or {})
        if "properties" not in schema and schema.get("additionalProperties", True) is not False:
            values: Any = schema.get("additionalProperties")
            if self._is_loose and isinstance(values, dict):
                return {"type": "object", "additionalProperties": self.one(cast("Schema", values), where, inside)}
            raise _refused(
                where,
                "is a dict, and a schema has to name its keys",
                "Write a class with a field per key, or a list of a class with key and value",
            )
        if not fields:
            raise _refused(where, "is a class without fields", "Give it at least one, with its type")
        required = [name for name in fields if name in (schema.get("required") or ())]
        found = {name: self.one(each, f"{where}.{name}", inside) for name, each in fields.items()}
        titled: Schema = {"title": str(schema["title"])} if schema.get("title") else {}
        return titled | _object(found, required)

    def _array(self, schema: Schema, where: str, inside: tuple[str, ...]) -> Schema:
        given = [*(schema.get("prefixItems") or ()), *([schema["items"]] if schema.get("items") else ())]
        found = [self.one(cast("Schema", each), f"{where}[]", inside) for each in given if isinstance(each, dict)]
        kinds = [one for at, one in enumerate(found) if one not in found[:at]]
        if not kinds:
            raise _refused(where, "is a list of anything", "Name the type of its items, such as list[str]")
        several: Schema = {"type": "array", "items": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}
        return several | ({"minItems": schema["minItems"]} if schema.get("minItems") in (0, 1) else {})


def _endless(definitions: Mapping[str, Schema]) -> frozenset[str]:
    """Return the definitions that contain themselves."""
    text = {name: json.dumps(one, default=str) for name, one in definitions.items()}
    before = {name: {*_REFERENCE.findall(one)} & text.keys() for name, one in text.items()}
    for name, own in before.items():
        for names in before.values():
            names.update(own if name in names else ())
    return frozenset(name for name, names in before.items() if name in names)


def _scalar(schema: Schema, kind: str, where: str) -> Schema:
    found: Schema = {"type": kind}
    if schema.get("format") in BYTES:
        raise _refused(where, "is bytes", "Write str: a model answers in text")
    if schema.get("format") in FORMATS:
        found["format"] = schema["format"]
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _HARD_PATTERN.search(pattern):
        found["pattern"] = pattern
    return found


def _object(fields: Schema, required: Sequence[str]) -> Schema:
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _refused(where: str, what: str, instead: str) -> DeclarationError:
    return DeclarationError(f"{where} {what}, and no schema of the API can hold that.", hint=f"{instead}.")


# a schema's own keys


@functools.lru_cache(maxsize=256)
def schema_of(text: str) -> Schema:
    """Return the parsed schema of a request, not to be changed; empty if it is damaged."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("Schema", found) if isinstance(found, dict) else {}


def unwrapped(schema: Schema) -> Schema:
    """Return the schema of the answer itself, without the object it may be wrapped in."""
    return fields_of(schema)[VALUE] if is_wrapper(schema) else schema


def is_wrapper(schema: Schema) -> bool:
    """Return True for our wrapper object, False for the user's classes."""
    return schema.get("title") == VALUE and list(fields_of(schema)) == [VALUE]


def by_item(schema: Schema) -> Schema:
    """Return the schema of the answers for several items: each is beside the item's number."""

    def rows(answer: Schema) -> Schema:
        one = _object({"item": {"type": "integer"}, "answer": answer}, ["item", "answer"])
        return {"title": BY_ITEM, **_object({"answers": {"type": "array", "items": one}}, ["answers"])}

    one = unwrapped(schema)
    if (words := words_of(schema)) is None:
        return rows(one)
    inner = {name: each for name, each in words.items() if name != "$defs"}
    shared = {"$defs": words["$defs"]} if "$defs" in words else {}
    return {**rows({name: each for name, each in one.items() if name != IN_WORDS}), IN_WORDS: {**rows(inner), **shared}}


def not_by_item(schema: Schema) -> Schema | None:
    """Return the schema that `by_item` was given."""
    one, words = of_item(schema), words_of(schema)
    if one is None or words is None:
        return one
    shared = {"$defs": words["$defs"]} if "$defs" in words else {}
    return {**one, IN_WORDS: {**(of_item(words) or {}), **shared}}


def words_of(schema: Schema) -> Schema | None:
    """Return the JSON schema that is told in the prompt."""
    found: Any = schema.get(IN_WORDS)
    return cast("Schema", found) if isinstance(found, dict) else None


def of_item(schema: Schema) -> Schema | None:
    """Return the schema of one answer, of a schema for several items."""
    if schema.get("title") != BY_ITEM or list(fields_of(schema)) != ["answers"]:
        return None
    row = fields_of(items_of(fields_of(schema)["answers"]))
    return row["answer"] if list(row) == ["item", "answer"] else None


def fields_of(schema: Schema) -> dict[str, Schema]:
    found: Any = schema.get("properties")
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {name: cast("Schema", each) for name, each in fields.items() if isinstance(each, dict)}


def alternatives_of(schema: Schema) -> list[Schema]:
    given: Any = schema.get("anyOf")
    if not isinstance(given, list):
        return [schema]
    return [cast("Schema", each) for each in cast("list[Any]", given) if isinstance(each, dict)]


@functools.lru_cache(maxsize=256)
def told_by(text: str) -> str:
    """Return the JSON schema in a prompt, as text."""
    words = words_of(schema_of(text)) if IN_WORDS in text else None
    return "" if words is None else json.dumps(words, ensure_ascii=False)


def values_of(schema: Schema) -> Schema:
    given: Any = schema.get("additionalProperties")
    return cast("Schema", given) if isinstance(given, dict) else {}


def choices_of(schema: Schema) -> list[Any] | None:
    given: Any = schema.get("enum")
    return cast("list[Any]", given) if isinstance(given, list) else None


def counted(schema: Schema, name: str) -> tuple[list[str], list[str]]:
    """Return the optional fields and union places, which the API limits per request."""
    if IN_WORDS in schema:
        return [], []
    fields, required = fields_of(schema), schema.get("required") or ()
    optional = [f"{name}.{one}" for one in fields if one not in required]
    unions = [name] if "anyOf" in schema else []
    inner = [(f"{name}.{one}", each) for one, each in fields.items()]
    inner += [(name, each) for each in alternatives_of(schema) if "anyOf" in schema]
    inner += [(f"{name}[]", items_of(schema))] if items_of(schema) else []
    for where, each in inner:
        more = counted(each, where)
        optional, unions = optional + more[0], unions + more[1]
    return optional, unions


def items_of(schema: Schema) -> Schema:
    given: Any = schema.get("items")
    return cast("Schema", given) if isinstance(given, dict) else {}


def brief(schema: Schema) -> str:
    """Write a type in a few words, such as `Label(sentiment, topic)` or `positive | negative | mixed`."""
    if (one := of_item(schema)) is not None:
        return f"{brief(one)} per item"
    schema = unwrapped(schema)
    if choices := choices_of(schema):
        return " | ".join(_some([str(one) for one in choices]))
    if fields := fields_of(schema):
        return f"{schema.get('title', '')}({', '.join(_some(list(fields)))})"
    if "anyOf" in schema:
        return " | ".join(brief(one) for one in alternatives_of(schema))
    if schema.get("type") == "array":
        return f"list[{brief(items_of(schema))}]"
    if values := values_of(schema):
        return f"dict[str, {brief(values)}]"
    kind = schema.get("format") or schema.get("type") or "Any"
    return _PYTHON.get(str(kind), str(kind))


_PYTHON = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def _some(words: list[str]) -> list[str]:
    return words if len(words) <= _MOST_WORDS + 1 else [*words[:_MOST_WORDS], "…"]


class Lack(NamedTuple):
    """The missing part of a path of fields: `of` is its parent, `kind` the parent's kind if it is no object."""

    of: str
    field: str
    known: list[str]
    kind: str = ""


_HELD: Final = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list}
"""Types of answers in prompts, by the type in the schema."""


def lacking(schema: Schema, path: Sequence[str | int]) -> Lack | None:
    """Find the first missing part of a path; `None` if it exists or this is unknown."""
    # A text has methods.
    places, gone = [unwrapped(schema)], ""
    for step in path:
        places = [each for place in places for each in alternatives_of(place) if each.get("type") != "null"]
        if isinstance(step, int):
            places, gone = [items_of(each) for each in places if items_of(each)], f"{gone}[{step}]"
            continue
        objects = [fields for each in places if (fields := fields_of(each))]
        if not objects and places and not any(hasattr(_HELD.get(str(each.get("type"))), step) for each in places):
            known = all(each.get("type") in _HELD for each in places)
            return Lack(gone, step, [], " | ".join(map(brief, places))) if known else None
        if not objects or len(objects) < len(places):
            return None
        places = [fields[known] for fields in objects if (known := find_name(step, fields))]
        if not places:
            return Lack(gone, step, list(dict.fromkeys(name for fields in objects for name in fields)))
        gone = f"{gone}.{step}"
    return None


def reached(schema: Schema, path: Sequence[str]) -> list[Schema]:
    """Return the possible schemas at a path of fields; empty if unknown."""
    places = [unwrapped(schema)]
    for step in path:
        objects = [fields_of(each) for place in places for each in alternatives_of(place)]
        places = [fields[known] for fields in objects if (known := find_name(step, fields))]
    return places


def typical_chars(schema: Schema) -> int:
    """Return the typical characters of an unseen answer with this schema."""
    if choices := choices_of(schema):
        return round(sum(len(str(one)) for one in choices) / len(choices)) + 2
    if "anyOf" in schema:
        return max(map(typical_chars, alternatives_of(schema)), default=0)
    if fields := fields_of(schema):
        return sum(len(name) + 6 + typical_chars(each) for name, each in fields.items())
    if schema.get("type") == "array":
        return TYPICAL_ITEMS * (2 + typical_chars(items_of(schema)))
    if values := values_of(schema):
        return TYPICAL_ITEMS * (16 + typical_chars(values))
    return 24 if "format" in schema else TYPICAL_CHARS.get(str(schema.get("type")), TYPICAL_TEXT)


def leaves(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the columns of an answer with their schemas: an object's fields, or the only value."""
    schema = unwrapped(schema)
    yield from fields_of(schema).items() or ((VALUE, schema),)
