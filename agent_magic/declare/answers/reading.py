"""Typed answers as values, read by pydantic: by the user's class, or else by the schema that was sent.

Records and replays need no class and trust none: `as_written` gives the same value even if the class has changed since.
"""

from __future__ import annotations

import functools
import json
import math
import re
from contextlib import suppress
from datetime import date, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.answers.lenient import (
    Decimals,
    Number,
    decoded,
    documents,
    may_be_decimal,
    readings,
    sent_decimals,
    written,
)
from agent_magic.declare.answers.schema import (
    alternatives_of,
    brief,
    choices_of,
    fields_of,
    items_of,
    of_item,
    schema_of,
    unwrapped,
    values_of,
)
from agent_magic.declare.values import as_json, find_name
from agent_magic.errors import InvalidAnswer, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent_magic.declare.answers.schema import Schema

_MOST_WRONG = 5
_ANY: Any = object()
"""Marks a place that may be anything, which is read from the text."""
_WHOLE = re.compile(r"(-?\d{1,9})(?:\.0*)?")
"""The number of an item, which a model may write as `2.0`."""
_ROWS = re.compile(r'\{\s*"answers"\s*:')
_DATES: dict[str, Callable[[str], object]] = {"date": date.fromisoformat, "date-time": datetime.fromisoformat}


class Fields(SimpleNamespace):
    """An object of an answer: `label.sentiment`, or `label["sentiment"]`. As text it is JSON."""

    # It has no public methods, so a field may have any name.

    def __str__(self) -> str:
        return as_json(self)

    def __getattr__(self, name: str) -> Any:
        if (known := find_name(name, vars(self))) is None:
            raise AttributeError(name)
        return vars(self)[known]

    def __getitem__(self, name: str) -> Any:
        if (known := find_name(name, vars(self))) is None:
            raise KeyError(name)
        return vars(self)[known]


class Keys(dict[str, Any]):
    """A dict of an answer, with keys that no type names. As text it is JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return as_json(self)


class _Unseen(Keys):
    """A placeholder for an answer of any form; so is each of its parts."""

    __slots__ = ("_deeper", "_text")

    def __init__(self, text: str, deeper: int = 3) -> None:
        super().__init__()
        self._text, self._deeper = text, deeper

    def __str__(self) -> str:
        return self._text

    def __len__(self) -> int:
        return 1

    def __missing__(self, _: object) -> _Unseen:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter((self,))

    def items(self) -> Any:
        return {self._text: _Unseen(self._text, self._deeper - 1) if self._deeper else self._text}.items()


class Items(list[Any]):
    """A list of an answer. As text it is JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return as_json(self)


def plain(value: object, number: Callable[[Decimals], float] = float) -> Any:
    if isinstance(value, Fields):
        return {name: plain(each, number) for name, each in vars(value).items()}
    if isinstance(value, list):
        return [plain(each, number) for each in cast("list[Any]", value)]
    if isinstance(value, Keys):
        return {name: plain(each, number) for name, each in value.items()}
    return number(value) if isinstance(value, Decimals) else value


def first_fit(schema: Schema, text: str, check: Callable[[str], Any], decimals: str = "") -> Any:
    """Return the value of an answer, read leniently; `check` returns the value of a JSON text."""
    fits: dict[int, tuple[str, Any]] = {}
    failure = InvalidAnswer("it does not fit")
    for number, one in readings(schema, text, decimals):
        if number not in fits:
            try:
                fits[number] = one, check(one)
            except InvalidAnswer as error:
                failure = error
        if -1 in fits:
            break
    if len({one for one, _ in fits.values()}) > 1:
        raise InvalidAnswer(f"it holds {len(fits)} different answers")
    for _, value in fits.values():
        return value
    raise failure


def read(schema: str, text: str) -> Any:
    """Return an answer's value by the sent schema; an omitted field has its default, or `None`."""
    whole = schema_of(schema)
    if (one := of_item(whole)) is not None:
        return _read_by_item(one, text)
    return first_fit(whole, text, by_schema(schema), sent_decimals(schema))


