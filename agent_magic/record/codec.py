"""Values as JSON and back: the codec of cassettes and the ledger.

Nothing in the data chooses a class or calls anything, so a file from a stranger can be wrong but not harmful. The same
value makes the same bytes, and lone surrogates and NUL survive.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from agent_magic.record import answer as answers
from agent_magic.record import events
from agent_magic.record.request import Message, Request, older_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.record.events import Event

T = TypeVar("T")
PLAIN = frozenset({NoneType, bool, int, str})
MOST_INT = (1 << 53) - 1
"""Floats are exact up to here, and no count of a run is larger."""
_OF_ANSWERS = ("Answer", "Citation", "Price", "Source", "Status", "Usage")
NAMES: dict[str, Any] = {name: getattr(answers, name) for name in _OF_ANSWERS} | {
    "Message": Message,
    "Request": Request,
}
"""Types that the annotations of events name without importing them."""
SELDOM: dict[type, frozenset[str]] = {
    Request: frozenset(
        {
            "messages",
            "tools",
            "schema",
            "tool_choice",
            "attachments",
            "cite",
            "returned",
            "shared",
            "options",
            "opening",
        }
    ),
    answers.Answer: frozenset({"citations", "batch", "edited", "original", "turns"}),
    events.CallEnded: frozenset({"artifacts", "files", "worker"}),
    events.AttemptEnded: frozenset({"worker"}),
    events.AttemptStarted: frozenset({"endpoint"}),
}
"""Omitted if empty, as they are in most requests, answers and calls."""
EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(events.Event)}


def to_json(value: object) -> Any:
    """Return plain data. `nan` and `inf` become `None`."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(cast("float", value)) else None
    names, seldom = _fields(kind), SELDOM.get(kind, ())
    if names:
        return {
            name: one if type(one) in PLAIN else to_json(one)
            for name in names
            if (one := getattr(value, name)) or name not in seldom
        }
    if isinstance(value, tuple | list):
        return [to_json(one) for one in cast("list[object]", value)]
    if isinstance(value, dict | MappingProxyType):
        return {str(name): to_json(one) for name, one in cast("Mapping[object, object]", value).items()}
    if isinstance(value, str):  # such as an enum's or numpy's, which a user's function returned
        return str.__str__(value)
    if isinstance(value, int | float):
        return to_json(float(value) if isinstance(value, float) else int(value))
    raise TypeError(f"{kind.__name__} is not plain data.")


def from_json(kind: type[T], data: object) -> T:
    """Read a value of a class; a `ValueError` names the field, never its content."""
    return _reader(kind)(data)


def event_to_json(event: Event) -> dict[str, Any]:
    return {"event": type(event).__name__, **to_json(event)}


def event_from_json(data: object) -> Event:
    name: Any = cast("dict[str, Any]", data).get("event") if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in EVENTS:
        raise ValueError("not a known event")
    return from_json(EVENTS[name], cast("object", data))


def line_of(data: object) -> str:
    return _ENCODER.encode(data)


def data_of(line: str) -> dict[str, Any]:
    try:
        data: Any = _DECODER.decode(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return cast("dict[str, Any]", data)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


_ENCODER = json.JSONEncoder(ensure_ascii=True, sort_keys=True, allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_no_number)


@functools.cache
def _fields(kind: type) -> tuple[str, ...]:
    plain: Any = kind
    if dataclasses.is_dataclass(plain):
        return tuple(field.name for field in dataclasses.fields(plain) if field.compare)  # bytes are kept elsewhere
    names: Any = getattr(plain, "_fields", ())
    return tuple(names)


@functools.cache
def _reader(kind: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        read = functools.partial(_any_of, tuple(_reader(one) for one in inner if one is not NoneType))
        return functools.partial(_optional, read) if NoneType in inner else read
    if origin is tuple and Ellipsis not in inner:
        return functools.partial(_tuple, tuple(map(_reader, inner)))
    if origin is tuple or origin is list:
        return functools.partial(_list, origin, _reader(inner[0]))
    if origin is not None and origin is not Literal:
        return functools.partial(_object, _reader(inner[-1]))
    return _reader_of_one(kind, origin, inner)


def _reader_of_one(kind: Any, origin: Any, inner: tuple[Any, ...]) -> Any:
    if kind is Any:
        return _anything
    if origin is Literal:
        return functools.partial(_one_of, frozenset(inner))
    if kind is float:
        return _number
    if kind in PLAIN:
        return functools.partial(_exactly, kind)
    return functools.partial(_record, kind, _readers(kind))


def _readers(kind: Any) -> dict[str, tuple[Any, bool]]:
    hints = get_type_hints(kind, localns=NAMES)
    if dataclasses.is_dataclass(kind):
        unset = dataclasses.MISSING
        optional = {
            one.name for one in dataclasses.fields(kind) if one.default is not unset or one.default_factory is not unset
        }
    else:
        optional = set(getattr(kind, "_field_defaults", ()))
    return {name: (_reader(hints[name]), name in optional) for name in _fields(kind)}


def _record(kind: Any, readers: dict[str, tuple[Any, bool]], data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"expected an object for {kind.__name__}, got {type(data).__name__}")
    if kind is Request:
        data = older_request(cast("dict[str, Any]", data))
    given: dict[str, Any] = {}
    for name, (read, optional) in readers.items():
        if name in data:
            try:
                given[name] = read(data[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        elif not optional:
            raise ValueError(f"{name} is missing")
    return kind(**given)


def _exactly(kind: type, data: Any) -> Any:
    if type(data) is not kind:
        raise ValueError(f"expected {kind.__name__}, got {type(data).__name__}")
    if kind is int and abs(data) > MOST_INT:
        raise ValueError("integer too large")
    return data


def _number(data: Any) -> float:
    if type(data) is not float and type(data) is not int:
        raise ValueError(f"expected a number, got {type(data).__name__}")
    if type(data) is int and abs(data) > MOST_INT:
        raise ValueError("integer too large")
    number = float(data)
    if not math.isfinite(number):  # such as 1e999
        raise ValueError("number not finite")
    return number


def _one_of(words: frozenset[Any], data: Any) -> Any:
    if not isinstance(data, str) or data not in words:
        raise ValueError("an unknown word")
    return data


def _optional(read: Any, data: Any) -> Any:
    return None if data is None else read(data)


def _any_of(readers: tuple[Any, ...], data: Any) -> Any:
    """The last reader's error is raised."""
    for read in readers[:-1]:
        try:
            return read(data)
        except ValueError:
            continue
    return readers[-1](data)


def _anything(data: Any) -> Any:
    if isinstance(data, list):
        return [_anything(one) for one in cast("list[Any]", data)]
    if isinstance(data, dict):
        return {name: _anything(one) for name, one in cast("dict[str, Any]", data).items()}
    return _number(data) if type(data) is float else _exactly(int, data) if type(data) is int else data


def _list(kind: Any, read: Any, data: Any) -> Any:
    if not isinstance(data, list):
        raise ValueError(f"expected a list, got {type(data).__name__}")
    return kind(read(one) for one in cast("list[Any]", data))


def _tuple(readers: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    if not isinstance(data, list) or len(cast("list[Any]", data)) != len(readers):
        raise ValueError(f"expected a list of {len(readers)}")
    return tuple(read(one) for read, one in zip(readers, cast("list[Any]", data), strict=True))


def _object(read: Any, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, got {type(data).__name__}")
    return {name: read(one) for name, one in cast("dict[str, Any]", data).items()}
