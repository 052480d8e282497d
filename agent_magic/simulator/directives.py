"""Overrides of responses, for tests: directives in the prompt, such as `[[fault:cut]]`, and a script file.

Directives override the script. `[[NAME@2:...]]` applies in the second turn of the prompt, after its first tool
results; `@2-4` in three turns. Calls default to turn 1, the rest to every turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_magic.simulator.api import Json, as_flag, as_int, as_list, as_number, as_object, as_text

FAULTS = tuple(
    "hang stall reset cut clean_end empty drip error_event broken_json html wrong_bytes null_content no_usage".split()
)
STOP_REASONS = tuple(
    "end_turn max_tokens stop_sequence tool_use pause_turn refusal model_context_window_exceeded".split()
)
_TURNS = r"(?:@(\d{1,4}(?:-\d{1,4})?))?"
_DIRECTIVE = re.compile(
    rf"\[\[(fault|status|ttft|pace|tokens|stop|echo|text|think|broken|expire){_TURNS}(?::([^\]]*))?\]\]"
)
_TOOL = re.compile(rf"\[\[tool{_TURNS}:\s*([\w.-]+)\s*(\{{.*?\}})?\s*\]\]", re.DOTALL)
_KEY_OF_DIRECTIVE = {"ttft": "ttft_s", "stop": "stop_reason"}
_FLAGS = ("echo", "broken", "expire")
_WORDS = ("text", "think")
"""With a text value, spaces included."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """Overrides for one request; `None`: the usual behaviour.

    Attributes:
        text: The text of the response, or before its calls; empty: an answer without content.
        think: The thinking; empty: generated text, `redacted`: a redacted block.
        calls_given: True if directives or script set the calls of all turns of this prompt.
        broken: True if call arguments are invalid JSON; only if streamed eagerly.
        every_s: For `drip`: seconds between two bytes.
        status: From 400 an error response; 200 goes with `fault: html`.
    """

    text: str | None = None
    think: str | None = None
    echo: bool = False
    expire: bool = False
    tokens: int | None = None
    tool_use: tuple[Json, ...] = ()
    calls_given: bool = False
    broken: bool = False
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


@dataclass(frozen=True, slots=True)
class Rule:
    """A directive or a line of the script; `None`: no limit."""

    pattern: re.Pattern[str]
    values: Mapping[str, Any]
    times: int | None = None
    turns: tuple[int, int] | None = None

    @property
    def key(self) -> str:
        return f"{self.pattern.pattern} {self.turns}"

    def holds_in(self, turn: int) -> bool:
        return self.turns is None or self.turns[0] <= turn <= self.turns[1]


class DirectiveError(ValueError):
    """The message lists valid values."""


def _natural(value: object) -> int | None:
    number = as_int(value)
    return number if number is not None and number >= 0 else None


def _status(value: object) -> int | None:
    number = as_int(value)
    return number if number is not None and 200 <= number <= 599 else None


def _seconds(value: object) -> float | None:
    number = as_number(value)
    return number if number is not None and 0 <= number < 1e6 else None


def _positive(value: object) -> float | None:
    return _seconds(value) or None


def _turns(value: object) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", str(value))
    return (int(found[1]), int(found[2] or found[1])) if found and int(found[1]) else None


def _calls(value: object) -> tuple[Json, ...] | None:
    calls = [as_object(each) or {} for each in as_list(value) or ()]
    right = all(isinstance(call.get("name"), str) and isinstance(call.get("input"), dict) for call in calls)
    return tuple(calls) if calls and right else None


def _one_of(names: tuple[str, ...]) -> Callable[[object], str | None]:
    return lambda value: value if isinstance(value, str) and value in names else None


_KEYS: dict[str, tuple[Callable[[object], Any], str]] = {
    "text": (as_text, "a string"),
    "think": (as_text, "a string"),
    "broken": (as_flag, "true or false"),
    "echo": (as_flag, "true or false"),
    "expire": (as_flag, "true or false"),
    "tokens": (_natural, "an integer >= 0"),
    "tool_use": (_calls, 'a list of {"name": ..., "input": {...}}'),
    "stop_reason": (_one_of(STOP_REASONS), "one of " + ", ".join(STOP_REASONS)),
    "ttft_s": (_seconds, "seconds >= 0"),
    "pace": (_positive, "tokens per second > 0"),
    "fault": (_one_of(FAULTS), "one of " + ", ".join(FAULTS)),
    "every_s": (_positive, "seconds > 0"),
    "status": (_status, "an HTTP status from 200 to 599"),
    "error": (as_text, "an error type such as overloaded_error"),
    "error_code": (as_text, "an error code such as ramp_limit_exceeded"),
    "message": (as_text, "a string"),
    "retry_after": (_natural, "whole seconds >= 0"),
    "times": (_natural, "an integer >= 0"),
    "turn": (_turns, "a turn from 1 on such as 2, or several such as 2-4"),
}


def _checked(values: Mapping[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _KEYS:
            raise DirectiveError(f"unknown key {key!r}; the keys are {', '.join(_KEYS)}")
        narrow, wanted = _KEYS[key]
        found[key] = narrow(value)
        if found[key] is None:
            raise DirectiveError(f"{key}={value!r} must be {wanted}")
    return found


def find_directives(prompt: str) -> list[Rule]:
    """Return the directives in order, then one per turn with its tool calls."""
    if "[[" not in prompt:
        return []
    found = [_directive(match) for match in _DIRECTIVE.finditer(prompt)]
    by_turn: dict[str, list[Json]] = {}
    for call in _TOOL.finditer(prompt):
        try:
            given = json.loads(call[3] or "{}")
        except ValueError as error:
            raise DirectiveError(f"the input of [[tool:NAME {{...}}]] is not valid JSON: {error}") from None
        by_turn.setdefault(call[1] or "1", []).append({"name": call[2], "input": given})
    return [*found, *(_rule("[[tool", {"tool_use": calls, "turn": turn}) for turn, calls in by_turn.items())]


def without_directives(prompt: str) -> str:
    return _TOOL.sub("", _DIRECTIVE.sub("", prompt)) if "[[" in prompt else prompt


def _directive(match: re.Match[str]) -> Rule:
    name, turn, value = match[1], match[2], match[3]
    main = _KEY_OF_DIRECTIVE.get(name, name)
    given: dict[str, object] = {"turn": turn} if turn else {}
    if name in _WORDS:
        return _rule(match[0], {**given, name: value or ""})
    if name in _FLAGS:
        given[name] = True
    for index, option in enumerate((value or "").split()):
        key, equals, text = option.partition("=")
        if not equals and index == 0 and name not in _FLAGS:
            key, text = main, option
        given[key] = _plain(text)
    if main not in given:
        raise DirectiveError(f"{match[0]} has no value; write [[{name}:VALUE]]")
    return _rule(match[0], given)


def _plain(text: str) -> object:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _rule(match: str, given: Mapping[str, object]) -> Rule:
    values = _checked(given)
    times, turns = values.pop("times", None), values.pop("turn", None)
    regular = len(match) > 1 and match.startswith("/") and match.endswith("/")
    return Rule(re.compile(match[1:-1] if regular else re.escape(match)), values, times, turns)


def read_script(path: str) -> tuple[Rule, ...]:
    """Read a script of one JSON object per line; `#` begins a comment."""
    rules: list[Rule] = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            given = as_object(json.loads(line))
            if given is None:
                raise DirectiveError("a line must be a JSON object")
            match = given.pop("match", "")
            if not isinstance(match, str):
                raise DirectiveError(f"match={match!r} must be a substring or /a regular expression/")
            rules.append(_rule(match, given))
        except (ValueError, re.error) as error:
            raise DirectiveError(f"{path}, line {number}: {error}") from None
    return tuple(rules)
