"""Safe text for markup: escaped, and cut or wrapped to a width. Everything that becomes markup passes here."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from agent_magic.record.display import clean, single_line

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_WIDTH = 80
"""Columns of plain text."""
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_NARROW = frozenset("iljI.,:;'|! `·")
_SLIM = frozenset('frt()[]{}/\\-"*^')
_WIDE = frozenset("mwMW@%…")
_FIRST_WIDE_CODE_POINT = 0x2E80  # East Asian scripts, and above them the emoji


def escape(text: str) -> str:
    """Escape for XML and HTML, in an element or in a quoted attribute."""
    return clean(text).translate(_ENTITIES)


def element(tag: str, content: str = "", /, **attributes: str | float | None) -> str:
    """Escape everything; `class_` is written `class`, `font_size` `font-size`, and `None` is omitted."""
    words = [tag]
    for key, value in attributes.items():
        if value is not None:
            shown = number(value) if isinstance(value, int | float) else escape(value)
            words.append(f'{key.rstrip("_").replace("_", "-")}="{shown}"')
    head = " ".join(words)
    return f"<{head}>{content}</{tag}>" if content else f"<{head}/>"


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def path_data(points: Iterable[tuple[float, float]]) -> str:
    words = [f"{number(x)} {number(y)}" for x, y in points]
    return f"M{words[0]}C{' '.join(words[1:])}"


@lru_cache(maxsize=4096)
def _width_em(char: str) -> float:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0.0
    if ord(char) >= _FIRST_WIDE_CODE_POINT:
        return 1.1
    if char in _NARROW:
        return 0.32
    if char in _SLIM:
        return 0.42
    if char in _WIDE or ord(char) > 0x700:
        return 0.95
    return 0.68 if char.isupper() else 0.62 if char.isdigit() else 0.58


def width_px(text: str, size_px: float, *, bold: bool = False) -> float:
    """Estimate the width without the font, too wide rather than too narrow."""
    return math.fsum(map(_width_em, text)) * size_px * (1.07 if bold else 1.0)


def fit(text: str, most_px: float, size_px: float, *, bold: bool = False) -> str:
    text = single_line(text[:400])
    if width_px(text, size_px, bold=bold) <= most_px:
        return text
    room = most_px - width_px("…", size_px, bold=bold)
    return _longest_start(text, room, size_px * (1.07 if bold else 1.0)).rstrip(" \u200d") + "…"


def fit_end(text: str, most_px: float, size_px: float) -> str:
    text = single_line(text[-400:])
    if width_px(text, size_px) <= most_px:
        return text
    room = most_px - width_px("…", size_px)
    end = _longest_start(text[::-1], room, size_px)[::-1]
    while end and _width_em(end[0]) == 0.0:  # an accent that has lost its letter
        end = end[1:]
    return "…" + end.lstrip()


def _longest_start(text: str, room_px: float, size_px: float) -> str:
    for index, char in enumerate(text):
        room_px -= _width_em(char) * size_px
        if room_px < 0:
            return text[:index]
    return text


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Break a line between words; all lines but the first are indented."""
    broken = textwrap.TextWrapper(
        max(width, 1), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    lines = broken.wrap(text)
    return "\n".join(lines)
