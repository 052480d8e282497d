"""Token prices: the user's own table, then the list prices of `genai-prices`, bundled and offline."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.validation import is_number, make_builtin
from agent_magic.errors import DeclarationError, did_you_mean, shown_value
from agent_magic.record.answer import Price, ends_with, is_same_model, plain_name, total_usd, undated
from agent_magic.record.events import new_tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent_magic.record.answer import Usage
    from agent_magic.record.facts import Attempt
    from agent_magic.record.results import AgentResult, RunRecord

UNKNOWN = Price(None, "unknown")
MTOK = 1_000_000
BATCH_PRICE = 0.5
"""Source: the vendor's page on batches."""
AT_BATCH_PRICE = ", half of it for a batch"
NO_LIST = "none"
"""The seller without list prices: a user's own server."""
MOST_USD = 1e9
"""Per million tokens. With higher prices sums could overflow."""


class PriceWarning(UserWarning):
    """A model has no known price, so its costs are shown as unknown."""


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """A price in USD per million tokens.

    Args:
        input: Uncached input.
        output: Output.
        cache_read: Input read from the cache; default a tenth of `input`.
        cache_write: Input written to the cache for 5 minutes; default 1.25 times `input`.
        cache_write_1h: Input written to the cache for an hour; default twice `input`.

    Raises:
        DeclarationError: A price is negative, too large or not a number.
    """

    input: float
    output: float
    cache_read: float | None = field(default=None, kw_only=True)
    cache_write: float | None = field(default=None, kw_only=True)
    cache_write_1h: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        make_builtin(self)
        of_cache = (self.cache_read, self.cache_write, self.cache_write_1h)
        for rate in (self.input, self.output, *(one for one in of_cache if one is not None)):
            if not (is_number(rate) and 0 <= rate <= MOST_USD):
                hint = "Prices are in USD per million tokens."
                raise DeclarationError(f"A price must be a number from 0 to {MOST_USD:g}, got {rate!r}.", hint=hint)

    @property
    def rates(self) -> tuple[float, float, float, float, float]:
        """The prices of input, output, cache reads, and cache writes for 5 minutes and for an hour."""
        read = self.input * 0.1 if self.cache_read is None else self.cache_read
        write = self.input * 1.25 if self.cache_write is None else self.cache_write
        write_1h = self.input * 2 if self.cache_write_1h is None else self.cache_write_1h
        return self.input, self.output, read, write, write_1h

    def cost_usd(self, usage: Usage) -> float:
        """Return the dollars of these tokens.

        Args:
            usage: The tokens; unknown counts are taken as 0.
        """
        plain = (usage.input_tokens or 0) * self.input + (usage.output_tokens or 0) * self.output
        long = usage.cache_write_1h_tokens
        if not (usage.cache_read_tokens or usage.cache_write_tokens or long):
            return plain / MTOK
        _, _, read, write, write_1h = self.rates
        return (
            plain
            + (usage.cache_read_tokens or 0) * read
            + ((usage.cache_write_tokens or 0) - long) * write
            + long * write_1h
        ) / MTOK


ModelPrice = TokenPrice | tuple[float, float]
"""A pair is input and output, in USD per million tokens."""
SEARCH_USD = 0.01
"""Of one search. Source: the vendor's page on the web search tool, 10 USD for 1,000."""
Tariff = tuple[tuple[int, TokenPrice], ...]
"""Prices by length of the prompt: each is for more than this number of tokens. The last that fits counts."""


