"""Typed answers as values: read from the text of a model by the schema that was sent with the request.

No class is needed for that, and none is trusted: whoever opens a record, replays it or writes a prompt with
`{{ label.sentiment }}` gets the same value, whatever has become of the class since. What the class makes of it, its
own checks included, is `Returns.value`.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import date, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.schema import (
    VALUE,
    alternatives_of,
    choices_of,
    fields_of,
    items_of,
    of_item,
    schema_of,
    unwrapped,
)
from agent_magic.errors import InvalidAnswer, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_magic.declare.schema import Schema

_FENCED = re.compile(r"\A\s*```\w*\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_OPENED = re.compile(r"[{\[]")
_MOST_WORDS = 12
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a text"),
    "boolean": ((bool,), "true or false"),
    "null": ((type(None),), "null"),
    "integer": ((int, float), "an integer"),
    "number": ((int, float), "a number"),
}
_DATES: dict[str, Callable[[str], object]] = {"date": date.fromisoformat, "date-time": datetime.fromisoformat}


class Fields(SimpleNamespace):
    """An object of an answer: `label.sentiment`, or `label["sentiment"]`. As text it is JSON.

    It has no methods of its own, so a field may have any name.
    """

    def __str__(self) -> str:
        return as_json(self)

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]


class Items(list[Any]):
    """A list of an answer. As text it is JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return as_json(self)


def as_json(value: object) -> str:
    """Write a value as JSON, letters as they are."""
    return json.dumps(plain(value), ensure_ascii=False)


