"""Lenient reading of answers as JSON texts: the only lenient place, before a class reads an answer.

Only if the unchanged answer does not fit, `readings` tries these deliberate exceptions:

* a byte order mark and blanks around the JSON are dropped;
* JSON in a fence, or with words before or after it, is extracted; a list only from separate lines, and a scalar only if
  it fills a fence and there is no object or list. JSON that breaks off is not searched for parts, and if several
  different texts fit, none is used;
* the value itself is accepted for the object it is sent in, such as `[1, 2]` for `{"value": [1, 2]}`;
* a word of a choice may have another case, and blanks around it;
* `null` in an optional field that cannot be `null` counts as left out.

A number for a `Decimal` is passed as text, since pydantic reads a number with a fraction as a float. In `Decimal | str`
or `Decimal | float` it stays a number, since a text means something else there.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, cast

from agent_magic.declare.answers.schema import (
    VALUE,
    alternatives_of,
    choices_of,
    fields_of,
    is_wrapper,
    items_of,
    schema_of,
    unwrapped,
    values_of,
)
from agent_magic.errors import InvalidAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_magic.declare.answers.schema import Schema

DECIMAL: Final = "x-decimal"
"""Marks the places of a schema that are read as a `Decimal`. It is never sent."""
ALWAYS: Final = "always"
LONG: Final = "long"
"""Marks that only numbers too long for a float are texts, not all."""
_OPENED = re.compile(r'\{\s*["}]|\[\s*(?:[\[{"\d\]-]|true|false|null)')
"""The beginning of JSON in prose: `{curly}` and `[see below]` are words."""
_FENCED = re.compile(
    r"""^[ \t]*```(?i:json)?[ \t]*\r?\n\s*
        (-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)? | true | false | null
        | "(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")
        \s*\n[ \t]*```[ \t]*\r?$""",
    re.MULTILINE | re.VERBOSE | re.ASCII,
)
"""A scalar of JSON that fills a fence."""


class Number(str):
    """A number of a JSON text, as it was written."""

    __slots__ = ()


class Decimals(float):
    """A number that is read as a `Decimal`, with the text that was written: `3.10`."""

    __slots__ = ("text",)

    def __new__(cls, number: float, text: str = "") -> Self:
        made = super().__new__(cls, number)
        made.text = text or repr(number)
        return made

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return Decimals, (float(self), self.text)


_DECODER: Final = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number)


def readings(schema: Schema, text: str, decimals: str = "") -> Iterator[tuple[int, str]]:
    """Yield the possible JSON texts of an answer, each with the number of its document, -1 for all."""
    text = text.strip("\ufeff \t\r\n")
    if not text:
        raise InvalidAnswer("it is empty")
    wrapped = is_wrapper(schema)
    if not wrapped and not decimals:
        yield -1, text
    inner, marked = fields_of(schema)[VALUE] if wrapped else schema, schema_of(decimals)
    found, wrong = documents(text)
    if wrong:
        raise InvalidAnswer(wrong)
    for number, document in enumerate(found):
        fields = cast("dict[str, Any]", document) if wrapped and isinstance(document, dict) else {}
        data: Any = fields.get(VALUE, document)
        data = with_digits(marked, data, marked) if marked else data
        yield number, written(data)
        if (mended := as_declared(inner, data)) != data:
            yield number, written(mended)


def documents(text: str, again: re.Pattern[str] | None = None) -> tuple[list[Any], str]:
    """Return the JSON in a text as data, and the error of the text, if any.

    `again` is the place to continue after JSON that breaks off; `None` stops there, since the rest is a part of it.
    """
    try:
        return [decoded(text)], ""
    except RecursionError:
        return [], "it is nested too deeply"
    except json.JSONDecodeError as error:
        wrong, at, found, opened = error, 0, list[Any](), _OPENED
    while (begin := opened.search(text, at)) is not None:
        try:
            data, at = _DECODER.raw_decode(text, begin.start())
        except (json.JSONDecodeError, RecursionError) as error:
            if again is None:
                return [], _no_json(error) if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
            opened, at = again, begin.end()
        else:
            if isinstance(data, dict) or again is not None or _is_alone(text, begin.start(), at):
                found.append(data)
    if not found and again is None:
        found = [decoded(one) for one in _FENCED.findall(text)]
    return found, "" if found else _no_json(wrong)


def _is_alone(text: str, begin: int, end: int) -> bool:
    """Return whether a list is on separate lines: `[1]` in a sentence is a reference."""
    before, after = text[:begin].rpartition("\n")[2], text[end:].partition("\n")[0]
    return not before.strip() and not after.strip("` \r\t")


def _no_json(error: json.JSONDecodeError) -> str:
    return f"it is not JSON: {error.msg} at character {error.pos + 1:,}"


def decoded(text: str) -> Any:
    return _DECODER.decode(text)


def written(data: Any, between: str = ",", behind: str = ":", *, is_ascii: bool = True) -> str:
    """Write data as JSON, the numbers with their digits."""

    def one(data: Any) -> str:
        if isinstance(data, Number | Decimals):
            return str(data)
        if isinstance(data, dict):
            fields = cast("dict[str, Any]", data).items()
            return f"{{{between.join(f'{text(name)}{behind}{one(each)}' for name, each in fields)}}}"
        if isinstance(data, list):
            return f"[{between.join(map(one, cast('list[Any]', data)))}]"
        return text(data)

    def text(data: Any) -> str:
        return json.dumps(data, ensure_ascii=is_ascii, allow_nan=False)

    return one(data)


def as_declared(schema: Schema, data: Any) -> Any:
    """Return data with the words of choices as declared, and without `null` for omitted fields."""
    choices = choices_of(schema)
    if choices is not None:
        return _same_word(choices, data)
    if "anyOf" in schema:
        tried = (as_declared(each, data) for each in alternatives_of(schema))
        return next((one for one in tried if one != data), data)
    if isinstance(data, dict):
        fields, required = fields_of(schema), schema.get("required") or ()
        return {
            name: as_declared(fields.get(name, values_of(schema)), each)
            for name, each in cast("dict[str, Any]", data).items()
            if not (each is None and name in fields and name not in required and not _takes_null(fields[name]))
        }
    items = items_of(schema)
    return [as_declared(items, each) for each in cast("list[Any]", data)] if isinstance(data, list) else data


def _takes_null(schema: Schema) -> bool:
    return any(one.get("type") == "null" or None in (choices_of(one) or ()) for one in alternatives_of(schema))


def _same_word(choices: list[Any], data: Any) -> Any:
    if not isinstance(data, str) or isinstance(data, Number) or data in choices:
        return data
    same = [one for one in choices if isinstance(one, str) and one.casefold() == data.strip().casefold()]
    return same[0] if len(same) == 1 else data


# decimals


def schemas_of(write: Callable[..., Any]) -> tuple[Schema, str]:
    """Return the schema of a type, and as text its version with decimals marked."""
    schema = cast("Schema", write(schema_generator=_marking()))
    text = json.dumps(schema, default=str)
    if f'"{DECIMAL}"' not in text:
        return schema, ""
    return json.loads(text, object_hook=lambda found: {k: v for k, v in found.items() if k != DECIMAL}), text


@lru_cache(maxsize=256)
def sent_decimals(schema: str) -> str:
    """Return an answer's schema from the sent one, with decimals marked; empty without any."""

    def marked(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, DECIMAL: LONG} if may_be_decimal(found) else found

    if '"number"' not in schema:
        return ""
    text = json.dumps(json.loads(json.dumps(unwrapped(schema_of(schema))), object_hook=marked))
    return text if f'"{DECIMAL}"' in text else ""


