"""Names of models: dates, versions and prefixes of sellers leave a model the same."""

from __future__ import annotations

import re

_FORM = re.compile(
    r"(?:-v\d+)?[-@](?:20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])|20\d\d-\d\d-\d\d|latest|default)$"
    r"|-v1$|-v\d+:\d+$"
)
"""A date, `-latest`, and the versions that clouds add.

Source: the vendor's pages on model names, and on Amazon Bedrock and Google's Vertex.
"""
_DATE = re.compile(r"(?<!\d)20\d\d-?\d\d-?\d\d(?!\d)")


def undated(name: str) -> str:
    return _FORM.sub("", name)


def plain_name(name: str) -> str:
    short = undated(name.lower().rstrip("@"))
    return short if short == name.lower() else plain_name(short)


def is_same_model(asked: str, answered: str) -> bool:
    """With or without date, or the prefix of a cloud or gateway."""
    if asked == answered:
        return True
    dates = [_DATE.findall(one)[-1:] for one in (asked, answered)]
    if all(dates) and dates[0] != dates[1]:
        return False
    plain, other = sorted(map(plain_name, (asked, answered)), key=len)
    return ends_with(other, plain)


def ends_with(name: str, part: str) -> bool:
    """After nothing or a seller's prefix: `eu.anthropic.`, `anthropic/`."""
    return name == part or name.endswith((f".{part}", f"/{part}"))