def plain(value: object) -> Any:
    """Return a value as plain data: dicts and lists."""
    if isinstance(value, Fields):
        return {name: plain(each) for name, each in vars(value).items()}
    return [plain(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def read(schema: str, text: str) -> Any:
    """Return the value that an answer holds.

    Words of a choice may come in another case, as the vendor says, and are written as declared. A field that was left
    out has its default, or `None`.

    Args:
        schema: The schema that was sent, as the request has it.
        text: The text of the answer.

    Raises:
        InvalidAnswer: It does not fit; the message names the field.
    """
    whole = schema_of(schema)
    if not text.strip():
        raise InvalidAnswer("it is empty")
    if (one := of_item(whole)) is not None:
        return _read_by_item(one, text)
    fenced = _FENCED.match(text)  # servers that know no schemas answer like that
    try:
        data: Any = json.loads(fenced[1] if fenced else text, parse_constant=_no_number)
        found = _read(whole, data, "", exact=False)
    except RecursionError:
        raise InvalidAnswer("it is nested too deeply") from None
    except (KeyError, TypeError):
        raise InvalidAnswer("its schema is damaged") from None
    except json.JSONDecodeError as error:
        raise InvalidAnswer(f"it is not JSON: {error.msg} at character {error.pos + 1:,}") from None
    return found[VALUE] if unwrapped(whole) is not whole else found


def _read_by_item(schema: Schema, text: str) -> Items:
    """Read the answers for several items, of all turns, in the items' order; those for one item as they came.

    What is of another type is left out: whoever asked knows which items it asked for.
    """
    found: list[Fields] = []
    for data in _documents(text):
        rows: Any = cast("dict[str, Any]", data).get("answers") if isinstance(data, dict) else data
        for row in cast("list[Any]", rows) if isinstance(rows, list) else ():
            number = cast("dict[str, Any]", row).get("item") if isinstance(row, dict) else None
            if isinstance(number, int) and not isinstance(number, bool) and "answer" in row:
                with suppress(InvalidAnswer, RecursionError, KeyError, TypeError):
                    found.append(Fields(item=number, answer=_read(schema, row["answer"], "", exact=False)))
    return Items(sorted(found, key=lambda one: one.item))


def _documents(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists in a text, what stands between them left out."""
    decoder, at = json.JSONDecoder(parse_constant=_no_number), 0
    while (begin := _OPENED.search(text, at)) is not None:
        try:
            data, at = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError, InvalidAnswer):
            at = begin.end()
        else:
            yield data


def _no_number(word: str) -> Any:
    raise InvalidAnswer(f"{word} is no number")


def _read(schema: Schema, data: Any, where: str, *, exact: bool) -> Any:
    """Read one place; `exact` takes no fields that the schema does not have."""
    choices = choices_of(schema)
    if choices is not None:
        return _chosen(choices, data, where)
    if "anyOf" in schema:
        return _any_of(alternatives_of(schema), data, where)
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, data, where, exact=exact)
    if kind == "array":
        if not isinstance(data, list):
            raise _wrong(where, data, "a list")
        items = items_of(schema)
        read = [_read(items, each, f"{where}[{at}]", exact=exact) for at, each in enumerate(cast("list[Any]", data))]
        return Items(read)
    return _scalar(schema, str(kind), data, where)


def _scalar(schema: Schema, kind: str, data: Any, where: str) -> Any:
    kinds, what = _KINDS.get(kind, ((), "of a type that its schema has"))
    if not isinstance(data, kinds) or (isinstance(data, bool) and kind != "boolean"):
        raise _wrong(where, data, what)
    if kind == "integer":
        if data != data // 1:
            raise _wrong(where, data, what)
        return int(data)
    if kind == "number":
        try:
            return float(data)
        except OverflowError:
            raise _wrong(where, data, what) from None
    if kind == "string" and schema.get("format") in _DATES:
        try:
            _DATES[schema["format"]](str(data))
        except ValueError:
            raise _wrong(where, data, f"a {schema['format']} as in ISO 8601") from None
    return data


def _object(schema: Schema, data: Any, where: str, *, exact: bool) -> Fields:
    if not isinstance(data, dict):
        raise _wrong(where, data, "an object")
    given, fields = cast("dict[str, Any]", data), fields_of(schema)
    if exact and (more := [name for name in given if name not in fields]):
        raise _wrong(f"{where}.{more[0]}", given[more[0]], "left out: there is no such field")
    required: Any = schema.get("required") or ()
    found: dict[str, Any] = {}
    for name, each in fields.items():
        if name in given:
            found[name] = _read(each, given[name], f"{where}.{name}", exact=exact)
        elif name in required:
            raise InvalidAnswer(f"{_place(f'{where}.{name}') or 'its value '}is missing")
        else:
            found[name] = _as_value(each.get("default"))
    return Fields(**found)


def _as_value(data: Any) -> Any:
    if isinstance(data, dict):
        return Fields(**{name: _as_value(each) for name, each in cast("dict[str, Any]", data).items()})
    return Items(map(_as_value, cast("list[Any]", data))) if isinstance(data, list) else data


def _any_of(alternatives: list[Schema], data: Any, where: str) -> Any:
    """Read a place of several types: as the first that it fits without anything left over, or else as the first."""
    failure: InvalidAnswer | None = None
    for exact in (True, False):
        for each in alternatives:
            try:
                return _read(each, data, where, exact=exact)
            except InvalidAnswer as error:
                failure = error if failure is None or each.get("type") != "null" else failure
    raise failure or _wrong(where, data, "of one of its types")


def with_case(schema: Schema, data: Any) -> Any:
    """Return data with the words of a choice written as declared: models change their case."""
    choices = choices_of(schema)
    if choices is not None:
        return _same_word(choices, data) or data
    if "anyOf" in schema:
        tried = (with_case(each, data) for each in alternatives_of(schema))
        return next((one for one in tried if one != data), data)
    if isinstance(data, dict):
        fields, given = fields_of(schema), cast("dict[str, Any]", data)
        return {name: with_case(fields.get(name, {}), each) for name, each in given.items()}
    return [with_case(items_of(schema), each) for each in cast("list[Any]", data)] if isinstance(data, list) else data


def _same_word(choices: list[Any], data: Any) -> str | None:
    if not isinstance(data, str):
        return None
    same = [one for one in choices if isinstance(one, str) and one.casefold() == data.strip().casefold()]
    return same[0] if len(same) == 1 else None


def _chosen(choices: list[Any], data: Any, where: str) -> Any:
    for one in choices:
        if one == data and isinstance(one, bool) == isinstance(data, bool):
            return one
    if (same := _same_word(choices, data)) is not None:
        return same
    more = ", …" if len(choices) > _MOST_WORDS else ""
    raise _wrong(where, data, f"one of {', '.join(map(repr, choices[:_MOST_WORDS]))}{more}")


def _wrong(where: str, data: object, what: str) -> InvalidAnswer:
    return InvalidAnswer(f"{_place(where)}must be {what}, got {shown_value(data)}")


def _place(where: str) -> str:
    name = where.removeprefix(f".{VALUE}").lstrip(".")
    return f"{name}: " if name else ""


def placeholder(schema: Schema, text: str) -> Any:
    """Return a value of this schema with this text in it, for prompts that are written before the answer is there."""
    choices = choices_of(schema)
    if choices:
        return text if isinstance(choices[0], str) else choices[0]
    if "anyOf" in schema:
        return placeholder((alternatives_of(schema) or [{"type": "null"}])[0], text)
    match schema.get("type"):
        case "object":
            return Fields(**{name: placeholder(each, text) for name, each in fields_of(schema).items()})
        case "array":
            return Items([placeholder(items_of(schema), text)])
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case _:
            return text
