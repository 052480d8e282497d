"""What is known of models by their names."""

from __future__ import annotations

import pytest

from agent_magic.api import Claude
from agent_magic.providers.anthropic.models import limit_class


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4"),
        ("claude-opus-4-8", "claude-opus-4"),
        ("claude-opus-4-1", "claude-opus-4-1"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4"),
        ("claude-sonnet-4-6", "claude-sonnet-4"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("claude-sonnet-5", "claude-sonnet-5"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-fable-5", "claude-fable-5"),
        ("claude-fable-5-2", "claude-fable-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("my-own-model", "my-own-model"),
        ("", ""),
    ],
)
def test_models_share_a_class_where_the_page_says_so(model, name):
    """Documented pools are one class; whatever else there is, is its own."""
    assert name == limit_class(model)


def test_the_provider_says_it():
    """Nobody else in the package knows models by their names, but forecasts that have no provider at hand."""
    claude = Claude(api_key="x")
    assert "claude-opus-4" == claude.limit_class("claude-opus-4-7")
    assert (4096, 512) == (claude.min_cacheable_tokens("claude-haiku-4-5"), claude.min_cacheable_tokens("other"))