class Prices:
    """Looks up prices.

    Args:
        own: The user's prices by model, which win over the list.
        tell: Called once per model without a price; default a Python warning.
        seller: Seller of the list prices, as `genai-prices` names it; default the maker of a model.
        listed: The list by model if `genai-prices` is not installed; see `tariff_of`.
        every: Price of all models without one in `own`, instead of the list's.
    """

    def __init__(
        self,
        own: Mapping[str, ModelPrice] | None = None,
        tell: Callable[[str], None] | None = None,
        *,
        seller: str | None = None,
        listed: Mapping[str, tuple[Tariff, str]] | None = None,
        every: TokenPrice | None = None,
    ) -> None:
        self._own, self._seller, self._list, self._every = checked_prices(own), seller, listed, every
        self._tell = tell or _warn
        self._found: dict[str, tuple[TokenPrice | None, Tariff, str]] = {}

    def of(self, model: str, usage: Usage | None) -> Price:
        """Warn once per model without a price."""
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            return UNKNOWN
        price, longer, basis = self._found.get(model) or self.find(model)
        if price is None:
            return UNKNOWN
        for above, other in longer:
            if (usage.total_input_tokens or 0) > above:
                price = other
        return new_tuple(Price, (price.cost_usd(usage) + usage.searches * SEARCH_USD, basis))

    def of_answer(self, asked: str, answered: str, usage: Usage | None) -> Price:
        # The user's price of the requested model counts if the answer's name is an alias of it, or has no
        # price.
        if answered not in self._own:
            given = asked in self._own and not self.tariff_of(answered)[0]
            if given or is_same_model(asked, answered):
                answered = asked
        with suppress(PriceWarning):  # where warnings are errors: it is paid for, and not to be lost by that
            self.find(answered)
        return self.of(answered, usage)

    def rates(self, model: str, total_input_tokens: int) -> tuple[float, float, float, float, float] | None:
        """The `TokenPrice.rates` for a prompt of this length, if known."""
        fitting = [price for above, price in self.tariff_of(model)[0] if total_input_tokens > above]
        return fitting[-1].rates if fitting else None

    def tariff_of(self, model: str) -> tuple[Tariff, str]:
        if model in self._own:
            return ((-1, self._own[model]),), "given"
        if self._every is not None:
            return ((-1, self._every),), "given"
        if self._list is not None:
            return self._list.get(model, ((), ""))
        tariff = _tariff(model, self._seller)
        return (tariff, _basis()) if tariff else ((), "")

    def has(self, model: str) -> bool:
        return model in self._own or (has_list_price(model) if self._list is None else model in self._list)

    def find(self, model: str) -> tuple[TokenPrice | None, Tariff, str]:
        """Warn once per model without a price."""
        if model in self._found:
            return self._found[model]
        tariff, basis = self.tariff_of(model)
        found = self._found[model] = (tariff[0][1], tariff[1:], basis) if tariff else (None, (), "")
        if not tariff:
            self._tell(f"No price is known for {model!r}: its costs are shown as unknown.")
        return found


def of_batch(price: Price, usage: Usage | None) -> Price:
    """Halve the price of tokens, not of searches. Source: the vendor's page on them."""
    if price.cost_usd is None:
        return Price(None, f"{price.basis}{AT_BATCH_PRICE}")
    searched = 0.0 if usage is None else usage.searches * SEARCH_USD
    return Price((price.cost_usd - searched) * BATCH_PRICE + searched, f"{price.basis}{AT_BATCH_PRICE}")


PAIR = 2


def checked_prices(own: object) -> dict[str, TokenPrice]:
    """A pair prices cached input like other input."""
    given: dict[str, Any] = dict(cast("Mapping[str, Any]", own)) if isinstance(own, Mapping) else {}
    found: dict[str, TokenPrice] = {}
    for model, one in given.items():
        pair = cast("tuple[Any, ...]", one) if isinstance(one, tuple) else ()
        if isinstance(one, TokenPrice):
            found[model] = one
        elif len(pair) == PAIR:
            found[model] = TokenPrice(*pair, cache_read=pair[0], cache_write=pair[0], cache_write_1h=pair[0])
    if own is not None and (len(found) < len(given) or not isinstance(own, Mapping) or "" in found):
        hint = "Give a mapping of models to TokenPrice(input, output), or (input, output), in USD per million tokens."
        raise DeclarationError(
            f"prices must map models to TokenPrice, got {shown_value(cast('object', own))}.", hint=hint
        )
    return found


def _warn(message: str) -> None:
    warnings.warn(message, PriceWarning, stacklevel=3)


def _on_list(model: str, seller: str | None) -> Any:
    # The library also matches names that only begin like or contain a known one: `claude-opus-4-10` for `claude-
    # opus-4-1`, which is another model.
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    plain = plain_name(model)
    for name in (model, plain):  # the list has some names without the forms with a date
        with suppress(LookupError):
            found = calc_price(Tokens(input_tokens=1, output_tokens=1), name, provider_id=seller)
            known = [found.model.id, *_literals(found.model.match)]
            return found if any(ends_with(plain, plain_name(one)) for one in known) else None
    return None


