"""Prices: against sums by hand, and against the library they come from."""

# Tests hand over wrong types on purpose, and take for granted what they have just checked.
# pyright: reportArgumentType=false
# pyright: reportCallIssue=false

from __future__ import annotations

import warnings
from decimal import Decimal

import pytest
from genai_prices import Usage as Tokens
from genai_prices import calc_price
from genai_prices.data import providers
from hypothesis import given
from hypothesis import strategies as st

from agent_magic import TokenPrice
from agent_magic.errors import DeclarationError
from agent_magic.record import Prices, PriceWarning, Usage
from agent_magic.record.answer import is_same_model
from agent_magic.record.prices import listed_models

SHARED_TOKENS, OWN, OUTPUT = 30_000, 500, 1_500


def usage(given, produced, *, read=0, written=0, long=0):
    """Tokens of a request."""
    return Usage(
        given, output_tokens=produced, cache_read_tokens=read, cache_write_tokens=written, cache_write_1h_tokens=long
    )


def dollars(model, *parts):
    """What these parts cost together."""
    prices = Prices()
    return round(sum(prices.of(model, part).cost_usd for part in parts), 10)


# model: one agent with four jobs, four uncached, four cold with marks, one warm and three followers
SHARED = {
    "claude-fable-5-2": (0.4960, 1.2160, 1.4560, 0.5740),
    "claude-opus-5-5": (0.2480, 0.6080, 0.7280, 0.2960),
    "claude-sonnet-5-5": (0.1240, 0.3040, 0.3640, 0.1480),
    "claude-haiku-5-5": (0.0062, 0.0152, 0.0182, 0.0078),
    "claude-haiku-4-5": (0.0620, 0.1520, 0.1820, 0.0785),
}


@pytest.mark.parametrize(("model", "sums"), SHARED.items())
def test_the_sums_of_a_shared_context(model, sums):
    """Four specialists over 30,000 shared tokens: the table of facts/messages-api.md 4, to its last printed digit."""
    one, uncached, cold, warm = sums
    assert one == round(dollars(model, usage(32_000, 6_000)), 4)
    assert uncached == round(dollars(model, *[usage(SHARED_TOKENS + OWN, OUTPUT)] * 4), 4)
    assert cold == round(dollars(model, *[usage(OWN, OUTPUT, written=SHARED_TOKENS)] * 4), 4)
    followers = [usage(OWN, OUTPUT, read=SHARED_TOKENS)] * 3
    assert warm == pytest.approx(dollars(model, usage(OWN, OUTPUT, written=SHARED_TOKENS), *followers), abs=0.5e-4)


def test_one_sum_by_hand():
    """Sonnet 5.5: 2 and 10 dollars per million, writes at 1.25 and 2 times, reads at a twentieth."""
    found = Prices().of(
        "claude-sonnet-5-5", usage(1_000_000, 1_000_000, read=1_000_000, written=2_000_000, long=1_000_000)
    )
    assert 2 + 10 + 0.1 + 2.5 + 4 == pytest.approx(found.cost_usd, rel=1e-12)
    assert found.basis.startswith("genai-prices ")


CLIFF = [
    (100_000, 0, 0, 0.01),
    (100_001, 0, 0, 0.0500005),
    (0, 100_000, 0, 0.001),
    (0, 100_001, 0, 0.00500005),
    (50_000, 50_000, 0, 0.0055),
    (50_000, 50_000, 1, 0.02750063),
    (99_999, 0, 1, 0.01000003),
]


@pytest.mark.parametrize(("given", "read", "written", "cost"), CLIFF)
def test_the_cliff_of_haiku(given, read, written, cost):
    """Over 100,000 prompt tokens, cache included, every token of the request costs five times as much."""
    assert cost == round(Prices().of("claude-haiku-5-5", usage(given, 0, read=read, written=written)).cost_usd, 8)


MODELS = [
    "claude-fable-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-haiku-4-5",
    "claude-sonnet-4-6",
]
counts = st.one_of(st.integers(0, 300_000), st.sampled_from([0, 1, 99_999, 100_000, 100_001, 200_000, 200_001]))


