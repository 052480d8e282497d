"""Facts about Anthropic's models by name: shared rate limits, prompt caching, speed, tokenizers."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_magic.declare.content import TokenRule
from agent_magic.record.prices import has_list_price
from agent_magic.record.terms import ModelFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

MODELS: Final = (
    "claude-haiku-5-5",
    "claude-sonnet-5-5",
    "claude-opus-5-5",
    "claude-fable-5-2",
    "claude-mythos-5-2",
    "claude-haiku-4-5",
    "claude-sonnet-5",
    "claude-opus-5",
)
"""To offer, current ones first, three of them from cheap to expensive; each has a list price."""
_DATE: Final = re.compile(r"[-@]\d{8}$")
_LIMIT_CLASSES: Final = (
    (re.compile(r"claude-opus-4-[5-8]"), "claude-opus-4"),
    (re.compile(r"claude-sonnet-4(-\d)?"), "claude-sonnet-4"),
    (re.compile(r"claude-fable-5(-\d)?"), "claude-fable-5"),
)
_MIN_CACHEABLE_TOKENS: Final[Mapping[str, int]] = {
    "claude-opus-4-8": 1024,
    "claude-opus-4-7": 2048,
    "claude-opus-4-6": 4096,
    "claude-sonnet-5": 1024,
    "claude-sonnet-4-6": 1024,
    "claude-haiku-4-5": 4096,
}
"""Source: the vendor's page on prompt caching, as of November 2026."""
_USUAL_MIN_CACHEABLE_TOKENS: Final = 512
_MAX_OUTPUT_TOKENS: Final[Mapping[str, int]] = {"claude-haiku-4-5": 64_000}
"""Source: the vendor's table of models, as of November 2026."""
_USUAL_MAX_OUTPUT_TOKENS: Final = 128_000
"""Of all later models, in the same table. A larger `max_tokens` is refused with a 400."""
_NAME: Final = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d+)(?:-(?P<minor>\d{1,2}))?(?:$|[-@])")
FAMILIES: Final = ("haiku", "sonnet", "opus", "fable", "mythos")
_DENSER: Final = (4, 7)
"""Newer tokenizers make more tokens of a text."""
_DENSER_BY: Final = 1.3
"""Source: the vendor's page on Haiku 5.5: about 30 % more tokens than Haiku 4.5."""


_FILTERING: Final = (4, 6)
"""These can filter search results in code before reading them."""
_SERVER_TOOLS: Final[Mapping[str, tuple[str, str]]] = {
    "web_search": ("web_search_20250305", "web_search_20260209"),
    "web_fetch": ("web_fetch_20250910", "web_fetch_20260209"),
    "code_execution": ("code_execution_20250825", "code_execution_20250825"),
}
"""By plain name, a tool's version for any model, and its version for models that filter.

Source: the vendor's tool reference, and its page on each tool, as of November 2026.
"""
_PAGE_TOKENS: Final = (2000, 8000)
"""For a page of a PDF. Source: the vendor's page on PDF support: 1,500 to 3,000 of text, and a picture of it."""
_LARGE_PICTURES: Final = TokenRule(28, 2576, 4784, _PAGE_TOKENS)
_SMALL_PICTURES: Final = TokenRule(28, 1568, 1568, _PAGE_TOKENS)
"""For models before `_DENSER`. Source: the vendor's page on vision."""


class Speed(NamedTuple):
    """A family's speed: seconds to the first token, and tokens per second after it."""

    family: str
    ttft_s: float
    pace: float


SPEEDS: Final = {
    "haiku": Speed("haiku", 0.9, 105.0),
    "sonnet": Speed("sonnet", 1.8, 63.0),
    "opus": Speed("opus", 2.7, 45.0),
}
"""Speeds by family; if the recorded model was measured, only the ratios between families are used.

Source: Artificial Analysis, as quoted in November 2025, for Sonnet 4.5 (63 tokens/s, 1.80 s) and Opus 4.1 (45
tokens/s, 2.67 s); LMSpeed for Haiku 4.5 (97 to 112 tokens/s), 0.90 s.
"""
DEFAULT_URL: Final = "https://api.anthropic.com"
SPEEDS_FROM: Final = "a table of November 2025"
USUAL_SPEED: Final = SPEEDS["sonnet"]


def takes_sampling(model: str) -> bool:
    """Return whether a model accepts `temperature`, `top_p` and `top_k`, or its name is unknown.

    Source: the vendor's page on new features of Opus 4.7, which refuses them with a 400, as all later models do.
    """
    return _NAME.match(model) is None or not _is_newer(model)


@lru_cache(maxsize=1024)
def limit_class(model: str) -> str:
    """Return the class of models with shared limits. A model without a documented class is its own.

    Source: the vendor's page on rate limits: one pool for Opus 4.5 to 4.8, one for Sonnet 4.x, one for Fable 5.x; Opus
    5, Opus 5.5, Sonnet 5, Sonnet 5.5, Haiku 4.5 and Haiku 5.5 have separate rows.
    """
    name = _DATE.sub("", model)
    return next((pool for pattern, pool in _LIMIT_CLASSES if pattern.fullmatch(name)), name)


def lacks(model: str) -> bool:
    """Return whether the API is known not to have it: a bare family, a typo, another maker's name."""
    # Unknown versions and families may be new.
    if has_list_price(model.removesuffix("-latest")):
        return False
    found = _NAME.match(model)
    return found is None or (found["family"] not in FAMILIES and bool(get_close_matches(found["family"], FAMILIES)))


def min_cacheable_tokens(model: str) -> int:
    return _MIN_CACHEABLE_TOKENS.get(model, _USUAL_MIN_CACHEABLE_TOKENS)


def max_output_tokens(model: str) -> int:
    return _MAX_OUTPUT_TOKENS.get(_DATE.sub("", model), _USUAL_MAX_OUTPUT_TOKENS)


def facts_of(model: str) -> ModelFacts:
    return ModelFacts(limit_class(model), min_cacheable_tokens(model), token_rule(model))


def speed_of(model: str) -> Speed | None:
    found = _NAME.match(model)
    return SPEEDS.get(found["family"]) if found else None


def token_density(model: str) -> float:
    """Return the tokens of a text per token of the older models."""
    return _DENSER_BY if _version(model) is not None and _is_newer(model) else 1.0


def token_rule(model: str) -> TokenRule:
    """An unknown name counts as a new model."""
    return _LARGE_PICTURES if _is_newer(model) else _SMALL_PICTURES


def _is_newer(model: str) -> bool:
    version = _version(model)
    return version is None or version >= _DENSER


def _version(model: str) -> tuple[int, int] | None:
    found = _NAME.match(model)
    return None if found is None else (int(found["major"]), int(found["minor"] or 0))


def server_tool(family: str, model: str, *, basic: bool = False) -> str:
    """Return the dated type of a tool run by the API, the first one for `basic` sellers."""
    version = _version(model)
    newer = version is not None and version >= _FILTERING and not basic
    return _SERVER_TOOLS.get(family, (family, family))[newer]
