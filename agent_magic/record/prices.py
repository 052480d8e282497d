"""What tokens cost: by the user's own table, and then by the list prices of `genai-prices`.

Source: `genai-prices`, bundled and offline; cache writes for one hour and long prompts are priced as it says. The price
used is stored with each attempt, because prices change.
"""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from agent_magic.declare.validation import is_number
from agent_magic.errors import DeclarationError, did_you_mean, shown_value
from agent_magic.record.answer import PAID_BEFORE, Price
from agent_magic.record.made import made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent_magic.record.answer import Usage
    from agent_magic.record.attempt import Attempt
    from agent_magic.record.results import AgentResult, RunRecord

UNKNOWN = Price(None, "unknown")
MTOK = 1_000_000
BATCH_PRICE = 0.5
"""Of a batch, of input, output and the cache. Source: the vendor's page on batches."""
AT_BATCH_PRICE = ", half of it for a batch"
MOST_USD = 1e9
"""Dollars per million tokens. With higher prices sums could overflow."""


class PriceWarning(UserWarning):
    """A model has no known price, so its costs are shown as unknown."""


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """A price in USD per million tokens.

    Args:
        input: Uncached input.
        output: Output.
        cache_read: Input read from the cache; `None` is a tenth of `input`.
        cache_write: Input written to the cache for 5 minutes; `None` is 1.25 times `input`.
        cache_write_1h: Input written to the cache for an hour; `None` is twice `input`.

    Raises:
        DeclarationError: One of them is negative, too large or no number.
    """

    input: float
    output: float
    cache_read: float | None = field(default=None, kw_only=True)
    cache_write: float | None = field(default=None, kw_only=True)
    cache_write_1h: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
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
            usage: The tokens; what is unknown counts as none.
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


SEARCH_USD = 0.01
"""Of one search of the web. Source: the vendor's page on the web search tool, 10 USD for 1,000."""
Tariff = tuple[tuple[int, TokenPrice], ...]
"""Prices by length of the prompt: each is for prompts of more than this number of tokens. The last that fits counts."""


class Prices:
    """Looks up prices.

    Args:
        own: Prices by model, which count before the list.
        tell: Called once per model without a price; a Python warning by default.
        seller: Whose list prices count, by the name that `genai-prices` has for it; `None` is the maker of a model.
        listed: The list, by model as `tariff_of` returns it, where `genai-prices` is not installed; `None` asks that.

    Raises:
        DeclarationError: `own` is no mapping of prices.
    """

    def __init__(
        self,
        own: Mapping[str, TokenPrice] | None = None,
        tell: Callable[[str], None] | None = None,
        *,
        seller: str | None = None,
        listed: Mapping[str, tuple[Tariff, str]] | None = None,
    ) -> None:
        self._own, self._seller, self._list = _checked(own), seller, listed
        self._tell = tell or _warn
        self._found: dict[str, tuple[TokenPrice | None, Tariff, str]] = {}

    def of(self, model: str, usage: Usage | None) -> Price:
        """Return what the tokens of one attempt cost. Warns once per model without a price.

        Returns:
            Dollars and where the price is from. Dollars are `None` if tokens or price are unknown.
        """
        if usage is None or usage.input_tokens is None or usage.output_tokens is None:
            return UNKNOWN
        price, longer, basis = self._found.get(model) or self.find(model)
        if price is None:
            return UNKNOWN
        for above, other in longer:
            if (usage.total_input_tokens or 0) > above:
                price = other
        return made(Price, (price.cost_usd(usage) + usage.searches * SEARCH_USD, basis))

    def of_answer(self, asked: str, answered: str, usage: Usage) -> Price:
        """Price an answer by the model that gave it, or by the one asked if the other has no known price.

        Your own price for the model asked also counts for one that the list prices alike: its name with a date.
        """
        alias = asked in self._own and answered not in self._own and self._listed(asked) == self._listed(answered)
        return self.of(answered if not alias and self.tariff_of(answered)[0] else asked, usage)

    def rates(self, model: str, total_input_tokens: int) -> tuple[float, float, float, float, float] | None:
        """Return the `TokenPrice.rates` of a prompt of this length, USD per million tokens; `None` is unknown."""
        fitting = [price for above, price in self.tariff_of(model)[0] if total_input_tokens > above]
        return fitting[-1].rates if fitting else None

    def tariff_of(self, model: str) -> tuple[Tariff, str]:
        """Return a model's prices, and where they are from; no prices if none is known."""
        if model in self._own:
            return ((-1, self._own[model]),), "given"
        if self._list is not None:
            return self._list.get(model, ((), ""))
        tariff = self._listed(model)
        return (tariff, _basis()) if tariff else ((), "")

    def _listed(self, model: str) -> Tariff:
        return _tariff(model, self._seller) if self._list is None else self._list.get(model, ((), ""))[0]

    def has(self, model: str) -> bool:
        """Return whether a model is among the prices that were given, or on the list."""
        return model in self._own or (has_list_price(model) if self._list is None else model in self._list)

    def find(self, model: str) -> tuple[TokenPrice | None, Tariff, str]:
        """Return a model's price, those of longer prompts, and where they are from. Warns once without a price."""
        if model in self._found:
            return self._found[model]
        tariff, basis = self.tariff_of(model)
        if tariff:
            found = tariff[0][1], tariff[1:], basis
        else:
            found = None, (), ""
            self._tell(f"No price is known for {model!r}: its costs are shown as unknown.")
        self._found[model] = found
        return found


