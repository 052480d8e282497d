"""What a test or a script asks the simulator to do instead of its usual answer.

Two ways in, one value out: a line of a script file, or markers such as `[[fault:cut]]` in the last user message, which
go over the script. The readers are table-driven: one table says which keys exist and how each is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_magic.simulator.shapes import as_int, as_number, as_object

FAULTS = (
    "hang",
    "stall",
    "reset",
    "cut",
    "clean_end",
    "empty",
    "drip",
    "error_event",
    "broken_json",
    "html",
    "wrong_bytes",
    "null_content",
    "no_usage",
)
STOP_REASONS = (
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
)
_MARKER = re.compile(r"\[\[(fault|status|ttft|pace|tokens|stop|echo)(?::([^\]]*))?\]\]")
_KEY_OF_MARKER = {"ttft": "ttft_s", "stop": "stop_reason"}


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What to do with one request; every `None` means as usual.

    Attributes:
        text: The answer.
        echo: Answer with the last user message, verbatim.
        tokens: Exact length of the answer in tokens.
        stop_reason: What the answer ends with.
        ttft_s: Exact seconds to the first byte of the answer.
        pace: Exact tokens per second.
        fault: One of `FAULTS`.
        every_s: For `drip`: seconds between two bytes.
        status: An HTTP status from 400 on is answered with an error body; 200 goes with `fault: html`.
        error: The `error.type`; without it the one documented for the status.
        error_code: The `error.details.error_code`.
        message: The `error.message`.
        retry_after: The `retry-after` header, in whole seconds; without it none is sent.
    """

    text: str | None = None
    echo: bool = False
    tokens: int | None = None
    stop_reason: str | None = None
    ttft_s: float | None = None
    pace: float | None = None
    fault: str | None = None
    every_s: float = 1.0
    status: int | None = None
    error: str | None = None
    error_code: str | None = None
    message: str | None = None
    retry_after: int | None = None


USUAL = Behaviour()


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of the script: which prompts it is for, what to do, and how often (`None`: always)."""

    pattern: re.Pattern[str]
    behaviour: Behaviour
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker of a prompt: its text, the fields it sets, and how often it holds (`None`: always)."""

    text: str
    values: Mapping[str, Any]
    times: int | None = None


class BehaviourError(ValueError):
    """A script line or a marker that cannot be read; the message says why and what would be right."""


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _natural(value: object) -> int | None:
    number = as_int(value)
    return number if number is not None and number >= 0 else None


def _seconds(value: object) -> float | None:
    number = as_number(value)
    return number if number is not None and 0 <= number < 1e6 else None


def _positive(value: object) -> float | None:
    return _seconds(value) or None


def _status(value: object) -> int | None:
    number = as_int(value)
    return number if number is not None and 200 <= number <= 599 else None


def _one_of(names: tuple[str, ...]) -> Callable[[object], str | None]:
    return lambda value: value if isinstance(value, str) and value in names else None


_READERS: dict[str, tuple[Callable[[object], Any], str]] = {
    "text": (_text, "a string"),
    "echo": (_flag, "true or false"),
    "tokens": (_natural, "a whole number, 0 or more"),
    "stop_reason": (_one_of(STOP_REASONS), "one of " + ", ".join(STOP_REASONS)),
    "ttft_s": (_seconds, "seconds"),
    "pace": (_positive, "tokens per second, more than 0"),
    "fault": (_one_of(FAULTS), "one of " + ", ".join(FAULTS)),
    "every_s": (_positive, "seconds, more than 0"),
    "status": (_status, "an HTTP status from 200 to 599"),
    "error": (_text, "an error type such as overloaded_error"),
    "error_code": (_text, "an error code such as ramp_limit_exceeded"),
    "message": (_text, "a string"),
    "retry_after": (_natural, "whole seconds"),
    "times": (_natural, "a whole number, 0 or more"),
}


def _read(values: Mapping[str, object]) -> dict[str, Any]:
    """Check every value with its reader.

    Raises:
        BehaviourError: A key is unknown or a value cannot be read.
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _READERS:
            raise BehaviourError(f"unknown key {key!r}; the keys are {', '.join(_READERS)}")
        reader, wanted = _READERS[key]
        read = reader(value)
        if read is None:
            raise BehaviourError(f"{key}={value!r} must be {wanted}")
        found[key] = read
    return found


def markers(prompt: str) -> list[Marker]:
    """Find the markers of a prompt, in order.

    Raises:
        BehaviourError: A marker has a value that cannot be read.
    """
    return [_marker(match) for match in _MARKER.finditer(prompt)] if "[[" in prompt else []


def without_markers(prompt: str) -> str:
    """Return a prompt as if it had no markers."""
    return _MARKER.sub("", prompt)


def _marker(match: re.Match[str]) -> Marker:
    name, _, options = match[1], match[0], (match[2] or "").split()
    given: dict[str, object] = {"echo": True} if name == "echo" else {}
    for place, option in enumerate(options):
        key, equals, value = option.partition("=")
        if not equals and place == 0 and name != "echo":
            key, value = _KEY_OF_MARKER.get(name, name), option
        given[key] = _plain(value)
    found = _read(given)
    if name != "echo" and _KEY_OF_MARKER.get(name, name) not in found:
        raise BehaviourError(f"{match[0]} has no value; write [[{name}:VALUE]]")
    times = found.pop("times", None)
    return Marker(match[0], found, times)


def _plain(text: str) -> object:
    """Read an unquoted value: a number where it looks like one, else text."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def apply(behaviour: Behaviour, found: list[Marker]) -> Behaviour:
    """Return a behaviour with markers laid over it."""
    for marker in found:
        behaviour = replace(behaviour, **marker.values)
    return behaviour


def read_script(path: Path) -> list[Rule]:
    """Read a script file: one JSON object per line; empty lines and lines that start with `#` are skipped.

    Raises:
        BehaviourError: A line cannot be read; the message names it.
        OSError: The file cannot be opened.
    """
    rules: list[Rule] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            rules.append(_rule(line))
        except (ValueError, re.error) as error:
            raise BehaviourError(f"{path}, line {number}: {error}") from None
    return rules


def _rule(line: str) -> Rule:
    given = as_object(json.loads(line))
    if given is None:
        raise BehaviourError("a line must be a JSON object")
    match = given.pop("match", "")
    if not isinstance(match, str):
        raise BehaviourError(f"match={match!r} must be a substring or /a regular expression/")
    regular = len(match) > 1 and match.startswith("/") and match.endswith("/")
    values = _read(given)
    times = values.pop("times", None)
    return Rule(re.compile(match[1:-1] if regular else re.escape(match)), Behaviour(**values), times)