def may_be_decimal(schema: Schema) -> bool:
    """Return whether a schema is of a `Decimal` or `Decimal | None`, which `float | str` looks like."""
    kinds = [one.get("type") for one in alternatives_of(schema)]
    return [one for one in kinds if one != "null"] == ["number", "string"]


def is_decimal(schema: Schema) -> bool:
    """Return whether a place may hold a `Decimal`, beside `null` at most."""
    kinds = [one for one in alternatives_of(schema) if one.get("type") != "null"]
    return may_be_decimal(schema) or (len(kinds) == 1 and may_be_decimal(kinds[0]))


@cache
def _marking() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Marking(GenerateJsonSchema):
        def decimal_schema(self, schema: Any) -> dict[str, Any]:
            return {**super().decimal_schema(schema), DECIMAL: ALWAYS}

        def default_schema(self, schema: Any) -> dict[str, Any]:
            factory = schema.get("default_factory")
            if getattr(factory, "__module__", "") == "builtins" and isinstance(factory, type):  # the same each time
                schema = {**schema, "default": factory()}
            return super().default_schema(schema)

        def named_tuple_schema(self, schema: Any) -> dict[str, Any]:
            fields = {one["name"]: self.generate_inner(one["schema"]) for one in schema["fields"]}
            required = [one["name"] for one in schema["fields"] if one["schema"]["type"] != "default"]
            named = {"title": schema["cls"].__name__, "properties": fields, "required": required}
            return {"type": "object", **named, "additionalProperties": False}

        def call_schema(self, schema: Any) -> dict[str, Any]:
            return self.kw_arguments_schema(schema["arguments_schema"]["arguments_schema"], None)

    return Marking


def with_digits(schema: Schema, data: Any, root: Schema) -> Any:
    """Return data in which the numbers that are read as a `Decimal` are texts."""
    schema = _resolved(schema, root)
    if isinstance(data, Number):
        if data.lstrip("-").isdecimal():  # pydantic keeps the digits of integers
            return data
        kinds = [schema] if DECIMAL in schema else [_resolved(one, root) for one in alternatives_of(schema)]
        marks = [one[DECIMAL] for one in kinds if DECIMAL in one]
        others = {one.get("type") for one in kinds if DECIMAL not in one}
        is_decimal = marks and not others & {"number", "string", None}
        return str(data) if is_decimal and (ALWAYS in marks or Decimal(data) != Decimal(repr(float(data)))) else data
    for each in alternatives_of(schema) if "anyOf" in schema else schema.get("oneOf") or ():
        data = with_digits(each, data, root)
    if isinstance(data, dict):
        fields, rest = fields_of(schema), schema.get("additionalProperties")
        rest = cast("Schema", rest) if isinstance(rest, dict) else {}
        found = cast("dict[str, Any]", data)
        return {name: with_digits(fields.get(name, rest), one, root) for name, one in found.items()}
    if isinstance(data, list):
        first, rest = schema.get("prefixItems") or (), items_of(schema)
        found = cast("list[Any]", data)
        return [with_digits(first[at] if at < len(first) else rest, one, root) for at, one in enumerate(found)]
    return data


def _resolved(schema: Schema, root: Schema) -> Schema:
    while isinstance(reference := schema.get("$ref"), str):
        schema = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return schema