def of_batch(price: Price, usage: Usage | None) -> Price:
    """Return the price of what went by batch, from what it had cost live.

    Tokens cost half. Searches of the web cost as much as they do live; source: the vendor's page on that tool.

    Args:
        price: What it had cost live.
        usage: What it used; `None` is unknown.
    """
    if price.cost_usd is None:
        return Price(None, f"{price.basis}{AT_BATCH_PRICE}")
    searched = 0.0 if usage is None else usage.searches * SEARCH_USD
    return Price((price.cost_usd - searched) * BATCH_PRICE + searched, f"{price.basis}{AT_BATCH_PRICE}")


def _checked(own: object) -> dict[str, TokenPrice]:
    """Check prices before a run: a wrong one would otherwise show only when answers are paid for."""
    if own is None or (type(own) is dict and not own):
        return {}
    table: dict[str, Any] = dict(cast("Mapping[str, Any]", own)) if isinstance(own, Mapping) else {"": own}
    if not all(isinstance(one, TokenPrice) for one in table.values()):
        hint = "Give a mapping of models to TokenPrice(input, output), in USD per million tokens."
        got = shown_value(cast("object", own))
        raise DeclarationError(f"prices must map models to TokenPrice, got {got}.", hint=hint)
    return table


def _warn(message: str) -> None:
    warnings.warn(message, PriceWarning, stacklevel=3)


@functools.lru_cache(maxsize=1)
def _basis() -> str:
    return f"genai-prices {version('genai-prices')}"


@functools.lru_cache(maxsize=256)
def _tariff(model: str, seller: str | None = None) -> Tariff:
    """Read a model's list prices once. A price by the library takes 90 microseconds, this way one."""
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    try:
        listed = calc_price(Tokens(input_tokens=1, output_tokens=1), model, provider_id=seller).model_price
    except LookupError:
        return ()
    kinds = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
    rates = [getattr(listed, kind, None) for kind in kinds]
    starts = {tier.start for rate in rates for tier in getattr(rate, "tiers", ())}
    return tuple((above, _price_above(rates, above)) for above in (-1, *sorted(starts)))


def _price_above(rates: list[Any], above: int) -> TokenPrice:
    """Return the prices of prompts longer than `above` tokens."""
    found: list[float | None] = []
    for rate in rates:
        fitting = [tier.price for tier in getattr(rate, "tiers", ()) if tier.start <= above]
        price = fitting[-1] if fitting else getattr(rate, "base", rate)
        found.append(None if price is None else float(price))
    return TokenPrice(
        found[0] or 0.0, found[1] or 0.0, cache_read=found[2], cache_write=found[3], cache_write_1h=found[4]
    )


def saved_usd(record: RunRecord) -> float | None:
    """Return what a run's answers from the ledger would have cost at list price; `None` if there are none."""
    prices = Prices(tell=lambda _: None)
    served = [one for one in record.attempts if one.price == PAID_BEFORE]
    costs = [prices.of(one.model, one.usage).cost_usd for one in served]
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None


def asking_usd(result: AgentResult, prices: Prices) -> float | None:
    """Return the dollars of asking for an agent's answer: what was paid, and what was bought before by its tokens.

    Args:
        result: The agent.
        prices: What tokens cost.

    Returns:
        `None` where there is no answer, or its price is unknown; so 0 is never said of an answer that was reused.
    """
    if not result.is_served:
        return result.cost_usd
    costs = [_asked_usd(one, prices) for one in result.attempts]
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known and costs[-1] is not None else None


def _asked_usd(attempt: Attempt, prices: Prices) -> float | None:
    """Return the dollars of an attempt, as if it were sent now where its answer was there."""
    answer, usage = attempt.answer, attempt.usage
    if not attempt.is_served or answer is None or usage is None:
        return attempt.price.cost_usd if attempt.price else None
    price = prices.of_answer(attempt.model, answer.model or attempt.model, usage)
    return (of_batch(price, usage) if answer.batch else price).cost_usd


def has_list_price(model: str) -> bool:
    """Return whether a model has a list price. Another spelling of a known name has none."""
    return bool(_tariff(model)) and any(model == known or model.startswith(f"{known}-20") for known in listed_models())


@functools.lru_cache(maxsize=256)
def context_window(model: str) -> int | None:
    """Return the most tokens of a prompt and its answer together; `None` where the list does not say."""
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    try:
        return calc_price(Tokens(input_tokens=1, output_tokens=1), model).model.context_window
    except LookupError:
        return None


def near_model(model: str, known: Iterable[str] = ()) -> str:
    """Return ` Did you mean 'x'?` for the known or listed model that a name may stand for, or an empty string.

    A part of a name, such as its family, stands for the newest model with it; otherwise spelling decides.

    Args:
        model: The name.
        known: Names beside those that have a list price.
    """
    names = [*known, *listed_models()]
    longer = [one for one in names if model and model.lower() in one.lower() and model != one]
    return did_you_mean(model, names) if not longer else f" Did you mean {max(longer, key=_version)!r}?"


def _version(model: str) -> tuple[list[int], int]:
    """Return what orders models by age: the numbers of a name, and the shorter one first where they are the same."""
    return [int(one) for one in re.findall(r"(?<!\d)\d{1,2}(?!\d)", model)], -len(model)


@functools.lru_cache(maxsize=1)
def listed_models() -> tuple[str, ...]:
    """Return the names of the models with a list price, without dates."""
    from genai_prices.data import providers

    return tuple(
        model.id.removesuffix("-latest") for each in providers if each.id == "anthropic" for model in each.models
    )
