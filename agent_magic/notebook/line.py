"""The line of a magic, as typed.

IPython expands `{name}` and `$name` only for some calls, so our magics opt out, and `read_line` expands every line.
"""

from __future__ import annotations

import ast
import os
import re
from numbers import Number
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.utils.text import EvalFormatter

from agent_magic.notebook.command import without_comment

if TYPE_CHECKING:
    from collections.abc import Mapping

CURLY = "“”„‟‘’‚‛«»″′"  # noqa: RUF001 - the signs it is about
DASHES = "‐‑‒–—―−"  # noqa: RUF001 - the signs it is about
BLANKS = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
INVISIBLE = re.compile(r"[\u200b-\u200d\u2060\ufeff]")
"""Letters without a width, which are copied from pages along with a line."""
_QUOTED = r"""(?<!\S)"[^"]*"(?!\S)|(?<!\S)'[^']*'(?!\S)"""
_TEMPLATE = r"\{\{.*?\}\}|\{%.*?%\}"
_DOLLAR = r"\$\$?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_NESTED = rf"\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}|{_DOLLAR}"
"""A placeholder outside quotes: its braces may hold others, as of a dict or a format's width."""
_FLAT = rf"\{{[^{{}}]*\}}|{_DOLLAR}"
"""A placeholder in quotes, where braces around it may be text."""
_PARTS = re.compile(rf"(?P<quoted>{_QUOTED})|(?P<template>{_TEMPLATE})|(?P<place>{_NESTED})")
_FOUND = "__the_value_of_a_place__"
_INSIDE = re.compile(rf"(?P<template>{_TEMPLATE})|(?P<place>{_FLAT})")


def read_line(line: str, variables: Mapping[str, Any], *, magic: str) -> str:
    """Expand the variables, and refuse characters that only look like quotes and hyphens."""
    if line.isascii() and not any(sign in line for sign in "{$\\"):
        return line
    plain = without_comment(line)
    _check_signs(re.sub(_QUOTED, "", plain), magic)
    made, at = list[str](), 0
    for part in _PARTS.finditer(plain):
        made += [_plain_blanks(plain[at : part.start()]), _filled(part, variables, magic)]
        at = part.end()
    return "".join([*made, _plain_blanks(plain[at:])])


def _check_signs(outside: str, magic: str) -> None:
    if outside.rstrip().endswith("\\"):
        raise UsageError(f"{magic}: a backslash does not continue the line. Write all options in that one line.")
    for word in outside.split():
        if word[0] in CURLY or re.match(rf"-[\w-]+=[{CURLY}]", word):
            raise UsageError(f"{magic}: {word!r} has curly quotes. Write straight ones: \"...\" or '...'.")
        if word[0] in DASHES:
            meant = word.lstrip(DASHES + "-")
            hyphens = "a hyphen: -" if meant[:1].isdecimal() else "two hyphens: --"
            raise UsageError(f"{magic}: {word!r} begins with a dash. Write {hyphens}{meant}")


def _plain_blanks(text: str) -> str:
    return INVISIBLE.sub("", BLANKS.sub(" ", text))


def _filled(part: re.Match[str], variables: Mapping[str, Any], magic: str) -> str:
    if part["template"]:
        return part["template"]
    if part["place"]:
        return _value(part["place"], variables, magic)
    quote, text = part["quoted"][0], part["quoted"][1:-1]
    if re.fullmatch(_NESTED, text) and _has_names(text):  # in quotes so that it is one word
        return quote + _in_quotes(_value(text, variables, magic), quote, text, magic) + quote

    def inside(found: re.Match[str]) -> str:
        if found["template"] or not _has_names(found[0]):  # such as {"a": 1}
            return found[0]
        try:
            return _in_quotes(_text(found[0], variables), quote, found[0], magic)
        except _NoValueError:  # text may have its own braces
            return found[0]

    return quote + _INSIDE.sub(inside, text) + quote


def _in_quotes(value: str, quote: str, place: str, magic: str) -> str:
    if quote in value:
        other = "'" if quote == '"' else '"'
        raise UsageError(f"{magic}: the text of {place} has {quote} in it. Write {other}{place}{other}, or change it.")
    return value


class _NoValueError(Exception):
    """A placeholder has no value that a line can hold."""


def _value(place: str, variables: Mapping[str, Any], magic: str) -> str:
    try:
        return _text(place, variables)
    except _NoValueError as error:
        raise UsageError(
            f"{magic}: {place} in braces or with $ stands for a variable, and has no value here: {error}. "
            "Define it in a cell above, or put text with braces in quotes."
        ) from None


def _text(place: str, variables: Mapping[str, Any]) -> str:
    """Return a placeholder's value, read as in an f-string: an expression, with a conversion and a format."""
    if place.startswith("$$"):  # as in IPython, the way to write the sign itself
        return place[1:]
    try:
        return _text_of(_parsed(place), dict(variables))
    except SyntaxError as error:
        if not place.strip("{} "):
            raise _NoValueError("the braces are empty") from None  # words differ between Pythons
        raise _NoValueError(error.msg) from None
    except Exception as error:  # noqa: BLE001 - any error of the user's expression
        raise _NoValueError(str(error) or type(error).__name__) from None


def _parsed(place: str) -> ast.FormattedValue:
    written = place if place[0] == "{" else f"{{{place[1:]}}}"
    match ast.parse(f"f'''{written}'''", mode="eval").body:
        case ast.JoinedStr(values=[ast.FormattedValue() as part]):
            return part
        case _:
            raise SyntaxError("it is not one expression")


def _has_names(place: str) -> bool:
    try:
        value = place.startswith("$") or _parsed(place).value
    except (SyntaxError, ValueError):
        return False
    return value is True or any(isinstance(one, ast.Name) for one in ast.walk(value))


def _text_of(part: ast.FormattedValue, variables: dict[str, Any]) -> str:
    variables[_FOUND] = value = _evaluated(part.value, variables)
    if not isinstance(value, str | Number | os.PathLike):
        raise TypeError(f"it is a {type(value).__name__}, and a line holds text and numbers")
    part.value = ast.Name(_FOUND, ast.Load())  # evaluated once
    return _evaluated(ast.JoinedStr([part]), variables)


def _evaluated(expression: ast.expr, variables: dict[str, Any]) -> Any:
    formatter: Any = EvalFormatter()
    return formatter.get_field(ast.unparse(expression), [], variables)[0]
