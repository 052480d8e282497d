"""Names of models, checked before anything is sent."""

from __future__ import annotations

import asyncio

import pytest

import agent_magic as am
from agent_magic.errors import DeclarationError

MEANT = "https://api.anthropic.com has no model 'haiku'. Did you mean 'claude-haiku-5-5'?"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> am.Claude:
    """The API itself, which is never asked."""
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    return am.Claude(api_key="not-a-key")


@pytest.mark.parametrize(
    "options", [{"model": "haiku"}, {"fallback": "haiku"}, {"cascade": "haiku,claude-opus-5-5", "check": len}]
)
def test_a_wrong_name_is_told_before_anything_is_sent(options, api):
    """Wherever it stands, with the newest model that may have been meant."""
    plan = am.Plan([am.Agent("a", "Hello.", **options)])
    with pytest.raises(DeclarationError) as told:
        asyncio.run(plan.run(client=api))
    assert MEANT in str(told.value)
    with pytest.raises(DeclarationError):
        plan.estimate(client=api)


def test_a_name_with_a_price_of_ones_own_counts_as_known(api):
    """Whoever prices a model knows that it is there."""
    plan = am.Plan([am.Agent("a", "Hello.", model="haiku")])
    found = plan.estimate(client=api, prices={"haiku": am.TokenPrice(1, 5)})
    assert found.cost is not None
