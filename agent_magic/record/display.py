"""How values and texts are shown safely; a model's or file's text may recolour, clear or reorder a terminal."""

from __future__ import annotations

import re
from functools import singledispatch


@singledispatch
def bundle_of(value: object) -> dict[str, str]:  # `agent_magic.show.bundles` registers more forms by class
    return {"text/plain": repr(value)}


class Shown:
    """A value that shows itself."""

    __slots__ = ()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return bundle_of(self)

    def _repr_html_(self) -> str | None:
        """Return the HTML alone, for what asks for no bundle, such as Panel."""
        return bundle_of(self).get("text/html")


class ShownFrame(Shown):
    """A frame that shows itself."""

    __slots__ = ()


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