@given(st.sampled_from(MODELS), counts, counts, counts, counts, counts)
def test_prices_are_those_of_the_library(model, given, produced, read, short, long):
    """Whatever the tokens, the dollars are those that `genai-prices` itself works out."""
    listed = calc_price(
        Tokens(
            input_tokens=given + read + short + long,
            output_tokens=produced,
            cache_read_tokens=read,
            cache_write_tokens=short + long,
            cache_write_1h_tokens=long,
        ),
        model,
        provider_id="anthropic",
    ).total_price
    ours = Prices().of(model, usage(given, produced, read=read, written=short + long, long=long)).cost_usd
    assert abs(Decimal(ours) - listed) <= Decimal("1e-9")


def test_an_unknown_model_has_no_price_and_one_warning():
    """Costs of a model nobody lists are unknown, not 0, and that is said once per model."""
    prices = Prices()
    with pytest.warns(PriceWarning, match="'my-own-model'") as caught:
        assert [None, None] == [prices.of("my-own-model", usage(1, 1)).cost_usd for _ in range(2)]
    assert 1 == len(caught)
    with pytest.warns(PriceWarning, match="'another'"):
        prices.of("another", usage(1, 1))


@pytest.mark.parametrize("tokens", [None, Usage(), Usage(5), Usage(output_tokens=5)], ids=str)
def test_unknown_tokens_have_no_price(tokens):
    """Where input or output is unknown the cost is unknown, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in ("claude-haiku-5-5", "my-own-model"):
            assert (None, "unknown") == (Prices().of(model, tokens).cost_usd, Prices().of(model, tokens).basis)


def test_own_prices_go_first():
    """A price that the user gives counts before the list, for models the list knows too, and without a warning."""
    prices = Prices({"claude-haiku-5-5": TokenPrice(1, 2), "mine": TokenPrice(4, 0)})
    assert (3e-6, "given") == (
        prices.of("claude-haiku-5-5", usage(1, 1)).cost_usd,
        prices.of("mine", usage(1, 1)).basis,
    )
    assert prices.of("claude-sonnet-5-5", usage(1, 1)).basis != "given"


def test_cache_prices_left_out_follow_the_input():
    """A read is a tenth of the input, a write 1.25 times, for an hour twice; 0 is a price."""
    million = usage(0, 0, read=1_000_000, written=3_000_000, long=1_000_000)
    assert 1 + 2 * 12.5 + 20 == TokenPrice(10, 0).cost_usd(million)
    assert 1 + 2 * 2 + 3 == TokenPrice(10, 0, cache_read=1, cache_write=2, cache_write_1h=3).cost_usd(million)
    assert 0 == TokenPrice(10, 0, cache_read=0, cache_write=0, cache_write_1h=0).cost_usd(million)


def test_nothing_used_costs_nothing():
    """No tokens, no dollars: known, and 0."""
    assert 0.0 == Prices().of("claude-haiku-5-5", usage(0, 0)).cost_usd


OTHER_MODELS = (
    "claude-opus-4-10",
    "claude-opus-4-1-mini",
    "claude-haiku-4-50",
    "claude-haiku-4-5-20251001x",
    "claude-haiku-4-5-99999999",
    "claude-2.1",
    "gpt-4o-preview-of-mine",
)
DATED = {
    "claude-haiku-4-5-20251001": "claude-haiku-4-5",
    "claude-haiku-4-5@20251001": "claude-haiku-4-5",
    "claude-haiku-4-5-latest": "claude-haiku-4-5",
    "claude-opus-4-20250514": "claude-opus-4",
    "claude-sonnet-4-5-20250929": "claude-sonnet-4-5",
    "claude-opus-5-latest": "claude-opus-5",
    "gpt-4o-2024-08-06": "gpt-4o",
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_a_name_that_begins_like_a_listed_one_is_another_model(name):
    """Its price is unknown, and that is said; no seller's list has it either."""
    with pytest.warns(PriceWarning, match=repr(name)):
        assert Prices().of(name, usage(1, 1)).cost_usd is None
    for seller in ("anthropic", "aws", "google"):
        assert Prices(tell=lambda _: None, seller=seller).of(name, usage(1, 1)).cost_usd is None