def as_written(schema: str, text: str) -> Any:
    """Return the value of an accepted answer: by the schema, or unchanged if that does not fit."""
    try:
        return read(schema, text)
    except InvalidAnswer:
        whole = schema_of(schema)
        *_, (_, one) = readings(whole, text)
        data, fields = json.loads(one), fields_of(unwrapped(whole))
        if fields and isinstance(data, list):  # which a NamedTuple also reads
            data = dict(zip(fields, cast("list[Any]", data), strict=False))
        fields = fields if isinstance(data, dict) else {}
        return _as_value({name: each.get("default") for name, each in fields.items()} | data if fields else data)


@functools.lru_cache(maxsize=256)
def by_schema(schema: str) -> Callable[[str], Any]:
    from pydantic_core import SchemaError, SchemaValidator, ValidationError

    try:
        validator = SchemaValidator(_core(unwrapped(schema_of(schema))))
    except (SchemaError, KeyError, TypeError, ValueError, RecursionError):
        raise InvalidAnswer("its schema is damaged") from None

    def check(text: str) -> Any:
        try:
            return _as_value(validator.validate_json(text), decoded(text))
        except ValidationError as error:
            raise InvalidAnswer(wrong_fields(error, got=True)) from None

    return check


def _core(schema: Schema) -> Any:
    from pydantic_core import core_schema as core

    if (choices := choices_of(schema)) is not None:
        return core.literal_schema(choices)
    if "anyOf" in schema:
        union: list[Any] = [(_core(one), brief(one)) for one in alternatives_of(schema)]
        if may_be_decimal(schema):
            union[0] = core.no_info_after_validator_function(Decimals, union[0][0]), union[0][1]
        return core.union_schema(union)
    match schema.get("type"):
        case "object":
            return _core_of_object(schema)
        case "array":
            return core.list_schema(_core(items_of(schema)))
        case "number":
            return core.no_info_wrap_validator_function(_exact, core.float_schema(allow_inf_nan=False))
        case "string" if schema.get("format") in _DATES:
            is_date = functools.partial(_checked_date, _DATES[schema["format"]])
            return core.no_info_after_validator_function(is_date, core.str_schema())
        case None:
            return core.no_info_after_validator_function(lambda _: _ANY, core.any_schema())
        case kind:
            plain: dict[Any, Any] = {"integer": core.int_schema, "boolean": core.bool_schema, "null": core.none_schema}
            return {**plain, "string": core.str_schema}[kind]()


def _core_of_object(schema: Schema) -> Any:
    from pydantic_core import core_schema as core

    if values := values_of(schema):
        return core.no_info_after_validator_function(Keys, core.dict_schema(core.str_schema(), _core(values)))
    required: Any = schema.get("required") or ()
    fields: dict[str, Any] = {}
    for name, each in fields_of(schema).items():
        one, default = _core(each), each.get("default")
        default = default if fields_of(each) else _of_any_form(default)
        fields[name] = core.typed_dict_field(
            one if name in required else core.with_default_schema(one, default=default)
        )
    return core.typed_dict_schema(fields)


def _exact(number: Any, as_float: Callable[[Any], float]) -> float:
    """Return a number as a float, unless that would lose digits."""
    return number if type(number) is int and abs(number) > 2**53 else as_float(number)


def _checked_date(parse: Callable[[str], object], text: str) -> str:
    parse(text)
    return text


def _as_value(data: Any, source: Any = None) -> Any:
    """Return validated data as a value, its numbers with the digits of `source`."""
    if data is _ANY:
        return _of_any_form(source)
    if isinstance(data, dict):
        given = cast("dict[str, Any]", source) if isinstance(source, dict) else {}
        found = {name: _as_value(one, given.get(name)) for name, one in cast("dict[str, Any]", data).items()}
        return Keys(found) if isinstance(data, Keys) else Fields(**found)
    if isinstance(data, list):
        found = cast("list[Any]", data)
        return Items(
            map(_as_value, found, cast("list[Any]", source) if isinstance(source, list) else [None] * len(found))
        )
    return Decimals(data, str(source)) if isinstance(data, Decimals) and isinstance(source, Number) else data


