"""Rate limits in a response: headers, and the message of a 429, as numbers.

Source: the vendor's page on rate limits. `reset` adds nothing that a pacer could use.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agent_magic.engine.pacing.limits import Reading
from agent_magic.providers.http.headers import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_magic.engine.pacing.limits import Dimension, Readings

PREFIX: Final = "anthropic-ratelimit-"
HEADER_OF: Final[dict[Dimension, str]] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}
_NAMES: Final[list[tuple[Dimension, str, str]]] = [
    (kind, f"{PREFIX}{name}-limit", f"{PREFIX}{name}-remaining") for kind, name in HEADER_OF.items()
]
_KIND_OF: Final[dict[str, Dimension]] = {name.replace("-", " "): kind for kind, name in HEADER_OF.items()}
_WORDS: Final = "|".join(_KIND_OF)
_SENTENCE = re.compile(
    rf"(?P<number>[\d,]+) (?P<per>{_WORDS}) per minute|number of (?P<over>{_WORDS}) has exceeded",
    re.IGNORECASE,
)
"""Such as `This request would exceed your organization's rate limit of 30,000 input tokens per minute`."""


def named_limit(sentence: str) -> Dimension | None:
    found = _SENTENCE.search(sentence)
    if found is None:
        return None
    return _KIND_OF[(found["per"] or found["over"]).lower()]


def with_sentence(readings: Readings, sentence: str) -> Readings:
    """Add the limit in the message of a 429, if the headers do not have it."""
    found, name = _SENTENCE.search(sentence), named_limit(sentence)
    number = number_of((found["number"] or "").replace(",", "")) if found else None
    return readings if name is None or not number else {name: Reading(number), **readings}


def empty_limit(headers: Mapping[str, str]) -> Dimension | None:
    return next((name for name, header in HEADER_OF.items() if headers.get(f"{PREFIX}{header}-remaining") == "0"), None)


def read_headers(headers: Mapping[str, str]) -> Readings:
    """Invalid values are ignored."""
    found: dict[Dimension, Reading] = {}
    for kind, limit_name, remaining_name in _NAMES:
        if limit := number_of(headers.get(limit_name)):
            remaining = number_of(headers.get(remaining_name))
            found[kind] = Reading(limit, remaining if remaining is None else min(remaining, limit))
    return found