@pytest.mark.parametrize(("name", "plain"), DATED.items())
def test_a_listed_name_with_a_date_is_the_same_model(name, plain):
    """A date, as the API, Vertex and others write it, and `-latest` change no price."""
    assert Prices().of(plain, usage(5, 7)).cost_usd == Prices().of(name, usage(5, 7)).cost_usd is not None
    assert is_same_model(plain, name)
    assert is_same_model(name, plain)


@given(
    st.sampled_from([one for one in listed_models() if one != "claude-v1"]),
    st.text(alphabet="0123456789abcxyz-", min_size=1, max_size=6),
)
def test_only_forms_of_a_listed_name_have_its_price(model, more):
    """Whatever is written behind a listed name, it has a price only if that names a listed model itself."""
    name, known = model + more, listed_models()
    listed = any(name.startswith(one) and is_same_model(one, name) for one in known)
    found = Prices(tell=lambda _: None).of(name, usage(1, 1)).cost_usd
    assert listed == (found is not None)


def test_every_name_of_the_list_has_its_price():
    """No name that a price list knows is lost, whoever sells it."""
    named = [(seller.id, model.id) for seller in providers for model in seller.models]
    found = {one: Prices(tell=lambda _: None, seller=one[0]).tariff_of(one[1])[0] for one in named}
    assert [] == [one for one in named if _has_price(*one) and not found[one]]


def _has_price(seller, model):
    try:
        calc_price(Tokens(input_tokens=1, output_tokens=1), model, provider_id=seller)
    except LookupError:
        return False
    return True


def test_an_answer_is_priced_by_the_model_that_gave_it():
    """A server may answer with another model than was asked: its price counts, also where that is unknown."""
    prices, used = Prices(tell=lambda _: None), usage(1_000_000, 0)
    asked, other = "claude-haiku-5-5", "claude-opus-5-5"
    assert prices.of(other, used) == prices.of_answer(asked, other, used)
    assert prices.of_answer(asked, "whatever/this-is.gguf", used).cost_usd is None
    dated = "claude-haiku-4-5-20251001"
    assert prices.of("claude-haiku-4-5", used) == prices.of_answer("claude-haiku-4-5", dated, used)
    older, newer = "claude-3-5-sonnet-20240620", "claude-3-5-sonnet-20241022"
    assert not is_same_model(older, newer)


def test_a_model_of_a_cloud_has_the_price_of_the_name_that_was_asked():
    """Its answers carry the maker's name: the region that was asked, and is billed, stands only in the other."""
    prices, used = Prices(seller="aws"), usage(1_000_000, 0)
    for asked in ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", "global.anthropic.claude-haiku-4-5-20251001-v1:0"):
        assert prices.of(asked, used) == prices.of_answer(asked, "claude-haiku-4-5-20251001", used)


def test_an_own_price_counts_for_the_same_model_with_a_date():
    """It is the price of what was asked, whatever the answer calls it; but not that of another model."""
    prices, used = Prices({"claude-haiku-4-5": TokenPrice(7, 7)}), usage(1_000_000, 0)
    assert 7.0 == prices.of_answer("claude-haiku-4-5", "claude-haiku-4-5-20251001", used).cost_usd
    assert prices.of("claude-opus-5-5", used) == prices.of_answer("claude-haiku-4-5", "claude-opus-5-5", used)
    mine = Prices({"mine": TokenPrice(7, 7), "theirs": TokenPrice(9, 9)})
    assert (7.0, 9.0) == tuple(mine.of_answer("mine", one, used).cost_usd for one in ("/models/mine", "theirs"))


def test_a_cloud_has_its_own_list():
    """Its names for the models, and its prices."""
    name, used = "eu.anthropic.claude-haiku-4-5-20251001-v1:0", usage(1_000_000, 0)
    assert 1.1 == pytest.approx(Prices(seller="aws").of(name, used).cost_usd)
    assert Prices(tell=lambda _: None).of(name, used).cost_usd is None


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), 1e308, 2e9, 10**400, "3", None, True])
def test_what_is_no_price_is_refused_when_it_is_given(price):
    """Negative, absurd or no number: an overflow would show only when answers are paid for."""
    for field in ("input", "output"):
        with pytest.raises(DeclarationError, match="A price must be a number from 0 to 1e"):
            TokenPrice(**{"input": 1, "output": 1, field: price})
    assert TokenPrice(1e9, 1e9).cost_usd(usage(1 << 53, 1 << 53)) < 1e20
