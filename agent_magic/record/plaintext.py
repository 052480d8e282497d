"""Text made safe to print; a model's or file's text may recolour, clear or reorder a terminal."""

from __future__ import annotations

import re

# Not allowed in XML 1.0, or able to turn a line of text around: control characters, half surrogate pairs,
# non-characters, and the marks that switch the direction of writing.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    "\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]"
)


def clean(text: str) -> str:
    """Return `text` without characters that XML forbids or that reverse text. Line breaks and tabs stay."""
    return _UNSAFE.sub("", text)


def visible(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def single_line(text: str) -> str:
    return " ".join(clean(text).split())