def _literals(clause: Any) -> Iterator[str]:
    for part in (*getattr(clause, "or_", ()), *getattr(clause, "and_", ())):
        yield from _literals(part)
    for kind in ("equals", "starts_with", "ends_with", "contains"):
        if isinstance(text := getattr(clause, kind, None), str):
            yield text


@functools.lru_cache(maxsize=64)
def seller_at(address: str) -> str | None:
    from genai_prices import data_snapshot

    with suppress(LookupError):
        return data_snapshot.get_snapshot().find_provider(None, None, address).id
    return None


@functools.lru_cache(maxsize=1)
def _basis() -> str:
    return f"genai-prices {version('genai-prices')}"


@functools.lru_cache(maxsize=256)
def _tariff(model: str, seller: str | None = None) -> Tariff:
    """Read the list once. A price by the library takes 90 microseconds, this way one."""
    found = _on_list(model, seller)
    if found is None:
        return ()
    listed = found.model_price
    kinds = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
    rates = [getattr(listed, kind, None) for kind in kinds]
    starts = {tier.start for rate in rates for tier in getattr(rate, "tiers", ())}
    return tuple((above, _price_above(rates, above)) for above in (-1, *sorted(starts)))


def _price_above(rates: list[Any], above: int) -> TokenPrice:
    found: list[float | None] = []
    for rate in rates:
        fitting = [tier.price for tier in getattr(rate, "tiers", ()) if tier.start <= above]
        price = fitting[-1] if fitting else getattr(rate, "base", rate)
        found.append(None if price is None else float(price))
    return TokenPrice(
        found[0] or 0.0, found[1] or 0.0, cache_read=found[2], cache_write=found[3], cache_write_1h=found[4]
    )


def saved_usd(record: RunRecord, prices: Prices | None = None) -> float | None:
    prices = prices or Prices(tell=lambda _: None)
    return total_usd(asked_usd(one, prices) for one in record.facts.paid_before)


def asking_usd(result: AgentResult, prices: Prices) -> float | None:
    """Price answers bought before by their tokens: a reused answer never shows as 0."""
    if not result.is_served:
        return result.cost_usd
    costs = [asked_usd(one, prices) for one in result.attempts]
    return total_usd(costs) if costs and costs[-1] is not None else None


def asked_usd(attempt: Attempt, prices: Prices) -> float | None:
    """Return the cost of an attempt, or of its answer if that was bought before."""
    answer, usage = attempt.answer, attempt.usage
    if not attempt.is_served or answer is None or usage is None:
        return attempt.cost_usd
    price = prices.of_answer(attempt.model, answer.model or attempt.model, usage)
    return (of_batch(price, usage) if answer.batch else price).cost_usd


def has_list_price(model: str) -> bool:
    """Return whether a name is on the list; another spelling of a known name is not."""
    return bool(_tariff(model)) and (model in listed_models() or undated(model) in listed_models())


@functools.lru_cache(maxsize=256)
def context_window(model: str) -> int | None:
    found = _on_list(model, None)
    return None if found is None else found.model.context_window


def near_model(model: str, known: Iterable[str] = ()) -> str:
    """Return ` Did you mean 'x'?` for the model that a name may stand for."""
    # A part of a name, such as its family, stands for the newest model with it; otherwise spelling decides.
    names = [*known, *listed_models()]
    longer = [one for one in names if model and model.lower() in one.lower() and model != one]
    return did_you_mean(model, names) if not longer else f" Did you mean {max(longer, key=_version)!r}?"


def _version(model: str) -> tuple[list[int], int]:
    """Sort by age: the numbers in the name, then the shorter name."""
    return [int(one) for one in re.findall(r"(?<!\d)\d{1,2}(?!\d)", model)], -len(model)


@functools.lru_cache(maxsize=1)
def listed_models() -> tuple[str, ...]:
    from genai_prices.data import providers

    return tuple(
        model.id.removesuffix("-latest") for each in providers if each.id == "anthropic" for model in each.models
    )