def _of_any_form(data: Any) -> Any:
    if isinstance(data, Number):
        if data.lstrip("-").isdecimal():
            return int(data)
        return Decimals(float(data), data) if math.isfinite(float(data)) else float(data)
    if isinstance(data, dict):
        return Keys({name: _of_any_form(one) for name, one in cast("dict[str, Any]", data).items()})
    return Items(map(_of_any_form, cast("list[Any]", data))) if isinstance(data, list) else data


def wrong_fields(error: BaseException, *, got: bool = False) -> str:
    """Return the fields refused by pydantic, with reasons: `a: Field required; b.x: ...`."""
    wrong: Any = getattr(error, "errors", None)
    if type(error).__name__ != "ValidationError" or not callable(wrong):
        return ""
    found = cast("list[dict[str, Any]]", wrong(include_url=False, include_context=False))
    said = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found[:_MOST_WRONG]]
    if got:
        given = [f", got {shown_value(one['input'])}" if one["type"] != "missing" else "" for one in found]
        said = [f"{text}{what}" for text, what in zip(said, given, strict=False)]
    more = [f"and {len(found) - _MOST_WRONG} more"] if len(found) > _MOST_WRONG else []
    return "; ".join([*said, *more])


# answers for several items


class Rows(Items):
    """The answers for several items, each with its number, and the text of the replies that hold them."""

    __slots__ = ("text",)

    def __init__(self, rows: list[Fields], text: str) -> None:
        super().__init__(rows)
        self.text = text


@functools.lru_cache(maxsize=64)  # each item of a request looks for its answer in the same text
def numbered(text: str) -> Sequence[Sequence[tuple[int | None, str]]]:
    """Return the answers for several items: per reply the number of each, if valid, and its JSON."""
    found: list[list[tuple[int | None, str]]] = []
    replies, wrong = documents(text.strip("\ufeff \t\r\n"), _ROWS)
    if not replies:
        raise InvalidAnswer(wrong)
    for data in replies:
        rows: Any = cast("dict[str, Any]", data).get("answers") if isinstance(data, dict) else data
        if isinstance(rows, list):
            found.append([_row(one) for one in cast("list[Any]", rows)])
    return found


def _row(data: Any) -> tuple[int | None, str]:
    row = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    number = row.get("item")
    whole = _WHOLE.fullmatch(number.strip()) if isinstance(number, str) and "answer" in row else None
    return int(whole[1]) if whole else None, written(row.get("answer"))


def _read_by_item(schema: Schema, text: str) -> Rows:
    """Return the answers for several items, in the items' order, without those of another type."""
    check, found = by_schema(json.dumps(schema)), list[Fields]()
    for number, one in (row for reply in numbered(text) for row in reply):
        if number is not None:
            with suppress(InvalidAnswer):
                found.append(Fields(item=number, answer=first_fit(schema, one, check)))
    return Rows(sorted(found, key=lambda one: one.item), text)


def placeholder(schema: Schema, text: str) -> Any:
    """Return a value of this schema with this text in it, for prompts rendered before the answer exists."""
    choices = choices_of(schema)
    if choices:
        return text if isinstance(choices[0], str) else choices[0]
    if values := values_of(schema):
        return Keys({text: placeholder(values, text)})
    if "anyOf" in schema:
        return placeholder((alternatives_of(schema) or [{"type": "null"}])[0], text)
    match schema.get("type"):
        case "object":
            return Fields(**{name: placeholder(each, text) for name, each in fields_of(schema).items()})
        case "array":
            return Items([placeholder(items_of(schema), text)])
        case kind:
            plain: dict[Any, Any] = {"integer": 1, "number": 1, "boolean": True}
            return _Unseen(text) if kind is None else plain.get(kind, text)
